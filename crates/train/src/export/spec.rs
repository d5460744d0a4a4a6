//! Our own layout: `model.safetensors` and `model.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use checkpoint::safetensors::{StoredAs, write_safetensors};
use numerics::Remedy;

use super::fixed;
use crate::error::TrainError;
use crate::files;
use crate::network::Network;
use crate::run::checkpoint::tensors;
use crate::shape::{MlpKind, NORM_EPS, NormKind};

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
