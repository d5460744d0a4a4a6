//! Sections of a study: a table of quantities over seeds is a section, each quantity a part of it that opens by itself.

use super::{Entry, Room, Section, Table, Text};
use crate::schema::{StudyReport, StudyRow, StudyTable};
use crate::study::columns::{
    Column, HORIZONS, HORIZONS_MEAN, ROWS, Value, by_quantity, footnote, for_people, seen,
};

pub(super) fn study(report: &StudyReport, room: Room) -> Vec<Section> {
    let mut sections = vec![not_done(report)];
    let shown = report.tables.iter().filter(|table| for_people(table));
    sections.extend(shown.map(|table| section(table, room)));
    let horizons: Vec<_> = report.horizons.iter().collect();
    sections.push(Section {
        title: "Horizons predicted and measured, tokens".to_owned(),
        lead: vec![HORIZONS_MEAN.to_owned()],
        table: laid_out(&HORIZONS, &horizons),
        ..Section::default()
    });
    sections
}

/// Trials that are in no average: those that failed a row each, those that wait together.
fn not_done(report: &StudyReport) -> Section {
    let with = |status: &'static str, is: bool| {
        let trials = report.trials.iter().filter(|trial| trial.status != "done");
        trials.filter(move |trial| (trial.status == status) == is)
    };
    let mut rows: Vec<Vec<Text>> = with("not run", false)
        .map(|trial| {
            let reason = trial.reason.as_ref();
            vec![
                Text::Raw(trial.trial.clone()),
                trial.status.as_str().into(),
                reason.map_or("none was kept".into(), |reason| Text::Raw(reason.clone())),
            ]
        })
        .collect();
    let waiting: Vec<&str> = with("not run", true)
        .map(|trial| trial.trial.as_str())
        .collect();
    if !waiting.is_empty() {
        let count = crate::summary::plural(waiting.len() as u64, "trial");
        rows.push(vec![
            count.into(),
            "not run".into(),
            Text::Raw(waiting.join(", ")),
        ]);
    }
    Section {
        title: "Trials that are in no average".to_owned(),
        table: Table {
            columns: vec![
                ("trial", false),
                ("status", false),
                ("reason, or which", false),
            ],
            rows,
        },
        ..Section::default()
    }
}

/// The columns that say something of these rows, laid out.
fn laid_out<R>(columns: &[Column<R>], rows: &[&R]) -> Table {
    let columns = seen(columns, rows);
    let cell = |column: &&Column<R>, row: &R| match (column.of)(row) {
        Value::Words(words) => Text::Raw(words.to_owned()),
        other => Text::Plain(other.text()),
    };
    Table {
        columns: columns
            .iter()
            .map(|column| (column.title, column.numbers()))
            .collect(),
        rows: rows
            .iter()
            .map(|row| columns.iter().map(|column| cell(column, row)).collect())
            .collect(),
    }
}

fn section(table: &StudyTable, room: Room) -> Section {
    let groups = by_quantity(table);
    let mut lead = Vec::new();
    if table.comparisons > 0 {
        lead.push(format!(
            "Means over seeds with 95 % intervals by Student's t; differences are paired by seed, p values corrected for the {} \
             comparisons of this table (Holm).",
            table.comparisons
        ));
    }
    let all: Vec<&StudyRow> = table.rows.iter().collect();
    lead.extend(footnote(&all).map(str::to_owned));
    let shown = groups.len().min(room.entries);
    let entries = groups.iter().take(shown).enumerate();
    Section {
        title: table.title.clone(),
        lead,
        entries: entries
            .map(|(index, (quantity, rows))| entry(table, index, quantity, rows))
            .collect(),
        rest: (shown < groups.len()).then(|| {
            format!(
                "{shown} of {} quantities; CSV and JSON have all.",
                groups.len()
            )
        }),
        ..Section::default()
    }
}

fn entry(table: &StudyTable, index: usize, quantity: &str, rows: &[&StudyRow]) -> Entry {
    let seeds = rows.iter().map(|row| row.n).max().unwrap_or(0);
    Entry {
        id: format!("{}-{index}", table.name),
        line: format!(
            "{quantity}: {}, up to {}",
            crate::summary::plural(rows.len() as u64, "row"),
            crate::summary::plural(seeds, "seed")
        ),
        body: Vec::new(),
        table: laid_out(&ROWS, rows),
    }
}
