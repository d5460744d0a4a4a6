//! Documents of a corpus on disk, and the split into training and held-out ones.
//!
//! A file is read as a stream: one document is in memory at a time, and archives and compressed files are never unpacked to disk.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use checkpoint::files::without_mark;

use super::corpus::{Form, Packing, kind_of};
use super::unpack::{Place, open};
use super::{archive, table};
use crate::error::TrainError;

/// Separates documents inside a text.
pub const SEPARATOR: &str = "<|endoftext|>";

/// Most names of columns in a message.
const NAMES_MAX: usize = 20;

/// One document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// File it is from, and the entry inside it, for messages.
    pub source: Arc<str>,
    /// Its text, not empty, without line ends at both ends.
    pub text: String,
}

impl Document {
    /// Whether it is held out, given how many of a thousand documents are: decided by the hash of the text alone, so that neither
    /// order nor other documents matter.
    pub fn is_held(&self, held_permille: u64) -> bool {
        crate::rng::name(&self.text) % 1000 < held_permille
    }
}

/// Who is handed the documents.
pub type Sink<'s> = dyn FnMut(Document) -> Result<(), TrainError> + 's;

/// Hands the documents of one file to `sink`, in order; empty ones are left out. Text is cut at [`SEPARATOR`], also that of a column
/// named `column` of JSONL and Parquet. `read` is told the bytes taken from disk. Returns the number of entries of an archive
/// that were skipped because they are no text.
///
/// # Errors
/// Files that are cut short or damaged, text that is not UTF-8, lines that are not JSON, a column that is not there; what `sink` says.
pub fn each_document(
    path: &Path,
    column: &str,
    read: &AtomicU64,
    sink: &mut Sink<'_>,
) -> Result<u64, TrainError> {
    let Some((form, packing)) = kind_of(path) else {
        return Err(TrainError::file(path, "is not read, by its name"));
    };
    let place = Place {
        file: path,
        entry: None,
    };
    match form {
        Form::Text => {
            let mut bytes = open(path, packing, read)?;
            text(place, packing, &mut bytes, sink)?;
        }
        Form::Jsonl => {
            let mut bytes = open(path, packing, read)?;
            lines(place, packing, &mut bytes, column, sink)?;
        }
        Form::Parquet => {
            let source: Arc<str> = place.to_string().into();
            table::rows(path, column, read, &mut |text| cut(&source, text, sink))?;
        }
        Form::Tar => {
            return archive::entries(path, packing, read, &mut |place, form, blamed, bytes| {
                match form {
                    Form::Jsonl => lines(place, blamed, bytes, column, sink),
                    _ => text(place, blamed, bytes, sink),
                }
            });
        }
    }
    Ok(0)
}

/// The parts of a text between separators, without line breaks at their ends; empty ones are none.
pub fn parts(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(SEPARATOR);
    let trimmed = parts.map(|part| part.trim_matches(['\n', '\r']));
    trimmed.filter(|part| !part.is_empty())
}

/// Hands [`parts`] on.
fn cut(source: &Arc<str>, text: &str, sink: &mut Sink<'_>) -> Result<(), TrainError> {
    for part in parts(text) {
        sink(Document {
            source: Arc::clone(source),
            text: part.to_owned(),
        })?;
    }
    Ok(())
}

/// Documents of a text, each handed on as soon as its separator has been read.
fn text(
    place: Place<'_>,
    packing: Packing,
    bytes: &mut dyn Read,
    sink: &mut Sink<'_>,
) -> Result<(), TrainError> {
    let source: Arc<str> = place.to_string().into();
    let mark = SEPARATOR.as_bytes();
    let (mut held, mut piece) = (Vec::new(), vec![0u8; 1 << 16]);
    // Bytes of the text before `held`, and those of `held` in which no separator begins.
    let (mut before, mut searched) = (0u64, 0usize);
    let mut emit = |all: &[u8], before: u64| {
        let bytes = if before == 0 { without_mark(all) } else { all };
        let before = before + (all.len() - bytes.len()) as u64;
        let text = std::str::from_utf8(bytes).map_err(|e| {
            place.error(format!(
                "is not UTF-8 from byte {} on; convert it first",
                before + e.valid_up_to() as u64
            ))
        })?;
        cut(&source, text, sink)
    };
    loop {
        let n = match bytes.read(&mut piece) {
            Ok(0) => return emit(&held, before),
            Ok(n) => n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(place.unreadable(packing, &e)),
        };
        held.extend_from_slice(&piece[..n]);
        let mut done = 0;
        while let Some(at) = held[searched..].windows(mark.len()).position(|w| w == mark) {
            emit(&held[done..searched + at], before + done as u64)?;
            searched += at + mark.len();
            done = searched;
        }
        searched = searched.max((held.len() + 1).saturating_sub(mark.len()));
        held.drain(..done);
        before += done as u64;
        searched -= done;
    }
}

/// Documents of JSON lines.
fn lines(
    place: Place<'_>,
    packing: Packing,
    bytes: &mut dyn Read,
    column: &str,
    sink: &mut Sink<'_>,
) -> Result<(), TrainError> {
    let source: Arc<str> = place.to_string().into();
    let mut bytes = BufReader::new(bytes);
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        let n = bytes
            .read_until(b'\n', &mut line)
            .map_err(|e| place.unreadable(packing, &e))?;
        if n == 0 {
            break;
        }
        let fail = |what: String| Err(place.error(format!("line {number}: {what}")));
        let bytes = if number == 1 {
            without_mark(&line)
        } else {
            &line
        };
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.trim(),
            Err(e) => {
                return fail(format!(
                    "not UTF-8 from byte {} of the line on; convert it first",
                    e.valid_up_to()
                ));
            }
        };
        if text.is_empty() {
            continue;
        }
        let value: serde_json::Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(e) => return fail(format!("not JSON: {e}")),
        };
        match value.get(column) {
            Some(serde_json::Value::String(text)) => cut(&source, text, sink)?,
            Some(serde_json::Value::Null) => {}
            Some(_) => return fail(format!("column {column:?}: expected text")),
            None => {
                let names = value
                    .as_object()
                    .map(|o| known(o.keys().map(String::as_str)));
                return fail(format!(
                    "no column {column:?}; there are {}",
                    names.unwrap_or_else(|| "none: it is no object".to_owned())
                ));
            }
        }
    }
    Ok(())
}

/// Names for a message.
pub(crate) fn known<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    let shown: Vec<String> = names
        .iter()
        .take(NAMES_MAX)
        .map(|n| format!("{n:?}"))
        .collect();
    match names.len() {
        0 => "none".to_owned(),
        n if n > NAMES_MAX => format!("{} and {} more", shown.join(", "), n - NAMES_MAX),
        _ => shown.join(", "),
    }
}
