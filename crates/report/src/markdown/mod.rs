//! The Markdown renderer: for pull requests and model cards (GitHub's dialect: tables and `<details>`).

mod words;

use crate::document::Document;
use crate::findings::{groups, place};
use crate::heads::{Cell, HeadTable, Row};
use crate::number::{percent, short};
use crate::schema::{ExplainReport, FindingRecord, Outcome, PairReport};
use crate::sections::{Room, Table, Text};
use crate::summary::{Summary, plural};
use crate::whole::nothing_measured;
use std::fmt::Write as _;
use words::{code, lead, prose};

pub use words::inline;

/// Heads in the table; CSV and JSON have all.
const HEADS_SHOWN: usize = 12;
/// Rows of a table of a probe, an evaluation or a run.
const ROWS_SHOWN: usize = 24;
/// Cells of a probe whose failures are listed.
const ENTRIES_SHOWN: usize = 12;
/// Findings of one code that are shown in full.
const SHOWN_PER_CODE: usize = 2;

/// The document.
#[must_use]
pub fn render(document: &Document) -> String {
    let mut out = String::new();
    match document {
        Document::Explain(report) => return explain(report),
        Document::Pair(pair) => {
            let names = [&pair.a, &pair.b].map(title);
            let _ = writeln!(out, "## snellen report: {} and {}\n", names[0], names[1]);
            summary(&mut out, document);
            changes(&mut out, pair);
            sections(&mut out, document);
            findings(&mut out, "New findings in B", &pair.findings_new);
            findings(&mut out, "Findings gone from A", &pair.findings_gone);
            findings(
                &mut out,
                "Findings in B, not measured in A",
                &pair.findings_not_measured_in_a,
            );
            findings(
                &mut out,
                "Findings in A, not measured in B",
                &pair.findings_not_measured_in_b,
            );
            if !pair.comparable {
                for side in [&pair.a, &pair.b] {
                    result(&mut out, side);
                }
            }
        }
        other => {
            let _ = writeln!(out, "## snellen {}: {}\n", other.verb(), title(other));
            summary(&mut out, other);
            result(&mut out, other);
        }
    }
    let _ = writeln!(out, "\n<sub>{}</sub>", footer(document));
    out
}

fn title(document: &Document) -> String {
    if let Document::Study(study) = document {
        return inline(study.title.as_deref().unwrap_or("without a title"));
    }
    let Some(envelope) = document.envelope() else {
        return String::new();
    };
    let name = envelope
        .model
        .as_ref()
        .map_or_else(|| "no model".to_owned(), |model| inline(&model.name));
    match envelope.length {
        Some(length) => format!("{name} at {length} tokens"),
        None => name,
    }
}

fn summary(out: &mut String, document: &Document) {
    let summary = Summary::of(document);
    let _ = writeln!(out, "**{}**\n", inline(&summary.headline));
    for fact in &summary.facts {
        let _ = writeln!(out, "- {}", prose(fact));
    }
    if let Some(table) = &summary.by_plan {
        let _ = writeln!(out, "\n| {} |", table.columns.join(" | "));
        let rule = table.columns.iter().enumerate();
        let rule = rule.map(|(index, _)| if index == 0 { "---" } else { "---:" });
        let _ = writeln!(out, "| {} |", rule.collect::<Vec<_>>().join(" | "));
        for row in &table.rows {
            let cells: Vec<String> = row.iter().map(|cell| inline(cell)).collect();
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
    }
    if !summary.todo.is_empty() || !summary.next_commands.is_empty() {
        out.push_str("\n### What to do\n\n");
        for todo in &summary.todo {
            let _ = writeln!(
                out,
                "- *{}*: {} ({})",
                todo.safety,
                prose(todo.action),
                todo.code
            );
        }
        for command in &summary.next_commands {
            let _ = writeln!(out, "- next: {}", code(command));
        }
    }
}

fn result(out: &mut String, document: &Document) {
    heads(out, document);
    sections(out, document);
    let Some(outcome) = document.outcome() else {
        return;
    };
    findings(out, "Findings", &outcome.findings);
    if outcome.findings.is_empty() && !document.runs_no_checks() {
        let checked = outcome.checks.iter().filter(|c| c.status == "checked");
        let checked = checked.count() as u64;
        let text = if nothing_measured(document) {
            "Nothing was measured, so there is no verdict.".to_owned()
        } else if checked == 0 {
            "No check looked at this result.".to_owned()
        } else {
            format!("None in {}.", plural(checked, "check"))
        };
        let _ = writeln!(out, "\n### Findings\n\n{text}");
    }
    tail(out, outcome);
}

/// The columns of a result that fit a page, with their format.
fn columns(document: &Document) -> &'static [(&'static str, bool)] {
    match document {
        Document::Horizon(_) => &[
            ("slope", false),
            ("blind_share", true),
            ("blind_share_last_row", true),
            ("first_blind_distance", false),
            ("last_visible_distance", false),
            ("distinct_bias_last_20", false),
        ],
        Document::Audit(_) => &[
            ("effective_slope", false),
            ("score_bound", false),
            ("guaranteed_visible", false),
            ("expected_horizon", false),
            ("certified_horizon", false),
        ],
        Document::Measure(_) => &[
            ("effective_slope", false),
            ("blind_share", true),
            ("first_blind_distance", false),
            ("last_visible_distance", false),
            ("reach_90", false),
            ("effective_horizon", false),
            ("key0_mass", true),
        ],
        _ => &[("slope", false), ("effective_slope", false)],
    }
}

