//! Tables with aligned columns: two spaces between, no rules, no trailing blanks.
//!
//! A table that is too wide for the page gives way in a fixed order: headers break at blanks, then columns that were declared
//! [`Table::optional`] are left out, then a left-aligned last column continues on further lines. Nothing is cut.

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table being filled.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// Names of columns that may be left out, the first to go first.
    optional: Vec<&'static str>,
}

/// A table laid out for a width.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    /// Lines of the header, indented by two spaces.
    pub(crate) header: Vec<String>,
    /// Lines of the rows.
    pub(crate) rows: Vec<String>,
    /// Columns that did not fit.
    pub(crate) left_out: Vec<&'static str>,
}

/// Narrowest that a last column becomes before it sticks out of the page.
const LAST_COLUMN_MIN: usize = 12;

impl Table {
    /// A table with these columns; numbers are right-aligned.
    pub(crate) fn new<const N: usize>(columns: [(&str, Align); N]) -> Self {
        Self {
            header: columns
                .iter()
                .map(|(name, align)| ((*name).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
            optional: Vec::new(),
        }
    }

    /// Names columns that may be left out where the page is narrow, the first to go first.
    pub(crate) fn optional<const N: usize>(mut self, columns: [&'static str; N]) -> Self {
        self.optional = columns.into();
        self
    }

    /// Adds a column.
    pub(crate) fn column(&mut self, name: &str, align: Align) {
        self.header.push((name.to_owned(), align));
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table within `width` columns where it can be.
    pub(crate) fn lines(&self, width: usize) -> Lines {
        let mut columns: Vec<usize> = (0..self.header.len()).collect();
        let whole = |column: usize| vec![self.header[column].0.clone()];
        let broken = |column: usize| {
            let words = self.header[column].0.split(' ');
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        let mut headers: Vec<Vec<String>> = columns.iter().map(|&c| whole(c)).collect();
        let mut left_out = Vec::new();
        if self.total(&columns, &headers) > width {
            headers = columns.iter().map(|&c| broken(c)).collect();
        }
        for &name in &self.optional {
            if self.total(&columns, &headers) <= width {
                break;
            }
            if let Some(at) = columns.iter().position(|&c| self.header[c].0 == name) {
                columns.remove(at);
                headers.remove(at);
                left_out.push(name);
            }
        }
        let mut widths = self.widths(&columns, &headers);
        if let (Some(&last), Some(last_width)) = (columns.last(), widths.last_mut()) {
            let over = self.total(&columns, &headers).saturating_sub(width);
            if self.header[last].1 == Align::Left && over > 0 {
                let header = headers.last().into_iter().flatten();
                let least = header.map(|line| line.chars().count()).max().unwrap_or(0);
                let room = last_width.saturating_sub(over);
                *last_width = room.max(least).max(LAST_COLUMN_MIN).min(*last_width);
            }
        }

        let height = headers.iter().map(Vec::len).max().unwrap_or(1);
        let header_line = |line: usize| {
            // names stand on the last lines, next to their cells
            let cell = |lines: &Vec<String>| {
                let first = height - lines.len();
                line.checked_sub(first)
                    .map_or("", |at| lines[at].as_str())
                    .to_owned()
            };
            self.line(
                &columns,
                &widths,
                &headers.iter().map(cell).collect::<Vec<_>>(),
            )
        };
        let row_lines = |row: &Vec<String>| {
            let mut cells: Vec<String> = columns
                .iter()
                .map(|&c| row.get(c).cloned().unwrap_or_default())
                .collect();
            let pieces = match (cells.last(), widths.last()) {
                (Some(cell), Some(&width)) => broken_cell(cell, width),
                _ => Vec::new(),
            };
            let mut lines = Vec::new();
            for piece in pieces {
                if let Some(last) = cells.last_mut() {
                    *last = piece;
                }
                lines.push(self.line(&columns, &widths, &cells));
                cells.iter_mut().for_each(String::clear);
            }
            lines
        };
        Lines {
            header: (0..height).map(header_line).collect(),
            rows: self.rows.iter().flat_map(row_lines).collect(),
            left_out,
        }
    }

    fn widths(&self, columns: &[usize], headers: &[Vec<String>]) -> Vec<usize> {
        let widest = |(&column, header): (&usize, &Vec<String>)| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let all = cells.chain(header).map(|cell| cell.chars().count());
            all.max().unwrap_or(0)
        };
        columns.iter().zip(headers).map(widest).collect()
    }

    fn total(&self, columns: &[usize], headers: &[Vec<String>]) -> usize {
        self.widths(columns, headers).iter().map(|w| w + 2).sum()
    }

    fn line(&self, columns: &[usize], widths: &[usize], cells: &[String]) -> String {
        let mut out = String::new();
        for ((cell, width), &column) in cells.iter().zip(widths).zip(columns) {
            out.push_str("  ");
            match self.header[column].1 {
                Align::Left => out.push_str(&format!("{cell:<width$}")),
                Align::Right => out.push_str(&format!("{cell:>width$}")),
            }
        }
        out.truncate(out.trim_end().len());
        out
    }
}

/// The cell in pieces of at most `width` characters, broken behind a blank or a dot where there is one; a piece without
/// either stays whole.
fn broken_cell(cell: &str, width: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for part in cell.split_inclusive([' ', '.']) {
        let last = pieces.len() - 1;
        let length = pieces[last].chars().count() + part.trim_end().chars().count();
        if length > width && !pieces[last].is_empty() {
            pieces.push(part.to_owned());
        } else {
            pieces[last].push_str(part);
        }
    }
    for piece in &mut pieces {
        piece.truncate(piece.trim_end().len());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([("name", Align::Left), ("n", Align::Right)]);
        table.column("x", Align::Left);
        table.row(vec!["a".into(), "1".into()]);
        table.row(vec!["bcdef".into(), "123".into(), "y".into()]);
        table
    }

    #[test]
    fn columns_line_up() {
        let lines = table().lines(80);
        assert_eq!(lines.header, ["  name     n  x"]);
        assert_eq!(lines.rows, ["  a        1", "  bcdef  123  y"]);
    }

    #[test]
    fn headers_break_before_columns_go() {
        let mut table = Table::new([
            ("first blind", Align::Right),
            ("last seen", Align::Right),
            ("n", Align::Right),
        ])
        .optional(["last seen"]);
        table.row(vec!["120".into(), "200".into(), "7".into()]);
        let lines = table.lines(17);
        assert_eq!(lines.header, ["  first  last", "  blind  seen  n"]);
        assert_eq!(lines.rows, ["    120   200  7"]);
        assert!(lines.left_out.is_empty());
        let lines = table.lines(12);
        assert_eq!(lines.rows, ["    120  7"]);
        assert_eq!(lines.left_out, ["last seen"]);
    }

    #[test]
    fn a_long_last_cell_continues_below_itself() {
        let mut table = Table::new([("n", Align::Right), ("name", Align::Left)]);
        table.row(vec!["24".into(), "h.N.self_attention.query.weight".into()]);
        let lines = table.lines(25);
        assert_eq!(
            lines.rows,
            ["  24  h.N.self_attention.", "      query.weight"]
        );
    }
}
