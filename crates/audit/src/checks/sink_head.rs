//! SN003: most of the mass on the first token.

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind, dead_head};
use crate::checks::context::SinkRefusal;
use crate::finding::{Finding, Severity};

/// Key-0 mass above the baseline from which a head is a sink.
pub(super) const SINK_MASS: f64 = 0.5;

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN003",
    name: "sink-head",
    summary: "A head puts most of its attention mass on the first token.",
    measures: "Mean weight on key 0 over the queries after it, less what uniform attention would put there, (H(T) - 1)/(T - 1).",
    why_it_matters: "A sink head moves little information; it is learned, not a numerical failure, and no runtime or dtype changes it. Under ALiBi it is found among the shallowest slopes, which are also the only ones that could reach far.",
    threshold: "More than 0.5 and at most 0.95 above the baseline; above that see SN004. No verdict is given where the baseline itself exceeds 0.05 (SN014) or for encoders.",
    false_alarms: "Sinks can be useful as a way to do nothing on most tokens: a text of another kind may wake the head. Texts that repeat their first token spread its share.",
    remedies: &[
        (
            RemedyKind::Exact,
            "nothing is broken numerically; exclude the head when you judge the reach of the model",
        ),
        (
            RemedyKind::NeedsTraining,
            "re-initialise the head's query, key and value rows, zero its output columns, train with the rest frozen, and report held-out loss",
        ),
    ],
    references: &[
        "arXiv:2603.09616 (head collapse and repair)",
        "arXiv:2309.17453 (attention sinks)",
    ],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    judge(context, &DOC, SINK_MASS, dead_head::DEAD_MASS)
}

/// Findings for heads whose key-0 mass above the baseline lies in `(above, up_to]`.
pub(super) fn judge(
    context: &AuditContext<'_>,
    doc: &'static CheckDoc,
    above: f64,
    up_to: f64,
) -> CheckResult {
    match context.sink_refusal() {
        Some(SinkRefusal::Encoder) => return doc.not_applicable(SinkRefusal::Encoder.reason()),
        Some(refusal) => return doc.not_measured(refusal.reason()),
        None => {}
    }
    let mut items = 0;
    let mut findings = Vec::new();
    for head in context.heads() {
        let Some(excess) = head.key0_excess() else {
            continue;
        };
        items += 1;
        if excess <= above || excess > up_to {
            continue;
        }
        let message = format!(
            "{:.1} % of the attention mass lies on the first token (uniform attention would put {:.1} % there): {}; learned, not numerical",
            100.0 * head.key0_mass.unwrap_or(excess),
            100.0 * head.key0_baseline.unwrap_or(0.0),
            if up_to > 1.0 {
                "the head does next to nothing else"
            } else {
                "a sink"
            },
        );
        let next = context.command(
            "measure",
            &format!("--layers {} --heads {}", head.layer, head.head),
        );
        findings.push(
            Finding::new(doc, Severity::Warning, message, next)
                .at(head.layer, head.head)
                .measured(excess, above),
        );
    }
    doc.checked(items, "no head had a query after its first key", findings)
}

#[cfg(test)]
mod tests {
    use crate::checks::testing::{context, evidence, facts, head};
    use crate::checks::{CheckStatus, dead_head, prompt_too_short};
    use numerics::Family;

    #[test]
    fn sink_and_dead_are_kept_apart_and_the_baseline_is_taken_off() {
        let facts = facts(Family::Bloom);
        let masses = [0.50, 0.51, 0.95, 0.96, 1.0];
        let heads = masses.iter().enumerate().map(|(index, &mass)| {
            let mut head = head(0, index);
            head.key0_mass = Some(mass);
            head.key0_baseline = Some(0.004);
            head
        });
        let evidence = evidence(heads.collect());
        let mut context = context(&facts, &[]);
        context.evidence = Some(&evidence);
        let places = |result: crate::CheckResult| {
            result
                .findings
                .iter()
                .map(|f| f.head.unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(places(super::check(&context)), [1, 2]);
        assert_eq!(places(dead_head::check(&context)), [3, 4]);
        assert!(prompt_too_short::check(&context).is_clean());
    }

    #[test]
    fn short_prompts_and_encoders_get_no_verdict() {
        let mut facts = facts(Family::Bloom);
        let mut sick = head(0, 0);
        sick.key0_mass = Some(1.0);
        sick.key0_baseline = Some(0.0715);
        let evidence = evidence(vec![sick]);
        {
            let mut context = context(&facts, &[]);
            context.evidence = Some(&evidence);
            for result in [super::check(&context), dead_head::check(&context)] {
                assert!(result.findings.is_empty() && !result.is_clean());
                assert!(matches!(result.status, CheckStatus::NotMeasured { .. }));
            }
            assert_eq!(prompt_too_short::check(&context).findings.len(), 1);
        }
        facts.causal = false;
        let mut context = context(&facts, &[]);
        context.evidence = Some(&evidence);
        assert!(matches!(
            super::check(&context).status,
            CheckStatus::NotApplicable { .. }
        ));
        assert!(prompt_too_short::check(&context).findings.is_empty());
    }
}
