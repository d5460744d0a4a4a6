//! Jais and BTLM: GPT-2-like decoders with `position_embedding_type: alibi` and muP scales. Configuration only.

use numerics::Family;

use super::{Shape, default_notes};
use crate::config::{Keys, ModelFacts, Note};
use crate::error::CheckpointError;

pub(crate) fn facts(keys: &Keys<'_>, evidence: &str) -> Result<ModelFacts, CheckpointError> {
    let n_heads = keys.count(&["n_head", "num_attention_heads"])?;
    let shape = Shape {
        n_layers: keys.layers(&["n_layer", "num_hidden_layers"])?,
        n_heads,
        n_kv_heads: n_heads,
        width: keys.count(&["n_embd", "hidden_size"])?,
    };
    let mut facts = shape.facts(keys, "n_head", Family::Jais, evidence)?;
    facts.trained_length = keys
        .opt_count(&["n_positions", "max_position_embeddings"])?
        .map(|n| n as u64);
    let mup = keys
        .opt_bool("mup_scale_qk_dot_by_d")?
        .or(keys.opt_bool("scale_qk_dot_by_d")?)
        .unwrap_or(false);
    if mup {
        facts.score_scale = 1.0 / facts.head_width as f64;
    } else if keys.opt_bool("scale_attn_weights")? == Some(false) {
        facts.score_scale = 1.0;
    }
    facts.notes = default_notes(facts.family, facts.bias_max, facts.trained_length);
    if keys.opt_bool("reorder_and_upcast_attn")?.unwrap_or(false) {
        facts
            .notes
            .retain(|note| *note != Note::SoftmaxInModelDtype);
    }
    if let Some(scaling) = keys.opt_object("alibi_scaling", "alibi_scaling.")? {
        let factor = scaling.opt_positive(&["factor"])?;
        let train_seq_len = scaling.opt_count(&["train_seq_len"])?.map(|n| n as u64);
        // A fixed factor is part of the model; one that depends on the length is not known before the length is.
        facts.bias.interpolation = 1.0 / factor.unwrap_or(1.0);
        facts.notes.push(Note::AlibiScaling {
            factor,
            train_seq_len,
        });
    }
    Ok(facts)
}
