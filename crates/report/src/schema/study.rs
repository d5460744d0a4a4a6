//! `snellen study`: one trial as it is kept, and many as they are reported.

use super::{Envelope, Outcome, Skipped, Tool};
use crate::number::Distance;
use serde::{Deserialize, Serialize};

/// `trial.json`: the complete record of a trial. Everything but `cost` is decided by configuration, data and seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyTrial {
    /// [`super::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Name, `VARIANT-sSEED`.
    pub trial: String,
    /// Its variant.
    pub variant: String,
    /// Its seed.
    pub seed: u64,
    /// What became of it.
    pub status: TrialStatus,
    /// Why it failed, in one line.
    pub reason: Option<String>,
    /// Hash of the run: configuration, seed and data.
    pub run_hash: String,
    /// Hash of what is measured.
    pub evaluation_hash: String,
    /// The program that made it.
    pub tool: Tool,
    /// Everything found; `null` where it failed.
    pub result: Option<StudyResult>,
    /// What it took, which depends on the machine.
    pub cost: StudyCost,
}

/// What became of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrialStatus {
    /// Trained and measured.
    Done,
    /// A loss or gradient that is not finite: it would fail again.
    Diverged,
    /// Its process failed or was killed: it may be tried again.
    Crashed,
}

impl TrialStatus {
    /// `done`, `diverged` or `crashed`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Diverged => "diverged",
            Self::Crashed => "crashed",
        }
    }
}

/// What a trial found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyResult {
    /// The run's configuration, without the places of its files.
    pub configuration: serde_json::Value,
    /// What was measured, every list filled in.
    pub evaluation: serde_json::Value,
    /// Hash of the training tokens' file.
    pub train_hash: String,
    /// Hash of the held-out tokens' file.
    pub held_hash: String,
    /// Parameters of the model.
    pub parameters: u64,
    /// Vocabulary, tokens of recall tasks included.
    pub vocab: u64,
    /// Steps trained.
    pub steps: u64,
    /// Tokens trained on.
    pub tokens: u64,
    /// Length of the longest training sequences, tokens.
    pub trained_length: u64,
    /// Slope of every head, nats per token, where there are slopes.
    pub slopes: Vec<f64>,
    /// Loss and recall by length, of the model as it was trained (`change` is `null`) and of the model changed.
    pub measured: Vec<StudyMeasured>,
    /// Blind pairs of every head, by plan and length.
    pub blind: Vec<StudyBlind>,
    /// Content margins of every head.
    pub margins: Vec<StudyMargin>,
    /// Predicted and measured horizon, by task.
    pub horizons: Vec<StudyHorizon>,
    /// What could not be measured, and why.
    pub skipped: Vec<Skipped>,
}

/// Loss and recall at one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyMeasured {
    /// What was changed of the finished model; `null` for nothing.
    pub change: Option<String>,
    /// Tokens of a sequence.
    pub length: u64,
    /// Mean loss on held-out text, nats per token.
    pub loss: Option<f64>,
    /// Tokens predicted for it.
    pub loss_tokens: u64,
    /// Sequences of the recall tasks.
    pub sequences: u64,
    /// Recall by task and distance.
    pub recall: Vec<StudyCell>,
}

/// Recall at distances `from .. to`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyCell {
    /// `passkey`, `pair` or `needle`.
    pub task: String,
    /// Smallest distance, tokens.
    pub from: u64,
    /// Distance after the largest.
    pub to: u64,
    /// Questions asked.
    pub questions: u64,
    /// Answered right: the right token is the likeliest of its task's answers.
    pub right: u64,
    /// Mean loss of the right answer over the whole vocabulary, nats.
    pub loss: Option<f64>,
}

/// Blind pairs of one head under one plan at one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyBlind {
    /// The plan.
    pub plan: String,
    /// Tokens of a sequence.
    pub length: u64,
    /// Layer.
    pub layer: u64,
    /// Head.
    pub head: u64,
    /// Causal pairs.
    pub pairs: u64,
    /// Pairs whose weight is exactly zero.
    pub blind_pairs: u64,
    /// Smallest distance of a blind pair.
    pub first_blind_distance: Option<u64>,
}

/// What content offers a question's answer in one head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyMargin {
    /// `passkey`, `pair` or `needle`.
    pub task: String,
    /// Layer.
    pub layer: u64,
    /// Head.
    pub head: u64,
    /// Slope, nats per token.
    pub slope: Option<f64>,
    /// Questions.
    pub questions: u64,
    /// Mean over questions of the answer's score without bias less the best such score among the last 20 keys, nats.
    pub margin: Option<f64>,
    /// Its standard deviation over questions.
    pub deviation: Option<f64>,
    /// Mean weight on the answer where it is nearer than a quarter of the length.
    pub near_weight: Option<f64>,
    /// First distance at which the bias outweighs the margin, tokens; `null` where it never does.
    pub predicted_horizon: Option<Distance>,
}

