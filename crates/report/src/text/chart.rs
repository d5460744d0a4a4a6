//! The eye chart: one row a layer, one cell a head.
//!
//! A cell is a glyph and a mark. The glyph says how much the head sees, on a ramp of eight steps that is readable without
//! colour; the mark is a letter for a failure of another kind, so that two kinds are never merged into one picture. Where the
//! terminal has no such glyphs the ramp is the digits, in tenths.

use super::style::{Style, TextOptions};
use super::{Page, outcome};

/// Visible share `[0, 1]` of one head, and what else is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    /// Share that is visible; `None` when it could not be told.
    pub(crate) visible: Option<f64>,
    /// Letter of another failure.
    pub(crate) mark: Option<char>,
}

/// A row of cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Layer number or plan.
    pub(crate) label: String,
    /// One cell per entry of [`Chart::heads`]; `None` where that head was not looked at in this row.
    pub(crate) cells: Vec<Option<Cell>>,
}

/// A whole chart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chart {
    /// What the rows are: `layer` or `plan`.
    pub(crate) row_name: &'static str,
    /// Original indices of the heads, one a column.
    pub(crate) heads: Vec<u64>,
    /// The rows.
    pub(crate) rows: Vec<Row>,
}

const RAMP: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Glyph of a visible share. The last glyph is kept for heads that see everything, so that "nearly" is never shown as "all".
fn glyph(visible: Option<f64>, ascii: bool) -> char {
    let Some(share) = visible else { return '?' };
    let steps = if ascii { 10.0 } else { 7.0 };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a small non-negative step
    let step = (share.clamp(0.0, 1.0) * steps).floor() as usize;
    match (share >= 1.0, ascii) {
        (true, true) => '#',
        (true, false) => RAMP[7],
        (false, true) => char::from(b'0' + u8::try_from(step.min(9)).unwrap_or(9)),
        (false, false) => RAMP[step.min(6)],
    }
}

impl Chart {
    /// Writes the chart and its legends; `whole` says what a full cell sees.
    pub(super) fn draw(&self, page: &mut Page<'_>, whole: &str) {
        page.lines(&self.lines(page.options));
        page.indented(&legend(whole, page.options));
        let cells = self.rows.iter().flat_map(|row| &row.cells).flatten();
        if let Some(marks) = outcome::mark_legend(cells.filter_map(|cell| cell.mark)) {
            page.indented(&marks);
        }
    }

    /// The chart's lines. Heads that do not fit the width continue in another panel with its own ruler.
    pub(crate) fn lines(&self, options: &TextOptions) -> Vec<String> {
        let label_width = self
            .rows
            .iter()
            .map(|row| row.label.chars().count())
            .max()
            .unwrap_or(0);
        let label_width = label_width.max(self.row_name.len());
        let room = options.width.saturating_sub(label_width + 4) / 2;
        // whole groups of four, so that every panel starts on a head that the ruler names
        let per_panel = (room / 4 * 4).max(4);
        let mut lines = Vec::new();
        for (panel, heads) in self.heads.chunks(per_panel).enumerate() {
            if panel > 0 {
                lines.push(String::new());
            }
            lines.push(ruler(self.row_name, label_width, heads, options));
            for row in &self.rows {
                let first = panel * per_panel;
                let mut line = format!("  {:>label_width$}  ", row.label);
                for cell in &row.cells[first..first + heads.len()] {
                    match cell {
                        None => line.push_str("  "),
                        Some(cell) => push_cell(&mut line, *cell, options),
                    }
                }
                lines.push(line.trim_end().to_owned());
            }
        }
        lines
    }
}

fn push_cell(line: &mut String, cell: Cell, options: &TextOptions) {
    let glyph = glyph(cell.visible, options.ascii).to_string();
    let style = match cell.visible {
        Some(share) if share >= 1.0 => Style::Plain,
        Some(share) if share >= 0.5 => Style::Warning,
        Some(_) => Style::Error,
        None => Style::Dim,
    };
    line.push_str(&options.paint(style, &glyph));
    match cell.mark {
        Some(mark) => line.push_str(&options.paint(Style::Bold, &mark.to_string())),
        None => line.push(' '),
    }
}

/// Head numbers above every fourth cell; the first one says that they are heads, where there is room.
fn ruler(row_name: &str, label_width: usize, heads: &[u64], options: &TextOptions) -> String {
    let mut out = format!("{row_name:>label_width$}  ");
    for (index, group) in heads.chunks(4).enumerate() {
        let named = format!("head {}", group[0]);
        let fits = named.len() < 8 || heads.len() <= 4;
        let label = if index == 0 && fits {
            named
        } else {
            group[0].to_string()
        };
        out.push_str(&format!("{label:<8}"));
    }
    format!("  {}", options.paint(Style::Dim, out.trim_end()))
}

/// The line that explains the glyphs; `whole` says what a full cell sees.
fn legend(whole: &str, options: &TextOptions) -> String {
    if options.ascii {
        format!("# sees {whole}; a digit: so many tenths of it; ? not known")
    } else {
        format!(
            "{} sees {whole}; {}..{}: less of it, in sevenths; ? not known",
            RAMP[7], RAMP[0], RAMP[6]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(n_heads: u64) -> Chart {
        #[allow(clippy::cast_precision_loss)]
        let cell = |head: u64| Cell {
            visible: Some(head as f64 / 10.0),
            mark: (head == 2).then_some('c'),
        };
        let row = |label: &str| Row {
            label: label.to_owned(),
            cells: (0..n_heads).map(|h| Some(cell(h))).collect(),
        };
        Chart {
            row_name: "layer",
            heads: (0..n_heads).collect(),
            rows: vec![row("0"), row("1")],
        }
    }

    #[test]
    fn a_cell_a_head_and_a_row_a_layer() {
        let options = TextOptions {
            width: 80,
            ..TextOptions::default()
        };
        assert_eq!(
            chart(12).lines(&options),
            [
                "  layer  head 0  4       8",
                "      0  ▁ ▁ ▂c▃ ▃ ▄ ▅ ▅ ▆ ▇ █ █",
                "      1  ▁ ▁ ▂c▃ ▃ ▄ ▅ ▅ ▆ ▇ █ █"
            ]
        );
        let options = TextOptions {
            ascii: true,
            ..options
        };
        assert_eq!(
            chart(12).lines(&options)[1],
            "      0  0 1 2c3 4 5 6 7 8 9 # #"
        );
    }

    #[test]
    fn many_heads_continue_in_panels_within_the_width() {
        let options = TextOptions {
            width: 60,
            ..TextOptions::default()
        };
        let lines = chart(112).lines(&options);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 60),
            "{lines:#?}"
        );
        // (60 - 5 - 4)/2 = 25 cells, 24 in whole groups: five panels of a ruler and two rows, four blank lines between
        assert_eq!(lines.len(), 5 * 3 + 4);
        assert!(lines[4].starts_with("  layer  head 24"));
    }

    #[test]
    fn nearly_everything_is_not_everything() {
        assert_eq!(glyph(Some(0.999_999), false), '▇');
        assert_eq!(glyph(Some(0.999_999), true), '9');
        assert_eq!(glyph(Some(1.0), false), '█');
        assert_eq!(glyph(None, false), '?');
    }
}
