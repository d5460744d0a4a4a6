//! SN008: transformers' eager attention adds Falcon's bias twice.

use checkpoint::Note;
use numerics::PlanName;

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind, traps};
use crate::finding::Severity;

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN008",
    name: "falcon-double-bias",
    summary: "Under eager attention, transformers adds Falcon's position bias twice.",
    measures: "How often the plan adds the bias: the multiplicity of the slope against the 1 that the model was trained with.",
    why_it_matters: "Effective slopes double and every horizon halves. `sdpa` with output_attentions=True falls into the same branch, so measuring the attention changes it.",
    threshold: "Falcon with ALiBi under the plan hf-eager; a note for such a model under any other plan.",
    false_alarms: "transformers up to 4.44.2 gated the second addition; this tool models 4.45 to 5.24.",
    remedies: &[(
        RemedyKind::Exact,
        "use attn_implementation=\"sdpa\" with an explicit mask and without output_attentions, or vLLM",
    )],
    references: &[
        "transformers modeling_falcon.py, FalconAttention.forward and FalconModel, run on 4.46.3 and 5.24.0",
        "https://github.com/huggingface/transformers/issues/29067",
    ],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    let Some(note) = context
        .facts
        .notes
        .iter()
        .find(|note| **note == Note::FalconEagerDoubling)
    else {
        return DOC.not_applicable("not a Falcon model with ALiBi");
    };
    let found = traps::findings(
        &DOC,
        context,
        note,
        &[PlanName::HfEager],
        "hf-eager",
        Severity::Error,
        Some((2.0, 1.0)),
    );
    DOC.checked(context.plans.len().max(1) as u64, "", found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{context, facts, plans};
    use numerics::Family;

    #[test]
    fn an_error_under_eager_a_note_elsewhere_nothing_for_others() {
        let mut facts = facts(Family::Falcon);
        facts.notes = vec![Note::FalconEagerDoubling];
        for (specs, severities) in [
            (&["hf-eager:bf16", "hf-sdpa"][..], &[Severity::Error][..]),
            (&["hf-sdpa", "ftz"], &[Severity::Note]),
        ] {
            let plans = plans(Family::Falcon, specs);
            let result = check(&context(&facts, &plans));
            assert_eq!(
                result
                    .findings
                    .iter()
                    .map(|f| f.severity)
                    .collect::<Vec<_>>(),
                severities
            );
        }
        facts.notes.clear();
        assert!(matches!(
            check(&context(&facts, &[])).status,
            crate::CheckStatus::NotApplicable { .. }
        ));
    }

    #[test]
    fn the_plan_itself_counts_the_bias_twice() {
        let plans = plans(Family::Falcon, &["hf-eager", "hf-sdpa"]);
        assert_eq!(
            (plans[0].bias_multiplicity, plans[1].bias_multiplicity),
            (2, 1)
        );
    }
}
