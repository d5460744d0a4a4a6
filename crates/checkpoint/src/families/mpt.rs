//! MPT: the llm-foundry layout, in transformers' own class or with the model's code.
//!
//! `Wqkv` rows are the blocks Q, K, V (with grouped heads the K and V blocks are shorter). No biases in published models,
//! LayerNorm without bias, erf GELU, optional clamp of q, k and v, then an optional query/key norm. The head is tied.

use model::{
    Activation, Arrangement, AttentionSpec, BlockSpec, HeadSpec, LayerRole, MlpSpec, ModelSpec,
    NormKind, NormSpec, QkNormExtent, QkNormSpec, ResidualFrom, WeightRole,
};
use numerics::{CapOrder, Family, SlopeSchedule, SoftCap};
use serde_json::Value;

use super::{Lowered, Shape, base_spec, note_unused_head, output, prefix};
use crate::config::{Keys, ModelFacts, Note, describe};
use crate::error::CheckpointError;
use crate::layout::{Layout, Place, Rows};
use crate::safetensors::Tensors;

/// The attention settings, which configurations before llm-foundry 0.1 keep at the top level.
pub(crate) fn attention_keys<'a>(keys: &Keys<'a>) -> Result<Keys<'a>, CheckpointError> {
    Ok(keys
        .opt_object("attn_config", "attn_config.")?
        .unwrap_or(*keys))
}

fn kv_heads(
    keys: &Keys<'_>,
    attention: &Keys<'_>,
    n_heads: usize,
) -> Result<usize, CheckpointError> {
    let kv = attention.opt_count(&["kv_n_heads"])?;
    match attention.opt_text("attn_type")? {
        None | Some("multihead_attention") => match kv {
            // transformers writes no kv_n_heads; llm-foundry writes it only for grouped heads.
            Some(kv) if kv != n_heads => Err(attention.wrong("kv_n_heads", &format!("{n_heads}, since attn_type is multihead_attention"), &kv.to_string())),
            _ => Ok(n_heads),
        },
        Some("multiquery_attention") => Ok(1),
        Some("grouped_query_attention") => {
            kv.ok_or_else(|| attention.wrong("kv_n_heads", "the number of key/value heads, since attn_type is grouped_query_attention", "nothing"))
        }
        Some(other) => Err(CheckpointError::unknown_family(format!(
            "key \"attn_config.attn_type\": expected multihead_attention, multiquery_attention or grouped_query_attention, found \"{other}\""
        ))
        .in_file(keys.path())),
    }
}

pub(crate) fn facts(keys: &Keys<'_>, evidence: &str) -> Result<ModelFacts, CheckpointError> {
    let attention = attention_keys(keys)?;
    let n_heads = keys.count(&["n_heads"])?;
    let n_kv_heads = kv_heads(keys, &attention, n_heads)?;
    let shape = Shape {
        n_layers: keys.layers(&["n_layers"])?,
        n_heads,
        n_kv_heads,
        width: keys.count(&["d_model"])?,
    };
    let mut facts = shape.facts(keys, "n_heads", Family::Mpt, evidence)?;
    let bias_max = attention.opt_positive(&["alibi_bias_max"])?.unwrap_or(8.0);
    facts.slopes = SlopeSchedule::Mpt { bias_max };
    facts.bias_max = Some(bias_max);
    facts.trained_length = keys.opt_count(&["max_seq_len"])?.map(|n| n as u64);
    facts.causal = !attention.opt_bool("prefix_lm")?.unwrap_or(false);
    facts.convention.causal = facts.causal;
    let mut dropped = Vec::new();
    if qk_norm(&attention)?.is_some() {
        dropped.push(Note::MptQkNormIgnored);
    }
    if n_kv_heads != n_heads {
        dropped.push(Note::MptKvHeadsIgnored { n_kv_heads });
    }
    let softmax_scale = attention.opt_positive(&["softmax_scale"])?;
    facts.score_scale = softmax_scale.unwrap_or(facts.score_scale);
    let scale = softmax_scale.map(|softmax_scale| Note::MptSoftmaxScaleDropped { softmax_scale });
    if logit_scale(keys, facts.width)? != 1.0 {
        dropped.push(Note::MptLogitScaleIgnored);
    }
    let cap = attention.opt_positive(&["attn_logit_softcapping"])?;
    dropped.extend(cap.map(|cap| Note::MptSoftCapIgnored { cap }));
    dropped.extend(ignored(keys)?);
    facts.notes = notes(bias_max, dropped, facts.trained_length, scale);
    if has_other_activation(keys) {
        facts.notes.retain(|note| *note != Note::LlamaCppTanhGelu);
    }
    if let Some(cap) = cap {
        facts.bias.soft_cap = Some(SoftCap {
            cap,
            order: CapOrder::BeforeBias,
        });
    }
    Ok(facts)
}

