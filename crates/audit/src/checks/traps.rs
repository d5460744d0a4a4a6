//! What the checks of configuration traps share: a trap fires under the plans of the runtime that has it, and is a note
//! where the model has the trap but no such plan was asked for.

use checkpoint::Note;
use numerics::PlanName;

use super::{AuditContext, CheckDoc};
use crate::finding::{Finding, Severity};

/// Findings for one trap. `runtime` are the plans of the runtime that has it, `spelling` one of them to try. The value and
/// threshold are what the runtime uses and what the configuration says, if the trap is a number.
pub(super) fn findings(
    doc: &'static CheckDoc,
    context: &AuditContext<'_>,
    note: &Note,
    runtime: &[PlanName],
    spelling: &str,
    severity: Severity,
    numbers: Option<(f64, f64)>,
) -> Vec<Finding> {
    let with_numbers = |finding: Finding| match numbers {
        Some((value, threshold)) => finding.measured(value, threshold),
        None => finding,
    };
    let concerned: Vec<_> = context
        .plans
        .iter()
        .filter(|plan| runtime.contains(&plan.name))
        .collect();
    if concerned.is_empty() {
        // closed forms, where that is what is being looked at: they work for every family and need no weights
        let closed_form = context.certificates.is_none() && context.evidence.is_none();
        let verb = if closed_form { "horizon" } else { "audit" };
        let next = context.command(verb, &format!("--plan {spelling}"));
        return vec![with_numbers(Finding::new(
            doc,
            Severity::Note,
            note.text(),
            next,
        ))];
    }
    concerned
        .into_iter()
        .map(|plan| {
            let next = format!("snellen explain {}", doc.code);
            with_numbers(Finding::new(doc, severity, note.text(), next).under(plan.key()))
        })
        .collect()
}

/// Plans that are Hugging Face transformers.
pub(super) const TRANSFORMERS: &[PlanName] = &[PlanName::HfEager, PlanName::HfSdpa];
/// Plans that are vLLM.
pub(super) const VLLM: &[PlanName] = &[PlanName::VllmPaged, PlanName::VllmTriton];
/// Plans that are llama.cpp.
pub(super) const LLAMA_CPP: &[PlanName] = &[PlanName::LlamaCppCpu, PlanName::LlamaCppCudaFa];
