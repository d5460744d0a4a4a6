//! A command as it can be typed again.

use std::fmt::Display;

/// A command that is put together word by word.
#[derive(Debug)]
pub(crate) struct CommandLine(String);

impl CommandLine {
    /// Begins with words that need no quotes.
    pub(crate) fn new(begin: &str) -> Self {
        Self(begin.to_owned())
    }

    /// Adds a word, in quotes where a shell would change it.
    pub(crate) fn word(&mut self, word: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
        self.0.push(' ');
        if !word.is_empty() && word.chars().all(plain) {
            self.0.push_str(word);
        } else {
            self.0
                .push_str(&format!("'{}'", word.replace('\'', "'\\''")));
        }
    }

    /// Adds an option where it has a value.
    pub(crate) fn option(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.word(name);
            self.word(&value.to_string());
        }
    }

    /// Adds a flag where it is set.
    pub(crate) fn flag(&mut self, name: &str, set: bool) {
        if set {
            self.word(name);
        }
    }

    /// The command.
    pub(crate) fn text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::CommandLine;

    #[test]
    fn words_that_a_shell_would_change_are_quoted() {
        let mut line = CommandLine::new("snellen study run");
        for word in ["a/b.toml", "C+E-s1", "lin*", "two words", "it's", ""] {
            line.word(word);
        }
        line.option("--jobs", Some(2));
        line.option("--threads", None::<u16>);
        line.flag("--keep-checkpoints", true);
        line.flag("--evaluate-again", false);
        assert_eq!(
            line.text(),
            r"snellen study run a/b.toml C+E-s1 'lin*' 'two words' 'it'\''s' '' --jobs 2 --keep-checkpoints"
        );
    }
}
