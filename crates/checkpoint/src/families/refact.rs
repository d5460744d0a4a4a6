//! Refact-1.6B: always linear biases, counted from 1; one key/value head. Configuration only.

use numerics::Family;

use super::{Shape, default_notes};
use crate::config::{Keys, ModelFacts, Note};
use crate::error::CheckpointError;

pub(crate) fn facts(keys: &Keys<'_>, evidence: &str) -> Result<ModelFacts, CheckpointError> {
    let n_heads = keys.count(&["n_head", "num_attention_heads"])?;
    let multi_query = keys.opt_bool("multi_query")?.unwrap_or(true);
    let shape = Shape {
        n_layers: keys.layers(&["n_layer", "num_hidden_layers"])?,
        n_heads,
        n_kv_heads: if multi_query { 1 } else { n_heads },
        width: keys.count(&["n_embd", "hidden_size"])?,
    };
    let mut facts = shape.facts(keys, "n_head", Family::Refact, evidence)?;
    facts.trained_length = keys
        .opt_count(&["n_positions", "max_position_embeddings"])?
        .map(|n| n as u64);
    facts.notes = default_notes(facts.family, facts.bias_max, facts.trained_length);
    for key in ["attention_softmax_in_fp32", "attention_bias_in_fp32"] {
        if keys.opt_bool(key)? == Some(false) {
            facts.notes.push(Note::RefactHalfPrecision { key });
        }
    }
    Ok(facts)
}
