//! The parts of the page that are written without its script.

use super::details::details;
use super::embed::script_safe;
use super::escape::{escape_html, name, prose};
use super::results;
use crate::document::Document;
use crate::findings::{Group, groups};
use crate::number::short;
use crate::schema::{Envelope, FindingRecord, Outcome};
use crate::summary::{PlanTable, Summary, plural};
use crate::whole::nothing_measured;
use std::fmt::Write as _;

/// Findings of one code that are shown in full; the others are listed by place.
const SHOWN_PER_CODE: usize = 2;

/// What fills the template.
pub(super) struct Parts {
    pub(super) title: String,
    pub(super) heading: String,
    pub(super) summary: String,
    pub(super) charts: String,
    pub(super) findings: String,
    pub(super) sections: String,
    pub(super) details: String,
    pub(super) footer: String,
    pub(super) words: String,
}

impl Parts {
    pub(super) fn of(document: &Document) -> Self {
        let subject = subject(document);
        Self {
            title: escape_html(&format!("snellen {}: {subject}", document.verb())),
            heading: heading(document, &subject),
            summary: summary(&Summary::of(document)),
            charts: results::charts(document),
            findings: findings_of(document),
            sections: results::sections(document),
            details: details(document),
            footer: footer(document),
            words: words(),
        }
    }
}

fn model_name(envelope: &Envelope) -> String {
    let model = envelope.model.as_ref();
    model.map_or_else(|| "no model".to_owned(), |model| model.name.clone())
}

/// What a document is about, in a name or two.
pub(crate) fn subject(document: &Document) -> String {
    match document {
        Document::Pair(pair) => format!("{} and {}", subject(&pair.a), subject(&pair.b)),
        Document::Study(study) => study.title.clone().unwrap_or_else(|| "a study".to_owned()),
        other => other.envelope().map(model_name).unwrap_or_default(),
    }
}

fn heading(document: &Document, subject: &str) -> String {
    let mut out = format!(
        "<p class=\"verb\">snellen {}</p>\n<h1>{}</h1>\n",
        escape_html(document.verb()),
        name(subject)
    );
    if let Some(envelope) = document.envelope() {
        let mut facts: Vec<String> = Vec::new();
        if let Some(model) = &envelope.model {
            facts.push(name(&model.family));
            facts.extend(model.n_layers.map(|n| plural(n, "layer")));
            facts.extend(model.n_heads.map(|n| plural(n, "head")));
            facts.extend(model.head_width.map(|n| format!("head width {n}")));
            facts.extend(model.trained_length.map(|n| format!("trained at {n}")));
            if !model.causal {
                facts.push("bidirectional".to_owned());
            }
        }
        facts.extend(envelope.length.map(|n| format!("looked at {n} tokens")));
        if let Some(text) = &envelope.text {
            facts.push(format!("text {}", name(&text.source)));
        }
        let _ = writeln!(out, "<p class=\"facts\">{}</p>", facts.join(" · "));
    }
    out
}

fn summary(summary: &Summary) -> String {
    let (class, shape) = if summary.wrong {
        ("wrong", "▲")
    } else {
        ("fine", "●")
    };
    let mut out = format!(
        "<p class=\"headline {class}\"><span aria-hidden=\"true\">{shape}</span> {}</p>\n",
        escape_html(&summary.headline)
    );
    if !summary.facts.is_empty() {
        out.push_str("<ul>\n");
        for fact in &summary.facts {
            let _ = writeln!(out, "<li>{}</li>", prose(fact));
        }
        out.push_str("</ul>\n");
    }
    if let Some(table) = &summary.by_plan {
        out.push_str(&plan_table(table));
    }
    if !summary.todo.is_empty() || !summary.next_commands.is_empty() {
        out.push_str("<h2>What to do</h2>\n<ul class=\"todo\">\n");
        for todo in &summary.todo {
            let _ = writeln!(
                out,
                "<li><span class=\"safety\">{}</span> <span>{}</span> <span class=\"code\">{}</span></li>",
                escape_html(todo.safety),
                prose(todo.action),
                escape_html(todo.code)
            );
        }
        for command in &summary.next_commands {
            let _ = writeln!(
                out,
                "<li><span class=\"safety\">next</span> <code>{}</code></li>",
                escape_html(command)
            );
        }
        out.push_str("</ul>\n");
    }
    out
}