/// Quantity by which the worst heads come first, and whether more of it is worse.
fn order(document: &Document) -> Option<(&'static str, bool)> {
    match document {
        Document::Horizon(_) | Document::Measure(_) => Some(("blind_share", true)),
        Document::Audit(_) => Some(("expected_horizon", false)),
        _ => None,
    }
}

fn heads(out: &mut String, document: &Document) {
    let Some(table) = HeadTable::of(document) else {
        return;
    };
    let plan = document
        .envelope()
        .and_then(|envelope| envelope.plan.clone());
    let mut rows: Vec<&Row> = table.rows.iter().filter(|row| row.plan == plan).collect();
    if rows.is_empty() {
        return;
    }
    if let Some((name, more_is_worse)) = order(document)
        && let Some(index) = table.column(name)
    {
        let key = |row: &&Row| {
            let value = row.cells[index].as_f64();
            match (value, more_is_worse) {
                (Some(value), true) => -value,
                (Some(value), false) => value,
                (None, _) => f64::INFINITY,
            }
        };
        rows.sort_by(|a, b| key(a).total_cmp(&key(b)));
    }
    let shown = rows.len().min(HEADS_SHOWN);
    let under = plan.map_or_else(String::new, |plan| format!(" under {}", code(&plan)));
    let _ = writeln!(out, "\n### Heads{under} ({shown} of {})\n", rows.len());
    let known: Vec<_> = columns(document)
        .iter()
        .filter_map(|(name, share)| Some((*name, *share, table.column(name)?)))
        .collect();
    let layers = rows.iter().any(|row| row.layer.is_some());
    let mut header = if layers {
        "| layer | head |"
    } else {
        "| head |"
    }
    .to_owned();
    let mut rule = if layers {
        "| ---: | ---: |"
    } else {
        "| ---: |"
    }
    .to_owned();
    for (name, _, _) in &known {
        let _ = write!(header, " {} |", name.replace('_', " "));
        rule.push_str(" ---: |");
    }
    let _ = writeln!(out, "{header}\n{rule}");
    for row in &rows[..shown] {
        let mut line = match row.layer {
            Some(layer) => format!("| {layer} | {} |", row.head),
            None => format!("| {} |", row.head),
        };
        for (_, share, index) in &known {
            let _ = write!(line, " {} |", cell(&row.cells[*index], *share));
        }
        let _ = writeln!(out, "{line}");
    }
}

/// Tables of results that are not about heads.
fn sections(out: &mut String, document: &Document) {
    let room = Room {
        rows: ROWS_SHOWN,
        entries: ENTRIES_SHOWN,
    };
    for section in crate::sections::of(document, room) {
        let _ = writeln!(out, "\n### {}\n", inline(&section.title));
        for line in &section.lead {
            let _ = writeln!(out, "{}\n", prose(line));
        }
        if !section.table.rows.is_empty() {
            table(out, &section.table);
        }
        for entry in &section.entries {
            let _ = writeln!(
                out,
                "<details><summary>{}</summary>\n",
                html_line(&entry.line)
            );
            for line in &entry.body {
                let _ = writeln!(out, "{}\n", prose(line));
            }
            table(out, &entry.table);
            out.push_str("\n</details>\n");
        }
        if let Some(rest) = &section.rest {
            let _ = writeln!(out, "\n{}", prose(rest));
        }
    }
}

/// Text inside an element. Readers differ in whether they look for Markdown there, so what could begin a link or code is an entity too.
fn html_line(text: &str) -> String {
    let escaped = crate::html::escape_html(text);
    let escaped = escaped.replace('`', "&#96;");
    escaped.replace('[', "&#91;").replace(']', "&#93;")
}

