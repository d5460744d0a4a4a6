//! The `[tensors]` table: names of weights, checked against the model it describes.

use std::collections::BTreeMap;

use model::{LayerRole, ModelSpec, WeightRole};

use super::file::{QkvLayout, Tensor};
use crate::error::{CheckpointError, quoted};
use crate::layout::{Layout, Place, Rows};
use crate::safetensors::Tensors;

/// Keys of weights outside the blocks.
const MODEL_KEYS: [(&str, WeightRole); 6] = [
    ("embedding", WeightRole::Embedding),
    ("embedding_norm_weight", WeightRole::EmbeddingNormWeight),
    ("embedding_norm_bias", WeightRole::EmbeddingNormBias),
    ("final_norm_weight", WeightRole::FinalNormWeight),
    ("final_norm_bias", WeightRole::FinalNormBias),
    ("head", WeightRole::Head),
];

/// Key of a weight inside a block.
fn layer_key(role: LayerRole) -> &'static str {
    match role {
        LayerRole::Norm1Weight => "norm1_weight",
        LayerRole::Norm1Bias => "norm1_bias",
        LayerRole::QueryWeight => "query_weight",
        LayerRole::QueryBias => "query_bias",
        LayerRole::KeyWeight => "key_weight",
        LayerRole::KeyBias => "key_bias",
        LayerRole::ValueWeight => "value_weight",
        LayerRole::ValueBias => "value_bias",
        LayerRole::QueryNormWeight => "query_norm_weight",
        LayerRole::QueryNormBias => "query_norm_bias",
        LayerRole::KeyNormWeight => "key_norm_weight",
        LayerRole::KeyNormBias => "key_norm_bias",
        LayerRole::OutputWeight => "output_weight",
        LayerRole::OutputBias => "output_bias",
        LayerRole::Norm2Weight => "norm2_weight",
        LayerRole::Norm2Bias => "norm2_bias",
        LayerRole::UpWeight => "up_weight",
        LayerRole::UpBias => "up_bias",
        LayerRole::GateWeight => "gate_weight",
        LayerRole::GateBias => "gate_bias",
        LayerRole::DownWeight => "down_weight",
        LayerRole::DownBias => "down_bias",
    }
}

/// Key of the fused tensor that may stand for this weight, and the weight's place among query, key and value.
fn fused_key(role: LayerRole) -> Option<(&'static str, usize)> {
    Some(match role {
        LayerRole::QueryWeight => ("qkv_weight", 0),
        LayerRole::KeyWeight => ("qkv_weight", 1),
        LayerRole::ValueWeight => ("qkv_weight", 2),
        LayerRole::QueryBias => ("qkv_bias", 0),
        LayerRole::KeyBias => ("qkv_bias", 1),
        LayerRole::ValueBias => ("qkv_bias", 2),
        _ => return None,
    })
}

/// Where every weight of the model is, by layer-independent pattern.
#[derive(Debug, Default)]
pub(super) struct Names {
    places: BTreeMap<WeightRole, Place>,
}