/// Predicted and measured horizon of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StudyHorizon {
    /// `passkey`, `pair` or `needle`.
    pub task: String,
    /// The heads that read answers (near weight of at least 0.1), as `layer/head`.
    pub readers: Vec<String>,
    /// Largest predicted horizon of these heads, tokens; `null` where there are none or no bias ever outweighs a margin.
    pub predicted: Option<Distance>,
    /// Whether a reading head's bias never outweighs its margin.
    pub predicted_unbounded: bool,
    /// Upper edge of the last distance bin up to which recall stays at 0.5 or more, tokens; 0 where the first bin is below.
    pub measured: Option<u64>,
    /// Whether recall was still at 0.5 or more in the last bin, so that `measured` is a lower bound.
    pub measured_unbounded: bool,
    /// Length it was measured at.
    pub length: u64,
}

/// What a trial took. Depends on the machine and on what else ran there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyCost {
    /// Seconds of all training steps.
    pub training_seconds: Option<f64>,
    /// CPU seconds of training; `null` where it was done in several sittings or the system does not say.
    pub training_cpu_seconds: Option<f64>,
    /// Seconds of measuring.
    pub evaluation_seconds: Option<f64>,
    /// Threads.
    pub threads: u64,
    /// Processes that worked on it.
    pub sittings: u64,
}

/// A study: everything found so far, over seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StudyReport {
    /// Common head of every document.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// What the study is about, in its file's words.
    pub title: Option<String>,
    /// The variant that others are compared with.
    pub baseline: Option<String>,
    /// Every trial of the study, run or not.
    pub trials: Vec<StudyTrialLine>,
    /// Quantities over seeds.
    pub tables: Vec<StudyTable>,
    /// Predicted and measured horizons, one line a trial and task.
    pub horizons: Vec<StudyHorizonLine>,
    /// Common tail of every document.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// One trial of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StudyTrialLine {
    /// Name.
    pub trial: String,
    /// Variant.
    pub variant: String,
    /// Seed.
    pub seed: u64,
    /// `done`, `diverged`, `crashed`, `not run`, or `left out` where the record is of another study than the file says.
    pub status: String,
    /// Why it failed, or what differs.
    pub reason: Option<String>,
    /// Hash of its run.
    pub run_hash: Option<String>,
}

/// Quantities that belong together. The correction for many comparisons is over those of one table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StudyTable {
    /// Short name, for programs.
    pub name: String,
    /// What it is, in words.
    pub title: String,
    /// Comparisons with a p value.
    pub comparisons: u64,
    /// By quantity, then variant, then change.
    pub rows: Vec<StudyRow>,
}

/// One quantity of one variant over its seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StudyRow {
    /// What is averaged.
    pub quantity: String,
    /// The variant.
    pub variant: String,
    /// What was changed of its finished models; `null` for nothing.
    pub change: Option<String>,
    /// Seeds.
    pub n: u64,
    /// Mean over seeds.
    pub mean: f64,
    /// Sample deviation over seeds; `null` of one.
    pub deviation: Option<f64>,
    /// Lower end of the 95 % interval of the mean, by Student's t over seeds; `null` of one seed.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The trials it is made of.
    pub trials: Vec<String>,
    /// Their values, in the same order.
    pub values: Vec<f64>,
    /// Against what it is compared with; `null` for that itself, and where nothing is.
    pub difference: Option<StudyDifference>,
}

/// A paired difference over common seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StudyDifference {
    /// What was subtracted: the baseline's name, or `unchanged`.
    pub from: String,
    /// Seeds that both have.
    pub n: u64,
    /// Mean difference.
    pub mean: f64,
    /// Lower end of its 95 % interval; `null` of one seed.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Two-sided p value of the paired t test; `null` of one seed, and where all differences are equal.
    pub p: Option<f64>,
    /// The same, corrected for the comparisons of the table (Holm).
    pub p_corrected: Option<f64>,
    /// The other trials, in the order of the seeds.
    pub trials: Vec<String>,
}

/// Horizons of one trial and task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StudyHorizonLine {
    /// The trial.
    pub trial: String,
    /// Its variant.
    pub variant: String,
    /// What was found.
    #[serde(flatten)]
    pub horizon: StudyHorizon,
}
