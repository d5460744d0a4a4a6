//! A trained decoder in layouts that others read.
//!
//! | target | what it can express |
//! |---|---|
//! | `spec` | every fixed bias: `model.safetensors` and `model.toml` for this program |
//! | `mpt` | linear bias, LayerNorm, GELU, tied head, no biases: a folder for `transformers` |
//!
//! What a target cannot express is refused with the reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use checkpoint::safetensors::{StoredAs, TensorData, write_safetensors};
use numerics::{BiasFunction, Remedy, SlopeSchedule};

use crate::error::TrainError;
use crate::files;
use crate::network::Network;
use crate::run::checkpoint::tensors;
use crate::shape::{MlpKind, NORM_EPS, NormKind, Position};

/// What a checkpoint says about its making.
pub fn provenance(step: u64, config_hash: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("format".to_owned(), "pt".to_owned()),
        (
            "snellen_version".to_owned(),
            env!("CARGO_PKG_VERSION").to_owned(),
        ),
        ("snellen_step".to_owned(), step.to_string()),
        ("snellen_config_hash".to_owned(), config_hash.to_owned()),
    ])
}

/// The bias and slopes, if fixed.
fn fixed(network: &Network) -> Result<(&BiasFunction, &[f64]), TrainError> {
    match &network.position {
        Position::Fixed { bias, slopes } => Ok((bias, slopes)),
        Position::KerpleLog { .. } => refuse("a learned KERPLE bias"),
        Position::T5 { .. } => refuse("learned T5 buckets"),
        Position::Rope { .. } => refuse("rotary embedding"),
    }
}

fn refuse<T>(what: &str) -> Result<T, TrainError> {
    Err(TrainError::config(format!(
        "the target cannot express {what}; the run's checkpoints hold the parameters"
    )))
}

/// Writes `model.safetensors` and `model.toml` into `folder`, which exists.
///
/// # Errors
/// A position scheme that a specification file cannot express, and what the system says.
pub fn write_spec(
    folder: &Path,
    name: &str,
    network: &Network,
    params: &[f32],
    tokenizer: Option<&str>,
    metadata: &BTreeMap<String, String>,
    stored: StoredAs,
) -> Result<(), TrainError> {
    let text = spec_text(name, network, tokenizer)?;
    let path = folder.join("model.safetensors");
    write_safetensors(&path, &tensors(&network.layout, params), metadata, stored)
        .map_err(|e| TrainError::io(&path, &e))?;
    files::write_whole(&folder.join("model.toml"), |out| {
        out.write_all(text.as_bytes())
    })
}

