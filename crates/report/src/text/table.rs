//! Tables with aligned columns: two spaces between, no rules, no trailing blanks.
//!
//! A table that is too wide for the page gives way in a fixed order: headers break at blanks, columns that were declared
//! [`Table::optional`] are left out, a left-aligned last column continues on further lines, or stands below its row where it has no room
//! for its words, and at last the table is cut into panels that stand below each other, each with the first columns, beside the others or above
//! them. Nothing else is cut.

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
    /// So many columns at the beginning say what a row is.
    keys: usize,
}

/// A table laid out for a width.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    /// The table, or its parts where it did not fit.
    pub(crate) panels: Vec<Panel>,
    /// Columns that did not fit.
    pub(crate) left_out: Vec<&'static str>,
}

/// Columns side by side.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Panel {
    /// Lines of the header, indented by two spaces.
    pub(crate) header: Vec<String>,
    /// Lines of the rows.
    pub(crate) rows: Vec<String>,
}

/// A column that is shown: its place in the table, the lines of its header, and its width.
#[derive(Clone, Debug)]
struct Shown {
    column: usize,
    header: Vec<String>,
    width: usize,
}

/// Blanks before each column.
const GAP: usize = 2;
/// Blanks before a last column that stands below its row.
const BELOW: usize = 4;

