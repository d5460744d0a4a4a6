//! One file per family: its configuration keys lowered into [`ModelFacts`], and for the families whose weights are read
//! (BLOOM, MPT, Falcon-RW) its tensor names and layouts lowered into a [`ModelSpec`].

pub(crate) mod baichuan;
pub(crate) mod bloom;
pub(crate) mod encoders;
pub(crate) mod falcon;
pub(crate) mod jais;
pub(crate) mod mpt;
pub(crate) mod refact;
pub(crate) mod replit;

use model::{AlibiSpec, BlockSpec, EmbeddingSpec, HeadSpec, ModelSpec, OutputSpec};
use numerics::{BiasFunction, Family};

use crate::config::{Keys, ModelFacts, Note, either};
use crate::error::{CheckpointError, quoted};
use crate::layout::Layout;
use crate::safetensors::Tensors;

/// A model and where its weights lie.
pub(crate) type Lowered = (ModelSpec, Layout);

/// The part of [`ModelFacts`] that differs from family to family; the rest follows.
pub(crate) struct Shape {
    pub(crate) n_layers: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_kv_heads: usize,
    pub(crate) width: usize,
}

impl Shape {
    /// Width of one head; the heads must divide the width.
    pub(crate) fn head_width(
        &self,
        keys: &Keys<'_>,
        heads_key: &str,
    ) -> Result<usize, CheckpointError> {
        if !self.width.is_multiple_of(self.n_heads) {
            return Err(keys.wrong(
                heads_key,
                &format!("a divisor of the width {}", self.width),
                &self.n_heads.to_string(),
            ));
        }
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            let found = format!(
                "{} key/value heads for {} heads",
                self.n_kv_heads, self.n_heads
            );
            return Err(keys.wrong(
                heads_key,
                "a multiple of the number of key/value heads",
                &found,
            ));
        }
        Ok(self.width / self.n_heads)
    }

    /// Facts with the family's own convention, slopes with bias maximum 8, and `1/sqrt(head_width)`.
    pub(crate) fn facts(
        self,
        keys: &Keys<'_>,
        heads_key: &str,
        family: Family,
        evidence: &str,
    ) -> Result<ModelFacts, CheckpointError> {
        let head_width = self.head_width(keys, heads_key)?;
        let slopes = family
            .slope_schedule(None)
            .expect("every family but custom has a slope rule");
        let facts = ModelFacts {
            name: String::new(),
            family,
            model_type: String::new(),
            evidence: evidence.to_owned(),
            n_layers: self.n_layers,
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
            head_width,
            width: self.width,
            vocab_size: keys.opt_count(&["vocab_size"])?,
            slopes,
            bias_max: Some(8.0),
            bias: BiasFunction::linear(),
            convention: family.convention(),
            score_scale: 1.0 / (head_width as f64).sqrt(),
            trained_length: None,
            causal: family.convention().causal,
            notes: Vec::new(),
        };
        // Fails for a head count that no slope rule covers.
        facts
            .slope_values()
            .map_err(|error| keys.refused(heads_key, &error))?;
        Ok(facts)
    }
}

/// Notes on every model of a family whose settings are the defaults, in the order in which its reader gives them.
pub(crate) fn default_notes(
    family: Family,
    bias_max: Option<f64>,
    trained_length: Option<u64>,
) -> Vec<Note> {
    match family {
        Family::Bloom => vec![Note::HalfPrecisionCollapse, Note::BloomVllmActivation],
        Family::Falcon => vec![
            Note::FalconEagerDoubling,
            Note::FalconBf16Bias,
            Note::FalconRuntimesRefuse,
        ],
        Family::Mpt => mpt::notes(bias_max.unwrap_or(8.0), Vec::new(), trained_length, None),
        Family::Baichuan => vec![
            Note::HalfPrecisionCollapse,
            Note::SoftmaxInModelDtype,
            Note::BaichuanNormHead,
        ],
        Family::Jais => vec![Note::SlopesInModelDtype, Note::SoftmaxInModelDtype],
        Family::Refact => vec![Note::HalfPrecisionCollapse, Note::RefactLlamaCppRmsNorm],
        Family::JinaBert => vec![Note::LlamaCppTanhGelu],
        // replit-code 1.5 loads with its own code; MosaicBERT and what a user describes have no known traps
        Family::Replit | Family::MosaicBert | Family::Custom => Vec::new(),
    }
}

/// The part of a [`ModelSpec`] that the facts settle; a family fills in its block, norms and head. `block` is the family's.
pub(crate) fn base_spec(
    facts: &ModelFacts,
    keys: &Keys<'_>,
    block: BlockSpec,
    head: HeadSpec,
) -> Result<ModelSpec, CheckpointError> {
    Ok(ModelSpec {
        name: facts.name.clone(),
        family: facts.family,
        vocab_size: vocabulary(facts, keys)?,
        width: facts.width,
        n_layers: facts.n_layers,
        n_heads: facts.n_heads,
        n_kv_heads: facts.n_kv_heads,
        head_width: facts.head_width,
        trained_length: facts.trained_length.map(|n| n as usize),
        embedding: EmbeddingSpec::default(),
        final_norm: Some(block.norm),
        block,
        head,
        alibi: alibi(facts)?,
    })
}

/// The position bias of a specification, from the facts.
fn alibi(facts: &ModelFacts) -> Result<AlibiSpec, CheckpointError> {
    let slopes = facts
        .slope_values()
        .map_err(|e| CheckpointError::malformed(e.to_string()))?;
    Ok(AlibiSpec {
        slopes,
        bias: facts.bias.clone(),
        convention: facts.convention,
    })
}

/// The vocabulary's size, which weights need and horizons do not.
fn vocabulary(facts: &ModelFacts, keys: &Keys<'_>) -> Result<usize, CheckpointError> {
    facts
        .vocab_size
        .map_or_else(|| keys.count(&["vocab_size"]), Ok)
}

/// The prefix, one of `candidates`, that the checkpoint's names carry, found by the tensor `probe`.
pub(crate) fn prefix<'c>(
    tensors: &Tensors,
    candidates: &[&'c str],
    probe: &str,
) -> Result<&'c str, CheckpointError> {
    let found = candidates
        .iter()
        .find(|c| tensors.find(&format!("{c}{probe}")).is_some());
    found.copied().ok_or_else(|| {
        let names: Vec<_> = candidates
            .iter()
            .map(|c| quoted(&format!("{c}{probe}")))
            .collect();
        CheckpointError::missing(format!(
            "tensor {} is missing; it is the embedding",
            either(&names)
        ))
        .in_file(tensors.path())
    })
}

/// Notes a stored head that a tied model does not use.
pub(crate) fn note_unused_head(facts: &mut ModelFacts, tensors: &Tensors, tied: bool, name: &str) {
    if tied && tensors.find(name).is_some() {
        facts.notes.push(Note::StoredHeadUnused {
            tensor: name.to_owned(),
        });
    }
}

/// Output projection with or without bias.
pub(crate) const fn output(bias: bool) -> Option<OutputSpec> {
    Some(OutputSpec { bias })
}
