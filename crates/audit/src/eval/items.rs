//! Task items from JSON lines, in four shapes, or from HellaSwag's text form (see `hellaswag`).
//!
//! | fields | task | correct when |
//! |---|---|---|
//! | `context`, `continuation` | last word | every token of the continuation is the one a greedy decoder picks |
//! | `query`, `choices`, `gold` | multiple choice | the choice with the largest log-likelihood is the right one |
//! | `context_options`, `continuation`, `gold` | one continuation, several contexts | the context that makes it likeliest is the right one |
//! | `activity_label`, `ctx_a`, `ctx_b`, `endings`, `label` | HellaSwag | as multiple choice |

use serde_json::{Map, Value};

use super::hellaswag;

/// One item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A text and its last word or words.
    LastWord {
        /// What is given.
        context: String,
        /// What is to be said.
        continuation: String,
    },
    /// A question and its possible answers.
    Choices {
        /// What is given.
        query: String,
        /// Possible answers, at least two.
        choices: Vec<String>,
        /// Index of the right one.
        gold: usize,
    },
    /// Possible contexts of one continuation.
    ContextOptions {
        /// Possible contexts, at least two.
        options: Vec<String>,
        /// What is said after each.
        continuation: String,
        /// Index of the right one.
        gold: usize,
    },
}

/// A line that is no item. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ItemError {
    /// The line.
    pub line: usize,
    problem: String,
}

/// Reads the first `limit` items (all without one). Blank lines are skipped.
///
/// # Errors
/// A line that is no item, and items of different shapes in one task.
pub fn parse_items(text: &str, limit: Option<usize>) -> Result<Vec<Item>, ItemError> {
    if hellaswag::is_text_form(text) {
        return parse_six_lines(text, limit);
    }
    let mut items: Vec<Item> = Vec::new();
    let lines = text.lines().enumerate();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        if limit.is_some_and(|limit| items.len() == limit) {
            break;
        }
        let fail = |problem| ItemError {
            line: index + 1,
            problem,
        };
        let item = parse(line).map_err(fail)?;
        if let Some(first) = items.first()
            && std::mem::discriminant(first) != std::mem::discriminant(&item)
        {
            return Err(fail(
                "has the fields of another kind of task than the first item; expected one kind a file".into(),
            ));
        }
        items.push(item);
    }
    Ok(items)
}

/// How many items a file holds, read or not.
#[must_use]
pub fn count_items(text: &str) -> usize {
    if hellaswag::is_text_form(text) {
        return text.trim_end().lines().count().div_ceil(hellaswag::LINES);
    }
    text.lines().filter(|line| !line.trim().is_empty()).count()
}

fn parse_six_lines(text: &str, limit: Option<usize>) -> Result<Vec<Item>, ItemError> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let items = lines.chunks(hellaswag::LINES).enumerate();
    let items = items
        .take(limit.unwrap_or(usize::MAX))
        .map(|(index, lines)| {
            hellaswag::of_lines(lines).map_err(|(line, problem)| ItemError {
                line: index * hellaswag::LINES + line + 1,
                problem,
            })
        });
    items.collect()
}

fn parse(line: &str) -> Result<Item, String> {
    let object: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| format!("expected a JSON object: {error}"))?;
    if object.contains_key("context_options") {
        let options = texts(&object, "context_options")?;
        let gold = gold(&object, options.len())?;
        let continuation = text(&object, "continuation")?;
        return Ok(Item::ContextOptions {
            options,
            continuation,
            gold,
        });
    }
    if object.contains_key("endings") {
        return hellaswag::of_fields(&object);
    }
    if object.contains_key("choices") {
        let choices = texts(&object, "choices")?;
        let gold = gold(&object, choices.len())?;
        let query = text(&object, "query")?;
        return Ok(Item::Choices {
            query,
            choices,
            gold,
        });
    }
    if object.contains_key("continuation") {
        return Ok(Item::LastWord {
            context: text(&object, "context")?,
            continuation: text(&object, "continuation")?,
        });
    }
    let found: Vec<&str> = object.keys().map(String::as_str).collect();
    Err(format!(
        "expected the fields context and continuation, or query, choices and gold, or context_options, continuation and gold, \
         or HellaSwag's activity_label, ctx_a, ctx_b, endings and label; found {}",
        if found.is_empty() {
            "none".to_owned()
        } else {
            found.join(", ")
        }
    ))
}

fn text(object: &Map<String, Value>, key: &str) -> Result<String, String> {
    match object.get(key).and_then(Value::as_str) {
        Some(text) if !text.trim().is_empty() => Ok(text.to_owned()),
        Some(_) => Err(format!("{key} is empty")),
        None => Err(format!("expected a text in the field {key}")),
    }
}

