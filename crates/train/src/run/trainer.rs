//! The loop.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::checkpoint::{self, State};
use super::metrics::{Metric, SCHEMA_VERSION, Writer};
use super::{evaluate, watch};
use crate::config::{RunConfig, Stage};
use crate::data::recall::{Group, RecallTask};
use crate::data::sampler::Sampler;
use crate::data::shard::{self, Tokens};
use crate::error::TrainError;
use crate::export;
use crate::files;
use crate::network::{Batch, Network, Workspace};
use crate::optimiser::{Moments, global_norm};
use crate::rng::{self, Stream};

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

/// `record.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Version of this format, 1.
    pub version: u64,
    /// Version of the program.
    pub snellen: String,
    /// Hash of configuration and data; checkpoints carry it.
    pub config_hash: String,
    /// Hash of the training tokens' file.
    pub train_hash: String,
    /// Hash of the held-out tokens' file.
    pub held_hash: String,
    /// Hash of the tokenizer that made both.
    pub tokenizer_hash: String,
    /// Vocabulary, tokens of recall tasks included.
    pub vocab: u64,
    /// Parameters.
    pub parameters: u64,
    /// Steps of the run.
    pub steps: u64,
    /// Tokens it trains on.
    pub tokens: u64,
    /// `exact`, `zero-beyond:...` or `plan:...`.
    pub attention: String,
    /// Slope of every head, where there are slopes.
    pub slopes: Vec<f64>,
    /// Whether attention stays inside documents.
    pub document_mask: bool,
    /// Best held-out loss, nats per token, and its step.
    pub best: Option<(f64, u64)>,
    /// Whether all steps are done.
    pub finished: bool,
}

/// A run in a folder.
#[derive(Debug)]
pub struct Trainer {
    folder: PathBuf,
    config: RunConfig,
    network: Network,
    stages: Vec<Stage>,
    total: u64,
    train: Tokens,
    held: Tokens,
    task: Option<RecallTask>,
    record: RunRecord,
    params: Vec<f32>,
    moments: Moments,
    step: u64,
    best: Option<(f64, u64)>,
    saved: Option<u64>,
    /// Held while this value lives.
    _lock: fs::File,
}

/// What a configuration and its data decide together.
struct Plan {
    network: Network,
    stages: Vec<Stage>,
    train: Tokens,
    held: Tokens,
    task: Option<RecallTask>,
    record: RunRecord,
}

impl Plan {
    fn new(config: &RunConfig) -> Result<Self, TrainError> {
        config.validate()?;
        let train = shard::read(&config.data.train)?;
        let held = shard::read(&config.data.held)?;
        let (a, b) = (&train.description, &held.description);
        if a.vocab != b.vocab || a.tokenizer_hash != b.tokenizer_hash {
            return Err(TrainError::config(format!(
                "{} and {} were made with different tokenizers; encode both with one",
                config.data.train.display(),
                config.data.held.display()
            )));
        }
        let text_vocab = a.vocab as usize;
        let task = config
            .recall
            .map(|recall| RecallTask::new(recall, text_vocab))
            .transpose()?;
        let vocab = task.map_or(text_vocab, |task| task.vocab());
        let shape = config.shape(vocab)?;
        let position = config.position.resolve(shape.heads, shape.context)?;
        let rule = config.rule()?;
        if matches!(position, crate::shape::Position::Rope { .. })
            && !shape.head_width().is_multiple_of(2)
        {
            return Err(TrainError::config(
                "position.kind = \"rope\" needs heads of even width".to_owned(),
            ));
        }
        let stages = config.stages()?;
        for stage in &stages {
            let name = config.data.train.display().to_string();
            Sampler::new(train.ids.len(), stage.length, config.seed, &name)?;
        }
        let network = Network::new(shape, position, rule);
        let steps: u64 = stages.iter().map(|s| s.steps).sum();
        let mut what = config.clone();
        // Where files lie decides nothing; what is in them does.
        what.data.train = PathBuf::new();
        what.data.held = PathBuf::new();
        what.data.tokenizer = None;
        let identity = format!("{}\n{}\n{}", what.canonical(), train.hash, held.hash);
        let record = RunRecord {
            version: 1,
            snellen: env!("CARGO_PKG_VERSION").to_owned(),
            config_hash: blake3::hash(identity.as_bytes()).to_hex().to_string(),
            train_hash: train.hash.clone(),
            held_hash: held.hash.clone(),
            tokenizer_hash: a.tokenizer_hash.clone(),
            vocab: vocab as u64,
            parameters: network.layout.len() as u64,
            steps,
            tokens: steps * config.schedule.tokens_per_step as u64,
            attention: network.rule.name(),
            slopes: match &network.position {
                crate::shape::Position::Fixed { slopes, .. }
                | crate::shape::Position::KerpleLog { slopes } => slopes.clone(),
                _ => Vec::new(),
            },
            document_mask: config.data.document_mask,
            best: None,
            finished: false,
        };
        Ok(Self {
            network,
            stages,
            train,
            held,
            task,
            record,
        })
    }
}

