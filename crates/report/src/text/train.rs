//! Text of `snellen train`.

use super::spark::Sparks;
use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions, cell, charts, document, plural};
use crate::number::{grouped, percent, short};
use crate::schema::{TrainHead, TrainReport};

/// Rows of the table of the worst heads.
const WORST_SHOWN: usize = 12;

impl RenderText for TrainReport {
    fn render_text(&self, options: &TextOptions) -> String {
        let body = |page: &mut Page<'_>| {
            summary(page, self);
            curves(page, self);
            recall(page, self);
            heads(page, self);
        };
        document(options, &self.envelope, &self.outcome, None, body)
    }
}

fn summary(page: &mut Page<'_>, report: &TrainReport) {
    let run = &report.run;
    page.paragraph(&format!(
        "{} parameters, {}, attention {}; stages {}.",
        grouped(run.parameters.into()),
        super::escape(&run.position),
        super::escape(&run.attention),
        super::escape(&run.stages)
    ));
    let done = if run.finished {
        format!("All {} done", plural(run.steps, "step"))
    } else {
        format!("{} of {} done", run.steps_done, plural(run.steps, "step"))
    };
    let best = run.best.map_or_else(String::new, |best| {
        format!(
            "; best held-out loss {} nats a token after step {}",
            short(best.nats_per_token),
            best.step
        )
    });
    page.paragraph(&format!("{done}{best}."));
    if let Some(stop) = &run.stopped {
        page.paragraph(&format!(
            "Stopped at step {}: {}.",
            stop.step,
            super::escape(&stop.reason)
        ));
    }
}

fn curves(page: &mut Page<'_>, report: &TrainReport) {
    if report.steps.is_empty() {
        page.paragraph("No step is recorded.");
        return;
    }
    let last = report.steps.last().map_or(0, |step| step.step);
    page.heading(&format!("Loss over {}, nats", plural(last, "step")));
    let mut lines = vec![(
        "training text".to_owned(),
        report.steps.iter().map(|step| Some(step.text)).collect(),
    )];
    let mut optional = |name: &str, values: Vec<Option<f64>>| {
        if values.iter().any(Option::is_some) {
            lines.push((name.to_owned(), values));
        }
    };
    let held = report.held.iter().map(|held| Some(held.nats_per_token));
    optional("held-out text", held.collect());
    let steps = || report.steps.iter();
    optional("passkeys", steps().map(|step| step.passkey).collect());
    optional("pairs", steps().map(|step| step.pair).collect());
    optional("needles", steps().map(|step| step.needle).collect());
    Sparks {
        limits: None,
        lines,
        number: &short,
    }
    .draw(page);
    let looks: Vec<_> = report.looks.iter().map(|look| look.blind_share).collect();
    if !looks.is_empty() {
        page.heading("Blind share of all heads, at each look");
        Sparks {
            limits: Some((0.0, 1.0)),
            lines: vec![("blind".to_owned(), looks)],
            number: &percent,
        }
        .draw(page);
    }
}

fn recall(page: &mut Page<'_>, report: &TrainReport) {
    let Some(last) = report.recall.last() else {
        return;
    };
    page.heading(&format!("Recall by distance after step {}", last.step));
    let mut table = Table::new([
        ("task", Align::Left),
        ("distance", Align::Right),
        ("right", Align::Right),
        ("share", Align::Right),
        ("95 % interval", Align::Right),
        ("nats", Align::Right),
    ])
    .keys(2);
    for one in &last.cells {
        table.row(vec![
            super::escape(&one.task).into_owned(),
            format!("{}-{}", one.from, one.to),
            format!("{}/{}", one.right, one.questions),
            cell(one.accuracy.map(percent)),
            format!(
                "{} - {}",
                cell(one.accuracy_low.map(percent)),
                cell(one.accuracy_high.map(percent))
            ),
            short(one.nats),
        ]);
    }
    page.table(&table);
}

fn heads(page: &mut Page<'_>, report: &TrainReport) {
    let (Some(named), Some(look)) = (charts::last_look(report), report.looks.last()) else {
        return;
    };
    named.draw(page);
    let mut heads: Vec<&TrainHead> = look.heads.iter().collect();
    let blind = |head: &TrainHead| head.blind_share.unwrap_or(0.0);
    heads.sort_by(|a, b| {
        let order = blind(b).total_cmp(&blind(a));
        order
            .then_with(|| a.reach_90.cmp(&b.reach_90))
            .then_with(|| (a.layer, a.head).cmp(&(b.layer, b.head)))
    });
    let shown = heads.len().min(WORST_SHOWN);
    page.heading(&format!(
        "Shortest-sighted heads ({shown} of {})",
        heads.len()
    ));
    let mut table = Table::new([
        ("layer", Align::Right),
        ("head", Align::Right),
        ("blind", Align::Right),
        ("reach 90", Align::Right),
        ("key 0", Align::Right),
    ])
    .keys(2);
    for head in &heads[..shown] {
        table.row(vec![
            head.layer.to_string(),
            head.head.to_string(),
            cell(head.blind_share.map(percent)),
            head.reach_90.to_string(),
            percent(head.key0_mass),
        ]);
    }
    page.table(&table);
}
