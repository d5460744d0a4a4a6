//! The texts of a probe.

use serde::Deserialize;

use crate::eval::EvalError;

/// Built-in tasks: name and data file.
pub const TASKS: [(&str, &str); 3] = [
    ("passkey", include_str!("../../../../tasks/passkey.json")),
    ("needle", include_str!("../../../../tasks/needle.json")),
    (
        "key-value",
        include_str!("../../../../tasks/key-value.json"),
    ),
];

/// The texts of a probe, from a data file of `tasks/`. `{key}` stands for the number that is to be found,
/// `{name}` for a name that a line and a question may share.
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
    /// Digits of a key.
    pub digits: u32,
}

impl ProbeTask {
    /// Whether the user has to bring the text that the fact is hidden in.
    #[must_use]
    pub fn needs_text(&self) -> bool {
        self.filler.is_empty() && self.line.is_none()
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
            assert!((1..=9).contains(&task.digits));
            assert!(task.needle.contains("{key}") && task.answer.contains("{key}"));
            // nothing but the fact gives the number away, or could be taken for it
            let others = [&task.introduction, &task.question];
            for text in others.into_iter().chain(&task.filler) {
                assert!(!text.contains(|c: char| c.is_ascii_digit()), "{text}");
                assert!(!text.replace("{name}", "").contains('{'), "{text}");
                assert!(!text.contains("{name}") || task.needle.contains("{name}"));
            }
        }
        let error = ProbeTask::named("passkeys").unwrap_err().to_string();
        assert!(error.contains("passkey"), "{error}");
    }
}
