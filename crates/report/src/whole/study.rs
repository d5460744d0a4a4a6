//! Rows of a study's report: what they average and what they say of it.

use super::{broken, close, once, same};
use crate::schema::{StudyReport, StudyRow};
use audit::eval::{Moments, mean_interval};

pub(super) fn report(report: &StudyReport) -> Result<(), String> {
    once("trials", report.trials.iter().map(|line| &line.trial))?;
    let done = |name: &String| {
        let found = report.trials.iter().find(|line| line.trial == *name);
        found.is_some_and(|line| line.status == "done")
    };
    once("tables", report.tables.iter().map(|table| &table.name))?;
    for table in &report.tables {
        let key = |row: &StudyRow| {
            (
                row.quantity.clone(),
                row.variant.clone(),
                row.change.clone(),
            )
        };
        once(&format!("table {}", table.name), table.rows.iter().map(key))?;
        for line in &table.rows {
            let at = |what: String| {
                format!(
                    "table {}, {} of {}: {what}",
                    table.name, line.quantity, line.variant
                )
            };
            row(line).map_err(at)?;
            let others = line.difference.iter().flat_map(|d| &d.trials);
            if let Some(name) = line.trials.iter().chain(others).find(|name| !done(name)) {
                return Err(at(format!(
                    "averages {name}, which is not done: the document was changed"
                )));
            }
        }
    }
    Ok(())
}

fn row(row: &StudyRow) -> Result<(), String> {
    same("trials", row.trials.len(), row.n)?;
    same("values", row.values.len(), row.n)?;
    once("trials", &row.trials)?;
    let moments: Moments = row.values.iter().copied().collect();
    // a mean near zero is a difference of larger numbers: compared on their scale
    let scale = row.values.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    let mean = moments.mean().unwrap_or(0.0);
    if (mean - row.mean).abs() > 1e-9 * scale {
        return Err(broken("mean", mean, row.mean));
    }
    if let Some(difference) = &row.difference {
        same("difference.trials", difference.trials.len(), difference.n)?;
    }
    let interval = mean_interval(&moments);
    close("low", interval.map(|interval| interval.low), row.low)?;
    close("high", interval.map(|interval| interval.high), row.high)
}
