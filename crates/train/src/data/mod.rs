//! From text to batches: documents, tokenizers, token files, which tokens a step sees, and recall tasks laid into them.

mod archive;
pub mod bpe;
pub mod corpus;
pub mod documents;
pub mod encode;
mod pieces;
mod prose;
pub mod recall;
pub mod sampler;
pub mod shard;
mod table;
mod unpack;
