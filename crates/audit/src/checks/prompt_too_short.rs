//! SN014: a text on which sinks cannot be told from the first rows.

use super::context::{SINK_BASELINE_MAX, SinkRefusal};
use super::{AuditContext, CheckDoc, CheckResult, RemedyKind};
use crate::finding::{Finding, Severity};

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN014",
    name: "prompt-too-short",
    summary: "The text is too short for a verdict on sink and dead heads, so none is given.",
    measures: "The share of its mass that uniform attention puts on key 0, mean over the queries after it: (H(T) - 1)/(T - 1) for T tokens.",
    why_it_matters: "Early rows have few keys and put mass on the first by necessity. On a prompt of 50 tokens a healthy head looks 7 % sick and a dead one less than dead.",
    threshold: "0.05, reached below 81 tokens: with more, even a head with all of its mass on key 0 would stay under the 0.95 of a dead head once the baseline is taken off.",
    false_alarms: "None for what it says: no verdict. Nothing is claimed about the heads.",
    remedies: &[(
        RemedyKind::Exact,
        "measure a longer text: 81 tokens at the least, 512 for steady numbers",
    )],
    references: &["arXiv:2603.09616 (probe of about 50 tokens)"],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    match context.sink_refusal() {
        Some(SinkRefusal::Encoder) => DOC.not_applicable(SinkRefusal::Encoder.reason()),
        Some(SinkRefusal::NoEvidence) => DOC.not_measured(SinkRefusal::NoEvidence.reason()),
        Some(SinkRefusal::TooShort(baseline)) => {
            let message = format!(
                "a text of length {} is too short to tell a sink from the first rows, where every head puts mass on the first token by necessity; sink-head and dead-head give no verdict",
                context.length
            );
            let next = context.command("measure", "--length 512");
            let finding = Finding::new(&DOC, Severity::Note, message, next)
                .measured(baseline.unwrap_or(f64::NAN), SINK_BASELINE_MAX);
            DOC.checked(1, "", vec![finding])
        }
        None => DOC.checked(1, "", Vec::new()),
    }
}
