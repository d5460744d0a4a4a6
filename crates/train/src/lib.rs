//! Training ALiBi decoders with every remedy, exactly repeatable.
//!
//! The same decoder, the same data, the same seed, and only the bias function or the number format changed. A run is a folder that
//! is complete at every moment; interrupting it anywhere loses at most the steps since the last checkpoint, and resuming gives the
//! bytes that an uninterrupted run gives. Nothing depends on the number of threads.
//!
//! The step itself ([`network`]) works below the tensor library, on the kernels' own attention and matrix products.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")
)]

pub mod attention;
pub mod config;
pub mod data;
mod error;
pub mod export;
mod files;
pub mod network;
mod ops;
pub mod optimiser;
pub mod params;
mod rng;
pub mod run;
pub mod shape;
pub mod study;

pub use attention::AttentionRule;
pub use error::TrainError;
