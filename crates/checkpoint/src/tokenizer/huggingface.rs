//! `tokenizer.json` through the `tokenizers` library, with its cryptic errors replaced.
//!
//! The library reports a part it does not know as "data did not match any variant of untagged enum". So before its error is
//! passed on, the parts are tried one by one, and the message names the part, its type, and the likely reason.

use serde_json::Value;
use tokenizers::utils::SysRegex;
use tokenizers::{
    DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
};

use crate::config::describe;
use crate::error::{CheckpointError, quoted};
use crate::files::without_mark;
use crate::read::json_error;

use super::gave_up;

const LIKELY: &str = "the file was probably written by a newer version of the tokenizers library than the 0.22 in use here, or is damaged";

/// A tokenizer, and the patterns by which it splits text.
#[derive(Debug)]
pub(super) struct HuggingFace {
    tokenizer: tokenizers::Tokenizer,
    splits: Vec<SysRegex>,
}

impl HuggingFace {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, CheckpointError> {
        let bytes = without_mark(bytes);
        let value: Value = serde_json::from_slice(bytes).map_err(|e| json_error(&e))?;
        let tokenizer = tokenizer(bytes, &value)?;
        let mut splits = Vec::new();
        patterns(&value["pre_tokenizer"], &mut splits);
        Ok(Self { tokenizer, splits })
    }

    pub(super) fn vocab_size(&self) -> usize {
        let vocabulary = self.tokenizer.get_vocab(true);
        vocabulary.values().max().map_or(0, |&id| id as usize + 1)
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, CheckpointError> {
        let encoding = self.tokenizer.encode(text, false).map_err(|e| {
            CheckpointError::malformed(format!("the text could not be encoded: {e}"))
        })?;
        self.refuse_undivided(text, &encoding)?;
        Ok(encoding.get_ids().to_vec())
    }

    pub(super) fn decode(&self, ids: &[u32]) -> Result<String, CheckpointError> {
        let text = self.tokenizer.decode(ids, false);
        text.map_err(|e| CheckpointError::malformed(format!("the ids could not be decoded: {e}")))
    }

    /// Refuses a text on which a split pattern gave up: the library then takes all the rest for one piece, without a word. Such a piece
    /// is long, and the pattern would divide its end.
    fn refuse_undivided(
        &self,
        text: &str,
        encoding: &tokenizers::Encoding,
    ) -> Result<(), CheckpointError> {
        /// Less than the library's stack holds.
        const SUSPICIOUS_BYTES: usize = 500_000;
        const SAMPLE_BYTES: usize = 4000;
        let tokens = encoding.get_word_ids().iter().zip(encoding.get_offsets());
        let tokens: Vec<_> = tokens.collect();
        for piece in tokens.chunk_by(|a, b| a.0 == b.0) {
            let (Some((_, first)), Some((_, last))) = (piece.first(), piece.last()) else {
                continue;
            };
            let (begin, end) = (first.0, last.1);
            if end.saturating_sub(begin) < SUSPICIOUS_BYTES {
                continue;
            }
            let sample = (end - SAMPLE_BYTES..=end).find_map(|from| text.get(from..end));
            let divides = |split: &SysRegex| split.find_iter(sample.unwrap_or("")).nth(1).is_some();
            if self.splits.iter().any(divides) {
                return Err(CheckpointError::malformed(gave_up(begin)));
            }
        }
        Ok(())
    }
}

/// The patterns of a pre-tokenizer's parts that split by one.
fn patterns(part: &Value, found: &mut Vec<SysRegex>) {
    let pattern = part["pattern"]["Regex"].as_str();
    found.extend(pattern.and_then(|pattern| SysRegex::new(pattern).ok()));
    for part in part["pretokenizers"].as_array().into_iter().flatten() {
        patterns(part, found);
    }
}

fn tokenizer(bytes: &[u8], value: &Value) -> Result<tokenizers::Tokenizer, CheckpointError> {
    let Some(file) = value.as_object() else {
        return Err(CheckpointError::malformed(format!(
            "expected a tokenizer.json, an object, found {}",
            describe(value)
        )));
    };
    let Some(model) = file.get("model") else {
        return Err(CheckpointError::malformed(
            "the key \"model\" is missing; this is not a tokenizer.json (tokenizer_config.json is another file)",
        ));
    };
    if let Some(version) = file.get("version")
        && version.as_str() != Some("1.0")
    {
        return Err(CheckpointError::unsupported(format!(
            "\"version\" is {}, expected \"1.0\"; {LIKELY}",
            describe(version)
        )));
    }
    if let Some(kind) = model.get("type").and_then(Value::as_str)
        && !["BPE", "WordPiece", "WordLevel", "Unigram"].contains(&kind)
    {
        return Err(CheckpointError::unsupported(format!(
            "\"model\" has the type {}, which is not understood; known are BPE, WordPiece, WordLevel and Unigram; {LIKELY}",
            quoted(kind)
        )));
    }
    match tokenizers::Tokenizer::from_bytes(bytes) {
        Ok(mut tokenizer) => {
            // Length limits and padding of the file are settings of some training run; here a text is never cut in silence.
            tokenizer
                .with_truncation(None)
                .map_err(|e| CheckpointError::malformed(e.to_string()))?;
            tokenizer.with_padding(None);
            Ok(tokenizer)
        }
        Err(error) => Err(locate(value, &error.to_string())),
    }
}

/// Finds the part of the file that the library does not understand.
fn locate(file: &Value, error: &str) -> CheckpointError {
    let parts = [
        ("model", part::<ModelWrapper>(file, "model")),
        ("normalizer", part::<NormalizerWrapper>(file, "normalizer")),
        (
            "pre_tokenizer",
            part::<PreTokenizerWrapper>(file, "pre_tokenizer"),
        ),
        (
            "post_processor",
            part::<PostProcessorWrapper>(file, "post_processor"),
        ),
        ("decoder", part::<DecoderWrapper>(file, "decoder")),
    ];
    for (name, result) in parts {
        if let Err(reason) = result {
            let kind = file[name].get("type").and_then(Value::as_str).map_or_else(
                || "without type".to_owned(),
                |t| format!("type {}", quoted(t)),
            );
            return CheckpointError::unsupported(format!(
                "the part \"{name}\" ({kind}) is not understood: {reason}; {LIKELY}"
            ));
        }
    }
    CheckpointError::unsupported(format!("not understood: {error}; {LIKELY}"))
}

fn part<T: serde::de::DeserializeOwned>(file: &Value, name: &str) -> Result<(), String> {
    match file.get(name) {
        None | Some(Value::Null) => Ok(()),
        Some(value) => serde_json::from_value::<T>(value.clone())
            .map(drop)
            .map_err(|e| e.to_string()),
    }
}
