//! Text of `snellen report A.json B.json`, and of any result whatever its verb.

use super::style::Style;
use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions, escape};
use crate::document::Document;
use crate::number::short;
use crate::schema::{HeadDifference, PairReport};
use crate::summary::Summary;

/// Rows of the table of changes.
const CHANGES_SHOWN: usize = 12;

impl RenderText for Document {
    fn render_text(&self, options: &TextOptions) -> String {
        match self {
            Self::Horizon(report) => report.render_text(options),
            Self::Inspect(report) => report.render_text(options),
            Self::Audit(report) => report.render_text(options),
            Self::Measure(report) => report.render_text(options),
            Self::Pair(report) => report.render_text(options),
            Self::Explain(report) => report.render_text(options),
        }
    }
}

impl RenderText for PairReport {
    fn render_text(&self, options: &TextOptions) -> String {
        if !self.comparable {
            let sides = [&self.a, &self.b].map(|side| side.render_text(options));
            return sides.join("\n");
        }
        let mut page = Page::new(options);
        let title = page.options.paint(Style::Bold, "snellen report");
        page.line(&format!("{title}: {} in A and in B", self.a.verb()));
        // the summary of a pair needs neither findings nor plans of its own
        let summary = Summary::of_pair(self);
        page.paragraph(&escape(&summary.headline));
        for fact in &summary.facts {
            page.item(&escape(fact));
        }
        changes(&mut page, self);
        for (heading, findings) in [
            ("New in B", &self.findings_new),
            ("Gone from A", &self.findings_gone),
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
    ]);
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
