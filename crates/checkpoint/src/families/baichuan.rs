//! Baichuan-13B and Baichuan2-13B: linear biases with 40 layers, rotary positions with 32 (the 7B models). Configuration only.

use numerics::Family;

use super::{Shape, default_notes};
use crate::config::{Keys, ModelFacts};
use crate::error::CheckpointError;

pub(crate) fn facts(keys: &Keys<'_>, evidence: &str) -> Result<ModelFacts, CheckpointError> {
    let n_layers = keys.layers(&["num_hidden_layers"])?;
    // The same model_type serves both; the code is chosen by the repository, and only the depth tells.
    match n_layers {
        40 => {}
        32 => {
            return Err(CheckpointError::not_alibi(
                "model_type baichuan with num_hidden_layers = 32 is a 7B model with rotary positions: no linear biases, nothing to measure",
            )
            .in_file(keys.path()));
        }
        other => {
            return Err(CheckpointError::unknown_family(format!(
                "cannot tell: model_type baichuan has linear biases with 40 layers (13B) and rotary positions with 32 (7B), found num_hidden_layers = {other}; describe the model in a spec file if you know"
            ))
            .in_file(keys.path()));
        }
    }
    let n_heads = keys.count(&["num_attention_heads"])?;
    let shape = Shape {
        n_layers,
        n_heads,
        n_kv_heads: n_heads,
        width: keys.count(&["hidden_size"])?,
    };
    let mut facts = shape.facts(keys, "num_attention_heads", Family::Baichuan, evidence)?;
    facts.trained_length = keys.opt_count(&["model_max_length"])?.map(|n| n as u64);
    facts.notes = default_notes(facts.family, facts.bias_max, facts.trained_length);
    Ok(facts)
}
