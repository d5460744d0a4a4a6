//! Tables with aligned columns: two spaces between, no rules, no trailing blanks.

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
}

impl Table {
    /// A table with these columns; numbers are right-aligned.
    pub(crate) fn new<const N: usize>(columns: [(&str, Align); N]) -> Self {
        Self {
            header: columns
                .iter()
                .map(|(name, align)| ((*name).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a column.
    pub(crate) fn column(&mut self, name: &str, align: Align) {
        self.header.push((name.to_owned(), align));
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The header line and the rows, each without its newline, indented by two spaces.
    pub(crate) fn lines(&self) -> Vec<String> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(self.header[column].0.chars().count())
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let line = |cells: &[String]| {
            let mut out = String::new();
            for ((cell, width), (_, align)) in cells.iter().zip(&widths).zip(&self.header) {
                out.push_str("  ");
                match align {
                    Align::Left => out.push_str(&format!("{cell:<width$}")),
                    Align::Right => out.push_str(&format!("{cell:>width$}")),
                }
            }
            out.truncate(out.trim_end().len());
            out
        };
        let header: Vec<String> = self.header.iter().map(|(name, _)| name.clone()).collect();
        std::iter::once(line(&header))
            .chain(self.rows.iter().map(|row| line(row)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new([("name", Align::Left), ("n", Align::Right)]);
        table.column("x", Align::Left);
        table.row(vec!["a".into(), "1".into()]);
        table.row(vec!["bcdef".into(), "123".into(), "y".into()]);
        assert_eq!(
            table.lines(),
            ["  name     n  x", "  a        1", "  bcdef  123  y"]
        );
    }
}
