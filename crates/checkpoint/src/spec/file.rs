//! The TOML of a specification file, as it is written.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};

use crate::error::CheckpointError;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) snellen_spec: u64,
    pub(super) name: String,
    pub(super) weights: Option<String>,
    pub(super) shape: ShapeTable,
    pub(super) alibi: AlibiTable,
    #[serde(default)]
    pub(super) embedding: EmbeddingTable,
    #[serde(default)]
    pub(super) norm: NormTable,
    #[serde(default)]
    pub(super) block: BlockTable,
    #[serde(default)]
    pub(super) attention: AttentionTable,
    #[serde(default)]
    pub(super) mlp: MlpTable,
    #[serde(default)]
    pub(super) head: HeadTable,
    #[serde(default)]
    pub(super) tensors: BTreeMap<String, Tensor>,
    pub(super) tokenizer: Option<TokenizerTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShapeTable {
    pub(super) vocab_size: u64,
    pub(super) width: u64,
    pub(super) layers: u64,
    pub(super) heads: u64,
    pub(super) kv_heads: Option<u64>,
    pub(super) head_width: Option<u64>,
    pub(super) trained_length: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AlibiTable {
    pub(super) schedule: Schedule,
    pub(super) bias_max: Option<f64>,
    pub(super) slopes: Option<Vec<f64>>,
    #[serde(default)]
    pub(super) form: Form,
    pub(super) key_origin: Option<Origin>,
    #[serde(default)]
    pub(super) bias_before_scale: bool,
    pub(super) remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Schedule {
    Press,
    Mpt,
    Naive,
    List,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Form {
    #[default]
    Relative,
    KeyPosition,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Origin {
    Zero,
    LengthEnd,
    One,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EmbeddingTable {
    pub(super) scale: f64,
    pub(super) norm: bool,
}

impl Default for EmbeddingTable {
    fn default() -> Self {
        Self {
            scale: 1.0,
            norm: false,
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Norm {
    LayerNorm,
    RmsNorm,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NormTable {
    pub(super) kind: Norm,
    pub(super) eps: f64,
    pub(super) bias: bool,
}

impl Default for NormTable {
    fn default() -> Self {
        Self {
            kind: Norm::LayerNorm,
            eps: 1e-5,
            bias: true,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BlockArrangement {
    #[default]
    Sequential,
    Parallel,
    ParallelSharedNorm,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Residual {
    #[default]
    Input,
    Normed,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BlockTable {
    pub(super) arrangement: BlockArrangement,
    pub(super) attention_residual: Residual,
    pub(super) mlp_residual: Residual,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Output {
    #[default]
    Linear,
    LinearWithBias,
    None,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum QkNorm {
    #[default]
    None,
    Full,
    PerHead,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AttentionTable {
    pub(super) qkv_bias: bool,
    pub(super) output: Output,
    pub(super) scale: Option<f64>,
    pub(super) clip_qkv: Option<f64>,
    pub(super) qk_norm: QkNorm,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Act {
    #[default]
    GeluTanh,
    GeluErf,
    Silu,
    Relu,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MlpTable {
    pub(super) hidden: Option<u64>,
    pub(super) activation: Act,
    pub(super) gated: bool,
    pub(super) bias: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HeadTable {
    pub(super) final_norm: bool,
    pub(super) tied: bool,
    pub(super) logit_scale: f64,
    pub(super) soft_cap: Option<f64>,
}

impl Default for HeadTable {
    fn default() -> Self {
        Self {
            final_norm: true,
            tied: true,
            logit_scale: 1.0,
            soft_cap: None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenizerTable {
    pub(super) file: String,
    #[serde(default)]
    pub(super) fold_white_space: bool,
    #[serde(default)]
    pub(super) replace: Vec<(String, String)>,
}

/// How a fused query/key/value tensor is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum QkvLayout {
    #[serde(rename = "q;k;v")]
    Blocks,
    #[serde(rename = "per-head")]
    PerHead,
}

/// A tensor: its name, or a table with the name and how it is stored.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) transposed: bool,
    pub(super) layout: Option<QkvLayout>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorTable {
    name: String,
    #[serde(default)]
    transposed: bool,
    layout: Option<QkvLayout>,
}

impl<'de> Deserialize<'de> for Tensor {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Tensor, D::Error> {
        /// Not an untagged enum: those report every mistake as "did not match any variant".
        struct NameOrTable;

        impl<'de> Visitor<'de> for NameOrTable {
            type Value = Tensor;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tensor name or a table with the key name")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Tensor, E> {
                Ok(Tensor {
                    name: name.to_owned(),
                    transposed: false,
                    layout: None,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Tensor, A::Error> {
                let TensorTable {
                    name,
                    transposed,
                    layout,
                } = TensorTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Tensor {
                    name,
                    transposed,
                    layout,
                })
            }
        }

        deserializer.deserialize_any(NameOrTable)
    }
}

pub(super) fn parse(text: &str) -> Result<File, CheckpointError> {
    let file: File = toml::from_str(text).map_err(|e| {
        let place = e.span().map_or_else(String::new, |span| {
            let before = text.get(..span.start).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
            format!("line {line}, column {column}: ")
        });
        CheckpointError::malformed(format!("{place}{}", e.message()))
    })?;
    if file.snellen_spec != 1 {
        return Err(CheckpointError::unsupported(format!(
            "key snellen_spec: expected 1, the version of the format that this program knows, found {}",
            file.snellen_spec
        )));
    }
    Ok(file)
}
