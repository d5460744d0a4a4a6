//! SN013: runtimes that compute something else than the model was trained with.

use checkpoint::Note;
use numerics::PlanName;

use super::{AuditContext, CheckDoc, CheckResult, RemedyKind, traps};
use crate::finding::Severity;

pub(super) const DOC: CheckDoc = CheckDoc {
    code: "SN013",
    name: "runtime-trap",
    summary: "A runtime evaluates part of the model, outside the position bias, other than its reference does.",
    measures: "Settings of the configuration against what the runtime's source does with them: activation, norm, score scale, slope scaling, bias form at decode.",
    why_it_matters: "Scores and horizons measured here are those of the reference. The runtime's own differ, silently: vLLM runs BLOOM with the erf GELU, ignores MPT's softmax_scale and Jais' alibi_scaling; llama.cpp runs every GELU by the tanh form.",
    threshold: "The runtime is among the plans; a note for such a model under other plans.",
    false_alarms: "Sources were read, not run, and runtimes change: see docs/FAMILIES.md for the versions. The two GELU forms differ by less than 5e-4.",
    remedies: &[
        (
            RemedyKind::Exact,
            "use the reference implementation, or a version of the runtime in which this is repaired",
        ),
        (
            RemedyKind::OutputChanging,
            "accept it, after comparing the loss on held-out text",
        ),
    ],
    references: &[
        "vLLM bloom.py, mpt.py, jais.py",
        "llama.cpp ggml-cpu (GELU table), llama-arch (Refact norm)",
        "llm-foundry attention.py (flash decode)",
    ],
};

pub(super) fn check(context: &AuditContext<'_>) -> CheckResult {
    const VLLM_AND_LLAMA_CPP: &[PlanName] = &[
        PlanName::VllmPaged,
        PlanName::VllmTriton,
        PlanName::LlamaCppCpu,
        PlanName::LlamaCppCudaFa,
    ];
    let mut traps_known = 0;
    let mut found = Vec::new();
    for note in &context.facts.notes {
        let (runtime, spelling, severity): (&[PlanName], _, _) = match note {
            Note::BloomVllmActivation => (traps::VLLM, "vllm-paged", Severity::Warning),
            Note::AlibiScaling { .. } => (traps::VLLM, "vllm-paged", Severity::Error),
            Note::MptSoftmaxScaleDropped { .. } => {
                (VLLM_AND_LLAMA_CPP, "vllm-paged", Severity::Error)
            }
            Note::LlamaCppTanhGelu => (traps::LLAMA_CPP, "llama-cpp-cpu", Severity::Note),
            Note::RefactLlamaCppRmsNorm => (traps::LLAMA_CPP, "llama-cpp-cpu", Severity::Error),
            Note::MptFlashDecodeForm => {
                (&[PlanName::FlashAttn2], "flash-attn2:bf16", Severity::Note)
            }
            _ => continue,
        };
        traps_known += 1;
        found.extend(traps::findings(
            &DOC, context, note, runtime, spelling, severity, None,
        ));
    }
    if traps_known == 0 {
        return DOC.not_applicable("no such trap is known of this family and configuration");
    }
    DOC.checked(traps_known, "", found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{context, facts, plans};
    use numerics::Family;

    #[test]
    fn each_runtime_has_its_own_traps() {
        let mut facts = facts(Family::Mpt);
        facts.notes = vec![
            Note::MptSoftmaxScaleDropped { softmax_scale: 0.5 },
            Note::LlamaCppTanhGelu,
            Note::HalfPrecisionCollapse,
        ];
        let plans = plans(Family::Mpt, &["vllm-paged:f16", "hf-eager"]);
        let result = check(&context(&facts, &plans));
        let found: Vec<_> = result
            .findings
            .iter()
            .map(|f| (f.plan.as_deref(), f.severity))
            .collect();
        assert_eq!(
            found,
            [
                (Some("vllm-paged:f16"), Severity::Error),
                (None, Severity::Note)
            ]
        );
        assert_eq!(result.status, crate::CheckStatus::Checked { items: 2 });
    }
}
