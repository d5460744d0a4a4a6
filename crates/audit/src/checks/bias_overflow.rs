//! SN005: a bias that leaves its format.

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind, position_collapse};
use crate::finding::{Finding, Severity};

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN005",
    name: "bias-overflow",
    summary: "The stored bias becomes infinite within the length.",
    measures: "Smallest key position, or distance in the relative form, at which the plan's stored bias is not finite, per head.",
    why_it_matters: "A relative bias at minus infinity hides the key completely. A bias by key position goes to plus infinity, and the whole row turns to NaN: in f16 from position 65520 / slope on.",
    threshold: "An error where it happens within the length asked about.",
    false_alarms: "None known: the arithmetic is the runtime's own.",
    remedies: &[
        (
            RemedyKind::Exact,
            "use bf16 or f32 for the bias, or stay below the distance",
        ),
        (
            RemedyKind::OutputChanging,
            "clamp the bias (`--remedy clamp=-20`), which changes nothing a head could see at that distance",
        ),
    ],
    references: &[
        "transformers modeling_bloom.py in float16: NaN from position 65520 / slope",
        "https://github.com/ggml-org/llama.cpp (flash attention takes an f16 mask: -inf from distance 65520)",
    ],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    let Some(counts) = position_collapse::counts(context) else {
        return DOC.not_measured(
            "the slope schedule gives no slopes for this number of heads, or the length is 0",
        );
    };
    let items = counts.len() as u64;
    let length = context.length as f64;
    let mut findings = Vec::new();
    for (plan, head, slope, found) in counts {
        let Some(position) = found
            .overflow_position
            .filter(|&position| position < length)
        else {
            continue;
        };
        let slope = match slope {
            0.0..1e6 => format!("{slope:.6}"),
            _ => format!("{slope:e}"),
        };
        let message = format!(
            "the bias of slope {slope} is infinite in {} from position {position:.0} on, within {} tokens",
            plan.bias.storage.name(),
            context.length
        );
        let next = context.command(
            "horizon",
            &format!("--plan {} --length {:.0}", plan.key(), position.max(1.0)),
        );
        findings.push(
            Finding::new(&DOC, Severity::Error, message, next)
                .at_head(head)
                .under(plan.key())
                .measured(position, length),
        );
    }
    DOC.checked(items, "no plan was given", findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{context, facts, plans};
    use numerics::Family;

    #[test]
    fn f16_overflows_where_slope_times_position_reaches_65520() {
        let facts = facts(Family::Bloom);
        let plans = plans(Family::Bloom, &["hf-eager:f16", "hf-eager:bf16"]);
        let mut context = context(&facts, &plans);
        // f16 rounds to infinity from 65520 on; the steepest of 16 slopes is 2^-0.5.
        let first = (65520.0 / 0.5_f64.sqrt()).ceil();
        context.length = first as u64;
        assert!(check(&context).is_clean());
        context.length += 1;
        let result = check(&context);
        assert_eq!(result.findings.len(), 1);
        assert_eq!(result.findings[0].head, Some(0));
        assert_eq!(result.findings[0].value, Some(first));
    }
}
