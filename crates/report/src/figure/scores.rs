//! Scores of a task as points with whiskers on one axis of shares.

use super::Figure;
use super::scale::{Kind, Scale};
use super::svg::Svg;
use crate::number::percent;
use crate::schema::{Accuracy, TaskReport};

const LEFT: f64 = 110.0;
const ROW: f64 = 34.0;
/// Half widths of a 95 % interval in standard errors, normal approximation.
const Z95: f64 = 1.96;

/// Names and values of the scores that a task has.
pub(crate) fn scores(task: &TaskReport) -> Vec<(&'static str, Accuracy)> {
    let all = [
        ("accuracy", task.acc),
        ("by character", task.acc_norm),
        ("by byte", task.acc_bytes),
    ];
    all.into_iter()
        .filter(|(_, score)| score.value.is_some())
        .collect()
}

/// The figure; `None` without a score.
pub(super) fn draw(task: &TaskReport, width: f64) -> Option<Figure> {
    let scores = scores(task);
    if scores.is_empty() {
        return None;
    }
    #[allow(clippy::cast_precision_loss)] // three at most
    let bottom = 26.0 + ROW * scores.len() as f64;
    let x = Scale::new(Kind::Linear, 0.0, 1.0, (LEFT, width - 24.0));
    let mut svg = Svg::new();
    for tick in x.ticks(80.0) {
        let at = x.at(tick);
        svg.line("grid", (at, 22.0), (at, bottom));
        let text = format!("{:.0}%", 100.0 * tick);
        svg.styled_text(at, bottom + 15.0, "middle", "axis", &text);
    }
    if let Some(chance) = task.chance {
        let at = x.at(chance);
        svg.line("limit", (at, 18.0), (at, bottom));
        let text = format!("chance {}", percent(chance));
        svg.styled_text(at + 6.0, 14.0, "start", "axis", &text);
    }
    let mut words = Vec::new();
    let mut y = 26.0 + ROW / 2.0;
    for (index, (name, score)) in scores.iter().enumerate() {
        let value = score.value.unwrap_or(0.0);
        svg.styled_text(LEFT - 10.0, y + 4.0, "end", "label", name);
        if let Some(error) = score.standard_error {
            let ends = (x.at(value - Z95 * error), x.at(value + Z95 * error));
            svg.line("whisker", (ends.0, y), (ends.1, y));
            for end in [ends.0, ends.1] {
                svg.line("whisker", (end, y - 5.0), (end, y + 5.0));
            }
        }
        svg.marker(index, "dot0", x.at(value), y);
        let right = x.at(value) < width - 120.0;
        let (anchor, shift) = if right { ("start", 8.0) } else { ("end", -8.0) };
        svg.styled_text(
            x.at(value) + shift,
            y - 8.0,
            anchor,
            "axis",
            &percent(value),
        );
        words.push(format!("{name} {}", percent(value)));
        y += ROW;
    }
    Some(Figure {
        title: "Scores".to_owned(),
        label: format!("Scores: {}", words.join(", ")),
        caption: "Whiskers: 1.96 standard errors to both sides.".to_owned(),
        role: "img",
        width,
        height: bottom + 22.0,
        body: svg.finish(),
    })
}
