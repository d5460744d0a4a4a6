//! HellaSwag's items, in the two forms in which they are handed around, prepared as lm-evaluation-harness does (its task `hellaswag`).
//!
//! The rule, for every piece of text: white space at both ends goes; ` [title]` becomes `. `; whatever stands between square brackets
//! on one line goes with them (artefacts of WikiHow); then every two spaces become one, once. The query is activity, colon, space and
//! context; the context is `ctx_a`, a space and `ctx_b`, whose first letter is made large and all others small.
//!
//! The text form has six lines an item: activity and context, already joined; the index of the right ending, from 0; four endings.
//! Where its context came from two parts the second keeps its small letter, because the text does not say where it begins.

use serde_json::{Map, Value};

use super::items::Item;

/// Lines of an item in the text form.
pub(super) const LINES: usize = 6;

/// Whether a file is in the text form, by its beginning: a line that is no JSON, and one that is an index.
pub(super) fn is_text_form(text: &str) -> bool {
    let mut lines = text.lines();
    let first = lines.next().map(str::trim_start).unwrap_or_default();
    let index = lines.next().map(str::trim).unwrap_or_default();
    !first.is_empty() && !first.starts_with(['{', '[']) && index.parse::<usize>().is_ok()
}

/// An item of the text form. An error is the line in the item, from 0, and what is wrong with it.
pub(super) fn of_lines(lines: &[&str]) -> Result<Item, (usize, String)> {
    let [query, gold, endings @ ..] = lines else {
        return Err((0, "expected an item of six lines".into()));
    };
    if endings.len() != LINES - 2 {
        let found = lines.len();
        let problem = format!("the file ends after {found} of this item's six lines");
        return Err((0, problem));
    }
    let gold = gold
        .trim()
        .parse()
        .ok()
        .filter(|gold| *gold < endings.len());
    let gold = gold.ok_or((
        1,
        "expected the index of the right ending, 0 to 3".to_owned(),
    ))?;
    let choices: Vec<String> = endings.iter().map(|ending| prepare(ending)).collect();
    if let Some(empty) = choices.iter().position(String::is_empty) {
        return Err((2 + empty, "the ending is empty".into()));
    }
    let query = prepare(query);
    if query.is_empty() {
        return Err((0, "the context is empty".into()));
    }
    Ok(Item::Choices {
        query,
        choices,
        gold,
    })
}

/// An item of the JSON form: `activity_label`, `ctx_a`, `ctx_b`, `endings` and `label`, the latter a number or a text that is one.
pub(super) fn of_fields(object: &Map<String, Value>) -> Result<Item, String> {
    let text = |key: &str| {
        let value = object.get(key).and_then(Value::as_str);
        value.ok_or_else(|| format!("expected a text in the field {key}"))
    };
    let (activity, first) = (text("activity_label")?, text("ctx_a")?);
    let second = capitalised(text("ctx_b")?);
    let endings = object.get("endings").and_then(Value::as_array);
    let endings: Option<Vec<&str>> =
        endings.and_then(|all| all.iter().map(Value::as_str).collect());
    let choices: Vec<String> = match endings {
        Some(endings) if endings.len() > 1 => endings.into_iter().map(prepare).collect(),
        _ => return Err("expected a list of at least two texts in the field endings".into()),
    };
    if let Some(empty) = choices.iter().position(String::is_empty) {
        return Err(format!("endings: entry {empty} is empty"));
    }
    let gold = match object.get("label") {
        Some(Value::String(label)) => label.trim().parse().ok(),
        Some(label) => label.as_u64(),
        None => None,
    };
    let gold = gold.and_then(|gold: u64| usize::try_from(gold).ok());
    let gold = gold.filter(|gold| *gold < choices.len()).ok_or_else(|| {
        format!(
            "expected the index of the right ending, 0 to {}, in the field label",
            choices.len() - 1
        )
    })?;
    Ok(Item::Choices {
        query: prepare(&format!("{activity}: {first} {second}")),
        choices,
        gold,
    })
}

/// The rule above for one piece of text.
fn prepare(text: &str) -> String {
    let text = text.trim().replace(" [title]", ". ");
    without_brackets(&text).replace("  ", " ")
}

/// Leaves out every `[`, the nearest `]` after it on the same line, and what is between them.
fn without_brackets(text: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(open) = rest.find('[') {
        let inside = &rest[open..];
        let close = inside.find(']');
        match close.filter(|&close| !inside[..close].contains('\n')) {
            Some(close) => {
                kept.push_str(&rest[..open]);
                rest = &inside[close + 1..];
            }
            None => {
                kept.push_str(&rest[..=open]);
                rest = &inside[1..];
            }
        }
    }
    kept + rest
}

/// The first letter large, all others small.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters.flat_map(char::to_lowercase)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: `lm_eval` 0.4.13, `tasks/hellaswag/utils.py`, run on the same inputs.
    #[test]
    fn texts_are_prepared_as_the_harness_does() {
        for (text, expected) in [
            (" a b ", "a b"),
            ("How to x [title] Do y", "How to x. Do y"),
            ("a [step] b [header] c", "a b c"),
            ("a [b [c] d] e", "a d] e"),
            ("a ] b [ c", "a ] b [ c"),
            ("a   b", "a  b"),
            ("a [x\ny] b", "a [x\ny] b"),
        ] {
            assert_eq!(prepare(text), expected, "{text:?}");
        }
        assert_eq!(capitalised("the Man"), "The man");
        assert_eq!(capitalised(""), "");
    }

    #[test]
    fn an_item_of_fields() {
        let line = r#"{"activity_label": "Roof", "ctx_a": "A man sits.", "ctx_b": "he", "endings": [" falls.", "sings [x]."], "label": "1"}"#;
        let object: Map<String, Value> = serde_json::from_str(line).unwrap();
        let Item::Choices {
            query,
            choices,
            gold,
        } = of_fields(&object).unwrap()
        else {
            panic!("choices")
        };
        assert_eq!(query, "Roof: A man sits. He");
        assert_eq!(choices, ["falls.", "sings ."]);
        assert_eq!(gold, 1);
    }

    #[test]
    fn an_item_of_six_lines() {
        let good = ["Roof: a man. he", "3", "a", "b", "c", " d"];
        assert!(is_text_form(&good.join("\n")) && !is_text_form("{}\n1") && !is_text_form("text"));
        assert!(matches!(
            of_lines(&good),
            Ok(Item::Choices { gold: 3, query, .. }) if query == "Roof: a man. he"
        ));
        assert_eq!(of_lines(&good[..4]).unwrap_err().0, 0);
        let with = |at: usize, text| {
            let mut lines = good;
            lines[at] = text;
            of_lines(&lines).unwrap_err().0
        };
        assert_eq!((with(1, "4"), with(4, " ")), (1, 4));
    }
}
