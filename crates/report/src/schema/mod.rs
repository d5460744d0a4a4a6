//! The result schema, version 1. Field names are a promise to the programs that read them: add freely, never rename.
//!
//! Every document starts with the same [`Envelope`] and ends with the same [`Outcome`]; between them stands what the verb
//! found. Distances are tokens, exponents and scores are nats, shares lie in `[0, 1]`.

mod audit;
mod eval;
mod explain;
mod horizon;
mod inspect;
#[cfg(test)]
mod json_schema;
mod measure;
mod pair;
mod probe;
mod study;
mod train;

pub use audit::{AuditHead, AuditPlanCertificate, AuditReport, AuditSummary};
pub use eval::{
    Accuracy, AlternativeRecord, DocumentLoss, EvalReport, MeanLoss, PerplexityReport,
    PositionLoss, TaskItemRecord, TaskOutcome, TaskReport,
};
pub use explain::{CheckPage, ExplainReport, RemedyLine};
pub use horizon::{HorizonHead, HorizonPlan, HorizonReport, HorizonSummary};
pub use inspect::{AlibiFacts, DtypeCount, FoldedTensor, InspectReport, SelfCheck, TensorRow};
pub use measure::{
    DistanceBin, LossInfo, MeasureHead, MeasurePlanEvidence, MeasurePlanSummary, MeasureReport,
    MeasureSummary,
};
pub use pair::{Difference, HeadDifference, PairReport, PairedDifference, QuantitySummary};

pub use probe::{
    ProbeArea, ProbeCell, ProbeHeadSight, ProbeHeader, ProbeItemRecord, ProbeNeedle, ProbePrompt,
    ProbePromptCell, ProbePromptRecord, ProbePromptsReport, ProbeReport, ProbeSample, ProbeScore,
    ProbeSettings, ProbeWhatIf, ProbeWitness,
};

pub use study::{
    StudyBlind, StudyCell, StudyCost, StudyDifference, StudyHorizon, StudyHorizonLine, StudyMargin,
    StudyMeasured, StudyReport, StudyResult, StudyRow, StudyTable, StudyTrial, StudyTrialLine,
    TrialStatus,
};
pub use train::{
    TrainBest, TrainHead, TrainHeld, TrainLook, TrainRecall, TrainRecallCell, TrainReport,
    TrainRun, TrainStep, TrainStop,
};

use serde::{Deserialize, Serialize};

/// Version of the schema. Raised when a field is renamed, removed or changes its meaning; not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// The program that wrote the document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Tool {
    /// Always `snellen`.
    pub name: String,
    /// Version of the program.
    pub version: String,
}

/// The model a document is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModelInfo {
    /// Name: of the folder, of the known model, or a description such as `16 heads`.
    pub name: String,
    /// Family whose conventions apply (`bloom`, `mpt`, ...), or `custom`.
    pub family: String,
    /// Where it was read from; `null` when there is no file.
    pub path: Option<String>,
    /// BLAKE3 hash of the model; equal hashes mean equal models only as far as `hash_covers` says.
    pub hash: Option<String>,
    /// What the hash covers, in words.
    #[serde(default)]
    pub hash_covers: Option<String>,
    /// Number of layers.
    pub n_layers: Option<u64>,
    /// Number of query heads a layer.
    pub n_heads: Option<u64>,
    /// Number of key/value heads a layer.
    pub n_kv_heads: Option<u64>,
    /// Width of one head.
    pub head_width: Option<u64>,
    /// Width of the residual stream.
    pub width: Option<u64>,
    /// Number of token ids.
    pub vocab_size: Option<u64>,
    /// Length in tokens the model was trained at, where its files or the literature say so.
    pub trained_length: Option<u64>,
    /// Whether a query sees only keys at or before its own position.
    pub causal: bool,
}

/// The precision plan a result was counted under.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlanInfo {
    /// The plan as the user wrote it: `NAME` or `NAME:DTYPE`; also the key in `plans` maps.
    pub plan: String,
    /// Format of the plan's inputs and outputs.
    pub dtype: String,
    /// A numerator `exp(s - max)` is zero when the gap exceeds this many nats.
    pub numerator_zero_nats: Option<f64>,
    /// A weight `exp(s - max)/sum` is zero when gap + ln(sum) exceeds this many nats; `null` when the plan never normalises
    /// before it casts.
    pub weight_zero_nats: Option<f64>,
    /// Every rounding of the plan, in order, with its source.
    pub steps: Vec<PlanStepInfo>,
}

