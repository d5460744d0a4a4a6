//! Bidirectional encoders with symmetric linear biases: Jina embeddings v2; MosaicBERT and DNABERT-2. Configuration only.

use numerics::Family;

use super::{Shape, default_notes};
use crate::config::{Keys, ModelFacts, Note};
use crate::error::CheckpointError;

fn shape(keys: &Keys<'_>, family: Family, evidence: &str) -> Result<ModelFacts, CheckpointError> {
    let n_heads = keys.count(&["num_attention_heads"])?;
    let shape = Shape {
        n_layers: keys.layers(&["num_hidden_layers"])?,
        n_heads,
        n_kv_heads: n_heads,
        width: keys.count(&["hidden_size"])?,
    };
    shape.facts(keys, "num_attention_heads", family, evidence)
}

pub(crate) fn jina(keys: &Keys<'_>, evidence: &str) -> Result<ModelFacts, CheckpointError> {
    let mut facts = shape(keys, Family::JinaBert, evidence)?;
    // max_position_embeddings (8192) is the length of use; these models were trained on 512 tokens, which no key says.
    facts.notes = default_notes(facts.family, facts.bias_max, facts.trained_length);
    Ok(facts)
}

pub(crate) fn mosaic(keys: &Keys<'_>, evidence: &str) -> Result<ModelFacts, CheckpointError> {
    let mut facts = shape(keys, Family::MosaicBert, evidence)?;
    if let Some(size) = keys.opt_count(&["alibi_starting_size"])? {
        facts.notes = vec![Note::AlibiStartingSize { size: size as u64 }];
    }
    Ok(facts)
}
