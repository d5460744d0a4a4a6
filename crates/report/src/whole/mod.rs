//! Whether a document that was read back is whole: a list that lost its entries must not read as a clean result, and numbers that contradict
//! one another must not be drawn.

mod counts;
mod ranges;

mod certificates;
mod measured;
mod pair;
mod probe;
mod study;
mod trial;

use crate::document::Document;
use crate::schema::{EvalReport, TrainReport};
use std::fmt::Display;

/// Checks that the lists of a document are as long as its sums say.
///
/// # Errors
/// The first that is not, in one line.
pub(crate) fn check(document: &Document) -> Result<(), String> {
    document.outcome().map_or(Ok(()), counts::findings)?;
    match document {
        Document::Audit(report) => {
            same("heads", report.heads.len(), report.summary.heads)?;
            certificates::audit(report)
        }
        Document::Measure(report) => {
            same("heads", report.heads.len(), report.summary.heads)?;
            counts::measure(report)?;
            measured::heads(report)
        }
        Document::Horizon(report) => {
            for plan in &report.plans {
                same("plans.heads", plan.heads.len(), plan.summary.heads)?;
            }
            counts::horizon(report)
        }
        Document::Probe(report) => {
            ranges::probe(report)?;
            probe::report(report)
        }
        Document::Eval(report) => {
            eval(report)?;
            ranges::eval(report)
        }
        Document::Train(report) => {
            train(report)?;
            counts::train(report)
        }
        Document::Study(report) => {
            ranges::study(report)?;
            study::report(report)
        }
        Document::Pair(report) => pair::report(report),
        Document::Inspect(_) | Document::Prompts(_) | Document::Explain(_) => Ok(()),
    }
}

/// One line about a field that cannot be as it is.
fn broken(field: impl Display, expected: impl Display, found: impl Display) -> String {
    format!(
        "{field}: expected {expected}, found {found}: the document was cut or changed; run the verb again"
    )
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
        Document::Prompts(report) => report.cells.is_empty(),
        Document::Inspect(_) | Document::Pair(_) | Document::Explain(_) => false,
    }
}

fn same(list: &str, found: usize, expected: u64) -> Result<(), String> {
    if found as u64 == expected {
        return Ok(());
    }
    let expected = format!("{expected} entries, as its sums say");
    Err(broken(list, expected, found))
}

/// A number in such a line.
fn shown(value: Option<f64>) -> String {
    value.map_or("null".to_owned(), |value| value.to_string())
}

/// A head in such a line.
fn place(layer: u64, head: u64) -> String {
    format!("heads (layer {layer}, head {head})")
}

/// Whether a number is what the rest of the document gives. Sums in another order may differ in their last bits.
fn close(what: &str, expected: Option<f64>, found: Option<f64>) -> Result<(), String> {
    /// Relative; sums of thousands of numbers keep twelve digits.
    const OFF: f64 = 1e-9;
    match (expected, found) {
        (None, None) => Ok(()),
        (Some(a), Some(b)) if (a - b).abs() <= OFF * a.abs().max(b.abs()).max(1e-300) => Ok(()),
        _ => Err(broken(what, shown(expected), shown(found))),
    }
}

/// Whether every entry of a list is there once; the first that is there twice is named.
fn once<K: Ord + std::fmt::Debug>(
    list: &str,
    keys: impl IntoIterator<Item = K>,
) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    for key in keys {
        if seen.contains(&key) {
            return Err(format!(
                "{list}: {key:?} is there twice: the document was changed"
            ));
        }
        seen.insert(key);
    }
    Ok(())
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
    let expected = format!("the last to be {}", report.run.steps_done);
    Err(broken("steps", expected, last))
}
