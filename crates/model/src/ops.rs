//! The operations burn does not have beside attention: norms with f64 sums, and what follows a matrix product.
//!
//! A burn backend extension: the macro generates the dispatch from a run-time tensor to the backend that owns it. The CPU
//! backend has loops of its own; on others the default bodies are burn's tensor operations, norms in f32.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchTensor, backend_extension};
use burn::tensor::{Device, Tensor};

use crate::plain;
use crate::spec::{Activation, NormKind};

/// Arguments of [`normalise`] that are not tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NormParams {
    pub(crate) kind: NormKind,
    pub(crate) eps: f32,
    /// Channels normalised together; the weight has as many entries and repeats along the row.
    pub(crate) group: usize,
}

/// Arguments of [`finish`] that are not tensors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FinishParams {
    pub(crate) clamp: Option<f32>,
    pub(crate) activation: Option<Activation>,
}

/// See the wrappers below for shapes and meaning.
#[backend_extension(
    Flex,
    Cube: cfg(any(feature = "cuda", feature = "metal", feature = "rocm", feature = "wgpu"))
)]
pub(crate) trait ModelOps: Backend {
    fn normalise(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        params: NormParams,
    ) -> FloatTensor<Self> {
        plain::normalise::<Self>(x, weight, bias, params)
    }

    fn finish(
        y: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        factor: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        params: FinishParams,
    ) -> FloatTensor<Self> {
        plain::finish::<Self>(y, [bias, factor, residual], params)
    }
}

#[cfg(any(
    feature = "cuda",
    feature = "metal",
    feature = "rocm",
    feature = "wgpu"
))]
impl ModelOps for burn::backend::Cube {}

/// The macro routes no optional tensors: a missing one crosses as a tensor of no elements.
fn or_empty<const D: usize>(tensor: Option<Tensor<D>>, device: &Device) -> DispatchTensor {
    let tensor = tensor.unwrap_or_else(|| Tensor::empty([0; D], device));
    tensor.into_dispatch()
}

/// Norm of every `group` channels of every row of `x`, `[rows, channels]`, then times `weight`, plus `bias` (`[group]`).
pub(crate) fn normalise(
    x: Tensor<2>,
    weight: Tensor<1>,
    bias: Option<Tensor<1>>,
    params: NormParams,
) -> Tensor<2> {
    let bias = or_empty(bias, &x.device());
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(Dispatch::normalise(x, weight, bias, params))
}

/// `activation(clamp(y + bias)) * factor + residual`, each part optional, in place where `y` is not shared. `y`, `factor`
/// and `residual` are `[rows, channels]`, `bias` is `[channels]`.
pub(crate) fn finish(
    y: Tensor<2>,
    bias: Option<Tensor<1>>,
    factor: Option<Tensor<2>>,
    residual: Option<Tensor<2>>,
    params: FinishParams,
) -> Tensor<2> {
    let device = y.device();
    let bias = or_empty(bias, &device);
    let factor = or_empty(factor, &device);
    let residual = or_empty(residual, &device);
    let y = Dispatch::finish(y.into_dispatch(), bias, factor, residual, params);
    Tensor::from_dispatch(y)
}
