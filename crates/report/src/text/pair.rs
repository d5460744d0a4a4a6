//! Text of `snellen report A.json B.json`, and of any result whatever its verb.

use super::style::Style;
use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions, escape};
use crate::document::Document;
use crate::number::short;
use crate::schema::{HeadDifference, PairReport, PairedDifference};
use crate::summary::{POINTS, Summary, amount, change};

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
    let shown = &pair.paired[..shown];
    let mut quantities: Vec<&str> = Vec::new();
    for one in shown {
        if !quantities.contains(&one.quantity.as_str()) {
            quantities.push(&one.quantity);
        }
    }
    for (position, quantity) in quantities.iter().enumerate() {
        if position > 0 {
            page.line("");
        }
        let of: Vec<_> = shown.iter().filter(|o| o.quantity == *quantity).collect();
        page.table(&differences(quantity, &of));
    }
    let mut methods: Vec<&str> = Vec::new();
    for one in shown {
        if !methods.contains(&one.method.as_str()) {
            methods.push(&one.method);
        }
    }
    let points = if shown.iter().any(|one| one.is_share()) {
        "points: percentage points; "
    } else {
        ""
    };
    page.indented(&format!(
        "{points}interval: 95 %; clear: it excludes no change, as one in twenty does by chance. {}.",
        escape(&methods.join("; "))
    ));
}

/// The differences of one quantity; a table for each leaves room for intervals on a narrow page.
fn differences(quantity: &str, of: &[&PairedDifference]) -> Table {
    let share = of.iter().all(|one| one.is_share());
    let over = format!("{} over", escape(quantity));
    let mut table = Table::new([
        (over.as_str(), Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
        (if share { "points" } else { "change" }, Align::Right),
        ("interval", Align::Right),
        ("clear", Align::Left),
    ])
    // the interval says it too
    .optional(["clear"]);
    for one in of {
        let value = |value: Option<f64>| super::cell(value.map(|value| amount(one, value)));
        let moved = |value: f64| {
            let change = change(one, value);
            match change.strip_suffix(POINTS) {
                Some(number) if share => number.to_owned(),
                _ => change,
            }
        };
        let interval = one.change_low.zip(one.change_high);
        table.row(vec![
            escape(&one.what).into_owned(),
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
    table
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
    let rows = &rows[..shown];
    let apart = changed(rows, false);
    // names of plans and quantities are long: layer and head in one word are narrower than two columns
    let table = match apart.fits(page.options.width) {
        true => apart,
        false => changed(rows, true),
    };
    page.table(&table);
    page.line("  - did not exist or was not measured");
}

/// A row for each change; `together`: layer and head in one word, as the pages and `--head` name them.
fn changed(rows: &[(&HeadDifference, &str, f64)], together: bool) -> Table {
    let mut table = Table::new([]);
    let places: &[_] = match together {
        true => &[("head", Align::Left)],
        false => &[("layer", Align::Right), ("head", Align::Right)],
    };
    for (name, align) in places {
        table.column(name, *align);
    }
    for (name, align) in [
        ("plan", Align::Left),
        ("quantity", Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
    ] {
        table.column(name, align);
    }
    let number = |value: Option<f64>| super::cell(value.map(short));
    for (head, name, _) in rows {
        let difference = head.quantities[*name];
        let mut row = match (together, head.layer) {
            (true, Some(layer)) => vec![format!("L{layer}H{}", head.head)],
            (true, None) => vec![format!("H{}", head.head)],
            (false, layer) => vec![super::cell(layer), head.head.to_string()],
        };
        row.extend([
            escape(head.plan_a.as_deref().unwrap_or("-")).into_owned(),
            (*name).to_owned(),
            number(difference.a),
            number(difference.b),
        ]);
        table.row(row);
    }
    table.keys(places.len() + 2)
}
