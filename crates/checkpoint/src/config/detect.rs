//! Which family a configuration belongs to, and whether it has linear biases at all.
//!
//! The switch has a different name in every family and three families have none; one depends on the depth. A model without
//! linear biases is "not applicable"; one that cannot be told is an error. Nothing is guessed.

use super::{Keys, describe};
use crate::error::{CheckpointError, quoted};

/// Families by the code that reads their configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Bloom,
    Mpt,
    Falcon,
    Baichuan,
    Jais,
    Refact,
    Replit,
    Jina,
    Mosaic,
}

/// `model_type` of well-known models without linear biases, and what they have instead.
const OTHERS: &[(&str, &[&str])] = &[
    (
        "rotary position embeddings",
        &[
            "llama",
            "mistral",
            "mixtral",
            "qwen2",
            "qwen2_moe",
            "qwen3",
            "qwen3_moe",
            "gemma",
            "gemma2",
            "gemma3",
            "gemma3_text",
            "phi",
            "phi3",
            "gpt_neox",
            "gptj",
            "codegen",
            "stablelm",
            "olmo",
            "olmo2",
            "cohere",
            "internlm",
            "internlm2",
            "chatglm",
            "deepseek",
            "deepseek_v2",
            "deepseek_v3",
            "starcoder2",
            "dbrx",
            "granite",
            "persimmon",
            "nomic_bert",
            "modernbert",
            "esm",
            "llama4_text",
            "smollm3",
            "glm",
            "glm4",
            "exaone",
            "nemotron",
        ],
    ),
    (
        "learned or sinusoidal position embeddings",
        &[
            "gpt2",
            "gpt_neo",
            "gpt_bigcode",
            "opt",
            "openai-gpt",
            "ctrl",
            "biogpt",
            "xglm",
            "roberta",
            "xlm-roberta",
            "camembert",
            "distilbert",
            "albert",
            "electra",
            "bart",
            "mbart",
            "marian",
            "pegasus",
            "whisper",
            "gpt-sw3",
        ],
    ),
    (
        "relative position buckets or tables",
        &[
            "t5",
            "mt5",
            "umt5",
            "longt5",
            "deberta",
            "deberta-v2",
            "mpnet",
            "xlnet",
        ],
    ),
    (
        "no attention over positions",
        &["mamba", "mamba2", "rwkv", "falcon_mamba"],
    ),
];

/// Class names in `architectures`, for configurations without a `model_type`.
const ARCHITECTURES: &[(&str, &str)] = &[
    ("Bloom", "bloom"),
    ("Mpt", "mpt"),
    ("MPT", "mpt"),
    ("Falcon", "falcon"),
    ("RW", "RefinedWeb"),
    ("BaiChuan", "baichuan"),
    ("Baichuan", "baichuan"),
    ("JAIS", "jais"),
    ("BTLM", "btlm"),
    ("GPTRefact", "gpt_refact"),
    ("ReplitLM", "replit_lm"),
    ("JinaBert", "jina_bert"),
    ("Bert", "bert"),
    ("Llama", "llama"),
    ("GPT2", "gpt2"),
];

pub(crate) struct Detected {
    pub(crate) reader: Reader,
    pub(crate) model_type: String,
    pub(crate) evidence: String,
}

pub(crate) fn detect(keys: &Keys<'_>) -> Result<Detected, CheckpointError> {
    let architecture = architecture(keys)?;
    let model_type = match (keys.opt_text("model_type")?, architecture) {
        (Some(model_type), _) => model_type,
        (None, Some(class)) => ARCHITECTURES
            .iter()
            .find(|(start, _)| class.starts_with(start))
            .map_or(class, |&(_, t)| t),
        (None, None) => "",
    };
    let found = |reader, evidence: String| {
        Ok(Detected {
            reader,
            model_type: model_type.to_owned(),
            evidence,
        })
    };
    let always = |reader| {
        found(
            reader,
            format!("model_type {model_type}, which always has linear biases"),
        )
    };
    match model_type {
        "bloom" => always(Reader::Bloom),
        "gpt_refact" | "refact" => always(Reader::Refact),
        "mpt" | "mosaic_gpt" => mpt_switch(keys, model_type).and_then(|e| found(Reader::Mpt, e)),
        "replit_lm" => mpt_switch(keys, model_type).and_then(|e| found(Reader::Replit, e)),
        "falcon" | "RefinedWeb" | "RefinedWebModel" => match keys.opt_bool("alibi")? {
            Some(true) => found(Reader::Falcon, "alibi = true".to_owned()),
            Some(false) => Err(not_alibi(
                keys,
                model_type,
                "alibi = false, so it uses rotary position embeddings",
            )),
            None => Err(not_alibi(
                keys,
                model_type,
                "no key \"alibi\", which its code reads as false: rotary position embeddings",
            )),
        },
        "baichuan" => found(
            Reader::Baichuan,
            "model_type baichuan with 40 layers".to_owned(),
        ),
        "jais" | "btlm" => position_type(keys, model_type).and_then(|e| found(Reader::Jais, e)),
        "gpt2" if architecture.is_some_and(|a| a.starts_with("JAIS") || a.starts_with("BTLM")) => {
            position_type(keys, model_type).and_then(|e| found(Reader::Jais, e))
        }
        "bert" | "jina_bert" | "jina_bert_v2" | "mosaic_bert" | "mosaicbert" => {
            encoder(keys, model_type)
        }
        _ => Err(other(keys, model_type)),
    }
}

