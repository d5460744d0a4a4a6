//! The index of a sharded checkpoint, `model.safetensors.index.json`.

use std::collections::HashMap;
use std::fmt;
use std::path::{Component, Path};

use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, Visitor};

use super::header::StringMap;
use crate::error::{CheckpointError, quoted};
use crate::files::without_mark;
use crate::read::json_error;

/// Longest index that is read, in bytes (512 MiB); an index of a million tensors has about 100 MB.
pub(super) const INDEX_BYTES_MAX: u64 = 512 << 20;

/// Parses an index into tensor name -> shard file name, refusing shard names that leave the folder.
///
/// Names are relative paths of plain components. `..`, absolute paths and drive or backslash forms are refused, whichever
/// system this runs on, because the index comes with the download and must not decide which other files are read.
/// Symbolic links are followed: the cache of the model hub consists of links to a blob folder outside the snapshot, and
/// whoever can place a link in the folder could place the file.
pub fn parse_index(bytes: &[u8]) -> Result<HashMap<String, String>, CheckpointError> {
    let mut de = serde_json::Deserializer::from_slice(without_mark(bytes));
    let map = IndexSeed
        .deserialize(&mut de)
        .and_then(|m| de.end().map(|()| m))
        .map_err(|e| json_error(&e))?;
    if map.is_empty() {
        return Err(CheckpointError::malformed("weight_map names no tensor"));
    }
    // The first by name, so that the same file is answered with the same line.
    let outside = map.iter().filter(|(_, shard)| !stays_inside(shard)).min();
    if let Some((tensor, shard)) = outside {
        return Err(CheckpointError::malformed(format!(
            "weight_map, tensor {}: the shard name {} leads outside the model folder; expected a file name inside it",
            quoted(tensor),
            quoted(shard)
        )));
    }
    Ok(map)
}

fn stays_inside(name: &str) -> bool {
    let plain = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
    !name.is_empty() && !name.contains(['\\', ':', '\0']) && Path::new(name).components().all(plain)
}

struct IndexSeed;

impl<'de> DeserializeSeed<'de> for IndexSeed {
    type Value = HashMap<String, String>;

    fn deserialize<D: de::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for IndexSeed {
    type Value = HashMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the key weight_map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            if key != "weight_map" {
                map.next_value::<IgnoredAny>()?;
            } else if found
                .replace(map.next_value_seed(StringMap { what: "weight_map" })?)
                .is_some()
            {
                return Err(de::Error::custom("the key \"weight_map\" appears twice"));
            }
        }
        found.ok_or_else(|| de::Error::custom("the key \"weight_map\" is missing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expect: &str) {
        let error = parse_index(json.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }

    #[test]
    fn names_that_leave_the_folder_are_refused() {
        for name in [
            "../other/x.safetensors",
            "/etc/hostname",
            "a/../../b",
            "..",
            "",
            "a\\\\b",
            "C:x",
        ] {
            check(
                &format!(r#"{{"weight_map":{{"t":"{name}"}}}}"#),
                "outside the model folder",
            );
        }
        assert!(
            parse_index(br#"{"metadata":{"total_size":1},"weight_map":{"t":"sub/x.safetensors"}}"#)
                .is_ok()
        );
    }

    #[test]
    fn broken_indexes_say_what_is_wrong() {
        check(r#"{"weight_map":{"t":"a","t":"b"}}"#, "\"t\" appears twice");
        check(r#"{"weight_map":{"t":3}}"#, "key \"t\": invalid type");
        check(r#"{"weight_map":{}}"#, "names no tensor");
        check(r#"{}"#, "\"weight_map\" is missing");
        check(r#"{"weight_map":{"t":"#, "cut off");
    }
}
