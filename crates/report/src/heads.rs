//! Every result as one flat table: a row for each head under each plan, a column for each field of the schema.
//!
//! CSV, `.npz`, Markdown and the comparison of two results all read this table, so that a number cannot differ between them.

use crate::document::Document;
use crate::number::Distance;
use crate::schema::{AuditReport, HorizonReport, InspectReport, MeasureReport};

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Not measured, or does not exist.
    Missing,
    /// A count or an index.
    Count(u128),
    /// Any other number, finite.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// A word.
    Word(String),
}

impl Cell {
    /// The value as a number; `None` where it is missing or a word.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counts above 2^53 are compared, not kept
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            Self::Flag(flag) => Some(f64::from(u8::from(*flag))),
            Self::Missing | Self::Word(_) => None,
        }
    }
}

/// A field of the schema as a cell.
pub(crate) trait Field {
    fn cell(&self) -> Cell;
}

impl Field for u64 {
    fn cell(&self) -> Cell {
        Cell::Count(u128::from(*self))
    }
}

impl Field for u128 {
    fn cell(&self) -> Cell {
        Cell::Count(*self)
    }
}

impl Field for f64 {
    fn cell(&self) -> Cell {
        if self.is_finite() {
            Cell::Number(*self)
        } else {
            Cell::Missing
        }
    }
}

impl Field for Distance {
    fn cell(&self) -> Cell {
        match self.as_whole() {
            Some(whole) => Cell::Count(u128::from(whole)),
            None => Cell::Number(self.tokens()),
        }
    }
}

impl Field for bool {
    fn cell(&self) -> Cell {
        Cell::Flag(*self)
    }
}

impl Field for String {
    fn cell(&self) -> Cell {
        Cell::Word(self.clone())
    }
}

impl<T: Field> Field for Option<T> {
    fn cell(&self) -> Cell {
        self.as_ref().map_or(Cell::Missing, Field::cell)
    }
}

/// One head under one plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Layer; `None` where the result is the same in every layer.
    pub layer: Option<u64>,
    /// Head within the layer.
    pub head: u64,
    /// Key of the plan; `None` where no plan applies.
    pub plan: Option<String>,
    /// One value for each of [`HeadTable::columns`].
    pub cells: Vec<Cell>,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeadTable {
    /// Names of the fields, as in the schema.
    pub columns: Vec<&'static str>,
    /// In the order of the document: head by head, and every plan in the order asked for.
    pub rows: Vec<Row>,
}

/// `(name, value)` of the named fields of a struct.
macro_rules! fields {
    ($from:expr; $($name:ident),* $(,)?) => {
        [$((stringify!($name), $from.$name.cell())),*]
    };
}

impl HeadTable {
    /// The table of a result; `None` where it has no heads to speak of.
    #[must_use]
    pub fn of(document: &Document) -> Option<Self> {
        match document {
            Document::Horizon(report) => Some(horizon(report)),
            Document::Audit(report) => Some(audit(report)),
            Document::Measure(report) => Some(measure(report)),
            Document::Inspect(report) => Some(inspect(report)),
            _ => None,
        }
    }

    /// Position of a column.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| *column == name)
    }

    fn push(
        &mut self,
        layer: Option<u64>,
        head: u64,
        plan: Option<&str>,
        fields: impl IntoIterator<Item = (&'static str, Cell)>,
    ) {
        let (names, cells): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        if self.columns.is_empty() {
            self.columns = names;
        }
        self.rows.push(Row {
            layer,
            head,
            plan: plan.map(str::to_owned),
            cells,
        });
    }
}

fn horizon(report: &HorizonReport) -> HeadTable {
    let mut table = HeadTable::default();
    for plan in &report.plans {
        for head in &plan.heads {
            let fields = fields!(head; slope, effective_slope, first_blind_distance, last_visible_distance, nan_rows, nan_pairs, pairs,
                blind_pairs, blind_share, blind_last_row, blind_share_last_row, blind_share_last_row_continuous,
                distinct_bias_last_20, distinct_bias_first_20, distinct_bias_total, longest_equal_run, overflow_distance);
            table.push(None, head.head, Some(&plan.info.plan), fields);
        }
    }
    table
}

fn inspect(report: &InspectReport) -> HeadTable {
    let mut table = HeadTable::default();
    let slopes = &report.alibi.slopes;
    for (head, (slope, effective)) in (0..).zip(slopes.iter().zip(&report.alibi.effective_slopes)) {
        let fields = [
            ("slope", slope.cell()),
            ("effective_slope", effective.cell()),
        ];
        table.push(None, head, None, fields);
    }
    table
}

fn audit(report: &AuditReport) -> HeadTable {
    let mut table = HeadTable::default();
    for head in &report.heads {
        for plan in &report.plans {
            let Some(certificate) = head.plans.get(&plan.plan) else {
                continue;
            };
            let of_head = fields!(head; slope, effective_slope, score_bound, gap_bound, score_deviation, method);
            let of_plan = fields!(certificate; guaranteed_visible, expected_horizon, certified_horizon, always_visible);
            table.push(
                Some(head.layer),
                head.head,
                Some(&plan.plan),
                of_head.into_iter().chain(of_plan),
            );
        }
    }
    table
}

fn measure(report: &MeasureReport) -> HeadTable {
    let mut table = HeadTable::default();
    for head in &report.heads {
        for plan in &report.plans {
            let Some(evidence) = head.plans.get(&plan.plan) else {
                continue;
            };
            let of_plan = fields!(evidence; pairs, non_finite_rows, non_finite_pairs, blind_pairs, blind_numerator, blind_weight, undecided_pairs, blind_share,
                first_blind_distance, last_visible_distance, total_variation);
            let of_head = fields!(head; slope, effective_slope, reach_50, reach_90, reach_99, entropy_nats, key0_mass,
                key0_baseline, key0_excess, mean_distance, max_score, share_below_bf16_ulp, share_below_f32_ulp,
                advantage_diagonal_max, advantage_diagonal_p99, advantage_recent_max, advantage_recent_p99,
                effective_horizon, effective_horizon_p99);
            table.push(
                Some(head.layer),
                head.head,
                Some(&plan.plan),
                of_plan.into_iter().chain(of_head),
            );
        }
    }
    table
}
