//! `snellen eval`: how well a text is predicted, or how a task is answered.

use super::{Envelope, Outcome};
use serde::{Deserialize, Serialize};

/// Losses on a text, or scores on a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EvalReport {
    /// Common head of every document; `length` is the window's, `text` is `null` for a task.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// The text; `null` for a task.
    pub perplexity: Option<PerplexityReport>,
    /// The task; `null` for a text.
    pub task: Option<TaskReport>,
    /// Common tail of every document.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A mean loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeanLoss {
    /// Tokens that were predicted.
    pub tokens: u64,
    /// Mean loss, nats a token; `null` when nothing was predicted.
    pub nats_per_token: Option<f64>,
    /// Standard error of `nats_per_token`, tokens taken as independent.
    pub standard_error_nats: Option<f64>,
    /// `exp(nats_per_token)`.
    pub perplexity: Option<f64>,
    /// Standard error of `perplexity` to first order: `perplexity * standard_error_nats`.
    pub standard_error_perplexity: Option<f64>,
}

/// Losses of a text over windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PerplexityReport {
    /// Tokens of a window.
    pub length: u64,
    /// Tokens between the beginnings of two windows; equal to `length` for disjoint blocks.
    pub stride: u64,
    /// Tokens of the pieces that a window was run in, on a key/value cache; `null` where it was run at once.
    #[serde(default)]
    pub chunk: Option<u64>,
    /// Windows that were run.
    pub windows: u64,
    /// Tokens that were not predicted: the first of each document, and of each window where windows are disjoint.
    pub tokens_without_context: u64,
    /// All predicted tokens.
    #[serde(flatten)]
    pub all: MeanLoss,
    /// Standard error of `nats_per_token` with documents as the unit; `null` below two documents.
    pub standard_error_nats_by_document: Option<f64>,
    /// By the number of tokens a prediction was made from, bins of powers of two.
    pub by_position: Vec<PositionLoss>,
    /// By document, in the order of the text.
    pub documents: Vec<DocumentLoss>,
}

/// Loss at some positions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PositionLoss {
    /// Fewest tokens of context.
    pub from: u64,
    /// Most tokens of context.
    pub to: u64,
    /// Their loss.
    #[serde(flatten)]
    pub loss: MeanLoss,
}

/// Loss of one document.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DocumentLoss {
    /// Number of the document, from 0.
    pub document: u64,
    /// Tokens of the document.
    pub length: u64,
    /// Its loss.
    #[serde(flatten)]
    pub loss: MeanLoss,
}

/// A share with its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Accuracy {
    /// Share of the items that is right.
    pub value: Option<f64>,
    /// Its standard error, sample deviation over the root of the number of items.
    pub standard_error: Option<f64>,
}

/// Scores on a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TaskReport {
    /// The file.
    pub source: String,
    /// BLAKE3 hash of the file.
    pub hash: String,
    /// How the ids were made: a tokenizer file or `bytes`.
    pub tokenizer: String,
    /// BLAKE3 hash of the tokenizer file; `null` where there is none.
    pub tokenizer_hash: Option<String>,
    /// `last-word`, `choices` or `context-options`.
    pub kind: String,
    /// What stands between context and continuation.
    pub delimiter: String,
    /// Id put before every context; `null` for none.
    pub prefix_token: Option<u32>,
    /// Items scored.
    pub items: u64,
    /// Items of the file; larger than `items` with a limit.
    pub items_available: u64,
    /// What guessing would score: the mean of 1 over the number of alternatives; `null` for last words.
    pub chance: Option<f64>,
    /// By the log-likelihood; for last words, the share that greedy decoding says in full.
    pub acc: Accuracy,
    /// By the log-likelihood over the number of characters; `null` values where that does not apply.
    pub acc_norm: Accuracy,
    /// By the log-likelihood over the number of UTF-8 bytes.
    pub acc_bytes: Accuracy,
    /// Mean of `-ln p` of the right alternative, nats an item.
    pub gold_nats: Option<f64>,
    /// Its standard error.
    pub gold_nats_standard_error: Option<f64>,
    /// `exp(gold_nats)`, for last words.
    pub perplexity: Option<f64>,
    /// Items in which the tokenizer merged over the boundary of context and continuation.
    pub merged_boundaries: u64,
    /// Tokens of the longest sequence that was run.
    pub longest_tokens: u64,
    /// One entry an item, in the order of the file: what pairs two results. Empty in documents of older versions.
    #[serde(default)]
    pub outcomes: Vec<TaskOutcome>,
}

/// What became of one item.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TaskOutcome {
    /// Whether it counts as right.
    pub correct: bool,
    /// Whether it does by the log-likelihood over characters; `null` where that does not apply.
    pub correct_by_character: Option<bool>,
    /// Whether it does by the log-likelihood over bytes.
    pub correct_by_byte: Option<bool>,
    /// `-ln p` of the right alternative, nats.
    pub gold_nats: Option<f64>,
}

/// A line of the file that `--items` writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TaskItemRecord {
    /// Number of the item, from 0.
    pub item: u64,
    /// Index of the right alternative.
    pub gold: u64,
    /// Index of the likeliest.
    pub predicted: u64,
    /// Index of the likeliest by character.
    pub predicted_by_character: Option<u64>,
    /// Index of the likeliest by byte.
    pub predicted_by_byte: Option<u64>,
    /// Whether it counts as right.
    pub correct: bool,
    /// One entry an alternative.
    pub alternatives: Vec<AlternativeRecord>,
}

/// One alternative of an item.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlternativeRecord {
    /// `ln p`, nats; `null` where it is not finite.
    pub log_likelihood: Option<f64>,
    /// Tokens of the continuation.
    pub tokens: u64,
    /// Characters without the delimiter.
    pub characters: u64,
    /// UTF-8 bytes without the delimiter.
    pub bytes: u64,
    /// Whether greedy decoding says exactly this.
    pub greedy: bool,
    /// Whether the tokenizer merged over the boundary.
    pub merged: bool,
}
