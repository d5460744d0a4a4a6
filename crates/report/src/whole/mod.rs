//! Whether a document that was read back is whole: a list that lost its entries must not read as a clean result.

use crate::document::Document;
use crate::schema::{EvalReport, ProbeReport, TrainReport};

/// Checks that the lists of a document are as long as its sums say.
///
/// # Errors
/// The first that is not, in one line.
pub(crate) fn check(document: &Document) -> Result<(), String> {
    match document {
        Document::Audit(report) => same("heads", report.heads.len(), report.summary.heads),
        Document::Measure(report) => same("heads", report.heads.len(), report.summary.heads),
        Document::Horizon(report) => report
            .plans
            .iter()
            .try_for_each(|plan| same("plans.heads", plan.heads.len(), plan.summary.heads)),
        Document::Probe(report) => probe(report),
        Document::Eval(report) => eval(report),
        Document::Train(report) => train(report),
        Document::Inspect(_) | Document::Study(_) | Document::Pair(_) | Document::Explain(_) => {
            Ok(())
        }
    }
}

/// Whether a result holds nothing that was looked at: no verdict can be given over it.
pub(crate) fn nothing_measured(document: &Document) -> bool {
    match document {
        Document::Audit(report) => report.heads.is_empty(),
        Document::Measure(report) => report.heads.is_empty(),
        Document::Horizon(report) => report.heads.is_empty(),
        Document::Probe(report) => report.cells.is_empty(),
        Document::Train(report) => report.steps.is_empty(),
        Document::Study(report) => report.tables.is_empty(),
        Document::Eval(report) => report.perplexity.is_none() && report.task.is_none(),
        Document::Inspect(_) | Document::Pair(_) | Document::Explain(_) => false,
    }
}

fn same(list: &str, found: usize, expected: u64) -> Result<(), String> {
    if found as u64 == expected {
        return Ok(());
    }
    Err(format!(
        "{list}: expected {expected} entries, as its sums say, found {found}: the document was cut or changed; run the verb again"
    ))
}

fn probe(report: &ProbeReport) -> Result<(), String> {
    same("cells", report.cells.len(), report.all.cells)?;
    report
        .cells
        .iter()
        .try_for_each(|cell| same("cells.results", cell.results.len(), cell.score.samples))
}

fn eval(report: &EvalReport) -> Result<(), String> {
    match (&report.perplexity, &report.task) {
        (Some(_), None) => Ok(()),
        (None, Some(task)) if task.outcomes.is_empty() => Ok(()),
        (None, Some(task)) => same("task.outcomes", task.outcomes.len(), task.items),
        _ => Err("expected either perplexity or task, found both or neither: the document was cut or changed".to_owned()),
    }
}

fn train(report: &TrainReport) -> Result<(), String> {
    let last = report.steps.last().map_or(0, |step| step.step);
    same("steps", report.steps.len(), report.run.steps_done)?;
    if last == report.run.steps_done {
        return Ok(());
    }
    Err(format!(
        "steps: expected the last to be {}, found {last}: the document was cut or changed",
        report.run.steps_done
    ))
}
