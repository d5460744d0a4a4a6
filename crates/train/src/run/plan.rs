//! What a configuration and its data decide before the first step, and what a run says of itself.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::evaluate;
use crate::config::{RunConfig, Stage};
use crate::data::recall::RecallTask;
use crate::data::sampler::Sampler;
use crate::data::shard::{self, Tokens};
use crate::error::TrainError;
use crate::network::{Network, Workspace};
use crate::shape::Position;

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

/// What a configuration and its data decide together, everything checked: a run before its first step.
#[derive(Debug)]
pub struct RunPlan {
    pub(super) config: RunConfig,
    pub(super) network: Network,
    pub(super) stages: Vec<Stage>,
    pub(super) train: Tokens,
    pub(super) held: Tokens,
    pub(super) task: Option<RecallTask>,
    pub(super) record: RunRecord,
}

impl RunPlan {
    /// The plan of the run that was begun in `folder`.
    ///
    /// # Errors
    /// A folder without a run; as [`RunPlan::new`].
    pub fn of_folder(folder: &Path) -> Result<Self, TrainError> {
        let file = folder.join("run.toml");
        if !file.exists() {
            return Err(TrainError::file(
                folder,
                "holds no run (run.toml is missing); begin one with `snellen train RUN.toml --to FOLDER`",
            ));
        }
        Self::new(RunConfig::read(&file)?)
    }

    /// Reads the token files and checks them with the configuration.
    ///
    /// # Errors
    /// The first thing that cannot be.
    pub fn new(config: RunConfig) -> Result<Self, TrainError> {
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
        let task = RecallTask::of_run(&config, text_vocab, &a.tokenizer_hash)?;
        let vocab = task.as_ref().map_or(text_vocab, RecallTask::vocab);
        let shape = config.shape(vocab)?;
        let position = config.position.resolve(shape.heads, shape.context)?;
        let rule = config.rule()?;
        if matches!(position, Position::Rope { .. }) && !shape.head_width().is_multiple_of(2) {
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
        let record = RunRecord {
            version: 1,
            snellen: env!("CARGO_PKG_VERSION").to_owned(),
            config_hash: config.identity(&train.hash, &held.hash),
            train_hash: train.hash.clone(),
            held_hash: held.hash.clone(),
            tokenizer_hash: a.tokenizer_hash.clone(),
            vocab: vocab as u64,
            parameters: network.layout.len() as u64,
            steps,
            tokens: steps * config.schedule.tokens_per_step as u64,
            attention: network.rule.name(),
            slopes: match &network.position {
                Position::Fixed { slopes, .. } | Position::KerpleLog { slopes } => slopes.clone(),
                _ => Vec::new(),
            },
            document_mask: config.data.document_mask,
            best: None,
            finished: false,
        };
        Ok(Self {
            config,
            network,
            stages,
            train,
            held,
            task,
            record,
        })
    }

    /// What is known of the run.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// Number of held-out tokens.
    pub fn held_tokens(&self) -> usize {
        self.held.ids.len()
    }

    /// Shortest sequence in which every recall task can be asked; `None` without recall tasks.
    pub fn recall_length_min(&self) -> Option<usize> {
        self.task.as_ref().map(RecallTask::length_min)
    }

    /// What is lawful and may not be meant: one line each, with the key.
    pub fn remarks(&self) -> Vec<String> {
        let held = self.held.ids.len();
        let name = self.config.data.held.display();
        let asked = self.config.watch.eval_tokens;
        if held < 2 {
            vec![format!(
                "data.held: {name} holds {held} tokens, so nothing is evaluated and no best step is known; encode with a larger --held-permille"
            )]
        } else if self.train.hash == self.held.hash {
            vec![format!(
                "data.held: {name} is the training text, so its loss says nothing about other text"
            )]
        } else if asked > held {
            vec![format!(
                "watch.eval-tokens: {asked} asked for, {name} holds {held}; every evaluation takes what there is"
            )]
        } else {
            Vec::new()
        }
    }

    /// Hash that the same configuration would have with another seed.
    pub fn hash_with_seed(&self, seed: u64) -> String {
        let mut config = self.config.clone();
        config.seed = seed;
        config.identity(&self.train.hash, &self.held.hash)
    }

    /// The configuration.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// What it will take.
    pub fn estimate(&self) -> Estimate {
        let schedule = &self.config.schedule;
        let shape = &self.network.shape;
        let parameters = self.network.layout.len() as u64;
        let step = schedule.tokens_per_step.div_ceil(schedule.micro_batches);
        // held-out text is looked at in the same buffers, and a small step has fewer rows
        let looks = self
            .stages
            .iter()
            .map(|s| evaluate::rows_of_a_call(s.length));
        let rows = looks.max().unwrap_or(0).max(step);
        let operations: f64 = self
            .stages
            .iter()
            .map(|s| {
                let tokens = s.steps as f64 * schedule.tokens_per_step as f64;
                let head = (shape.vocab * shape.width) as f64;
                let tied = if shape.tied { 0.0 } else { -head };
                let products = 6.0 * (parameters as f64 + tied);
                // Seven products over the causal half: two forward, five backward.
                let attention = 7.0 * (shape.layers * shape.width * s.length) as f64;
                tokens * (products + attention)
            })
            .sum();
        Estimate {
            parameters,
            steps: self.record.steps,
            tokens: self.record.tokens,
            memory_bytes: 16 * parameters
                + Workspace::bytes(shape, rows) as u64
                + (self.train.ids.len() + self.held.ids.len()) as u64
                    * u64::from(self.train.description.width / 8),
            operations,
        }
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
