//! A trained decoder in layouts that others read.
//!
//! | target | what it can express |
//! |---|---|
//! | `spec` | every fixed bias: `model.safetensors` and `model.toml` for this program |
//! | `mpt` | linear bias, LayerNorm, GELU, tied head, no biases: a folder for `transformers` |
//! | `gguf` | linear bias, LayerNorm, GELU, a byte-level BPE: one file for llama.cpp, with the tokenizer |
//!
//! What a target cannot express is refused with the reason. BLOOM's layout is none of them: it norms the embedding, which this decoder
//! does not.

mod gguf;
mod mpt;
mod spec;
mod vocabulary;

pub use gguf::write_gguf;
pub use mpt::write_mpt;
pub use spec::write_spec;

use std::collections::BTreeMap;

use numerics::{BiasFunction, Remedy, SlopeSchedule};

use crate::attention::AttentionRule;
use crate::error::TrainError;
use crate::network::Network;
use crate::shape::{MlpKind, NormKind, Position};

/// What a checkpoint says about its making.
pub fn provenance(step: u64, config_hash: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("format".to_owned(), "pt".to_owned()),
        (
            "snellen_version".to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
        ),
        ("snellen_step".to_owned(), step.to_string()),
        ("snellen_config_hash".to_owned(), config_hash.to_owned()),
    ])
}

/// The bias and slopes, if fixed.
fn fixed(network: &Network) -> Result<(&BiasFunction, &[f64]), TrainError> {
    match &network.position {
        Position::Fixed { bias, slopes } => Ok((bias, slopes)),
        Position::KerpleLog { .. } => refuse("a learned KERPLE bias"),
        Position::T5 { .. } => refuse("learned T5 buckets"),
        Position::Rope { .. } => refuse("rotary embedding"),
    }
}

fn refuse<T>(what: &str) -> Result<T, TrainError> {
    Err(TrainError::config(format!(
        "the target cannot express {what}; the run's checkpoints hold the parameters"
    )))
}

/// The `alibi_bias_max` of a decoder whose block is MPT's: linear bias, LayerNorm, GELU.
fn mpt_bias_max(network: &Network) -> Result<i64, TrainError> {
    let (bias, slopes) = fixed(network)?;
    if *bias != BiasFunction::linear() {
        return refuse(&format!(
            "the bias function {}",
            Remedy {
                bias: bias.clone(),
                robust: None
            }
        ));
    }
    if let AttentionRule::ZeroBeyond(_) = network.rule {
        return refuse("attention.zero-beyond");
    }
    if network.shape.norm != NormKind::LayerNorm {
        return refuse("RMSNorm");
    }
    if network.shape.mlp != MlpKind::Gelu {
        return refuse("SwiGLU");
    }
    bias_max(slopes)
}

/// The `alibi_bias_max` whose schedule these slopes are.
fn bias_max(slopes: &[f64]) -> Result<i64, TrainError> {
    for bias_max in 1..=64 {
        let schedule = SlopeSchedule::Mpt {
            bias_max: bias_max as f64,
        };
        if schedule.slopes(slopes.len()).is_ok_and(|s| s == slopes) {
            return Ok(bias_max);
        }
    }
    refuse("slopes that no whole alibi_bias_max gives")
}
