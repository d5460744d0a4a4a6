//! Certificates from weights, evidence from texts, the checks that read them; evaluation and retrieval probes.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod bounds;
pub mod certificate;
pub mod checks;
pub mod eval;
pub mod evidence;
pub mod finding;
pub mod probe;

pub use bounds::{
    BoundMethod, BoundsOptions, HeadBounds, ProjectionRounding, VOCABULARY_FLOPS_DEFAULT,
    static_bounds,
};
pub use certificate::{CertificateInput, HeadCertificate, certify, certify_all};
pub use checks::{
    AuditContext, CertifiedHead, Check, CheckDoc, CheckResult, CheckStatus, RemedyKind,
};
pub use evidence::{
    ContentAdvantage, Evidence, EvidenceCollector, EvidenceOptions, HeadEvidence, PlanEvidence,
};
pub use finding::{Finding, Severity};
