//! SN015: scores that are not numbers.

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind};
use crate::evidence::HeadEvidence;
use crate::finding::{Finding, Severity};

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN015",
    name: "not-finite",
    summary: "Rows of attention scores were NaN or infinite and were left out of the evidence.",
    measures: "Query rows of the head whose largest score or sum is not a finite number: in this tool's f32 forward pass, and under a plan whose formats the scores overflow.",
    why_it_matters: "Everything else said about the head, or about the plan, rests on the remaining rows, and the model's output is NaN wherever such a row is used.",
    threshold: "An error from the first such row on.",
    false_alarms: "None known: neither the f32 forward pass nor a runtime has a reason to overflow on healthy weights.",
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
    let finding = |head: &HeadEvidence, rows: u64, message: String| {
        Finding::new(&DOC, Severity::Error, message, context.command("audit", ""))
            .at(head.layer, head.head)
            .measured(rows as f64, 1.0)
    };
    let mut findings = Vec::new();
    for head in context.heads() {
        if head.non_finite_rows > 0 {
            let rows = head.non_finite_rows;
            let message = format!(
                "{rows} rows of scores are NaN or infinite; the head's numbers leave them out"
            );
            findings.push(finding(head, rows, message));
        }
        for plan in head.plans.iter().filter(|plan| plan.non_finite_rows > 0) {
            let message = format!(
                "the scores of {} of {} rows overflow under {}, so that its weights are NaN; its numbers leave them out",
                plan.non_finite_rows, head.rows, plan.plan
            );
            findings.push(finding(head, plan.non_finite_rows, message).under(&plan.plan));
        }
    }
    DOC.checked(
        context.heads().len() as u64,
        "no head was observed",
        findings,
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

    #[test]
    fn rows_that_overflow_under_a_plan_are_an_error_of_the_plan() {
        let facts = facts(Family::Bloom);
        let mut sick = head(0, 1);
        (
            sick.plans[0].non_finite_rows,
            sick.plans[0].non_finite_pairs,
        ) = (1, 1);
        let key = sick.plans[0].plan.clone();
        let evidence = evidence(vec![sick]);
        let mut context = context(&facts, &[]);
        context.evidence = Some(&evidence);
        let result = check(&context);
        assert_eq!(result.findings.len(), 1);
        assert_eq!(result.findings[0].plan, Some(key));
        assert_eq!(result.findings[0].severity, Severity::Error);
    }
}
