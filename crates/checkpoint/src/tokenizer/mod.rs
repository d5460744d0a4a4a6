//! Text to token ids, and files of token ids.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | [`Tokenizer`], the one type the rest of the program sees |
//! | `huggingface` | `tokenizer.json`, with errors that say what was not understood |
//! | `minbpe` | the text file of minbpe, a byte-pair encoding over a regex split |
//! | `ids` | [`read_token_file`] |

mod huggingface;
mod ids;
mod minbpe;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

pub use ids::{check_ids, read_token_file};

use crate::error::CheckpointError;
use crate::read::read_limited;

/// Longest tokenizer file that is read, in bytes (512 MiB).
const TOKENIZER_BYTES_MAX: u64 = 512 << 20;

/// A tokenizer of any supported kind, with the preparation of the text that belongs to it.
#[derive(Debug)]
pub struct Tokenizer {
    path: PathBuf,
    hash: String,
    kind: Kind,
    fold_white_space: bool,
    replace: Vec<(String, String)>,
}

#[derive(Debug)]
enum Kind {
    HuggingFace(Box<huggingface::HuggingFace>),
    MinBpe(Box<minbpe::MinBpe>),
}

impl Tokenizer {
    /// Opens a `tokenizer.json`, or the model file of minbpe (told by its first line).
    pub fn open(path: &Path) -> Result<Tokenizer, CheckpointError> {
        let bytes = read_limited(path, TOKENIZER_BYTES_MAX)?;
        let kind = if minbpe::is_minbpe(&bytes) {
            minbpe::MinBpe::parse(&bytes).map(|t| Kind::MinBpe(Box::new(t)))
        } else {
            huggingface::HuggingFace::parse(&bytes).map(|t| Kind::HuggingFace(Box::new(t)))
        };
        Ok(Tokenizer {
            path: path.to_owned(),
            hash: blake3::hash(&bytes).to_hex().to_string(),
            kind: kind.map_err(|e| e.in_file(path))?,
            fold_white_space: false,
            replace: Vec::new(),
        })
    }

    /// Sets the preparation of text: first the replacements, in order, then every run of white space becomes one space.
    pub(crate) fn prepared(
        mut self,
        fold_white_space: bool,
        replace: Vec<(String, String)>,
    ) -> Tokenizer {
        self.fold_white_space = fold_white_space;
        self.replace = replace;
        self
    }

    /// The file it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// BLAKE3 of the file, in hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Number of ids, including added tokens: one more than the largest id.
    pub fn vocab_size(&self) -> usize {
        match &self.kind {
            Kind::HuggingFace(t) => t.vocab_size(),
            Kind::MinBpe(t) => t.vocab_size(),
        }
    }

    /// Token ids of a text. No special tokens are added, nothing is cut or padded, whatever the file says.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, CheckpointError> {
        let text = self.prepare(text);
        let ids = match &self.kind {
            Kind::HuggingFace(t) => t.encode(&text),
            Kind::MinBpe(t) => t.encode(&text),
        };
        ids.map_err(|e| e.in_file(&self.path))
    }

    /// Text of token ids, special tokens included. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String, CheckpointError> {
        let text = match &self.kind {
            Kind::HuggingFace(t) => t.decode(ids),
            Kind::MinBpe(t) => t.decode(ids),
        };
        text.map_err(|e| e.in_file(&self.path))
    }

    fn prepare<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for (from, to) in &self.replace {
            if text.contains(from.as_str()) {
                text = Cow::Owned(text.replace(from.as_str(), to));
            }
        }
        if self.fold_white_space {
            Cow::Owned(fold(&text))
        } else {
            text
        }
    }
}

/// Says that a split pattern gave up at byte `at`: the library's stack holds a million steps, one for each character of a run, and it does
/// not say so itself.
fn gave_up(at: usize) -> String {
    format!(
        "the split pattern gives up on the text at byte {at}, where a run of about a million characters or more begins that it does \
         not divide; break the run (letters with spaces, spaces with text) or cut the text there"
    )
}

/// Every run of white space becomes one space, also at the ends.
fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    let mut in_space = false;
    for c in text.chars() {
        let space = c.is_whitespace();
        if !space {
            folded.push(c);
        } else if !in_space {
            folded.push(' ');
        }
        in_space = space;
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_keeps_one_space_of_each_run() {
        assert_eq!(fold(" a\t\n b\u{a0}c  "), " a b c ");
        assert_eq!(fold(""), "");
    }
}
