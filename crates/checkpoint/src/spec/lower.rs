//! From the TOML to facts and a model.

use std::path::Path;

use model::{
    Activation, AlibiSpec, Arrangement, AttentionSpec, BlockSpec, EmbeddingSpec, HeadSpec, MlpSpec,
    ModelSpec, NormKind, NormSpec, OutputSpec, QkNormExtent, QkNormSpec, ResidualFrom,
};
use numerics::{BiasForm, BiasFunction, Family, KeyOrigin, ScaleOrder, SlopeSchedule};

use super::Specification;
use super::file::{
    Act, AlibiTable, BlockArrangement, File, Form, Norm, Origin, Output, QkNorm, Residual, Schedule,
};
use super::names::Names;
use crate::checkpoint::TokenizerFile;
use crate::config::ModelFacts;
use crate::error::{CheckpointError, quoted};

/// Largest count that is believed; a hostile number must not become an allocation.
const COUNT_MAX: u64 = 1 << 24;
const LAYERS_MAX: u64 = 10_000;

fn wrong(key: &str, expected: &str, found: impl std::fmt::Display) -> CheckpointError {
    CheckpointError::malformed(format!("key {key}: expected {expected}, found {found}"))
}

fn count(key: &str, value: u64, max: u64) -> Result<usize, CheckpointError> {
    if (1..=max).contains(&value) {
        Ok(value as usize)
    } else {
        Err(wrong(
            key,
            &format!("a whole number from 1 to {max}"),
            value,
        ))
    }
}

/// A positive number that is still one as f32.
fn positive(key: &str, value: f64) -> Result<f32, CheckpointError> {
    let narrow = value as f32;
    if narrow > 0.0 && narrow.is_finite() {
        Ok(narrow)
    } else {
        Err(wrong(key, "a number above 0", value))
    }
}

fn optional(key: &str, value: Option<f64>) -> Result<Option<f32>, CheckpointError> {
    value.map(|v| positive(key, v)).transpose()
}

/// Slope rule; `bias_max` and `slopes` belong to one rule each.
fn schedule(alibi: &AlibiTable) -> Result<SlopeSchedule, CheckpointError> {
    if alibi.bias_max.is_some() && alibi.schedule != Schedule::Mpt {
        return Err(wrong(
            "alibi.bias_max",
            "no such key, since it belongs to schedule = \"mpt\"",
            "a value",
        ));
    }
    if alibi.slopes.is_some() && alibi.schedule != Schedule::List {
        return Err(wrong(
            "alibi.slopes",
            "no such key, since it belongs to schedule = \"list\"",
            "a list",
        ));
    }
    Ok(match alibi.schedule {
        Schedule::Press => SlopeSchedule::Press,
        Schedule::Naive => SlopeSchedule::Naive,
        Schedule::Mpt => SlopeSchedule::Mpt {
            bias_max: alibi.bias_max.unwrap_or(8.0),
        },
        Schedule::List => SlopeSchedule::List(alibi.slopes.clone().ok_or_else(|| {
            wrong(
                "alibi.slopes",
                "one slope a head, since schedule = \"list\"",
                "nothing",
            )
        })?),
    })
}

fn bias(remedy: Option<&str>, heads: usize) -> Result<BiasFunction, CheckpointError> {
    let Some(text) = remedy else {
        return Ok(BiasFunction::linear());
    };
    let remedy =
        BiasFunction::parse_remedy(text).map_err(|e| wrong("alibi.remedy", "a remedy", e))?;
    if remedy.robust.is_some() {
        return Err(wrong(
            "alibi.remedy",
            "no robust slopes, since a model has definite ones: give them as schedule = \"list\"",
            quoted(text),
        ));
    }
    remedy
        .bias
        .validate(heads)
        .map_err(|e| wrong("alibi.remedy", "a usable remedy", e))?;
    Ok(remedy.bias)
}

