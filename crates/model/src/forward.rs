//! The model and its forward pass.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Tensor;
use numerics::PrecisionPlan;

use crate::attention::AttentionBias;
use crate::bias::LoweredBias;
use crate::cache::{KvCache, LayerKv};
use crate::device::DeviceKind;
use crate::error::ModelError;
use crate::layer::{self, Sequence};
use crate::observer::LayerObserver;
use crate::spec::ModelSpec;
use crate::store::Store;
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

impl Hidden {
    /// Number of tokens.
    pub fn n_tokens(&self) -> usize {
        self.rows.dims()[0]
    }

    /// Some of the tokens; shares memory with `self`.
    pub fn slice(&self, tokens: Range<usize>) -> Self {
        let rows = layer::rows(&self.rows, tokens);
        Self { rows }
    }

    /// The values, `[tokens, width]` row-major.
    pub fn to_vec(&self) -> Vec<f32> {
        let data = self.rows.clone().into_data();
        data.try_into_vec().expect("the stream is f32")
    }
}

/// A model that can run. Takes `&self` everywhere: share it behind an [`Arc`].
pub struct Model {
    pub(crate) spec: Arc<ModelSpec>,
    pub(crate) store: Store,
    plan: Option<Arc<PrecisionPlan>>,
    device: DeviceKind,
}

impl Model {
    /// Checks the specification. Reads no weight.
    ///
    /// # Errors
    /// See [`ModelSpec::validate`].
    pub fn new(spec: ModelSpec, source: Arc<dyn WeightSource>) -> Result<Self, ModelError> {
        spec.validate()?;
        let spec = Arc::new(spec);
        let device = DeviceKind::Cpu;
        let store = Store::new(spec.clone(), source, false, device.open()?);
        Ok(Self {
            spec,
            store,
            plan: None,
            device,
        })
    }

    /// Computes attention as a precision plan does, every pair rounded one by one ([`kernels::emulated`]): slow, for questions of
    /// precision. Queries, keys and values stay f32, everything outside attention too, and nothing can be observed.
    #[must_use]
    pub fn under_plan(self, plan: PrecisionPlan) -> Self {
        let plan = plan.for_head_width(self.spec.head_width);
        let plan = Some(Arc::new(plan));
        Self { plan, ..self }
    }

    /// Keeps every weight after its first use, for repeated calls on a model that fits in memory. Otherwise one layer is in
    /// memory at a time and each call reads all of them again.
    pub fn keep_weights(self, keep: bool) -> Self {
        let (source, device) = (self.store.source(), self.store.device().clone());
        let store = Store::new(self.spec.clone(), source, keep, device);
        Self { store, ..self }
    }

    /// Runs on another device from now on: matrix products, norms and attention in f32 by burn's own operations, so with other
    /// roundings than the CPU kernels. Weights kept so far are forgotten. On any device but the CPU nothing can be observed and
    /// no [plan](Model::under_plan) followed.
    ///
    /// # Errors
    /// A device this build has no runtime for, or that this machine has not.
    pub fn on(self, device: DeviceKind) -> Result<Self, ModelError> {
        let (source, keep) = (self.store.source(), self.store.keeps());
        let store = Store::new(self.spec.clone(), source, keep, device.open()?);
        Ok(Self {
            store,
            device,
            ..self
        })
    }

