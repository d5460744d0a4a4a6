//! MPT's layout, as `transformers` opens it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use checkpoint::safetensors::{StoredAs, TensorData, write_safetensors};

use super::{mpt_bias_max, refuse};
use crate::error::TrainError;
use crate::files;
use crate::network::Network;
use crate::run::checkpoint::tensors;
use crate::shape::NORM_EPS;

/// Writes a folder that `transformers` opens as MPT: `config.json` and `model.safetensors`.
///
/// # Errors
/// Whatever MPT cannot express, and what the system says.
pub fn write_mpt(
    folder: &Path,
    network: &Network,
    params: &[f32],
    metadata: &BTreeMap<String, String>,
    stored: StoredAs,
) -> Result<(), TrainError> {
    let bias_max = mpt_bias_max(network)?;
    let shape = &network.shape;
    // transformers 5.24 does not read `alibi_bias_max`.
    if bias_max != 8 {
        return refuse(&format!(
            "slopes of alibi_bias_max {bias_max}, which transformers takes for those of 8"
        ));
    }
    if !shape.tied {
        return refuse("an output head of its own");
    }
    if shape.bias {
        return refuse("biases of linear layers and norms");
    }
    // `expansion_ratio` is not read: transformers 5.24 makes layers of 4 times the width, whatever it says.
    if shape.hidden != 4 * shape.width {
        return refuse("a feed-forward layer other than 4 times the width");
    }
    let config = serde_json::json!({
        "architectures": ["MptForCausalLM"],
        "model_type": "mpt",
        "d_model": shape.width,
        "n_heads": shape.heads,
        "n_layers": shape.layers,
        "expansion_ratio": 4,
        "max_seq_len": shape.context,
        "vocab_size": shape.vocab,
        "no_bias": true,
        // As text: widened to f64 it would be 9.99e-6 with a tail.
        "layer_norm_epsilon": NORM_EPS.to_string().parse::<f64>().unwrap_or(1e-5),
        "tie_word_embeddings": true,
        "torch_dtype": match stored {
            StoredAs::F32 => "float32",
            StoredAs::Bf16 => "bfloat16",
            StoredAs::F16 => "float16",
        },
        "attn_config": {
            "model_type": "",
            "attn_type": "multihead_attention",
            "alibi": true,
            "alibi_bias_max": bias_max,
            // A whole number: transformers 5.24 refuses 0.0 here.
            "attn_pdrop": 0,
            "clip_qkv": null,
            "qk_ln": false,
            "softmax_scale": null
        }
    });
    let text = serde_json::to_vec_pretty(&config)
        .map_err(|e| TrainError::config(format!("config.json: {e}")))?;
    let renamed: Vec<TensorData<'_>> = tensors(&network.layout, params)
        .into_iter()
        .map(|tensor| TensorData {
            name: mpt_name(&tensor.name),
            ..tensor
        })
        .collect();
    let path = folder.join("model.safetensors");
    write_safetensors(&path, &renamed, metadata, stored).map_err(|e| TrainError::io(&path, &e))?;
    files::write_whole(&folder.join("config.json"), |out| out.write_all(&text))
}

fn mpt_name(own: &str) -> String {
    let mut name = own
        .replace("embedding.weight", "transformer.wte.weight")
        .replace(".norm1.", ".norm_1.")
        .replace(".norm2.", ".norm_2.")
        .replace(".qkv.", ".attn.Wqkv.")
        .replace(".out.", ".attn.out_proj.")
        .replace(".up.", ".ffn.up_proj.")
        .replace(".down.", ".ffn.down_proj.");
    if name == "norm.weight" {
        name = "transformer.norm_f.weight".into();
    } else if let Some(rest) = name.strip_prefix("layers.") {
        let mut whole = String::new();
        // Writing into a string cannot fail.
        let _ = write!(whole, "transformer.blocks.{rest}");
        name = whole;
    }
    name
}