fn texts(object: &Map<String, Value>, key: &str) -> Result<Vec<String>, String> {
    let expected = || format!("expected a list of at least two texts in the field {key}");
    let list = object
        .get(key)
        .and_then(Value::as_array)
        .ok_or_else(expected)?;
    if list.len() < 2 {
        return Err(expected());
    }
    let texts = list.iter().enumerate().map(|(index, entry)| {
        let text = entry.as_str().ok_or_else(expected)?;
        if text.trim().is_empty() {
            return Err(format!("{key}: entry {index} is empty"));
        }
        Ok(text.to_owned())
    });
    texts.collect()
}

fn gold(object: &Map<String, Value>, n: usize) -> Result<usize, String> {
    let gold = object.get("gold").and_then(Value::as_u64);
    gold.and_then(|gold| usize::try_from(gold).ok())
        .filter(|gold| *gold < n)
        .ok_or_else(|| {
            format!(
                "expected the index of the right entry, 0 to {}, in the field gold",
                n - 1
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_shapes() {
        let one = |line: &str| parse_items(line, None).unwrap().remove(0);
        assert!(matches!(
            one(r#"{"context": "a", "continuation": "b"}"#),
            Item::LastWord { .. }
        ));
        assert!(matches!(
            one(r#"{"query": "a", "choices": ["b", "c"], "gold": 1}"#),
            Item::Choices { gold: 1, .. }
        ));
        assert!(matches!(
            one(r#"{"context_options": ["a", "b"], "continuation": "c", "gold": 0}"#),
            Item::ContextOptions { gold: 0, .. }
        ));
    }

    #[test]
    fn limits_and_blank_lines() {
        let text = "\n{\"context\":\"a\",\"continuation\":\"b\"}\n\n{\"context\":\"c\",\"continuation\":\"d\"}\nnot read";
        assert_eq!(parse_items(text, Some(2)).unwrap().len(), 2);
        assert_eq!(parse_items(text, None).unwrap_err().line, 5);
        assert_eq!(parse_items("", None), Ok(vec![]));
    }

    #[test]
    fn hellaswag_in_both_forms() {
        let text = "A: b. c\n1\nw\nx\ny\nz\nD: e\n0\nw\nx\ny\nz\n";
        assert_eq!(parse_items(text, None).unwrap().len(), 2);
        assert_eq!(
            (parse_items(text, Some(1)).unwrap().len(), count_items(text)),
            (1, 2)
        );
        let line = r#"{"activity_label": "A", "ctx_a": "b.", "ctx_b": "c", "endings": ["w", "x", "y", "z"], "label": 1}"#;
        let of_fields = parse_items(line, None).unwrap();
        // the one difference: the text form does not say where the second part begins
        let Item::Choices { query, .. } = &of_fields[0] else {
            panic!("choices")
        };
        assert_eq!(query, "A: b. C");
        let error = parse_items("A: b\n1\nw\nx\ny\nz\nD: e\n7\nw\nx\ny\nz", None).unwrap_err();
        assert_eq!(error.line, 8);
        let cut = parse_items("A: b\n1\nw\nx", None).unwrap_err();
        assert!(
            cut.line == 1 && cut.to_string().contains("six lines"),
            "{cut}"
        );
    }

    #[test]
    fn errors_name_line_and_field() {
        for (line, expect) in [
            ("[]", "expected a JSON object"),
            ("{}", "found none"),
            (r#"{"text": "a"}"#, "found text"),
            (
                r#"{"query": "a", "choices": ["b"], "gold": 0}"#,
                "at least two",
            ),
            (
                r#"{"query": "a", "choices": ["b", ""], "gold": 0}"#,
                "entry 1 is empty",
            ),
            (
                r#"{"query": "a", "choices": ["b", "c"], "gold": 2}"#,
                "0 to 1",
            ),
            (
                r#"{"query": 3, "choices": ["b", "c"], "gold": 1}"#,
                "field query",
            ),
            (
                r#"{"context": "a", "continuation": " "}"#,
                "continuation is empty",
            ),
        ] {
            let error = parse_items(line, None).unwrap_err().to_string();
            assert!(
                error.starts_with("line 1: ") && error.contains(expect),
                "{error}"
            );
        }
        let mixed = "{\"context\":\"a\",\"continuation\":\"b\"}\n{\"query\":\"a\",\"choices\":[\"b\",\"c\"],\"gold\":0}";
        assert!(
            parse_items(mixed, None)
                .unwrap_err()
                .to_string()
                .contains("another kind")
        );
    }
}
