//! The heat map of a probe: a cell for each length and depth, with its counts, its interval and a bar.

use super::Figure;
use super::svg::{Svg, number};
use crate::html::escape_html;
use crate::number::{percent, short};
use crate::schema::{ProbeCell, ProbeReport};

const TOP: f64 = 44.0;
const LEFT: f64 = 64.0;
/// Narrowest that a column becomes before the figure is wider than was asked for.
const PITCH_MIN: f64 = 40.0;
const PITCH_MAX: f64 = 128.0;
/// From this width on a cell has its interval in numbers.
const INTERVAL_FITS: f64 = 74.0;
/// Height of the strip that holds the bar.
const STRIP: f64 = 11.0;

/// The figure; `None` without a cell.
pub(super) fn draw(report: &ProbeReport, width: f64) -> Option<Figure> {
    let lengths = distinct(report.cells.iter().map(|cell| cell.length as f64));
    let depths = distinct(report.cells.iter().map(|cell| cell.depth));
    if lengths.is_empty() {
        return None;
    }
    #[allow(clippy::cast_precision_loss)] // some columns
    let columns = lengths.len() as f64;
    let pitch = ((width - LEFT - 4.0) / columns).clamp(PITCH_MIN, PITCH_MAX);
    let height = if pitch >= INTERVAL_FITS { 54.0 } else { 36.0 };
    let grid = Grid { pitch, height };
    let mut svg = Svg::new();
    svg.styled_text(LEFT - 8.0, TOP - 6.0, "end", "axis", "depth");
    for (column, length) in lengths.iter().enumerate() {
        let x = grid.x(column) + (pitch - 3.0) / 2.0;
        svg.styled_text(x, TOP - 6.0, "middle", "axis", &short(*length));
    }
    for (row, depth) in depths.iter().enumerate() {
        svg.raw("<g role=\"row\">");
        let y = grid.y(row) + height / 2.0 + 3.0;
        svg.raw(&format!(
            "<text role=\"rowheader\" class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}%</text>",
            number(LEFT - 8.0),
            number(y),
            share(*depth)
        ));
        for (column, length) in lengths.iter().enumerate() {
            let cell = report
                .cells
                .iter()
                .position(|cell| cell.length as f64 == *length && cell.depth == *depth);
            match cell {
                Some(index) => grid.cell(&mut svg, (row, column), index, &report.cells[index]),
                None => grid.absent(&mut svg, (row, column)),
            }
        }
        svg.raw("</g>");
    }
    let rows = depths.len();
    trained(&mut svg, report, &lengths, &grid, rows);
    Some(Figure {
        title: "Found, by length and depth".to_owned(),
        label: format!(
            "Share found by length ({} to {} tokens) and depth: {} of {} in all",
            short(lengths[0]),
            short(lengths[lengths.len() - 1]),
            report.all.score.hits,
            report.all.score.samples
        ),
        caption: "Columns: tokens of prompt and answer; rows: where the fact lies, 0% at the beginning. A cell has the samples that \
                  were found, their 95 % Wilson interval, and both again as a bar with a whisker from 0 to 100%."
            .to_owned(),
        role: "grid",
        width: (grid.x(lengths.len()) + 4.0).max(LEFT + 150.0),
        height: grid.y(rows) + 4.0,
        body: svg.finish(),
    })
}

/// The numbers that occur, ascending.
fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// A depth in percent, with as many digits as it has.
pub(crate) fn share(depth: f64) -> String {
    short((1000.0 * depth).round() / 10.0)
}

/// What a cell says, in words.
pub(crate) fn words(cell: &ProbeCell) -> String {
    let score = &cell.score;
    let mut text = format!(
        "length {}, depth {}%: {} of {} found",
        cell.length,
        share(cell.depth),
        score.hits,
        score.samples
    );
    if let Some((low, high)) = score.accuracy_low.zip(score.accuracy_high) {
        text.push_str(&format!(
            ", 95 % interval {} to {}",
            percent(low),
            percent(high)
        ));
    }
    if let Some(nats) = score.log_probability {
        text.push_str(&format!("; ln p of the answer {}", short(nats)));
    }
    text
}

struct Grid {
    pitch: f64,
    height: f64,
}

