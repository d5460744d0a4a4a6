//! The operations of [`crate::ops`] on the CPU backend, and what attention needs of its tensors: loops over f32 rows, parallel over fixed groups of rows.
//!
//! A row's result depends on that row alone and rows are grouped by a constant, so the thread count changes nothing.

use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{Bytes, DType, Shape};
use kernels::Heads;
use rayon::prelude::*;

use crate::math;
use crate::ops::{FinishParams, ModelOps, NormParams};
use crate::spec::{Activation, NormKind};

/// Values per parallel task: large enough to hide the cost of a task, small enough to share out.
const TASK_VALUES: usize = 16 * 1024;

fn rows_per_task(channels: usize) -> usize {
    (TASK_VALUES / channels.max(1)).max(1)
}

/// A `[rows, channels]` tensor whose rows are dense, possibly a slice of a larger buffer.
pub(crate) struct Rows<'a> {
    data: &'a [f32],
    offset: usize,
    stride: usize,
    channels: usize,
}

impl<'a> Rows<'a> {
    /// `tensor` must have been through [`dense_rows`].
    pub(crate) fn new(tensor: &'a FlexTensor) -> Self {
        let layout = tensor.layout();
        Self {
            // The whole buffer, not the logical tensor: index through offset and stride.
            data: tensor.storage::<f32>(),
            offset: layout.start_offset(),
            stride: usize::try_from(layout.strides()[0])
                .expect("dense_rows rejects flipped tensors"),
            channels: layout.shape()[1],
        }
    }

    fn row(&self, row: usize) -> &'a [f32] {
        let start = self.offset + row * self.stride;
        &self.data[start..start + self.channels]
    }

    /// The same rows without the first `row`.
    pub(crate) fn from(&self, row: usize) -> Self {
        Self {
            offset: self.offset + row * self.stride,
            ..*self
        }
    }

    /// The channels as heads of equal width, for the kernel.
    pub(crate) fn heads(&self, head_width: usize) -> Heads<'a> {
        Heads {
            data: self.data,
            offset: self.offset,
            row_stride: self.stride,
            head_stride: head_width,
        }
    }
}

/// Copies only a layout that cannot be walked row by row.
pub(crate) fn dense_rows(tensor: FlexTensor) -> FlexTensor {
    let layout = tensor.layout();
    assert_eq!(tensor.dtype(), DType::F32, "the CPU forward pass is f32");
    let dense =
        layout.has_positive_strides() && (layout.strides()[1] == 1 || layout.shape()[1] == 1);
    if dense {
        tensor
    } else {
        tensor.to_contiguous()
    }
}

/// A vector as a dense tensor.
fn dense_vector(tensor: FlexTensor) -> FlexTensor {
    assert_eq!(tensor.dtype(), DType::F32, "the CPU forward pass is f32");
    tensor.to_contiguous()
}

/// A tensor of no elements stands for a missing one.
fn present(tensor: FlexTensor) -> Option<FlexTensor> {
    (tensor.layout().num_elements() > 0).then_some(tensor)
}

fn vector(tensor: &FlexTensor) -> &[f32] {
    tensor
        .as_slice::<f32>()
        .expect("dense_vector made it contiguous")
}

/// Wraps a freshly computed row-major buffer without copying it.
pub(crate) fn tensor_from(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::new(
        Bytes::from_elems(values),
        Layout::contiguous(shape),
        DType::F32,
    )
}

/// A copy of its own.
fn copy_rows(tensor: &FlexTensor) -> FlexTensor {
    let rows = Rows::new(tensor);
    let shape = tensor.shape();
    let mut values = Vec::with_capacity(shape[0] * shape[1]);
    for row in 0..shape[0] {
        values.extend_from_slice(rows.row(row));
    }
    tensor_from(values, shape)
}

