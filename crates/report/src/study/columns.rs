//! What the tables of a study hold. Each column stands here once; text, HTML, Markdown and CSV lay the same columns out.

use crate::number::{Distance, short};
use crate::schema::{StudyHorizonLine, StudyRow, StudyTable};

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'r> {
    /// Words of the study's files.
    Words(&'r str),
    /// A count or a distance in tokens.
    Count(u64),
    /// A distance, tokens.
    At(Distance),
    /// A distance that is a lower bound, tokens.
    AtLeast(u64),
    /// A horizon that never comes.
    Never,
    /// A quantity in its own unit.
    Number(f64),
    /// A difference of two.
    Change(f64),
    /// Ends of a 95 % interval.
    Interval(f64, f64),
    /// A p value.
    P(f64),
    /// Names.
    List(&'r [String]),
    /// Nothing, and why.
    Missing(&'static str),
}

/// Does not apply to this row.
const DOES_NOT_APPLY: &str = "-";
/// The finished model as it is.
const UNCHANGED: &str = "unchanged";
/// No spread can be had from it.
const ONE_SEED: &str = "one seed";
/// Differences without spread: a t value would be a division by zero.
const ALL_EQUAL: &str = "all equal";
const NOT_KNOWN: &str = "not known";

impl Value<'_> {
    /// Whether a column of nothing but such cells tells a reader nothing.
    fn is_void(self) -> bool {
        matches!(self, Self::Missing(DOES_NOT_APPLY | UNCHANGED))
    }

    /// For people.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Words(words) => words.to_owned(),
            Self::Count(count) => count.to_string(),
            Self::At(distance) => distance.to_string(),
            Self::AtLeast(least) => format!("at least {least}"),
            Self::Never => "never ends".to_owned(),
            Self::Number(value) => number(value),
            Self::Change(value) if value > 0.0 => format!("+{}", number(value)),
            Self::Change(value) => number(value),
            Self::Interval(low, high) => format!("{} to {}", number(low), number(high)),
            Self::P(p) if p < 0.0001 => "<0.0001".to_owned(),
            Self::P(p) => format!("{p:.4}"),
            Self::List(names) => names.join(" "),
            Self::Missing(why) => why.to_owned(),
        }
    }
}

/// Three decimals for what is about one; else about four digits.
pub(crate) fn number(value: f64) -> String {
    if value.abs() < 100.0 && (value == 0.0 || value.abs() >= 0.0005) {
        format!("{value:.3}")
    } else {
        short(value)
    }
}

/// Who reads a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Programs only.
    Program,
    /// Everybody; where the quantity is a heading of its own it is no column.
    Heading,
    /// Everybody: words.
    Words,
    /// Everybody: numbers.
    Numbers,
}

/// A column of rows of type `R`.
#[derive(Debug)]
pub(crate) struct Column<R> {
    /// Name for people.
    pub(crate) title: &'static str,
    /// Names in CSV; two for an interval.
    pub(crate) csv: &'static [&'static str],
    pub(crate) reader: Reader,
    pub(crate) of: for<'r> fn(&'r R) -> Value<'r>,
}

impl<R> Column<R> {
    const fn new(
        title: &'static str,
        csv: &'static [&'static str],
        reader: Reader,
        of: for<'r> fn(&'r R) -> Value<'r>,
    ) -> Self {
        Self {
            title,
            csv,
            reader,
            of,
        }
    }

    /// Whether the cells are numbers.
    pub(crate) fn numbers(&self) -> bool {
        self.reader == Reader::Numbers
    }
}

/// The columns that people see of these rows: those that say something of one of them.
pub(crate) fn seen<'c, R>(columns: &'c [Column<R>], rows: &[&R]) -> Vec<&'c Column<R>> {
    let people = |column: &&Column<R>| matches!(column.reader, Reader::Words | Reader::Numbers);
    let says = |column: &&Column<R>| rows.iter().any(|row| !(column.of)(row).is_void());
    columns.iter().filter(people).filter(says).collect()
}

