//! One file per defect: its documentation, its rule, its tests.
//!
//! The defects are kept apart on purpose: *blind* (exponent), *collapse* (significand), *sink* (learned), *beyond trained
//! length* (data) and *overflow* (16-bit bias to minus infinity) have different causes and different remedies.

use crate::finding::Finding;

/// How safe a remedy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemedyKind {
    /// The model computes the same function, or the one it was trained to compute.
    Exact,
    /// The outputs change; no training is needed, but the result must be measured again.
    OutputChanging,
    /// Weights have to be trained.
    NeedsTraining,
}

impl RemedyKind {
    /// The word used in documentation and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::OutputChanging => "output-changing",
            Self::NeedsTraining => "needs training",
        }
    }
}

/// Documentation of a check; `snellen explain CODE` prints it and the catalogue is made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckDoc {
    /// Stable code, `SN001` and on.
    pub code: &'static str,
    /// Name of the defect: `blind-head`.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// What is measured, with its unit.
    pub measures: &'static str,
    /// Why anyone should care.
    pub why_it_matters: &'static str,
    /// When it fires, and where the number comes from.
    pub threshold: &'static str,
    /// When it fires although nothing is wrong.
    pub false_alarms: &'static str,
    /// What can be done, each way with how safe it is, safest first.
    pub remedies: &'static [(RemedyKind, &'static str)],
    /// Where the claims come from.
    pub references: &'static [&'static str],
}

/// Whether a check could do its work. A check that looked at nothing is never clean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckStatus {
    /// It looked at this many things (heads, or plans, or one configuration): at least one.
    Checked {
        /// Things looked at.
        items: u64,
    },
    /// It concerns this model but could not be measured here; the reason, with the command that would measure it.
    NotMeasured {
        /// Why.
        reason: String,
    },
    /// It does not concern this model or these plans.
    NotApplicable {
        /// Why.
        reason: String,
    },
}

/// What one check came to.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckResult {
    /// The check's documentation.
    pub doc: &'static CheckDoc,
    /// Whether it could do its work.
    pub status: CheckStatus,
    /// What it found: by layer, then head, then plan. May be filled although `status` is `NotMeasured` (a verdict that was
    /// refused is itself a finding).
    pub findings: Vec<Finding>,
}

impl CheckResult {
    /// `true` only where something was looked at and nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        matches!(self.status, CheckStatus::Checked { items } if items > 0)
            && self.findings.is_empty()
    }
}
