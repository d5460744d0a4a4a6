//! What stands at the end of the page: where plans round, settings, remarks, and what became of each check.

use super::escape::{escape_html, name, prose};
use crate::document::Document;
use crate::number::short;
use crate::schema::{InspectReport, Outcome, PlanInfo, ProbeSettings};
use std::fmt::Write as _;

pub(super) fn details(document: &Document) -> String {
    match document {
        Document::Pair(pair) => {
            let mut out = String::new();
            for (letter, side) in [("A", &pair.a), ("B", &pair.b)] {
                // both sides have regions of the same name, which a reader has to tell apart
                let side = details(side).replace(
                    "aria-label=\"Checks\"",
                    &format!("aria-label=\"Checks of {letter}\""),
                );
                let side = side.replace(
                    "aria-label=\"Tensors\"",
                    &format!("aria-label=\"Tensors of {letter}\""),
                );
                let _ = write!(out, "<section><h2>{letter}</h2>\n{side}</section>\n");
            }
            out
        }
        Document::Inspect(report) => inspect(report) + &tail(&report.outcome),
        Document::Horizon(report) => {
            let infos: Vec<&PlanInfo> = report.plans.iter().map(|plan| &plan.info).collect();
            plans(&infos) + &tail(&report.outcome)
        }
        Document::Audit(report) => {
            plans(&report.plans.iter().collect::<Vec<_>>()) + &tail(&report.outcome)
        }
        Document::Measure(report) => {
            plans(&report.plans.iter().collect::<Vec<_>>()) + &tail(&report.outcome)
        }
        Document::Probe(report) => settings(&report.settings) + &tail(&report.outcome),
        Document::Eval(report) => tail(&report.outcome),
        Document::Train(report) => tail(&report.outcome),
        Document::Study(report) => tail(&report.outcome),
        Document::Prompts(_) | Document::Explain(_) => String::new(),
    }
}

/// What the results of a probe depend on.
fn settings(settings: &ProbeSettings) -> String {
    let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    let prefix = settings.prefix_token.map(|id| id.to_string());
    let changes = settings.what_if.join(", ");
    let rows = [
        (
            "task",
            format!("{} (version {})", settings.task, settings.task_version),
        ),
        ("ids from", settings.tokenizer.clone()),
        ("tokenizer", or(&settings.tokenizer_hash)),
        ("text", or(&settings.haystack_hash)),
        ("first id", or(&prefix)),
        (
            "changes tried",
            or(&Some(changes).filter(|text| !text.is_empty())),
        ),
        ("seed", settings.seed.to_string()),
        (
            "facts",
            if settings.control {
                "left out: a control"
            } else {
                "in the prompts"
            }
            .to_owned(),
        ),
    ];
    let mut out = "<h3>Settings</h3>\n<ul>\n".to_owned();
    for (what, value) in rows {
        let _ = writeln!(out, "<li>{what}: {}</li>", name(&value));
    }
    out.push_str("</ul>\n");
    out
}

/// What was not checked, remarks, and every check's own state.
fn tail(outcome: &Outcome) -> String {
    let mut out = String::new();
    if !outcome.skipped.is_empty() {
        out.push_str("<h3>Not checked</h3>\n<ul>\n");
        for skipped in &outcome.skipped {
            let _ = writeln!(
                out,
                "<li><strong>{}</strong>: {}</li>",
                escape_html(&skipped.what),
                prose(&skipped.reason)
            );
        }
        out.push_str("</ul>\n");
    }
    if !outcome.notes.is_empty() {
        out.push_str("<h3>Notes</h3>\n<ul>\n");
        for note in &outcome.notes {
            let _ = writeln!(out, "<li>{}</li>", prose(note));
        }
        out.push_str("</ul>\n");
    }
    if !outcome.checks.is_empty() {
        out.push_str("<details><summary>Every check and what it came to</summary>\n<div class=\"scroll\" tabindex=\"0\" \
                      role=\"region\" aria-label=\"Checks\"><table>\n<thead><tr><th scope=\"col\">check</th><th \
                      scope=\"col\">state</th><th scope=\"col\" class=\"number\">looked at</th><th scope=\"col\" \
                      class=\"number\">findings</th><th scope=\"col\">reason</th></tr></thead>\n<tbody>\n");
        for check in &outcome.checks {
            let _ = writeln!(
                out,
                "<tr><th scope=\"row\">{} {}</th><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
                 <td>{}</td></tr>",
                escape_html(&check.code),
                escape_html(&check.name),
                escape_html(&check.status),
                check.items,
                check.findings,
                escape_html(check.reason.as_deref().unwrap_or(""))
            );
        }
        out.push_str("</tbody></table></div></details>\n");
    }
    out
}

/// Every rounding of every plan, with its source.
fn plans(plans: &[&PlanInfo]) -> String {
    let mut out =
        "<details><summary>Where each plan rounds, and how that is known</summary>\n".to_owned();
    for plan in plans {
        let nats = |value: Option<f64>| {
            value.map_or_else(
                || "never".to_owned(),
                |nats| format!("{} nats", short(nats)),
            )
        };
        let _ = writeln!(
            out,
            "<h3>{}</h3>\n<p>Numerator zero beyond a gap of {}; weight zero beyond {}.</p>\n<ol>",
            name(&plan.plan),
            nats(plan.numerator_zero_nats),
            nats(plan.weight_zero_nats)
        );
        for step in &plan.steps {
            let _ = writeln!(
                out,
                "<li>{} in <strong>{}</strong> <span class=\"source\">{}</span></li>",
                escape_html(&step.what),
                escape_html(&step.format),
                escape_html(&step.source)
            );
        }
        out.push_str("</ol>\n");
    }
    out.push_str("</details>\n");
    out
}

fn inspect(report: &InspectReport) -> String {
    let mut out = "<h3>Self-checks</h3>\n<ul>\n".to_owned();
    for check in &report.self_check {
        let (shape, word) = match check.holds {
            Some(true) => ("●", "holds"),
            Some(false) => ("▲", "fails"),
            None => ("?", "not checked"),
        };
        let _ = writeln!(
            out,
            "<li><span aria-hidden=\"true\">{shape}</span> <strong>{word}</strong>: {} ({})</li>",
            escape_html(&check.check),
            escape_html(&check.detail)
        );
    }
    out.push_str("</ul>\n<h3>Tensors</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Tensors\"><table>\n<thead><tr><th \
                  scope=\"col\">name</th><th scope=\"col\">shape</th><th scope=\"col\">format</th><th scope=\"col\" \
                  class=\"number\">count</th></tr></thead>\n<tbody>\n");
    for tensor in &report.tensors_folded {
        let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"number\">{}</td></tr>",
            name(&tensor.pattern),
            shape.join(" × "),
            escape_html(&tensor.dtype),
            tensor.count
        );
    }
    out.push_str("</tbody></table></div>\n");
    out
}
