//! Text of `snellen study report`.

use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions, cell, escape, outcome, plural};
use crate::schema::{StudyReport, StudyRow, StudyTable};
use crate::study::TRIAL_LEFT_OUT;
use crate::study::columns::{
    Column, HORIZONS, HORIZONS_MEAN, ROWS, Value, by_quantity, footnote, for_people, number, seen,
};

/// Tables that are shown as a grid of means: too many lines otherwise.
const GRIDS: [&str; 1] = ["recall-by-distance"];

impl RenderText for StudyReport {
    fn render_text(&self, options: &TextOptions) -> String {
        let mut page = Page::new(options);
        let title = self.title.as_deref().unwrap_or("without a title");
        page.paragraph(&format!("snellen study: {}", escape(title)));
        trials(&mut page, self);
        for table in self.tables.iter().filter(|table| for_people(table)) {
            page.heading(&table.title);
            if GRIDS.contains(&table.name.as_str()) {
                grid(&mut page, table);
            } else {
                rows(&mut page, table);
            }
        }
        horizons(&mut page, self);
        outcome::render(&mut page, &self.outcome, None);
        page.finish()
    }
}

fn trials(page: &mut Page<'_>, report: &StudyReport) {
    let count = |status: &str| report.trials.iter().filter(|t| t.status == status).count();
    page.paragraph(&format!(
        "{} of {} done, {} failed, {} not run{}. {}",
        count("done"),
        plural(report.trials.len() as u64, "trial"),
        count("diverged") + count("crashed"),
        count("not run"),
        match count(TRIAL_LEFT_OUT) {
            0 => String::new(),
            n => format!(", {n} left out"),
        },
        match &report.baseline {
            Some(name) => format!("Differences are to {}.", escape(name)),
            None => "No baseline is named, so variants are not compared.".to_owned(),
        }
    ));
    let open: Vec<_> = report
        .trials
        .iter()
        .filter(|t| t.status != "done")
        .collect();
    if open.is_empty() {
        return;
    }
    page.heading("Trials that are in no average");
    let mut waiting = Vec::new();
    for trial in open {
        match (&trial.reason, trial.status.as_str()) {
            (_, "not run") => waiting.push(trial.trial.as_str()),
            (reason, status) => page.item(&format!(
                "{}: {status}: {}",
                escape(&trial.trial),
                escape(reason.as_deref().unwrap_or("no reason was kept"))
            )),
        }
    }
    if !waiting.is_empty() {
        page.item(&format!("not run: {}", waiting.join(", ")));
    }
}

fn rows(page: &mut Page<'_>, table: &StudyTable) {
    let all: Vec<&StudyRow> = table.rows.iter().collect();
    let columns = seen(&ROWS, &all);
    for (quantity, rows) in by_quantity(table) {
        page.line(&format!("  {}", escape(quantity)));
        page.table(&laid_out(&columns, &rows));
    }
    if table.comparisons > 0 {
        let comparisons = plural(table.comparisons, "comparison");
        page.indented(&format!("p corrected for {comparisons}"));
    }
    if let Some(words) = footnote(&all) {
        page.indented(words);
    }
}

/// Intervals stand as half their width: a column of means is easier to go down with the eye than one of ends.
fn laid_out<R>(columns: &[&Column<R>], rows: &[&R]) -> Table {
    // what a row is about comes first, in words
    let keys = columns.iter().take_while(|column| !column.numbers());
    let mut table = Table::new([]).keys(keys.count().max(1));
    for column in columns {
        let align = if column.numbers() {
            Align::Right
        } else {
            Align::Left
        };
        let name = if column.csv.len() == 2 {
            "+-95 %"
        } else {
            column.title
        };
        table.column(name, align);
    }
    let cell = |column: &&Column<R>, row: &R| match (column.of)(row) {
        Value::Interval(low, high) => number((high - low) / 2.0),
        other => escape(&other.text()).into_owned(),
    };
    for row in rows {
        table.row(columns.iter().map(|column| cell(column, row)).collect());
    }
    table
}

/// Means, one line a quantity and one column a variant.
fn grid(page: &mut Page<'_>, table: &StudyTable) {
    let mut variants: Vec<&str> = Vec::new();
    for row in &table.rows {
        if !variants.contains(&row.variant.as_str()) {
            variants.push(&row.variant);
        }
    }
    let mut shown = Table::new([("mean", Align::Left)]);
    for variant in &variants {
        shown.column(&escape(variant), Align::Right);
    }
    for (quantity, rows) in by_quantity(table) {
        let of = |variant: &&str| {
            let own = rows.iter().find(|row| row.variant == **variant);
            cell(own.map(|row| format!("{:.2}", row.mean)))
        };
        let mut cells = vec![escape(quantity).into_owned()];
        cells.extend(variants.iter().map(of));
        shown.row(cells);
    }
    page.table(&shown);
}

fn horizons(page: &mut Page<'_>, report: &StudyReport) {
    if report.horizons.is_empty() {
        return;
    }
    page.heading("Horizons predicted and measured, tokens");
    let lines: Vec<_> = report.horizons.iter().collect();
    page.table(&laid_out(&seen(&HORIZONS, &lines), &lines));
    page.indented(HORIZONS_MEAN);
}
