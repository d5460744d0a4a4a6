//! Text of `snellen probe`.

use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions, cell, document, escape, plural};
use crate::number::{percent, short};
use crate::schema::{
    ProbeArea, ProbeCell, ProbeHeadSight, ProbePromptsReport, ProbeReport, ProbeSample,
};

/// Misses listed; the JSON form has all of them.
const FAILURES_SHOWN: usize = 40;

impl RenderText for ProbeReport {
    fn render_text(&self, options: &TextOptions) -> String {
        let body = |page: &mut Page<'_>| {
            summary(page, self);
            grid(page, &self.cells);
            what_if(page, &self.cells);
            witness(page, &self.cells);
            if self.show_failures {
                failures(page, &self.cells);
            }
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
    if settings.control {
        page.paragraph("A control: the facts were left out, so what is found was guessed.");
    }
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
    .optional(["true depth", "median rank"])
    .keys(2);
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
        "found: the greedy answer begins with the values asked for; ln p: mean log-probability of the right answer, nats; rank: \
         tokens likelier than its first",
    );
}

fn what_if(page: &mut Page<'_>, cells: &[ProbeCell]) {
    if cells.iter().all(|cell| cell.what_if.is_empty()) {
        return;
    }
    page.heading("Cells with misses under another bias or plan");
    let mut table = Table::new([
        ("length", Align::Right),
        ("depth", Align::Right),
        ("change", Align::Left),
        ("tests", Align::Left),
        ("found", Align::Right),
        ("before", Align::Right),
        ("ln p", Align::Right),
        ("before", Align::Right),
    ])
    .optional(["tests"])
    .keys(3);
    for one in cells {
        for changed in &one.what_if {
            table.row(vec![
                one.length.to_string(),
                short(one.depth),
                changed.change.clone(),
                changed.tests.clone(),
                format!("{}/{}", changed.score.hits, changed.score.samples),
                one.score.hits.to_string(),
                cell(changed.score.log_probability.map(short)),
                cell(one.score.log_probability.map(short)),
            ]);
        }
    }
    page.table(&table);
    causes(page, cells);
}

/// What a cell's misses are due to, as far as the changes tell.
fn causes(page: &mut Page<'_>, cells: &[ProbeCell]) {
    for one in cells.iter().filter(|cell| !cell.what_if.is_empty()) {
        let place = format!("length {}, depth {}", one.length, short(one.depth));
        let what = match one.causes.as_slice() {
            [] => "none of these changes finds more than chance would: not learned, or beyond the reach of a change of the bias"
                .to_owned(),
            causes => format!("the misses are due to {}", causes.join(", ")),
        };
        page.item(&format!("{place}: {what}"));
    }
}

/// How many heads had the fact within sight, and which of them best.
fn witness(page: &mut Page<'_>, cells: &[ProbeCell]) {
    if cells.iter().all(|cell| cell.witness.is_empty()) {
        return;
    }
    page.heading("Heads that saw the fact");
    let mut table = Table::new([
        ("length", Align::Right),
        ("depth", Align::Right),
        ("plan", Align::Left),
        ("seen", Align::Right),
        ("sub-ulp", Align::Right),
        ("blind", Align::Right),
        ("best head", Align::Left),
        ("weight", Align::Right),
        ("distance", Align::Right),
    ])
    .optional(["distance", "sub-ulp"])
    .keys(3);
    for one in cells {
        for witness in &one.witness {
            let best = best(&witness.by_head);
            table.row(vec![
                one.length.to_string(),
                short(one.depth),
                witness.plan.clone(),
                format!("{} of {}", witness.seen, witness.heads),
                witness.sub_ulp.to_string(),
                witness.blind.to_string(),
                cell(best.map(|head| format!("layer {} head {}", head.layer, head.head))),
                cell(best.and_then(|head| head.weight).map(short)),
                cell(best.map(|head| head.distance)),
            ]);
        }
    }
    page.table(&table);
    page.indented(
        "from the last token of the prompt, by the best sample: seen, a weight on the fact above half an ulp of 1 in the plan's \
         output format; sub-ulp, a smaller one; blind, none",
    );
}

/// The head with the largest weight, of equals the first.
fn best(heads: &[ProbeHeadSight]) -> Option<&ProbeHeadSight> {
    let largest = heads
        .iter()
        .filter_map(|head| head.weight)
        .fold(0.0, f64::max);
    let mut seen = heads.iter().filter(|_| largest > 0.0);
    seen.find(|head| head.weight == Some(largest))
}

fn failures(page: &mut Page<'_>, cells: &[ProbeCell]) {
    let missed = |one: &'_ ProbeCell| -> Vec<(u64, f64, usize, ProbeSample)> {
        let results = one.results.iter().enumerate();
        let missed = results.filter(|(_, sample)| !sample.hit);
        missed
            .map(|(index, sample)| (one.length, one.depth, index, sample.clone()))
            .collect()
    };
    let missed: Vec<_> = cells.iter().flat_map(missed).collect();
    let shown = missed.len().min(FAILURES_SHOWN);
    page.heading(&format!("Misses ({shown} of {})", missed.len()));
    for (length, depth, index, sample) in &missed[..shown] {
        page.item(&format!(
            "length {length}, depth {}, sample {index}: {} was asked for, the answer was \u{201c}{}\u{201d} (ln p {}, rank {})",
            short(*depth),
            sample.key,
            escape(&sample.answer),
            cell(sample.log_probability.map(short)),
            sample.first_rank
        ));
    }
}

impl RenderText for ProbePromptsReport {
    fn render_text(&self, options: &TextOptions) -> String {
        let body = |page: &mut Page<'_>| prompts(page, self);
        document(options, &self.envelope, &self.outcome, None, body)
    }
}

fn prompts(page: &mut Page<'_>, report: &ProbePromptsReport) {
    let settings = &report.settings;
    page.paragraph(&format!(
        "Task: {} (version {}), {} of {}, seed {}; built and not run. A run takes {} through the model.",
        settings.task,
        settings.task_version,
        plural(report.cells.len() as u64, "cell"),
        plural(settings.samples, "sample"),
        settings.seed,
        plural(report.tokens_to_run, "token")
    ));
    page.heading("Prompts");
    let mut table = Table::new([
        ("length", Align::Right),
        ("depth", Align::Right),
        ("true depth", Align::Right),
        ("tokens", Align::Right),
        ("shared", Align::Right),
        ("fact at", Align::Right),
        ("hash of the first", Align::Left),
    ])
    .optional(["hash of the first"])
    .keys(2);
    for one in &report.cells {
        let (least, most) = (
            one.prompts.iter().map(|prompt| prompt.prompt_tokens).min(),
            one.prompts.iter().map(|prompt| prompt.prompt_tokens).max(),
        );
        let tokens = match (least, most) {
            (Some(least), Some(most)) if least != most => format!("{least}-{most}"),
            (least, _) => cell(least),
        };
        let first = one.prompts.first();
        table.row(vec![
            one.length.to_string(),
            short(one.depth),
            cell(one.true_depth.map(short)),
            tokens,
            one.shared_tokens.to_string(),
            cell(
                first
                    .and_then(|prompt| prompt.needles.first())
                    .map(|needle| needle.at),
            ),
            first.map_or_else(String::new, |prompt| {
                prompt.prompt_hash.chars().take(12).collect()
            }),
        ]);
    }
    page.table(&table);
}
