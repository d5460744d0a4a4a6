//! Attention on the CPU backend: the kernel, on the slices of burn's tensors.

use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{DType, Shape};
use kernels::{AttentionInput, AttentionShape, BiasTable, Gradients};

use super::ops::{AttentionOps, AttentionParams, BiasKind, Segment};
use super::{tiled, tiled_backward};
use crate::flex::{Rows, dense_rows, tensor_from};

/// What the kernel reads of one segment, which begins at its first query and key.
struct Inputs<'a> {
    params: &'a AttentionParams,
    q: Rows<'a>,
    k: Rows<'a>,
    v: Rows<'a>,
    /// `[n_heads, n]`, contiguous.
    bias: &'a [f32],
}

impl<'a> Inputs<'a> {
    /// Dense rows of queries, keys and values, and a contiguous bias.
    fn new(params: &'a AttentionParams, [q, k, v, bias]: [&'a FlexTensor; 4]) -> Self {
        Self {
            params,
            q: Rows::new(q),
            k: Rows::new(k),
            v: Rows::new(v),
            bias: slice(bias),
        }
    }

    /// The call of a segment. `bias_keys` is the part of a bias by key that belongs to it, if it is not all of it.
    fn segment<'b>(&'b self, segment: &Segment, bias_keys: &'b [f32]) -> AttentionInput<'b> {
        let s = self.params.shape;
        let (first, keys) = (segment.queries.start, segment.keys.clone());
        let from = |rows: &'b Rows<'_>, row: usize| rows.from(row).heads(s.head_width);
        AttentionInput {
            shape: AttentionShape {
                n_queries: segment.queries.len(),
                n_keys: keys.len(),
                ..s
            },
            q: from(&self.q, first),
            k: from(&self.k, keys.start),
            v: from(&self.v, keys.start),
            bias: match self.params.bias {
                BiasKind::None => BiasTable::None,
                BiasKind::ByKey => BiasTable::ByKey { values: bias_keys },
                BiasKind::ByDistance => BiasTable::ByDistance { values: self.bias },
            },
            key_valid: self.params.key_valid.as_deref().map(|valid| &valid[keys]),
        }
    }

    /// Bias by key of a segment's keys, `[n_heads, keys]`; a copy only where that is not the whole table.
    fn bias_keys<'b>(&'b self, segment: &Segment, buffer: &'b mut Vec<f32>) -> &'b [f32] {
        let n = self.bias.len() / self.params.shape.n_heads;
        if self.params.bias != BiasKind::ByKey || segment.keys == (0..n) {
            return self.bias;
        }
        buffer.clear();
        let rows = self.bias.chunks_exact(n);
        buffer.extend(rows.flat_map(|row| &row[segment.keys.clone()]));
        buffer
    }
}

fn contiguous(tensor: FlexTensor) -> FlexTensor {
    assert_eq!(tensor.dtype(), DType::F32, "the CPU kernel is f32");
    tensor.to_contiguous()
}

fn slice(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice::<f32>().expect("made contiguous")
}

fn forward([q, k, v, bias]: [FlexTensor; 4], params: &AttentionParams) -> (FlexTensor, FlexTensor) {
    let (q, k, v) = (dense_rows(q), dense_rows(k), dense_rows(v));
    let bias = contiguous(bias);
    let inputs = Inputs::new(params, [&q, &k, &v, &bias]);
    let s = params.shape;
    let row = s.n_heads * s.head_width;
    let (out_shape, lse_shape) = (
        Shape::from([s.n_queries, row]),
        Shape::from([s.n_heads, s.n_queries]),
    );
    let mut buffer = vec![];
    let segments = params.segments();
    let mut out = vec![0f32; s.n_queries * row];
    let mut lse = vec![0f32; s.n_heads * s.n_queries];
    if let [whole] = segments.as_slice() {
        let input = inputs.segment(whole, inputs.bias_keys(whole, &mut buffer));
        if let Some(emulation) = &params.emulation {
            let (plan, slopes) = (&emulation.plan, &emulation.slopes);
            let (out, lse) = kernels::emulated::attention(&input, plan, slopes, &emulation.bias);
            let narrow = |values: Vec<f64>| values.into_iter().map(|x| x as f32).collect();
            return (
                tensor_from(narrow(out), out_shape),
                tensor_from(narrow(lse), lse_shape),
            );
        }
        kernels::attention(&input, &mut out, &mut lse, params.observer.as_deref());
        return (tensor_from(out, out_shape), tensor_from(lse, lse_shape));
    }
    for segment in &segments {
        let input = inputs.segment(segment, inputs.bias_keys(segment, &mut buffer));
        let rows = segment.queries.clone();
        let mut own = vec![0f32; s.n_heads * rows.len()];
        let out = &mut out[rows.start * row..rows.end * row];
        kernels::attention(&input, out, &mut own, None);
        copy_columns(&own, &mut lse, rows);
    }
    (tensor_from(out, out_shape), tensor_from(lse, lse_shape))
}