fn architecture<'a>(keys: &Keys<'a>) -> Result<Option<&'a str>, CheckpointError> {
    let Some(value) = keys.opt_value("architectures") else {
        return Ok(None);
    };
    let items = value
        .as_array()
        .ok_or_else(|| keys.wrong("architectures", "a list of class names", &describe(value)))?;
    Ok(items.first().and_then(|v| v.as_str()))
}

fn not_alibi(keys: &Keys<'_>, model_type: &str, seen: &str) -> CheckpointError {
    CheckpointError::not_alibi(format!(
        "not an ALiBi model: model_type {}, {seen}; nothing to measure",
        quoted(model_type)
    ))
    .in_file(keys.path())
}

fn mpt_switch(keys: &Keys<'_>, model_type: &str) -> Result<String, CheckpointError> {
    let nested = keys.opt_object("attn_config", "attn_config.")?;
    let (name, value) = match nested {
        Some(attention) => ("attn_config.alibi", attention.opt_bool("alibi")?),
        None => ("alibi", keys.opt_bool("alibi")?),
    };
    match value {
        Some(true) => Ok(format!("{name} = true")),
        Some(false) => Err(not_alibi(
            keys,
            model_type,
            &format!("{name} = false (beware: transformers' own MPT code ignores this and adds the bias all the same)"),
        )),
        None => Err(CheckpointError::unknown_family(format!(
            "cannot tell: model_type {model_type} without the key \"attn_config.alibi\" (transformers takes it as true, llm-foundry as false); add the key"
        ))
        .in_file(keys.path())),
    }
}

fn position_type(keys: &Keys<'_>, model_type: &str) -> Result<String, CheckpointError> {
    match keys.opt_text("position_embedding_type")? {
        Some("alibi") => Ok("position_embedding_type = alibi".to_owned()),
        Some(other) => Err(not_alibi(keys, model_type, &format!("position_embedding_type = {other:?}"))),
        None => Err(CheckpointError::unknown_family(format!(
            "cannot tell: model_type {model_type} without the key \"position_embedding_type\"; add it"
        ))
        .in_file(keys.path())),
    }
}

fn encoder(keys: &Keys<'_>, model_type: &str) -> Result<Detected, CheckpointError> {
    let found = |reader, evidence: String| {
        Ok(Detected {
            reader,
            model_type: model_type.to_owned(),
            evidence,
        })
    };
    // First: MosaicBERT and DNABERT-2 keep the unused "absolute" of the class they were derived from.
    if let Some(size) = keys.opt_count(&["alibi_starting_size"])? {
        return found(Reader::Mosaic, format!("alibi_starting_size = {size}"));
    }
    match keys.opt_text("position_embedding_type")? {
        Some("alibi") => found(Reader::Jina, "position_embedding_type = alibi".to_owned()),
        Some(other) => Err(not_alibi(keys, model_type, &format!("position_embedding_type = {other:?}"))),
        None if model_type == "bert" => Err(not_alibi(keys, model_type, "no key \"position_embedding_type\": learned positions")),
        None => Err(CheckpointError::unknown_family(format!(
            "cannot tell: model_type {model_type} has neither \"position_embedding_type\" nor \"alibi_starting_size\"; add the one that applies"
        ))
        .in_file(keys.path())),
    }
}

/// A family that is not read here: not applicable where that is certain, otherwise an error.
fn other(keys: &Keys<'_>, model_type: &str) -> CheckpointError {
    let named = if model_type.is_empty() {
        "no model_type and no architectures".to_owned()
    } else {
        format!("model_type {}", quoted(model_type))
    };
    match any_switch(keys) {
        Ok(Some((switch, true))) => {
            return CheckpointError::unknown_family(format!(
                "{switch}, but the family is not known ({named}), so neither are its slopes nor how it adds the bias; describe the model in a spec file"
            ))
            .in_file(keys.path());
        }
        Ok(Some((switch, false))) => return not_alibi(keys, model_type, &switch),
        Ok(None) => {}
        Err(error) => return error,
    }
    for (positions, types) in OTHERS {
        if types.contains(&model_type) {
            return not_alibi(keys, model_type, &format!("which has {positions}"));
        }
    }
    let unknown = if model_type.is_empty() {
        format!("there is {named}")
    } else {
        format!("{named} is not known")
    };
    CheckpointError::unknown_family(format!(
        "cannot tell whether this model has linear biases: {unknown} and no key says so; describe the model in a spec file if it has"
    ))
    .in_file(keys.path())
}

/// A switch under any of the names in use, and whether it says yes.
fn any_switch(keys: &Keys<'_>) -> Result<Option<(String, bool)>, CheckpointError> {
    if let Some(attention) = keys
        .opt_object("attn_config", "attn_config.")
        .ok()
        .flatten()
        && let Some(value) = attention.opt_bool("alibi")?
    {
        return Ok(Some((format!("attn_config.alibi = {value}"), value)));
    }
    for name in ["alibi", "use_alibi"] {
        if let Some(value) = keys.opt_bool(name)? {
            return Ok(Some((format!("{name} = {value}"), value)));
        }
    }
    if let Some(kind) = keys
        .opt_value("position_embedding_type")
        .and_then(|v| v.as_str())
    {
        return Ok(Some((
            format!("position_embedding_type = {kind:?}"),
            kind == "alibi",
        )));
    }
    Ok(None)
}
