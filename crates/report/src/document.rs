//! Any result: what the renderers take, and what a saved JSON document is read back into.

use crate::schema::{
    AuditReport, Envelope, EvalReport, ExplainReport, FindingRecord, HorizonReport, InspectReport,
    MeasureReport, Outcome, PairReport, ProbePromptsReport, ProbeReport, SCHEMA_VERSION,
    StudyReport, TrainReport,
};
use serde::{Deserialize, Deserializer, Serialize};

/// The result of any verb.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Document {
    /// `snellen horizon`.
    Horizon(HorizonReport),
    /// `snellen inspect`.
    Inspect(InspectReport),
    /// `snellen audit`.
    Audit(AuditReport),
    /// `snellen measure`.
    Measure(MeasureReport),
    /// `snellen eval`.
    Eval(EvalReport),
    /// `snellen probe`.
    Probe(ProbeReport),
    /// `snellen probe --build-only`: prompts that were not run, which are no result yet.
    #[cfg_attr(test, schemars(skip))]
    Prompts(Box<ProbePromptsReport>),
    /// `snellen train`.
    Train(TrainReport),
    /// `snellen study report`.
    Study(Box<StudyReport>),
    /// `snellen report A B`.
    Pair(Box<PairReport>),
    /// `snellen explain`.
    Explain(ExplainReport),
}

/// Why a document could not be read back.
#[derive(Debug)]
pub struct DocumentError(String);

impl std::fmt::Display for DocumentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DocumentError {}

/// The fields that say what the rest of a document is.
#[derive(Deserialize)]
struct Kind {
    schema_version: u32,
    tool: crate::schema::Tool,
    verb: String,
    /// Of a probe that was not run.
    tokens_to_run: Option<serde::de::IgnoredAny>,
}

impl Document {
    /// Reads a document that [`crate::json::render`] wrote, by this version of the program or an older one.
    ///
    /// # Errors
    /// One line: what was expected of the document and what was found.
    pub fn from_json(text: &str) -> Result<Self, DocumentError> {
        let kind: Kind = serde_json::from_str(text).map_err(|error| {
            DocumentError(format!(
                "not a result of snellen: expected a JSON document with schema_version, tool and verb ({error}); \
                 `--format json` writes one"
            ))
        })?;
        if kind.tool.name != "snellen" {
            return Err(DocumentError(format!(
                "expected a document written by snellen, found one by {:?}",
                kind.tool.name
            )));
        }
        if !(1..=SCHEMA_VERSION).contains(&kind.schema_version) {
            return Err(DocumentError(format!(
                "expected schema_version up to {SCHEMA_VERSION}, found {}: a newer snellen ({}) wrote it, use that one",
                kind.schema_version, kind.tool.version
            )));
        }
        let read = |error: serde_json::Error| {
            DocumentError(format!("not a whole {} result: {error}", kind.verb))
        };
        let document = match kind.verb.as_str() {
            "horizon" => Self::Horizon(serde_json::from_str(text).map_err(read)?),
            "inspect" => Self::Inspect(serde_json::from_str(text).map_err(read)?),
            "audit" => Self::Audit(serde_json::from_str(text).map_err(read)?),
            "measure" => Self::Measure(serde_json::from_str(text).map_err(read)?),
            "eval" => Self::Eval(serde_json::from_str(text).map_err(read)?),
            "probe" if kind.tokens_to_run.is_some() => {
                Self::Prompts(serde_json::from_str(text).map_err(read)?)
            }
            "probe" => Self::Probe(serde_json::from_str(text).map_err(read)?),
            "train" => Self::Train(serde_json::from_str(text).map_err(read)?),
            "study" => Self::Study(serde_json::from_str(text).map_err(read)?),
            "report" => Self::Pair(serde_json::from_str(text).map_err(read)?),
            "explain" => Self::Explain(serde_json::from_str(text).map_err(read)?),
            other => {
                return Err(DocumentError(format!(
                    "verb {other:?} is not known to this version; known: horizon, inspect, audit, measure, eval, probe, \
                     train, study, report, explain"
                )));
            }
        };
        crate::whole::check(&document).map_err(DocumentError)?;
        Ok(document)
    }

