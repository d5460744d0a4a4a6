//! SN001: pairs whose weight is exactly zero.

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind};
use crate::finding::{Finding, Severity};

/// Share of blind pairs from which a finding is a warning: the head cannot see most of its context.
const WARNING_SHARE: f64 = 0.5;

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN001",
    name: "blind-head",
    summary: "A head gives weight exactly zero to pairs inside the mask, under the named plan.",
    measures: "Blind pairs over pairs of the head on the text, counted pair by pair under the plan's own rule; without a text, whether the certified horizon lies within the length.",
    why_it_matters: "What lies beyond the horizon cannot reach this head's output, whatever it says, and the gradient there is exactly zero too. The horizon depends on runtime and dtype, so the same weights see further in one place than in another.",
    threshold: "A note from the first blind pair on; a warning where half of the pairs are blind, or where the weights prove that everything past a distance within the length is. Thresholds of the exponential are derived from the formats, see `snellen horizon`.",
    false_alarms: "Steep heads are local by design and lose nothing they ever used: compare with reach_99 and with the head's effective horizon (SN012). A weight of 1e-45 is as useless as 0 in the forward pass, see SN011.",
    remedies: &[
        (
            RemedyKind::Exact,
            "run a plan that keeps smaller weights: f32 softmax with subnormals, no cast of normalised probabilities to f16",
        ),
        (
            RemedyKind::OutputChanging,
            "clamp the bias at inference (`--remedy clamp=-12`), or interpolate the slopes, and measure retrieval again",
        ),
        (
            RemedyKind::NeedsTraining,
            "train with a clamped or log-scaled bias, or with slopes spread over the context",
        ),
    ],
    references: &[
        "arXiv:2608.03994",
        "arXiv:2108.12409 (ALiBi)",
        "https://github.com/pytorch/pytorch/issues/98505 (weights never formed in fused attention)",
    ],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    if let Some(evidence) = context.evidence {
        let heads = &evidence.heads;
        let judged = heads
            .iter()
            .flat_map(|head| head.plans.iter().map(move |plan| (head, plan)));
        let mut items = 0;
        let mut findings = Vec::new();
        for (head, plan) in judged {
            let Some(share) = plan.blind_share() else {
                continue;
            };
            items += 1;
            if plan.blind_pairs == 0 {
                continue;
            }
            let (severity, threshold) = if share >= WARNING_SHARE {
                (Severity::Warning, WARNING_SHARE)
            } else {
                (Severity::Note, 0.0)
            };
            let first = plan.first_blind_distance.unwrap_or(0);
            let message = format!(
                "{:.1} % of the pairs have weight exactly zero under {}, the first at distance {first}: at slope {:.6} the exponential leaves its range (effective slope {:.6} nats a token)",
                100.0 * share,
                plan.plan,
                head.slope,
                head.effective_slope
            );
            let next = context.command(
                "audit",
                &format!(
                    "--plan {} --layers {} --heads {}",
                    plan.plan, head.layer, head.head
                ),
            );
            findings.push(
                Finding::new(&DOC, severity, message, next)
                    .at(head.layer, head.head)
                    .under(&plan.plan)
                    .measured(share, threshold),
            );
        }
        return DOC.checked(items, "the text has no pairs", findings);
    }
    let Some(certified) = context.certificates else {
        return DOC
            .not_measured("needs the weights or a text; run `snellen audit` or `snellen measure`");
    };
    let mut findings = Vec::new();
    for head in certified {
        let Some(horizon) = head
            .certified_horizon
            .filter(|&horizon| horizon + 1 < context.length)
        else {
            continue;
        };
        let message = format!(
            "every pair further than {horizon} tokens has weight exactly zero under {}, for any text: the weights bound the scores, and the bias outweighs the bound",
            head.plan
        );
        let next = context.command(
            "measure",
            &format!(
                "--plan {} --layers {} --heads {}",
                head.plan, head.layer, head.head
            ),
        );
        findings.push(
            Finding::new(&DOC, Severity::Warning, message, next)
                .at(head.layer, head.head)
                .under(&head.plan)
                .measured(horizon as f64, context.length as f64),
        );
    }
    DOC.checked(certified.len() as u64, "no head was certified", findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{context, evidence, facts, head};
    use crate::checks::{CertifiedHead, CheckStatus};
    use numerics::Family;

    #[test]
    fn blind_pairs_are_a_note_and_most_of_them_a_warning() {
        let facts = facts(Family::Bloom);
        let mut heads = vec![head(0, 0), head(0, 1), head(1, 0)];
        heads[0].plans[0].blind_pairs = 1;
        heads[0].plans[0].first_blind_distance = Some(124);
        heads[1].plans[0].blind_pairs = heads[1].pairs / 2 + 1;
        let evidence = evidence(heads);
        let mut context = context(&facts, &[]);
        context.evidence = Some(&evidence);
        let result = check(&context);
        assert_eq!(result.status, CheckStatus::Checked { items: 3 });
        let found: Vec<_> = result
            .findings
            .iter()
            .map(|f| (f.layer, f.head, f.severity))
            .collect();
        assert_eq!(
            found,
            [
                (Some(0), Some(0), Severity::Note),
                (Some(0), Some(1), Severity::Warning)
            ]
        );
        assert!(result.findings[0].message.contains("distance 124"));
        assert_eq!(result.findings[0].plan.as_deref(), Some("ftz"));
    }

    #[test]
    fn weights_alone_speak_only_where_they_prove_something_within_the_length() {
        let facts = facts(Family::Bloom);
        let certified: Vec<_> = [Some(100), Some(4095), None]
            .into_iter()
            .enumerate()
            .map(|(head, certified_horizon)| CertifiedHead {
                layer: 0,
                head,
                plan: "ieee".into(),
                guaranteed_visible: None,
                expected_horizon: None,
                certified_horizon,
            })
            .collect();
        let mut context = context(&facts, &[]);
        context.length = 4096;
        context.certificates = Some(&certified);
        let result = check(&context);
        assert_eq!(result.findings.len(), 1);
        assert_eq!(result.findings[0].value, Some(100.0));
    }

    #[test]
    fn nothing_to_look_at_is_not_clean() {
        let facts = facts(Family::Bloom);
        assert!(!check(&context(&facts, &[])).is_clean());
        let empty = evidence(Vec::new());
        let mut context = context(&facts, &[]);
        context.evidence = Some(&empty);
        assert!(!check(&context).is_clean());
    }
}
