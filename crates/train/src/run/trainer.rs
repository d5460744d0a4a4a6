//! The loop.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::checkpoint::{self, State};
use super::metrics::{self, Metric, SCHEMA_VERSION, Writer};
use super::plan::{RunPlan, RunRecord};
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

/// Whether nothing is in `folder` but what a run leaves that was interrupted before it had begun.
fn is_fresh(folder: &Path) -> Result<bool, TrainError> {
    const OWN: [&str; 5] = [
        "checkpoints",
        "lock",
        "metrics.jsonl",
        "record.json",
        "tokenizer.json",
    ];
    if !folder.exists() {
        return Ok(true);
    }
    let fail = |e: std::io::Error| TrainError::io(folder, &e);
    for entry in fs::read_dir(folder).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let name = name.to_string_lossy();
        if !OWN.contains(&name.as_ref()) && !name.starts_with(".snellen-") {
            return Ok(false);
        }
    }
    let checkpoints = folder.join("checkpoints");
    Ok(!checkpoints.exists() || checkpoint::list(&checkpoints)?.is_empty())
}

/// The tokenizer's name in a run folder.
const TOKENIZER: &str = "tokenizer.json";

/// The bytes of a tokenizer file, which must be the one that made the token files.
fn tokenizer(path: &Path, hash: &str) -> Result<Vec<u8>, TrainError> {
    let bytes = files::read(path).map_err(|e| TrainError::io(path, &e))?;
    if blake3::hash(&bytes).to_hex().as_str() != hash {
        return Err(TrainError::file(
            path,
            "is not the tokenizer that made the token files (its hash differs)",
        ));
    }
    Ok(bytes)
}

fn lock(folder: &Path) -> Result<fs::File, TrainError> {
    let path = folder.join("lock");
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|e| TrainError::io(&path, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            Err(TrainError::file(folder, "another process is training here"))
        }
        Err(fs::TryLockError::Error(e)) => Err(TrainError::io(&path, &e)),
    }
}

impl Trainer {
    /// Begins a run in `folder`, which must be empty or absent.
    ///
    /// # Errors
    /// A folder that is in use, another tokenizer than that of the token files, what the system says.
    pub fn begin(mut plan: RunPlan, folder: &Path) -> Result<Self, TrainError> {
        if !is_fresh(folder)? {
            return Err(TrainError::file(
                folder,
                "is not empty; resume the run in it, or choose another folder",
            ));
        }
        // Before anything is written: a run that is refused leaves no folder behind.
        let tokenizer = match &plan.config.data.tokenizer {
            Some(path) => Some(tokenizer(path, &plan.record.tokenizer_hash)?),
            None => None,
        };
        let checkpoints = folder.join("checkpoints");
        fs::create_dir_all(&checkpoints).map_err(|e| TrainError::io(&checkpoints, &e))?;
        let lock = lock(folder)?;
        let config = &mut plan.config;
        for path in [&mut config.data.train, &mut config.data.held] {
            *path = std::path::absolute(&*path).map_err(|e| TrainError::io(path, &e))?;
        }
        if let Some(bytes) = tokenizer {
            files::write_whole(&folder.join(TOKENIZER), |out| out.write_all(&bytes))?;
            config.data.tokenizer = Some(PathBuf::from(TOKENIZER));
        }
        let params = plan.network.layout.initial(
            &plan.network.shape,
            &plan.network.position,
            config.model.init.unwrap_or_default(),
            config.seed,
        );
        let moments = Moments::new(params.len());
        let begun = folder.join("metrics.jsonl");
        if begun.exists() {
            fs::remove_file(&begun).map_err(|e| TrainError::io(&begun, &e))?;
        }
        let mut metrics = Writer::open(&begun, 0)?;
        metrics.line(&Metric::Begin {
            schema_version: SCHEMA_VERSION,
            parameters: plan.record.parameters,
            steps: plan.record.steps,
        })?;
        let text = config.canonical();
        let trainer = Self::assemble(folder, plan, params, moments, lock);
        trainer.write_record()?;
        // Last: a folder with run.toml is a whole run.
        files::write_whole(&folder.join("run.toml"), |out| {
            out.write_all(text.as_bytes())
        })?;
        Ok(trainer)
    }

    /// Continues the run in `folder`, whose plan is [`RunPlan::of_folder`], from its newest whole checkpoint. Says through `observer` what it
    /// found.
    ///
    /// # Errors
    /// Data or configuration that changed, checkpoints that are all damaged.
    pub fn resume(
        plan: RunPlan,
        folder: &Path,
        observer: &mut dyn Observer,
    ) -> Result<Self, TrainError> {
        let config = &plan.config;
        let lock = lock(folder)?;
        let path = folder.join("record.json");
        let text = files::read(&path).map_err(|e| TrainError::io(&path, &e))?;
        let record: RunRecord = serde_json::from_slice(&text)
            .map_err(|e| TrainError::file(&path, format!("is damaged ({e})")))?;
        if record.config_hash != plan.record.config_hash {
            let what = if record.train_hash != plan.record.train_hash {
                format!(
                    "{} is not the file the run began with",
                    config.data.train.display()
                )
            } else if record.held_hash != plan.record.held_hash {
                format!(
                    "{} is not the file the run began with",
                    config.data.held.display()
                )
            } else {
                "run.toml was changed since the run began".to_owned()
            };
            return Err(TrainError::file(folder, format!("{what}; begin a new run")));
        }
        if config.data.tokenizer.is_some() {
            tokenizer(&folder.join(TOKENIZER), &record.tokenizer_hash)?;
        }
        let checkpoints = folder.join("checkpoints");
        let found = checkpoint::newest(&checkpoints, &plan.network.layout, &record.config_hash)?;
        let lines = folder.join("metrics.jsonl");
        let last = metrics::check(&lines, &metrics::read_whole_lines(&lines)?, &record)?;
        let trainer = match found {
            Some((snapshot, warnings)) => {
                let step = snapshot.state.step;
                if last < step {
                    return Err(metrics::incomplete(&lines, last, step));
                }
                for warning in &warnings {
                    observer.note(&format!("warning: {warning}; falling back to step {step}"));
                }
                observer.note(&format!("resuming after step {step}"));
                let best = snapshot.state.best;
                let (params, moments) = (snapshot.params, snapshot.moments);
                let mut trainer = Self::assemble(folder, plan, params, moments, lock);
                trainer.step = step;
                trainer.best = best;
                trainer.saved = Some(step);
                trainer
            }
            None => {
                observer.note("no checkpoint was written yet; starting again at step 0");
                let params = plan.network.layout.initial(
                    &plan.network.shape,
                    &plan.network.position,
                    config.model.init.unwrap_or_default(),
                    config.seed,
                );
                let moments = Moments::new(params.len());
                Self::assemble(folder, plan, params, moments, lock)
            }
        };
        Ok(trainer)
    }

    fn assemble(
        folder: &Path,
        plan: RunPlan,
        params: Vec<f32>,
        moments: Moments,
        lock: fs::File,
    ) -> Self {
        Self {
            folder: folder.to_owned(),
            config: plan.config,
            network: plan.network,
            total: plan.record.steps,
            stages: plan.stages,
            train: plan.train,
            held: plan.held,
            task: plan.task,
            record: plan.record,
            params,
            moments,
            step: 0,
            best: None,
            saved: None,
            _lock: lock,
        }
    }

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
        }
        self.record.best = self.best;
        self.record.finished = true;
        self.write_record()
    }
}
