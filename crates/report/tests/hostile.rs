//! Names come from files, and files may be hostile: no format lets one become markup, a link, a formula or a control sequence.
#![allow(clippy::unwrap_used)]

mod common;

use common::{RESULTS, VERBS, counts, embedded, saved};
use report::{Document, csv, figure, html, junit, markdown, npz, sarif};
use serde_json::Value;
use snellen_report as report;

const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u{7}\u{202e}gnp.exe \u{5d0}\u{5d1} \
                       {{data}} `|*_]]>&\"'\u{0}\u{2028}=1+1, [x](javascript:alert(1)) @everyone";

/// Replaces every string of a document by a hostile one, but the words that say what it is.
fn poison(value: &mut Value, key: &str) {
    match value {
        Value::String(text)
            if !["verb", "severity", "status", "plan", "sight"].contains(&key)
                && text != "snellen" =>
        {
            // Names that tell entries of a list apart stay different: a document where they do not is refused.
            let names = [
                "change", "trial", "trials", "variant", "quantity", "name", "code",
            ];
            let own = if names.contains(&key) {
                text.as_str()
            } else {
                ""
            };
            *text = format!("{HOSTILE}{own}");
        }
        Value::Array(items) => items.iter_mut().for_each(|item| poison(item, key)),
        Value::Object(fields) => {
            let poisoned: serde_json::Map<String, Value> = std::mem::take(fields)
                .into_iter()
                .map(|(name, mut inner)| {
                    poison(&mut inner, &name);
                    (name, inner)
                })
                .collect();
            *fields = poisoned;
        }
        _ => {}
    }
}

fn hostile(verb: &str) -> Document {
    let text = saved(verb).replace("\"ftz\"", &serde_json::to_string(HOSTILE).unwrap());
    let mut doc: Value = serde_json::from_str(&text).unwrap();
    poison(&mut doc, "");
    Document::from_json(&doc.to_string()).unwrap()
}

#[test]
fn hostile_names_cannot_break_a_page() {
    for verb in VERBS.into_iter().chain(RESULTS).chain(["study"]) {
        let document = hostile(verb);
        let page = html::render(&document).unwrap().unwrap();
        assert_eq!(
            page.matches("<script").count(),
            3,
            "{verb}: the document, the words, the script"
        );
        assert_eq!(page.matches("</script>").count(), 3, "{verb}");
        assert!(!page.contains("<img") && !page.contains("<script>alert"));
        // control and bidirectional characters of names appear nowhere; the script itself has none either
        assert!(
            !page.contains(['\u{202e}', '\u{7}', '\u{0}', '\u{2028}']),
            "{verb}"
        );
        assert_eq!(
            embedded(&page),
            serde_json::to_value(&document).unwrap(),
            "{verb}"
        );
    }
}

#[test]
fn hostile_names_cannot_break_the_other_formats() {
    for verb in VERBS.into_iter().chain(RESULTS).chain(["study"]) {
        let document = hostile(verb);
        let text = markdown::render(&document);
        let outside = outside_code(&text);
        assert!(
            !outside.contains("<img") && !outside.contains("<script"),
            "{outside}"
        );
        assert!(!text.contains(['\u{202e}', '\u{7}']));
        let unescaped = outside.replace("\\]", "");
        let links: Vec<_> = unescaped.split("](").skip(1).collect();
        assert!(links.is_empty(), "{verb}: {links:?}");
        if !document.runs_no_checks() {
            let xml = junit::render(&document, &counts).unwrap();
            assert_well_formed(&xml);
            let log = sarif::render(&document).unwrap().unwrap();
            assert!(serde_json::from_str::<Value>(&log).is_ok() && !log.contains('\u{202e}'));
        }
        if let Some(picture) = figure::render(&document, &figure::Chosen::Everything) {
            assert_well_formed(&picture);
            assert!(
                !picture.contains("<script") && !picture.contains("<img"),
                "{verb}"
            );
            assert!(!picture.contains(['\u{202e}', '\u{7}']), "{verb}");
        }
        if let Some(table) = csv::render(&document) {
            let width = table.lines().next().unwrap().split(',').count();
            for line in table.lines() {
                assert_eq!(csv_fields(line), width, "{line}");
            }
        }
        assert_eq!(npz::render(&document).unwrap().is_some(), verb != "study");
    }
}

/// Markdown without its code spans: a run of backticks opens one, a run of the same length closes it.
fn outside_code(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find('`') {
        let run = rest[start..]
            .bytes()
            .take_while(|byte| *byte == b'`')
            .count();
        out.push_str(&rest[..start]);
        rest = &rest[start + run..];
        if out.ends_with('\\') {
            continue; // an escaped backtick opens nothing
        }
        let mut at = 0;
        while let Some(found) = rest[at..].find('`') {
            let closing = rest[at + found..]
                .bytes()
                .take_while(|byte| *byte == b'`')
                .count();
            at += found + closing;
            if closing == run {
                break;
            }
        }
        rest = &rest[at..];
    }
    out + rest
}

/// Number of fields of a CSV line, quotes respected.
fn csv_fields(line: &str) -> usize {
    let mut quoted = false;
    1 + line
        .chars()
        .filter(|character| {
            quoted ^= *character == '"';
            *character == ',' && !quoted
        })
        .count()
}

/// Tags are balanced and characters are those of XML 1.0; entities are the five or numbers.
fn assert_well_formed(xml: &str) {
    let allowed = |c: char| matches!(c, '\t' | '\n' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    assert!(xml.chars().all(allowed));
    let mut open = Vec::new();
    for tag in xml.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').unwrap();
        assert!(!text.contains('>') || text.contains("]]&gt;"), "{text}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.starts_with('?') && !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap());
        }
    }
    assert!(open.is_empty(), "{open:?}");
    for entity in xml.split('&').skip(1) {
        let name = entity.split(';').next().unwrap();
        assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "{name}");
    }
}
