//! What is measured of a finished run, in the words of the schema.

use super::change::Change;
use crate::failure::Failure;
use ::audit::evidence::{EvidenceCollector, EvidenceOptions};
use ::report::number::{Distance, finite};
use ::report::schema::{
    Skipped, StudyBlind, StudyCell, StudyHorizon, StudyMargin, StudyMeasured, StudyResult,
};
use model::{ForwardOptions, Model, ModelSpec};
use numerics::PrecisionPlan;
use std::path::Path;
use std::sync::Arc;
use train::run::{Evaluation, HeadMargin, Trained};
use train::study::Trial;

/// Sequences of the trained length whose questions give the content margins.
const MARGIN_SEQUENCES: usize = 128;
/// Mean weight on a near answer from which on a head counts as reading it.
const READS_FROM: f64 = 0.1;
/// A distance bin with fewer questions does not end a horizon.
const BIN_QUESTIONS_MIN: u64 = 10;

/// Measures the finished run in `folder`; `None` where `stop` said so in between.
pub(super) fn measure(
    folder: &Path,
    trial: &Trial,
    stop: &dyn Fn() -> bool,
) -> Result<Option<StudyResult>, Failure> {
    let trained = Trained::open_final(folder)?;
    let settings = &trial.evaluate;
    let longest = trained.config.stages()?.iter().map(|s| s.length).max();
    let record = trained.record.clone();
    let json = |error: serde_json::Error| Failure::error(format!("JSON: {error}"));
    let mut result = StudyResult {
        configuration: serde_json::to_value(trial.run.without_places()).map_err(json)?,
        evaluation: serde_json::to_value(settings).map_err(json)?,
        train_hash: record.train_hash,
        held_hash: record.held_hash,
        parameters: record.parameters,
        vocab: record.vocab,
        steps: record.steps,
        tokens: record.tokens,
        trained_length: longest.unwrap_or(0) as u64,
        slopes: record.slopes,
        measured: Vec::new(),
        blind: Vec::new(),
        margins: Vec::new(),
        horizons: Vec::new(),
        skipped: Vec::new(),
    };
    let mut run = Run {
        spec: Specification::open(folder)?,
        evaluation: Evaluation::new(trained)?,
        trial,
    };
    for &length in &settings.lengths {
        if stop() {
            return Ok(None);
        }
        result.measured.push(run.at(length, None)?);
    }
    for text in &settings.what_if {
        let change = Change::parse(text)?;
        if change.needs_spec() && run.spec.is_none() {
            result.skipped.push(Skipped {
                what: format!("{}: what-if {text}", trial.variant),
                reason: "this position scheme is not a fixed bias".to_owned(),
            });
            continue;
        }
        for &length in &settings.what_if_lengths {
            if stop() {
                return Ok(None);
            }
            result.measured.push(run.at(length, Some(&change))?);
        }
    }
    for &length in &settings.plan_lengths {
        if settings.plans.is_empty() || stop() {
            break;
        }
        match run.blind(length)? {
            Some(heads) => result.blind.extend(heads),
            None => {
                result.skipped.push(Skipped {
                    what: format!("{}: blind pairs", trial.variant),
                    reason: "this position scheme is not a fixed bias".to_owned(),
                });
                break;
            }
        }
    }
    if settings.margins && !stop() {
        let length = longest.unwrap_or(0);
        let margins = run.evaluation.margins(length, MARGIN_SEQUENCES);
        let margins = margins.unwrap_or_default();
        if margins.is_empty() {
            result.skipped.push(Skipped {
                what: format!("{}: margins", trial.variant),
                reason: format!(
                    "no recall question in {length} tokens is far enough from its answer"
                ),
            });
        }
        result.margins = margins.iter().map(margin).collect();
        result.horizons = horizons(&result.measured, &result.margins);
    }
    Ok((!stop()).then_some(result))
}

/// A finished run.
struct Run<'a> {
    evaluation: Evaluation,
    spec: Option<Specification>,
    trial: &'a Trial,
}

/// The finished model as the other verbs open it.
struct Specification {
    checkpoint: Arc<checkpoint::Checkpoint>,
    spec: ModelSpec,
}

impl Specification {
    /// `None` where the run has none, as its bias is learned or rotary.
    fn open(folder: &Path) -> Result<Option<Self>, Failure> {
        let path = folder.join("final").join("model.toml");
        if !path.exists() {
            return Ok(None);
        }
        let checkpoint = Arc::new(checkpoint::open(&path)?);
        let spec = checkpoint.runnable()?.clone();
        Ok(Some(Self { checkpoint, spec }))
    }
}

