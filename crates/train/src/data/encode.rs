//! A corpus into token files.

use std::path::{Path, PathBuf};

use checkpoint::tokenizer::Tokenizer;
use rayon::prelude::*;

use super::documents::{SEPARATOR, documents, text_files};
use super::shard::{self, Description};
use crate::error::TrainError;

/// What to encode and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Files and folders.
    pub paths: Vec<PathBuf>,
    /// Field of JSONL that holds the text.
    pub field: String,
    /// Documents of a thousand that are held out; 0 for none.
    pub held_permille: u64,
}

/// Id of the separator of documents, if the tokenizer has a token of its own for it: an unknown-word token or a tokenizer that spells
/// it out in pieces do not count.
pub fn separator(tokenizer: &Tokenizer) -> Option<u32> {
    let ids = tokenizer.encode(SEPARATOR).ok()?;
    let whole = ids.len() == 1 && tokenizer.decode(&ids).ok()? == SEPARATOR;
    whole.then(|| ids[0])
}

/// Encodes a corpus into `train.tok` and `held.tok` in `folder` (the latter if any is held out). Every document is followed by the
/// separator, if the tokenizer has one. `progress` is told the number of files done.
///
/// # Errors
/// Files that cannot be read, text that is not UTF-8, a corpus without a single token.
pub fn encode(
    options: &EncodeOptions,
    tokenizer: &Tokenizer,
    folder: &Path,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Description>, TrainError> {
    let files = text_files(&options.paths)?;
    let vocab = tokenizer.vocab_size();
    let separator = separator(tokenizer);
    let stale = folder.join("held.tok");
    if options.held_permille == 0 && stale.exists() {
        return Err(TrainError::file(
            &stale,
            "is of an earlier encoding and nothing is held out now: its documents would be trained on; remove it first",
        ));
    }
    let mut splits = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    for (done, file) in files.iter().enumerate() {
        let documents = documents(file, &options.field)?;
        let encoded: Vec<(bool, Vec<u32>)> = documents
            .par_iter()
            .map(|document| {
                let mut ids = tokenizer
                    .encode(&document.text)
                    .map_err(|e| TrainError::file(file, e))?;
                ids.extend(separator);
                Ok((document.is_held(options.held_permille), ids))
            })
            .collect::<Result<_, TrainError>>()?;
        for (held, ids) in encoded {
            if ids.is_empty() {
                continue;
            }
            let (all, ends) = &mut splits[usize::from(held)];
            all.extend(ids);
            ends.push(all.len() as u64);
        }
        progress(done as u64 + 1, files.len() as u64);
    }
    if splits.iter().all(|(ids, _)| ids.is_empty()) {
        return Err(TrainError::config(
            "the corpus holds no text: every document is empty".to_owned(),
        ));
    }
    std::fs::create_dir_all(folder).map_err(|e| TrainError::io(folder, &e))?;
    let mut written = Vec::new();
    for ((ids, ends), name) in splits.iter().zip(["train", "held"]) {
        if name == "held" && options.held_permille == 0 {
            continue;
        }
        let path = folder.join(format!("{name}.tok"));
        written.push(shard::write(
            &path,
            ids,
            ends,
            vocab,
            tokenizer.hash(),
            name,
        )?);
    }
    Ok(written)
}
