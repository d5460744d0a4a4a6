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
    /// Changes of the bias that cells with misses were tried under.
    pub what_if: Vec<String>,
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
    /// The cell under each change of the bias; empty for a cell without misses.
    pub what_if: Vec<ProbeWhatIf>,
    /// One entry a sample.
    pub results: Vec<ProbeSample>,
}

/// A cell under another bias.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeWhatIf {
    /// The change.
    pub change: String,
    /// The same samples under it.
    #[serde(flatten)]
    pub score: ProbeScore,
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeSample {
    /// The number to be found.
    pub key: String,
    /// Whether the first integer of the answer is the key.
    pub hit: bool,
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
    /// Index of the fact's first token.
    pub needle_at: u64,
    /// Tokens of the fact.
    pub needle_tokens: u64,
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
