//! One opaque error with precise text.
//!
//! Everything that goes wrong here goes wrong in somebody's file, so the text is the product: it names the file, the tensor
//! or key, what was expected and what was found. Programs only need the [`ErrorKind`], which decides the exit code.

use std::fmt;
use std::path::Path;

/// What kind of trouble a [`CheckpointError`] reports; the command line turns it into an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The configuration was understood and says that the model has no linear biases: "not applicable", never "clean".
    NotAlibi,
    /// The model family, or its convention for the bias, is not known; nothing is guessed.
    UnknownFamily,
    /// A file breaks the rules of its format, or contradicts another file.
    Malformed,
    /// A file, tensor or key that is needed is not there, or cannot be read.
    Missing,
    /// Understood, and deliberately not done (pickle files, weights of a family that is only known by its configuration).
    Unsupported,
}

/// An error about a checkpoint, a configuration, a specification file, a tokenizer or a file of token ids.
///
/// Its `Display` text is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointError {
    kind: ErrorKind,
    text: String,
}

impl CheckpointError {
    /// An error of `kind`; control characters in `text` (which may quote a hostile file) are escaped, so that it stays one line.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        let text: String = text.into();
        let text = if text.chars().any(char::is_control) {
            text.chars()
                .flat_map(|c| {
                    if c.is_control() {
                        c.escape_default().collect::<Vec<_>>()
                    } else {
                        vec![c]
                    }
                })
                .collect()
        } else {
            text
        };
        Self { kind, text }
    }

    /// What kind of trouble this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn not_alibi(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotAlibi, text)
    }

    pub(crate) fn unknown_family(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::UnknownFamily, text)
    }

    pub(crate) fn malformed(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed, text)
    }

    pub(crate) fn missing(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Missing, text)
    }

    pub(crate) fn unsupported(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, text)
    }

    /// Puts `path` before the text.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        Self {
            kind: self.kind,
            text: format!("{}: {}", path.display(), self.text),
        }
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for CheckpointError {}

/// Quotes a name from a file for a message: escaped, and cut after 120 characters, since a hostile name may be megabytes long.
pub(crate) fn quoted(name: &str) -> String {
    const SHOWN: usize = 120;
    if name.chars().nth(SHOWN).is_some() {
        let head: String = name.chars().take(SHOWN).collect();
        format!("{head:?}... ({} bytes)", name.len())
    } else {
        format!("{name:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_one_line_and_names_stay_short() {
        let error = CheckpointError::malformed("a\nb\u{1b}[31m");
        assert_eq!(error.to_string(), "a\\nb\\u{1b}[31m");
        assert_eq!(quoted("a\nb"), "\"a\\nb\"");
        let long = quoted(&"x".repeat(1_000_000));
        assert!(long.len() < 200, "{long}");
    }
}
