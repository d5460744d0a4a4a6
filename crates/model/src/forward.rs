//! The forward pass.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Tensor;

use crate::cache::KvCache;
use crate::error::ModelError;
use crate::observer::LayerObserver;
use crate::spec::ModelSpec;
use crate::weights::WeightSource;

/// What a forward call may be given besides tokens.
#[derive(Default)]
pub struct ForwardOptions<'a> {
    /// Past keys and values; the new ones are appended. The new tokens follow the cached ones.
    pub cache: Option<&'a mut KvCache>,
    /// Watches the attention of every layer.
    pub observer: Option<Arc<dyn LayerObserver>>,
    /// Which of the new tokens are real (`false`: padding), one per token. `None`: all.
    pub key_valid: Option<&'a [bool]>,
    /// Called with the layer number after each layer.
    pub progress: Option<&'a (dyn Fn(usize) + Sync)>,
}

/// Residual stream after the last block and the final norm, `[tokens, width]`.
#[derive(Clone, Debug)]
pub struct Hidden {
    pub(crate) rows: Tensor<2>,
}

/// Next-token loss of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// `-ln p(ids[t + 1] | ids[..=t])` for `t` in `0..n - 1`, nats. Entries of padding are left out by the caller.
    pub nats_per_token: Vec<f32>,
}

/// A model that can run.
pub struct Model {
    spec: ModelSpec,
    source: Arc<dyn WeightSource>,
}

impl Model {
    /// Checks the specification. Reads no weight.
    pub fn new(spec: ModelSpec, source: Arc<dyn WeightSource>) -> Result<Self, ModelError> {
        Ok(Self { spec, source })
    }

    /// Keeps every weight after its first use, for repeated calls on a model that fits in memory.
    pub fn keep_weights(self, keep: bool) -> Self {
        let _ = (keep, &self.source);
        self
    }

    /// The specification.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Residual stream of `ids` after all blocks and the final norm.
    pub fn forward(&self, ids: &[u32], options: ForwardOptions<'_>) -> Result<Hidden, ModelError> {
        let _ = (ids, options);
        Err(ModelError::Input("not built yet".into()))
    }

    /// Logits `[rows, vocab_size]`, row-major, of some rows of the stream.
    pub fn logits(&self, hidden: &Hidden, rows: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let _ = (hidden, rows);
        Err(ModelError::Input("not built yet".into()))
    }

    /// Next-token loss; `ids` are those the stream was computed from.
    pub fn loss(&self, hidden: &Hidden, ids: &[u32]) -> Result<Loss, ModelError> {
        let _ = (hidden, ids);
        Err(ModelError::Input("not built yet".into()))
    }

    /// Greedy continuation: up to `n_new` token ids, ends early at `stop` (not returned).
    pub fn generate(
        &self,
        prompt: &[u32],
        n_new: usize,
        stop: Option<u32>,
    ) -> Result<Vec<u32>, ModelError> {
        let _ = (prompt, n_new, stop);
        Err(ModelError::Input("not built yet".into()))
    }
}
