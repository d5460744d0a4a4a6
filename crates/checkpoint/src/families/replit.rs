//! The first replit-code model (`replit_lm`), built on the oldest MPT code. Configuration only. The later ones have
//! `model_type: mpt` and are read as such.

use numerics::{Family, SlopeSchedule, SlopeStorage};

use super::Shape;
use crate::config::{Keys, ModelFacts, Note};
use crate::error::CheckpointError;

pub(crate) fn facts(keys: &Keys<'_>, evidence: &str) -> Result<ModelFacts, CheckpointError> {
    let n_heads = keys.count(&["n_heads"])?;
    let shape = Shape {
        n_layers: keys.layers(&["n_layers"])?,
        n_heads,
        n_kv_heads: n_heads,
        width: keys.count(&["d_model"])?,
    };
    let mut facts = shape.facts(keys, "n_heads", Family::Replit, evidence)?;
    let attention = super::mpt::attention_keys(keys)?;
    let bias_max = attention.opt_positive(&["alibi_bias_max"])?.unwrap_or(8.0);
    // That code has 2^(-bias_max (h+1)/H) for every H, which for a power of two is the MPT rule.
    facts.slopes = if n_heads.is_power_of_two() {
        SlopeSchedule::Mpt { bias_max }
    } else if bias_max == 8.0 {
        SlopeSchedule::Naive
    } else {
        return Err(CheckpointError::unknown_family(format!(
            "alibi_bias_max = {bias_max} with {n_heads} heads (not a power of two) is not covered by a known slope rule of this model's code"
        ))
        .in_file(keys.path()));
    };
    facts.bias_max = Some(bias_max);
    facts.convention.slope_storage = SlopeStorage::ModelDtype;
    facts.trained_length = keys.opt_count(&["max_seq_len"])?.map(|n| n as u64);
    if let Some(scale) = attention.opt_positive(&["softmax_scale"])? {
        facts.score_scale = scale;
    }
    facts.notes = vec![Note::ReplitNaiveSlopes, Note::HalfPrecisionCollapse];
    Ok(facts)
}
