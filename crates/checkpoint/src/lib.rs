//! Checkpoints, configurations, tokenizers and specification files, lowered into model specifications.
//!
//! [`open`] takes what a user has (a folder, a `config.json`, a `.safetensors` file or a specification file) and gives a
//! [`Checkpoint`]: facts about the position bias from the configuration, and, where the weights can be read, a
//! [`model::ModelSpec`] with a lazy [`model::WeightSource`] that has undone every layout quirk.
//!
//! Files are treated as hostile: nothing is allocated on a file's word, no path leaves the model's folder on an index's word, no
//! pickle is ever loaded, and no convention is guessed. Errors name the file, the tensor or key, what was expected and what was found.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")
)]

mod checkpoint;
pub mod config;
mod error;
mod families;
pub mod files;
mod finite;
pub mod gguf;
mod hash;
mod layout;
mod pieces;
mod read;
pub mod safetensors;
pub mod spec;
pub mod tokenizer;

pub use checkpoint::{Checkpoint, DtypeCount, TensorRow, open, open_config};
pub use config::{DescribedModel, ModelFacts, Note};
pub use error::{CheckpointError, ErrorKind};
pub use hash::HashCover;
