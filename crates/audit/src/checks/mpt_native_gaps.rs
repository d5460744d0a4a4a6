//! SN010: what else transformers' own MPT code does not do.

use checkpoint::Note;

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind, traps};
use crate::finding::Severity;
use numerics::Family;

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN010",
    name: "mpt-length-limit",
    summary: "transformers' own MPT code fails beyond max_seq_len, and drops settings it does not know.",
    measures: "Length asked about against max_seq_len; the settings qk_ln, qk_gn, kv_n_heads, logit_scale, attn_logit_softcapping, norm_type, ffn_act_fn, expansion_ratio and final_logit_softcapping of the configuration; biases in the checkpoint.",
    why_it_matters: "The bias table has max_seq_len entries, so a longer input ends in a shape error although ALiBi itself has no limit. Query/key norms, grouped heads, caps, RMSNorm, other activations, biases and the scale of logits are silently not there.",
    threshold: "Length above max_seq_len; any of the dropped settings. An error under hf-eager or hf-sdpa, a note under other plans.",
    false_alarms: "Loading with trust_remote_code runs the model's own code, which has none of these gaps.",
    remedies: &[(
        RemedyKind::Exact,
        "raise max_seq_len in the configuration for longer inputs; use llm-foundry or the model's own code for the dropped settings",
    )],
    references: &[
        "transformers modeling_mpt.py, run on 5.24.0",
        "https://github.com/mosaicml/llm-foundry/issues/331",
    ],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    if context.facts.family != Family::Mpt {
        return DOC.not_applicable("not an MPT model");
    }
    let mut found = Vec::new();
    for note in &context.facts.notes {
        let numbers = match note {
            Note::MptLengthLimit { max_seq_len } if context.length > *max_seq_len => {
                Some((context.length as f64, *max_seq_len as f64))
            }
            Note::MptKvHeadsIgnored { n_kv_heads } => {
                Some((*n_kv_heads as f64, context.facts.n_heads as f64))
            }
            Note::MptQkNormIgnored
            | Note::MptLogitScaleIgnored
            | Note::MptSoftCapIgnored { .. }
            | Note::MptSettingIgnored { .. } => None,
            _ => continue,
        };
        found.extend(traps::findings(
            &DOC,
            context,
            note,
            traps::TRANSFORMERS,
            "hf-eager",
            Severity::Error,
            numbers,
        ));
    }
    DOC.checked(1, "", found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{context, facts, plans};

    #[test]
    fn the_limit_counts_only_beyond_it() {
        let mut facts = facts(Family::Mpt);
        facts.notes = vec![Note::MptLengthLimit { max_seq_len: 2048 }];
        let plans = plans(Family::Mpt, &["hf-eager"]);
        let mut context = context(&facts, &plans);
        assert!(check(&context).is_clean());
        context.length = 2049;
        let result = check(&context);
        assert_eq!(
            (result.findings[0].value, result.findings[0].threshold),
            (Some(2049.0), Some(2048.0))
        );
    }

    #[test]
    fn dropped_settings_are_one_finding_each() {
        let mut facts = facts(Family::Mpt);
        facts.notes = vec![
            Note::MptQkNormIgnored,
            Note::MptKvHeadsIgnored { n_kv_heads: 8 },
        ];
        let plans = plans(Family::Mpt, &["foundry-torch"]);
        let result = check(&context(&facts, &plans));
        assert_eq!(
            result
                .findings
                .iter()
                .map(|f| f.severity)
                .collect::<Vec<_>>(),
            [Severity::Note, Severity::Note]
        );
    }
}