    /// The specification.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Residual stream of `ids` after all blocks and the final norm, `[ids.len(), width]`.
    ///
    /// Deterministic: the same bytes for every number of threads, observed or not. Splitting the tokens into several calls
    /// with a cache changes rounding only.
    ///
    /// # Errors
    /// No tokens, an id outside the vocabulary, a mask of the wrong length, a cache of another model, a cache with a model
    /// that is not causal, padding or an observer
    /// [under a plan](Model::under_plan), an observer or a plan [elsewhere than on the CPU](Model::on), and whatever the weight source reports. The cache is unchanged after an error.
    pub fn forward(&self, ids: &[u32], options: ForwardOptions<'_>) -> Result<Hidden, ModelError> {
        let ForwardOptions {
            mut cache,
            observer,
            key_valid,
            progress,
        } = options;
        let spec = &*self.spec;
        self.check_input(ids, cache.as_deref(), key_valid)?;
        let past = cache.as_deref().map_or(0, KvCache::len);
        let n_keys = past + ids.len();
        let sequence = Sequence {
            past,
            n: ids.len(),
            kv_capacity: cache
                .as_deref()
                .map_or(n_keys, |cache| cache.growth(n_keys)),
            key_valid: all_valid(cache.as_deref(), key_valid, n_keys),
            plan: self.plan.clone(),
        };
        if self.plan.is_some() && (sequence.key_valid.is_some() || observer.is_some()) {
            return Err(ModelError::Input(
                "under a precision plan neither padding nor an observer is possible".into(),
            ));
        }
        if (self.plan.is_some() || observer.is_some()) && self.device != DeviceKind::Cpu {
            return Err(ModelError::Input(format!(
                "attention is observed and emulated on the cpu alone, not on {}",
                self.device.name()
            )));
        }
        let lower = |layer| {
            let valid = sequence.key_valid.as_deref();
            let scale = spec.score_scale(layer);
            let table = LoweredBias::lower(&spec.alibi, scale, n_keys, valid);
            AttentionBias::from_lowered(table, spec.n_heads, self.store.device())
        };
        let bias = lower(0);
        let mut x = self.embed(ids)?;
        // Without a cache one pair of buffers serves every layer.
        let mut scratch = LayerKv::new();
        for layer in 0..spec.n_layers {
            let weights = self.store.layer(layer)?;
            let kv = match cache.as_deref_mut() {
                Some(cache) => &mut cache.layers[layer],
                None => &mut scratch,
            };
            // The bias differs between layers only where it shares a scale that does.
            let bias = if layer > 0 && spec.block.attention.inverse_layer_scale {
                lower(layer)
            } else {
                bias.clone()
            };
            let watch = observer.as_ref().and_then(|observer| observer.layer(layer));
            x = layer::run(spec, layer, &weights, x, &sequence, kv, bias, watch);
            if let Some(observer) = &observer {
                observer.layer_done(layer);
            }
            if let Some(progress) = progress {
                progress(layer);
            }
        }
        if let Some(norm) = self.store.final_norm()? {
            for range in layer::chunks(ids.len(), layer::chunk_rows(spec)) {
                let normed = norm.apply(layer::rows(&x, range.clone()));
                x = layer::set_rows(x, range, normed);
            }
        }
        if let Some(cache) = cache {
            cache.extend(ids.len(), key_valid);
        }
        Ok(Hidden { rows: x })
    }

    fn check_input(
        &self,
        ids: &[u32],
        cache: Option<&KvCache>,
        key_valid: Option<&[bool]>,
    ) -> Result<(), ModelError> {
        let fail = |message| Err(ModelError::Input(message));
        if ids.is_empty() {
            return fail("no tokens to run".into());
        }
        self.check_ids(ids)?;
        if let Some(valid) = key_valid
            && valid.len() != ids.len()
        {
            return fail(format!(
                "the padding mask has {} entries for {} tokens",
                valid.len(),
                ids.len()
            ));
        }
        if let Some(cache) = cache {
            cache.check(&self.spec)?;
            if !self.spec.alibi.convention.causal {
                return fail("a model that is not causal cannot run with a cache".into());
            }
        }
        Ok(())
    }

    pub(crate) fn check_ids(&self, ids: &[u32]) -> Result<(), ModelError> {
        let vocab = self.spec.vocab_size;
        match ids.iter().position(|&id| id as usize >= vocab) {
            None => Ok(()),
            Some(at) => Err(ModelError::Input(format!(
                "token {at} is id {}, the vocabulary has {vocab}",
                ids[at]
            ))),
        }
    }

    fn embed(&self, ids: &[u32]) -> Result<Tensor<2>, ModelError> {
        let embedding = &self.spec.embedding;
        let mut x = self.store.gather(crate::WeightRole::Embedding, ids)?;
        if embedding.scale != 1.0 {
            x = x.mul_scalar(embedding.scale);
        }
        match self.store.embedding_norm()? {
            Some(norm) => Ok(norm.apply(x)),
            None => Ok(x),
        }
    }
}

/// Mask over past and new tokens; `None` when nothing is masked, which is the kernel's fast path.
fn all_valid(
    cache: Option<&KvCache>,
    key_valid: Option<&[bool]>,
    n_keys: usize,
) -> Option<Arc<[bool]>> {
    let past = cache.map_or(&[][..], KvCache::valid);
    let masked = |v: &[bool]| v.contains(&false);
    if !masked(past) && !key_valid.is_some_and(masked) {
        return None;
    }
    let new = n_keys - past.len();
    let mut all = past.to_vec();
    match key_valid {
        Some(valid) => all.extend_from_slice(valid),
        None => all.resize(past.len() + new, true),
    }
    Some(all.into())
}