/// Narrowest that a last column becomes beside the others.
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
            keys: 1,
        }
    }

    /// Says that the first `count` columns name a row, instead of one: they are repeated where the table is cut into panels.
    pub(crate) fn keys(mut self, count: usize) -> Self {
        self.keys = count;
        self
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

    /// Whether the table is whole within `width` columns: nothing left out, nothing cut into panels or put below its row.
    pub(crate) fn fits(&self, width: usize) -> bool {
        total(&self.columns(true)) <= width
    }

    /// The table within `width` columns where it can be.
    pub(crate) fn lines(&self, width: usize) -> Lines {
        let mut shown = self.columns(false);
        if total(&shown) > width {
            shown = self.columns(true);
        }
        let mut left_out = Vec::new();
        for &name in &self.optional {
            if total(&shown) <= width {
                break;
            }
            if let Some(at) = shown.iter().position(|s| self.header[s.column].0 == name) {
                shown.remove(at);
                left_out.push(name);
            }
        }
        let rest = &shown[..shown.len().saturating_sub(1)];
        let may_stand_below = shown.last().is_some_and(|last| self.is_left(last));
        let panels = if total(&shown) <= width || may_stand_below && total(rest) <= width {
            vec![self.panel(shown, width)]
        } else {
            self.panels(&shown, width)
        };
        Lines { panels, left_out }
    }

    /// All columns, their headers whole or broken at blanks.
    fn columns(&self, broken: bool) -> Vec<Shown> {
        let header = |name: &String| match broken {
            true => name.split(' ').map(str::to_owned).collect(),
            false => vec![name.clone()],
        };
        let columns = self.header.iter().enumerate();
        columns
            .map(|(column, (name, _))| self.shown(column, header(name)))
            .collect()
    }

    fn shown(&self, column: usize, header: Vec<String>) -> Shown {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let all = cells.chain(&header).map(|cell| cell.chars().count());
        Shown {
            width: all.max().unwrap_or(0),
            column,
            header,
        }
    }

    /// The columns in groups that fit the width, each with the keys.
    fn panels(&self, shown: &[Shown], width: usize) -> Vec<Panel> {
        let (keys, others) = shown.split_at(self.keys.min(shown.len()));
        let widest = others.iter().map(|s| s.width + GAP).max().unwrap_or(0);
        if total(keys) + widest <= width {
            let groups = groups(others, width - total(keys)).into_iter();
            let beside = |group: &[Shown]| self.panel([keys, group].concat(), width);
            return groups.map(beside).collect();
        }
        let room = width.saturating_sub(GAP);
        let groups = groups(others, room).into_iter();
        let under = |group: &[Shown]| self.under(keys, group.to_vec(), room);
        groups.map(under).collect()
    }

    /// Keys on lines of their own, each row's other columns below them.
    fn under(&self, keys: &[Shown], mut group: Vec<Shown>, width: usize) -> Panel {
        let over = total(&group).saturating_sub(width);
        if let Some(last) = group.last_mut().filter(|last| self.is_left(last)) {
            last.width = last.width.saturating_sub(over).max(self.least(last));
        }
        let both = |mut above: Vec<String>, below: Vec<String>| {
            above.extend(below.into_iter().map(|line| format!("{:GAP$}{line}", "")));
            above
        };
        let row = |row: &Vec<String>| both(self.row_lines(keys, row), self.row_lines(&group, row));
        Panel {
            header: both(self.header_lines(keys), self.header_lines(&group)),
            rows: self.rows.iter().flat_map(row).collect(),
        }
    }

    fn is_left(&self, shown: &Shown) -> bool {
        self.header[shown.column].1 == Align::Left
    }

    /// Columns side by side, the last one beside the others or below them.
    fn panel(&self, mut shown: Vec<Shown>, width: usize) -> Panel {
        let over = total(&shown).saturating_sub(width);
        let mut below = None;
        if over > 0
            && let Some(last) = shown.last_mut().filter(|last| self.is_left(last))
        {
            let room = last.width.saturating_sub(over);
            let least = self.least(last);
            if room >= least {
                last.width = room;
            } else if width > BELOW && shown.len() > 1 {
                below = shown.pop();
            }
        }
        let mut header = self.header_lines(&shown);
        if let Some(last) = &below {
            header.push(format!("{:BELOW$}{}", "", last.header.join(" ")));
        }
        let rows = self.rows.iter().flat_map(|row| {
            let mut lines = self.row_lines(&shown, row);
            if let Some(cell) = below.as_ref().and_then(|last| row.get(last.column)) {
                let pieces = broken_cell(cell, width - BELOW).into_iter();
                let pieces = pieces.filter(|piece| !piece.is_empty());
                lines.extend(pieces.map(|piece| format!("{:BELOW$}{piece}", "")));
            }
            lines
        });
        Panel {
            header,
            rows: rows.collect(),
        }
    }

    /// The narrowest that this column can be without breaking a word.
    fn least(&self, shown: &Shown) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(shown.column));
        let words = cells.flat_map(|cell| broken_cell(cell, 0));
        let all = words.chain(shown.header.iter().cloned());
        let longest = all.map(|word| word.chars().count()).max().unwrap_or(0);
        longest.max(LAST_COLUMN_MIN).min(shown.width)
    }

    fn header_lines(&self, shown: &[Shown]) -> Vec<String> {
        let height = shown.iter().map(|s| s.header.len()).max().unwrap_or(1);
        let line = |line: usize| {
            // names stand on the last lines, next to their cells
            let cell = |s: &Shown| {
                let first = height - s.header.len();
                line.checked_sub(first)
                    .map_or("", |at| s.header[at].as_str())
                    .to_owned()
            };
            self.line(shown, &shown.iter().map(cell).collect::<Vec<_>>())
        };
        (0..height).map(line).collect()
    }

    fn row_lines(&self, shown: &[Shown], row: &[String]) -> Vec<String> {
        let mut cells: Vec<String> = shown
            .iter()
            .map(|s| row.get(s.column).cloned().unwrap_or_default())
            .collect();
        let pieces = match (cells.last(), shown.last()) {
            (Some(cell), Some(last)) => broken_cell(cell, last.width),
            _ => Vec::new(),
        };
        let mut lines = Vec::new();
        for piece in pieces {
            if let Some(last) = cells.last_mut() {
                *last = piece;
            }
            lines.push(self.line(shown, &cells));
            cells.iter_mut().for_each(String::clear);
        }
        lines
    }

    fn line(&self, shown: &[Shown], cells: &[String]) -> String {
        let mut out = String::new();
        for (cell, Shown { column, width, .. }) in cells.iter().zip(shown) {
            out.push_str(&" ".repeat(GAP));
            match self.header[*column].1 {
                Align::Left => out.push_str(&format!("{cell:<width$}")),
                Align::Right => out.push_str(&format!("{cell:>width$}")),
            }
        }
        out.truncate(out.trim_end().len());
        out
    }
}

