//! `snellen measure`: what one text showed.

use super::{Envelope, Outcome, PlanInfo};
use crate::number::Distance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Evidence of every head on one text, counted under every plan in one pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeasureReport {
    /// Common head of every document; `plan` is the key of the first plan.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// The plans, in the order asked for.
    pub plans: Vec<PlanInfo>,
    /// Loss of the model on the text; `null` where it has no head to predict with.
    pub loss: Option<LossInfo>,
    /// One entry a head.
    pub heads: Vec<MeasureHead>,
    /// Sums over the heads.
    pub summary: MeasureSummary,
    /// Common tail of every document.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Loss over the predicted tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LossInfo {
    /// Mean loss, nats a token.
    pub nats_per_token: Option<f64>,
    /// `exp(nats_per_token)`.
    pub perplexity: Option<f64>,
    /// Tokens that were predicted: one fewer than were read.
    pub tokens: u64,
}

/// One head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeasureHead {
    /// Layer index in the model.
    pub layer: u64,
    /// Head index within the layer.
    pub head: u64,
    /// Slope `m`.
    pub slope: f64,
    /// Slope after the scale that the family applies to the bias.
    pub effective_slope: f64,
    /// Counts under every plan.
    pub plans: BTreeMap<String, MeasurePlanEvidence>,
    /// Smallest distance within which the head places half of its attention mass.
    pub reach_50: Option<u64>,
    /// The same for nine tenths.
    pub reach_90: Option<u64>,
    /// The same for 99 hundredths.
    pub reach_99: Option<u64>,
    /// Entropy of a row's weights, mean over rows, nats.
    pub entropy_nats: Option<f64>,
    /// Weight on key 0, mean over the queries after it: row 0, which has no other key, is left out.
    pub key0_mass: Option<f64>,
    /// What uniform attention would put on key 0 over the same queries.
    pub key0_baseline: Option<f64>,
    /// `key0_mass` less `key0_baseline`.
    pub key0_excess: Option<f64>,
    /// Mean distance of the attention mass, tokens.
    pub mean_distance: Option<f64>,
    /// Largest absolute scaled query-key product of a pair that f32 attention sees (weight not exactly zero), before the bias, nats.
    pub max_score: Option<f64>,
    /// Share of pairs whose weight is below 2^-9 of the row sum: a bf16 output cannot show them.
    pub share_below_bf16_ulp: Option<f64>,
    /// Share of pairs whose weight is below 2^-24 of the row sum: an f32 accumulation cannot show them.
    pub share_below_f32_ulp: Option<f64>,
    /// Largest content score over the row's own diagonal of a pair that f32 attention sees, nats.
    pub advantage_diagonal_max: Option<f64>,
    /// 99th percentile over a sample of all pairs: all of them in a text below 182 tokens, at least 8 thousand in longer ones, spread evenly over them; not above the largest of the sample, and else rounded up to the next 32nd of a nat.
    pub advantage_diagonal_p99: Option<f64>,
    /// Largest content score of a pair that f32 attention sees, at distance 20 or more, over the best of the row's last 20 keys that it sees, at least its own, nats.
    pub advantage_recent_max: Option<f64>,
    /// 99th percentile of the same over the sampled pairs.
    pub advantage_recent_p99: Option<f64>,
    /// First distance at which the bias outweighs `advantage_diagonal_max`; `null` when it never does or when there is no
    /// advantage.
    pub effective_horizon: Option<Distance>,
    /// The same for `advantage_diagonal_p99`: what is typical rather than the best ever seen.
    pub effective_horizon_p99: Option<Distance>,
    /// Attention mass by distance, logarithmic bins.
    pub mass_by_distance: Vec<DistanceBin>,
}

/// Attention mass in one bin of distances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DistanceBin {
    /// First distance of the bin, tokens.
    pub from: u64,
    /// Last distance of the bin, tokens.
    pub to: u64,
    /// Share of the head's attention mass in the bin, mean over rows.
    pub mass: f64,
    /// Pairs in the bin.
    pub pairs: u64,
    /// Blind pairs in the bin under the first plan.
    pub blind_pairs: u64,
}

/// Counts of one head under one plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeasurePlanEvidence {
    /// (query, key) pairs inside the mask.
    pub pairs: u64,
    /// Rows whose scores overflow under the plan, so that the runtime's weights are NaN.
    #[serde(default)]
    pub non_finite_rows: u64,
    /// Pairs of those rows: neither blind nor seen.
    #[serde(default)]
    pub non_finite_pairs: u64,
    /// Pairs whose weight is exactly zero.
    pub blind_pairs: u64,
    /// Pairs whose numerator `exp(s - max)` is zero.
    pub blind_numerator: u64,
    /// Pairs whose cast weight `exp(s - max)/sum` is zero.
    pub blind_weight: u64,
    /// Pairs so near the threshold that another order of summation may decide them differently.
    pub undecided_pairs: u64,
    /// `blind_pairs / (pairs - non_finite_pairs)`; `null` without such pairs.
    pub blind_share: Option<f64>,
    /// Smallest distance at which a pair was blind; `null` when none was.
    pub first_blind_distance: Option<u64>,
    /// Largest distance at which a pair was not blind.
    pub last_visible_distance: Option<u64>,
    /// Attention mass under the plan's own roundings, in the bins of the head's `mass_by_distance`; sums to 1, zeros where
    /// every row overflows. Repeats the head's where the plan rounds neither scores nor exponential below f32.
    #[serde(default)]
    pub mass_by_distance: Vec<f64>,
    /// Half the sum of the absolute differences between these bins and the head's, 0 to 1; `null` where every row overflows.
    #[serde(default)]
    pub total_variation: Option<f64>,
}

/// Sums over the heads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeasureSummary {
    /// Heads measured.
    pub heads: u64,
    /// Sums under every plan.
    pub plans: BTreeMap<String, MeasurePlanSummary>,
}

/// Sums over the heads under one plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeasurePlanSummary {
    /// Pairs of all heads.
    pub pairs: u64,
    /// Pairs of rows whose scores overflow under the plan.
    #[serde(default)]
    pub non_finite_pairs: u64,
    /// Blind pairs of all heads.
    pub blind_pairs: u64,
    /// `blind_pairs / (pairs - non_finite_pairs)`; `null` without such pairs.
    pub blind_share: Option<f64>,
    /// Heads with at least one blind pair.
    pub heads_touched: u64,
}

impl MeasureSummary {
    /// Sums up `heads`.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // shares of counts
    pub fn of(heads: &[MeasureHead]) -> Self {
        let mut plans: BTreeMap<String, MeasurePlanSummary> = BTreeMap::new();
        for (key, evidence) in heads.iter().flat_map(|head| &head.plans) {
            let sum = plans.entry(key.clone()).or_default();
            sum.pairs += evidence.pairs;
            sum.non_finite_pairs += evidence.non_finite_pairs;
            sum.blind_pairs += evidence.blind_pairs;
            sum.heads_touched += u64::from(evidence.blind_pairs > 0);
        }
        for sum in plans.values_mut() {
            let pairs = sum.pairs.saturating_sub(sum.non_finite_pairs);
            sum.blind_share = (pairs > 0).then(|| sum.blind_pairs as f64 / pairs as f64);
        }
        Self {
            heads: heads.len() as u64,
            plans,
        }
    }
}
