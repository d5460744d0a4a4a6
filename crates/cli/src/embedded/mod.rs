//! What `snellen measure` runs on when no path is given: the trained model of `runs/nano` and a short text of our own, in the manner of
//! the documentation the model was trained on.

use crate::failure::Failure;
use std::path::{Path, PathBuf};

/// Name of the text in reports.
pub(crate) const NAME: &str = "embedded";
/// The text.
pub(crate) const TEXT: &str = include_str!("text.txt");

/// File of the specification, which names the others.
const SPEC: &str = "model.toml";
/// The model's files.
const FILES: [(&str, &[u8]); 3] = [
    (SPEC, include_bytes!("../../../../runs/nano/model.toml")),
    (
        "model.safetensors",
        include_bytes!("../../../../runs/nano/model.safetensors"),
    ),
    (
        "tokenizer.json",
        include_bytes!("../../../../runs/nano/tokenizer.json"),
    ),
];

/// The model as files, so that it is read by the same code as any other; they vanish with this value.
#[derive(Debug)]
pub(crate) struct Unpacked {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Unpacked {
    /// Writes the files to a temporary folder.
    pub(crate) fn new() -> Result<Self, Failure> {
        let write = || {
            let folder = tempfile::Builder::new().prefix("snellen-").tempdir()?;
            for (name, bytes) in FILES {
                std::fs::write(folder.path().join(name), bytes)?;
            }
            let path = folder.path().join(SPEC);
            Ok(Self {
                _folder: folder,
                path,
            })
        };
        write().map_err(|error: std::io::Error| {
            Failure::error(format!("embedded model: temporary folder: {error}"))
        })
    }

    /// The model's specification file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
