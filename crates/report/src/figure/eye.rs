//! The eye chart: layers (or plans) x heads, a bar for what each head sees.

use super::Figure;
use super::svg::{Svg, number};
use crate::number::percent;
use crate::text::chart::{Cell, Chart, Row};
use crate::text::charts::Named;
use std::collections::{BTreeMap, BTreeSet};

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
    /// What a question mark says.
    pub(super) unknown: &'w str,
}

/// What a cell shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bar {
    /// Height, 0 to 1.
    pub(super) level: f64,
    /// Colour, 0 to 1; 1 only of a cell without a limit.
    pub(super) good: f64,
    /// Its number.
    pub(super) text: String,
}

impl Bar {
    /// A share, of which more is better.
    pub(super) fn of_share(share: f64) -> Self {
        let whole = share >= 1.0;
        Self {
            level: share.clamp(0.0, 1.0),
            good: share,
            text: if whole {
                "100%".to_owned()
            } else {
                percent(share)
            },
        }
    }
}

/// A cell; `bar` is `None` where nothing is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) bar: Option<Bar>,
    /// Letter of another failure.
    pub(super) mark: Option<char>,
}

/// Cells in rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grid {
    /// What the rows are.
    pub(super) row_name: &'static str,
    /// Numbers over the columns.
    pub(super) heads: Vec<u64>,
    /// Label and cells of each row; `None` where nothing was looked at.
    pub(super) rows: Vec<(String, Vec<Option<Place>>)>,
}

impl Grid {
    /// A row a layer, a column for each head that occurs in any.
    pub(super) fn by_layer(heads: impl Iterator<Item = (u64, u64, Place)>) -> Self {
        let mut layers: BTreeMap<u64, BTreeMap<u64, Place>> = BTreeMap::new();
        for (layer, head, place) in heads {
            layers.entry(layer).or_default().insert(head, place);
        }
        let columns: BTreeSet<u64> = layers
            .values()
            .flat_map(|row| row.keys().copied())
            .collect();
        let row = |(layer, mut places): (u64, BTreeMap<u64, Place>)| {
            let cells = columns.iter().map(|head| places.remove(head)).collect();
            (layer.to_string(), cells)
        };
        Self {
            row_name: "layer",
            rows: layers.into_iter().map(row).collect(),
            heads: columns.into_iter().collect(),
        }
    }
}

impl From<&Chart> for Grid {
    /// The chart of the terminal: shares.
    fn from(chart: &Chart) -> Self {
        let place = |cell: &Option<Cell>| {
            cell.map(|cell| Place {
                bar: cell.visible.map(Bar::of_share),
                mark: cell.mark,
            })
        };
        let row = |row: &Row| (row.label.clone(), row.cells.iter().map(place).collect());
        Self {
            row_name: chart.row_name,
            heads: chart.heads.clone(),
            rows: chart.rows.iter().map(row).collect(),
        }
    }
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
        unknown: "not known",
    };
    draw(&Grid::from(&named.chart), &named.title, &words, width)
}

/// The figure; `None` without a cell.
pub(super) fn draw(grid: &Grid, title: &str, words: &Words<'_>, width: f64) -> Option<Figure> {
    if grid.heads.is_empty() || grid.rows.is_empty() {
        return None;
    }
    let labels = grid.rows.iter().map(|(label, _)| label.chars().count());
    let widest = labels.max().unwrap_or(0).max(grid.row_name.len());
    #[allow(clippy::cast_precision_loss)] // rows, columns, characters
    let (left, columns, rows) = (
        18.0 + 6.6 * widest as f64,
        grid.heads.len() as f64,
        grid.rows.len() as f64,
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
    layout.ruler(&mut svg, grid);
    layout.paint(&mut svg, grid);
    let all: Vec<&Place> = grid
        .rows
        .iter()
        .flat_map(|(_, cells)| cells)
        .flatten()
        .collect();
    let mut caption = format!(
        "{}Height and colour of a bar: {}; a full bar {}; ? {}.",
        words.lead, words.bar, words.full, words.unknown
    );
    if big {
        caption.push_str(" The number is the same.");
    }
    let marks = all.iter().filter_map(|place| place.mark);
    if let Some(marks) = crate::text::mark_legend(marks) {
        caption.push_str(&format!(" Letters: {marks}."));
    }
    Some(Figure {
        title: title.to_owned(),
        label: label(title, &all, words),
        caption,
        role: "img",
        width: left + columns * pitch + 4.0,
        height: 22.0 + rows * pitch_y + 4.0,
        body: svg.finish(),
    })
}

/// How many cells are full, and the number of the worst.
fn label(title: &str, all: &[&Place], words: &Words<'_>) -> String {
    let known = || all.iter().filter_map(|place| place.bar.as_ref());
    let full = known().filter(|bar| bar.good >= 1.0).count();
    let worst = known().min_by(|a, b| a.good.total_cmp(&b.good));
    format!(
        "{title}: {full} of {} cells {}; the worst is {}",
        all.len(),
        words.fulls,
        worst.map_or("not known", |bar| bar.text.as_str())
    )
}

struct Layout {
    left: f64,
    pitch: f64,
    pitch_y: f64,
    big: bool,
}

#[allow(clippy::cast_precision_loss)] // rows and columns
impl Layout {
    fn ruler(&self, svg: &mut Svg, grid: &Grid) {
        svg.styled_text(self.left - 8.0, 13.0, "end", "axis", grid.row_name);
        let every = (24.0 / self.pitch).ceil().max(1.0) as usize;
        for (column, head) in grid.heads.iter().enumerate() {
            if column % every == 0 {
                let x = self.left + (column as f64 + 0.5) * self.pitch - 1.0;
                svg.styled_text(x, 13.0, "middle", "axis", &head.to_string());
            }
        }
        let every = (13.0 / self.pitch_y).ceil().max(1.0) as usize;
        for (row, (label, _)) in grid.rows.iter().enumerate() {
            if row % every == 0 {
                let y = 22.0 + (row as f64 + 0.5) * self.pitch_y + 3.0;
                svg.styled_text(self.left - 8.0, y, "end", "axis", label);
            }
        }
    }

    /// Two paths a colour step, whatever the number of cells, then numbers, letters and question marks.
    fn paint(&self, svg: &mut Svg, grid: &Grid) {
        let mut tint = vec![String::new(); 8];
        let mut bars = vec![String::new(); 8];
        let (mut absent, mut words) = (String::new(), Svg::new());
        let gap = if self.pitch > 12.0 { 2.0 } else { 1.0 };
        let (w, h) = (self.pitch - gap, self.pitch_y - gap);
        let room = if self.big { h - 15.0 } else { h };
        for (row, (_, cells)) in grid.rows.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
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
                let Some(own) = &cell.bar else {
                    absent.push_str(&block(y, h));
                    continue;
                };
                let at = step(own.good);
                tint[at].push_str(&block(y, h));
                let bar = own.level * room;
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

    fn letters(&self, svg: &mut Svg, cell: &Place, (x, y): (f64, f64), (w, h): (f64, f64)) {
        let middle = y + h / 2.0 + 4.0;
        match &cell.bar {
            Some(bar) if self.big => {
                let shift = if cell.mark.is_some() { 5.0 } else { 0.0 };
                let x = x + w / 2.0 - shift;
                svg.styled_text(x, y + 11.5, "middle", "cellnumber", &bar.text);
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
