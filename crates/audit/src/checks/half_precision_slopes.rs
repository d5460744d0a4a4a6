//! SN007: slopes that a 16-bit format cannot hold.

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind};
use crate::finding::{Finding, Severity};

/// Relative error of a slope from which it is reported: `2^-16`. Rounding to f32 stays far below (`2^-24`), and rounding a
/// slope that is not a power of two to 16 bits lies above it but for lucky ones.
const RELATIVE_ERROR: f64 = 1.0 / 65536.0;

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN007",
    name: "half-precision-slopes",
    summary: "A plan stores the slopes in a format that cannot hold them.",
    measures: "Relative error of each head's slope after rounding to the plan's slope format.",
    why_it_matters: "The error multiplies the distance: 0.3 % of a slope of 0.7 is 4 nats at 2048 tokens. Runtimes that keep f32 slopes at prefill and 16-bit ones at decode compute two different models.",
    threshold: "A relative error of 2^-16 or more, which no rounding to f32 reaches. Powers of two are exact in every format; head counts that are not powers of two and bias maxima other than 8 have others.",
    false_alarms: "A model trained with its slopes in that format (Jais, BTLM) expects exactly these values: then the plan is right and an f32 runtime is off.",
    remedies: &[(
        RemedyKind::Exact,
        "keep slopes in f32, or in whatever format training used, in every phase",
    )],
    references: &[
        "https://github.com/bigscience-workshop/Megatron-DeepSpeed/pull/101",
        "FasterTransformer and TensorRT-LLM decoder attention: slopes in the model's type",
    ],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    let Some(slopes) = context.slopes() else {
        return DOC.not_measured("the slope schedule gives no slopes for this number of heads");
    };
    let mut items = 0;
    let mut findings = Vec::new();
    for plan in context.plans.iter().filter(|plan| !plan.idealised) {
        for (head, &slope) in slopes.iter().enumerate() {
            items += 1;
            if slope == 0.0 {
                continue;
            }
            let effective = plan.effective_slope(slope, context.facts.score_scale);
            let slope = plan.runtime_slope(slope);
            let stored = plan.slope.round(slope);
            let error = (stored / slope - 1.0).abs();
            if error < RELATIVE_ERROR {
                continue;
            }
            let nats = error * effective * context.length as f64;
            let message = format!(
                "slope {slope:.6} becomes {stored:.6} in {}: off by {:.3} %, {nats:.2} nats at the far end of {} tokens",
                plan.slope.name(),
                100.0 * error,
                context.length
            );
            let next = context.command("horizon", &format!("--plan {}", plan.key()));
            findings.push(
                Finding::new(&DOC, Severity::Note, message, next)
                    .at_head(head)
                    .under(plan.key())
                    .measured(error, RELATIVE_ERROR),
            );
        }
    }
    let nothing = "no runtime plan was given; idealised plans (f64, ieee, ftz) keep slopes exact";
    DOC.checked(items, nothing, findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{context, facts, plans};
    use numerics::Family;

    #[test]
    fn powers_of_two_are_exact_and_others_are_not() {
        let facts = facts(Family::Jais);
        let plans = plans(Family::Jais, &["hf-eager:bf16", "hf-eager", "ftz"]);
        let result = check(&context(&facts, &plans));
        // 16 heads: 2^-0.5, 2^-1, 2^-1.5, ...: every other slope is a power of two. `ftz` is idealised and not judged.
        assert_eq!(result.status, crate::CheckStatus::Checked { items: 32 });
        let heads: Vec<_> = result.findings.iter().map(|f| f.head.unwrap()).collect();
        assert_eq!(heads, [0, 2, 4, 6, 8, 10, 12, 14]);
        assert!(
            result
                .findings
                .iter()
                .all(|f| f.plan.as_deref() == Some("hf-eager:bf16"))
        );
        // bf16 holds 0.70710678 as 0.70703125.
        let expected = 1.0 - 0.70703125 / 0.5_f64.sqrt();
        assert!((result.findings[0].value.unwrap() - expected).abs() < 1e-12);
    }

    #[test]
    fn only_idealised_plans_measure_nothing() {
        let facts = facts(Family::Bloom);
        let plans = plans(Family::Bloom, &["ftz"]);
        assert!(!check(&context(&facts, &plans)).is_clean());
    }
}
