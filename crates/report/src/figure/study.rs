//! Figures of a study: a forest for each table of quantities over seeds, and recall by distance as a chart.

use super::Figure;
use super::eye::{self, Words};
use super::forest::{Estimate, Forest, Panel, clipped};
use crate::schema::{StudyReport, StudyRow, StudyTable};
use crate::text::chart::{Cell, Chart, Row};

/// The figures, in the order of the report's tables.
pub(super) fn figures(report: &StudyReport, width: f64) -> Vec<Figure> {
    let mut out = Vec::new();
    for table in &report.tables {
        match table.name.as_str() {
            "recall" | "loss" | "blind" => out.extend(variants(report, table).draw(width)),
            "what-if" => out.extend(changes(report, table).and_then(|forest| forest.draw(width))),
            "recall-by-distance" => out.extend(by_distance(table, width)),
            _ => {}
        }
    }
    out
}

/// What is common to the captions of forests.
const READING: &str = "A mark is the mean over seeds, the number beside it the same, whiskers its 95 % interval by Student's t (none of one \
                       seed; an end without a cap lies beyond the axis); ? none was measured.";

/// Rows are variants, panels quantities; the line is the baseline's mean.
fn variants(report: &StudyReport, table: &StudyTable) -> Forest {
    let names = distinct(table.rows.iter().map(|row| row.variant.as_str()));
    let baseline = report.baseline.as_deref();
    let panels = distinct(table.rows.iter().map(|row| row.quantity.as_str()));
    let panels = panels.into_iter().map(|quantity| {
        let of = |variant: &str| {
            let is = |row: &&StudyRow| row.quantity == quantity && row.variant == variant;
            table.rows.iter().find(is)
        };
        panel(
            table,
            quantity,
            names.iter().map(|name| of(name)),
            baseline.and_then(of),
        )
    });
    let compared = baseline.map_or(String::new(), |name| {
        format!(
            " The dashed line is the mean of {name}; a diamond: the interval of the paired difference to it excludes zero, before any \
             correction for the number of comparisons."
        )
    });
    Forest {
        title: table.title.clone(),
        caption: format!("{READING}{compared}{}", axes(table)),
        rows: names.iter().map(|name| (*name).to_owned()).collect(),
        panels: panels.collect(),
    }
}

/// What was changed of the finished models of one variant: the baseline, or the first where none is named.
fn changes(report: &StudyReport, table: &StudyTable) -> Option<Forest> {
    let first = &table.rows.first()?.variant;
    let own = |name: &&String| table.rows.iter().any(|row| row.variant == **name);
    let variant = report.baseline.as_ref().filter(own).unwrap_or(first);
    let rows: Vec<&StudyRow> = table
        .rows
        .iter()
        .filter(|row| row.variant == *variant)
        .collect();
    let mut changes: Vec<Option<&str>> = Vec::new();
    for row in &rows {
        if !changes.contains(&row.change.as_deref()) {
            changes.push(row.change.as_deref());
        }
    }
    let panels = distinct(rows.iter().map(|row| row.quantity.as_str()));
    let panels = panels.into_iter().map(|quantity| {
        let of = |change: Option<&str>| {
            let is = |row: &&&StudyRow| row.quantity == quantity && row.change.as_deref() == change;
            rows.iter().find(is).copied()
        };
        panel(
            table,
            quantity,
            changes.iter().map(|change| of(*change)),
            of(None),
        )
    });
    Some(Forest {
        title: format!("{}: {variant}", table.title),
        caption: format!(
            "{READING} The dashed line is the model unchanged; a diamond: the interval of the paired difference to it excludes zero, before \
             any correction. The tables have the other variants.{}",
            axes(table)
        ),
        rows: changes
            .iter()
            .map(|change| change.unwrap_or("unchanged").to_owned())
            .collect(),
        panels: panels.collect(),
    })
}

/// How the axes of the panels lie.
fn axes(table: &StudyTable) -> &'static str {
    if table.name == "recall" {
        ""
    } else {
        " Every panel has its own axis."
    }
}

fn panel<'r>(
    table: &StudyTable,
    quantity: &str,
    rows: impl Iterator<Item = Option<&'r StudyRow>>,
    compared: Option<&StudyRow>,
) -> Panel {
    // recall and blind pairs are shares; the loss among what was changed is not
    let share = !quantity.starts_with("loss");
    let estimates: Vec<Option<Estimate>> = rows.map(|row| row.map(estimate)).collect();
    let largest = estimates
        .iter()
        .flatten()
        .map(|e| e.value)
        .fold(0.0, f64::max);
    let limits = match table.name.as_str() {
        "recall" | "what-if" if share => Some((0.0, 1.0)),
        "blind" => Some((0.0, (1.2 * largest).clamp(1e-4, 1.0))),
        _ => None,
    };
    Panel {
        title: quantity.to_owned(),
        share,
        limits,
        mark: compared.map(|row| row.mean),
        estimates,
    }
}

fn estimate(row: &StudyRow) -> Estimate {
    let difference = row.difference.as_ref();
    let ends = difference.and_then(|d| d.low.zip(d.high));
    Estimate {
        value: row.mean,
        interval: row.low.zip(row.high),
        clear: ends.is_some_and(|(low, high)| low > 0.0 || high < 0.0),
    }
}

/// Mean recall of every variant in every bin of distances, a chart for each task.
fn by_distance(table: &StudyTable, width: f64) -> Vec<Figure> {
    // quantities read `pair, 16 to 24`
    let place = |row: &StudyRow| {
        let (task, bin) = row.quantity.split_once(", ")?;
        let (from, _) = bin.split_once(" to ")?;
        Some((task.to_owned(), from.parse::<u64>().ok()?))
    };
    let placed: Vec<(String, u64, &StudyRow)> = table
        .rows
        .iter()
        .filter_map(|row| place(row).map(|(task, from)| (task, from, row)))
        .collect();
    let tasks = distinct(placed.iter().map(|(task, ..)| task.as_str()));
    let chart = |task: &str| {
        let own: Vec<&(String, u64, &StudyRow)> =
            placed.iter().filter(|(t, ..)| t == task).collect();
        let mut bins: Vec<u64> = own.iter().map(|(_, from, _)| *from).collect();
        bins.sort_unstable();
        bins.dedup();
        let variants = distinct(own.iter().map(|(_, _, row)| row.variant.as_str()));
        let rows = variants.into_iter().map(|variant| Row {
            label: clipped(&crate::text::escape(variant), 34),
            cells: bins
                .iter()
                .map(|bin| {
                    let is = |(_, from, row): &&&(String, u64, &StudyRow)| {
                        from == bin && row.variant == variant
                    };
                    let visible = own.iter().find(is).map(|(_, _, row)| row.mean);
                    Some(Cell {
                        visible,
                        mark: None,
                    })
                })
                .collect(),
        });
        let chart = Chart {
            row_name: "variant",
            rows: rows.collect(),
            heads: bins,
        };
        eye::draw(
            &eye::Grid::from(&chart),
            &format!("{}: {task}", table.title),
            &RECALLED,
            width,
        )
    };
    tasks.into_iter().filter_map(chart).collect()
}

const RECALLED: Words<'static> = Words {
    lead: "Columns: smallest distance of the bin, tokens. ",
    bar: "the share of questions answered right, mean over seeds",
    full: "is all of them",
    fulls: "are all right",
    unknown: "not measured",
};

/// What occurs, in the order of first sight.
fn distinct<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    let mut out: Vec<&str> = Vec::new();
    for text in texts {
        if !out.contains(&text) {
            out.push(text);
        }
    }
    out
}