/// Columns of a quantity over seeds.
pub(crate) const ROWS: [Column<StudyRow>; 13] = [
    Column::new("quantity", &["quantity"], Reader::Heading, |row| {
        Value::Words(&row.quantity)
    }),
    Column::new("variant", &["variant"], Reader::Words, |row| {
        Value::Words(&row.variant)
    }),
    Column::new("change", &["change"], Reader::Words, |row| {
        let change = row.change.as_deref();
        change.map_or(Value::Missing(UNCHANGED), Value::Words)
    }),
    Column::new("n", &["n"], Reader::Numbers, |row| Value::Count(row.n)),
    Column::new("mean", &["mean"], Reader::Numbers, |row| {
        Value::Number(row.mean)
    }),
    Column::new("deviation", &["deviation"], Reader::Program, |row| {
        row.deviation
            .map_or(Value::Missing(ONE_SEED), Value::Number)
    }),
    Column::new("95 % interval", &["low", "high"], Reader::Numbers, |row| {
        interval(row.low, row.high)
    }),
    Column::new("from", &["from"], Reader::Program, |row| {
        let difference = row.difference.as_ref();
        difference.map_or(Value::Missing(DOES_NOT_APPLY), |d| Value::Words(&d.from))
    }),
    Column::new("pairs", &["difference_n"], Reader::Program, |row| {
        let difference = row.difference.as_ref();
        difference.map_or(Value::Missing(DOES_NOT_APPLY), |d| Value::Count(d.n))
    }),
    Column::new("difference", &["difference"], Reader::Numbers, |row| {
        let difference = row.difference.as_ref();
        difference.map_or(Value::Missing(DOES_NOT_APPLY), |d| Value::Change(d.mean))
    }),
    Column::new(
        "its 95 % interval",
        &["difference_low", "difference_high"],
        Reader::Numbers,
        |row| {
            let difference = row.difference.as_ref();
            difference.map_or(Value::Missing(DOES_NOT_APPLY), |d| interval(d.low, d.high))
        },
    ),
    Column::new("p", &["p"], Reader::Numbers, |row| p_value(row, |d| d.p)),
    Column::new("corrected", &["p_corrected"], Reader::Numbers, |row| {
        p_value(row, |d| d.p_corrected)
    }),
];

/// The trials of a row, for programs.
pub(crate) const TRIALS: Column<StudyRow> =
    Column::new("trials", &["trials"], Reader::Program, |row| {
        Value::List(&row.trials)
    });

fn interval(low: Option<f64>, high: Option<f64>) -> Value<'static> {
    let ends = low.zip(high);
    ends.map_or(Value::Missing(ONE_SEED), |(low, high)| {
        Value::Interval(low, high)
    })
}

fn p_value(
    row: &StudyRow,
    which: fn(&crate::schema::StudyDifference) -> Option<f64>,
) -> Value<'static> {
    let Some(difference) = &row.difference else {
        return Value::Missing(DOES_NOT_APPLY);
    };
    match which(difference) {
        Some(p) => Value::P(p),
        None if difference.n < 2 => Value::Missing(ONE_SEED),
        None => Value::Missing(ALL_EQUAL),
    }
}

/// What the words that stand for missing cells mean; `None` where none of the rows has one.
pub(crate) fn footnote(rows: &[&StudyRow]) -> Option<&'static str> {
    let equal = |row: &&&StudyRow| p_value(row, |d| d.p) == Value::Missing(ALL_EQUAL);
    rows.iter().find(equal).map(|_| {
        "all equal: every seed shows the same difference, so that there is no spread to test it against and no p value"
    })
}

/// Columns of the horizons.
pub(crate) const HORIZONS: [Column<StudyHorizonLine>; 6] = [
    Column::new("trial", &["trial"], Reader::Words, |line| {
        Value::Words(&line.trial)
    }),
    Column::new("task", &["task"], Reader::Words, |line| {
        Value::Words(&line.horizon.task)
    }),
    Column::new("at length", &["length"], Reader::Numbers, |line| {
        Value::Count(line.horizon.length)
    }),
    Column::new("predicted", &["predicted"], Reader::Numbers, |line| {
        let found = &line.horizon;
        match (found.predicted_unbounded, found.predicted) {
            (true, _) => Value::Never,
            (false, Some(distance)) => Value::At(distance),
            (false, None) => Value::Missing(NOT_KNOWN),
        }
    }),
    Column::new("measured", &["measured"], Reader::Numbers, |line| {
        let found = &line.horizon;
        match (found.measured_unbounded, found.measured) {
            (true, Some(least)) => Value::AtLeast(least),
            (false, Some(at)) => Value::Count(at),
            (_, None) => Value::Missing(NOT_KNOWN),
        }
    }),
    Column::new("heads that read", &["readers"], Reader::Words, |line| {
        Value::List(&line.horizon.readers)
    }),
];

/// What the horizons are.
pub(crate) const HORIZONS_MEAN: &str = "Predicted: where the bias outweighs the mean margin of the answer over the last 20 keys, largest of \
     the heads that read near answers; measured: where recall falls below one half.";

/// Rows of a table by quantity, in the order of first sight.
pub(crate) fn by_quantity(table: &StudyTable) -> Vec<(&str, Vec<&StudyRow>)> {
    let mut groups: Vec<(&str, Vec<&StudyRow>)> = Vec::new();
    for row in &table.rows {
        match groups.iter_mut().find(|(name, _)| *name == row.quantity) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((&row.quantity, vec![row])),
        }
    }
    groups
}

/// Whether people are shown a table: one with a row for every head of every variant is for programs.
pub(crate) fn for_people(table: &StudyTable) -> bool {
    table.name != "blind-heads"
}
