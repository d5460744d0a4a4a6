//! Text of `snellen probe`.

use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions, cell, document, plural};
use crate::number::{percent, short};
use crate::schema::{ProbeArea, ProbeCell, ProbeReport};

impl RenderText for ProbeReport {
    fn render_text(&self, options: &TextOptions) -> String {
        let body = |page: &mut Page<'_>| {
            summary(page, self);
            grid(page, &self.cells);
            what_if(page, &self.cells);
        };
        document(options, &self.envelope, &self.outcome, None, body)
    }
}

fn summary(page: &mut Page<'_>, report: &ProbeReport) {
    let settings = &report.settings;
    page.paragraph(&format!(
        "Task: {} (version {}), {} of {}, seed {}.",
        settings.task,
        settings.task_version,
        plural(report.all.cells, "cell"),
        plural(settings.samples, "sample"),
        settings.seed
    ));
    let mut facts = vec![("all", area(&report.all))];
    facts.extend(
        report
            .inside_trained_length
            .as_ref()
            .map(|part| ("inside the trained length", area(part))),
    );
    facts.extend(
        report
            .beyond_trained_length
            .as_ref()
            .map(|part| ("beyond the trained length", area(part))),
    );
    page.facts(&facts);
}

fn area(part: &ProbeArea) -> String {
    format!(
        "{} of {} found ({} to {}), area under accuracy {}",
        part.score.hits,
        plural(part.score.samples, "sample"),
        cell(part.score.accuracy_low.map(percent)),
        cell(part.score.accuracy_high.map(percent)),
        cell(part.area_under_accuracy.map(short))
    )
}

fn grid(page: &mut Page<'_>, cells: &[ProbeCell]) {
    page.heading("By length and depth");
    let mut table = Table::new([
        ("length", Align::Right),
        ("depth", Align::Right),
        ("true depth", Align::Right),
        ("found", Align::Right),
        ("95 % interval", Align::Right),
        ("ln p", Align::Right),
        ("median rank", Align::Right),
    ])
    .optional(["true depth", "median rank"]);
    for one in cells {
        let score = &one.score;
        let mut ranks: Vec<u64> = one.results.iter().map(|sample| sample.first_rank).collect();
        ranks.sort_unstable();
        table.row(vec![
            one.length.to_string(),
            short(one.depth),
            cell(one.true_depth.map(short)),
            format!("{}/{}", score.hits, score.samples),
            format!(
                "{} - {}",
                cell(score.accuracy_low.map(percent)),
                cell(score.accuracy_high.map(percent))
            ),
            cell(score.log_probability.map(short)),
            cell(ranks.get(ranks.len() / 2)),
        ]);
    }
    page.table(&table);
    page.indented(
        "found: the first integer of the greedy answer is the key; ln p: mean log-probability of the right answer, nats; rank: \
         tokens likelier than its first",
    );
}

fn what_if(page: &mut Page<'_>, cells: &[ProbeCell]) {
    if cells.iter().all(|cell| cell.what_if.is_empty()) {
        return;
    }
    page.heading("Cells with misses under another bias");
    let mut table = Table::new([
        ("length", Align::Right),
        ("depth", Align::Right),
        ("change", Align::Left),
        ("found", Align::Right),
        ("before", Align::Right),
        ("ln p", Align::Right),
        ("before", Align::Right),
    ]);
    for one in cells {
        for changed in &one.what_if {
            table.row(vec![
                one.length.to_string(),
                short(one.depth),
                changed.change.clone(),
                format!("{}/{}", changed.score.hits, changed.score.samples),
                one.score.hits.to_string(),
                cell(changed.score.log_probability.map(short)),
                cell(one.score.log_probability.map(short)),
            ]);
        }
    }
    page.table(&table);
}
