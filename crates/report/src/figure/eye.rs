//! The eye chart: layers (or plans) x heads, a bar for what each head sees.

use super::Figure;
use super::svg::{Svg, number};
use crate::number::percent;
use crate::text::chart::{Cell, Chart};
use crate::text::charts::Named;

/// Colour step of a share; 7 is kept for all of it, so that "nearly" is never shown as "all".
pub(super) fn step(share: f64) -> usize {
    if share >= 1.0 {
        return 7;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 6
    let step = (7.0 * share.max(0.0)).floor() as usize;
    step.min(6)
}

/// From this pitch on a cell has its number.
const NUMBER_FITS: f64 = 40.0;

/// What the cells of a chart are, in words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Words<'w> {
    /// Before everything else in the caption.
    pub(super) lead: &'w str,
    /// What a bar is.
    pub(super) bar: &'w str,
    /// What a full bar says: `sees every pair`.
    pub(super) full: &'w str,
    /// The same of several: `see every pair`.
    pub(super) fulls: &'w str,
    /// Verb before the smallest share.
    pub(super) least: &'w str,
}

/// The chart of heads; `None` without a cell.
pub(super) fn heads(named: &Named, width: f64) -> Option<Figure> {
    let (full, fulls) = (
        format!("sees {}", named.whole),
        format!("see {}", named.whole),
    );
    let words = Words {
        lead: "",
        bar: "the share that the head sees",
        full: &full,
        fulls: &fulls,
        least: "sees",
    };
    draw(&named.chart, &named.title, &words, width)
}

/// The figure; `None` without a cell.
pub(super) fn draw(chart: &Chart, title: &str, words: &Words<'_>, width: f64) -> Option<Figure> {
    if chart.heads.is_empty() || chart.rows.is_empty() {
        return None;
    }
    let widest = chart.rows.iter().map(|row| row.label.chars().count()).max();
    #[allow(clippy::cast_precision_loss)] // rows, columns, characters
    let (left, columns, rows) = (
        18.0 + 6.6 * widest.unwrap_or(0).max(chart.row_name.len()) as f64,
        chart.heads.len() as f64,
        chart.rows.len() as f64,
    );
    let pitch = ((width - left - 4.0) / columns).floor().clamp(10.0, 76.0);
    let big = pitch >= NUMBER_FITS;
    let pitch_y = if big { 36.0 } else { pitch.clamp(10.0, 26.0) };
    let layout = Layout {
        left,
        pitch,
        pitch_y,
        big,
    };
    let mut svg = Svg::new();
    layout.ruler(&mut svg, chart);
    layout.paint(&mut svg, chart);
    let all: Vec<&Cell> = chart
        .rows
        .iter()
        .flat_map(|row| &row.cells)
        .flatten()
        .collect();
    let known = all.iter().filter_map(|cell| cell.visible);
    let full = known.clone().filter(|share| *share >= 1.0).count();
    let mut caption = format!(
        "{}Height and colour of a bar: {}; a full bar {}; ? not known.",
        words.lead, words.bar, words.full
    );
    if big {
        caption.push_str(" The number is the same share.");
    }
    let marks = all.iter().filter_map(|cell| cell.mark);
    if let Some(marks) = crate::text::mark_legend(marks) {
        caption.push_str(&format!(" Letters: {marks}."));
    }
    Some(Figure {
        title: title.to_owned(),
        label: format!(
            "{title}: {full} of {} cells {}; the least {} {}",
            all.len(),
            words.fulls,
            words.least,
            known
                .reduce(f64::min)
                .map_or_else(|| "an unknown share".to_owned(), percent)
        ),
        caption,
        role: "img",
        width: left + columns * pitch + 4.0,
        height: 22.0 + rows * pitch_y + 4.0,
        body: svg.finish(),
    })
}

struct Layout {
    left: f64,
    pitch: f64,
    pitch_y: f64,
    big: bool,
}

