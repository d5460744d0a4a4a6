//! SN015: scores that are not numbers.

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind};
use crate::finding::{Finding, Severity};

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN015",
    name: "not-finite",
    summary: "Rows of attention scores were NaN or infinite and were left out of the evidence.",
    measures: "Query rows of the head, in this tool's f32 forward pass, whose largest score or sum is not a finite number.",
    why_it_matters: "Everything else said about the head rests on the remaining rows, and the model's output is NaN wherever such a row is used.",
    threshold: "An error from the first such row on.",
    false_alarms: "None known: the f32 forward pass has no reason to overflow on healthy weights.",
    remedies: &[(
        RemedyKind::Exact,
        "check the checkpoint for NaN weights (`snellen audit`) and compare its hash with the published one",
    )],
    references: &["https://github.com/Dao-AILab/flash-attention/issues/337 (NaN runs that exit 0)"],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    if context.evidence.is_none() {
        return DOC.not_measured("needs a text; run `snellen measure`");
    }
    let findings = context
        .heads()
        .iter()
        .filter(|head| head.non_finite_rows > 0)
        .map(|head| {
            let message = format!(
                "{} rows of scores are NaN or infinite; the head's numbers leave them out",
                head.non_finite_rows
            );
            Finding::new(&DOC, Severity::Error, message, context.command("audit", ""))
                .at(head.layer, head.head)
                .measured(head.non_finite_rows as f64, 1.0)
        });
    DOC.checked(
        context.heads().len() as u64,
        "no head was observed",
        findings.collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{context, evidence, facts, head};
    use numerics::Family;

    #[test]
    fn one_row_is_enough() {
        let facts = facts(Family::Bloom);
        let mut sick = head(1, 2);
        sick.non_finite_rows = 1;
        let evidence = evidence(vec![head(0, 0), sick]);
        let mut context = context(&facts, &[]);
        context.evidence = Some(&evidence);
        let result = check(&context);
        assert_eq!(result.findings.len(), 1);
        assert_eq!(
            (result.findings[0].layer, result.findings[0].head),
            (Some(1), Some(2))
        );
    }
}