fn plan_table(table: &PlanTable) -> String {
    let mut out = "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Summary table\"><table>\n<thead><tr>".to_owned();
    for (index, column) in table.columns.iter().enumerate() {
        let class = if index == 0 { "" } else { " class=\"number\"" };
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escape_html(column));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            let _ = if index == 0 {
                write!(out, "<th scope=\"row\">{}</th>", name(cell))
            } else {
                write!(out, "<td class=\"number\">{}</td>", escape_html(cell))
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

fn findings_of(document: &Document) -> String {
    match document {
        other if other.runs_no_checks() => String::new(),
        Document::Pair(pair) if pair.comparable => {
            let mut out =
                list("New in B", &pair.findings_new) + &list("Gone from A", &pair.findings_gone);
            for (title, findings) in [
                ("In B, not measured in A", &pair.findings_not_measured_in_a),
                ("In A, not measured in B", &pair.findings_not_measured_in_b),
            ] {
                if !findings.is_empty() {
                    out.push_str(&list(title, findings));
                }
            }
            out
        }
        Document::Pair(pair) => findings_of(&pair.a) + &findings_of(&pair.b),
        other if nothing_measured(other) => {
            let found = other.outcome().map(|outcome| outcome.findings.as_slice());
            let found = found.filter(|found| !found.is_empty());
            found.map_or_else(
                || {
                    "<h2>Findings</h2>\n<p>Nothing was measured, so there is no verdict.</p>\n"
                        .to_owned()
                },
                |found| list("Findings", found),
            )
        }
        other => other.outcome().map(findings).unwrap_or_default(),
    }
}

fn findings(outcome: &Outcome) -> String {
    if outcome.findings.is_empty() {
        let checked = outcome.checks.iter().filter(|c| c.status == "checked");
        let checked = checked.count() as u64;
        return if checked == 0 {
            // a clean verdict over nothing is never given
            "<h2>Findings</h2>\n<p>No check looked at this result.</p>\n".to_owned()
        } else {
            format!(
                "<h2>Findings</h2>\n<p>None in {}.</p>\n",
                plural(checked, "check")
            )
        };
    }
    list("Findings", &outcome.findings)
}

fn list(title: &str, findings: &[FindingRecord]) -> String {
    let mut out = format!(
        "<h2>{title} <span class=\"count\">{}</span></h2>\n",
        findings.len()
    );
    if findings.is_empty() {
        out.push_str("<p>None.</p>\n");
    }
    for group in groups(findings) {
        out.push_str(&one_group(&group));
    }
    out
}

fn one_group(group: &Group<'_>) -> String {
    let first = group.findings[0];
    let severity = first.severity.name();
    let mut out = format!(
        "<details class=\"finding {severity}\" open><summary><span class=\"badge\">{severity}</span> \
         <span class=\"code\">{}</span> {} <span class=\"count\">{}</span></summary>\n",
        escape_html(&first.code),
        escape_html(&first.name),
        plural(group.findings.len() as u64, "place")
    );
    for finding in group.findings.iter().take(SHOWN_PER_CODE) {
        let mut facts: Vec<String> = Vec::new();
        facts.extend(crate::findings::place(finding).map(|place| escape_html(&place)));
        facts.extend(finding.plan.as_ref().map(|plan| name(plan)));
        facts.extend(finding.value.map(|value| format!("value {}", short(value))));
        facts.extend(
            finding
                .threshold
                .map(|value| format!("threshold {}", short(value))),
        );
        let _ = writeln!(
            out,
            "<p>{}{}</p>",
            if facts.is_empty() {
                String::new()
            } else {
                format!("<span class=\"place\">{}</span><br>", facts.join(" · "))
            },
            prose(&finding.message)
        );
    }
    if group.findings.len() > SHOWN_PER_CODE {
        let _ = writeln!(
            out,
            "<p class=\"places\">All places: {}</p>",
            escape_html(&group.places())
        );
    }
    out.push_str("</details>\n");
    out
}

fn footer(document: &Document) -> String {
    let mut facts = vec![format!("snellen {}", escape_html(document.tool_version()))];
    if let Some(envelope) = document.envelope() {
        let model = envelope.model.as_ref();
        if let Some((model, hash)) = model.and_then(|model| Some((model, model.hash.as_ref()?))) {
            let covers = model.hash_covers.as_deref();
            let covers = covers.map_or_else(String::new, |words| {
                format!(" (covers {})", escape_html(words))
            });
            facts.push(format!("model <code>{}</code>{covers}", escape_html(hash)));
        }
        if let Some(text) = &envelope.text {
            facts.push(format!("text <code>{}</code>", escape_html(&text.hash)));
        }
    }
    format!("<p>{}</p>\n", facts.join(" · "))
}

/// Words that the script shares with the text renderer: letters of failures and what the legend calls them.
fn words() -> String {
    let marks: serde_json::Map<String, serde_json::Value> = crate::text::MARKS
        .iter()
        .map(|(check, letter, meaning)| {
            (
                (*check).to_owned(),
                serde_json::json!([letter.to_string(), meaning]),
            )
        })
        .collect();
    script_safe(&serde_json::json!({ "marks": marks }).to_string())
}