/// Settings of the whole block that transformers' own code does not read (modeling_mpt.py, run on 5.24.0).
fn ignored(keys: &Keys<'_>) -> Result<Vec<Note>, CheckpointError> {
    let mut found = Vec::new();
    let mut ignore = |setting: String, instead| {
        found.push(Note::MptSettingIgnored { setting, instead });
    };
    if let Some(kind) = keys.opt_text("norm_type")?
        && norm_kind(keys).is_ok_and(|kind| kind != NormKind::LayerNorm)
    {
        ignore(format!("norm_type is {kind}"), "uses LayerNorm");
    }
    if has_other_activation(keys) {
        let setting = "ffn_config.ffn_act_fn is not the erf GELU".to_owned();
        ignore(setting, "uses that");
    }
    let ratio = keys.opt_positive(&["expansion_ratio", "mlp_ratio"])?;
    if let Some(ratio) = ratio.filter(|ratio| *ratio != 4.0) {
        let instead = "takes 4, so it does not load these weights";
        ignore(format!("expansion_ratio is {ratio}"), instead);
    }
    if let Some(cap) = keys.opt_positive(&["final_logit_softcapping"])? {
        ignore(
            format!("final_logit_softcapping is {cap}"),
            "caps no logits",
        );
    }
    Ok(found)
}

/// Notes of an MPT; `dropped` and `scale` are those on settings that runtimes do not know.
pub(super) fn notes(
    bias_max: f64,
    dropped: Vec<Note>,
    max_seq_len: Option<u64>,
    scale: Option<Note>,
) -> Vec<Note> {
    let bias_max = (bias_max != 8.0).then_some(Note::MptBiasMaxIgnored { bias_max });
    let limit = max_seq_len.map(|max_seq_len| Note::MptLengthLimit { max_seq_len });
    let always = [Note::MptFlashDecodeForm, Note::LlamaCppTanhGelu];
    bias_max
        .into_iter()
        .chain(dropped)
        .chain(limit)
        .chain(scale)
        .chain(always)
        .collect()
}

fn qk_norm(attention: &Keys<'_>) -> Result<Option<QkNormExtent>, CheckpointError> {
    let full = attention.opt_bool("qk_ln")?.unwrap_or(false)
        || attention.opt_bool("attn_qk_ln")?.unwrap_or(false);
    let per_head = attention.opt_bool("qk_gn")?.unwrap_or(false);
    match (full, per_head) {
        (true, true) => Err(attention.wrong("qk_gn", "false, since qk_ln is true", "true")),
        (true, false) => Ok(Some(QkNormExtent::Full)),
        (false, true) => Ok(Some(QkNormExtent::PerHead)),
        (false, false) => Ok(None),
    }
}

/// Settings that change the computation and that this reader does not know how to run.
fn refuse_unknown(
    keys: &Keys<'_>,
    attention: &Keys<'_>,
    facts: &ModelFacts,
) -> Result<(), CheckpointError> {
    let refuse = |what: String| {
        Err(CheckpointError::unsupported(format!(
            "{what}: reading the weights of such an MPT is not supported yet; the configuration alone still gives horizons"
        ))
        .in_file(keys.path()))
    };
    if !facts.causal {
        return refuse("attn_config.prefix_lm is true".to_owned());
    }
    if let Some(window) = attention.opt_number(&["sliding_window_size"])?
        && window != -1.0
    {
        return refuse(format!("attn_config.sliding_window_size is {window}"));
    }
    if keys.has("block_overrides") {
        return refuse("block_overrides is set".to_owned());
    }
    if attention.opt_bool("rope")?.unwrap_or(false) {
        return refuse("attn_config.rope is true beside alibi".to_owned());
    }
    if let Some(ffn) = keys.opt_object("ffn_config", "ffn_config.")?
        && let Some(kind) = ffn.opt_text("ffn_type")?
        && kind != "mptmlp"
    {
        return refuse(format!("ffn_config.ffn_type is \"{kind}\""));
    }
    Ok(())
}