/// Columns `range` of every row of `to` from the rows of `from`; both have as many rows.
fn copy_columns(from: &[f32], to: &mut [f32], range: std::ops::Range<usize>) {
    let n_rows = from.len() / range.len();
    let stride = to.len() / n_rows;
    for (from, to) in from
        .chunks_exact(range.len())
        .zip(to.chunks_exact_mut(stride))
    {
        to[range.clone()].copy_from_slice(from);
    }
}

fn backward(
    [q, k, v, bias]: [FlexTensor; 4],
    [out, lse, gradient]: [FlexTensor; 3],
    params: &AttentionParams,
    bias_gradient: bool,
) -> [FlexTensor; 4] {
    let (q, k, v) = (dense_rows(q), dense_rows(k), dense_rows(v));
    let shapes = [q.shape(), k.shape(), v.shape(), bias.shape()];
    let bias = contiguous(bias);
    // An incoming gradient may have any layout, an expanded one included.
    let [out, lse, gradient] = [out, lse, gradient].map(contiguous);
    let (out, lse, gradient) = (slice(&out), slice(&lse), slice(&gradient));
    let inputs = Inputs::new(params, [&q, &k, &v, &bias]);
    let s = params.shape;
    let (row, kv_row) = (s.n_heads * s.head_width, s.n_kv_heads * s.head_width);
    let mut dq = vec![0f32; s.n_queries * row];
    let (mut dk, mut dv) = (vec![0f32; s.n_keys * kv_row], vec![0f32; s.n_keys * kv_row]);
    let mut dbias = vec![0f32; inputs.bias.len()];
    let by_distance = bias_gradient && params.bias == BiasKind::ByDistance;
    let mut buffer = vec![];
    let mut part = vec![0f32; if by_distance { dbias.len() } else { 0 }];
    for segment in params.segments() {
        let input = inputs.segment(&segment, inputs.bias_keys(&segment, &mut buffer));
        let (rows, keys) = (segment.queries, segment.keys);
        let own_lse: Vec<f32> = lse
            .chunks_exact(s.n_queries)
            .flat_map(|head| &head[rows.clone()])
            .copied()
            .collect();
        let queries = rows.start * row..rows.end * row;
        let keys = keys.start * kv_row..keys.end * kv_row;
        let mut gradients = Gradients {
            dq: &mut dq[queries.clone()],
            dk: &mut dk[keys.clone()],
            dv: &mut dv[keys],
            dbias: by_distance.then_some(&mut part),
        };
        let (out, gradient) = (&out[queries.clone()], &gradient[queries]);
        kernels::attention_backward(&input, out, &own_lse, gradient, &mut gradients);
        for (sum, x) in dbias.iter_mut().zip(&part) {
            *sum += x;
        }
    }
    let [q, k, v, bias] = shapes;
    [
        tensor_from(dq, q),
        tensor_from(dk, k),
        tensor_from(dv, v),
        tensor_from(dbias, bias),
    ]
}

impl AttentionOps for Flex {
    fn attend(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        params: AttentionParams,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        // The element type is known only at run time.
        match q.dtype() {
            DType::F32 => forward([q, k, v, bias], &params),
            _ => tiled::forward::<Self>(q, k, v, bias, &params),
        }
    }

    fn attend_backward(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        out: FloatTensor<Self>,
        lse: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        params: AttentionParams,
        bias_gradient: bool,
    ) -> (
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
    ) {
        let (inputs, saved) = ([q, k, v, bias], [out, lse, gradient]);
        let [dq, dk, dv, dbias] = match inputs[0].dtype() {
            DType::F32 => backward(inputs, saved, &params, bias_gradient),
            _ => tiled_backward::backward::<Self>(inputs, saved, &params, bias_gradient),
        };
        (dq, dk, dv, dbias)
    }
}
