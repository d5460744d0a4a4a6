//! `snellen explain`: the documentation of the checks.

use super::{SCHEMA_VERSION, Tool};
use audit::CheckDoc;
use serde::{Deserialize, Serialize};

/// Documentation of one or all checks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The program.
    pub tool: Tool,
    /// `explain`.
    pub verb: String,
    /// The checks, by code.
    pub checks: Vec<CheckPage>,
}

/// Documentation of one check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckPage {
    /// Stable code, `SN001`.
    pub code: String,
    /// Readable name, `blind-head`.
    pub name: String,
    /// One sentence.
    pub summary: String,
    /// What is measured, with its unit.
    pub measures: String,
    /// Why anyone should care.
    pub why_it_matters: String,
    /// When it fires, and where the number comes from.
    pub threshold: String,
    /// When it fires although nothing is wrong.
    pub false_alarms: String,
    /// What can be done, safest first.
    pub remedies: Vec<RemedyLine>,
    /// Where the claims come from.
    pub references: Vec<String>,
}

/// One way out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RemedyLine {
    /// `exact`, `output-changing` or `needs training`.
    pub safety: String,
    /// What to do.
    pub action: String,
}

impl ExplainReport {
    /// The pages of `docs`, written by program version `version`.
    #[must_use]
    pub fn new<'a>(version: &str, docs: impl Iterator<Item = &'a CheckDoc>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool {
                name: "snellen".to_owned(),
                version: version.to_owned(),
            },
            verb: "explain".to_owned(),
            checks: docs.map(CheckPage::from).collect(),
        }
    }
}

impl From<&CheckDoc> for CheckPage {
    fn from(doc: &CheckDoc) -> Self {
        let remedy = |(kind, action): &(audit::RemedyKind, &str)| RemedyLine {
            safety: kind.name().to_owned(),
            action: (*action).to_owned(),
        };
        Self {
            code: doc.code.to_owned(),
            name: doc.name.to_owned(),
            summary: doc.summary.to_owned(),
            measures: doc.measures.to_owned(),
            why_it_matters: doc.why_it_matters.to_owned(),
            threshold: doc.threshold.to_owned(),
            false_alarms: doc.false_alarms.to_owned(),
            remedies: doc.remedies.iter().map(remedy).collect(),
            references: doc
                .references
                .iter()
                .map(|text| (*text).to_owned())
                .collect(),
        }
    }
}
