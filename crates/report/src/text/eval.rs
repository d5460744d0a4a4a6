//! Text of `snellen eval`.

use super::spark::Sparks;
use super::table::{Align, Table};
use super::{Page, RenderText, TextOptions, cell, document, escape, plural};
use crate::number::{percent, short};
use crate::schema::{Accuracy, EvalReport, MeanLoss, PerplexityReport, TaskReport};

/// Documents listed; the JSON form has all of them.
const DOCUMENTS_SHOWN: usize = 12;

impl RenderText for EvalReport {
    fn render_text(&self, options: &TextOptions) -> String {
        let body = |page: &mut Page<'_>| {
            if let Some(text) = &self.envelope.text {
                let ids = match text.tokenizer.as_str() {
                    "ids" => "token ids as given".to_owned(),
                    tokenizer => format!("ids from {}", escape(tokenizer)),
                };
                let (source, tokens) = (escape(&text.source), plural(text.tokens, "token"));
                page.paragraph(&format!("Text: {source}, {tokens} ({ids})."));
            }
            if let Some(perplexity) = &self.perplexity {
                losses(page, perplexity);
            }
            if let Some(task) = &self.task {
                scores(page, task);
            }
        };
        document(options, &self.envelope, &self.outcome, None, body)
    }
}

fn losses(page: &mut Page<'_>, report: &PerplexityReport) {
    page.paragraph(&format!(
        "Windows of {}, {} apart: {}; {} predicted{}.",
        plural(report.length, "token"),
        report.stride,
        plural(report.windows, "window"),
        plural(report.all.tokens, "token"),
        pieces(report)
    ));
    let by_document = match report.standard_error_nats_by_document {
        Some(error) => format!(", {} by document", short(error)),
        None => String::new(),
    };
    page.paragraph(&format!(
        "Loss {} nats a token (standard error {} by token{by_document}), perplexity {}.",
        cell(report.all.nats_per_token.map(short)),
        cell(report.all.standard_error_nats.map(short)),
        cell(report.all.perplexity.map(short))
    ));
    page.heading("By tokens of context");
    if report.by_position.len() > 1 {
        let losses = report.by_position.iter().map(|bin| bin.loss.nats_per_token);
        Sparks {
            limits: None,
            lines: vec![("nats a token".to_owned(), losses.collect())],
            number: &short,
        }
        .draw(page);
    }
    let mut table = loss_table("context");
    for bin in &report.by_position {
        let name = if bin.from == bin.to {
            bin.from.to_string()
        } else {
            format!("{}-{}", bin.from, bin.to)
        };
        table.row(loss_row(name, &bin.loss));
    }
    page.table(&table);
    if report.documents.len() > 1 {
        let shown = report.documents.len().min(DOCUMENTS_SHOWN);
        page.heading(&format!(
            "By document ({shown} of {})",
            report.documents.len()
        ));
        let mut table = loss_table("document");
        for one in &report.documents[..shown] {
            table.row(loss_row(one.document.to_string(), &one.loss));
        }
        page.table(&table);
    }
}

fn pieces(report: &PerplexityReport) -> String {
    report.chunk.map_or_else(String::new, |chunk| {
        format!(", in pieces of {}", plural(chunk, "token"))
    })
}

fn loss_table(first: &str) -> Table {
    Table::new([
        (first, Align::Right),
        ("tokens", Align::Right),
        ("nats a token", Align::Right),
        ("standard error", Align::Right),
        ("perplexity", Align::Right),
    ])
}

fn loss_row(name: String, loss: &MeanLoss) -> Vec<String> {
    vec![
        name,
        loss.tokens.to_string(),
        cell(loss.nats_per_token.map(short)),
        cell(loss.standard_error_nats.map(short)),
        cell(loss.perplexity.map(short)),
    ]
}

fn scores(page: &mut Page<'_>, task: &TaskReport) {
    let all = if task.items == task.items_available {
        format!("all {}", plural(task.items, "item"))
    } else {
        format!(
            "the first {} of {}",
            task.items,
            plural(task.items_available, "item")
        )
    };
    page.paragraph(&format!(
        "Task: {}, {}, {all} (ids from {}).",
        escape(&task.source),
        task.kind,
        escape(&task.tokenizer)
    ));
    let mut facts = vec![("accuracy", share(&task.acc))];
    if task.acc_norm.value.is_some() {
        facts.push(("by character", share(&task.acc_norm)));
        facts.push(("by byte", share(&task.acc_bytes)));
    }
    facts.extend(task.chance.map(|chance| ("chance", percent(chance))));
    facts.extend(task.perplexity.map(|value| ("perplexity", short(value))));
    facts.push(("nats of the answer", cell(task.gold_nats.map(short))));
    page.facts(&facts);
}

fn share(accuracy: &Accuracy) -> String {
    let error = match accuracy.standard_error {
        Some(error) => format!(", standard error {error:.4}"),
        None => String::new(),
    };
    format!("{}{error}", cell(accuracy.value.map(percent)))
}
