//! What a text shows about every head, counted exactly and kept in memory linear in the length.
//!
//! An observer sees each tile of scores while its layer runs. Per head it keeps one array over distance for the attention
//! mass and one per score path and plan for the blind pairs; when the layer is done these are reduced to the types of this
//! module. No attention matrix is ever kept, and the result does not depend on the number of threads: each head is
//! observed by one sink, in ascending query order.

mod advantage;
mod call;
mod collector;
mod distance;
mod head;
mod lanes;
mod own;
mod plan;
mod plan_mass;
mod row;
mod rules;
mod scan;
mod scored;
mod slack;
mod table;
mod tile;
mod types;

pub use collector::{EvidenceCollector, EvidenceOptions};
pub use types::{ContentAdvantage, Evidence, HeadEvidence, PlanEvidence, distance_edges};
