//! Which figures a result has.

use super::Figure;
use super::curves::{Curves, Point, Series};
use super::scale::Kind;
use super::{eye, heat, pair, scores, study};
use crate::document::Document;
use crate::schema::{EvalReport, PositionLoss, TrainReport};
use crate::text::charts;

/// Points of a curve that are drawn; more are averaged in equal parts.
const POINTS_MAX: usize = 240;
/// Half widths of a 95 % interval in standard errors, normal approximation.
const Z95: f64 = 1.96;

pub(super) fn figures(document: &Document, width: f64) -> Vec<Figure> {
    match document {
        Document::Horizon(_) | Document::Audit(_) | Document::Measure(_) => {
            let charts = charts::of(document);
            let drawn = charts.iter().filter_map(|named| eye::heads(named, width));
            drawn.collect()
        }
        Document::Probe(report) => heat::draw(report, width).into_iter().collect(),
        Document::Eval(report) => eval(report, width),
        Document::Train(report) => train(report, width),
        Document::Study(report) => study::figures(report, width),
        Document::Pair(pair) => pair::figures(pair, width),
        Document::Inspect(_) | Document::Prompts(_) | Document::Explain(_) => Vec::new(),
    }
}

/// Middle of a bin on a logarithmic axis.
#[allow(clippy::cast_precision_loss)] // tokens
pub(crate) fn middle(from: u64, to: u64) -> f64 {
    ((from as f64 + 1.0) * (to as f64 + 1.0)).sqrt() - 1.0
}

fn eval(report: &EvalReport, width: f64) -> Vec<Figure> {
    let mut out = Vec::new();
    if let Some(perplexity) = &report.perplexity {
        let point = |bin: &PositionLoss| {
            let nats = bin.loss.nats_per_token?;
            let error = bin.loss.standard_error_nats;
            Some(Point {
                x: middle(bin.from, bin.to),
                y: nats,
                interval: error.map(|error| (nats - Z95 * error, nats + Z95 * error)),
            })
        };
        let trained = report
            .envelope
            .model
            .as_ref()
            .and_then(|m| m.trained_length);
        let trained = trained.filter(|trained| *trained <= perplexity.length);
        #[allow(clippy::cast_precision_loss)] // tokens
        let mark = trained.map(|trained| (trained as f64, format!("trained at {trained}")));
        let curves = Curves {
            title: "Loss by tokens of context",
            caption: "Each point is a bin of positions (powers of two) at its middle; whiskers are 1.96 standard errors, tokens taken as \
                      independent."
                .to_owned(),
            x: ("tokens of context, logarithmic", Kind::Log),
            y: "nats a token",
            limits: None,
            share: false,
            series: vec![Series {
                name: "loss".to_owned(),
                points: perplexity.by_position.iter().filter_map(point).collect(),
            }],
            mark,
        };
        out.extend(curves.draw(width));
    }
    if let Some(task) = &report.task {
        out.extend(scores::draw(task, width));
    }
    out
}

#[allow(clippy::cast_precision_loss)] // steps
fn train(report: &TrainReport, width: f64) -> Vec<Figure> {
    let steps = &report.steps;
    let over = |value: &dyn Fn(&crate::schema::TrainStep) -> Option<f64>| {
        let points = steps
            .iter()
            .filter_map(|s| Some((s.step as f64, value(s)?)));
        thinned(&points.collect::<Vec<_>>())
    };
    let mut loss = vec![Series {
        name: "training text".to_owned(),
        points: over(&|step| Some(step.text)),
    }];
    let held = report.held.iter().map(|held| Point {
        x: held.step as f64,
        y: held.nats_per_token,
        interval: None,
    });
    loss.push(series("held-out text", held.collect()));
    loss.push(series("passkey answers", over(&|step| step.passkey)));
    loss.push(series("pair answers", over(&|step| step.pair)));
    loss.push(series("needle answers", over(&|step| step.needle)));
    loss.retain(|series| !series.points.is_empty());
    let part = steps.len().div_ceil(POINTS_MAX);
    let averaged = if part > 1 {
        format!("Each point of a training curve is the mean of {part} steps.")
    } else {
        String::new()
    };
    let curves = |title, y, share: bool, series: Vec<Series>| Curves {
        title,
        caption: averaged.clone(),
        x: ("step", Kind::Linear),
        y,
        limits: share.then_some((0.0, 1.0)),
        share,
        series,
        mark: None,
    };
    let mut out: Vec<Figure> = Vec::new();
    out.extend(curves("Loss", "nats", false, loss).draw(width));
    out.extend(recall(report).and_then(|curves| curves.draw(width)));
    let blind = report.looks.iter().filter_map(|look| {
        Some(Point {
            x: look.step as f64,
            y: look.blind_share?,
            interval: None,
        })
    });
    let blind = vec![series("pairs of weight zero", blind.collect())];
    let most = report.looks.iter().filter_map(|look| look.blind_share);
    let most = most.fold(0.01, f64::max);
    let mut blind = curves("Blind share of all heads", "share", true, blind);
    blind.limits = Some((0.0, (1.2 * most).min(1.0)));
    blind.caption =
        "Pairs whose weight is exactly zero under the run's rule, on the same held-out text."
            .to_owned();
    out.extend(blind.draw(width));
    let rate = vec![series(
        "learning rate",
        over(&|step| Some(step.learning_rate)),
    )];
    out.extend(curves("Learning rate", "rate", false, rate).draw(width));
    let named = charts::last_look(report);
    out.extend(named.and_then(|named| eye::heads(&named, width)));
    out
}

fn series(name: &str, points: Vec<Point>) -> Series {
    Series {
        name: name.to_owned(),
        points,
    }
}

/// Recall by distance at the last look.
fn recall(report: &TrainReport) -> Option<Curves> {
    let last = report.recall.last()?;
    let mut tasks: Vec<&str> = last.cells.iter().map(|cell| cell.task.as_str()).collect();
    tasks.dedup();
    let series = tasks.iter().map(|task| Series {
        name: (*task).to_owned(),
        points: last
            .cells
            .iter()
            .filter(|cell| cell.task == *task)
            .filter_map(|cell| {
                Some(Point {
                    x: middle(cell.from, cell.to),
                    y: cell.accuracy?,
                    interval: cell.accuracy_low.zip(cell.accuracy_high),
                })
            })
            .collect(),
    });
    Some(Curves {
        title: "Recall by distance",
        caption: format!(
            "After step {}, on held-out sequences of {} tokens; each point is a bin of distances at its middle; whiskers are 95 % Wilson \
             intervals.",
            last.step, last.length
        ),
        x: ("distance in tokens, logarithmic", Kind::Log),
        y: "answered right",
        limits: Some((0.0, 1.0)),
        share: true,
        series: series.collect(),
        mark: None,
    })
}

/// At most [`POINTS_MAX`] points, each the mean of as many in a row.
#[allow(clippy::cast_precision_loss)] // steps
fn thinned(points: &[(f64, f64)]) -> Vec<Point> {
    let part = points.len().div_ceil(POINTS_MAX).max(1);
    let mean = |points: &[(f64, f64)]| {
        let n = points.len() as f64;
        Point {
            x: points.iter().map(|point| point.0).sum::<f64>() / n,
            y: points.iter().map(|point| point.1).sum::<f64>() / n,
            interval: None,
        }
    };
    points.chunks(part).map(mean).collect()
}
