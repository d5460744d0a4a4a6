//! `config.json`: detection of the family, and [`ModelFacts`].

mod detect;
mod facts;
mod keys;
mod notes;

use std::path::Path;

use serde_json::{Map, Value};

pub(crate) use detect::{Reader, detect};
pub use facts::{DescribedModel, ModelFacts};
pub(crate) use keys::{Keys, describe, either};
pub use notes::Note;

use crate::error::CheckpointError;
use crate::families::{baichuan, bloom, encoders, falcon, jais, mpt, refact, replit};
use crate::read::{parse_json, read_limited};

/// Longest configuration that is read, in bytes (16 MiB); real ones have a few thousand.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// A configuration file that was read, parsed and recognised.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) bytes: Vec<u8>,
    pub(crate) map: Map<String, Value>,
    pub(crate) reader: Reader,
    pub(crate) facts: ModelFacts,
}

impl Config {
    pub(crate) fn read(path: &Path) -> Result<Config, CheckpointError> {
        let bytes = read_limited(path, CONFIG_BYTES_MAX)?;
        let (map, reader, mut facts) = parse(&bytes, path)?;
        facts.name = name_of(path);
        Ok(Config {
            bytes,
            map,
            reader,
            facts,
        })
    }
}

/// Facts from the text of a `config.json`; `path` is for messages only. Name: `model_type`.
pub fn parse_config(bytes: &[u8], path: &Path) -> Result<ModelFacts, CheckpointError> {
    let (_, _, mut facts) = parse(bytes, path)?;
    facts.name.clone_from(&facts.model_type);
    Ok(facts)
}

fn parse(
    bytes: &[u8],
    path: &Path,
) -> Result<(Map<String, Value>, Reader, ModelFacts), CheckpointError> {
    let value = parse_json(bytes).map_err(|e| e.in_file(path))?;
    let Value::Object(map) = value else {
        return Err(CheckpointError::malformed(format!(
            "expected an object, found {}",
            describe(&value)
        ))
        .in_file(path));
    };
    let keys = Keys::new(path, &map);
    let detected = detect(&keys)?;
    let evidence = detected.evidence.as_str();
    let mut facts = match detected.reader {
        Reader::Bloom => bloom::facts(&keys, evidence),
        Reader::Mpt => mpt::facts(&keys, evidence),
        Reader::Falcon => falcon::facts(&keys, evidence),
        Reader::Baichuan => baichuan::facts(&keys, evidence),
        Reader::Jais => jais::facts(&keys, evidence),
        Reader::Refact => refact::facts(&keys, evidence),
        Reader::Replit => replit::facts(&keys, evidence),
        Reader::Jina => encoders::jina(&keys, evidence),
        Reader::Mosaic => encoders::mosaic(&keys, evidence),
    }?;
    facts.model_type = detected.model_type;
    Ok((map, detected.reader, facts))
}

/// A name for reports: the folder's, or `owner/model` inside a cache of the model hub.
pub(crate) fn name_of(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for part in absolute.iter().filter_map(|p| p.to_str()) {
        if let Some(name) = part.strip_prefix("models--") {
            return name.replacen("--", "/", 1);
        }
    }
    let folder = absolute.parent().and_then(Path::file_name);
    folder.map_or_else(|| "model".to_owned(), |n| n.to_string_lossy().into_owned())
}
