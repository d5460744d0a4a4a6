//! Sections of a study: a table of quantities over seeds is a section, each quantity a part of it that opens by itself.

use super::{Entry, Section, Table, Text};
use crate::number::short;
use crate::schema::{StudyHorizonLine, StudyReport, StudyRow, StudyTable};

/// Tables with a row for every head of every variant; CSV and JSON have them.
const LEFT_OUT: [&str; 1] = ["blind-heads"];

pub(super) fn study(report: &StudyReport) -> Vec<Section> {
    let mut sections = vec![not_done(report)];
    let shown = |table: &&StudyTable| !LEFT_OUT.contains(&table.name.as_str());
    sections.extend(report.tables.iter().filter(shown).map(table));
    sections.push(horizons(&report.horizons));
    sections
}

/// Trials that are in no average.
fn not_done(report: &StudyReport) -> Section {
    let open = report.trials.iter().filter(|trial| trial.status != "done");
    let rows = open.map(|trial| {
        vec![
            Text::Raw(trial.trial.clone()),
            trial.status.as_str().into(),
            Text::Raw(trial.reason.clone().unwrap_or_default()),
        ]
    });
    Section {
        title: "Trials that are in no average".to_owned(),
        table: Table {
            columns: vec![("trial", false), ("status", false), ("reason", false)],
            rows: rows.collect(),
        },
        ..Section::default()
    }
}

fn table(table: &StudyTable) -> Section {
    let mut quantities: Vec<&str> = Vec::new();
    for row in &table.rows {
        if !quantities.contains(&row.quantity.as_str()) {
            quantities.push(&row.quantity);
        }
    }
    let lead = if table.comparisons > 0 {
        vec![format!(
            "Means over seeds with 95 % intervals by Student's t; differences are paired by seed, p values corrected for the {} \
             comparisons of this table (Holm).",
            table.comparisons
        )]
    } else {
        Vec::new()
    };
    Section {
        title: table.title.clone(),
        lead,
        entries: quantities
            .iter()
            .enumerate()
            .map(|(index, quantity)| entry(table, index, quantity))
            .collect(),
        ..Section::default()
    }
}

fn entry(table: &StudyTable, index: usize, quantity: &str) -> Entry {
    let rows: Vec<&StudyRow> = table
        .rows
        .iter()
        .filter(|row| row.quantity == quantity)
        .collect();
    let seeds = rows.iter().map(|row| row.n).max().unwrap_or(0);
    Entry {
        id: format!("{}-{index}", table.name),
        line: format!(
            "{quantity}: {}, up to {}",
            crate::summary::plural(rows.len() as u64, "row"),
            crate::summary::plural(seeds, "seed")
        ),
        body: Vec::new(),
        table: Table {
            columns: vec![
                ("variant", false),
                ("change", false),
                ("n", true),
                ("mean", true),
                ("95 % interval", true),
                ("difference", true),
                ("its 95 % interval", true),
                ("p, corrected", true),
            ],
            rows: rows.into_iter().map(cells).collect(),
        },
    }
}

fn cells(row: &StudyRow) -> Vec<Text> {
    let interval = |low: Option<f64>, high: Option<f64>| match (low, high) {
        (Some(low), Some(high)) => format!("{} to {}", short(low), short(high)),
        _ => "-".to_owned(),
    };
    let number = |value: Option<f64>| value.map_or("-".to_owned(), short);
    let difference = row.difference.as_ref();
    vec![
        Text::Raw(row.variant.clone()),
        Text::Raw(row.change.clone().unwrap_or_else(|| "-".to_owned())),
        row.n.to_string().into(),
        short(row.mean).into(),
        interval(row.low, row.high).into(),
        number(difference.map(|d| d.mean)).into(),
        difference
            .map_or("-".to_owned(), |d| interval(d.low, d.high))
            .into(),
        number(difference.and_then(|d| d.p_corrected)).into(),
    ]
}

fn horizons(lines: &[StudyHorizonLine]) -> Section {
    let rows = lines.iter().map(|line| {
        let found = &line.horizon;
        let predicted = if found.predicted_unbounded {
            "never ends".to_owned()
        } else {
            found.predicted.map_or("-".to_owned(), |d| d.to_string())
        };
        let least = if found.measured_unbounded {
            "at least "
        } else {
            ""
        };
        vec![
            Text::Raw(line.trial.clone()),
            found.task.as_str().into(),
            found.length.to_string().into(),
            predicted.into(),
            found
                .measured
                .map_or("-".to_owned(), |m| format!("{least}{m}"))
                .into(),
        ]
    });
    Section {
        title: "Horizons predicted and measured, tokens".to_owned(),
        table: Table {
            columns: vec![
                ("trial", false),
                ("task", false),
                ("at length", true),
                ("predicted", true),
                ("measured", true),
            ],
            rows: rows.collect(),
        },
        ..Section::default()
    }
}