pub(super) fn lower(file: File, folder: &Path) -> Result<Specification, CheckpointError> {
    let shape = &file.shape;
    let vocab_size = count("shape.vocab_size", shape.vocab_size, COUNT_MAX)?;
    let width = count("shape.width", shape.width, COUNT_MAX)?;
    let n_layers = count("shape.layers", shape.layers, LAYERS_MAX)?;
    let n_heads = count("shape.heads", shape.heads, COUNT_MAX)?;
    let n_kv_heads = count(
        "shape.kv_heads",
        shape.kv_heads.unwrap_or(shape.heads),
        COUNT_MAX,
    )?;
    if !n_heads.is_multiple_of(n_kv_heads) {
        return Err(wrong(
            "shape.kv_heads",
            &format!("a divisor of the {n_heads} heads"),
            n_kv_heads,
        ));
    }
    let head_width = match shape.head_width {
        Some(w) => count("shape.head_width", w, COUNT_MAX)?,
        None if width.is_multiple_of(n_heads) => width / n_heads,
        None => {
            return Err(wrong(
                "shape.heads",
                &format!("a divisor of the width {width}, since head_width is not given"),
                n_heads,
            ));
        }
    };

    let slopes = schedule(&file.alibi)?;
    let slope_values = slopes
        .slopes(n_heads)
        .map_err(|error| CheckpointError::malformed(format!("key alibi: {error}")))?;
    let bias = bias(file.alibi.remedy.as_deref(), n_heads)?;
    let mut convention = Family::Custom.convention();
    if file.alibi.form == Form::KeyPosition {
        convention.form = BiasForm::KeyPosition;
        convention.key_origin = match file.alibi.key_origin.unwrap_or(Origin::Zero) {
            Origin::Zero => KeyOrigin::Zero,
            Origin::LengthEnd => KeyOrigin::LengthEnd,
            Origin::One => KeyOrigin::One,
        };
    } else if file.alibi.key_origin.is_some() {
        return Err(wrong(
            "alibi.key_origin",
            "no such key, since it belongs to form = \"key-position\"",
            "a value",
        ));
    }
    if file.alibi.bias_before_scale {
        convention.scale_order = ScaleOrder::BiasBeforeScale;
    }

    let scale = match file.attention.scale {
        Some(scale) => f64::from(positive("attention.scale", scale)?),
        None => 1.0 / (head_width as f64).sqrt(),
    };
    let facts = ModelFacts {
        name: file.name.clone(),
        family: Family::Custom,
        model_type: "spec".to_owned(),
        evidence: "specification file".to_owned(),
        n_layers,
        n_heads,
        n_kv_heads,
        head_width,
        width,
        vocab_size: Some(vocab_size),
        bias_max: match slopes {
            SlopeSchedule::Mpt { bias_max } => Some(bias_max),
            SlopeSchedule::Press | SlopeSchedule::Naive => Some(8.0),
            _ => None,
        },
        slopes,
        bias: bias.clone(),
        convention,
        score_scale: scale,
        trained_length: shape
            .trained_length
            .map(|n| count("shape.trained_length", n, 1 << 40))
            .transpose()?
            .map(|n| n as u64),
        causal: true,
        notes: Vec::new(),
    };
    let mut model = model_spec(&file, &facts, scale as f32)?;
    model.alibi = AlibiSpec {
        slopes: slope_values,
        bias,
        convention,
    };
    model
        .validate()
        .map_err(|e| CheckpointError::malformed(e.to_string()))?;
    let names = Names::new(&file.tensors, &model, file.weights.is_some())?;
    let tokenizer = file.tokenizer.map(|t| TokenizerFile {
        path: folder.join(t.file),
        fold_white_space: t.fold_white_space,
        replace: t.replace,
    });
    Ok(Specification {
        facts,
        model,
        names,
        weights: file.weights.map(|w| folder.join(w)),
        tokenizer,
    })
}

/// Everything but the position bias, which is plain here.
fn model_spec(file: &File, facts: &ModelFacts, scale: f32) -> Result<ModelSpec, CheckpointError> {
    let norm = NormSpec {
        kind: match file.norm.kind {
            Norm::LayerNorm => NormKind::LayerNorm,
            Norm::RmsNorm => NormKind::RmsNorm,
        },
        eps: positive("norm.eps", file.norm.eps)?,
        has_bias: file.norm.bias,
    };
    let residual = |r| match r {
        Residual::Input => ResidualFrom::Input,
        Residual::Normed => ResidualFrom::Norm,
    };
    let extent = match file.attention.qk_norm {
        QkNorm::None => None,
        QkNorm::Full => Some(QkNormExtent::Full),
        QkNorm::PerHead => Some(QkNormExtent::PerHead),
    };
    let hidden = match file.mlp.hidden {
        Some(hidden) => count("mlp.hidden", hidden, COUNT_MAX)?,
        None => 4 * facts.width,
    };
    Ok(ModelSpec {
        name: facts.name.clone(),
        family: Family::Custom,
        vocab_size: facts.vocab_size.unwrap_or(0),
        width: facts.width,
        n_layers: facts.n_layers,
        n_heads: facts.n_heads,
        n_kv_heads: facts.n_kv_heads,
        head_width: facts.head_width,
        trained_length: facts.trained_length.map(|n| n as usize),
        embedding: EmbeddingSpec {
            scale: positive("embedding.scale", file.embedding.scale)?,
            norm: file.embedding.norm.then_some(norm),
        },
        block: BlockSpec {
            norm,
            attention_residual: residual(file.block.attention_residual),
            mlp_residual: residual(file.block.mlp_residual),
            arrangement: match file.block.arrangement {
                BlockArrangement::Sequential => Arrangement::Sequential,
                BlockArrangement::Parallel => Arrangement::Parallel { shared_norm: false },
                BlockArrangement::ParallelSharedNorm => Arrangement::Parallel { shared_norm: true },
            },
            attention: AttentionSpec {
                qkv_bias: file.attention.qkv_bias,
                output: match file.attention.output {
                    Output::Linear => Some(OutputSpec { bias: false }),
                    Output::LinearWithBias => Some(OutputSpec { bias: true }),
                    Output::None => None,
                },
                clip_qkv: optional("attention.clip_qkv", file.attention.clip_qkv)?,
                qk_norm: extent.map(|extent| QkNormSpec { norm, extent }),
                scale,
                inverse_layer_scale: false,
            },
            mlp: MlpSpec {
                hidden,
                activation: match file.mlp.activation {
                    Act::GeluTanh => Activation::GeluTanh,
                    Act::GeluErf => Activation::GeluErf,
                    Act::Silu => Activation::Silu,
                    Act::Relu => Activation::Relu,
                },
                gated: file.mlp.gated,
                bias: file.mlp.bias,
            },
        },
        final_norm: file.head.final_norm.then_some(norm),
        head: HeadSpec {
            tied: file.head.tied,
            logit_scale: positive("head.logit_scale", file.head.logit_scale)?,
            soft_cap: optional("head.soft_cap", file.head.soft_cap)?,
        },
        alibi: AlibiSpec {
            slopes: Vec::new(),
            bias: BiasFunction::linear(),
            convention: facts.convention,
        },
    })
}
