//! What of a large corpus has been encoded, so that an interrupted encoding goes on where it was.
//!
//! Files are taken in groups of about [`GROUP_BYTES`]. A finished group lies in `pieces/` beside the token files, under the hash of
//! everything its ids depend on, the files' bytes included: a piece that is found is the right one. The last file written of a group
//! is its list; a group without one is encoded again. The folder goes when the token files are whole.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::encode::{EncodeOptions, Split};
use super::shard;
use crate::error::TrainError;
use crate::files::write_whole;

/// Bytes on disk after which a group is closed.
pub(super) const GROUP_BYTES: u64 = 64 << 20;

/// Names of the splits.
pub(super) const SPLITS: [&str; 2] = ["train", "held"];

/// Consecutive files, at least `bytes` on disk each group but the last.
pub(super) fn groups(files: &[PathBuf], bytes: u64) -> Result<Vec<&[PathBuf]>, TrainError> {
    let (mut groups, mut first, mut sum) = (Vec::new(), 0, 0);
    for (i, file) in files.iter().enumerate() {
        sum += super::encode::bytes_on_disk(std::slice::from_ref(file))?;
        if sum >= bytes {
            groups.push(&files[first..=i]);
            (first, sum) = (i + 1, 0);
        }
    }
    if first < files.len() {
        groups.push(&files[first..]);
    }
    Ok(groups)
}

/// What is known of a finished group beside its ids.
#[derive(Serialize, Deserialize)]
struct Finished {
    skipped: u64,
}

/// The finished groups of one encoding.
pub(super) struct Pieces {
    folder: PathBuf,
    vocab: usize,
    tokenizer_hash: String,
    settings: String,
}

impl Pieces {
    pub(super) fn new(
        folder: &Path,
        options: &EncodeOptions,
        vocab: usize,
        tokenizer_hash: &str,
    ) -> Self {
        Self {
            folder: folder.join("pieces"),
            vocab,
            tokenizer_hash: tokenizer_hash.to_owned(),
            settings: format!(
                "{} {} {} {tokenizer_hash}",
                env!("CARGO_PKG_VERSION"),
                options.column,
                options.held_permille
            ),
        }
    }

    /// Name of a group's files.
    pub(super) fn key(&self, group: &[PathBuf]) -> Result<String, TrainError> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.settings.as_bytes());
        for file in group {
            let mut of_file = blake3::Hasher::new();
            std::fs::File::open(file)
                .and_then(|mut bytes| std::io::copy(&mut bytes, &mut of_file))
                .map_err(|e| TrainError::io(file, &e))?;
            // The name says how the bytes are read.
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(of_file.finalize().as_bytes());
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    fn path(&self, key: &str, suffix: &str) -> PathBuf {
        self.folder.join(format!("{key}.{suffix}"))
    }

    /// Appends a finished group to `splits`; returns its number of skipped entries, `None` if it is not there or not whole.
    pub(super) fn take(&self, key: &str, splits: &mut [Split; 2]) -> Option<u64> {
        let text = std::fs::read(self.path(key, "json")).ok()?;
        let finished: Finished = serde_json::from_slice(&text).ok()?;
        let read = |split: &str| shard::read(&self.path(key, &format!("{split}.tok"))).ok();
        let parts = [read(SPLITS[0])?, read(SPLITS[1])?];
        for (split, part) in splits.iter_mut().zip(parts) {
            let before = split.ids.len() as u64;
            part.ids.copy(0..part.ids.len(), &mut split.ids);
            split.ends.extend(part.ends.iter().map(|end| before + end));
        }
        Some(finished.skipped)
    }

    /// Keeps a group: what `splits` hold beyond the lengths in `before` (ids and documents of each).
    pub(super) fn keep(
        &self,
        key: &str,
        splits: &[Split; 2],
        before: [(usize, usize); 2],
        skipped: u64,
    ) -> Result<(), TrainError> {
        std::fs::create_dir_all(&self.folder).map_err(|e| TrainError::io(&self.folder, &e))?;
        for ((split, name), (ids, documents)) in splits.iter().zip(SPLITS).zip(before) {
            let ends: Vec<u64> = split.ends[documents..]
                .iter()
                .map(|end| end - ids as u64)
                .collect();
            shard::write(
                &self.path(key, &format!("{name}.tok")),
                &split.ids[ids..],
                &ends,
                self.vocab,
                &self.tokenizer_hash,
                name,
            )?;
        }
        let path = self.path(key, "json");
        let text =
            serde_json::to_vec(&Finished { skipped }).map_err(|e| TrainError::file(&path, e))?;
        write_whole(&path, |out| out.write_all(&text))
    }

    /// Removes all pieces.
    pub(super) fn remove(&self) {
        // What stays costs space and is never wrong.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
