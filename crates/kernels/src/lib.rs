//! ALiBi attention on the CPU, streaming over key blocks, with observers.
//!
//! The crate works on plain slices, one sequence at a time; it knows no tensors, models or files. Three versions of the
//! same function stand above one another, each tested against the one before (the ladder of truth):
//!
//! 1. [`mod@reference`]: every score in f64, whole rows, nothing clever;
//! 2. [`emulated`]: the steps of a [`numerics::PrecisionPlan`], each rounded to its own format;
//! 3. [`attention`]: f32, online softmax over key blocks, newest block first, SIMD chosen at run time.
//!
//! [`attention_backward`] is the gradient of the third, tested against that of the first, which is tested against finite
//! differences.
//!
//! Blocks of keys whose every weight is provably exactly zero are not computed (`skip.rs` holds the argument): the bits are those
//! of the whole computation.
//!
//! Memory grows linearly with the number of keys: scores exist for one tile of queries at a time, and for whole rows
//! (a strip `[tile, n_keys]`) only while an [`AttentionObserver`] watches. Watching never changes the output by a bit.
//!
//! A row's result depends on its own query, the keys, the values and the bias alone: neither the tile it falls into,
//! nor how the queries are split into calls, nor the number of threads changes it by a bit.
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::print_stderr,
        reason = "a failed unwrap is a failed test; a skipped test says so"
    )
)]

// The unit tests of the instruction sets share the inputs and tolerances of the integration tests, which name the crate.
#[cfg(test)]
extern crate self as snellen_kernels;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

mod backward;
mod bias;
pub mod emulated;
pub mod erf;
pub mod exp;
mod extremes;
mod forward;
mod input;
mod lane_counts;
mod lane_loops;
mod lane_rounded;
mod lanes;
pub mod matrix;
mod observer;
mod pack;
pub mod reference;
mod score_tile;
mod skip;
mod tile;
mod weigh;

pub use backward::{
    Gradients, attention_backward, attention_backward_with, attention_backward_workspace_bytes,
};
pub use extremes::{BlockRange, VisibleBlock};
pub use forward::{AttentionOptions, attention, attention_with, attention_workspace_bytes};
pub use input::{AttentionInput, AttentionShape, BiasTable, CapOrder, Heads};
pub use lane_counts::{Below, CUTS, Cut, count_below, find_in_doubt};
pub use lane_loops::{LaneBias, lane_gaps, raise, sum_by_difference};
pub use lane_rounded::{RoundedEntries, sum_shares_by_difference};
pub use observer::{AttentionObserver, HeadSink, RowView, ScoreRows, SpareScores};
pub use score_tile::{BlockEnds, ScoreTile};
pub use skip::AttentionStats;
pub use weigh::WeighedBlock;
