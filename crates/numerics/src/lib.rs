//! Float formats, thresholds, slopes, bias functions, precision plans and closed-form counts for ALiBi attention.
//!
//! Everything here is plain arithmetic on numbers: no tensors, no files, no threads. Distances are in tokens, exponents in
//! nats (natural-logarithm units), `m` is a head's slope.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")
)]

pub mod bias;
pub mod collapse;
pub mod convention;
pub mod emulate;
pub mod format;
pub mod horizon;
pub mod known;
pub mod plan;
pub mod reference;
pub mod rounding;
pub mod slopes;
pub mod threshold;

pub use bias::{BiasFunction, BiasShape, CapOrder, Remedy, RemedyError, SoftCap};
pub use collapse::{Collapse, collapse};
pub use convention::{
    BiasConvention, BiasForm, BiasStorage, Family, KeyOrigin, ScaleOrder, SlopeStorage,
};
pub use emulate::{EmulatedRow, RowInput, emulate_entries, emulate_row, emulate_row_with};
pub use format::{Format, Underflow};
pub use horizon::{HeadHorizon, HorizonError, HorizonInput, horizon};
pub use known::{KnownModel, known_model, known_models};
pub use plan::{
    BiasPath, BiasPlacement, BlockOrder, BlockVisits, Criterion, ExpRule, MaxReference, PlanError,
    PlanName, PlanStep, PrecisionPlan, RowOrder, RowPlace, ScorePath, ScoreSpec, SlopeRule,
    plan_names, stored_bias, stored_biases,
};
pub use rounding::{Cast, Rounding};
pub use slopes::{RobustSpacing, SlopeError, SlopeSchedule, Spacing};
pub use threshold::{exp_zero_threshold, exp_zero_threshold_scaled};
