//! `snellen report A.json B.json`: two results side by side.

use super::{FindingRecord, Tool};
use crate::document::Document;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Two results: compared head by head where they are of one verb, otherwise shown together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PairReport {
    /// Version of the schema.
    pub schema_version: u32,
    /// The program.
    pub tool: Tool,
    /// `report`.
    pub verb: String,
    /// The first result (before).
    pub a: Document,
    /// The second result (after).
    pub b: Document,
    /// Whether the two are of one verb, so that their heads can be compared.
    pub comparable: bool,
    /// What differs between them besides the heads (model, length, text): a comparison has to be read with it.
    pub differences: Vec<String>,
    /// One entry for each head that both have, under each plan that both have.
    pub heads: Vec<HeadDifference>,
    /// Counts of heads by what became of each quantity.
    pub summary: Vec<QuantitySummary>,
    /// Findings that only the second has; they decide the exit code.
    pub findings_new: Vec<FindingRecord>,
    /// Findings that only the first has.
    pub findings_gone: Vec<FindingRecord>,
    /// Findings that both have: same code, place and plan.
    pub findings_kept: u64,
    /// Findings that only the second has, of heads or plans that the first did not look at: neither new nor known.
    #[serde(default)]
    pub findings_not_measured_in_a: Vec<FindingRecord>,
    /// Findings that only the first has, of heads or plans that the second did not look at.
    #[serde(default)]
    pub findings_not_measured_in_b: Vec<FindingRecord>,
    /// Of two probes or evaluations: differences over the cells, documents or items that both have.
    #[serde(default)]
    pub paired: Vec<PairedDifference>,
}

/// One quantity over things that both results looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PairedDifference {
    /// Over what: `all cells in both`, `length 512 depth 0.5`, `document 3`, `200 items`.
    pub what: String,
    /// Name of the field: `accuracy`, `log_probability`, `nats_per_token`, ...
    pub quantity: String,
    /// Pairs (samples, documents, items) that the interval rests on; 0 where nothing pairs.
    pub units: u64,
    /// In the first result.
    pub a: Option<f64>,
    /// In the second result.
    pub b: Option<f64>,
    /// `b - a`.
    pub change: Option<f64>,
    /// Lower end of its 95 % interval; `null` where there is none.
    pub change_low: Option<f64>,
    /// Upper end.
    pub change_high: Option<f64>,
    /// Of yes-or-no outcomes: right in the first result only.
    pub only_a: Option<u64>,
    /// Right in the second result only.
    pub only_b: Option<u64>,
    /// How the interval was made, or why there is none.
    pub method: String,
}

impl PairedDifference {
    /// Whether the interval excludes no change.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.change_low
            .zip(self.change_high)
            .is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }

    /// Whether the values are shares.
    #[must_use]
    pub fn is_share(&self) -> bool {
        self.only_a.is_some()
    }
}

/// One head in both results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HeadDifference {
    /// Layer; `null` where the results are the same in every layer.
    pub layer: Option<u64>,
    /// Head within the layer.
    pub head: u64,
    /// Plan of the first result.
    pub plan_a: Option<String>,
    /// Plan of the second result.
    pub plan_b: Option<String>,
    /// Quantities by the name of their field.
    pub quantities: BTreeMap<String, Difference>,
}

/// One quantity before and after.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Difference {
    /// In the first result; `null` where it was not measured or does not exist.
    pub a: Option<f64>,
    /// In the second result.
    pub b: Option<f64>,
    /// `b - a`; `null` unless both exist.
    pub change: Option<f64>,
}

/// What became of one quantity over all heads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuantitySummary {
    /// Plan of the first result.
    pub plan_a: Option<String>,
    /// Plan of the second result.
    pub plan_b: Option<String>,
    /// Name of the field.
    pub quantity: String,
    /// Heads in which it grew.
    pub heads_more: u64,
    /// Heads in which it shrank.
    pub heads_less: u64,
    /// Heads in which it is the same number, or exists in neither.
    pub heads_same: u64,
    /// Heads in which it exists in the second result only.
    pub heads_gained: u64,
    /// Heads in which it exists in the first result only.
    pub heads_lost: u64,
}
