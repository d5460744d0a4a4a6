//! Figures and sections of results that are not about heads: written here whole, so that a reader without scripts has them too. The
//! script only lets the keyboard walk through the cells.

use super::escape::{escape_html, name, prose};
use crate::document::Document;
use crate::figure::{Figure, figures, lettered};
use crate::sections::{Entry, Room, Section, Table, Text, of};
use std::fmt::Write as _;

/// Widths that figures are drawn for; the style sheet shows the one that fits.
const WIDTHS: [(&str, f64); 2] = [("wide", 900.0), ("narrow", 350.0)];
/// Entries that are open from the beginning.
const OPEN: usize = 2;
const ROOM: Room = Room {
    rows: 400,
    entries: 100,
};

/// Every figure at both widths; empty for results about heads, whose figures the script draws.
pub(super) fn charts(document: &Document) -> String {
    let [wide, narrow] = WIDTHS.map(|(_, width)| drawn_here(document, width));
    let mut out = String::new();
    for (wide, narrow) in wide.iter().zip(&narrow) {
        let title = &wide.title;
        let _ = writeln!(out, "<h2>{}</h2>", escape_html(title));
        if wide.role == "grid" {
            out.push_str(
                "<p class=\"readout\">Walk through the cells with the arrow keys; Enter opens the failures of a cell.</p>\n",
            );
        }
        out.push_str("<figure>\n");
        for ((class, _), figure) in WIDTHS.iter().zip([wide, narrow]) {
            let _ = writeln!(
                out,
                "<div class=\"scroll {class}\" tabindex=\"0\" role=\"region\" aria-label=\"Figure: {}\">{}</div>",
                escape_html(title),
                figure.element()
            );
        }
        let _ = writeln!(
            out,
            "<figcaption>{}</figcaption>\n</figure>",
            escape_html(&wide.caption)
        );
    }
    out
}

/// The figures that the script does not draw.
fn drawn_here(document: &Document, width: f64) -> Vec<Figure> {
    let about_heads = |document: &Document| {
        matches!(
            document,
            Document::Horizon(_) | Document::Audit(_) | Document::Measure(_) | Document::Inspect(_)
        )
    };
    match document {
        Document::Pair(pair) if about_heads(&pair.a) || about_heads(&pair.b) => {
            let sides = [("A", &pair.a), ("B", &pair.b)].into_iter();
            let sides = sides.filter(|(_, side)| !about_heads(side));
            sides
                .flat_map(|(letter, side)| lettered(letter, side, width))
                .collect()
        }
        other if about_heads(other) => Vec::new(),
        other => figures(other, width),
    }
}

/// Every section.
pub(super) fn sections(document: &Document) -> String {
    let sections = of(document, ROOM);
    sections.iter().map(section).collect()
}

fn section(section: &Section) -> String {
    let mut out = format!("<h2>{}</h2>\n", escape_html(&section.title));
    for line in &section.lead {
        let _ = writeln!(out, "<p class=\"hint\">{}</p>", prose(line));
    }
    if !section.table.rows.is_empty() {
        out.push_str(&table(&section.title, &section.table));
    }
    for (index, entry) in section.entries.iter().enumerate() {
        out.push_str(&one_entry(entry, index < OPEN));
    }
    if let Some(rest) = &section.rest {
        let _ = writeln!(out, "<p class=\"hint\">{}</p>", escape_html(rest));
    }
    out
}

fn one_entry(entry: &Entry, open: bool) -> String {
    let mut out = format!(
        "<details class=\"finding warning\" id=\"{}\"{}><summary>{}</summary>\n",
        escape_html(&entry.id),
        if open { " open" } else { "" },
        escape_html(&entry.line)
    );
    for line in &entry.body {
        let _ = writeln!(out, "<p>{}</p>", prose(line));
    }
    out.push_str(&table(&entry.line, &entry.table));
    out.push_str("</details>\n");
    out
}

fn table(label: &str, table: &Table) -> String {
    let class = |number: bool| if number { " class=\"number\"" } else { "" };
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table>\n<thead><tr>",
        escape_html(label)
    );
    for (column, number) in &table.columns {
        let _ = write!(
            out,
            "<th scope=\"col\"{}>{}</th>",
            class(*number),
            escape_html(column)
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (index, (text, (_, number))) in row.iter().zip(&table.columns).enumerate() {
            let text = match text {
                Text::Plain(text) if text == "none" || text == "not known" => {
                    format!("<span class=\"missing\">{text}</span>")
                }
                Text::Plain(text) => escape_html(text),
                Text::Raw(text) if text.is_empty() => {
                    "<span class=\"missing\">nothing</span>".to_owned()
                }
                Text::Raw(text) => format!("<code>{}</code>", name(text)),
            };
            let _ = if index == 0 {
                write!(out, "<th scope=\"row\"{}>{text}</th>", class(*number))
            } else {
                write!(out, "<td{}>{text}</td>", class(*number))
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}
