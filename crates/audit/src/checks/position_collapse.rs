//! SN002: neighbouring keys that get the same stored bias.

use numerics::collapse::SAMPLE_KEYS;
use numerics::{Collapse, PrecisionPlan, ScoreSpec, collapse};

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind};
use crate::finding::{Finding, Severity};

/// Different values among the last 20 keys below which a finding is a warning: half of the keys, on average, share theirs.
const WARNING_BELOW: u64 = 10;

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN002",
    name: "position-collapse",
    summary: "Different distances get the same stored bias, because its format has too few significand bits.",
    measures: "Different stored biases among the last 20 keys of the last row (the nearest, in a bias by key position), for the plan's formation of the bias and the length asked about.",
    why_it_matters: "Keys that share a bias cannot be told apart by position, and score differences below one step of the format are rounded away with it. A bias by key position rounds the newest keys worst, exactly those that matter most.",
    threshold: "A note where fewer than 20 of 20 differ, a warning where fewer than 10 do. The far end of a relative bias may collapse without a finding: no head looks there.",
    false_alarms: "A model trained with such a bias has learned to live with it: BLOOM was. An exact f32 run is then not automatically more faithful for the steep heads.",
    remedies: &[
        (
            RemedyKind::Exact,
            "form the bias in f32 and add it to f32 scores, or use the relative form, if the model was trained so",
        ),
        (
            RemedyKind::OutputChanging,
            "the same, for a model that was trained with the collapsed bias: compare the loss before and after",
        ),
    ],
    references: &[
        "https://github.com/bigscience-workshop/Megatron-DeepSpeed/pull/101",
        "https://github.com/Dao-AILab/flash-attention/issues/845",
        "transformers modeling_bloom.py, build_alibi_tensor",
    ],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    let Some(counts) = counts(context) else {
        return DOC.not_measured(
            "the slope schedule gives no slopes for this number of heads, or the length is 0",
        );
    };
    let expected = SAMPLE_KEYS.min(context.length);
    let items = counts.len() as u64;
    let findings = counts.into_iter().filter(|(_, _, _, found)| found.distinct_last_20 < expected).map(
        |(plan, head, slope, found)| {
            let severity = if found.distinct_last_20 < WARNING_BELOW.min(expected) { Severity::Warning } else { Severity::Note };
            let message = format!(
                "the last {expected} keys have {} different biases at {} tokens: slope {slope:.6} by position in {} leaves no room for the rest",
                found.distinct_last_20,
                context.length,
                plan.bias.storage.name()
            );
            let next = context.command("horizon", &format!("--plan {} --convention relative", plan.key()));
            Finding::new(&DOC, severity, message, next)
                .at_head(head)
                .under(plan.key())
                .measured(found.distinct_last_20 as f64, expected as f64)
        },
    );
    DOC.checked(items, "no plan was given", findings.collect())
}

/// Collapse of every head with a slope under every plan. A head without slope has no positions to lose.
pub(super) fn counts<'a>(
    context: &AuditContext<'a>,
) -> Option<Vec<(&'a PrecisionPlan, usize, f64, Collapse)>> {
    let slopes = context.slopes()?;
    if context.length == 0 {
        return None;
    }
    let heads = || {
        slopes
            .iter()
            .copied()
            .enumerate()
            .filter(|&(_, slope)| slope != 0.0)
    };
    Some(
        context
            .plans
            .iter()
            .flat_map(|plan| heads().map(move |(head, slope)| (plan, head, slope)))
            .map(|(plan, head, slope)| {
                let spec = ScoreSpec {
                    bias: &context.facts.bias,
                    head,
                    slope,
                    scale: context.facts.score_scale,
                    causal: context.facts.causal,
                    length: context.length,
                };
                (plan, head, slope, collapse(plan, &spec))
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{context, facts, plans};
    use numerics::{Family, SlopeSchedule};

    #[test]
    fn the_counts_of_the_survey() {
        // docs/NUMERICS.md, Position collapse: 32 heads, head 0, last 20 keys, f16 / bf16 at 2048: 17 / 3.
        let mut facts = facts(Family::Bloom);
        facts.n_heads = 32;
        facts.slopes = SlopeSchedule::Press;
        let plans = plans(
            Family::Bloom,
            &["hf-eager:f16", "hf-eager:bf16", "hf-eager"],
        );
        let result = check(&context(&facts, &plans));
        let head0: Vec<_> = result
            .findings
            .iter()
            .filter(|f| f.head == Some(0))
            .map(|f| (f.plan.as_deref().unwrap(), f.value.unwrap(), f.severity))
            .collect();
        assert_eq!(
            head0,
            [
                ("hf-eager:f16", 17.0, Severity::Note),
                ("hf-eager:bf16", 3.0, Severity::Warning)
            ]
        );
        assert_eq!(result.status, crate::CheckStatus::Checked { items: 96 });
    }

    #[test]
    fn the_relative_form_and_f32_keep_the_nearest_keys_apart() {
        let facts = facts(Family::Bloom);
        let plans = plans(
            Family::Bloom,
            &["llama-cpp-cpu", "vllm-paged:bf16", "hf-eager"],
        );
        assert!(check(&context(&facts, &plans)).is_clean());
        assert!(!check(&context(&facts, &[])).is_clean());
    }
}
