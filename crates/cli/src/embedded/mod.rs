//! What `snellen measure` runs on when no path is given: a tiny model with random weights and a short text of our own.
//!
//! The model has BLOOM's layout, 2 layers of 8 heads, and one token a byte; `examples/embedded` made it and can make it again
//! bit for bit. It shows what the chart looks like, not how a trained model behaves.

use crate::failure::Failure;
use std::path::{Path, PathBuf};

/// Name of the model and of the text in reports.
pub(crate) const NAME: &str = "embedded";
/// The text.
pub(crate) const TEXT: &str = include_str!("text.txt");
/// `config.json`.
const CONFIG: &str = include_str!("config.json");
/// `model.safetensors`.
const WEIGHTS: &[u8] = include_bytes!("model.safetensors");

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
            let path = folder.path().join(NAME);
            std::fs::create_dir(&path)?;
            std::fs::write(path.join("config.json"), CONFIG)?;
            std::fs::write(path.join("model.safetensors"), WEIGHTS)?;
            Ok(Self {
                _folder: folder,
                path,
            })
        };
        write().map_err(|error: std::io::Error| {
            Failure::error(format!("embedded model: temporary folder: {error}"))
        })
    }

    /// The model folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Token ids of a text, one a byte.
pub(crate) fn byte_ids(text: &[u8]) -> Vec<u32> {
    text.iter().copied().map(u32::from).collect()
}
