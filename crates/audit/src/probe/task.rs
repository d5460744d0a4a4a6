//! The texts of a probe.

use serde::Deserialize;

use super::values::ValueKind;
use crate::eval::EvalError;

/// Built-in tasks: name and data file.
pub const TASKS: [(&str, &str); 8] = [
    ("passkey", include_str!("../../../../tasks/passkey.json")),
    ("needle", include_str!("../../../../tasks/needle.json")),
    (
        "key-value",
        include_str!("../../../../tasks/key-value.json"),
    ),
    ("word", include_str!("../../../../tasks/word.json")),
    ("uuid", include_str!("../../../../tasks/uuid.json")),
    (
        "multi-key",
        include_str!("../../../../tasks/multi-key.json"),
    ),
    (
        "multi-value",
        include_str!("../../../../tasks/multi-value.json"),
    ),
    (
        "multi-query",
        include_str!("../../../../tasks/multi-query.json"),
    ),
];

/// The texts of a probe, from a data file of `tasks/`. `{key}` stands for the value of a fact, and in the answer for all that are asked
/// for, with commas between them; `{name}` for a name that a fact and a question may share, and `{names}` for all of those
/// that are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeTask {
    /// Name.
    pub task: String,
    /// Version of the texts: results of two versions are not comparable.
    pub version: u32,
    /// Where the construction is from.
    pub about: String,
    /// Begins the prompt.
    pub introduction: String,
    /// Sentences that fill the prompt, over and over; none where the user brings a text.
    pub filler: Vec<String>,
    /// Template of lines that fill the prompt instead, with other names and numbers.
    #[serde(default)]
    pub line: Option<String>,
    /// States the fact.
    pub needle: String,
    /// Ends the prompt.
    pub question: String,
    /// What a right answer begins with.
    pub answer: String,
    /// Digits of a number, syllables of a word; not read for a UUID.
    pub digits: u32,
    /// What a value is.
    #[serde(default)]
    pub values: ValueKind,
    /// Facts in a prompt: the first at the depth of the cell, each other one somewhere, as the seed has it.
    #[serde(default = "one")]
    pub needles: u32,
    /// Facts whose values are asked for, the first ones.
    #[serde(default = "one")]
    pub asked: u32,
    /// Whether all facts have one name; the order of the values that are asked for then does not matter.
    #[serde(default)]
    pub one_name: bool,
}

fn one() -> u32 {
    1
}

/// Most facts of a prompt.
pub const NEEDLES_MAX: u32 = 1000;

impl ProbeTask {
    /// Whether the user has to bring the text that the fact is hidden in.
    #[must_use]
    pub fn needs_text(&self) -> bool {
        self.filler.is_empty() && self.line.is_none()
    }

    /// The same task with another number of facts. Where all were asked for, all are.
    ///
    /// # Errors
    /// A task whose facts have no names to tell them apart, none, or more than [`NEEDLES_MAX`].
    pub fn with_needles(mut self, needles: u32) -> Result<Self, EvalError> {
        if !self.needle.contains("{name}") || self.line.is_some() {
            return Err(EvalError::Input(format!(
                "task {} has one fact; multi-key, multi-value and multi-query have several",
                self.task
            )));
        }
        if !(1..=NEEDLES_MAX).contains(&needles) {
            return Err(EvalError::Input(format!(
                "expected 1 to {NEEDLES_MAX} facts, found {needles}"
            )));
        }
        if self.asked == self.needles {
            self.asked = needles;
        }
        self.needles = needles;
        Ok(self)
    }

    /// A built-in task.
    ///
    /// # Errors
    /// A name that is not one of [`TASKS`].
    pub fn named(name: &str) -> Result<Self, EvalError> {
        let Some((_, text)) = TASKS.iter().find(|task| task.0 == name) else {
            let names: Vec<&str> = TASKS.iter().map(|task| task.0).collect();
            return Err(EvalError::Input(format!(
                "unknown task {name:?}; expected one of {}",
                names.join(", ")
            )));
        };
        serde_json::from_str(text)
            .map_err(|error| EvalError::Input(format!("task {name}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_whole() {
        for (name, _) in TASKS {
            let task = ProbeTask::named(name).unwrap();
            assert_eq!(task.task, name);
            assert!((1..=9).contains(&task.digits) || task.values == ValueKind::Uuid);
            assert!(1 <= task.asked && task.asked <= task.needles);
            assert!(task.needles == 1 || task.needle.contains("{name}"));
            assert!(task.needle.contains("{key}") && task.answer.contains("{key}"));
            // nothing but the fact gives the number away, or could be taken for it
            let others = [&task.introduction, &task.question];
            for text in others.into_iter().chain(&task.filler) {
                assert!(!text.contains(|c: char| c.is_ascii_digit()), "{text}");
                let rest = text.replace("{name}", "").replace("{names}", "");
                assert!(!rest.contains('{'), "{text}");
                assert!(!text.contains("{name") || task.needle.contains("{name}"));
            }
        }
        let error = ProbeTask::named("passkeys").unwrap_err().to_string();
        assert!(error.contains("passkey"), "{error}");
    }
}
