//! A run as a file: everything that decides its result.

use std::path::{Path, PathBuf};

use numerics::{Family, PrecisionPlan};
use serde::{Deserialize, Serialize};

use crate::attention::AttentionRule;
use crate::data::recall::RecallConfig;
use crate::error::TrainError;
use crate::optimiser::AdamW;
use crate::params::Init;
use crate::shape::{MlpKind, ModelShape, NormKind, PositionConfig};

/// A run file. Paths in it are relative to the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RunConfig {
    /// Version of this format, 1.
    pub snellen_run: u64,
    /// Seed of everything random.
    #[serde(default)]
    pub seed: u64,
    /// Token files.
    pub data: DataConfig,
    /// The decoder.
    #[serde(default)]
    pub model: ModelConfig,
    /// How it knows positions.
    #[serde(default)]
    pub position: PositionConfig,
    /// Which weights are zero.
    #[serde(default)]
    pub attention: AttentionConfig,
    /// Recall tasks laid into the text, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall: Option<RecallConfig>,
    /// Lengths, steps, learning rate.
    pub schedule: ScheduleConfig,
    /// AdamW.
    #[serde(default)]
    pub optimiser: AdamW,
    /// When to look, and when to save.
    #[serde(default)]
    pub watch: WatchConfig,
}

/// `[data]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DataConfig {
    /// Token file to train on.
    pub train: PathBuf,
    /// Token file that is never trained on.
    pub held: PathBuf,
    /// Tokenizer of both, copied into the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// Attention stays inside a document, and positions start again with it.
    #[serde(default)]
    pub document_mask: bool,
}

/// `[model]`: a preset, and what differs from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ModelConfig {
    /// `nano`, `small`, `medium` or `148m`; `nano` when nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Number of blocks.
    pub layers: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Channels of the residual stream.
    pub width: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Attention heads.
    pub heads: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Channels of the feed-forward layer.
    pub hidden: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Longest sequence.
    pub context: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Norms.
    pub norm: Option<NormKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Feed-forward layer.
    pub mlp: Option<MlpKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Output head is the embedding.
    pub tied: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Linear layers and norms have biases.
    pub bias: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Dropout.
    pub dropout: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Deviation of the first values; GPT-2's when nothing is said.
    pub init: Option<Init>,
}

/// Names and sizes of the presets: layers, width, heads, hidden, context.
///
/// `148m` has 148M parameters within 2 % at a vocabulary of 50,304. The paper whose setting it follows (arXiv 2608.03994) gives the
/// number of parameters only; the shape is our choice.
pub const PRESETS: [(&str, [usize; 5]); 4] = [
    ("nano", [4, 128, 8, 512, 256]),
    ("small", [6, 192, 8, 768, 512]),
    ("medium", [8, 320, 8, 1280, 1024]),
    ("148m", [16, 768, 12, 2880, 2048]),
];

/// `[attention]`: at most one of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AttentionConfig {
    /// A precision plan `NAME[:DTYPE]`, emulated with all its roundings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// f32, and zero where the gap to the row's maximum is above this many nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero_beyond: Option<f64>,
}

/// `[schedule]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ScheduleConfig {
    /// `LENGTH:STEPS`, comma separated: the length curriculum. Or one length for all steps: `256:1000`.
    pub stages: String,
    /// Tokens of a step; a stage of length `n` has `tokens-per-step / n` sequences.
    pub tokens_per_step: usize,
    /// Parts a step's sequences are split into, to save memory; the gradient is that of the whole step.
    #[serde(default = "one")]
    pub micro_batches: usize,
    /// Largest learning rate.
    pub lr: f64,
    /// Share of it at the end.
    #[serde(default = "tenth")]
    pub lr_end: f64,
    /// Steps of linear warm-up.
    #[serde(default)]
    pub warmup: u64,
    /// Course after the warm-up.
    #[serde(default)]
    pub shape: Shape,
    /// `wsd`: share of all steps that the final decay takes.
    #[serde(default = "fifth")]
    pub decay_share: f64,
}

fn one() -> usize {
    1
}

fn tenth() -> f64 {
    0.1
}

fn fifth() -> f64 {
    0.2
}

/// Course of the learning rate after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Half a cosine down to the end.
    #[default]
    Cosine,
    /// Constant, then a linear decay (warm-up, stable, decay).
    Wsd,
    /// Constant.
    Constant,
}

/// `[watch]`: 0 means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WatchConfig {
    /// Steps between losses on held-out text.
    pub eval_every: u64,
    /// Held-out tokens of one evaluation.
    pub eval_tokens: usize,
    /// Steps between looks at every head.
    pub heads_every: u64,
    /// Steps between checkpoints.
    pub save_every: u64,
    /// Newest checkpoints kept; the best one is kept too.
    pub keep_last: usize,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            eval_every: 100,
            eval_tokens: 16_384,
            heads_every: 0,
            save_every: 100,
            keep_last: 2,
        }
    }
}

