//! Text of `snellen report A.json B.json`, and of any result whatever its verb.

use super::style::Style;
use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions, escape};
use crate::document::Document;
use crate::number::short;
use crate::schema::{HeadDifference, PairReport};
use crate::summary::{Summary, amount, change};

/// Rows of the table of changes.
const CHANGES_SHOWN: usize = 12;
/// Rows of the table of paired differences; CSV and JSON have all.
const PAIRED_SHOWN: usize = 24;

impl RenderText for Document {
    fn render_text(&self, options: &TextOptions) -> String {
        match self {
            Self::Horizon(report) => report.render_text(options),
            Self::Inspect(report) => report.render_text(options),
            Self::Audit(report) => report.render_text(options),
            Self::Measure(report) => report.render_text(options),
            Self::Eval(report) => report.render_text(options),
            Self::Probe(report) => report.render_text(options),
            Self::Prompts(report) => report.render_text(options),
            Self::Train(report) => report.render_text(options),
            Self::Study(report) => report.render_text(options),
            Self::Pair(report) => report.render_text(options),
            Self::Explain(report) => report.render_text(options),
        }
    }
}

impl RenderText for PairReport {
    fn render_text(&self, options: &TextOptions) -> String {
        let mut page = Page::new(options);
        let title = page.options.paint(Style::Bold, "snellen report");
        if !self.comparable {
            let (a, b) = (self.a.verb(), self.b.verb());
            page.line(&format!("{title}: {a} as A, {b} as B"));
            for line in &self.differences {
                page.item(&escape(line));
            }
            for (letter, side) in [("A", &self.a), ("B", &self.b)] {
                page.heading(letter);
                page.out.push_str(&side.render_text(options));
            }
            return page.finish();
        }
        page.line(&format!("{title}: {} in A and in B", self.a.verb()));
        // the summary of a pair needs neither findings nor plans of its own
        let summary = Summary::of_pair(self);
        page.paragraph(&escape(&summary.headline));
        for fact in &summary.facts {
            page.item(&escape(fact));
        }
        if self.a.runs_no_checks() {
            paired(&mut page, self);
        } else {
            changes(&mut page, self);
        }
        for (heading, findings) in [
            ("New in B", &self.findings_new),
            ("Gone from A", &self.findings_gone),
            ("In B, not measured in A", &self.findings_not_measured_in_a),
            ("In A, not measured in B", &self.findings_not_measured_in_b),
        ] {
            if findings.is_empty() {
                continue;
            }
            page.heading(&format!("{heading}: {}", findings.len()));
            for group in crate::findings::groups(findings) {
                let first = group.findings[0];
                page.item(&escape(&format!(
                    "{} {} {}: {}",
                    first.severity.name(),
                    first.code,
                    first.name,
                    group.places()
                )));
            }
        }
        page.finish()
    }
}

/// Differences of what both looked at, with their intervals.
fn paired(page: &mut Page<'_>, pair: &PairReport) {
    if pair.paired.is_empty() {
        page.heading("Nothing that both looked at is comparable");
        return;
    }
    let shown = pair.paired.len().min(PAIRED_SHOWN);
    page.heading(&format!(
        "Paired differences ({shown} of {})",
        pair.paired.len()
    ));
    let mut table = Table::new([
        ("over", Align::Left),
        ("quantity", Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
        ("change", Align::Right),
        ("interval", Align::Right),
        ("clear", Align::Left),
    ])
    .keys(2);
    for one in &pair.paired[..shown] {
        let value = |value: Option<f64>| super::cell(value.map(|value| amount(one, value)));
        let moved = |value: f64| change(one, value);
        let interval = one.change_low.zip(one.change_high);
        table.row(vec![
            escape(&one.what).into_owned(),
            escape(&one.quantity).into_owned(),
            value(one.a),
            value(one.b),
            super::cell(one.change.map(moved)),
            super::cell(interval.map(|(low, high)| format!("{} to {}", moved(low), moved(high)))),
            match (interval, one.is_clear()) {
                (None, _) => "-",
                (Some(_), true) => "yes",
                (Some(_), false) => "no",
            }
            .to_owned(),
        ]);
    }
    page.table(&table);
    let mut methods: Vec<&str> = Vec::new();
    for one in &pair.paired[..shown] {
        if !methods.contains(&one.method.as_str()) {
            methods.push(&one.method);
        }
    }
    page.indented(&format!(
        "interval: 95 %; clear: it excludes no change, as one in twenty does by chance. {}.",
        escape(&methods.join("; "))
    ));
}

/// Largest relative changes first.
fn changes(page: &mut Page<'_>, pair: &PairReport) {
    let mut rows: Vec<(&HeadDifference, &str, f64)> = Vec::new();
    for head in &pair.heads {
        for (name, difference) in &head.quantities {
            let size = match (difference.a, difference.b) {
                (Some(a), Some(b)) if a != b => (b - a).abs() / a.abs().max(b.abs()),
                (None, Some(_)) | (Some(_), None) => f64::INFINITY,
                _ => continue,
            };
            rows.push((head, name, size));
        }
    }
    if rows.is_empty() {
        page.heading("No number of any head changed");
        return;
    }
    rows.sort_by(|a, b| b.2.total_cmp(&a.2));
    let shown = rows.len().min(CHANGES_SHOWN);
    page.heading(&format!("Largest changes ({shown} of {})", rows.len()));
    let mut table = Table::new([
        ("layer", Align::Right),
        ("head", Align::Right),
        ("plan", Align::Left),
        ("quantity", Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
    ])
    .keys(4);
    let number = |value: Option<f64>| super::cell(value.map(short));
    for (head, name, _) in &rows[..shown] {
        let difference = head.quantities[*name];
        table.row(vec![
            super::cell(head.layer),
            head.head.to_string(),
            escape(head.plan_a.as_deref().unwrap_or("-")).into_owned(),
            (*name).to_owned(),
            number(difference.a),
            number(difference.b),
        ]);
    }
    page.table(&table);
    page.line("  - did not exist or was not measured");
}