#[allow(clippy::cast_precision_loss)] // rows and columns
impl Layout {
    fn ruler(&self, svg: &mut Svg, chart: &Chart) {
        svg.styled_text(self.left - 8.0, 13.0, "end", "axis", chart.row_name);
        let every = (24.0 / self.pitch).ceil().max(1.0) as usize;
        for (column, head) in chart.heads.iter().enumerate() {
            if column % every == 0 {
                let x = self.left + (column as f64 + 0.5) * self.pitch - 1.0;
                svg.styled_text(x, 13.0, "middle", "axis", &head.to_string());
            }
        }
        let every = (13.0 / self.pitch_y).ceil().max(1.0) as usize;
        for (row, entry) in chart.rows.iter().enumerate() {
            if row % every == 0 {
                let y = 22.0 + (row as f64 + 0.5) * self.pitch_y + 3.0;
                svg.styled_text(self.left - 8.0, y, "end", "axis", &entry.label);
            }
        }
    }

    /// Two paths a colour step, whatever the number of cells, then numbers, letters and question marks.
    fn paint(&self, svg: &mut Svg, chart: &Chart) {
        let mut tint = vec![String::new(); 8];
        let mut bars = vec![String::new(); 8];
        let (mut absent, mut words) = (String::new(), Svg::new());
        let gap = if self.pitch > 12.0 { 2.0 } else { 1.0 };
        let (w, h) = (self.pitch - gap, self.pitch_y - gap);
        let room = if self.big { h - 15.0 } else { h };
        for (row, entry) in chart.rows.iter().enumerate() {
            for (column, cell) in entry.cells.iter().enumerate() {
                let Some(cell) = cell else { continue };
                let (x, y) = (
                    self.left + column as f64 * self.pitch,
                    22.0 + row as f64 * self.pitch_y,
                );
                let block = |top: f64, height: f64| {
                    format!(
                        "M{} {}h{w}v{height}h{}z",
                        number(x),
                        number(top),
                        number(-w),
                        w = number(w),
                        height = number(height)
                    )
                };
                self.letters(&mut words, cell, (x, y), (w, h));
                let Some(share) = cell.visible else {
                    absent.push_str(&block(y, h));
                    continue;
                };
                let at = step(share);
                tint[at].push_str(&block(y, h));
                let bar = share.clamp(0.0, 1.0) * room;
                if bar > 0.0 {
                    bars[at].push_str(&block(y + h - bar.max(1.0), bar.max(1.0)));
                }
            }
        }
        svg.raw("<g class=\"paint\">");
        for (at, path) in tint.iter().enumerate() {
            svg.path(&format!("c{at} tint"), path);
        }
        for (at, path) in bars.iter().enumerate() {
            svg.path(&format!("c{at}"), path);
        }
        svg.path("absent", &absent);
        svg.raw(&words.finish());
        svg.raw("</g>");
    }

    fn letters(&self, svg: &mut Svg, cell: &Cell, (x, y): (f64, f64), (w, h): (f64, f64)) {
        let middle = y + h / 2.0 + 4.0;
        match cell.visible {
            Some(share) if self.big => {
                let text = if share >= 1.0 {
                    "100%".to_owned()
                } else {
                    percent(share)
                };
                let shift = if cell.mark.is_some() { 5.0 } else { 0.0 };
                svg.styled_text(x + w / 2.0 - shift, y + 11.5, "middle", "cellnumber", &text);
            }
            None if self.pitch >= 15.0 => {
                svg.styled_text(x + w / 2.0, middle, "middle", "cellnumber", "?");
            }
            _ => {}
        }
        let Some(mark) = cell.mark else { return };
        let text = mark.to_string();
        if self.big {
            svg.styled_text(x + w - 5.0, y + 11.5, "middle", "mark", &text);
        } else if self.pitch >= 15.0 {
            svg.styled_text(x + w / 2.0, middle, "middle", "mark", &text);
        }
    }
}
