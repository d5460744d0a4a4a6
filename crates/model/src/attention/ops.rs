//! The backend extension: the macro generates the dispatch from a run-time tensor to the backend that owns it.

use std::ops::Range;
use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use kernels::{AttentionObserver, AttentionShape};
use numerics::{BiasFunction, PrecisionPlan};

use super::{tiled, tiled_backward};

/// How the bias table is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BiasKind {
    None,
    ByKey,
    ByDistance,
}

/// Arguments of attention that are not tensors.
#[derive(Clone, Debug)]
pub(crate) struct AttentionParams {
    pub(crate) shape: AttentionShape,
    pub(crate) bias: BiasKind,
    /// Per key; `None`: all valid.
    pub(crate) key_valid: Option<Arc<[bool]>>,
    /// First tokens of documents; `None`: one.
    pub(crate) documents: Option<Arc<[usize]>>,
    /// CPU only.
    pub(crate) observer: Option<Arc<dyn AttentionObserver>>,
    /// In place of the kernel and of the bias table. CPU only.
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

/// Queries and the keys that they may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) queries: Range<usize>,
    pub(crate) keys: Range<usize>,
}

impl AttentionParams {
    /// Panics, naming the argument, unless sizes agree. A mismatch is a mistake of the caller's program.
    pub(crate) fn check(&self, qkv: [[usize; 2]; 3], bias: [usize; 2]) {
        let s = &self.shape;
        assert!(
            s.n_kv_heads > 0 && s.n_heads.is_multiple_of(s.n_kv_heads),
            "n_kv_heads {} does not divide n_heads {}",
            s.n_kv_heads,
            s.n_heads
        );
        let keys = [s.n_keys, s.n_kv_heads * s.head_width];
        let expected = [[s.n_queries, s.n_heads * s.head_width], keys, keys];
        for ((name, found), expected) in ["q", "k", "v"].iter().zip(qkv).zip(expected) {
            assert_eq!(found, expected, "shape of {name}");
        }
        let needed = match self.bias {
            BiasKind::None => None,
            BiasKind::ByKey => Some(s.n_keys),
            BiasKind::ByDistance => Some(self.max_distance() + 1),
        };
        if let Some(needed) = needed {
            assert!(
                bias[0] == s.n_heads && bias[1] >= needed,
                "the bias is {bias:?}, {} heads of {needed} entries are needed",
                s.n_heads
            );
        }
        if let Some(valid) = &self.key_valid {
            assert_eq!(valid.len(), s.n_keys, "entries of key_valid");
        }
        if let Some(starts) = &self.documents {
            assert!(
                s.n_queries == s.n_keys && s.query_offset == 0,
                "documents need as many queries as keys and no offset"
            );
            assert!(
                starts.first() == Some(&0)
                    && starts.is_sorted_by(|a, b| a < b)
                    && starts.last().is_some_and(|&last| last < s.n_keys),
                "documents begin at 0 and ascend inside the sequence, not {starts:?}"
            );
            assert!(
                self.observer.is_none() && self.emulation.is_none(),
                "documents are neither observed nor emulated"
            );
        }
    }

    /// Largest `|query - key|` inside the mask, in tokens.
    pub(crate) fn max_distance(&self) -> usize {
        let s = &self.shape;
        let back = (s.query_offset + s.n_queries).saturating_sub(1);
        if s.causal {
            back
        } else {
            back.max((s.n_keys.saturating_sub(1)).saturating_sub(s.query_offset))
        }
    }

    /// One segment a document.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        let s = &self.shape;
        match &self.documents {
            None => vec![Segment {
                queries: 0..s.n_queries,
                keys: 0..s.n_keys,
            }],
            Some(starts) => {
                let ends = starts.iter().skip(1).copied().chain([s.n_keys]);
                let ranges = starts.iter().copied().zip(ends).map(|(a, b)| a..b);
                let segment = |range: Range<usize>| Segment {
                    queries: range.clone(),
                    keys: range,
                };
                ranges.map(segment).collect()
            }
        }
    }
}

/// See [`super::attention`] for shapes and meaning. The default bodies run on every backend.
#[backend_extension(
    Flex,
    Cube: cfg(any(feature = "cuda", feature = "metal", feature = "rocm", feature = "wgpu")),
    Autodiff: cfg(feature = "autodiff")
)]
pub(crate) trait AttentionOps: Backend {
    /// Output and log-sum-exp.
    fn attend(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        params: AttentionParams,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        tiled::forward::<Self>(q, k, v, bias, &params)
    }

    /// Gradients of queries, keys, values and bias by distance (as many entries as `bias` has; zeros unless it is by
    /// distance and `bias_gradient` asks for it), given what the forward pass gave and the gradient of its output.
    #[allow(
        clippy::too_many_arguments,
        reason = "the macro routes tensors only as arguments of their own"
    )]
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
        let [dq, dk, dv, dbias] = tiled_backward::backward::<Self>(
            [q, k, v, bias],
            [out, lse, gradient],
            &params,
            bias_gradient,
        );
        (dq, dk, dv, dbias)
    }
}

#[cfg(any(
    feature = "cuda",
    feature = "metal",
    feature = "rocm",
    feature = "wgpu"
))]
impl AttentionOps for burn::backend::Cube {}
