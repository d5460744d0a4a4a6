//! One file per defect: its documentation, its rule, its tests.
//!
//! The defects are kept apart on purpose: *blind* (exponent), *collapse* (significand), *sink* (learned), *beyond trained
//! length* (data) and *overflow* (16-bit bias to minus infinity) have different causes and different remedies.

mod beyond_trained_length;
mod bias_overflow;
mod blind_head;
mod context;
mod dead_head;
mod falcon_double_bias;
mod half_precision_slopes;
mod mpt_bias_max_ignored;
mod mpt_native_gaps;
mod not_finite;
mod out_of_reach;
mod position_collapse;
mod prompt_too_short;
mod runtime_traps;
mod sink_head;
mod sub_ulp_reach;
#[cfg(test)]
mod testing;
mod traps;

use std::fmt::Write as _;

use crate::finding::Finding;

pub use context::{
    AuditContext, CertifiedHead, LENGTH_DEFAULT, SINK_BASELINE_MAX, Target, shell_word,
};

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

/// A check: its documentation and its rule.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// What it looks for.
    pub doc: &'static CheckDoc,
    /// Looks for it.
    pub run: fn(&AuditContext<'_>) -> CheckResult,
}

/// Every check, by code.
pub const CHECKS: &[Check] = &[
    Check {
        doc: &blind_head::DOC,
        run: blind_head::check,
    },
    Check {
        doc: &position_collapse::DOC,
        run: position_collapse::check,
    },
    Check {
        doc: &sink_head::DOC,
        run: sink_head::check,
    },
    Check {
        doc: &dead_head::DOC,
        run: dead_head::check,
    },
    Check {
        doc: &bias_overflow::DOC,
        run: bias_overflow::check,
    },
    Check {
        doc: &beyond_trained_length::DOC,
        run: beyond_trained_length::check,
    },
    Check {
        doc: &half_precision_slopes::DOC,
        run: half_precision_slopes::check,
    },
    Check {
        doc: &falcon_double_bias::DOC,
        run: falcon_double_bias::check,
    },
    Check {
        doc: &mpt_bias_max_ignored::DOC,
        run: mpt_bias_max_ignored::check,
    },
    Check {
        doc: &mpt_native_gaps::DOC,
        run: mpt_native_gaps::check,
    },
    Check {
        doc: &sub_ulp_reach::DOC,
        run: sub_ulp_reach::check,
    },
    Check {
        doc: &out_of_reach::DOC,
        run: out_of_reach::check,
    },
    Check {
        doc: &runtime_traps::DOC,
        run: runtime_traps::check,
    },
    Check {
        doc: &prompt_too_short::DOC,
        run: prompt_too_short::check,
    },
    Check {
        doc: &not_finite::DOC,
        run: not_finite::check,
    },
];

/// Runs every check, in the order of [`CHECKS`].
#[must_use]
pub fn run_all(context: &AuditContext<'_>) -> Vec<CheckResult> {
    CHECKS.iter().map(|check| (check.run)(context)).collect()
}

/// The check with this code (`SN001`, any case) or name (`blind-head`).
#[must_use]
pub fn find(code_or_name: &str) -> Option<&'static Check> {
    let wanted = code_or_name.trim();
    CHECKS.iter().find(|check| {
        check.doc.code.eq_ignore_ascii_case(wanted) || check.doc.name.eq_ignore_ascii_case(wanted)
    })
}

impl CheckDoc {
    /// The documentation as plain text, every section under its heading.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{} {}\n{}\n", self.code, self.name, self.summary);
        let sections = [
            ("Measures", self.measures),
            ("Why it matters", self.why_it_matters),
            ("Threshold", self.threshold),
            ("False alarms", self.false_alarms),
        ];
        for (heading, body) in sections {
            let _ = write!(text, "\n{heading}\n  {body}\n");
        }
        text.push_str("\nRemedy\n");
        for (kind, remedy) in self.remedies {
            let _ = writeln!(text, "  ({}) {remedy}", kind.name());
        }
        text.push_str("\nReferences\n");
        for reference in self.references {
            let _ = writeln!(text, "  {reference}");
        }
        text
    }

    /// A result that looked at `items` things. Nothing looked at is a result of its own, never a clean one.
    pub(crate) fn checked(
        &'static self,
        items: u64,
        nothing: &str,
        findings: Vec<Finding>,
    ) -> CheckResult {
        let status = if items > 0 {
            CheckStatus::Checked { items }
        } else {
            CheckStatus::NotMeasured {
                reason: nothing.to_owned(),
            }
        };
        CheckResult {
            doc: self,
            status,
            findings,
        }
    }

    /// A result that could not be had.
    pub(crate) fn not_measured(&'static self, reason: impl Into<String>) -> CheckResult {
        CheckResult {
            doc: self,
            status: CheckStatus::NotMeasured {
                reason: reason.into(),
            },
            findings: Vec::new(),
        }
    }

    /// A check that does not concern this model.
    pub(crate) fn not_applicable(&'static self, reason: impl Into<String>) -> CheckResult {
        CheckResult {
            doc: self,
            status: CheckStatus::NotApplicable {
                reason: reason.into(),
            },
            findings: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_consecutive_names_are_unique_and_nothing_is_left_undocumented() {
        for (index, check) in CHECKS.iter().enumerate() {
            let doc = check.doc;
            assert_eq!(doc.code, format!("SN{:03}", index + 1));
            assert_eq!(
                CHECKS
                    .iter()
                    .filter(|other| other.doc.name == doc.name)
                    .count(),
                1,
                "{}",
                doc.name
            );
            for part in [
                doc.summary,
                doc.measures,
                doc.why_it_matters,
                doc.threshold,
                doc.false_alarms,
            ] {
                assert!(
                    part.len() > 20 && part.ends_with('.'),
                    "{}: {part:?}",
                    doc.code
                );
            }
            assert!(
                !doc.remedies.is_empty() && !doc.references.is_empty(),
                "{}",
                doc.code
            );
            assert!(find(doc.code).is_some() && find(&doc.name.to_uppercase()).is_some());
            assert!(doc.text().contains("\nFalse alarms\n  "));
        }
        assert!(find("SN999").is_none());
    }

    #[test]
    fn a_check_that_looked_at_nothing_is_not_clean() {
        let result = CHECKS[0].doc.checked(0, "no heads", Vec::new());
        assert!(!result.is_clean());
        assert_eq!(
            result.status,
            CheckStatus::NotMeasured {
                reason: "no heads".into()
            }
        );
        assert!(CHECKS[0].doc.checked(3, "", Vec::new()).is_clean());
    }
}
