//! The HTML renderer: one self-contained page that opens from disk.
//!
//! The page holds the JSON document itself, and its script draws the figures from it; summary, findings and plans are written
//! here, so that a reader without scripts still has them. No plotting library is embedded: two figures are needed, a grid of
//! cells that the keyboard walks through and bars on a logarithmic axis with marks, and no library draws the first as elements
//! that can be focused and read aloud. The smallest that draw the second are larger than the whole page.
//!
//! Names come from files, and files may be hostile. Text is escaped for HTML after control and bidirectional characters are made
//! visible, and isolated with `<bdi>`; the document is escaped so that no `</script>` can occur in it; and the page's own policy
//! (`Content-Security-Policy`) admits no request and no script but the one whose hash it names.

mod details;
mod document;
mod embed;
mod escape;
mod results;

pub(crate) use document::subject;
pub use escape::escape_html;

use crate::document::Document;
use base64::Engine as _;
use sha2::{Digest as _, Sha256};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
/// One script in the order of its parts: they share one function's scope, and nothing is global.
const SCRIPT: [&str; 9] = [
    include_str!("js/format.js"),
    include_str!("js/data.js"),
    include_str!("js/metrics.js"),
    include_str!("js/chart.js"),
    include_str!("js/table.js"),
    include_str!("js/head.js"),
    include_str!("js/pair.js"),
    include_str!("js/results.js"),
    include_str!("js/main.js"),
];

/// Renders a result as a page; `None` for documentation and for prompts that were not run, which have no page.
///
/// # Errors
/// When the document cannot be written as JSON, which no type of [`crate::schema`] can cause.
pub fn render(document: &Document) -> Result<Option<String>, serde_json::Error> {
    if matches!(document, Document::Explain(_) | Document::Prompts(_)) {
        return Ok(None);
    }
    let script = format!("(() => {{\n\"use strict\";\n{}}})();\n", SCRIPT.concat());
    let hash = |text: &str| {
        let digest = Sha256::digest(text.as_bytes());
        base64::engine::general_purpose::STANDARD.encode(digest)
    };
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        hash(&script),
        hash(STYLE)
    );
    let data = embed::document(document)?;
    let parts = document::Parts::of(document);
    Ok(Some(fill(PAGE, |name| match name {
        "policy" => &policy,
        "title" => &parts.title,
        "style" => STYLE,
        "heading" => &parts.heading,
        "summary" => &parts.summary,
        "charts" => &parts.charts,
        "findings" => &parts.findings,
        "sections" => &parts.sections,
        "details" => &parts.details,
        "footer" => &parts.footer,
        "data" => &data,
        "words" => &parts.words,
        "script" => &script,
        _ => "",
    })))
}

/// Replaces every `{{name}}` of the template in one pass: what is filled in is never looked at again.
fn fill<'a>(template: &str, value: impl Fn(&str) -> &'a str) -> String {
    let mut out = String::with_capacity(template.len() * 4);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(before);
        let Some((name, after)) = after.split_once("}}") else {
            rest = after;
            break;
        };
        out.push_str(value(name));
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_not_expanded_again() {
        let out = fill("<{{a}}|{{b}}>", |name| match name {
            "a" => "{{b}}",
            _ => "x",
        });
        assert_eq!(out, "<{{b}}|x>");
    }

    #[test]
    fn the_templates_names_are_all_known() {
        let known = [
            "policy", "title", "style", "heading", "summary", "charts", "findings", "sections",
            "details", "footer", "data", "words", "script",
        ];
        for part in PAGE.split("{{").skip(1) {
            let name = part.split("}}").next().unwrap();
            assert!(known.contains(&name), "{name}");
        }
    }
}