fn activate(row: &mut [f32], activation: Activation) {
    match activation {
        Activation::GeluTanh => math::gelu_tanh(row),
        Activation::GeluErf => math::gelu_erf(row),
        Activation::Silu => math::silu(row),
        Activation::Relu => {
            for x in row {
                // `if` rather than `max`, which would swallow NaN.
                *x = if *x < 0.0 { 0.0 } else { *x };
            }
        }
    }
}

#[inline(always)]
fn normalise_group(
    x: &[f32],
    out: &mut [f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    params: NormParams,
) {
    let n = x.len() as f64;
    let mean = match params.kind {
        NormKind::LayerNorm => math::sum(x) / n,
        NormKind::RmsNorm => 0.0,
    };
    let variance = math::sum_squares(x, mean) / n;
    let factor = (1.0 / (variance + f64::from(params.eps)).sqrt()) as f32;
    let mean = mean as f32;
    for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
        *out = (x - mean) * factor * w;
    }
    if let Some(bias) = bias {
        for (out, b) in out.iter_mut().zip(bias) {
            *out += b;
        }
    }
}

impl ModelOps for Flex {
    fn normalise(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        params: NormParams,
    ) -> FloatTensor<Self> {
        let (x, weight, bias) = (
            dense_rows(x),
            dense_vector(weight),
            present(bias).map(dense_vector),
        );
        let shape = x.shape();
        let (weight, bias) = (vector(&weight), bias.as_ref().map(vector));
        let rows = Rows::new(&x);
        let mut out = vec![0f32; shape[0] * rows.channels];
        let n = rows_per_task(rows.channels);
        out.par_chunks_mut(n * rows.channels)
            .enumerate()
            .for_each(|(task, out)| {
                for (i, out) in out.chunks_exact_mut(rows.channels).enumerate() {
                    let x = rows.row(task * n + i);
                    let groups = x
                        .chunks_exact(params.group)
                        .zip(out.chunks_exact_mut(params.group));
                    math::simd(
                        #[inline(always)]
                        || {
                            for (x, out) in groups {
                                normalise_group(x, out, weight, bias, params);
                            }
                        },
                    );
                }
            });
        tensor_from(out, shape)
    }

    fn finish(
        y: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        factor: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        params: FinishParams,
    ) -> FloatTensor<Self> {
        let shape = y.shape();
        let (n_rows, channels) = (shape[0], shape[1]);
        let bias = present(bias).map(dense_vector);
        let (factor, residual) = (
            present(factor).map(dense_rows),
            present(residual).map(dense_rows),
        );
        for tensor in factor.iter().chain(&residual) {
            assert_eq!(
                tensor.shape(),
                shape,
                "factor and residual have the shape of y"
            );
        }
        let bias = bias.as_ref().map(vector);
        let (factor, residual) = (
            factor.as_ref().map(Rows::new),
            residual.as_ref().map(Rows::new),
        );
        // A view into a larger buffer must be copied out before it is written to.
        let whole = y.is_contiguous()
            && y.layout().start_offset() == 0
            && y.storage::<f32>().len() == n_rows * channels;
        let mut y = if whole { y } else { copy_rows(&dense_rows(y)) };
        let n = rows_per_task(channels);
        y.storage_mut::<f32>()
            .par_chunks_mut(n * channels)
            .enumerate()
            .for_each(|(task, y)| {
                for (i, y) in y.chunks_exact_mut(channels).enumerate() {
                    let row = task * n + i;
                    if let Some(bias) = bias {
                        y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
                    }
                    if let Some(c) = params.clamp {
                        y.iter_mut().for_each(|y| *y = y.clamp(-c, c));
                    }
                    if let Some(activation) = params.activation {
                        activate(y, activation);
                    }
                    if let Some(factor) = &factor {
                        y.iter_mut().zip(factor.row(row)).for_each(|(y, f)| *y *= f);
                    }
                    if let Some(residual) = &residual {
                        y.iter_mut()
                            .zip(residual.row(row))
                            .for_each(|(y, r)| *y += r);
                    }
                }
            });
        y
    }
}
