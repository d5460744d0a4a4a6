//! Evaluation without training: how well a model predicts a text, by position, and how it scores on tasks.
//!
//! | file | holds |
//! |---|---|
//! | `statistics` | means with standard errors, Wilson intervals |
//! | `student` | Student's t: intervals, paired differences, many comparisons |
//! | `perplexity` | loss over windows of a text, by position and by document |
//! | `boundary` | which tokens are the continuation of a context |
//! | `items` | task items from JSON lines |
//! | `hellaswag` | HellaSwag's items, prepared as the harness does |
//! | `scoring` | log-likelihood of the alternatives of an item |
//!
//! Text becomes ids through [`TextCodec`]: files and tokenizers are the caller's.

mod boundary;
mod hellaswag;
mod items;
mod perplexity;
mod scoring;
mod statistics;
mod student;

pub use boundary::{Pair, split_pair};
pub use items::{Item, ItemError, count_items, parse_items};
pub use perplexity::{
    DocumentScore, PositionBin, TextScore, Window, Windows, score_documents,
    score_documents_in_pieces,
};
pub use scoring::{AlternativeScore, ItemScore, TaskScore, score_item, score_task};
pub use statistics::{Interval, Moments, wilson};
pub use student::{holm, mean_interval, paired_p, student_p, student_t95};

use model::ModelError;

/// Text to token ids and back. No special tokens are added, nothing is cut.
pub trait TextCodec {
    /// Ids of a text.
    ///
    /// # Errors
    /// One line that says why the text has no ids.
    fn encode(&self, text: &str) -> Result<Vec<u32>, String>;

    /// Text of ids; what is no valid text becomes U+FFFD.
    ///
    /// # Errors
    /// One line that says which id has no text.
    fn decode(&self, ids: &[u32]) -> Result<String, String>;
}

/// Why an evaluation or a probe stopped, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The forward pass failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The text, the task or the settings cannot be evaluated.
    #[error("{0}")]
    Input(String),
}
