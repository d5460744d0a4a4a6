//! `snellen inspect`: headers and configuration only, whatever the size of the weights.

use super::describe;
use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use ::audit::checks::{AuditContext, LENGTH_DEFAULT, Target, run_all};
use checkpoint::{Checkpoint, HashCover, ModelFacts};
use clap::Args;
use numerics::{BiasForm, ScaleOrder};
use report::schema::{
    AlibiFacts, DtypeCount, Envelope, FoldedTensor, InspectReport, Outcome, SelfCheck, Skipped,
    TensorRow,
};
use std::path::PathBuf;

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A model folder, config.json, .safetensors file or spec .toml
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// Runs the verb.
pub(crate) fn run(args: &InspectArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let checkpoint = describe::open(&args.path)?;
    let facts = &checkpoint.config;
    let slopes = facts
        .slope_values()
        .map_err(|error| Failure::error(format!("{}: {error}", args.path.display())))?;
    let mut envelope = Envelope::new("inspect", super::VERSION);
    envelope.model = Some(describe::hashed(
        &checkpoint,
        &args.path,
        HashCover::Headers,
    ));
    let tensors = tensors(&checkpoint);
    let dtypes = dtypes(&checkpoint);
    let mut outcome = Outcome {
        notes: describe::notes(facts),
        ..Outcome::default()
    };
    if let Err(reason) = checkpoint.runnable() {
        outcome.skipped.push(Skipped {
            what: "weights".to_owned(),
            reason: reason.to_string(),
        });
    }
    outcome.notes.extend(describe::unused(&checkpoint));
    let target = args.path.display().to_string();
    outcome.add_checks(&run_all(&AuditContext {
        target: Target::Path(&target),
        facts,
        plans: &[],
        // no check of a configuration depends on it
        length: facts.trained_length.unwrap_or(LENGTH_DEFAULT),
        text: None,
        certificates: None,
        evidence: None,
    }));
    outcome.drop_repeated_notes();
    let has_weights = !dtypes.is_empty();
    let report = InspectReport {
        envelope,
        self_check: self_check(facts, &slopes),
        alibi: alibi(facts, slopes),
        parameters: has_weights.then(|| dtypes.iter().map(|count| count.parameters).sum()),
        tensor_bytes: has_weights.then(|| tensors.iter().map(|row| row.bytes).sum()),
        dtypes,
        tensors_folded: FoldedTensor::fold(&tensors),
        tensors,
        outcome,
    };
    crate::output::emit(report, &global.judging_a_description())
}

fn alibi(facts: &ModelFacts, slopes: Vec<f64>) -> AlibiFacts {
    let convention = &facts.convention;
    let scale = facts.bias_scale();
    AlibiFacts {
        form: match convention.form {
            BiasForm::KeyPosition => "key-position",
            BiasForm::Relative => "relative",
        }
        .to_owned(),
        key_origin: describe::key_origin(convention.form, convention.key_origin).to_owned(),
        scale_order: match convention.scale_order {
            ScaleOrder::BiasAfterScale => "after-scale",
            ScaleOrder::BiasBeforeScale => "before-scale",
        }
        .to_owned(),
        storage: convention.storage.map(|storage| {
            format!(
                "{} slope x {} position, rounded to {}",
                storage.slope.name(),
                storage.position.name(),
                storage.product.name()
            )
        }),
        score_scale: Some(facts.score_scale),
        slope_rule: describe::schedule(&facts.slopes),
        effective_slopes: slopes.iter().map(|slope| slope * scale).collect(),
        slopes,
    }
}

/// Whether the bias does anything: slopes that are not zero, a bias that falls with the distance, the side it reaches.
fn self_check(facts: &ModelFacts, slopes: &[f64]) -> Vec<SelfCheck> {
    let scale = facts.bias_scale();
    let biased = slopes.iter().filter(|slope| **slope * scale != 0.0).count();
    let entry = |head: usize, distance: f64| {
        facts.bias.bias(
            head,
            slopes[head] * scale / facts.bias.interpolation,
            distance,
        )
    };
    let falls = (0..slopes.len())
        .filter(|head| entry(*head, 64.0) < entry(*head, 1.0))
        .count();
    let side = if facts.causal {
        "keys after the query are masked"
    } else {
        "keys on both sides, -slope * |i - j|"
    };
    vec![
        SelfCheck {
            check: "the configuration asks for ALiBi".to_owned(),
            holds: Some(true),
            detail: facts.evidence.clone(),
        },
        SelfCheck {
            check: "every head has a slope".to_owned(),
            holds: Some(biased == slopes.len()),
            detail: format!("{biased} of {} slopes are not zero", slopes.len()),
        },
        SelfCheck {
            check: "the bias falls with the distance".to_owned(),
            holds: Some(falls == slopes.len()),
            detail: format!(
                "lower at 64 tokens than at 1 in {falls} of {} heads; {side}",
                slopes.len()
            ),
        },
    ]
}

fn tensors(checkpoint: &Checkpoint) -> Vec<TensorRow> {
    let row = |row: checkpoint::TensorRow| {
        let elements: u64 = row.shape.iter().product();
        TensorRow {
            bytes: elements * row.dtype.bits() / 8,
            dtype: row.dtype.name().to_owned(),
            file: row
                .file
                .file_name()
                .map(|name| name.to_string_lossy().into_owned()),
            name: row.name,
            shape: row.shape,
        }
    };
    checkpoint.tensor_table().into_iter().map(row).collect()
}

fn dtypes(checkpoint: &Checkpoint) -> Vec<DtypeCount> {
    let count = |count: checkpoint::DtypeCount| DtypeCount {
        dtype: count.dtype.name().to_owned(),
        tensors: count.tensors,
        parameters: count.elements,
    };
    checkpoint.dtype_counts().into_iter().map(count).collect()
}
