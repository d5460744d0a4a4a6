//! The loop.

mod begin;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use super::checkpoint::{self, State};
use super::metrics::{Metric, Writer};
use super::plan::RunRecord;
use super::{evaluate, watch};
use crate::config::{RunConfig, Stage};
use crate::data::recall::RecallTask;
use crate::data::shard::Tokens;
use crate::error::TrainError;
use crate::export;
use crate::files;
use crate::network::{Network, Workspace};
use crate::optimiser::Moments;

/// What a run tells while it goes, and is told.
pub trait Observer {
    /// A line was added to the metrics. `rate` is tokens per second of the step, where it was timed.
    fn metric(&mut self, metric: &Metric, rate: Option<f64>);
    /// Something to say to the user: a fall-back, a resume.
    fn note(&mut self, text: &str);
    /// Whether to save and stop after this step.
    fn stop(&mut self) -> bool;
}

/// How a call of [`Trainer::run`] ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// All steps are done; the model is in `final/`.
    Finished,
    /// Stopped after a step as asked; a checkpoint is written.
    Stopped {
        /// Steps done.
        step: u64,
    },
    /// Something was not finite. Nothing is written for this step.
    Diverged {
        /// The step that failed.
        step: u64,
        /// What was not finite.
        reason: String,
        /// Step of the newest checkpoint, which is finite.
        last_checkpoint: Option<u64>,
    },
}

/// A run in a folder.
#[derive(Debug)]
pub struct Trainer {
    folder: PathBuf,
    pub(super) config: RunConfig,
    pub(super) network: Network,
    pub(super) stages: Vec<Stage>,
    pub(super) total: u64,
    pub(super) train: Tokens,
    held: Tokens,
    pub(super) task: Option<RecallTask>,
    record: RunRecord,
    pub(super) params: Vec<f32>,
    pub(super) moments: Moments,
    step: u64,
    best: Option<(f64, u64)>,
    saved: Option<u64>,
    /// Held while this value lives.
    _lock: fs::File,
}

impl Trainer {
    /// What is known of the run.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Present parameters.
    pub fn params(&self) -> &[f32] {
        &self.params
    }

    /// Steps done.
    pub fn step(&self) -> u64 {
        self.step
    }

    fn write_record(&self) -> Result<(), TrainError> {
        let text = serde_json::to_vec_pretty(&self.record)
            .map_err(|e| TrainError::config(format!("record.json: {e}")))?;
        files::write_whole(&self.folder.join("record.json"), |out| out.write_all(&text))
    }

    /// Trains until the end, or until `until` steps are done, or until the observer says stop.
    ///
    /// # Errors
    /// What the system says about files. The last checkpoint stays whole.
    pub fn run(
        &mut self,
        until: Option<u64>,
        observer: &mut dyn Observer,
    ) -> Result<Ending, TrainError> {
        let mut metrics = Writer::open(&self.folder.join("metrics.jsonl"), self.step)?;
        let mut timing = Writer::open(&self.folder.join("timing.jsonl"), self.step)?;
        let mut work = Workspace::new();
        let mut gradient = vec![0.0f32; self.params.len()];
        let last = until.unwrap_or(self.total).min(self.total);
        while self.step < last {
            let began = Instant::now();
            let step = self.step + 1;
            match self.one_step(step, &mut gradient, &mut work) {
                Ok(metric) => {
                    self.step = step;
                    metrics.line(&metric)?;
                    let seconds = began.elapsed().as_secs_f64();
                    let rate = self.config.schedule.tokens_per_step as f64 / seconds;
                    timing.line(&serde_json::json!({"step": step, "tokens_per_second": rate}))?;
                    observer.metric(&metric, Some(rate));
                }
                Err(reason) => {
                    let metric = Metric::Stopped {
                        step,
                        reason: reason.clone(),
                    };
                    metrics.line(&metric)?;
                    observer.metric(&metric, None);
                    return Ok(Ending::Diverged {
                        step,
                        reason,
                        last_checkpoint: self.saved,
                    });
                }
            }
            for metric in self.look(step, &mut work) {
                metrics.line(&metric)?;
                observer.metric(&metric, None);
            }
            let stop = observer.stop();
            let every = self.config.watch.save_every;
            let improved = self.best.is_some_and(|(_, best)| best == step);
            if stop || step == last || improved || (every > 0 && step.is_multiple_of(every)) {
                metrics.sync()?;
                self.save()?;
            }
            if stop && step < self.total {
                return Ok(Ending::Stopped { step });
            }
        }
        if self.step < self.total {
            return Ok(Ending::Stopped { step: self.step });
        }
        self.finish(observer)?;
        Ok(Ending::Finished)
    }

