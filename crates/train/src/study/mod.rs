//! Studies: one file that says many runs, and what is done with each.
//!
//! | file | holds |
//! |---|---|
//! | `file` | the study file: a base run, variants, seeds |
//! | `grid` | variants multiplied out of lists |
//! | `evaluate` | what is measured of a finished trial |
//! | `trial` | one variant with one seed, and its identity |

mod evaluate;
mod file;
mod grid;
mod trial;

pub use evaluate::EvaluateConfig;
pub use file::{Study, Variant};
pub use trial::{CheckedTrial, Trial, check};
