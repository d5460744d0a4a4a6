//! `snellen probe`: what a model finds in a long text, by length and depth.

use super::{Envelope, Outcome};
use serde::{Deserialize, Serialize};

/// Results over a grid of lengths and depths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeReport {
    /// Common head of every document.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// Everything the results depend on.
    pub settings: ProbeSettings,
    /// BLAKE3 hash of `settings` as compact JSON.
    pub configuration: String,
    /// The whole grid.
    pub all: ProbeArea,
    /// The cells within the trained length; `null` where that is not known or there are none.
    pub inside_trained_length: Option<ProbeArea>,
    /// The cells beyond the trained length.
    pub beyond_trained_length: Option<ProbeArea>,
    /// One entry a cell, by length, then depth.
    pub cells: Vec<ProbeCell>,
    /// Whether the text form lists the misses; no part of the result.
    #[serde(skip)]
    pub show_failures: bool,
    /// Common tail of every document.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Everything the results of a probe depend on. Two runs with equal settings give equal results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeSettings {
    /// Name of the task.
    pub task: String,
    /// Version of its texts.
    pub task_version: u32,
    /// BLAKE3 hash of the model.
    pub model_hash: String,
    /// How the ids were made: a tokenizer file or `bytes`.
    pub tokenizer: String,
    /// BLAKE3 hash of the tokenizer file.
    pub tokenizer_hash: Option<String>,
    /// BLAKE3 hash of the text that fills the prompts; `null` where the task brings its own.
    pub haystack_hash: Option<String>,
    /// Id put before the prompt; `null` for none.
    pub prefix_token: Option<u32>,
    /// Tokens of prompt and answer.
    pub lengths: Vec<u64>,
    /// Depths asked for, 0 (first) to 1 (last).
    pub depths: Vec<f64>,
    /// Samples a cell.
    pub samples: u64,
    /// Seed of the keys.
    pub seed: u64,
    /// Changes of the bias, and plans, that cells with misses were tried under.
    pub what_if: Vec<String>,
    /// Plans under which the heads' sight of the fact was computed.
    #[serde(default)]
    pub plans: Vec<String>,
    /// Facts of a prompt.
    #[serde(default = "one")]
    pub needles: u64,
    /// Whether the sentences of the text were put in the order that the seed draws.
    #[serde(default)]
    pub shuffled: bool,
    /// Whether the facts were left out.
    #[serde(default)]
    pub control: bool,
}

fn one() -> u64 {
    1
}

/// Hits of some samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeScore {
    /// Samples.
    pub samples: u64,
    /// Samples whose answer was right.
    pub hits: u64,
    /// `hits / samples`.
    pub accuracy: Option<f64>,
    /// Lower end of the 95 % Wilson interval of `accuracy`.
    pub accuracy_low: Option<f64>,
    /// Upper end.
    pub accuracy_high: Option<f64>,
    /// Mean log-probability of the right answer, nats.
    pub log_probability: Option<f64>,
    /// Its standard error.
    pub log_probability_standard_error: Option<f64>,
}

/// A part of the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeArea {
    /// Cells.
    pub cells: u64,
    /// Area under accuracy over depth and the logarithm of the length, as a share of the most possible.
    pub area_under_accuracy: Option<f64>,
    /// All samples of these cells together.
    #[serde(flatten)]
    pub score: ProbeScore,
}

/// One cell; also a line of the file that `--results` appends to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeCell {
    /// Tokens of prompt and answer, asked for.
    pub length: u64,
    /// Depth asked for.
    pub depth: f64,
    /// Share of the filler that lies before the fact; `null` where there is no filler.
    pub true_depth: Option<f64>,
    /// Its samples together.
    #[serde(flatten)]
    pub score: ProbeScore,
    /// The cell under each change of the bias, and plan; empty for a cell without misses.
    pub what_if: Vec<ProbeWhatIf>,
    /// What the misses are due to: `tests` of every change whose 95 % interval of accuracy lies above the cell's own.
    #[serde(default)]
    pub causes: Vec<String>,
    /// The first ids of the first sample's prompt, ten at most: whether a begin-of-text is there, and how often.
    #[serde(default)]
    pub first_ids: Vec<u32>,
    /// What the heads saw of the fact, one entry a plan; empty where nothing was watched, and in a control.
    #[serde(default)]
    pub witness: Vec<ProbeWitness>,
    /// One entry a sample.
    pub results: Vec<ProbeSample>,
}

/// Which heads had the fact within sight, from the last token of the prompt, under one plan. A head counts by its best sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeWitness {
    /// Key of the plan.
    pub plan: String,
    /// Heads of the model.
    pub heads: u64,
    /// Heads with a weight on the fact above half an ulp of 1 in the plan's output format.
    pub seen: u64,
    /// Heads whose largest weight on it is not zero, but no larger than that.
    pub sub_ulp: u64,
    /// Heads whose every weight on it is exactly zero.
    pub blind: u64,
    /// One entry a head, by layer, then head.
    pub by_head: Vec<ProbeHeadSight>,
}