    /// Evaluations due after a step.
    fn look(&mut self, step: u64, work: &mut Workspace) -> Vec<Metric> {
        let due = |every: u64| (every > 0 && step.is_multiple_of(every)) || step == self.total;
        let settings = self.config.watch;
        let longest = self.stages.iter().map(|s| s.length).max().unwrap_or(1);
        let length = longest.min(self.held.ids.len().saturating_sub(1));
        let mut lines = Vec::new();
        if length == 0 {
            return lines;
        }
        if due(settings.eval_every) {
            let held = evaluate::held_loss(
                &self.network,
                &self.params,
                &self.held,
                length,
                settings.eval_tokens,
                self.config.data.document_mask,
                work,
            );
            if let Some((loss, tokens)) = held {
                if loss.is_finite() && self.best.is_none_or(|(best, _)| loss < best) {
                    self.best = Some((loss, step));
                }
                lines.push(Metric::Eval {
                    step,
                    length: length as u64,
                    tokens,
                    loss,
                });
            }
            if let Some(task) = &self.task {
                let sequences = (settings.eval_tokens / length).max(1);
                let cells = evaluate::recall(
                    &self.network,
                    &self.params,
                    task,
                    &self.held,
                    length,
                    sequences,
                    self.config.seed,
                    work,
                );
                lines.push(Metric::Recall {
                    step,
                    length: length as u64,
                    cells,
                });
            }
        }
        if due(settings.heads_every) && settings.heads_every > 0 {
            let mut text = Vec::new();
            self.held.ids.copy(0..length + 1, &mut text);
            let report = watch::look(
                &self.network,
                &self.params,
                &text[..length],
                &text[1..],
                work,
            );
            lines.push(Metric::Heads {
                step,
                length: length as u64,
                edges: report.edges,
                heads: report.heads,
            });
        }
        lines
    }

    fn save(&mut self) -> Result<(), TrainError> {
        if self.saved == Some(self.step) {
            return Ok(());
        }
        let folder = self.folder.join("checkpoints");
        let state = State {
            version: 1,
            step: self.step,
            config_hash: self.record.config_hash.clone(),
            best: self.best,
            files: std::collections::BTreeMap::new(),
        };
        let layout = &self.network.layout;
        checkpoint::save(&folder, layout, &self.params, &self.moments, state)?;
        self.saved = Some(self.step);
        // Older ones go only now that the new one is complete.
        checkpoint::prune(
            &folder,
            self.config.watch.keep_last,
            self.best.map(|(_, step)| step),
        )
    }

    fn finish(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        self.save()?;
        let folder = self.folder.join("final");
        fs::create_dir_all(&folder).map_err(|e| TrainError::io(&folder, &e))?;
        let metadata = export::provenance(self.step, &self.record.config_hash);
        let tokenizer = self
            .config
            .data
            .tokenizer
            .as_ref()
            .map(|_| "../tokenizer.json");
        let name = self.folder.file_name().map_or_else(
            || "run".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        );
        let written = export::write_spec(
            &folder,
            &name,
            &self.network,
            &self.params,
            tokenizer,
            &metadata,
            ::checkpoint::safetensors::StoredAs::F32,
        );
        if let Err(error) = &written
            && !matches!(self.network.position, crate::shape::Position::Fixed { .. })
        {
            // The parameters all the same; only the description of the decoder is missing.
            let path = folder.join("model.safetensors");
            let tensors = checkpoint::tensors(&self.network.layout, &self.params);
            let stored = ::checkpoint::safetensors::StoredAs::F32;
            ::checkpoint::safetensors::write_safetensors(&path, &tensors, &metadata, stored)
                .map_err(|e| TrainError::io(&path, &e))?;
            observer.note(&format!(
                "{}: holds the parameters but no model.toml, so the other verbs cannot open it: {error}",
                folder.display()
            ));
        } else {
            written?;
            if let Some(what) = self.network.rule.unspoken() {
                observer.note(&format!("{}: {what}", folder.display()));
            }
        }
        self.record.best = self.best;
        self.record.finished = true;
        self.write_record()
    }
}
