//! Results that are not about heads as flat tables: what CSV and `.npz` hold of probes, evaluations and training runs.

use crate::document::Document;
use crate::heads::{Cell, Field};
use crate::schema::{
    Accuracy, EvalReport, MeanLoss, ProbeCell, ProbeReport, ProbeScore, TaskReport, TrainReport,
};

/// One kind of record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What a row is: `cell`, `sample`, `step`, ...
    pub record: &'static str,
    /// Names of the fields, as in the schema.
    pub columns: Vec<&'static str>,
    /// One value for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    fn new(record: &'static str) -> Self {
        Self {
            record,
            ..Self::default()
        }
    }

    fn push(&mut self, fields: impl IntoIterator<Item = (&'static str, Cell)>) {
        let (names, cells): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        if self.columns.is_empty() {
            self.columns = names;
        }
        self.rows.push(cells);
    }

    /// The values of a column; `None` where the table has none of this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<Vec<&Cell>> {
        let at = self.columns.iter().position(|column| *column == name)?;
        Some(self.rows.iter().map(|row| &row[at]).collect())
    }
}

/// `(name, value)` of the named fields of a struct.
macro_rules! fields {
    ($from:expr; $($name:ident),* $(,)?) => {
        [$((stringify!($name), $from.$name.cell())),*]
    };
}

/// The tables of a result; `None` where it is of another kind. A table without rows is left out.
#[must_use]
pub fn tables(document: &Document) -> Option<Vec<Table>> {
    let mut tables = match document {
        Document::Probe(report) => probe(report),
        Document::Eval(report) => eval(report),
        Document::Train(report) => train(report),
        _ => return None,
    };
    tables.retain(|table| !table.rows.is_empty());
    Some(tables)
}

fn probe(report: &ProbeReport) -> Vec<Table> {
    let (mut cells, mut samples) = (Table::new("cell"), Table::new("sample"));
    for cell in &report.cells {
        cells.push(cell_of(cell, None, &cell.score));
        for changed in &cell.what_if {
            cells.push(cell_of(cell, Some(&changed.change), &changed.score));
        }
        for (index, sample) in cell.results.iter().enumerate() {
            let place = fields!(cell; length, depth, true_depth);
            let own = fields!(sample; key, hit, answer, log_probability, answer_tokens, first_rank, largest_rank,
                prompt_tokens, needle_at, needle_tokens);
            let number = [("sample", (index as u64).cell())];
            samples.push(place.into_iter().chain(number).chain(own));
        }
    }
    vec![cells, samples]
}

fn cell_of(
    cell: &ProbeCell,
    change: Option<&String>,
    score: &ProbeScore,
) -> Vec<(&'static str, Cell)> {
    let mut all = fields!(cell; length, depth, true_depth).to_vec();
    all.push(("change", change.cloned().cell()));
    all.extend(
        fields!(score; samples, hits, accuracy, accuracy_low, accuracy_high, log_probability,
        log_probability_standard_error),
    );
    all
}

fn eval(report: &EvalReport) -> Vec<Table> {
    let mut tables = Vec::new();
    if let Some(perplexity) = &report.perplexity {
        let loss = |loss: &MeanLoss| fields!(loss; tokens, nats_per_token, standard_error_nats, perplexity, standard_error_perplexity);
        let (mut all, mut positions, mut documents) = (
            Table::new("text"),
            Table::new("position"),
            Table::new("document"),
        );
        let by_document = [(
            "standard_error_nats_by_document",
            perplexity.standard_error_nats_by_document.cell(),
        )];
        all.push(loss(&perplexity.all).into_iter().chain(by_document));
        for bin in &perplexity.by_position {
            positions.push(fields!(bin; from, to).into_iter().chain(loss(&bin.loss)));
        }
        for one in &perplexity.documents {
            documents.push(
                fields!(one; document, length)
                    .into_iter()
                    .chain(loss(&one.loss)),
            );
        }
        tables.extend([all, positions, documents]);
    }
    if let Some(task) = &report.task {
        tables.extend(scores(task));
    }
    tables
}

fn scores(task: &TaskReport) -> [Table; 2] {
    let (mut scores, mut items) = (Table::new("score"), Table::new("item"));
    let gold = Accuracy {
        value: task.gold_nats,
        standard_error: task.gold_nats_standard_error,
    };
    let named = [
        ("acc", &task.acc),
        ("acc_norm", &task.acc_norm),
        ("acc_bytes", &task.acc_bytes),
        ("gold_nats", &gold),
    ];
    for (name, score) in named {
        if score.value.is_some() {
            let name = [("score", name.to_owned().cell())];
            scores.push(
                name.into_iter()
                    .chain(fields!(score; value, standard_error)),
            );
        }
    }
    for (index, outcome) in task.outcomes.iter().enumerate() {
        let number = [("item", (index as u64).cell())];
        let own = fields!(outcome; correct, correct_by_character, correct_by_byte, gold_nats);
        items.push(number.into_iter().chain(own));
    }
    [scores, items]
}

fn train(report: &TrainReport) -> Vec<Table> {
    let (mut steps, mut held) = (Table::new("step"), Table::new("held"));
    let needles = report.steps.iter().any(|step| step.needle.is_some());
    for step in &report.steps {
        let own = fields!(step; step, length, tokens, loss, text, passkey, pair, learning_rate, gradient_norm);
        // a column of its own only where there were needles
        let needle = fields!(step; needle);
        steps.push(
            own.into_iter()
                .chain(needle.into_iter().filter(|_| needles)),
        );
    }
    for one in &report.held {
        held.push(fields!(one; step, length, tokens, nats_per_token));
    }
    let (mut recall, mut heads) = (Table::new("recall"), Table::new("head"));
    for one in &report.recall {
        for cell in &one.cells {
            let place = fields!(one; step, length);
            let own = fields!(cell; task, from, to, questions, right, accuracy, accuracy_low, accuracy_high, nats);
            recall.push(place.into_iter().chain(own));
        }
    }
    for look in &report.looks {
        for head in &look.heads {
            let place = fields!(look; step, length);
            let own = fields!(head; layer, head, pairs, blind_pairs, blind_share, reach_90, key0_mass, blind_gradient);
            heads.push(place.into_iter().chain(own));
        }
    }
    vec![steps, held, recall, heads]
}
