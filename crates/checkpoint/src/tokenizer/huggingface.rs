//! `tokenizer.json` through the `tokenizers` library, with its cryptic errors replaced.
//!
//! The library reports a part it does not know as "data did not match any variant of untagged enum". So before its error is
//! passed on, the parts are tried one by one, and the message names the part, its type, and the likely reason.

use serde_json::Value;
use tokenizers::{
    DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
};

use crate::config::describe;
use crate::error::{CheckpointError, quoted};
use crate::read::json_error;

const LIKELY: &str = "the file was probably written by a newer version of the tokenizers library than the 0.22 in use here, or is damaged";

pub(super) fn parse(bytes: &[u8]) -> Result<tokenizers::Tokenizer, CheckpointError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|e| json_error(&e))?;
    let Some(file) = value.as_object() else {
        return Err(CheckpointError::malformed(format!(
            "expected a tokenizer.json, an object, found {}",
            describe(&value)
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
        Err(error) => Err(locate(&value, &error.to_string())),
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
