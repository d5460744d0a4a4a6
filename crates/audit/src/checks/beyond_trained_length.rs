//! SN006: longer than anything the model was trained on.

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind};
use crate::finding::{Finding, Severity};

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN006",
    name: "beyond-trained-length",
    summary: "The length asked about exceeds the longest sequence of training.",
    measures: "Length in tokens against the training length that the configuration states.",
    why_it_matters: "ALiBi keeps perplexity flat past the training length, mostly by looking no further than before: no head has ever been rewarded for what lies there. This is a matter of data, not of number formats, and no plan repairs it.",
    threshold: "Any length above the trained one.",
    false_alarms: "Some configurations state a serving limit, not the training length, and fine-tuning at greater length is rarely recorded.",
    remedies: &[
        (
            RemedyKind::Exact,
            "ask about the trained length, to see what the model was built for",
        ),
        (
            RemedyKind::OutputChanging,
            "interpolate the slopes by trained/asked length (`--remedy interpolate=0.5` for twice the length): reported good to about 2x untuned",
        ),
        (
            RemedyKind::NeedsTraining,
            "continue training at the length you need",
        ),
    ],
    references: &[
        "arXiv:2108.12409 (ALiBi)",
        "https://github.com/mosaicml/llm-foundry/issues/331",
        "https://github.com/mosaicml/llm-foundry/issues/365",
    ],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    let Some(trained) = context.facts.trained_length else {
        return DOC.not_measured("the configuration does not state a training length");
    };
    let mut findings = Vec::new();
    if context.length > trained {
        let message = format!(
            "{} tokens are beyond the {trained} the model was trained at: what a head does with the distances in between was never learned",
            context.length
        );
        let next = context.command("horizon", &format!("--length {trained}"));
        findings.push(
            Finding::new(&DOC, Severity::Warning, message, next)
                .measured(context.length as f64, trained as f64),
        );
    }
    DOC.checked(1, "", findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{context, facts};
    use numerics::Family;

    #[test]
    fn fires_one_token_beyond_and_says_so_where_it_cannot_know() {
        let mut facts = facts(Family::Bloom);
        for (length, found) in [(2048, 0), (2049, 1)] {
            let mut context = context(&facts, &[]);
            context.length = length;
            assert_eq!(check(&context).findings.len(), found);
        }
        facts.trained_length = None;
        assert!(!check(&context(&facts, &[])).is_clean());
    }
}
