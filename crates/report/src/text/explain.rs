//! Text of `snellen explain`: a page for one check, a list for several.

use super::style::Style;
use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions};
use crate::schema::{CheckPage, ExplainReport};

impl RenderText for ExplainReport {
    fn render_text(&self, options: &TextOptions) -> String {
        let mut page = Page::new(options);
        match self.checks.as_slice() {
            [check] => one(&mut page, check),
            checks => list(&mut page, checks),
        }
        page.finish()
    }
}

fn list(page: &mut Page<'_>, checks: &[CheckPage]) {
    let mut table = Table::new([
        ("code", Align::Left),
        ("name", Align::Left),
        ("summary", Align::Left),
    ]);
    for check in checks {
        table.row(vec![
            check.code.clone(),
            check.name.clone(),
            check.summary.clone(),
        ]);
    }
    page.table(&table);
    page.line("");
    page.paragraph("`snellen explain CODE` prints the page of one check.");
}

fn one(page: &mut Page<'_>, check: &CheckPage) {
    let title = page
        .options
        .paint(Style::Bold, &format!("{} {}", check.code, check.name));
    page.line(&title);
    page.paragraph(&check.summary);
    let sections = [
        ("Measures", &check.measures),
        ("Why it matters", &check.why_it_matters),
        ("Threshold", &check.threshold),
        ("False alarms", &check.false_alarms),
    ];
    for (heading, text) in sections {
        page.heading(heading);
        page.indented(text);
    }
    page.heading("Remedy");
    for remedy in &check.remedies {
        page.item(&format!("({}) {}", remedy.safety, remedy.action));
    }
    page.heading("References");
    for reference in &check.references {
        page.item(reference);
    }
}