/// The specification file of a trained decoder.
fn spec_text(name: &str, network: &Network, tokenizer: Option<&str>) -> Result<String, TrainError> {
    let (bias, slopes) = fixed(network)?;
    let shape = &network.shape;
    let remedy = Remedy {
        bias: bias.clone(),
        robust: None,
    };
    let slopes: Vec<String> = slopes.iter().map(|m| format!("{m:?}")).collect();
    let norm_bias = shape.bias && shape.norm == NormKind::LayerNorm;
    let gated = shape.mlp == MlpKind::Swiglu;
    let mut s = String::new();
    let mut line = |text: String| {
        s.push_str(&text);
        s.push('\n');
    };
    line("# Written by `snellen train`.".into());
    line("snellen_spec = 1".into());
    line(format!("name = {}", toml::Value::from(name)));
    line("weights = \"model.safetensors\"".into());
    line(format!(
        "\n[shape]\nvocab_size = {}\nwidth = {}\nlayers = {}\nheads = {}\ntrained_length = {}",
        shape.vocab, shape.width, shape.layers, shape.heads, shape.context
    ));
    line(format!(
        "\n[alibi]\nschedule = \"list\"\nslopes = [{}]\nform = \"relative\"\nremedy = \"{remedy}\"",
        slopes.join(", ")
    ));
    let kind = match shape.norm {
        NormKind::LayerNorm => "layer-norm",
        NormKind::RmsNorm => "rms-norm",
    };
    line(format!(
        "\n[norm]\nkind = \"{kind}\"\neps = {NORM_EPS:e}\nbias = {norm_bias}"
    ));
    let output = if shape.bias {
        "linear-with-bias"
    } else {
        "linear"
    };
    line(format!(
        "\n[attention]\nqkv_bias = {}\noutput = \"{output}\"",
        shape.bias
    ));
    let activation = if gated { "silu" } else { "gelu-erf" };
    line(format!(
        "\n[mlp]\nhidden = {}\nactivation = \"{activation}\"\ngated = {gated}\nbias = {}",
        shape.hidden, shape.bias
    ));
    line(format!(
        "\n[head]\nfinal_norm = true\ntied = {}",
        shape.tied
    ));
    line("\n[tensors]\nembedding = \"embedding.weight\"".into());
    if !shape.tied {
        line("head = \"head.weight\"".into());
    }
    let mut pair = |key: &str, name: &str, bias: bool| {
        line(format!("{key}_weight = \"{name}.weight\""));
        if bias {
            line(format!("{key}_bias = \"{name}.bias\""));
        }
    };
    pair("final_norm", "norm", norm_bias);
    pair("norm1", "layers.{layer}.norm1", norm_bias);
    pair("output", "layers.{layer}.out", shape.bias);
    pair("norm2", "layers.{layer}.norm2", norm_bias);
    if gated {
        pair("gate", "layers.{layer}.gate", shape.bias);
    }
    pair("up", "layers.{layer}.up", shape.bias);
    pair("down", "layers.{layer}.down", shape.bias);
    for part in ["weight", "bias"] {
        if part == "weight" || shape.bias {
            line(format!(
                "qkv_{part} = {{ name = \"layers.{{layer}}.qkv.{part}\", layout = \"q;k;v\" }}"
            ));
        }
    }
    if let Some(file) = tokenizer {
        line(format!("\n[tokenizer]\nfile = {}", toml::Value::from(file)));
    }
    Ok(s)
}

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
    let (bias, slopes) = fixed(network)?;
    let shape = &network.shape;
    if *bias != BiasFunction::linear() {
        return refuse(&format!(
            "the bias function {}",
            Remedy {
                bias: bias.clone(),
                robust: None
            }
        ));
    }
    let bias_max = bias_max(slopes)?;
    if shape.norm != NormKind::LayerNorm {
        return refuse("RMSNorm");
    }
    if shape.mlp != MlpKind::Gelu {
        return refuse("SwiGLU");
    }
    if !shape.tied {
        return refuse("an output head of its own");
    }
    if shape.bias {
        return refuse("biases of linear layers and norms");
    }
    if !shape.hidden.is_multiple_of(shape.width) {
        return refuse("a feed-forward layer that is no multiple of the width");
    }
    let config = serde_json::json!({
        "architectures": ["MptForCausalLM"],
        "model_type": "mpt",
        "d_model": shape.width,
        "n_heads": shape.heads,
        "n_layers": shape.layers,
        "expansion_ratio": shape.hidden / shape.width,
        "max_seq_len": shape.context,
        "vocab_size": shape.vocab,
        "no_bias": true,
        // As text: widened to f64 it would be 9.99e-6 with a tail.
        "layer_norm_epsilon": NORM_EPS.to_string().parse::<f64>().unwrap_or(1e-5),
        "tie_word_embeddings": true,
        "torch_dtype": match stored { StoredAs::F32 => "float32", StoredAs::Bf16 => "bfloat16" },
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

/// The `alibi_bias_max` whose schedule these slopes are.
fn bias_max(slopes: &[f64]) -> Result<i64, TrainError> {
    for bias_max in 1..=64 {
        let schedule = SlopeSchedule::Mpt {
            bias_max: bias_max as f64,
        };
        if schedule.slopes(slopes.len()).is_ok_and(|s| s == slopes) {
            return Ok(bias_max);
        }
    }
    refuse("slopes that no whole alibi_bias_max gives")
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
