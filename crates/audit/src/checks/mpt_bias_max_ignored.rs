//! SN009: transformers' own MPT ignores the bias maximum.

use checkpoint::Note;

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind, traps};
use crate::finding::Severity;

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN009",
    name: "mpt-bias-max-ignored",
    summary: "The configuration sets alibi_bias_max, and transformers' own MPT code ignores it.",
    measures: "alibi_bias_max of the configuration (the threshold) against the 8 that the runtime uses (the value).",
    why_it_matters: "With a maximum of 16 every slope is the square of what the runtime uses: the model runs with other, much steeper slopes than it was trained with, and its horizons shrink accordingly.",
    threshold: "Any value but 8, under hf-eager or hf-sdpa; a note for such a model under other plans.",
    false_alarms: "Loading with trust_remote_code runs the model's own code, which honours it: the plan to name is then foundry-torch.",
    remedies: &[(
        RemedyKind::Exact,
        "run llm-foundry or the model's own code (trust_remote_code), or vLLM, which honours alibi_bias_max",
    )],
    references: &[
        "transformers modeling_mpt.py, build_mpt_alibi_tensor: 8 and 16 give identical logits, run on 5.24.0",
    ],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    let notes = &context.facts.notes;
    let trap = notes.iter().find_map(|note| match note {
        Note::MptBiasMaxIgnored { bias_max } => Some((note, *bias_max)),
        _ => None,
    });
    let Some((note, bias_max)) = trap else {
        return DOC.not_applicable("not an MPT model with a bias maximum other than 8");
    };
    let found = traps::findings(
        &DOC,
        context,
        note,
        traps::TRANSFORMERS,
        "hf-eager",
        Severity::Error,
        Some((8.0, bias_max)),
    );
    DOC.checked(context.plans.len().max(1) as u64, "", found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{context, facts, plans};
    use numerics::Family;

    #[test]
    fn storywriter_under_transformers() {
        let mut facts = facts(Family::Mpt);
        facts.notes = vec![Note::MptBiasMaxIgnored { bias_max: 16.0 }];
        let plans = plans(Family::Mpt, &["hf-eager:bf16", "foundry-torch:bf16"]);
        let result = check(&context(&facts, &plans));
        assert_eq!(result.findings.len(), 1);
        let finding = &result.findings[0];
        assert_eq!((finding.value, finding.threshold), (Some(8.0), Some(16.0)));
        assert_eq!(
            (finding.severity, finding.plan.as_deref()),
            (Severity::Error, Some("hf-eager:bf16"))
        );
    }
}
