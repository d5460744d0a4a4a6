//! A study as CSV.

use super::columns::{Column, ROWS, TRIALS, Value};
use crate::csv::{MISSING, float, word};
use crate::schema::{StudyReport, StudyRow};

/// One line a row of every table (RFC 4180, lines end in LF); what does not exist is `NA`.
#[must_use]
pub(crate) fn csv(report: &StudyReport) -> String {
    let columns: Vec<&Column<StudyRow>> = ROWS.iter().chain([&TRIALS]).collect();
    let names: Vec<&str> = columns
        .iter()
        .flat_map(|column| column.csv)
        .copied()
        .collect();
    let mut out = format!("table,{}\n", names.join(","));
    for table in &report.tables {
        for row in &table.rows {
            let mut cells = vec![word(&table.name)];
            for column in &columns {
                fields(&mut cells, column, row);
            }
            out.push_str(&cells.join(","));
            out.push('\n');
        }
    }
    out
}

fn fields(cells: &mut Vec<String>, column: &Column<StudyRow>, row: &StudyRow) {
    match (column.of)(row) {
        Value::Words(words) => cells.push(word(words)),
        Value::Count(count) | Value::AtLeast(count) => cells.push(count.to_string()),
        Value::At(distance) => cells.push(distance.to_string()),
        Value::Number(value) | Value::Change(value) | Value::P(value) => cells.push(float(value)),
        Value::Interval(low, high) => cells.extend([float(low), float(high)]),
        Value::List(names) => cells.push(word(&names.join(" "))),
        Value::Never | Value::Missing(_) => {
            cells.extend(column.csv.iter().map(|_| MISSING.to_owned()))
        }
    }
}
