//! What `train` recorded of a run, in the words of the schema.

use crate::number::finite;
use crate::schema::{
    Envelope, ModelInfo, Outcome, TrainBest, TrainHead, TrainHeld, TrainLook, TrainRecall,
    TrainRecallCell, TrainReport, TrainRun, TrainStep, TrainStop,
};
use audit::eval::wilson;
use train::TrainError;
use train::run::metrics::Metric;
use train::run::{HeadWatch, History, RecallCell};

impl TrainReport {
    /// The report of a run, as written by program version `version`.
    ///
    /// # Errors
    /// A configuration that gives no model.
    pub fn new(version: &str, history: &History) -> Result<Self, TrainError> {
        let record = &history.record;
        let mut envelope = Envelope::new("train", version);
        envelope.seed = Some(history.config.seed);
        envelope.model = Some(model(history)?);
        let mut report = Self {
            envelope,
            run: TrainRun {
                configuration: record.config_hash.clone(),
                train_hash: record.train_hash.clone(),
                held_hash: record.held_hash.clone(),
                tokenizer_hash: record.tokenizer_hash.clone(),
                parameters: record.parameters,
                steps: record.steps,
                steps_done: 0,
                tokens: record.tokens,
                position: position(history),
                stages: history.config.schedule.stages.clone(),
                attention: record.attention.clone(),
                slopes: record.slopes.clone(),
                document_mask: record.document_mask,
                best: None,
                finished: record.finished,
                stopped: None,
            },
            steps: Vec::new(),
            held: Vec::new(),
            recall: Vec::new(),
            looks: Vec::new(),
            outcome: Outcome::default(),
        };
        for metric in &history.metrics {
            report.add(metric);
        }
        report.run.steps_done = report.steps.last().map_or(0, |step| step.step);
        // the record holds the best of a finished run only; the lines hold it at any time
        let best = report
            .held
            .iter()
            .min_by(|a, b| a.nats_per_token.total_cmp(&b.nats_per_token));
        report.run.best = best.map(|held| TrainBest {
            step: held.step,
            nats_per_token: held.nats_per_token,
        });
        report.remark();
        Ok(report)
    }

    fn add(&mut self, metric: &Metric) {
        match metric {
            Metric::Begin { .. } => {}
            Metric::Step {
                step,
                length,
                tokens,
                loss,
                text,
                passkey,
                pair,
                needle,
                lr,
                gradient_norm,
            } => self.steps.push(TrainStep {
                step: *step,
                length: *length,
                tokens: *tokens,
                loss: *loss,
                text: *text,
                passkey: *passkey,
                pair: *pair,
                needle: *needle,
                learning_rate: *lr,
                gradient_norm: *gradient_norm,
            }),
            Metric::Eval {
                step,
                length,
                tokens,
                loss,
            } => self.held.push(TrainHeld {
                step: *step,
                length: *length,
                tokens: *tokens,
                nats_per_token: *loss,
            }),
            Metric::Recall {
                step,
                length,
                cells,
            } => self.recall.push(TrainRecall {
                step: *step,
                length: *length,
                cells: cells.iter().map(TrainRecallCell::from).collect(),
            }),
            Metric::Heads {
                step,
                length,
                edges,
                heads,
            } => self.looks.push(look(*step, *length, edges, heads)),
            Metric::Stopped { step, reason } => {
                self.run.stopped = Some(TrainStop {
                    step: *step,
                    reason: reason.clone(),
                });
            }
        }
    }

    /// What a reader of the curves needs to know.
    fn remark(&mut self) {
        let run = &self.run;
        if !run.finished {
            let notes = &mut self.outcome.notes;
            notes.push(format!(
                "the run is not finished: {} of {} steps are recorded",
                run.steps_done, run.steps
            ));
        }
        for (missing, what, reason) in [
            (
                self.held.is_empty(),
                "loss on held-out text",
                "watch.eval-every",
            ),
            (self.looks.is_empty(), "heads", "watch.heads-every"),
        ] {
            if missing {
                self.outcome.skipped.push(crate::schema::Skipped {
                    what: what.to_owned(),
                    reason: format!(
                        "no step of the run looked ({reason} in the run file says when)"
                    ),
                });
            }
        }
    }
}

fn model(history: &History) -> Result<ModelInfo, TrainError> {
    let vocab = usize::try_from(history.record.vocab)
        .map_err(|_| TrainError::config("record.json: vocab is too large"))?;
    let shape = history.config.shape(vocab)?;
    let name = history.folder.canonicalize().ok();
    let name = name.as_deref().unwrap_or(&history.folder).file_name();
    Ok(ModelInfo {
        name: name.map_or_else(
            || "run".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        ),
        family: "custom".to_owned(),
        path: Some(history.folder.display().to_string()),
        n_layers: Some(shape.layers as u64),
        n_heads: Some(shape.heads as u64),
        n_kv_heads: Some(shape.heads as u64),
        head_width: Some(shape.head_width() as u64),
        width: Some(shape.width as u64),
        vocab_size: Some(shape.vocab as u64),
        trained_length: Some(shape.context as u64),
        causal: true,
        ..ModelInfo::default()
    })
}

/// `alibi`, or `alibi, remedy log`.
fn position(history: &History) -> String {
    let position = &history.config.position;
    let kind = serde_json::to_value(position.kind).unwrap_or_default();
    let kind = kind.as_str().unwrap_or_default().to_owned();
    match position.remedy.as_str() {
        "none" => kind,
        remedy => format!("{kind}, remedy {remedy}"),
    }
}

impl From<&RecallCell> for TrainRecallCell {
    fn from(cell: &RecallCell) -> Self {
        let interval = wilson(cell.right, cell.questions);
        Self {
            task: cell.task.clone(),
            from: cell.from,
            // the record's edge is exclusive
            to: cell.to.saturating_sub(1),
            questions: cell.questions,
            right: cell.right,
            accuracy: share(cell.right, cell.questions),
            accuracy_low: interval.map(|interval| interval.low),
            accuracy_high: interval.map(|interval| interval.high),
            nats: cell.loss,
        }
    }
}

fn look(step: u64, length: u64, edges: &[u64], heads: &[HeadWatch]) -> TrainLook {
    let pairs = heads.iter().map(|head| head.pairs).sum();
    let blind_pairs = heads.iter().map(|head| head.blind_pairs).sum();
    TrainLook {
        step,
        length,
        edges: edges.to_vec(),
        pairs,
        blind_pairs,
        blind_share: share(blind_pairs, pairs),
        heads: heads
            .iter()
            .map(|head| TrainHead {
                layer: head.layer,
                head: head.head,
                pairs: head.pairs,
                blind_pairs: head.blind_pairs,
                blind_share: share(head.blind_pairs, head.pairs),
                reach_90: head.reach_90,
                key0_mass: head.key0_mass,
                gradient_share: head.gradient_share.clone(),
                blind_gradient: head.blind_gradient,
            })
            .collect(),
    }
}

#[allow(clippy::cast_precision_loss)] // counts
fn share(part: u64, whole: u64) -> Option<f64> {
    finite(part as f64 / whole as f64)
}