/// What a run would be, without starting it.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Parameters.
    pub parameters: u64,
    /// Steps.
    pub steps: u64,
    /// Tokens.
    pub tokens: u64,
    /// Bytes of parameters, gradient, moments and buffers.
    pub memory_bytes: u64,
    /// Floating-point operations of the matrix products and attention of the whole run.
    pub operations: f64,
}

/// Checks a configuration with its data and says what it will take.
///
/// # Errors
/// Everything that would stop [`Trainer::begin`] before its first step.
pub fn estimate(config: &RunConfig) -> Result<Estimate, TrainError> {
    let plan = Plan::new(config)?;
    let shape = &plan.network.shape;
    let parameters = plan.network.layout.len() as u64;
    let rows = config
        .schedule
        .tokens_per_step
        .div_ceil(config.schedule.micro_batches);
    let operations: f64 = plan
        .stages
        .iter()
        .map(|s| {
            let tokens = s.steps as f64 * config.schedule.tokens_per_step as f64;
            let head = (shape.vocab * shape.width) as f64;
            let tied = if shape.tied { 0.0 } else { -head };
            let products = 6.0 * (parameters as f64 + tied);
            // Seven products over the causal half: two forward, five backward.
            let attention = 7.0 * (shape.layers * shape.width * s.length) as f64;
            tokens * (products + attention)
        })
        .sum();
    Ok(Estimate {
        parameters,
        steps: plan.record.steps,
        tokens: plan.record.tokens,
        memory_bytes: 16 * parameters
            + Workspace::bytes(shape, rows) as u64
            + (plan.train.ids.len() + plan.held.ids.len()) as u64
                * u64::from(plan.train.description.width / 8),
        operations,
    })
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
    /// A configuration or data that cannot be, a folder that is in use.
    pub fn begin(config: &RunConfig, folder: &Path) -> Result<Self, TrainError> {
        let plan = Plan::new(config)?;
        if !is_fresh(folder)? {
            return Err(TrainError::file(
                folder,
                "is not empty; resume the run in it, or choose another folder",
            ));
        }
        let checkpoints = folder.join("checkpoints");
        fs::create_dir_all(&checkpoints).map_err(|e| TrainError::io(&checkpoints, &e))?;
        let lock = lock(folder)?;
        let mut config = config.clone();
        for path in [&mut config.data.train, &mut config.data.held] {
            *path = std::path::absolute(&*path).map_err(|e| TrainError::io(path, &e))?;
        }
        if let Some(tokenizer) = &config.data.tokenizer {
            let bytes = fs::read(tokenizer).map_err(|e| TrainError::io(tokenizer, &e))?;
            let found = blake3::hash(&bytes).to_hex().to_string();
            if found != plan.record.tokenizer_hash {
                return Err(TrainError::file(
                    tokenizer,
                    "is not the tokenizer that made the token files (its hash differs)",
                ));
            }
            files::write_whole(&folder.join("tokenizer.json"), |out| out.write_all(&bytes))?;
            config.data.tokenizer = Some(PathBuf::from("tokenizer.json"));
        }
        let params =
            plan.network
                .layout
                .initial(&plan.network.shape, &plan.network.position, config.seed);
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
        let trainer = Self::assemble(folder, config, plan, params, moments, lock);
        trainer.write_record()?;
        // Last: a folder with run.toml is a whole run.
        files::write_whole(&folder.join("run.toml"), |out| {
            out.write_all(text.as_bytes())
        })?;
        Ok(trainer)
    }

    /// Continues the run in `folder` from its newest whole checkpoint. Says through `observer` what it found.
    ///
    /// # Errors
    /// A folder without a run, data or configuration that changed, checkpoints that are all damaged.
    pub fn resume(folder: &Path, observer: &mut dyn Observer) -> Result<Self, TrainError> {
        let file = folder.join("run.toml");
        if !file.exists() {
            return Err(TrainError::file(
                folder,
                "holds no run (run.toml is missing); begin one with `snellen train RUN.toml --to FOLDER`",
            ));
        }
        let config = RunConfig::read(&file)?;
        let plan = Plan::new(&config)?;
        let lock = lock(folder)?;
        let path = folder.join("record.json");
        let text = fs::read(&path).map_err(|e| TrainError::io(&path, &e))?;
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
        let checkpoints = folder.join("checkpoints");
        let found = checkpoint::newest(&checkpoints, &plan.network.layout, &record.config_hash)?;
        let trainer = match found {
            Some((snapshot, warnings)) => {
                let step = snapshot.state.step;
                for warning in &warnings {
                    observer.note(&format!("warning: {warning}; falling back to step {step}"));
                }
                observer.note(&format!("resuming after step {step}"));
                let best = snapshot.state.best;
                let (params, moments) = (snapshot.params, snapshot.moments);
                let mut trainer = Self::assemble(folder, config, plan, params, moments, lock);
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
                    config.seed,
                );
                let moments = Moments::new(params.len());
                Self::assemble(folder, config, plan, params, moments, lock)
            }
        };
        Ok(trainer)
    }

    fn assemble(
        folder: &Path,
        config: RunConfig,
        plan: Plan,
        params: Vec<f32>,
        moments: Moments,
        lock: fs::File,
    ) -> Self {
        Self {
            folder: folder.to_owned(),
            config,
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

    /// Stage of a step (from 1), and how many steps of it came before.
    fn stage(&self, step: u64) -> (usize, Stage, u64) {
        let mut before = 0;
        for (index, stage) in self.stages.iter().enumerate() {
            if step <= before + stage.steps {
                return (index, *stage, step - before - 1);
            }
            before += stage.steps;
        }
        unreachable!("step {step} of {}", self.total)
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
                self.save()?;
            }
            if stop && step < self.total {
                return Ok(Ending::Stopped { step });
            }
        }
        if self.step < self.total {
            return Ok(Ending::Stopped { step: self.step });
        }
        self.finish()?;
        Ok(Ending::Finished)
    }

    /// Computes a step; `Err` says what was not finite, and then parameters are as before.
    fn one_step(
        &mut self,
        step: u64,
        gradient: &mut [f32],
        work: &mut Workspace,
    ) -> Result<Metric, String> {
        let schedule = &self.config.schedule;
        let (index, stage, within) = self.stage(step);
        let samples = self.samples(index, stage, within);
        let per_micro = samples.len().div_ceil(schedule.micro_batches);
        let mut counts = [0u64; 3];
        for sample in &samples {
            for group in &sample.groups {
                if let Some(at) = group_index(*group) {
                    counts[at] += 1;
                }
            }
        }
        gradient.fill(0.0);
        let mut sums = [0.0f64; 3];
        for (micro, samples) in samples.chunks(per_micro).enumerate() {
            let (mut ids, mut targets, mut weights) = (Vec::new(), Vec::new(), Vec::new());
            let (mut sequences, mut groups) = (Vec::new(), Vec::new());
            for sample in samples {
                let first = ids.len();
                ids.extend_from_slice(&sample.ids);
                targets.extend_from_slice(&sample.targets);
                groups.extend_from_slice(&sample.groups);
                let mut from = first;
                for &end in &sample.ends {
                    sequences.push((from, first + end));
                    from = first + end;
                }
            }
            // Normalised by the tokens of the whole step, not of this part.
            weights.extend(
                groups.iter().map(|group| {
                    group_index(*group).map_or(0.0, |at| 1.0 / counts[at].max(1) as f32)
                }),
            );
            let batch = Batch {
                ids: &ids,
                targets: &targets,
                weights: &weights,
                sequences: &sequences,
            };
            let key = rng::hash(&[self.config.seed, rng::name("dropout"), step, micro as u64]);
            let losses = self.network.step(&self.params, &batch, key, gradient, work);
            for (loss, group) in losses.iter().zip(&groups) {
                if let Some(at) = group_index(*group) {
                    sums[at] += f64::from(*loss);
                }
            }
        }
        let mean = |at: usize| (counts[at] > 0).then(|| sums[at] / counts[at] as f64);
        let loss: f64 = (0..3).filter_map(mean).sum();
        if !loss.is_finite() {
            return Err(format!("the loss is {loss}"));
        }
        let norm = global_norm(gradient);
        if !norm.is_finite() {
            return Err(format!("the norm of the gradient is {norm}"));
        }
        let optimiser = self.config.optimiser;
        let scale = if optimiser.clip > 0.0 && norm > optimiser.clip {
            optimiser.clip / norm
        } else {
            1.0
        };
        let lr = self.config.learning_rate(step, self.total);
        let table = &self.network.layout.params;
        optimiser.update(
            &mut self.params,
            gradient,
            &mut self.moments,
            table,
            step,
            lr,
            scale,
        );
        Ok(Metric::Step {
            step,
            length: stage.length as u64,
            tokens: step * self.config.schedule.tokens_per_step as u64,
            loss,
            text: mean(0).unwrap_or(0.0),
            passkey: mean(1),
            pair: mean(2),
            lr,
            gradient_norm: norm,
        })
    }

    /// The sequences of a step.
    fn samples(&self, index: usize, stage: Stage, within: u64) -> Vec<Sample> {
        let n = self.config.schedule.tokens_per_step / stage.length;
        let seed = rng::hash(&[self.config.seed, rng::name("order"), index as u64]);
        // Checked when the run was planned.
        let Ok(sampler) = Sampler::new(self.train.ids.len(), stage.length, seed, "") else {
            unreachable!("a stage longer than the data")
        };
        (0..n as u64)
            .map(|i| {
                let number = within * n as u64 + i;
                let start = sampler.start(number);
                let mut ids = Vec::with_capacity(stage.length + 1);
                self.train
                    .ids
                    .copy(start..start + stage.length + 1, &mut ids);
                let mut targets = ids[1..].to_vec();
                ids.truncate(stage.length);
                let mut groups = vec![Group::Text; stage.length];
                if let Some(task) = &self.task {
                    let mut stream = Stream::of(&[seed, rng::name("recall"), number]);
                    task.lay(&mut ids, &mut targets, &mut groups, &mut stream);
                }
                let mut ends = Vec::new();
                if self.config.data.document_mask {
                    let from = self.train.ends.partition_point(|e| *e <= start as u64);
                    let inside = self.train.ends[from..]
                        .iter()
                        .map(|e| *e as usize - start)
                        .take_while(|e| *e < stage.length);
                    ends.extend(inside);
                }
                ends.push(stage.length);
                Sample {
                    ids,
                    targets,
                    groups,
                    ends,
                }
            })
            .collect()
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

    fn finish(&mut self) -> Result<(), TrainError> {
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
        if written.is_err() && matches!(self.network.position, crate::shape::Position::Fixed { .. })
        {
            written?;
        }
        self.record.best = self.best;
        self.record.finished = true;
        self.write_record()
    }
}

/// One sequence of a step.
struct Sample {
    ids: Vec<u32>,
    targets: Vec<u32>,
    groups: Vec<Group>,
    /// Ends of the parts attention stays in, the last one the sequence's own.
    ends: Vec<usize>,
}

fn group_index(group: Group) -> Option<usize> {
    match group {
        Group::None => None,
        Group::Text => Some(0),
        Group::Passkey => Some(1),
        Group::Pair => Some(2),
    }
}