/// What one head saw of the fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeHeadSight {
    /// Layer.
    pub layer: u64,
    /// Head in its layer.
    pub head: u64,
    /// Largest weight on a token of the fact, as a share of the row's, over all samples; `null` where it is not finite.
    pub weight: Option<f64>,
    /// Distance, tokens, to the token that has it; to the nearest token of the fact where all weights are zero.
    pub distance: u64,
    /// `seen`, `sub-ulp` or `blind`.
    pub sight: String,
    /// Samples in which it was seen.
    pub samples_seen: u64,
}

/// A cell under another bias.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeWhatIf {
    /// The change.
    pub change: String,
    /// What it tests as the cause of the misses: `precision`, `bias form`, `slope`, `trained length` or `bias`.
    #[serde(default)]
    pub tests: String,
    /// The same samples under it.
    #[serde(flatten)]
    pub score: ProbeScore,
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeSample {
    /// The values to be found, with commas between them.
    pub key: String,
    /// Whether the answer gives all of them.
    pub hit: bool,
    /// How many of them it gives.
    #[serde(default)]
    pub values_right: u64,
    /// How many there are.
    #[serde(default = "one")]
    pub values_asked: u64,
    /// The greedy answer as it came.
    pub answer: String,
    /// `ln p` of the right answer, nats; `null` where it is not finite.
    pub log_probability: Option<f64>,
    /// Tokens of the right answer.
    pub answer_tokens: u64,
    /// Tokens that were likelier than the right answer's first.
    pub first_rank: u64,
    /// Most tokens that were likelier than one of the right answer's, given those before it.
    pub largest_rank: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Index of the first token of the fact at the depth of the cell.
    pub needle_at: u64,
    /// Tokens of that fact; 0 in a control.
    pub needle_tokens: u64,
    /// All facts, that one first.
    #[serde(default)]
    pub needles: Vec<ProbeNeedle>,
    /// BLAKE3 hash of the prompt's ids, as little-endian `u32`.
    #[serde(default)]
    pub prompt_hash: String,
}

/// A fact in a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeNeedle {
    /// Its value.
    pub value: String,
    /// Index of its first token.
    pub at: u64,
    /// Its tokens.
    pub tokens: u64,
    /// Whether its value is asked for.
    pub asked: bool,
}

/// One sample with its place: a line of the file that `--items` writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeItemRecord {
    /// Tokens of prompt and answer.
    pub length: u64,
    /// Depth asked for.
    pub depth: f64,
    /// Index in its cell, from 0.
    pub sample: u64,
    /// What became of it.
    #[serde(flatten)]
    pub result: ProbeSample,
}

/// The prompts of a grid, built and not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbePromptsReport {
    /// Common head of every document.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// Everything the prompts depend on, and what a run would depend on besides.
    pub settings: ProbeSettings,
    /// BLAKE3 hash of `settings` as compact JSON.
    pub configuration: String,
    /// Tokens that a run would give to the model, the beginnings that prompts share counted once, the answers not counted.
    pub tokens_to_run: u64,
    /// One entry a cell, by length, then depth.
    pub cells: Vec<ProbePromptCell>,
    /// Common tail of every document.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The prompts of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbePromptCell {
    /// Tokens of prompt and answer, asked for.
    pub length: u64,
    /// Depth asked for.
    pub depth: f64,
    /// Share of the filler that lies before the fact; `null` where there is no filler.
    pub true_depth: Option<f64>,
    /// Tokens of the beginning that all samples share.
    pub shared_tokens: u64,
    /// Tokens kept free for an answer.
    pub answer_room: u64,
    /// The first ids of the first sample's prompt, ten at most.
    pub first_ids: Vec<u32>,
    /// One entry a sample.
    pub prompts: Vec<ProbePrompt>,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbePrompt {
    /// The values to be found, with commas between them.
    pub key: String,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the right answer.
    pub answer_tokens: u64,
    /// BLAKE3 hash of the prompt's ids, as little-endian `u32`.
    pub prompt_hash: String,
    /// The facts, the one at the depth of the cell first.
    pub needles: Vec<ProbeNeedle>,
}

/// A prompt as text and ids: a line of the file that `--prompts` writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbePromptRecord {
    /// Tokens of prompt and answer.
    pub length: u64,
    /// Depth asked for.
    pub depth: f64,
    /// Index in its cell, from 0.
    pub sample: u64,
    /// Its facts, counts and hash.
    #[serde(flatten)]
    pub prompt: ProbePrompt,
    /// Most tokens of an answer.
    pub answer_room: u64,
    /// The prompt's ids.
    pub ids: Vec<u32>,
    /// The ids of the right answer.
    pub answer_ids: Vec<u32>,
    /// The text of the prompt's ids.
    pub text: String,
}

/// First line of the file that `--results` appends to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeHeader {
    /// Version of the schema.
    pub schema_version: u32,
    /// Hash of the settings.
    pub configuration: String,
    /// The settings.
    pub settings: ProbeSettings,
}
