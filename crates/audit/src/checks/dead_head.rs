//! SN004: practically all of the mass on the first token.

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind, sink_head};

/// Key-0 mass above the baseline from which a head is dead.
pub(super) const DEAD_MASS: f64 = 0.95;

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN004",
    name: "dead-head",
    summary: "A head puts practically all of its attention mass on the first token.",
    measures: "Mean weight on key 0 over the queries after it, less what uniform attention would put there, (H(T) - 1)/(T - 1).",
    why_it_matters: "The head adds the same vector at every position: it costs time and memory and does nothing with the text. It is learned, not a numerical failure.",
    threshold: "More than 0.95 above the baseline. No verdict is given where the baseline itself exceeds 0.05 (SN014) or for encoders.",
    false_alarms: "A head may be dead on this text and alive on another (code, other languages): measure a second text before surgery.",
    remedies: &[
        (
            RemedyKind::OutputChanging,
            "remove the head, if the loss on held-out text does not move",
        ),
        (
            RemedyKind::NeedsTraining,
            "re-initialise the head's query, key and value rows, zero its output columns, train with the rest frozen, and report held-out loss",
        ),
    ],
    references: &["arXiv:2603.09616 (head collapse and repair)"],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    sink_head::judge(context, &DOC, DEAD_MASS, f64::INFINITY)
}
