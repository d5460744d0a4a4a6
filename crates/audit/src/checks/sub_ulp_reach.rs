//! SN011: weights that are not zero and might as well be.

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind};
use crate::finding::{Finding, Severity};

/// Share of pairs below `2^-24` of the row sum from which the head is reported.
const SHARE: f64 = 0.5;

/// How far the share must exceed that of the exact zeros: otherwise SN001 has said it already.
const BEYOND_BLIND: f64 = 0.1;

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN011",
    name: "sub-ulp-reach",
    summary: "Most pairs of a head have a weight that is not zero and yet too small to change an f32 sum.",
    measures: "Share of pairs whose weight is below 2^-24 of the row sum, in the model's own f32 attention, beside the share of exact zeros under each plan.",
    why_it_matters: "Exact zeros are the visible end of a long fade. A weight of 1e-30 passes every test for zero and does as little; a remedy that only lifts weights off zero, such as a clamp at the threshold, changes nothing but this count.",
    threshold: "More than half of the pairs below 2^-24, and at least 10 % of the pairs more than are exactly zero under the plan with the most zeros.",
    false_alarms: "A head that attends sharply to one far token also leaves most pairs below 2^-24: look at reach_99.",
    remedies: &[
        (
            RemedyKind::OutputChanging,
            "a clamp between -10 and -12 nats at inference, which is above what content can offer, and measure retrieval again",
        ),
        (RemedyKind::NeedsTraining, "flatter or log-scaled biases"),
    ],
    references: &["arXiv:2608.03994"],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    if context.evidence.is_none() {
        return DOC.not_measured("needs a text; run `snellen measure`");
    }
    let mut items = 0;
    let mut findings = Vec::new();
    for head in context.heads() {
        let Some(share) = head.share_below_f32_ulp else {
            continue;
        };
        items += 1;
        let blind = head
            .plans
            .iter()
            .filter_map(|plan| plan.blind_share())
            .fold(0.0, f64::max);
        if share <= SHARE || share - blind < BEYOND_BLIND {
            continue;
        }
        let message = format!(
            "{:.1} % of the pairs weigh less than 2^-24 of their row and cannot change an f32 sum, though at most {:.1} % are exactly zero",
            100.0 * share,
            100.0 * blind
        );
        let next = context.command("horizon", "--remedy clamp=-12");
        findings.push(
            Finding::new(&DOC, Severity::Note, message, next)
                .at(head.layer, head.head)
                .measured(share, SHARE),
        );
    }
    DOC.checked(items, "the text has no pairs", findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{context, evidence, facts, head};
    use numerics::Family;

    #[test]
    fn speaks_only_where_exact_zeros_do_not_say_it_already() {
        let facts = facts(Family::Bloom);
        let mut heads: Vec<_> = (0..3).map(|index| head(0, index)).collect();
        for head in &mut heads {
            head.share_below_f32_ulp = Some(0.8);
        }
        heads[1].plans[0].blind_pairs = heads[1].pairs * 3 / 4;
        heads[2].share_below_f32_ulp = Some(0.5);
        let evidence = evidence(heads);
        let mut context = context(&facts, &[]);
        context.evidence = Some(&evidence);
        let result = check(&context);
        assert_eq!(
            result.findings.iter().map(|f| f.head).collect::<Vec<_>>(),
            [Some(0)]
        );
    }
}
