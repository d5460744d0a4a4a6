//! GGUF for llama.cpp, architecture `mpt`: a linear bias whose slopes a whole `max_alibi_bias` gives, LayerNorm, GELU.
//!
//! llama.cpp evaluates the tanh form of GELU, by a table in f16, where the decoder was trained with the error function; the logits
//! therefore agree to a few hundredths, not to rounding. `docs/TRAINING.md` has what was measured.

use std::path::Path;

use checkpoint::gguf::{GgufTensor, GgufValue};
use checkpoint::safetensors::{StoredAs, TensorData};

use super::{mpt_bias_max, refuse, vocabulary};
use crate::error::TrainError;
use crate::network::Network;
use crate::run::checkpoint::tensors;
use crate::shape::NORM_EPS;

/// Smallest magnitude that f16 rounds to infinity.
const F16_OVERFLOW: f32 = 65520.0;

/// Writes `path`, one file with the tokenizer of `tokenizer_json` in it. Matrices are stored as `stored`, vectors in f32, as llama.cpp
/// keeps them.
///
/// # Errors
/// Whatever llama.cpp's `mpt` cannot express, values beyond f16, and what the system says.
pub fn write_gguf(
    path: &Path,
    name: &str,
    network: &Network,
    params: &[f32],
    tokenizer_json: Option<&[u8]>,
    stored: StoredAs,
) -> Result<(), TrainError> {
    let bias_max = mpt_bias_max(network)?;
    let Some(json) = tokenizer_json else {
        return refuse("a run without a tokenizer (data.tokenizer of the run file)");
    };
    let shape = &network.shape;
    let number = |n: usize| GgufValue::U32(n as u32);
    let file_type = match stored {
        StoredAs::F32 => 0,
        StoredAs::F16 => 1,
        StoredAs::Bf16 => 32,
    };
    let mut metadata = vec![
        ("general.architecture", GgufValue::Text("mpt".into())),
        ("general.name", GgufValue::Text(name.to_owned())),
        ("general.file_type", number(file_type)),
        ("mpt.context_length", number(shape.context)),
        ("mpt.embedding_length", number(shape.width)),
        ("mpt.block_count", number(shape.layers)),
        ("mpt.feed_forward_length", number(shape.hidden)),
        ("mpt.attention.head_count", number(shape.heads)),
        ("mpt.attention.layer_norm_epsilon", GgufValue::F32(NORM_EPS)),
        (
            "mpt.attention.max_alibi_bias",
            GgufValue::F32(bias_max as f32),
        ),
    ];
    metadata.extend(vocabulary::metadata(json, shape.vocab)?);
    let mut list = Vec::new();
    for tensor in tensors(&network.layout, params) {
        let stored = if tensor.shape.len() > 1 {
            stored
        } else {
            StoredAs::F32
        };
        let data = TensorData {
            name: gguf_name(&tensor.name),
            ..tensor
        };
        refuse_overflow(&data, stored)?;
        list.push(GgufTensor { data, stored });
    }
    checkpoint::gguf::write_gguf(path, &metadata, &list).map_err(|e| TrainError::io(path, &e))
}

fn refuse_overflow(tensor: &TensorData<'_>, stored: StoredAs) -> Result<(), TrainError> {
    let large = tensor.values.iter().find(|v| v.abs() >= F16_OVERFLOW);
    match large {
        Some(value) if stored == StoredAs::F16 => Err(TrainError::config(format!(
            "tensor {:?} holds {value:e}, which f16 makes infinite; use --dtype f32",
            tensor.name
        ))),
        _ => Ok(()),
    }
}

fn gguf_name(own: &str) -> String {
    for (from, to) in [
        ("embedding.", "token_embd."),
        ("norm.", "output_norm."),
        ("head.", "output."),
    ] {
        if let Some(part) = own.strip_prefix(from) {
            return format!("{to}{part}");
        }
    }
    own.replace("layers.", "blk.")
        .replace(".norm1.", ".attn_norm.")
        .replace(".norm2.", ".ffn_norm.")
        .replace(".qkv.", ".attn_qkv.")
        .replace(".out.", ".attn_output.")
        .replace(".up.", ".ffn_up.")
        .replace(".down.", ".ffn_down.")
}
