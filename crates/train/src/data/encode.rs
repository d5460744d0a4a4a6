//! A corpus into token files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use checkpoint::tokenizer::Tokenizer;
use rayon::prelude::*;

use super::corpus::corpus_files;
use super::documents::{Document, SEPARATOR, each_document};
use super::shard::{self, Description};
use crate::error::TrainError;

/// Bytes of text that are gathered before the threads share them.
const BATCH_BYTES: usize = 4 << 20;

/// What to encode and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Files and folders.
    pub paths: Vec<PathBuf>,
    /// Column of JSONL and Parquet that holds the text.
    pub column: String,
    /// Documents of a thousand that are held out; 0 for none.
    pub held_permille: u64,
}

/// What was written and what was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The token files.
    pub written: Vec<Description>,
    /// Entries of archives that are no text.
    pub skipped: u64,
}

/// Id of the separator of documents, if the tokenizer has a token of its own for it: an unknown-word token or a tokenizer that spells
/// it out in pieces do not count.
pub fn separator(tokenizer: &Tokenizer) -> Option<u32> {
    let ids = tokenizer.encode(SEPARATOR).ok()?;
    let whole = ids.len() == 1 && tokenizer.decode(&ids).ok()? == SEPARATOR;
    whole.then(|| ids[0])
}

/// Bytes of the files on disk, packed as they are.
///
/// # Errors
/// A file that cannot be asked.
pub fn bytes_on_disk(files: &[PathBuf]) -> Result<u64, TrainError> {
    files.iter().try_fold(0, |sum, file| {
        let metadata = std::fs::metadata(file).map_err(|e| TrainError::io(file, &e))?;
        Ok(sum + metadata.len())
    })
}

/// Encodes a corpus into `train.tok` and `held.tok` in `folder` (the latter if any is held out). Every document is followed by the
/// separator, if the tokenizer has one. `progress` is told the bytes read from disk and those there are. The files are the same for
/// every number of threads.
///
/// # Errors
/// Files that cannot be read, are cut short or damaged, text that is not UTF-8, a corpus without a single token.
pub fn encode(
    options: &EncodeOptions,
    tokenizer: &Tokenizer,
    folder: &Path,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Encoded, TrainError> {
    let files = corpus_files(&options.paths)?;
    let all = bytes_on_disk(&files)?;
    let stale = folder.join("held.tok");
    if options.held_permille == 0 && stale.exists() {
        return Err(TrainError::file(
            &stale,
            "is of an earlier encoding and nothing is held out now: its documents would be trained on; remove it first",
        ));
    }
    let mut batch = Batch::new(options, tokenizer);
    let read = AtomicU64::new(0);
    let mut skipped = 0;
    for file in &files {
        skipped += each_document(file, &options.column, &read, &mut |document| {
            batch.add(document)?;
            progress(read.load(Ordering::Relaxed).min(all), all);
            Ok(())
        })?;
    }
    batch.encode()?;
    let splits = batch.splits;
    if splits.iter().all(|split| split.ids.is_empty()) {
        return Err(TrainError::config(
            "the corpus holds no text: every document is empty".to_owned(),
        ));
    }
    std::fs::create_dir_all(folder).map_err(|e| TrainError::io(folder, &e))?;
    let mut written = Vec::new();
    for (split, name) in splits.iter().zip(["train", "held"]) {
        if name == "held" && options.held_permille == 0 {
            continue;
        }
        written.push(shard::write(
            &folder.join(format!("{name}.tok")),
            &split.ids,
            &split.ends,
            tokenizer.vocab_size(),
            tokenizer.hash(),
            name,
        )?);
    }
    Ok(Encoded { written, skipped })
}

/// Ids of a split and the index after each document's last.
#[derive(Default)]
struct Split {
    ids: Vec<u32>,
    ends: Vec<u64>,
}

/// Documents that wait to be encoded, and the ids of those before them.
struct Batch<'t> {
    tokenizer: &'t Tokenizer,
    separator: Option<u32>,
    held_permille: u64,
    waiting: Vec<Document>,
    bytes: usize,
    splits: [Split; 2],
}

impl<'t> Batch<'t> {
    fn new(options: &EncodeOptions, tokenizer: &'t Tokenizer) -> Self {
        Self {
            tokenizer,
            separator: separator(tokenizer),
            held_permille: options.held_permille,
            waiting: Vec::new(),
            bytes: 0,
            splits: [Split::default(), Split::default()],
        }
    }

    fn add(&mut self, document: Document) -> Result<(), TrainError> {
        self.bytes += document.text.len();
        self.waiting.push(document);
        if self.bytes >= BATCH_BYTES {
            self.encode()?;
        }
        Ok(())
    }

    /// Encodes what waits, in order.
    fn encode(&mut self) -> Result<(), TrainError> {
        let encoded: Vec<(bool, Vec<u32>)> = self
            .waiting
            .par_iter()
            .map(|document| {
                let mut ids = self
                    .tokenizer
                    .encode(&document.text)
                    .map_err(|e| TrainError::config(format!("{}: {e}", document.source)))?;
                ids.extend(self.separator);
                Ok((document.is_held(self.held_permille), ids))
            })
            .collect::<Result<_, TrainError>>()?;
        self.waiting.clear();
        self.bytes = 0;
        for (held, ids) in encoded {
            if !ids.is_empty() {
                let split = &mut self.splits[usize::from(held)];
                split.ids.extend(ids);
                split.ends.push(split.ids.len() as u64);
            }
        }
        Ok(())
    }
}
