//! Text to token ids, by the model's tokenizer, another one, or bytes.

use crate::failure::Failure;
use ::audit::eval::TextCodec;
use checkpoint::Checkpoint;
use checkpoint::files::{MARK, is_utf_16};
use checkpoint::tokenizer::{Tokenizer, check_ids, read_token_file};
use clap::Args;
use std::path::{Path, PathBuf};

/// What makes ids of text.
#[derive(Clone, Debug, Args)]
pub(super) struct CodecArgs {
    /// Tokenizer [default: the model's own]
    #[arg(long, value_name = "FILE", conflicts_with = "bytes")]
    tokenizer: Option<PathBuf>,
    /// One token id a byte of the text
    #[arg(long)]
    bytes: bool,
}

/// What makes ids of text; ids outside the model's vocabulary are an error.
#[derive(Debug)]
pub(super) struct Codec {
    tokenizer: Option<Tokenizer>,
    vocab_size: usize,
}

impl Codec {
    /// The codec that was asked for, for a model with `vocab_size` ids.
    pub(super) fn new(
        args: &CodecArgs,
        checkpoint: &Checkpoint,
        vocab_size: usize,
    ) -> Result<Self, Failure> {
        let tokenizer = match &args.tokenizer {
            _ if args.bytes => None,
            Some(path) => Some(Tokenizer::open(path)?),
            None => Some(checkpoint.tokenizer()?),
        };
        Ok(Self {
            tokenizer,
            vocab_size,
        })
    }

    /// File name of the tokenizer, or `bytes`.
    pub(super) fn name(&self) -> String {
        match &self.tokenizer {
            None => "bytes".to_owned(),
            Some(tokenizer) => {
                let name = tokenizer.path().file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            }
        }
    }

    /// BLAKE3 of the tokenizer's file.
    pub(super) fn hash(&self) -> Option<String> {
        self.tokenizer.as_ref().map(|t| t.hash().to_owned())
    }
}

impl TextCodec for Codec {
    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let ids = match &self.tokenizer {
            None => byte_ids(text.as_bytes()),
            Some(tokenizer) => tokenizer.encode(text).map_err(|error| error.to_string())?,
        };
        check_ids(&ids, self.vocab_size).map_err(|error| error.to_string())?;
        Ok(ids)
    }

    fn decode(&self, ids: &[u32]) -> Result<String, String> {
        match &self.tokenizer {
            // an id beyond the bytes has no text
            None => {
                let bytes: Vec<u8> = ids
                    .iter()
                    .map(|&id| u8::try_from(id).unwrap_or(0xff))
                    .collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Some(tokenizer) => tokenizer.decode(ids).map_err(|error| error.to_string()),
        }
    }
}

/// Token ids of a text, one a byte.
pub(super) fn byte_ids(text: &[u8]) -> Vec<u32> {
    text.iter().copied().map(u32::from).collect()
}

/// The ids of `--tokens`, by document: a token file of `snellen tokens encode` says where documents end, what [`read_token_file`] reads is
/// one.
pub(super) fn read_documents(file: &Path, vocab_size: usize) -> Result<Vec<Vec<u32>>, Failure> {
    if file.extension().is_none_or(|suffix| suffix != "tok") {
        return Ok(vec![read_token_file(file, vocab_size)?]);
    }
    let tokens = train::data::shard::read(file)?;
    let mut start = 0;
    let mut documents = Vec::with_capacity(tokens.ends.len());
    for end in tokens.ends {
        let end = end as usize;
        let mut ids = Vec::with_capacity(end - start);
        tokens.ids.copy(start..end, &mut ids);
        check_ids(&ids, vocab_size)
            .map_err(|error| Failure::error(format!("{}: {error}", file.display())))?;
        documents.push(ids);
        start = end;
    }
    Ok(documents)
}

/// What a text file holds, and what there is to say about it.
#[derive(Debug)]
pub(super) struct Found<T> {
    pub(super) content: T,
    pub(super) notes: Vec<String>,
}

/// The bytes of a text file for the flag `flag`, without a byte order mark: that is how some editors say UTF-8, not what was written.
pub(super) fn read_bytes(file: &Path, flag: &str) -> Result<Found<Vec<u8>>, Failure> {
    let mut content = checkpoint::files::read(file).map_err(|error| {
        Failure::cannot_read(
            file,
            &error,
            &format!("{flag} expects a text file in UTF-8"),
        )
    })?;
    let mut notes = Vec::new();
    if content.starts_with(MARK) {
        content.drain(..MARK.len());
        notes.push(format!(
            "{} begins with a byte order mark, which is no part of the text and was left out",
            file.display()
        ));
    }
    Ok(Found { content, notes })
}

/// A text file in UTF-8, for the flag `flag`.
pub(super) fn read_text(file: &Path, flag: &str) -> Result<Found<String>, Failure> {
    let Found { content, notes } = read_bytes(file, flag)?;
    let content = as_text(file, content)?;
    Ok(Found { content, notes })
}

/// The text that the bytes of a file are.
pub(super) fn as_text(file: &Path, bytes: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::error(if is_utf_16(error.as_bytes()) {
            format!("{}: is text in UTF-16; save it as UTF-8", file.display())
        } else {
            format!(
                "{}: expected UTF-8 text, found another byte at offset {at}",
                file.display()
            )
        })
    })
}