impl PlanInfo {
    /// tau: the gap in nats beyond which a pair is blind in a row that attends to one key; the nearer of the plan's two thresholds. In
    /// other rows the weight's is nearer by the logarithm of the row's sum.
    #[must_use]
    pub fn tau_nats(&self) -> Option<f64> {
        let thresholds = [self.numerator_zero_nats, self.weight_zero_nats];
        thresholds.into_iter().flatten().reduce(f64::min)
    }
}

/// One rounding of a precision plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlanStepInfo {
    /// What is computed.
    pub what: String,
    /// The format its result is rounded to.
    pub format: String,
    /// Where that is known from.
    pub source: String,
}

/// The text a measurement ran over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TextInfo {
    /// Where it came from: a path, or `embedded`.
    pub source: String,
    /// Tokens used.
    pub tokens: u64,
    /// Tokens the source holds; larger than `tokens` when only the first part was used.
    pub tokens_available: u64,
    /// BLAKE3 hash of the used token ids, as little-endian `u32`.
    pub hash: String,
    /// How the ids were made: a tokenizer file, `bytes`, or `ids`.
    pub tokenizer: String,
    /// BLAKE3 hash of the tokenizer file; `null` where there is none.
    pub tokenizer_hash: Option<String>,
}

/// What every document starts with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Envelope {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The program.
    pub tool: Tool,
    /// The verb that was run.
    pub verb: String,
    /// The model; `null` when only head counts or slopes were given.
    pub model: Option<ModelInfo>,
    /// Key of the first plan; `null` where no plan applies.
    pub plan: Option<String>,
    /// Sequence length in tokens the result is about; `null` where none applies.
    pub length: Option<u64>,
    /// Seed of whatever was drawn at random; `null` when nothing was.
    pub seed: Option<u64>,
    /// The text; `null` when none was read.
    pub text: Option<TextInfo>,
}

impl Envelope {
    /// An envelope for `verb`, written by program version `version`, with everything else empty.
    #[must_use]
    pub fn new(verb: &str, version: &str) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool {
                name: "snellen".to_owned(),
                version: version.to_owned(),
            },
            verb: verb.to_owned(),
            model: None,
            plan: None,
            length: None,
            seed: None,
            text: None,
        }
    }
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Hurts some uses of the model.
    Warning,
    /// The model or the runtime does not do what it claims.
    Error,
}

impl Severity {
    /// `note`, `warning` or `error`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One defect that a check found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingRecord {
    /// Stable code, `SN001`.
    pub code: String,
    /// Readable name of the check, `blind-head`.
    pub name: String,
    /// How much it matters.
    pub severity: Severity,
    /// Layer, where the finding is about one.
    pub layer: Option<u64>,
    /// Head, where the finding is about one.
    pub head: Option<u64>,
    /// Plan it was counted under, where that matters.
    pub plan: Option<String>,
    /// The measured value; `null` where the check measures none or it is not finite.
    pub value: Option<f64>,
    /// The limit it was compared with.
    pub threshold: Option<f64>,
    /// What was found, in one sentence.
    pub message: String,
    /// The command to run next.
    pub next_command: Option<String>,
}

/// What one check came to: a check that looked at nothing is never clean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckRecord {
    /// Stable code, `SN001`.
    pub code: String,
    /// Readable name, `blind-head`.
    pub name: String,
    /// `checked`, `not-measured` or `not-applicable`.
    pub status: String,
    /// Things it looked at (heads, plans, configurations).
    pub items: u64,
    /// Why it was not measured or does not apply.
    pub reason: Option<String>,
    /// Number of its findings.
    pub findings: u64,
}

/// Something that was not checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Skipped {
    /// What was left out.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// What every document ends with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Outcome {
    /// Defects, worst first.
    pub findings: Vec<FindingRecord>,
    /// Every check and what it came to.
    pub checks: Vec<CheckRecord>,
    /// What was not checked, and why: "could not measure" is a result.
    pub skipped: Vec<Skipped>,
    /// Remarks that a reader of the numbers needs (defaults that were chosen, conventions, caveats).
    pub notes: Vec<String>,
}