    /// The verb that was run.
    #[must_use]
    pub fn verb(&self) -> &str {
        match self {
            Self::Pair(pair) => &pair.verb,
            Self::Explain(explain) => &explain.verb,
            other => other.envelope().map_or("", |envelope| &envelope.verb),
        }
    }

    /// Version of the program that wrote it.
    #[must_use]
    pub fn tool_version(&self) -> &str {
        match self {
            Self::Pair(pair) => &pair.tool.version,
            Self::Explain(explain) => &explain.tool.version,
            other => other
                .envelope()
                .map_or("", |envelope| &envelope.tool.version),
        }
    }

    /// What every result starts with; `None` for a pair, which has two, and for documentation.
    #[must_use]
    pub fn envelope(&self) -> Option<&Envelope> {
        match self {
            Self::Horizon(report) => Some(&report.envelope),
            Self::Inspect(report) => Some(&report.envelope),
            Self::Audit(report) => Some(&report.envelope),
            Self::Measure(report) => Some(&report.envelope),
            Self::Eval(report) => Some(&report.envelope),
            Self::Probe(report) => Some(&report.envelope),
            Self::Prompts(report) => Some(&report.envelope),
            Self::Train(report) => Some(&report.envelope),
            Self::Study(report) => Some(&report.envelope),
            Self::Pair(_) | Self::Explain(_) => None,
        }
    }

    /// What every result ends with; `None` as for [`Document::envelope`], and for prompts that were not run.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Horizon(report) => Some(&report.outcome),
            Self::Inspect(report) => Some(&report.outcome),
            Self::Audit(report) => Some(&report.outcome),
            Self::Measure(report) => Some(&report.outcome),
            Self::Eval(report) => Some(&report.outcome),
            Self::Probe(report) => Some(&report.outcome),
            Self::Train(report) => Some(&report.outcome),
            Self::Study(report) => Some(&report.outcome),
            Self::Prompts(_) | Self::Pair(_) | Self::Explain(_) => None,
        }
    }

    /// Whether this is a result of a verb that runs no checks: it has no findings, and never will. A pair is if both sides are.
    #[must_use]
    pub fn runs_no_checks(&self) -> bool {
        match self {
            Self::Pair(pair) => pair.a.runs_no_checks() && pair.b.runs_no_checks(),
            Self::Prompts(_) => true,
            Self::Eval(_) | Self::Probe(_) | Self::Train(_) | Self::Study(_) => self
                .outcome()
                .is_none_or(|outcome| outcome.checks.is_empty() && outcome.findings.is_empty()),
            _ => false,
        }
    }

    /// Findings that decide the exit code. Of a pair that compares two results: those that only the second has.
    #[must_use]
    pub fn judged(&self) -> Vec<&FindingRecord> {
        match self {
            Self::Pair(pair) if pair.comparable => pair.findings_new.iter().collect(),
            Self::Pair(pair) => {
                let mut both = pair.a.judged();
                both.extend(pair.b.judged());
                both
            }
            other => other
                .outcome()
                .map(|outcome| outcome.findings.iter().collect())
                .unwrap_or_default(),
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    /// The documents inside a pair. Counts beyond 2^64 are refused here, as a buffered number cannot hold them.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Self::from_json(&value.to_string()).map_err(serde::de::Error::custom)
    }
}

macro_rules! from_report {
    ($($variant:ident($report:ty)),*) => {
        $(impl From<$report> for Document {
            fn from(report: $report) -> Self {
                Self::$variant(report.into())
            }
        })*
    };
}
from_report!(
    Horizon(HorizonReport),
    Inspect(InspectReport),
    Audit(AuditReport),
    Measure(MeasureReport),
    Eval(EvalReport),
    Probe(ProbeReport),
    Prompts(ProbePromptsReport),
    Train(TrainReport),
    Study(StudyReport),
    Pair(PairReport),
    Explain(ExplainReport)
);
