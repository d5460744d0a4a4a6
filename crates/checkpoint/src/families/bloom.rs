//! BLOOM, BLOOMZ and their fine-tunings.
//!
//! Fused `query_key_value` rows are `[heads, 3, head_width]`; a norm follows the embedding; biases everywhere; tanh GELU; the
//! head is tied. Hub files come with and without the `transformer.` prefix.

use model::{
    Activation, Arrangement, AttentionSpec, BlockSpec, EmbeddingSpec, HeadSpec, LayerRole, MlpSpec,
    ModelSpec, NormKind, NormSpec, ResidualFrom, WeightRole,
};
use numerics::Family;

use super::{Lowered, Shape, base_spec, default_notes, note_unused_head, output, prefix};
use crate::config::{Keys, ModelFacts};
use crate::error::CheckpointError;
use crate::layout::{Layout, Place, Rows};
use crate::safetensors::Tensors;

const WIDTH: &[&str] = &["n_embed", "hidden_size"];
const HEADS: &[&str] = &["n_head", "num_attention_heads"];
const LAYERS: &[&str] = &["n_layer", "num_hidden_layers"];

pub(crate) fn facts(keys: &Keys<'_>, evidence: &str) -> Result<ModelFacts, CheckpointError> {
    let n_heads = keys.count(HEADS)?;
    let shape = Shape {
        n_layers: keys.layers(LAYERS)?,
        n_heads,
        n_kv_heads: n_heads,
        width: keys.count(WIDTH)?,
    };
    let mut facts = shape.facts(keys, "n_head", Family::Bloom, evidence)?;
    facts.trained_length = keys.opt_count(&["seq_length"])?.map(|n| n as u64);
    facts.notes = default_notes(facts.family, facts.bias_max, facts.trained_length);
    Ok(facts)
}

pub(crate) fn lower(
    keys: &Keys<'_>,
    facts: &mut ModelFacts,
    tensors: &Tensors,
) -> Result<Lowered, CheckpointError> {
    let eps = keys.opt_positive(&["layer_norm_epsilon"])?.unwrap_or(1e-5);
    let norm = NormSpec {
        kind: NormKind::LayerNorm,
        eps: eps as f32,
        has_bias: true,
    };
    let residual = match keys.opt_bool("apply_residual_connection_post_layernorm")? {
        Some(true) => ResidualFrom::Norm,
        _ => ResidualFrom::Input,
    };
    let tied = keys.opt_bool("tie_word_embeddings")?.unwrap_or(true);
    let block = BlockSpec {
        norm,
        attention_residual: residual,
        mlp_residual: residual,
        arrangement: Arrangement::Sequential,
        attention: AttentionSpec {
            qkv_bias: true,
            output: output(true),
            clip_qkv: None,
            qk_norm: None,
            scale: facts.score_scale as f32,
            inverse_layer_scale: false,
        },
        mlp: MlpSpec {
            hidden: 4 * facts.width,
            activation: Activation::GeluTanh,
            gated: false,
            bias: true,
        },
    };
    let head = HeadSpec {
        tied,
        logit_scale: 1.0,
        soft_cap: None,
    };
    let spec = ModelSpec {
        embedding: EmbeddingSpec {
            scale: 1.0,
            norm: Some(norm),
        },
        ..base_spec(facts, keys, block, head)?
    };
    let prefix = prefix(tensors, &["transformer.", ""], "word_embeddings.weight")?;
    let layout = Layout::build(&spec, tensors, |role| place(prefix, &spec, role))?;
    note_unused_head(facts, tensors, tied, "lm_head.weight");
    Ok((spec, layout))
}

/// Where a weight lies; shared with Falcon, which has the same names and no embedding norm.
pub(super) fn place(prefix: &str, spec: &ModelSpec, role: WeightRole) -> Place {
    let (layer, role) = match role {
        WeightRole::Embedding => return Place::whole(format!("{prefix}word_embeddings.weight")),
        WeightRole::EmbeddingNormWeight => {
            return Place::whole(format!("{prefix}word_embeddings_layernorm.weight"));
        }
        WeightRole::EmbeddingNormBias => {
            return Place::whole(format!("{prefix}word_embeddings_layernorm.bias"));
        }
        WeightRole::FinalNormWeight => return Place::whole(format!("{prefix}ln_f.weight")),
        WeightRole::FinalNormBias => return Place::whole(format!("{prefix}ln_f.bias")),
        WeightRole::Head => return Place::whole("lm_head.weight"),
        WeightRole::Layer(layer, role) => (layer, role),
    };
    let fused = |part| Rows::per_head(part, spec.n_heads, spec.head_width);
    let (name, rows) = match role {
        LayerRole::Norm1Weight => ("input_layernorm.weight", Rows::All),
        LayerRole::Norm1Bias => ("input_layernorm.bias", Rows::All),
        LayerRole::QueryWeight => ("self_attention.query_key_value.weight", fused(0)),
        LayerRole::KeyWeight => ("self_attention.query_key_value.weight", fused(1)),
        LayerRole::ValueWeight => ("self_attention.query_key_value.weight", fused(2)),
        LayerRole::QueryBias => ("self_attention.query_key_value.bias", fused(0)),
        LayerRole::KeyBias => ("self_attention.query_key_value.bias", fused(1)),
        LayerRole::ValueBias => ("self_attention.query_key_value.bias", fused(2)),
        LayerRole::OutputWeight => ("self_attention.dense.weight", Rows::All),
        LayerRole::OutputBias => ("self_attention.dense.bias", Rows::All),
        LayerRole::Norm2Weight => ("post_attention_layernorm.weight", Rows::All),
        LayerRole::Norm2Bias => ("post_attention_layernorm.bias", Rows::All),
        LayerRole::UpWeight => ("mlp.dense_h_to_4h.weight", Rows::All),
        LayerRole::UpBias => ("mlp.dense_h_to_4h.bias", Rows::All),
        LayerRole::DownWeight => ("mlp.dense_4h_to_h.weight", Rows::All),
        LayerRole::DownBias => ("mlp.dense_4h_to_h.bias", Rows::All),
        LayerRole::GateWeight
        | LayerRole::GateBias
        | LayerRole::QueryNormWeight
        | LayerRole::QueryNormBias
        | LayerRole::KeyNormWeight
        | LayerRole::KeyNormBias => {
            unreachable!("these families have no gate and no query/key norm")
        }
    };
    Place::part(format!("{prefix}h.{layer}.{name}"), rows)
}
