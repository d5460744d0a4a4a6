//! The operations burn does not have: ALiBi attention, norms with f64 sums, and what follows a matrix product.
//!
//! A burn backend extension: the macro generates the dispatch from a run-time tensor to the backend that owns it. Only the
//! CPU backend is listed; another one joins by being listed and implementing the trait.

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchTensor, backend_extension};
use burn::tensor::{Device, Tensor};
use kernels::{AttentionObserver, AttentionShape};
use numerics::{BiasFunction, PrecisionPlan};

use crate::bias::LoweredBias;
use crate::spec::{Activation, NormKind};

/// Arguments of [`alibi_attention`] that are not tensors.
#[derive(Clone, Debug)]
pub(crate) struct AttentionParams {
    pub(crate) shape: AttentionShape,
    pub(crate) bias: Arc<LoweredBias>,
    /// Per key; `None`: all valid.
    pub(crate) key_valid: Option<Arc<[bool]>>,
    pub(crate) observer: Option<Arc<dyn AttentionObserver>>,
    /// In place of the kernel and of `bias`.
    pub(crate) emulation: Option<Arc<Emulation>>,
}

/// Attention under a precision plan, which forms the bias itself.
#[derive(Clone, Debug)]
pub(crate) struct Emulation {
    pub(crate) plan: Arc<PrecisionPlan>,
    /// Slope of every head.
    pub(crate) slopes: Vec<f64>,
    pub(crate) bias: BiasFunction,
}

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
#[backend_extension(Flex)]
pub(crate) trait ModelOps: Backend {
    fn alibi_attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        params: AttentionParams,
    ) -> FloatTensor<Self>;

    fn normalise(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        params: NormParams,
    ) -> FloatTensor<Self>;

    fn finish(
        y: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        factor: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        params: FinishParams,
    ) -> FloatTensor<Self>;
}

/// The macro routes no optional tensors: a missing one crosses as a tensor of no elements.
fn or_empty<const D: usize>(tensor: Option<Tensor<D>>, device: &Device) -> DispatchTensor {
    let tensor = tensor.unwrap_or_else(|| Tensor::empty([0; D], device));
    tensor.into_dispatch()
}

/// Attention of one sequence. `q` is `[queries, heads * width]`, `k` and `v` are `[keys, kv_heads * width]`; the result is
/// `[queries, heads * width]`.
pub(crate) fn alibi_attention(
    q: Tensor<2>,
    k: Tensor<2>,
    v: Tensor<2>,
    params: AttentionParams,
) -> Tensor<2> {
    let (q, k, v) = (q.into_dispatch(), k.into_dispatch(), v.into_dispatch());
    Tensor::from_dispatch(Dispatch::alibi_attention(q, k, v, params))
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
