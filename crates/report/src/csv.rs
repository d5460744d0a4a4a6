//! The CSV renderer: one line for each head under each plan, a column for each field of the schema (RFC 4180, lines end in LF).
//! Of results that are not about heads: one line a record, `record` says of which kind, and columns of other kinds are `NA`.
//!
//! Numbers are those of the JSON document, digit for digit. What was not measured or does not exist is `NA`, never an empty
//! field or a zero. A word that a spreadsheet would take for a formula is preceded by an apostrophe.

use crate::document::Document;
use crate::heads::{Cell, HeadTable};

/// What stands for a missing value.
pub const MISSING: &str = "NA";

/// The table, or `None` where the result has no heads. Of a pair, one line a head with each quantity in A, in B and its change.
#[must_use]
pub fn render(document: &Document) -> Option<String> {
    if let Document::Pair(pair) = document {
        return Some(render_pair(pair));
    }
    if let Document::Study(study) = document {
        return Some(crate::study::forms::csv(study));
    }
    if let Some(tables) = crate::records::tables(document) {
        return Some(render_records(&tables));
    }
    let table = HeadTable::of(document)?;
    let mut out = "layer,head,plan".to_owned();
    for column in &table.columns {
        out.push(',');
        out.push_str(column);
    }
    out.push('\n');
    for row in &table.rows {
        let place = [
            row.layer.map_or(MISSING.to_owned(), |n| n.to_string()),
            row.head.to_string(),
            row.plan.as_deref().map_or(MISSING.to_owned(), word),
        ];
        let cells = place.into_iter().chain(row.cells.iter().map(field));
        out.push_str(&cells.collect::<Vec<_>>().join(","));
        out.push('\n');
    }
    Some(out)
}

fn render_records(tables: &[crate::records::Table]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for name in tables.iter().flat_map(|table| &table.columns) {
        if !columns.contains(name) {
            columns.push(name);
        }
    }
    let mut out = format!("record,{}\n", columns.join(","));
    for table in tables {
        let places: Vec<Option<usize>> = columns
            .iter()
            .map(|name| table.columns.iter().position(|own| own == name))
            .collect();
        for row in &table.rows {
            out.push_str(table.record);
            for place in &places {
                out.push(',');
                out.push_str(&place.map_or(MISSING.to_owned(), |at| field(&row[at])));
            }
            out.push('\n');
        }
    }
    out
}

/// A line a quantity of a head; then what else differs or could not be compared, in the words of the other formats. Of results
/// that are not about heads: a line a paired difference.
fn render_pair(pair: &crate::schema::PairReport) -> String {
    let number = |value: Option<f64>| value.map_or(MISSING.to_owned(), float);
    if !pair.paired.is_empty() {
        return render_paired(pair);
    }
    let mut out = "layer,head,plan_a,plan_b,quantity,a,b,change\n".to_owned();
    for head in &pair.heads {
        for (name, difference) in &head.quantities {
            let plan = |plan: &Option<String>| plan.as_deref().map_or(MISSING.to_owned(), word);
            out.push_str(&format!(
                "{},{},{},{},{},{},{},{}\n",
                head.layer.map_or(MISSING.to_owned(), |n| n.to_string()),
                head.head,
                plan(&head.plan_a),
                plan(&head.plan_b),
                word(name),
                number(difference.a),
                number(difference.b),
                number(difference.change)
            ));
        }
    }
    for line in remarks(pair) {
        out.push_str(&format!("NA,NA,NA,NA,{},NA,NA,NA\n", word(&line)));
    }
    out
}

fn render_paired(pair: &crate::schema::PairReport) -> String {
    let number = |value: Option<f64>| value.map_or(MISSING.to_owned(), float);
    let count = |value: Option<u64>| value.map_or(MISSING.to_owned(), |n| n.to_string());
    let mut out =
        "what,quantity,units,a,b,change,change_low,change_high,only_a,only_b,method\n".to_owned();
    for one in &pair.paired {
        let cells = [
            word(&one.what),
            word(&one.quantity),
            one.units.to_string(),
            number(one.a),
            number(one.b),
            number(one.change),
            number(one.change_low),
            number(one.change_high),
            count(one.only_a),
            count(one.only_b),
            word(&one.method),
        ];
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    for line in remarks(pair) {
        out.push_str(&format!("{},NA,NA,NA,NA,NA,NA,NA,NA,NA,NA\n", word(&line)));
    }
    out
}

/// What a reader of the numbers needs to know, as `note: ...`.
fn remarks(pair: &crate::schema::PairReport) -> Vec<String> {
    let lines = pair.differences.iter().map(|line| format!("note: {line}"));
    lines.collect()
}

fn field(cell: &Cell) -> String {
    match cell {
        Cell::Missing => MISSING.to_owned(),
        Cell::Count(count) => count.to_string(),
        Cell::Number(number) => float(*number),
        Cell::Flag(flag) => flag.to_string(),
        Cell::Word(text) => word(text),
    }
}

/// The digits that JSON has: the shortest that read back as the same number.
pub(crate) fn float(number: f64) -> String {
    serde_json::to_string(&number).unwrap_or_else(|_| MISSING.to_owned())
}

/// A quoted word where it needs quotes.
pub(crate) fn word(text: &str) -> String {
    if text.is_empty() {
        return "\"\"".to_owned();
    }
    let text = crate::text::escape(text);
    let formula = text.starts_with(['=', '+', '-', '@']);
    let text = if formula {
        format!("'{text}")
    } else {
        text.into_owned()
    };
    if text.contains(['"', ',', '\n', '\r', ' ', ';']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_words_in_every_spreadsheet() {
        assert_eq!(word("hf-eager:f16"), "hf-eager:f16");
        assert_eq!(word("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(word("=1+1"), "'=1+1");
        assert_eq!(word("a\nb"), r"a\u{a}b");
    }
}
