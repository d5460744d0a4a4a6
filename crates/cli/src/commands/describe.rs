//! Models, plans and slopes in the words of the schema.

use crate::failure::Failure;
use checkpoint::{Checkpoint, HashCover, ModelFacts};
use numerics::{BiasForm, KeyOrigin, PrecisionPlan, SlopeSchedule};
use report::number::finite;
use report::schema::{ModelInfo, PlanInfo, PlanStepInfo};
use std::path::Path;

/// A plan and its roundings.
pub(super) fn plan(plan: &PrecisionPlan) -> PlanInfo {
    let step = |step: &numerics::PlanStep| PlanStepInfo {
        what: step.what.to_owned(),
        format: step.format.name().to_owned(),
        source: step.source.to_owned(),
    };
    PlanInfo {
        plan: plan.key().to_owned(),
        dtype: plan.dtype.name().to_owned(),
        numerator_zero_nats: finite(plan.numerator_zero_nats()),
        weight_zero_nats: plan.weight_zero_nats().and_then(finite),
        steps: plan.steps.iter().map(step).collect(),
    }
}

/// The rule the slopes come from.
pub(super) fn schedule(schedule: &SlopeSchedule) -> String {
    match schedule {
        SlopeSchedule::Press => "press".to_owned(),
        SlopeSchedule::Mpt { bias_max } => format!("mpt, bias maximum {bias_max}"),
        SlopeSchedule::Naive => "naive".to_owned(),
        SlopeSchedule::List(_) => "list".to_owned(),
        SlopeSchedule::Robust(robust) => {
            format!(
                "robust, {} over {} tokens",
                robust.spacing.name(),
                robust.context
            )
        }
    }
}

/// The key at which a bias by key position is 0, in the words of the schema.
pub(super) fn key_origin(form: BiasForm, origin: KeyOrigin) -> &'static str {
    match (form, origin) {
        (BiasForm::Relative, _) => "query",
        (_, KeyOrigin::Zero) => "first key",
        (_, KeyOrigin::LengthEnd) => "last key",
        (_, KeyOrigin::One) => "one before the first key",
    }
}

/// The model of a checkpoint with a hash of what `cover` says.
pub(super) fn hashed(checkpoint: &Checkpoint, path: &Path, cover: HashCover) -> ModelInfo {
    ModelInfo {
        hash: Some(checkpoint.hash(cover)),
        hash_covers: Some(cover.text().to_owned()),
        ..model(&checkpoint.config, path)
    }
}

/// The model that a configuration describes.
pub(super) fn model(facts: &ModelFacts, path: &Path) -> ModelInfo {
    ModelInfo {
        name: facts.name.clone(),
        family: facts.family.name().to_owned(),
        path: Some(path.display().to_string()),
        hash: None,
        hash_covers: None,
        n_layers: Some(facts.n_layers as u64),
        n_heads: Some(facts.n_heads as u64),
        n_kv_heads: Some(facts.n_kv_heads as u64),
        head_width: Some(facts.head_width as u64),
        width: Some(facts.width as u64),
        vocab_size: facts.vocab_size.map(|size| size as u64),
        trained_length: facts.trained_length,
        causal: facts.causal,
    }
}

/// Opens what the user named.
pub(super) fn open(path: &Path) -> Result<Checkpoint, Failure> {
    Ok(checkpoint::open(path)?)
}

/// The configuration's remarks, traps first.
pub(super) fn notes(facts: &ModelFacts) -> Vec<String> {
    let (traps, remarks): (Vec<_>, Vec<_>) = facts.notes.iter().partition(|note| note.is_trap());
    traps
        .into_iter()
        .chain(remarks)
        .map(checkpoint::Note::text)
        .collect()
}

/// A remark that names the tensors which the model does not use, if there are any: a configuration with fewer layers than the
/// file has is visible in every report.
pub(super) fn unused(checkpoint: &Checkpoint) -> Option<String> {
    const SHOWN: usize = 8;
    let names: Vec<String> = checkpoint
        .tensor_table()
        .into_iter()
        .filter(|row| !row.used)
        .map(|row| row.name)
        .collect();
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| {
        format!(
            "tensors that the model does not use: {}{more}",
            names[..names.len().min(SHOWN)].join(", ")
        )
    })
}
