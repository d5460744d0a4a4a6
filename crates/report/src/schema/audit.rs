//! `snellen audit`: what the weights alone prove.

use super::{Envelope, Outcome, PlanInfo};
use crate::number::Distance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bounds and certificates of every head, for any text whatever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AuditReport {
    /// Common head of every document; `plan` is the key of the first plan.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// The plans, in the order asked for.
    pub plans: Vec<PlanInfo>,
    /// One entry a head.
    pub heads: Vec<AuditHead>,
    /// Sums over the heads under the first plan.
    pub summary: AuditSummary,
    /// Common tail of every document.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// One head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AuditHead {
    /// Layer index in the model.
    pub layer: u64,
    /// Head index within the layer.
    pub head: u64,
    /// Slope `m`.
    pub slope: f64,
    /// Slope after the scale that the family applies to the bias.
    pub effective_slope: f64,
    /// No scaled query-key product of this head exceeds this many nats in magnitude, for any text; `null` when unbounded.
    pub score_bound: Option<f64>,
    /// No two scores of one query differ by more than this many nats, for any text; `null` when unbounded.
    pub gap_bound: Option<f64>,
    /// Standard deviation of the scores of inputs of random directions, nats.
    pub score_deviation: Option<f64>,
    /// How the bound was made.
    pub method: String,
    /// First plan: pairs up to this distance are never blind, for any text; `null` when none is guaranteed. Never more than
    /// `length - 1` where `always_visible` holds.
    pub guaranteed_visible: Option<Distance>,
    /// First plan: beyond this distance half of the pairs of an input of random directions are blind, a typical value and
    /// no proof; `null` when there is no such distance.
    pub expected_horizon: Option<Distance>,
    /// First plan: pairs beyond this distance are blind for any text; `null` when that cannot be proved.
    pub certified_horizon: Option<Distance>,
    /// First plan: no pair is ever blind, at any distance.
    pub always_visible: bool,
    /// Why one of the three is `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_reason: Option<String>,
    /// The three distances under every plan.
    pub plans: BTreeMap<String, AuditPlanCertificate>,
}

/// Distances one head is certified for under one plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AuditPlanCertificate {
    /// Pairs up to this distance are never blind, for any text.
    pub guaranteed_visible: Option<Distance>,
    /// Distance beyond which half of the pairs of an input of random directions are blind.
    pub expected_horizon: Option<Distance>,
    /// Pairs beyond this distance are blind for any text.
    pub certified_horizon: Option<Distance>,
    /// No pair is ever blind, at any distance.
    pub always_visible: bool,
    /// Why one of the three is `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Sums over the heads under the first plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AuditSummary {
    /// Heads looked at.
    pub heads: u64,
    /// Heads that are blind somewhere inside `length`, for any text.
    pub heads_certified_blind: u64,
    /// Heads that a typical input makes blind somewhere inside `length`.
    pub heads_expected_blind: u64,
    /// Heads that see the whole of `length`, for any text.
    pub heads_guaranteed_visible: u64,
}

impl AuditSummary {
    /// Sums up `heads` at `length` tokens.
    #[must_use]
    pub fn of(heads: &[AuditHead], length: u64) -> Self {
        // the furthest pair of a causal row lies length - 1 tokens back
        let furthest = Distance::from(length.saturating_sub(1));
        let count = |test: &dyn Fn(&AuditHead) -> bool| {
            heads.iter().filter(|head| test(head)).count() as u64
        };
        Self {
            heads: heads.len() as u64,
            heads_certified_blind: count(&|head| {
                head.certified_horizon
                    .is_some_and(|distance| distance < furthest)
            }),
            heads_expected_blind: count(&|head| {
                head.expected_horizon
                    .is_some_and(|distance| distance < furthest)
            }),
            heads_guaranteed_visible: count(&|head| {
                head.guaranteed_visible.is_some_and(|d| d >= furthest)
            }),
        }
    }
}
