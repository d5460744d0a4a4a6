//! A `tokenizer.json` as the metadata that llama.cpp reads: a byte-level BPE cut as GPT-2 cuts, or a refusal.

use checkpoint::gguf::GgufValue;
use serde_json::Value;

use crate::data::documents::SEPARATOR;
use crate::error::TrainError;

/// Kinds of tokens in GGUF.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// Metadata of the tokenizer in `json`, for a model with `vocab` rows; rows that no token has become unused tokens.
///
/// # Errors
/// A tokenizer that llama.cpp would read otherwise, more tokens than rows.
pub(super) fn metadata(
    json: &[u8],
    vocab: usize,
) -> Result<Vec<(&'static str, GgufValue)>, TrainError> {
    let file: Value = serde_json::from_slice(json)
        .map_err(|e| TrainError::config(format!("tokenizer.json: {e}")))?;
    refuse_others(&file)?;
    let (tokens, kinds) = tokens(&file, vocab)?;
    let end = tokens.iter().position(|token| token == SEPARATOR);
    let mut metadata = vec![
        ("tokenizer.ggml.model", GgufValue::Text("gpt2".into())),
        ("tokenizer.ggml.pre", GgufValue::Text("gpt-2".into())),
        ("tokenizer.ggml.tokens", GgufValue::Texts(tokens)),
        ("tokenizer.ggml.token_type", GgufValue::I32s(kinds)),
        ("tokenizer.ggml.merges", GgufValue::Texts(merges(&file)?)),
        ("tokenizer.ggml.add_bos_token", GgufValue::Bool(false)),
    ];
    if let Some(end) = end {
        let end = end as u32;
        metadata.push(("tokenizer.ggml.bos_token_id", GgufValue::U32(end)));
        metadata.push(("tokenizer.ggml.eos_token_id", GgufValue::U32(end)));
    }
    Ok(metadata)
}

fn cannot(what: String) -> TrainError {
    TrainError::config(format!(
        "tokenizer.json: llama.cpp would read it otherwise: {what}; expected a byte-level BPE as `snellen tokens train` makes it"
    ))
}

/// Everything that changes how a text is cut and is not in the metadata.
fn refuse_others(file: &Value) -> Result<(), TrainError> {
    let model = &file["model"];
    let off = |value: &Value| value.is_null() || *value == false || *value == "";
    if model["type"] != "BPE" {
        return Err(cannot(format!("the model is {}", model["type"])));
    }
    for key in [
        "dropout",
        "unk_token",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "byte_fallback",
        "ignore_merges",
    ] {
        if !off(&model[key]) {
            return Err(cannot(format!("model.{key} is {}", model[key])));
        }
    }
    if !file["normalizer"].is_null() {
        return Err(cannot("it has a normalizer".into()));
    }
    let cut = &file["pre_tokenizer"];
    let gpt2 = cut["type"] == "ByteLevel"
        && cut["add_prefix_space"] == false
        && (cut["use_regex"].is_null() || cut["use_regex"] == true);
    if !gpt2 {
        return Err(cannot(format!(
            "the pre-tokenizer is {cut}, which is not GPT-2's"
        )));
    }
    Ok(())
}

/// The text and kind of every row.
fn tokens(file: &Value, vocab: usize) -> Result<(Vec<String>, Vec<i32>), TrainError> {
    let mut rows: Vec<Option<(String, i32)>> = vec![None; vocab];
    let mut set = |text: &str, id: &Value, kind: i32| {
        let Some(row) = id.as_u64().and_then(|id| rows.get_mut(id as usize)) else {
            return Err(TrainError::config(format!(
                "tokenizer.json: token {text:?} has id {id}, the model has {vocab} rows"
            )));
        };
        *row = Some((text.to_owned(), kind));
        Ok(())
    };
    let entries = file["model"]["vocab"]
        .as_object()
        .ok_or_else(|| cannot("model.vocab is no object".into()))?;
    for (text, id) in entries {
        set(text, id, NORMAL)?;
    }
    for added in file["added_tokens"].as_array().into_iter().flatten() {
        let kind = if added["special"] == true {
            CONTROL
        } else {
            USER_DEFINED
        };
        let text = added["content"].as_str().unwrap_or_default();
        set(text, &added["id"], kind)?;
    }
    Ok(rows
        .into_iter()
        .enumerate()
        .map(|(id, row)| row.unwrap_or_else(|| (format!("[UNUSED{id}]"), UNUSED)))
        .unzip())
}

/// Merges as `left right`; older files have them as such texts, newer ones as pairs.
fn merges(file: &Value) -> Result<Vec<String>, TrainError> {
    let fail = || cannot("model.merges is no list of pairs".into());
    let list = file["model"]["merges"].as_array().ok_or_else(fail)?;
    list.iter()
        .map(|merge| match merge {
            Value::String(text) => Some(text.clone()),
            pair => Some(format!("{} {}", pair[0].as_str()?, pair[1].as_str()?)),
        })
        .collect::<Option<Vec<_>>>()
        .ok_or_else(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_llama_cpp_would_cut_otherwise_is_refused() {
        let json = crate::data::bpe::train(["a cat sat on a mat; a cat"].into_iter(), 270).unwrap();
        let rows = metadata(json.as_bytes(), 272).unwrap();
        let GgufValue::Texts(tokens) = &rows[2].1 else {
            panic!()
        };
        assert_eq!((tokens.len(), tokens[0].as_str()), (272, SEPARATOR));
        let GgufValue::I32s(kinds) = &rows[3].1 else {
            panic!()
        };
        assert_eq!((kinds[0], kinds[1], kinds[271]), (CONTROL, NORMAL, UNUSED));
        let GgufValue::Texts(merges) = &rows[4].1 else {
            panic!()
        };
        assert!(merges.iter().all(|m| m.split(' ').count() == 2) && !merges.is_empty());

        let refused = |change: &dyn Fn(&mut Value), wanted: &str| {
            let mut file: Value = serde_json::from_str(&json).unwrap();
            change(&mut file);
            let error = metadata(file.to_string().as_bytes(), 272)
                .unwrap_err()
                .to_string();
            assert!(error.contains(wanted), "{error}");
        };
        refused(&|f| f["model"]["type"] = "Unigram".into(), "Unigram");
        refused(
            &|f| f["model"]["byte_fallback"] = true.into(),
            "byte_fallback",
        );
        refused(
            &|f| f["pre_tokenizer"]["add_prefix_space"] = true.into(),
            "not GPT-2's",
        );
        refused(
            &|f| f["normalizer"] = serde_json::json!({"type": "NFC"}),
            "normalizer",
        );
        let error = metadata(json.as_bytes(), 100).unwrap_err().to_string();
        assert!(error.contains("the model has 100 rows"), "{error}");
    }
}
