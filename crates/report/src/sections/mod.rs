//! Tables of results that are not about heads, for the formats that people read: written once, laid out by HTML and Markdown.

mod study;
mod verbs;

use crate::document::Document;
use verbs::{eval, paired, probe, train};

/// A part of a page under a heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Section {
    /// Heading.
    pub(crate) title: String,
    /// Sentences before the table.
    pub(crate) lead: Vec<String>,
    /// A table; without rows it is left out.
    pub(crate) table: Table,
    /// Parts that open by themselves.
    pub(crate) entries: Vec<Entry>,
    /// What was left out, for want of room.
    pub(crate) rest: Option<String>,
}

/// A part that opens by itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Its place in the page.
    pub(crate) id: String,
    /// The line that is always there.
    pub(crate) line: String,
    /// Sentences below it.
    pub(crate) body: Vec<String>,
    /// A table below them.
    pub(crate) table: Table,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    /// Names, and whether a column holds numbers.
    pub(crate) columns: Vec<(&'static str, bool)>,
    /// Cells; the first of a row names it.
    pub(crate) rows: Vec<Vec<Text>>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Text {
    /// A number or words of ours.
    Plain(String),
    /// Words as a model or a file had them.
    Raw(String),
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Plain(text)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Plain(text.to_owned())
    }
}

/// How much a format has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Rows of a table.
    pub(crate) rows: usize,
    /// Entries of a list.
    pub(crate) entries: usize,
}

/// The sections of a result; empty for results about heads.
pub(crate) fn of(document: &Document, room: Room) -> Vec<Section> {
    let mut sections = match document {
        Document::Probe(report) => probe(report, room),
        Document::Eval(report) => eval(report),
        Document::Train(report) => train(report),
        Document::Study(report) => study::study(report, room),
        Document::Pair(pair) if !pair.paired.is_empty() => vec![paired(pair)],
        _ => Vec::new(),
    };
    for section in &mut sections {
        let all = section.table.rows.len();
        if all > room.rows {
            section.table.rows.truncate(room.rows);
            section.rest = Some(format!(
                "{} of {all} rows; CSV and JSON have all.",
                room.rows
            ));
        }
    }
    sections.retain(|section| !section.table.rows.is_empty() || !section.entries.is_empty());
    sections
}
