//! `snellen horizon`: closed forms from slopes and a plan.

use super::{Envelope, Outcome, PlanInfo};
use crate::number::Distance;
use serde::{Deserialize, Serialize};

/// How far every head can see by its bias alone, all content being equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HorizonReport {
    /// Common head of every document; `plan` is the key of the first plan.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// Which zero is counted: `plan` (either of the plan's zeros), `exp` (the numerator), `weight` (the normalised weight).
    pub criterion: String,
    /// Bias form the collapse columns are about: `absolute` (slope times key index) or `relative` (slope times distance).
    pub convention: String,
    #[serde(default)]
    /// Where a bias by key position is 0: `first key`, `last key`, `one before the first key`; `query` for the relative form.
    pub key_origin: String,
    /// Format the bias is stored in, for the collapse columns.
    pub bias_dtype: String,
    /// Remedy applied to the bias, as the user wrote it; `null` for the plain linear bias.
    pub remedy: Option<String>,
    /// How the slopes were made.
    pub slopes: String,
    /// Whether queries see keys after them too.
    pub bidirectional: bool,
    /// Results under the first plan, one a head.
    pub heads: Vec<HorizonHead>,
    /// Sums over the heads under the first plan.
    pub summary: HorizonSummary,
    /// Every plan with its own results.
    pub plans: Vec<HorizonPlan>,
    /// Common tail of every document.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Results of one plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HorizonPlan {
    /// The plan and its roundings.
    #[serde(flatten)]
    pub info: PlanInfo,
    /// Bias form of the collapse columns under this plan.
    pub convention: String,
    #[serde(default)]
    /// Where that bias is 0, as above.
    pub key_origin: String,
    /// Format of the stored bias under this plan.
    pub bias_dtype: String,
    /// One entry a head.
    pub heads: Vec<HorizonHead>,
    /// Sums over the heads.
    pub summary: HorizonSummary,
}

/// One head under one plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HorizonHead {
    /// Index of the head within its layer.
    pub head: u64,
    /// Slope `m`.
    pub slope: f64,
    /// Slope that reaches the softmax: as the runtime uses it, with the scale that the family applies to the bias and with interpolation.
    pub effective_slope: f64,
    /// Smallest distance at which the weight is exactly zero; may lie beyond `length`; `null` when there is none.
    pub first_blind_distance: Option<Distance>,
    /// Why `first_blind_distance` is `null`: no sequence of any length has a blind pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_blind_distance_reason: Option<String>,
    /// Largest distance of a pair inside `length` that is not blind; `null` if there is none.
    pub last_visible_distance: Option<u64>,
    /// Rows that are NaN because the stored bias overflowed to infinity; their pairs are not counted as blind.
    pub nan_rows: u64,
    /// Pairs in those rows.
    #[serde(default)]
    pub nan_pairs: u128,
    /// (query, key) pairs inside the mask.
    pub pairs: u128,
    /// Pairs whose weight is exactly zero.
    pub blind_pairs: u128,
    /// `blind_pairs / (pairs - nan_pairs)`: of the pairs that have a weight.
    pub blind_share: f64,
    /// Blind keys of the last query.
    pub blind_last_row: u64,
    /// `blind_last_row / length`; `null` where the last row is NaN.
    pub blind_share_last_row: Option<f64>,
    /// Why `blind_share_last_row` is `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blind_share_last_row_reason: Option<String>,
    /// `1 - (threshold/slope)/length` clipped to `[0, 1]`: the published formula, which counts no keys.
    pub blind_share_last_row_continuous: Option<f64>,
    /// Distinct stored bias values among the last 20 keys (position collapse, a significand failure).
    pub distinct_bias_last_20: u64,
    /// Distinct stored bias values among the first 20 keys.
    pub distinct_bias_first_20: u64,
    /// Distinct stored bias values over all keys of the last row; `null` where counting them would take too long.
    pub distinct_bias_total: Option<u64>,
    /// Longest run of neighbouring keys that share one stored bias; `null` as above.
    pub longest_equal_run: Option<u64>,
    /// Smallest distance (relative form) or key index (absolute form) at which the stored bias overflows to infinity; `null`
    /// when the format never does.
    pub overflow_distance: Option<Distance>,
}

/// Sums over the heads of one plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HorizonSummary {
    /// Blind pairs over pairs that have a weight (NaN rows have none), all heads together.
    pub blind_share: f64,
    /// Mean over heads of the share of blind keys in the last row, without heads whose last row is NaN; `null` when all are.
    pub blind_share_last_row: Option<f64>,
    /// The same by the continuous formula; `null` when the bias is not linear or a last row is NaN.
    pub blind_share_last_row_continuous: Option<f64>,
    /// Heads with at least one blind pair.
    pub heads_touched: u64,
    /// Heads with rows that are NaN: their pairs are neither visible nor counted as blind.
    pub heads_nan: u64,
    /// Heads looked at.
    pub heads: u64,
}

impl HorizonSummary {
    /// Sums up `heads`.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // shares of counts
    pub fn of(heads: &[HorizonHead]) -> Self {
        if heads.is_empty() {
            return Self::default();
        }
        let pairs: u128 = heads.iter().map(|head| head.pairs - head.nan_pairs).sum();
        let blind: u128 = heads.iter().map(|head| head.blind_pairs).sum();
        let last_rows: Vec<f64> = heads
            .iter()
            .filter_map(|head| head.blind_share_last_row)
            .collect();
        let continuous: Option<Vec<f64>> = heads
            .iter()
            .map(|head| head.blind_share_last_row_continuous)
            .collect();
        Self {
            blind_share: if pairs == 0 {
                0.0
            } else {
                blind as f64 / pairs as f64
            },
            blind_share_last_row: (!last_rows.is_empty())
                .then(|| last_rows.iter().sum::<f64>() / last_rows.len() as f64),
            blind_share_last_row_continuous: continuous
                .map(|shares| shares.iter().sum::<f64>() / heads.len() as f64),
            heads_touched: heads.iter().filter(|head| head.blind_pairs > 0).count() as u64,
            heads_nan: heads.iter().filter(|head| head.nan_rows > 0).count() as u64,
            heads: heads.len() as u64,
        }
    }
}
