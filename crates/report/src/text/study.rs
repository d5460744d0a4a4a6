//! Text of `snellen study report`.

use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions, cell, escape, outcome, plural};
use crate::number::short;
use crate::schema::{StudyReport, StudyRow, StudyTable};
use crate::study::TRIAL_LEFT_OUT;

/// Tables that are shown as a grid of means: too many lines otherwise.
const GRIDS: [&str; 1] = ["recall-by-distance"];
/// Tables that only programs read.
const LEFT_OUT: [&str; 1] = ["blind-heads"];

impl RenderText for StudyReport {
    fn render_text(&self, options: &TextOptions) -> String {
        let mut page = Page::new(options);
        let title = self.title.as_deref().unwrap_or("without a title");
        page.paragraph(&format!("snellen study: {}", escape(title)));
        trials(&mut page, self);
        for table in &self.tables {
            if LEFT_OUT.contains(&table.name.as_str()) {
                continue;
            }
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

/// Half the width of an interval about its mean, or a dash for one seed.
fn reach(low: Option<f64>, high: Option<f64>) -> String {
    cell(low.zip(high).map(|(low, high)| number((high - low) / 2.0)))
}

/// Three decimals for what is about one; else about four digits.
fn number(value: f64) -> String {
    if value.abs() < 100.0 && (value == 0.0 || value.abs() >= 0.0005) {
        format!("{value:.3}")
    } else {
        short(value)
    }
}

fn p_value(p: f64) -> String {
    if p < 0.0001 {
        "<0.0001".to_owned()
    } else {
        format!("{p:.4}")
    }
}

fn rows(page: &mut Page<'_>, table: &StudyTable) {
    let changes = table.rows.iter().any(|row| row.change.is_some());
    let compared = table.rows.iter().any(|row| row.difference.is_some());
    let mut quantities: Vec<&str> = Vec::new();
    for row in &table.rows {
        if !quantities.contains(&row.quantity.as_str()) {
            quantities.push(&row.quantity);
        }
    }
    for quantity in quantities {
        page.line(&format!("  {}", escape(quantity)));
        let mut shown = Table::new([("variant", Align::Left)]);
        if changes {
            shown.column("change", Align::Left);
        }
        for name in ["n", "mean", "+-95 %"] {
            shown.column(name, Align::Right);
        }
        if compared {
            for name in ["difference", "+-95 % ", "p", "corrected"] {
                shown.column(name, Align::Right);
            }
        }
        for row in table.rows.iter().filter(|row| row.quantity == quantity) {
            shown.row(cells(row, changes));
        }
        page.table(&shown);
    }
    if compared {
        page.indented(&format!(
            "p corrected for {}",
            plural(table.comparisons, "comparison")
        ));
    }
}

fn cells(row: &StudyRow, changes: bool) -> Vec<String> {
    let mut cells = vec![escape(&row.variant).into_owned()];
    if changes {
        cells.push(cell(row.change.as_deref().map(escape)));
    }
    cells.push(row.n.to_string());
    cells.push(number(row.mean));
    cells.push(reach(row.low, row.high));
    if let Some(difference) = &row.difference {
        cells.push(format!(
            "{}{}",
            sign(difference.mean),
            number(difference.mean)
        ));
        cells.push(reach(difference.low, difference.high));
        cells.push(cell(difference.p.map(p_value)));
        cells.push(cell(difference.p_corrected.map(p_value)));
    }
    cells
}

fn sign(value: f64) -> &'static str {
    if value > 0.0 { "+" } else { "" }
}

/// Means, one line a quantity and one column a variant.
fn grid(page: &mut Page<'_>, table: &StudyTable) {
    let (mut variants, mut quantities): (Vec<&str>, Vec<&str>) = Default::default();
    for row in &table.rows {
        if !variants.contains(&row.variant.as_str()) {
            variants.push(&row.variant);
        }
        if !quantities.contains(&row.quantity.as_str()) {
            quantities.push(&row.quantity);
        }
    }
    let mut shown = Table::new([("mean", Align::Left)]);
    for variant in &variants {
        shown.column(variant, Align::Right);
    }
    for quantity in quantities {
        let of = |variant: &&str| {
            let is = |row: &&StudyRow| row.quantity == quantity && row.variant == **variant;
            cell(
                table
                    .rows
                    .iter()
                    .find(is)
                    .map(|row| format!("{:.2}", row.mean)),
            )
        };
        let mut cells = vec![quantity.to_owned()];
        cells.extend(variants.iter().map(of));
        shown.row(cells);
    }
    page.table(&shown);
}

fn horizons(page: &mut Page<'_>, report: &StudyReport) {
    if report.horizons.is_empty() {
        return;
    }
    page.heading("Horizon predicted from slope and content margin, and measured (tokens)");
    let mut table = Table::new([
        ("trial", Align::Left),
        ("task", Align::Left),
        ("predicted", Align::Right),
        ("measured", Align::Right),
        ("heads that read", Align::Left),
    ]);
    for line in &report.horizons {
        let found = &line.horizon;
        let predicted = match (found.predicted_unbounded, found.predicted) {
            (true, _) => "never ends".to_owned(),
            (false, predicted) => cell(predicted),
        };
        let open = if found.measured_unbounded { ">= " } else { "" };
        table.row(vec![
            escape(&line.trial).into_owned(),
            found.task.clone(),
            predicted,
            cell(found.measured.map(|measured| format!("{open}{measured}"))),
            found.readers.join(" "),
        ]);
    }
    page.table(&table);
    page.indented(
        "predicted: where the bias outweighs the mean margin of the answer over the last 20 keys, largest of the heads that read near \
         answers; measured: where recall falls below one half",
    );
}