/// Neighbours that fit the width together, as many as do.
fn groups(shown: &[Shown], width: usize) -> Vec<&[Shown]> {
    let mut groups = Vec::new();
    let mut rest = shown;
    while !rest.is_empty() {
        let fit = (1..=rest.len()).take_while(|&n| total(&rest[..n]) <= width);
        let (group, behind) = rest.split_at(fit.last().unwrap_or(1));
        groups.push(group);
        rest = behind;
    }
    groups
}

/// Columns of the page that these take.
fn total(shown: &[Shown]) -> usize {
    shown.iter().map(|s| s.width + GAP).sum()
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

    fn only(lines: Lines) -> Panel {
        let [panel] = lines.panels.try_into().unwrap();
        panel
    }

    #[test]
    fn columns_line_up() {
        let panel = only(table().lines(80));
        assert_eq!(panel.header, ["  name     n  x"]);
        assert_eq!(panel.rows, ["  a        1", "  bcdef  123  y"]);
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
        assert!(lines.left_out.is_empty());
        let panel = only(lines);
        assert_eq!(panel.header, ["  first  last", "  blind  seen  n"]);
        assert_eq!(panel.rows, ["    120   200  7"]);
        let lines = table.lines(12);
        assert_eq!(lines.left_out, ["last seen"]);
        assert_eq!(only(lines).rows, ["    120  7"]);
    }

    #[test]
    fn a_long_last_cell_continues_below_itself() {
        let mut table = Table::new([("n", Align::Right), ("name", Align::Left)]);
        table.row(vec!["24".into(), "h.N.self_attention.query.weight".into()]);
        assert_eq!(
            only(table.lines(25)).rows,
            ["  24  h.N.self_attention.", "      query.weight"]
        );
    }

    #[test]
    fn a_last_cell_without_room_for_its_words_stands_below() {
        let mut table = Table::new([("shape", Align::Left), ("name", Align::Left)]);
        table.row(vec!["[1024]".into(), "h.N.self_attention.query".into()]);
        table.row(vec!["[9, 1024]".into(), String::new()]);
        let panel = only(table.lines(24));
        assert_eq!(panel.header, ["  shape", "    name"]);
        assert_eq!(
            panel.rows,
            [
                "  [1024]",
                "    h.N.self_attention.",
                "    query",
                "  [9, 1024]"
            ]
        );
    }

    #[test]
    fn what_does_not_fit_continues_in_panels() {
        let mut table = Table::new([("layer", Align::Right), ("head", Align::Right)]).keys(2);
        for name in ["slope", "bound", "end"] {
            table.column(name, Align::Right);
        }
        table.row(["1", "2", "0.5", "77.25", "640"].map(str::to_owned).into());
        let lines = table.lines(27);
        assert_eq!(
            lines.panels,
            [
                Panel {
                    header: vec!["  layer  head  slope  bound".into()],
                    rows: vec!["      1     2    0.5  77.25".into()],
                },
                Panel {
                    header: vec!["  layer  head  end".into()],
                    rows: vec!["      1     2  640".into()],
                }
            ]
        );
        // no room beside the keys
        let lines = table.lines(18);
        assert_eq!(
            lines.panels,
            [
                Panel {
                    header: vec!["  layer  head".into(), "    slope  bound".into()],
                    rows: vec!["      1     2".into(), "      0.5  77.25".into()],
                },
                Panel {
                    header: vec!["  layer  head".into(), "    end".into()],
                    rows: vec!["      1     2".into(), "    640".into()],
                }
            ]
        );
    }
}