/// One stage of the curriculum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Tokens of a sequence.
    pub length: usize,
    /// Steps.
    pub steps: u64,
}

/// TOML of a run or study file; the error says the line, in one line.
pub(crate) fn from_toml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, TrainError> {
    toml::from_str(text).map_err(|e| {
        let line = e
            .span()
            .map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let message = e.message().lines().collect::<Vec<_>>().join("; ");
        TrainError::config(format!("line {line}: {message}"))
    })
}

impl RunConfig {
    /// Reads a run file.
    ///
    /// # Errors
    /// One line with the file, the key, and what was expected.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let text = checkpoint::files::read_to_string(path).map_err(|e| TrainError::io(path, &e))?;
        let mut config = Self::parse(&text).map_err(|e| TrainError::file(path, e))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for file in [&mut config.data.train, &mut config.data.held] {
            *file = folder.join(&*file);
        }
        if let Some(file) = &mut config.data.tokenizer {
            *file = folder.join(&*file);
        }
        Ok(config)
    }

    /// Reads the text of a run file.
    ///
    /// # Errors
    /// As [`RunConfig::read`], without the file.
    pub fn parse(text: &str) -> Result<Self, TrainError> {
        let config: Self = from_toml(text)?;
        if config.snellen_run != 1 {
            return Err(TrainError::config(format!(
                "snellen-run: expected 1, the version of the format that this program knows, found {}",
                config.snellen_run
            )));
        }
        Ok(config)
    }

    /// The decoder for a vocabulary.
    ///
    /// # Errors
    /// An unknown preset, sizes that do not agree.
    pub fn shape(&self, vocab: usize) -> Result<ModelShape, TrainError> {
        let m = &self.model;
        let preset = m.preset.as_deref().unwrap_or("nano");
        let Some((_, [layers, width, heads, hidden, context])) =
            PRESETS.iter().find(|(name, _)| *name == preset)
        else {
            let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
            return Err(TrainError::config(format!(
                "model.preset = {preset:?} is unknown; known: {}",
                names.join(", ")
            )));
        };
        let stages = self.stages()?;
        let longest = stages.iter().map(|s| s.length).max().unwrap_or(0);
        let width_own = m.width.unwrap_or(*width);
        let shape = ModelShape {
            layers: m.layers.unwrap_or(*layers),
            width: width_own,
            heads: m.heads.unwrap_or(*heads),
            // A width of one's own brings its own feed-forward layer.
            hidden: m.hidden.unwrap_or(if m.width.is_some() {
                4 * width_own
            } else {
                *hidden
            }),
            vocab,
            context: m.context.unwrap_or(longest.max(if m.preset.is_some() {
                *context
            } else {
                0
            })),
            norm: m.norm.unwrap_or(NormKind::LayerNorm),
            mlp: m.mlp.unwrap_or(MlpKind::Gelu),
            tied: m.tied.unwrap_or(true),
            bias: m.bias.unwrap_or(false),
            dropout: m.dropout.unwrap_or(0.0),
        };
        shape.validate()?;
        if longest > shape.context {
            return Err(TrainError::config(format!(
                "schedule.stages has sequences of {longest} tokens, model.context is {}",
                shape.context
            )));
        }
        Ok(shape)
    }

    /// The stages of the curriculum.
    ///
    /// # Errors
    /// What is not `LENGTH:STEPS`, or does not divide into the tokens of a step.
    pub fn stages(&self) -> Result<Vec<Stage>, TrainError> {
        let s = &self.schedule;
        let stages: Vec<Stage> = s
            .stages
            .split(',')
            .map(|part| {
                let (length, steps) = part.trim().split_once(':')?;
                let stage = Stage {
                    length: length.trim().parse().ok()?,
                    steps: steps.trim().parse().ok()?,
                };
                // Steps times tokens must fit 64 bits, with room.
                (stage.length > 0 && (1..=1 << 32).contains(&stage.steps)).then_some(stage)
            })
            .collect::<Option<_>>()
            .ok_or_else(|| {
                TrainError::config(format!(
                    "schedule.stages = {:?} is not a list of LENGTH:STEPS, such as 64:800, 256:400",
                    s.stages
                ))
            })?;
        if s.tokens_per_step > 1 << 24 || stages.len() > 1000 {
            return Err(TrainError::config(format!(
                "schedule: {} stages of {} tokens a step; at most 1000 stages of 16777216 tokens",
                stages.len(),
                s.tokens_per_step
            )));
        }
        for stage in &stages {
            if stage.length > s.tokens_per_step || !s.tokens_per_step.is_multiple_of(stage.length) {
                return Err(TrainError::config(format!(
                    "schedule.tokens-per-step = {} is no multiple of the length {}",
                    s.tokens_per_step, stage.length
                )));
            }
            let sequences = s.tokens_per_step / stage.length;
            if s.micro_batches == 0 || s.micro_batches > sequences {
                return Err(TrainError::config(format!(
                    "schedule.micro-batches = {} for {sequences} sequences of {} tokens a step",
                    s.micro_batches, stage.length
                )));
            }
        }
        Ok(stages)
    }

    /// Which weights are zero.
    ///
    /// # Errors
    /// Both ways said at once, an unknown plan, a threshold that is not positive, a plan for a decoder without a fixed bias.
    pub fn rule(&self) -> Result<AttentionRule, TrainError> {
        match (&self.attention.plan, self.attention.zero_beyond) {
            (None, None) => Ok(AttentionRule::Exact),
            (Some(_), Some(_)) => Err(TrainError::config(
                "attention: plan and zero-beyond exclude one another".to_owned(),
            )),
            (None, Some(nats)) if nats > 0.0 => Ok(AttentionRule::ZeroBeyond(nats)),
            (None, Some(nats)) => Err(TrainError::config(format!(
                "attention.zero-beyond = {nats} is not a gap above 0 nats"
            ))),
            (Some(plan), None) => {
                let plan = PrecisionPlan::parse(plan, Family::Custom)
                    .map_err(|e| TrainError::config(format!("attention.plan: {e}")))?;
                Ok(AttentionRule::Plan(Box::new(plan)))
            }
        }
    }

    /// Learning rate of a step (from 1) of `total`.
    pub fn learning_rate(&self, step: u64, total: u64) -> f64 {
        let s = &self.schedule;
        if step <= s.warmup {
            return s.lr * step as f64 / s.warmup as f64;
        }
        let end = s.lr * s.lr_end;
        // 0 at the first step after the warm-up, 1 at the last one.
        let along = |from: u64| {
            let span = total.saturating_sub(from).max(1);
            (step.saturating_sub(from)) as f64 / span as f64
        };
        match s.shape {
            Shape::Constant => s.lr,
            Shape::Cosine => {
                end + (s.lr - end) * 0.5 * (1.0 + (std::f64::consts::PI * along(s.warmup)).cos())
            }
            Shape::Wsd => {
                let from = total - ((total as f64 * s.decay_share) as u64).min(total);
                if step <= from {
                    s.lr
                } else {
                    s.lr + (end - s.lr) * along(from.max(s.warmup))
                }
            }
        }
    }

    /// Checks everything that needs no data.
    ///
    /// # Errors
    /// The first thing that cannot be.
    pub fn validate(&self) -> Result<(), TrainError> {
        self.stages()?;
        self.rule()?;
        let s = &self.schedule;
        let positive = |key: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(TrainError::config(format!(
                    "{key} = {value} is not a number above 0"
                )))
            }
        };
        positive("schedule.lr", s.lr)?;
        if !(0.0..=1.0).contains(&s.lr_end) || !(0.0..=1.0).contains(&s.decay_share) {
            return Err(TrainError::config(
                "schedule.lr-end and schedule.decay-share are shares between 0 and 1".to_owned(),
            ));
        }
        let o = &self.optimiser;
        positive("optimiser.eps", o.eps)?;
        for (key, value) in [("beta1", o.beta1), ("beta2", o.beta2)] {
            if !(0.0..1.0).contains(&value) {
                return Err(TrainError::config(format!(
                    "optimiser.{key} = {value} is not at least 0 and below 1"
                )));
            }
        }
        for (key, value) in [("weight-decay", o.weight_decay), ("clip", o.clip)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(TrainError::config(format!(
                    "optimiser.{key} = {value} is not a number of 0 or more"
                )));
            }
        }
        if self.watch.keep_last == 0 {
            return Err(TrainError::config(
                "watch.keep-last = 0 would keep no checkpoint".to_owned(),
            ));
        }
        Ok(())
    }

    /// The configuration without the places of its files, which decide nothing.
    #[must_use]
    pub fn without_places(&self) -> Self {
        let mut config = self.clone();
        config.data.train = PathBuf::new();
        config.data.held = PathBuf::new();
        config.data.tokenizer = None;
        config
    }

    /// What decides the result, as text: two runs with the same text and the same token files give the same bytes.
    pub fn canonical(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// Hash of everything that decides a run, with those of its token files. Where files lie decides nothing; what is in them does.
    pub fn identity(&self, train_hash: &str, held_hash: &str) -> String {
        let text = format!(
            "{}\n{train_hash}\n{held_hash}",
            self.without_places().canonical()
        );
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
