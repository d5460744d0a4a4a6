//! Task items from JSON lines, in three shapes.
//!
//! | fields | task | correct when |
//! |---|---|---|
//! | `context`, `continuation` | last word | every token of the continuation is the one a greedy decoder picks |
//! | `query`, `choices`, `gold` | multiple choice | the choice with the largest log-likelihood is the right one |
//! | `context_options`, `continuation`, `gold` | one continuation, several contexts | the context that makes it likeliest is the right one |

use serde_json::{Map, Value};

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
        "expected the fields context and continuation, or query, choices and gold, or context_options, continuation and gold; \
         found {}",
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