fn table(out: &mut String, table: &Table) {
    let names: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
    let rules = table
        .columns
        .iter()
        .map(|(_, number)| if *number { "---:" } else { "---" });
    let _ = writeln!(out, "| {} |", names.join(" | "));
    let _ = writeln!(out, "| {} |", rules.collect::<Vec<_>>().join(" | "));
    for row in &table.rows {
        let cells = row.iter().map(|text| match text {
            Text::Plain(text) => inline(text),
            Text::Raw(text) if text.is_empty() => "*nothing*".to_owned(),
            Text::Raw(text) => code(text),
        });
        let _ = writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

fn cell(cell: &Cell, share: bool) -> String {
    match cell {
        Cell::Missing => "none".to_owned(),
        Cell::Number(number) if share => percent(*number),
        Cell::Number(number) => short(*number),
        Cell::Count(count) => count.to_string(),
        Cell::Flag(flag) => flag.to_string(),
        Cell::Word(word) => inline(word),
    }
}

fn changes(out: &mut String, pair: &PairReport) {
    if pair.summary.is_empty() {
        return;
    }
    out.push_str("\n### What changed, in heads\n\n| quantity | plan | more in B | less in B | same | only in B | only in A |\n");
    out.push_str("| --- | --- | ---: | ---: | ---: | ---: | ---: |\n");
    for sum in &pair.summary {
        let plan = match (&sum.plan_a, &sum.plan_b) {
            (Some(a), Some(b)) if a == b => inline(a),
            (Some(a), Some(b)) => format!("{} to {}", inline(a), inline(b)),
            _ => "none".to_owned(),
        };
        let _ = writeln!(
            out,
            "| {} | {plan} | {} | {} | {} | {} | {} |",
            inline(&sum.quantity.replace('_', " ")),
            sum.heads_more,
            sum.heads_less,
            sum.heads_same,
            sum.heads_gained,
            sum.heads_lost
        );
    }
}

fn findings(out: &mut String, title: &str, findings: &[FindingRecord]) {
    if findings.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n### {title}: {}\n", findings.len());
    for group in groups(findings) {
        let first = group.findings[0];
        let _ = writeln!(
            out,
            "- **{}** {} {}, {}",
            first.severity.name(),
            inline(&first.code),
            inline(&first.name),
            plural(group.findings.len() as u64, "place")
        );
        for finding in group.findings.iter().take(SHOWN_PER_CODE) {
            let mut facts: Vec<String> = place(finding).into_iter().collect();
            facts.extend(finding.plan.as_ref().map(|plan| code(plan)));
            facts.extend(finding.value.map(|value| format!("value {}", short(value))));
            facts.extend(
                finding
                    .threshold
                    .map(|value| format!("threshold {}", short(value))),
            );
            let _ = writeln!(out, "  - {}{}", lead(&facts), prose(&finding.message));
        }
        if group.findings.len() > SHOWN_PER_CODE {
            let _ = writeln!(out, "  - all places: {}", inline(&group.places()));
        }
    }
}

fn tail(out: &mut String, outcome: &Outcome) {
    if !outcome.skipped.is_empty() {
        out.push_str("\n### Not checked\n\n");
        for skipped in &outcome.skipped {
            let _ = writeln!(
                out,
                "- {}: {}",
                inline(&skipped.what),
                prose(&skipped.reason)
            );
        }
    }
    if !outcome.notes.is_empty() {
        out.push_str("\n### Notes\n\n");
        for note in &outcome.notes {
            let _ = writeln!(out, "- {}", prose(note));
        }
    }
}

fn footer(document: &Document) -> String {
    let mut facts = vec![format!("snellen {}", inline(document.tool_version()))];
    if let Some(envelope) = document.envelope() {
        let model = envelope.model.as_ref();
        facts.extend(
            model
                .and_then(|model| model.hash.as_ref())
                .map(|hash| format!("model {}", code(hash))),
        );
        facts.extend(
            envelope
                .text
                .as_ref()
                .map(|text| format!("text {}", code(&text.hash))),
        );
    }
    facts.join(" · ")
}

/// The catalogue page of each check.
fn explain(report: &ExplainReport) -> String {
    let mut out = String::new();
    for check in &report.checks {
        let _ = writeln!(
            out,
            "## {} {}\n\n{}\n",
            inline(&check.code),
            inline(&check.name),
            inline(&check.summary)
        );
        for (heading, body) in [
            ("Measures", &check.measures),
            ("Why it matters", &check.why_it_matters),
            ("Threshold", &check.threshold),
            ("False alarms", &check.false_alarms),
        ] {
            let _ = writeln!(out, "**{heading}.** {}\n", prose(body));
        }
        out.push_str("**Remedies**, safest first:\n\n");
        for remedy in &check.remedies {
            let _ = writeln!(out, "- *{}*: {}", remedy.safety, prose(&remedy.action));
        }
        out.push_str("\n**References**\n\n");
        for reference in &check.references {
            let _ = writeln!(out, "- {}", words::reference(reference));
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}