fn activation(keys: &Keys<'_>) -> Result<Activation, CheckpointError> {
    let Some(ffn) = keys.opt_object("ffn_config", "ffn_config.")? else {
        return Ok(Activation::GeluErf);
    };
    let Some(act) = ffn.opt_object("ffn_act_fn", "ffn_config.ffn_act_fn.")? else {
        return Ok(Activation::GeluErf);
    };
    match (act.opt_text("name")?, act.opt_text("approximate")?) {
        (Some("gelu") | None, None | Some("none")) => Ok(Activation::GeluErf),
        (Some("gelu") | None, Some("tanh")) => Ok(Activation::GeluTanh),
        (Some("silu"), _) => Ok(Activation::Silu),
        (Some("relu"), _) => Ok(Activation::Relu),
        (name, approximate) => Err(act.wrong(
            "name",
            "gelu (approximate none or tanh), silu or relu",
            &format!(
                "{}, approximate {}",
                name.unwrap_or("gelu"),
                approximate.unwrap_or("none")
            ),
        )),
    }
}

/// Whether an activation other than the erf GELU is named; one that cannot be read is refused with the weights.
fn has_other_activation(keys: &Keys<'_>) -> bool {
    activation(keys).is_ok_and(|activation| activation != Activation::GeluErf)
}

fn norm_kind(keys: &Keys<'_>) -> Result<NormKind, CheckpointError> {
    match keys
        .opt_text("norm_type")?
        .unwrap_or("low_precision_layernorm")
    {
        "layernorm" | "low_precision_layernorm" => Ok(NormKind::LayerNorm),
        "rmsnorm" | "low_precision_rmsnorm" | "triton_rmsnorm" => Ok(NormKind::RmsNorm),
        other => Err(keys.wrong(
            "norm_type",
            "layernorm or rmsnorm (or their low_precision_ forms)",
            other,
        )),
    }
}

fn logit_scale(keys: &Keys<'_>, width: usize) -> Result<f32, CheckpointError> {
    match keys.opt_value("logit_scale") {
        None => Ok(1.0),
        Some(Value::String(s)) if s == "inv_sqrt_d_model" => {
            Ok((1.0 / (width as f64).sqrt()) as f32)
        }
        Some(Value::Number(_)) => Ok(keys.opt_number(&["logit_scale"])?.unwrap_or(1.0) as f32),
        Some(other) => Err(keys.wrong(
            "logit_scale",
            "a number or \"inv_sqrt_d_model\"",
            &describe(other),
        )),
    }
}

/// `d_model * expansion_ratio`, where the ratio may be fractional but the product must be whole.
fn hidden(keys: &Keys<'_>, width: usize) -> Result<usize, CheckpointError> {
    let ratio = keys
        .opt_positive(&["expansion_ratio", "mlp_ratio"])?
        .unwrap_or(4.0);
    let hidden = ratio * width as f64;
    if hidden.fract() != 0.0 || hidden > f64::from(1 << 24) || hidden < 1.0 {
        return Err(keys.wrong(
            "expansion_ratio",
            &format!("a factor that makes a whole number of channels of {width}"),
            &ratio.to_string(),
        ));
    }
    Ok(hidden as usize)
}