impl Run<'_> {
    fn at(&mut self, length: usize, change: Option<&Change>) -> Result<StudyMeasured, Failure> {
        let spec = self.spec.as_ref().map(|own| &own.spec);
        let (position, rule) = match change {
            Some(change) => change.apply(spec, length)?,
            None => (None, None),
        };
        let settings = &self.trial.evaluate;
        let network = self.evaluation.network(position, rule);
        let loss = self
            .evaluation
            .held_loss(&network, length, settings.held_tokens);
        let recall = self.evaluation.recall(&network, length, settings.questions);
        let cell = |cell: &train::run::RecallCell| StudyCell {
            task: cell.task.clone(),
            from: cell.from,
            to: cell.to,
            questions: cell.questions,
            right: cell.right,
            loss: finite(cell.loss),
        };
        Ok(StudyMeasured {
            change: change.map(|change| change.name().to_owned()),
            length: length as u64,
            loss: loss.and_then(|loss| finite(loss.loss)),
            loss_tokens: loss.map_or(0, |loss| loss.tokens),
            sequences: recall.as_ref().map_or(0, |recall| recall.sequences),
            recall: recall
                .iter()
                .flat_map(|r| r.cells.iter().map(cell))
                .collect(),
        })
    }

    /// Blind pairs of every head and plan on held-out sequences of `length`; `None` without a specification.
    fn blind(&self, length: usize) -> Result<Option<Vec<StudyBlind>>, Failure> {
        let Some(own) = &self.spec else {
            return Ok(None);
        };
        let settings = &self.trial.evaluate;
        let facts = &own.checkpoint.config;
        let plans: Result<Vec<PrecisionPlan>, _> = settings
            .plans
            .iter()
            .map(|plan| PrecisionPlan::parse(plan, own.spec.family))
            .collect();
        let plans = plans.map_err(|error| Failure::error(format!("evaluate.plans: {error}")))?;
        let plans = plans
            .into_iter()
            .map(|plan| facts.as_run_by(plan))
            .collect();
        let options = EvidenceOptions {
            length,
            several_calls: true,
            ..EvidenceOptions::default()
        };
        let collector = EvidenceCollector::new(&own.spec, plans, options);
        let failed = |error: model::ModelError| Failure::error(error.to_string());
        let model = Model::new(own.spec.clone(), own.checkpoint.clone()).map_err(failed)?;
        for number in 0..settings.plan_sequences {
            let Some(ids) = self.evaluation.text(number, length) else {
                break;
            };
            let options = ForwardOptions {
                observer: Some(Arc::new(collector.clone())),
                ..ForwardOptions::default()
            };
            model.forward(&ids, options).map_err(failed)?;
        }
        let evidence = collector.finish();
        let heads = evidence.heads.iter().flat_map(|head| {
            head.plans.iter().map(|plan| StudyBlind {
                plan: plan.plan.clone(),
                length: length as u64,
                layer: head.layer as u64,
                head: head.head as u64,
                pairs: plan.pairs,
                blind_pairs: plan.blind_pairs,
                first_blind_distance: plan.first_blind_distance,
            })
        });
        Ok(Some(heads.collect()))
    }
}

fn margin(head: &HeadMargin) -> StudyMargin {
    StudyMargin {
        task: head.task.clone(),
        layer: head.layer,
        head: head.head,
        slope: head.slope,
        questions: head.questions,
        margin: finite(head.margin),
        deviation: head.deviation.and_then(finite),
        near_weight: head.near_weight.and_then(finite),
        predicted_horizon: head.predicted_horizon.and_then(Distance::new),
    }
}

/// Predicted and measured horizon of each task.
pub(super) fn horizons(measured: &[StudyMeasured], margins: &[StudyMargin]) -> Vec<StudyHorizon> {
    let own = measured.iter().filter(|m| m.change.is_none());
    let Some(longest) = own.max_by_key(|m| m.length) else {
        return Vec::new();
    };
    let mut tasks: Vec<&str> = Vec::new();
    for margin in margins {
        if !tasks.contains(&margin.task.as_str()) {
            tasks.push(&margin.task);
        }
    }
    let horizon = |task: &&str| {
        let reads = |m: &&StudyMargin| {
            m.task == **task && m.near_weight.is_some_and(|weight| weight >= READS_FROM)
        };
        let readers: Vec<&StudyMargin> = margins.iter().filter(reads).collect();
        let known = readers.iter().filter_map(|m| m.predicted_horizon);
        let largest = known.max_by(|a, b| a.tokens().total_cmp(&b.tokens()));
        let cells: Vec<&StudyCell> = longest.recall.iter().filter(|c| c.task == **task).collect();
        let (edge, unbounded) = reach(&cells);
        StudyHorizon {
            task: (*task).to_owned(),
            readers: readers
                .iter()
                .map(|m| format!("{}/{}", m.layer, m.head))
                .collect(),
            predicted: largest,
            predicted_unbounded: readers.iter().any(|m| m.predicted_horizon.is_none()),
            measured: (!cells.is_empty()).then_some(edge),
            measured_unbounded: unbounded,
            length: longest.length,
        }
    };
    tasks.iter().map(horizon).collect()
}

/// Upper edge of the last bin up to which recall stays at one half, and whether that is the last bin of all.
fn reach(cells: &[&StudyCell]) -> (u64, bool) {
    let enough = cells.iter().filter(|c| c.questions >= BIN_QUESTIONS_MIN);
    let mut edge = 0;
    for cell in enough {
        if 2 * cell.right < cell.questions {
            return (edge, false);
        }
        edge = cell.to;
    }
    (edge, edge > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_horizon_ends_at_the_first_bin_below_one_half() {
        let cell = |from, to, questions, right| StudyCell {
            task: "pair".to_owned(),
            from,
            to,
            questions,
            right,
            loss: None,
        };
        // the second bin has too few questions to end it, the last one is back above one half and does not count
        let cells = [
            cell(1, 16, 100, 100),
            cell(16, 24, 3, 0),
            cell(24, 32, 100, 50),
            cell(32, 48, 100, 49),
            cell(48, 64, 100, 100),
        ];
        let all: Vec<&StudyCell> = cells.iter().collect();
        assert_eq!(reach(&all), (32, false));
        assert_eq!(reach(&all[..3]), (32, true));
        assert_eq!(reach(&all[3..4]), (0, false));
        assert_eq!(reach(&[]), (0, false));
    }
}