#[allow(clippy::cast_precision_loss)] // rows and columns
impl Grid {
    fn x(&self, column: usize) -> f64 {
        LEFT + column as f64 * self.pitch
    }

    fn y(&self, row: usize) -> f64 {
        TOP + row as f64 * (self.height + 3.0)
    }

    fn cell(&self, svg: &mut Svg, at: (usize, usize), index: usize, cell: &ProbeCell) {
        let (x, y, w, h) = (self.x(at.1), self.y(at.0), self.pitch - 3.0, self.height);
        let score = &cell.score;
        let accuracy = score.accuracy.unwrap_or(0.0);
        let step = super::eye::step(accuracy);
        svg.raw("<g aria-hidden=\"true\" class=\"paint\">");
        svg.rect(&format!("c{step} tint"), x, y, w, h);
        let counts = format!("{}/{}", score.hits, score.samples);
        let fits = 7.8 * counts.len() as f64 <= w;
        if fits {
            svg.styled_text(x + w / 2.0, y + 17.0, "middle", "count", &counts);
        } else {
            let short = format!("{:.0}%", (100.0 * accuracy).floor());
            svg.styled_text(x + w / 2.0, y + 17.0, "middle", "cellnumber", &short);
        }
        let interval = score.accuracy_low.zip(score.accuracy_high);
        if let Some((low, high)) = interval.filter(|_| self.pitch >= INTERVAL_FITS) {
            let text = format!("{:.0}\u{2013}{:.0}%", 100.0 * low, 100.0 * high);
            svg.styled_text(x + w / 2.0, y + 34.0, "middle", "cellnumber", &text);
        }
        let (left, room, strip) = (x + 3.0, w - 6.0, y + h - STRIP - 2.0);
        // the whisker lies above the bar, where nothing is behind it
        svg.rect(
            &format!("c{step}"),
            left,
            strip + 5.0,
            accuracy * room,
            STRIP - 5.0,
        );
        if let Some((low, high)) = interval {
            let (from, to) = (left + low * room, left + high * room);
            svg.line("whisker", (from, strip + 2.0), (to, strip + 2.0));
            for end in [from, to] {
                svg.line("whisker", (end, strip), (end, strip + 4.0));
            }
        }
        svg.raw("</g>");
        svg.raw(&format!(
            "<rect class=\"cell\" role=\"gridcell\" tabindex=\"-1\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" aria-label=\"{}\" \
             data-row=\"{}\" data-column=\"{}\" data-id=\"cell-{index}\"/>",
            number(x),
            number(y),
            number(w),
            number(h),
            escape_html(&words(cell)),
            at.0,
            at.1
        ));
    }

    /// A place of the grid that was not run.
    fn absent(&self, svg: &mut Svg, at: (usize, usize)) {
        let (x, y, w, h) = (self.x(at.1), self.y(at.0), self.pitch - 3.0, self.height);
        svg.raw("<g aria-hidden=\"true\" class=\"paint\">");
        svg.rect("absent", x + 1.0, y + 1.0, w - 2.0, h - 2.0);
        svg.styled_text(x + w / 2.0, y + h / 2.0 + 4.0, "middle", "axis", "?");
        svg.raw("</g>");
    }
}

/// The line between lengths within the trained one and lengths beyond it.
fn trained(svg: &mut Svg, report: &ProbeReport, lengths: &[f64], grid: &Grid, rows: usize) {
    let model = report.envelope.model.as_ref();
    let Some(trained) = model.and_then(|model| model.trained_length) else {
        return;
    };
    let inside = lengths
        .iter()
        .filter(|length| **length <= trained as f64)
        .count();
    let x = grid.x(inside) - 1.5;
    svg.raw("<g aria-hidden=\"true\">");
    svg.line("limit", (x, 16.0), (x, grid.y(rows) - 3.0));
    let text = format!("trained at {trained}");
    let room = 6.4 * text.len() as f64 + 6.0;
    let right = inside < lengths.len() && x + room < grid.x(lengths.len());
    let (anchor, shift) = if right || x < room {
        ("start", 6.0)
    } else {
        ("end", -6.0)
    };
    svg.styled_text(x + shift, 22.0, anchor, "axis", &text);
    svg.raw("</g>");
}
