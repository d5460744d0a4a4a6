//! Reading small files whole, with a limit, and JSON in which no key may appear twice.
//!
//! `serde_json` keeps the last of two equal keys without a word. In a configuration that is a coin toss between two models,
//! and in a tensor table it hides a tensor, so repeated keys are refused everywhere.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::error::{CheckpointError, quoted};
use crate::files::{refuse_device, without_mark};

/// Reads a regular file of at most `limit` bytes. Pipes and devices are refused before they are opened, since opening one may
/// never return.
pub(crate) fn read_limited(path: &Path, limit: u64) -> Result<Vec<u8>, CheckpointError> {
    limited(&open_regular(path)?, path, limit)
}

/// [`read_limited`] for what a user names to be read once: pipes are read to their end, devices are refused.
pub(crate) fn read_once(path: &Path, limit: u64) -> Result<Vec<u8>, CheckpointError> {
    let metadata = std::fs::metadata(path).map_err(|e| cannot_read(path, &e))?;
    if metadata.is_dir() {
        return read_limited(path, limit);
    }
    let file = refuse_device(path).and_then(|()| File::open(path));
    limited(&file.map_err(|e| cannot_read(path, &e))?, path, limit)
}

fn limited(file: &File, path: &Path, limit: u64) -> Result<Vec<u8>, CheckpointError> {
    let mut bytes = Vec::new();
    let size = file
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| cannot_read(path, &e))?;
    if size as u64 > limit {
        return Err(CheckpointError::malformed(format!(
            "is larger than {limit} bytes, the limit for this kind of file"
        ))
        .in_file(path));
    }
    Ok(bytes)
}

/// Opens a regular file (symbolic links are followed).
pub(crate) fn open_regular(path: &Path) -> Result<File, CheckpointError> {
    let metadata = std::fs::metadata(path).map_err(|e| cannot_read(path, &e))?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() {
            "a folder"
        } else {
            "not a regular file"
        };
        return Err(
            CheckpointError::malformed(format!("expected a file, found {what}")).in_file(path),
        );
    }
    File::open(path).map_err(|e| cannot_read(path, &e))
}

pub(crate) fn cannot_read(path: &Path, error: &std::io::Error) -> CheckpointError {
    let text = match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    CheckpointError::missing(text).in_file(path)
}

/// Parses JSON, with or without a byte order mark, refusing a key that appears twice in one object.
pub(crate) fn parse_json(bytes: &[u8]) -> Result<Value, CheckpointError> {
    let mut de = serde_json::Deserializer::from_slice(without_mark(bytes));
    let value = Strict
        .deserialize(&mut de)
        .and_then(|v| de.end().map(|()| v));
    value.map_err(|e| json_error(&e))
}

/// Turns a `serde_json` error into ours, telling a file that was cut off from one that is wrong.
pub(crate) fn json_error(error: &serde_json::Error) -> CheckpointError {
    use serde_json::error::Category;
    // An end of file inside a part with a message of its own is classified as data; its text still tells.
    let cut = error.is_eof() || error.to_string().contains("EOF while parsing");
    CheckpointError::malformed(match error.classify() {
        _ if cut => format!("is cut off or empty: {error}"),
        Category::Data => sentence(error),
        _ => format!("is not JSON: {error}"),
    })
}

/// The message with its place in brackets: serde_json writes it behind, where it reads as part of the sentence.
pub(crate) fn sentence(error: &serde_json::Error) -> String {
    match error.to_string().rsplit_once(" at line ") {
        Some((text, place)) => format!("{text} (line {place})"),
        None => error.to_string(),
    }
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Strict)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(de::Error::custom(format!(
                    "the key {} appears twice",
                    quoted(&key)
                )));
            }
            let value = map.next_value_seed(Strict)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_keys_are_refused_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"x":[{"b":1,"c":2,"b":3}]}"#] {
            let error = parse_json(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("appears twice"), "{error}");
        }
        assert_eq!(
            parse_json(br#"{"a":[1,-2,0.5,null,true,"s"]}"#).unwrap(),
            serde_json::json!({"a":[1,-2,0.5,null,true,"s"]})
        );
        assert!(parse_json(b"\xef\xbb\xbf{}").is_ok());
    }

    #[test]
    fn cut_and_broken_are_told_apart() {
        assert!(
            parse_json(b"{\"a\":")
                .unwrap_err()
                .to_string()
                .contains("cut off")
        );
        assert!(
            parse_json(b"{\"a\":1} x")
                .unwrap_err()
                .to_string()
                .contains("not JSON")
        );
        assert!(
            parse_json(&b"[".repeat(100_000))
                .unwrap_err()
                .to_string()
                .contains("recursion")
        );
    }

    #[test]
    fn larger_than_the_limit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, [0; 11]).unwrap();
        assert!(
            read_limited(&path, 10)
                .unwrap_err()
                .to_string()
                .contains("larger than 10")
        );
        assert_eq!(read_limited(&path, 11).unwrap().len(), 11);
        assert!(
            read_limited(dir.path(), 10)
                .unwrap_err()
                .to_string()
                .contains("found a folder")
        );
    }
}