pub(crate) fn lower(
    keys: &Keys<'_>,
    facts: &mut ModelFacts,
    tensors: &Tensors,
) -> Result<Lowered, CheckpointError> {
    let attention = attention_keys(keys)?;
    refuse_unknown(keys, &attention, facts)?;
    let prefix = prefix(
        tensors,
        &["transformer.", "", "model.transformer."],
        "wte.weight",
    )?;
    // Where the configuration does not say whether there are biases (libraries disagree on the default), the tensors do.
    let has = |name: &str| tensors.find(&format!("{prefix}blocks.0.{name}")).is_some();
    let bias = match keys.opt_bool("no_bias")? {
        Some(no_bias) => !no_bias,
        None => has("attn.Wqkv.bias"),
    };
    if !bias && has("attn.Wqkv.bias") {
        return Err(keys.wrong("no_bias", "false, since the checkpoint has biases", "true"));
    }
    let eps = keys
        .opt_positive(&["layer_norm_epsilon", "norm_eps"])?
        .unwrap_or(1e-5) as f32;
    let norm = NormSpec {
        kind: norm_kind(keys)?,
        eps,
        has_bias: bias,
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
            clip_qkv: attention
                .opt_positive(&["clip_qkv", "attn_clip_qkv"])?
                .map(|c| c as f32),
            qk_norm: qk_norm(&attention)?.map(|extent| QkNormSpec { norm, extent }),
            scale: facts.score_scale as f32,
            inverse_layer_scale: false,
        },
        mlp: MlpSpec {
            hidden: hidden(keys, facts.width)?,
            activation: activation(keys)?,
            gated: false,
            bias,
        },
    };
    let head = HeadSpec {
        tied,
        logit_scale: logit_scale(keys, facts.width)?,
        soft_cap: keys
            .opt_positive(&["final_logit_softcapping"])?
            .map(|c| c as f32),
    };
    let spec = base_spec(facts, keys, block, head)?;
    let layout = Layout::build(&spec, tensors, |role| place(prefix, &spec, role))?;
    if bias {
        facts.notes.push(Note::MptSettingIgnored {
            setting: "the checkpoint has biases".to_owned(),
            instead: "drops them",
        });
    }
    note_unused_head(facts, tensors, tied, "lm_head.weight");
    Ok((spec, layout))
}

fn place(prefix: &str, spec: &ModelSpec, role: WeightRole) -> Place {
    let (layer, role) = match role {
        WeightRole::Embedding => return Place::whole(format!("{prefix}wte.weight")),
        WeightRole::FinalNormWeight => return Place::whole(format!("{prefix}norm_f.weight")),
        WeightRole::FinalNormBias => return Place::whole(format!("{prefix}norm_f.bias")),
        WeightRole::Head => return Place::whole("lm_head.weight"),
        WeightRole::EmbeddingNormWeight | WeightRole::EmbeddingNormBias => {
            unreachable!("MPT has no norm after the embedding")
        }
        WeightRole::Layer(layer, role) => (layer, role),
    };
    let (q, kv) = (spec.query_width(), spec.kv_width());
    let total = q + 2 * kv;
    let (query, key, value) = (
        Rows::block(0, q, total),
        Rows::block(q, kv, total),
        Rows::block(q + kv, kv, total),
    );
    let (name, rows) = match role {
        LayerRole::Norm1Weight => ("norm_1.weight", Rows::All),
        LayerRole::Norm1Bias => ("norm_1.bias", Rows::All),
        LayerRole::QueryWeight => ("attn.Wqkv.weight", query),
        LayerRole::KeyWeight => ("attn.Wqkv.weight", key),
        LayerRole::ValueWeight => ("attn.Wqkv.weight", value),
        LayerRole::QueryBias => ("attn.Wqkv.bias", query),
        LayerRole::KeyBias => ("attn.Wqkv.bias", key),
        LayerRole::ValueBias => ("attn.Wqkv.bias", value),
        LayerRole::QueryNormWeight => ("attn.q_ln.weight", Rows::All),
        LayerRole::QueryNormBias => ("attn.q_ln.bias", Rows::All),
        LayerRole::KeyNormWeight => ("attn.k_ln.weight", Rows::All),
        LayerRole::KeyNormBias => ("attn.k_ln.bias", Rows::All),
        LayerRole::OutputWeight => ("attn.out_proj.weight", Rows::All),
        LayerRole::OutputBias => ("attn.out_proj.bias", Rows::All),
        LayerRole::Norm2Weight => ("norm_2.weight", Rows::All),
        LayerRole::Norm2Bias => ("norm_2.bias", Rows::All),
        LayerRole::UpWeight => ("ffn.up_proj.weight", Rows::All),
        LayerRole::UpBias => ("ffn.up_proj.bias", Rows::All),
        LayerRole::DownWeight => ("ffn.down_proj.weight", Rows::All),
        LayerRole::DownBias => ("ffn.down_proj.bias", Rows::All),
        LayerRole::GateWeight | LayerRole::GateBias => {
            unreachable!("an MPT with a gate is refused")
        }
    };
    Place::part(format!("{prefix}blocks.{layer}.{name}"), rows)
}
