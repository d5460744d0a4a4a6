//! Falcon-RW: the Falcon models with ALiBi.
//!
//! BLOOM's names without the embedding norm, erf GELU. The bias is added before the scaling by `1/sqrt(head_width)`, and the
//! reference rounds it to bf16 twice in every dtype; both are in the family's convention.

use model::{
    Activation, Arrangement, AttentionSpec, BlockSpec, HeadSpec, MlpSpec, NormKind, NormSpec,
    ResidualFrom,
};
use numerics::Family;

use super::{Lowered, Shape, base_spec, bloom, default_notes, note_unused_head, output, prefix};
use crate::config::{Keys, ModelFacts};
use crate::error::CheckpointError;
use crate::layout::Layout;
use crate::safetensors::Tensors;

const WIDTH: &[&str] = &["hidden_size", "n_embed"];
const HEADS: &[&str] = &["num_attention_heads", "n_head"];
const LAYERS: &[&str] = &["num_hidden_layers", "n_layer"];
const KV_HEADS: &[&str] = &["num_kv_heads", "n_head_kv"];

pub(crate) fn facts(keys: &Keys<'_>, evidence: &str) -> Result<ModelFacts, CheckpointError> {
    let n_heads = keys.count(HEADS)?;
    let new_decoder = keys.opt_bool("new_decoder_architecture")?.unwrap_or(false);
    let multi_query = keys.opt_bool("multi_query")?.unwrap_or(true);
    let n_kv_heads = if new_decoder {
        keys.opt_count(KV_HEADS)?.unwrap_or(n_heads)
    } else if multi_query {
        1
    } else {
        n_heads
    };
    let shape = Shape {
        n_layers: keys.layers(LAYERS)?,
        n_heads,
        n_kv_heads,
        width: keys.count(WIDTH)?,
    };
    let mut facts = shape.facts(keys, "num_attention_heads", Family::Falcon, evidence)?;
    // Present in newer exports only, and a default there, so it may not be what the model was trained with; it is all there is.
    facts.trained_length = keys
        .opt_count(&["max_position_embeddings", "seq_length"])?
        .map(|n| n as u64);
    facts.notes = default_notes(facts.family, facts.bias_max, facts.trained_length);
    Ok(facts)
}

pub(crate) fn lower(
    keys: &Keys<'_>,
    facts: &mut ModelFacts,
    tensors: &Tensors,
) -> Result<Lowered, CheckpointError> {
    // (key, class default, the only value that is supported); the defaults are those of transformers' FalconConfig.
    for (key, default, supported) in [
        ("new_decoder_architecture", false, false),
        ("multi_query", true, false),
        ("parallel_attn", true, false),
    ] {
        let value = keys.opt_bool(key)?.unwrap_or(default);
        if value != supported {
            return Err(CheckpointError::unsupported(format!(
                "key \"{key}\" is {value}: reading the weights of this Falcon variant is not supported yet, only Falcon-RW's ({key} = {supported}); the configuration alone still gives horizons"
            ))
            .in_file(keys.path()));
        }
    }
    let bias = keys.opt_bool("bias")?.unwrap_or(false);
    let eps = keys.opt_positive(&["layer_norm_epsilon"])?.unwrap_or(1e-5);
    let norm = NormSpec {
        kind: NormKind::LayerNorm,
        eps: eps as f32,
        has_bias: true,
    };
    let activation = match keys.opt_text("activation")?.unwrap_or("gelu") {
        "gelu" => Activation::GeluErf,
        "gelu_new" | "gelu_pytorch_tanh" => Activation::GeluTanh,
        "relu" => Activation::Relu,
        "silu" | "swish" => Activation::Silu,
        other => {
            return Err(keys.wrong(
                "activation",
                "gelu, gelu_new, gelu_pytorch_tanh, relu or silu",
                other,
            ));
        }
    };
    let tied = keys.opt_bool("tie_word_embeddings")?.unwrap_or(true);
    let block = BlockSpec {
        norm,
        attention_residual: ResidualFrom::Input,
        mlp_residual: ResidualFrom::Input,
        arrangement: Arrangement::Sequential,
        attention: AttentionSpec {
            qkv_bias: bias,
            output: output(bias),
            clip_qkv: None,
            qk_norm: None,
            scale: facts.score_scale as f32,
            inverse_layer_scale: false,
        },
        mlp: MlpSpec {
            hidden: keys
                .opt_count(&["ffn_hidden_size"])?
                .unwrap_or(4 * facts.width),
            activation,
            gated: false,
            bias,
        },
    };
    let head = HeadSpec {
        tied,
        logit_scale: 1.0,
        soft_cap: None,
    };
    let spec = base_spec(facts, keys, block, head)?;
    let prefix = prefix(tensors, &["transformer.", ""], "word_embeddings.weight")?;
    let layout = Layout::build(&spec, tensors, |role| bloom::place(prefix, &spec, role))?;
    note_unused_head(facts, tensors, tied, "lm_head.weight");
    Ok((spec, layout))
}
