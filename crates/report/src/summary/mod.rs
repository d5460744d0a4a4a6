//! A result in plain words: what is wrong, since which length, in which runtime, what to do. Shared by HTML and Markdown.

mod pair;
mod runs;
mod verbs;

pub(crate) use pair::{POINTS, amount, change};
pub(crate) use runs::cause;
pub(crate) use verbs::blind_pairs;

use crate::document::Document;
use crate::number::Distance;
use crate::schema::{FindingRecord, PairReport};
use audit::RemedyKind;

/// Remedies named at most; `explain` lists all of them.
const REMEDIES_SHOWN: usize = 4;

/// A result in plain words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// One sentence.
    pub headline: String,
    /// Whether something is wrong: for the tone, never for the exit code.
    pub wrong: bool,
    /// Further sentences: since which length, how the runtimes differ.
    pub facts: Vec<String>,
    /// The same numbers for every plan, or for every part of a grid.
    pub by_plan: Option<PlanTable>,
    /// What to do, safest first.
    pub todo: Vec<Todo>,
    /// Commands that show more, from the findings.
    pub next_commands: Vec<String>,
}

/// A small table with one line a plan, or a part of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanTable {
    /// Headings; the first column is the plan or the part.
    pub columns: Vec<&'static str>,
    /// Cells as they are shown; the first is the key of the plan.
    pub rows: Vec<Vec<String>>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Todo {
    /// `exact`, `output-changing` or `needs training`.
    pub safety: &'static str,
    /// What to do.
    pub action: &'static str,
    /// Code of the check it answers.
    pub code: &'static str,
}

/// `1 head`, `3 heads`.
#[must_use]
pub fn plural(count: u64, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

impl Summary {
    /// Sums up a result.
    #[must_use]
    pub fn of(document: &Document) -> Self {
        let mut summary = match document {
            Document::Horizon(report) => verbs::horizon(report),
            Document::Audit(report) => verbs::audit(report),
            Document::Measure(report) => verbs::measure(report),
            Document::Inspect(report) => verbs::inspect(report),
            Document::Eval(report) => runs::eval(report),
            Document::Probe(report) => runs::probe(report),
            Document::Train(report) => runs::train(report),
            Document::Study(report) => runs::study(report),
            Document::Pair(report) => pair::of(report),
            Document::Prompts(_) => Self {
                headline: "Prompts that were not run.".to_owned(),
                ..Self::default()
            },
            Document::Explain(report) => Self {
                headline: plural(report.checks.len() as u64, "check"),
                ..Self::default()
            },
        };
        let findings = document
            .outcome()
            .map(|outcome| outcome.findings.as_slice())
            .unwrap_or_default();
        summary.answer(findings);
        summary
    }

    /// Sums up a comparison.
    #[must_use]
    pub fn of_pair(report: &PairReport) -> Self {
        pair::of(report)
    }

    /// Adds remedies and next commands for what was found, worst first.
    fn answer(&mut self, findings: &[FindingRecord]) {
        let mut codes: Vec<&str> = Vec::new();
        for finding in findings {
            if !codes.contains(&finding.code.as_str()) {
                codes.push(&finding.code);
                self.next_commands.extend(finding.next_command.clone());
            }
        }
        self.next_commands.dedup();
        for code in codes {
            self.remedies_of(code);
        }
        let rank = |todo: &Todo| match todo.safety {
            safety if safety == RemedyKind::Exact.name() => 0,
            safety if safety == RemedyKind::OutputChanging.name() => 1,
            _ => 2,
        };
        // the worst code's remedies come first; of those that are kept, the safest
        self.todo.truncate(REMEDIES_SHOWN);
        self.todo.sort_by_key(rank);
    }

    fn remedies_of(&mut self, code: &str) {
        let Some(check) = ::audit::checks::find(code) else {
            return;
        };
        for (kind, action) in check.doc.remedies {
            let todo = Todo {
                safety: kind.name(),
                action,
                code: check.doc.code,
            };
            if self.todo.iter().all(|known| known.action != todo.action) {
                self.todo.push(todo);
            }
        }
    }
}

fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

fn place(layer: Option<u64>, head: u64) -> String {
    layer.map_or_else(
        || format!("head {head}"),
        |layer| format!("layer {layer}, head {head}"),
    )
}

/// The smallest of the distances and the item it belongs to.
fn least<T>(items: &[T], distance: impl Fn(&T) -> Option<Distance>) -> Option<(&T, Distance)> {
    let known = items
        .iter()
        .filter_map(|item| Some((item, distance(item)?)));
    known.min_by(|a, b| a.1.tokens().total_cmp(&b.1.tokens()))
}
