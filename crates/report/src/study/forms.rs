//! A study as Markdown and as CSV.

use crate::csv::{MISSING, float, word};
use crate::markdown::inline;
use crate::number::short;
use crate::schema::{StudyReport, StudyRow};
use std::fmt::Write as _;

/// Tables that are too long for a page; CSV and JSON have them.
const LEFT_OUT: [&str; 2] = ["blind-heads", "recall-by-distance"];

/// One line a row of every table (RFC 4180, lines end in LF); what does not exist is `NA`.
#[must_use]
pub fn csv(report: &StudyReport) -> String {
    let mut out = "table,quantity,variant,change,n,mean,deviation,low,high,from,difference_n,difference,difference_low,\
                   difference_high,p,p_corrected,trials\n"
        .to_owned();
    for table in &report.tables {
        for row in &table.rows {
            let number = |value: Option<f64>| value.map_or(MISSING.to_owned(), float);
            let difference = row.difference.as_ref();
            let cells = [
                word(&table.name),
                word(&row.quantity),
                word(&row.variant),
                row.change.as_deref().map_or(MISSING.to_owned(), word),
                row.n.to_string(),
                float(row.mean),
                number(row.deviation),
                number(row.low),
                number(row.high),
                difference.map_or(MISSING.to_owned(), |d| word(&d.from)),
                difference.map_or(MISSING.to_owned(), |d| d.n.to_string()),
                number(difference.map(|d| d.mean)),
                number(difference.and_then(|d| d.low)),
                number(difference.and_then(|d| d.high)),
                number(difference.and_then(|d| d.p)),
                number(difference.and_then(|d| d.p_corrected)),
                word(&row.trials.join(" ")),
            ];
            out.push_str(&cells.join(","));
            out.push('\n');
        }
    }
    out
}

/// The tables in GitHub's Markdown.
#[must_use]
pub fn markdown(report: &StudyReport) -> String {
    let mut out = String::new();
    let title = report.title.as_deref().unwrap_or("without a title");
    let _ = writeln!(out, "## snellen study: {}\n", inline(title));
    let done = report.trials.iter().filter(|t| t.status == "done").count();
    let _ = writeln!(out, "{done} of {} trials done.", report.trials.len());
    for trial in report.trials.iter().filter(|t| t.status != "done") {
        let reason = trial.reason.as_deref().map(|r| format!(": {}", inline(r)));
        let _ = writeln!(
            out,
            "- {}: {}{}",
            inline(&trial.trial),
            trial.status,
            reason.unwrap_or_default()
        );
    }
    let shown = |name: &str| !LEFT_OUT.contains(&name);
    for table in report.tables.iter().filter(|table| shown(&table.name)) {
        let _ = writeln!(out, "\n### {}\n", table.title);
        out.push_str("| quantity | variant | change | n | mean | 95 % interval | difference | its 95 % interval | p | corrected |\n");
        out.push_str("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
        for row in &table.rows {
            let _ = writeln!(out, "| {} |", cells(row).join(" | "));
        }
    }
    if !report.horizons.is_empty() {
        out.push_str("\n### Horizons, tokens\n\n| trial | task | predicted | measured |\n| --- | --- | ---: | ---: |\n");
        for line in &report.horizons {
            let found = &line.horizon;
            let predicted = if found.predicted_unbounded {
                "never ends".to_owned()
            } else {
                found.predicted.map_or(String::new(), |d| d.to_string())
            };
            let open = if found.measured_unbounded { "≥ " } else { "" };
            let _ = writeln!(
                out,
                "| {} | {} | {predicted} | {open}{} |",
                inline(&line.trial),
                found.task,
                found.measured.map_or(String::new(), |m| m.to_string())
            );
        }
    }
    for note in &report.outcome.notes {
        let _ = writeln!(out, "\n{}", inline(note));
    }
    out
}

fn cells(row: &StudyRow) -> [String; 10] {
    let interval = |low: Option<f64>, high: Option<f64>| match (low, high) {
        (Some(low), Some(high)) => format!("{} to {}", short(low), short(high)),
        _ => String::new(),
    };
    let number = |value: Option<f64>| value.map_or(String::new(), short);
    let difference = row.difference.as_ref();
    [
        inline(&row.quantity),
        inline(&row.variant),
        row.change.as_deref().map_or(String::new(), inline),
        row.n.to_string(),
        short(row.mean),
        interval(row.low, row.high),
        number(difference.map(|d| d.mean)),
        difference.map_or(String::new(), |d| interval(d.low, d.high)),
        number(difference.and_then(|d| d.p)),
        number(difference.and_then(|d| d.p_corrected)),
    ]
}