impl Names {
    /// Checks that exactly the weights of `model` are named. A file without weights (`needed` false) may leave the table empty.
    pub(super) fn new(
        table: &BTreeMap<String, Tensor>,
        model: &ModelSpec,
        needed: bool,
    ) -> Result<Names, CheckpointError> {
        if table.is_empty() && !needed {
            return Ok(Names::default());
        }
        let mut unused: Vec<&str> = table.keys().map(String::as_str).collect();
        let mut places = BTreeMap::new();
        let take = |unused: &mut Vec<&str>, key: &str| {
            unused.retain(|k| *k != key);
            table.get(key)
        };
        for (key, role) in MODEL_KEYS {
            if model.weight_shape(role).is_some() {
                let tensor = take(&mut unused, key).ok_or_else(|| missing(key, role))?;
                if tensor.name.contains("{layer}") || tensor.layout.is_some() {
                    return Err(wrong(
                        key,
                        "a name without {layer} and without layout",
                        &tensor.name,
                    ));
                }
                places.insert(
                    role,
                    Place {
                        tensor: tensor.name.clone(),
                        rows: Rows::All,
                        transposed: tensor.transposed,
                    },
                );
            }
        }
        for role in LayerRole::ALL {
            // The pattern is kept under layer 0 and filled in per layer.
            let whole = WeightRole::Layer(0, role);
            if model.weight_shape(whole).is_none() {
                continue;
            }
            let key = layer_key(role);
            let (key, tensor, rows) = match (take(&mut unused, key), fused_key(role)) {
                (Some(_), Some((fused, _))) if table.contains_key(fused) => {
                    return Err(CheckpointError::malformed(format!(
                        "keys tensors.{key} and tensors.{fused}: expected one of them, found both"
                    )));
                }
                (Some(tensor), _) => {
                    if tensor.layout.is_some() {
                        return Err(wrong(
                            key,
                            "no layout, which belongs to qkv_weight and qkv_bias",
                            &tensor.name,
                        ));
                    }
                    (key, tensor, Rows::All)
                }
                (None, Some((fused, part))) => {
                    let tensor = take(&mut unused, fused)
                        .ok_or_else(|| missing(&format!("{key} (or tensors.{fused})"), whole))?;
                    (fused, tensor, fused_rows(fused, tensor, part, model)?)
                }
                (None, None) => return Err(missing(key, whole)),
            };
            if !tensor.name.contains("{layer}") {
                return Err(wrong(key, "a name with {layer}", &tensor.name));
            }
            places.insert(
                whole,
                Place {
                    tensor: tensor.name.clone(),
                    rows,
                    transposed: tensor.transposed,
                },
            );
        }
        if let Some(key) = unused.first() {
            let known = MODEL_KEYS.iter().any(|(k, _)| k == key)
                || LayerRole::ALL
                    .iter()
                    .any(|&r| layer_key(r) == *key || fused_key(r).is_some_and(|(k, _)| k == *key));
            let why = if known {
                "the model described above has no such weight"
            } else {
                "no weight has this name"
            };
            return Err(CheckpointError::malformed(format!(
                "key tensors.{key}: expected only the weights of the model, found this one; {why}"
            )));
        }
        Ok(Names { places })
    }

    /// The layout, checked against the headers.
    pub(super) fn layout(
        &self,
        model: &ModelSpec,
        tensors: &Tensors,
    ) -> Result<Layout, CheckpointError> {
        Layout::build(model, tensors, |role| {
            let (pattern, layer) = match role {
                WeightRole::Layer(layer, r) => (WeightRole::Layer(0, r), Some(layer)),
                other => (other, None),
            };
            let mut place = self
                .places
                .get(&pattern)
                .expect("`new` named every weight of the model")
                .clone();
            if let Some(layer) = layer {
                place.tensor = place.tensor.replace("{layer}", &layer.to_string());
            }
            place
        })
    }
}

fn fused_rows(
    key: &str,
    tensor: &Tensor,
    part: usize,
    model: &ModelSpec,
) -> Result<Rows, CheckpointError> {
    let (q, kv) = (model.query_width(), model.kv_width());
    match tensor.layout {
        Some(QkvLayout::Blocks) => {
            let (first, take) = [(0, q), (q, kv), (q + kv, kv)][part];
            Ok(Rows::block(first, take, q + 2 * kv))
        }
        Some(QkvLayout::PerHead) if model.n_heads == model.n_kv_heads => {
            Ok(Rows::per_head(part, model.n_heads, model.head_width))
        }
        Some(QkvLayout::PerHead) => Err(wrong(
            key,
            "layout = \"q;k;v\", since kv_heads differs from heads",
            "per-head",
        )),
        None => Err(wrong(
            key,
            "a table with layout = \"q;k;v\" or \"per-head\"",
            &tensor.name,
        )),
    }
}

fn wrong(key: &str, expected: &str, found: &str) -> CheckpointError {
    CheckpointError::malformed(format!(
        "key tensors.{key}: expected {expected}, found {}",
        quoted(found)
    ))
}

fn missing(key: &str, role: WeightRole) -> CheckpointError {
    let of = match role {
        WeightRole::Layer(_, r) => r.name().to_owned(),
        other => other.to_string(),
    };
    CheckpointError::missing(format!("key tensors.{key} is missing; it names the {of}"))
}
