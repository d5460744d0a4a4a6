//! Attention as an operation of burn: on the CPU the kernel, on any other device burn's own tensor operations, and with the
//! feature `autodiff` a gradient of its own.
//!
//! | file | holds |
//! |---|---|
//! | `ops` | the backend extension, and what it needs besides tensors |
//! | `cpu` | the extension on the CPU backend: the kernel of the `kernels` crate, forward and backward |
//! | `tiled` | the forward pass in tensor operations of any backend, tile of queries by tile |
//! | `tiled_backward` | the backward pass likewise |
//! | `autodiff` | the backward pass registered with burn |
//! | `learned` | bias tables as differentiable functions of learned parameters |
#![cfg_attr(
    not(feature = "autodiff"),
    allow(
        dead_code,
        reason = "nobody calls the backward passes then; they are compiled all the same"
    )
)]

#[cfg(feature = "autodiff")]
mod autodiff;
mod cpu;
mod learned;
mod ops;
#[cfg(test)]
mod tests;
mod tiled;
mod tiled_backward;

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor, TensorData};
use kernels::{AttentionObserver, AttentionShape};

pub use learned::kerple_log_bias;
pub(crate) use ops::Emulation;
use ops::{AttentionOps, BiasKind};

use crate::bias::LoweredBias;

/// Bias of an [`attention`] call in nats, added after the scale. Linear in the length, whatever its form.
#[derive(Clone, Debug)]
pub enum AttentionBias {
    /// No bias.
    None,
    /// `[n_heads, n_keys]`, by key index. It carries no gradient.
    ByKey(Tensor<2>),
    /// `[n_heads, n]`, by `|query - key|` in tokens, with every distance that occurs inside the mask; so `n` keys or more.
    /// Differentiable: a table computed by tensor operations from learned parameters hands its gradient on to them.
    ByDistance(Tensor<2>),
}

impl AttentionBias {
    /// A lowered table on a device, without a copy where that is the CPU.
    pub fn from_lowered(bias: LoweredBias, n_heads: usize, device: &Device) -> Self {
        let table = |values: Vec<f32>| {
            let n = values.len() / n_heads;
            Tensor::from_data(TensorData::new(values, [n_heads, n]), device)
        };
        match bias {
            LoweredBias::None => Self::None,
            LoweredBias::ByKey(values) => Self::ByKey(table(values)),
            LoweredBias::ByDistance(values) => Self::ByDistance(table(values)),
        }
    }

    /// Kind and table; the macro routes no optional tensors, so a missing one crosses as a small tensor that nobody reads.
    fn split(self, device: &Device) -> (BiasKind, Tensor<2>) {
        match self {
            Self::None => (BiasKind::None, Tensor::zeros([1, 1], device)),
            Self::ByKey(table) => (BiasKind::ByKey, table),
            Self::ByDistance(table) => (BiasKind::ByDistance, table),
        }
    }
}

/// What an [`attention`] call is given besides queries, keys and values.
#[derive(Clone, Debug)]
pub struct AttentionCall {
    /// Sizes and rules.
    pub shape: AttentionShape,
    /// Bias in nats.
    pub bias: AttentionBias,
    /// `[n_keys]`, false for padding, which no query sees. `None`: all keys are real.
    pub key_valid: Option<Arc<[bool]>>,
    /// First tokens of the documents of a packed sequence, ascending from 0; no query sees a key of another document. Only
    /// for calls whose queries are their keys (as many of both, no offset). `None`: one document.
    pub documents: Option<Arc<[usize]>>,
}

/// ALiBi attention of one sequence on the device of `q`; gives `(out, lse)`.
///
/// `q` is `[n_queries, n_heads * head_width]`, `k` and `v` are `[n_keys, n_kv_heads * head_width]`; `out` has the shape of `q`,
/// `lse`, the log-sum-exp of every score row in nats, is `[n_heads, n_queries]` and carries no gradient. A query that sees no
/// key gives zeros and an `lse` of minus infinity.
///
/// f32 on the CPU is [`kernels::attention`], bit for bit. Other devices, and f64 on the CPU, are burn's own tensor operations,
/// one tile of queries at a time: memory linear in the length, the same formulas, other roundings. With the feature
/// `autodiff` and tensors of an autodiff device the result is differentiable (once) in `q`, `k`, `v` and a bias by distance,
/// by a backward pass that recomputes the scores ([`kernels::attention_backward`] on the CPU).
///
/// # Panics
/// If a size disagrees with `call.shape`, if the tensors differ in device or element type, or on a device whose backend this
/// crate was built without.
pub fn attention(
    q: Tensor<2>,
    k: Tensor<2>,
    v: Tensor<2>,
    call: &AttentionCall,
) -> (Tensor<2>, Tensor<2>) {
    run([q, k, v], call, None, None)
}

/// As [`attention`], watched or emulated, which only the CPU can be; the output alone.
pub(crate) fn watched(
    qkv: [Tensor<2>; 3],
    call: &AttentionCall,
    observer: Option<Arc<dyn AttentionObserver>>,
    emulation: Option<Arc<Emulation>>,
) -> Tensor<2> {
    run(qkv, call, observer, emulation).0
}

fn run(
    [q, k, v]: [Tensor<2>; 3],
    call: &AttentionCall,
    observer: Option<Arc<dyn AttentionObserver>>,
    emulation: Option<Arc<Emulation>>,
) -> (Tensor<2>, Tensor<2>) {
    let (kind, bias) = call.bias.clone().split(&q.device());
    let params = ops::AttentionParams {
        shape: call.shape,
        bias: kind,
        key_valid: call.key_valid.clone(),
        documents: call.documents.clone(),
        observer,
        emulation,
    };
    params.check([q.dims(), k.dims(), v.dims()], bias.dims());
    let (q, k, v) = (q.into_dispatch(), k.into_dispatch(), v.into_dispatch());
    let (out, lse) = Dispatch::attend(q, k, v, bias.into_dispatch(), params);
    (Tensor::from_dispatch(out), Tensor::from_dispatch(lse))
}
