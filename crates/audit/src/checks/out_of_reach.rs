//! SN012: the bias outweighs anything content has to offer.

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind};
use crate::finding::{Finding, Severity};

/// A head is reported where its effective horizon is below this share of the length.
const SHARE_OF_LENGTH: f64 = 0.25;

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN012",
    name: "out-of-reach",
    summary: "Content cannot outweigh the distance bias well before the end of the length.",
    measures: "Effective horizon: the first distance at which the bias exceeds the largest advantage in raw score that any pair had over its row's own diagonal on the text; for linear ALiBi, advantage / slope, tokens.",
    why_it_matters: "Beyond it nothing in this text could have drawn the head's attention away from the query's own position. In our calibration this, and not exact zeros, is where retrieval ends.",
    threshold: "A note for a head whose effective horizon is below a quarter of the length; a warning, once, where no head of the whole model reaches the length.",
    false_alarms: "Steep heads are local by design: only the model-wide warning is about the model. The text may simply not hold anything worth fetching from afar: measure one that does.",
    remedies: &[
        (
            RemedyKind::OutputChanging,
            "clamp the bias at inference near -10 to -12 nats, or interpolate the slopes, and measure retrieval and perplexity again",
        ),
        (
            RemedyKind::NeedsTraining,
            "train with flatter, clamped or log-scaled biases",
        ),
    ],
    references: &[
        "this project's calibration, see LOG.md: recall distance is about content margin over flattest slope",
    ],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    let Some(evidence) = context.evidence else {
        return DOC.not_measured("needs a text; run `snellen measure`");
    };
    let length = context.length as f64;
    let threshold = SHARE_OF_LENGTH * length;
    let mut items = 0;
    let mut findings = Vec::new();
    // `None` once a head reaches without end.
    let mut best = Some(0.0_f64);
    for head in &evidence.heads {
        let Some(advantage) = head.advantage.largest_over_diagonal else {
            continue;
        };
        items += 1;
        let horizon = match head.advantage.effective_horizon {
            Some(horizon) => horizon,
            // No advantage at all: nothing but the diagonal ever won.
            None if advantage <= 0.0 => 0.0,
            None => {
                best = None;
                continue;
            }
        };
        best = best.map(|best| best.max(horizon));
        if horizon >= threshold {
            continue;
        }
        let message = format!(
            "content never offered more than {advantage:.2} nats over the query's own position; at effective slope {:.6} that reaches {horizon:.0} of {} tokens",
            head.effective_slope, context.length
        );
        let next = "snellen explain SN012";
        findings.push(
            Finding::new(&DOC, Severity::Note, message, next)
                .at(head.layer, head.head)
                .measured(horizon, threshold),
        );
    }
    if let Some(best) = best.filter(|&best| items > 0 && best < length) {
        let message = format!(
            "no head reaches the end of {} tokens: the furthest effective horizon is {best:.0} tokens on this text, though the weights there need not be zero",
            context.length
        );
        let next = context.command("horizon", "--remedy clamp=-12");
        findings.insert(
            0,
            Finding::new(&DOC, Severity::Warning, message, next).measured(best, length),
        );
    }
    DOC.checked(items, "no head had a pair off the diagonal", findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{context, evidence, facts, head};
    use numerics::Family;

    #[test]
    fn one_far_head_silences_the_warning_about_the_model() {
        let facts = facts(Family::Bloom);
        let mut near = head(0, 0);
        near.advantage.effective_horizon = Some(16.0);
        for (other, found) in [
            (Some(3000.0), vec![Severity::Note]),
            (Some(900.0), vec![Severity::Warning, Severity::Note]),
            (None, vec![Severity::Note]),
        ] {
            let mut far = head(0, 1);
            far.advantage.effective_horizon = other;
            let evidence = evidence(vec![near.clone(), far]);
            let mut context = context(&facts, &[]);
            context.evidence = Some(&evidence);
            let severities: Vec<_> = check(&context)
                .findings
                .iter()
                .map(|f| f.severity)
                .collect();
            assert_eq!(severities, found, "{other:?}");
        }
    }
}
