//! A corpus into token files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use checkpoint::tokenizer::Tokenizer;
use rayon::prelude::*;

use super::corpus::{CorpusFiles, corpus_files};
use super::documents::{Document, SEPARATOR, each_document};
use super::pieces::{self, GROUP_BYTES, Pieces, SPLITS};
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
    /// The files that were read, and what was passed over.
    pub corpus: CorpusFiles,
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
/// every number of threads. A large corpus that was interrupted goes on behind the last 64 MiB of whole files.
///
/// # Errors
/// Files that cannot be read, are cut short or damaged, text that is not UTF-8, a corpus without a single token.
pub fn encode(
    options: &EncodeOptions,
    tokenizer: &Tokenizer,
    folder: &Path,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Encoded, TrainError> {
    encode_in_groups(options, tokenizer, folder, progress, GROUP_BYTES)
}

fn encode_in_groups(
    options: &EncodeOptions,
    tokenizer: &Tokenizer,
    folder: &Path,
    progress: &(dyn Fn(u64, u64) + Sync),
    group_bytes: u64,
) -> Result<Encoded, TrainError> {
    let corpus = corpus_files(&options.paths)?;
    let files = &corpus.files;
    let all = bytes_on_disk(files)?;
    let stale = folder.join("held.tok");
    if options.held_permille == 0 && stale.exists() {
        return Err(TrainError::file(
            &stale,
            "is of an earlier encoding and nothing is held out now: its documents would be trained on; remove it first",
        ));
    }
    let mut batch = Batch::new(options, tokenizer);
    let read = AtomicU64::new(0);
    let vocab = tokenizer.vocab_size();
    let kept = Pieces::new(folder, options, vocab, tokenizer.hash());
    let groups = pieces::groups(files, group_bytes)?;
    let several = groups.len() > 1;
    let mut skipped = 0;
    for group in groups {
        let key = if several {
            kept.key(group)?
        } else {
            String::new()
        };
        if several && let Some(n) = kept.take(&key, &mut batch.splits) {
            skipped += n;
            read.fetch_add(bytes_on_disk(group)?, Ordering::Relaxed);
            continue;
        }
        let before = batch.lengths();
        let mut skipped_here = 0;
        for file in group {
            skipped_here += each_document(file, &options.column, &read, &mut |document| {
                batch.add(document)?;
                progress(read.load(Ordering::Relaxed).min(all), all);
                Ok(())
            })?;
        }
        batch.encode()?;
        if several {
            kept.keep(&key, &batch.splits, before, skipped_here)?;
        }
        skipped += skipped_here;
    }
    let splits = batch.splits;
    if splits.iter().all(|split| split.ids.is_empty()) {
        return Err(TrainError::config(
            "the corpus holds no text: every document is empty".to_owned(),
        ));
    }
    std::fs::create_dir_all(folder).map_err(|e| TrainError::io(folder, &e))?;
    let mut written = Vec::new();
    for (split, name) in splits.iter().zip(SPLITS) {
        if name == "held" && options.held_permille == 0 {
            continue;
        }
        written.push(shard::write(
            &folder.join(format!("{name}.tok")),
            &split.ids,
            &split.ends,
            vocab,
            tokenizer.hash(),
            name,
        )?);
    }
    kept.remove();
    Ok(Encoded {
        written,
        skipped,
        corpus,
    })
}

/// Ids of a split and the index after each document's last.
#[derive(Default)]
pub(super) struct Split {
    pub(super) ids: Vec<u32>,
    pub(super) ends: Vec<u64>,
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

    /// Ids and documents of each split.
    fn lengths(&self) -> [(usize, usize); 2] {
        let of = |split: &Split| (split.ids.len(), split.ends.len());
        [of(&self.splits[0]), of(&self.splits[1])]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Interrupted after any number of groups, and with a piece that is damaged: the same files, and nothing encoded twice.
    #[test]
    fn an_interrupted_encoding_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = |n: usize| format!("document {n} of many<|endoftext|>another {n}, {}\n", n * n);
        let json = super::super::bpe::train([text(1).as_str()].into_iter(), 270).unwrap();
        std::fs::write(at("tokenizer.json"), json).unwrap();
        let tokenizer = Tokenizer::open(&at("tokenizer.json")).unwrap();
        std::fs::create_dir(at("texts")).unwrap();
        let file = |n: usize| at("texts").join(format!("{n}.txt"));
        for n in 0..6 {
            std::fs::write(file(n), text(n)).unwrap();
        }
        let options = EncodeOptions {
            paths: vec![at("texts")],
            column: "text".into(),
            held_permille: 400,
        };
        let run = |to: &str, bytes: u64, read: &mut u64| {
            let count = AtomicU64::new(0);
            let told = |_: u64, _: u64| {
                count.fetch_add(1, Ordering::Relaxed);
            };
            let result = encode_in_groups(&options, &tokenizer, &at(to), &told, bytes);
            *read = count.into_inner();
            result.map(|_| SPLITS.map(|s| std::fs::read(at(to).join(format!("{s}.tok"))).unwrap()))
        };
        let mut documents = 0;
        let whole = run("whole", u64::MAX, &mut documents).unwrap();
        assert_eq!(documents, 12);
        assert!(!at("whole/pieces").exists());
        assert!(run("groups", 1, &mut documents).unwrap() == whole);
        for stop in 0..6 {
            let good = std::fs::read(file(stop)).unwrap();
            std::fs::write(file(stop), [0xff]).unwrap();
            run("out", 1, &mut documents).unwrap_err();
            std::fs::write(file(stop), good).unwrap();
            assert!(!at("out").join("train.tok").exists());
            let mut finished = stop;
            if stop == 3 {
                let mut pieces = std::fs::read_dir(at("out/pieces")).unwrap();
                let piece = pieces.next().unwrap().unwrap().path();
                std::fs::write(piece, "cut").unwrap();
                finished -= 1;
            }
            assert!(run("out", 1, &mut documents).unwrap() == whole, "{stop}");
            assert_eq!(documents as usize, 12 - 2 * finished);
            assert!(!at("out/pieces").exists());
            std::fs::remove_dir_all(at("out")).unwrap();
        }
    }
}
