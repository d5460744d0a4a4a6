//! Hugging Face transformers: eager attention as each family's code has it, and PyTorch's SDPA on the CPU.

use super::{Of, base, derived, step};
use crate::convention::{BiasForm, Family, KeyOrigin, ScaleOrder};
use crate::format::Format::{self, Bf16, F32};
use crate::format::Underflow;
use crate::plan::{
    BiasPath, BiasPlacement, BlockOrder, ExpRule, MaxReference, PlanName, PrecisionPlan,
};

/// `kvSplitSize` of PyTorch's CPU flash attention, oldest block first: confirmed by running it, see the test
/// `sdpa_blocks_as_torch_has_them`.
const SDPA_CPU_KEY_BLOCK: usize = 512;

/// Zero thresholds of PyTorch 2.15's CPU SDPA inside one block of keys, by running it on one-hot values: the vector `exp`
/// flushes a little before the smallest normal in f32 (gap 86.988 is seen, 86.992 is not); in bf16, which has an `exp` of its own, at
/// the smallest normal itself (87.3359 is seen, 87.3398 is not, `ln 2^-126` is -87.3365).
const SDPA_CPU_F32_ZERO_BELOW: f64 = -86.99;

pub(super) fn hf_eager(dtype: Format, of: Of) -> PrecisionPlan {
    let mut plan = base(PlanName::HfEager, dtype, of);
    plan.normalise_before_cast = Some(F32);
    plan.accumulator = F32;
    let softmax_source;
    match of.family {
        Family::Bloom => {
            plan.bias.storage = dtype;
            plan.sum = dtype;
            let source = "transformers modeling_bloom.py, build_alibi_tensor";
            plan.steps.push(step("slope", F32, source));
            plan.steps.push(step(
                "bias: slope * (running sum of the mask - 1), then cast",
                dtype,
                source,
            ));
            plan.steps.push(step(
                "baddbmm: score * scale + bias, rounded once",
                dtype,
                "transformers modeling_bloom.py, BloomAttention.forward",
            ));
            softmax_source =
                "transformers modeling_bloom.py: softmax(dtype=float32).to(input dtype)";
        }
        Family::Refact => {
            plan.sum = dtype;
            let source = "smallcloudai modeling_gpt_refact.py, attention_bias_in_fp32";
            plan.steps
                .push(step("bias: slope * running sum of the mask", F32, source));
            plan.steps
                .push(step("baddbmm in f32, then cast back", dtype, source));
            softmax_source = "modeling_gpt_refact.py, attention_softmax_in_fp32";
        }
        Family::Falcon => {
            plan.placement = BiasPlacement::BeforeScale;
            plan.bias_multiplicity = 2;
            plan.raw_score = dtype;
            plan.sum = dtype;
            falcon_bias(&mut plan);
            let source = "transformers modeling_falcon.py, FalconAttention.forward (eager)";
            plan.steps.push(step("q.k", dtype, source));
            plan.steps.push(step("(q.k + bias) * scale", F32, source));
            plan.steps.push(step(
                "plus the mask, which holds bias * scale again: the bias counts twice",
                F32,
                "transformers 4.45 to 5.24, FalconModel._update_causal_mask",
            ));
            plan.steps.push(step(
                "cast to the hidden dtype by softmax(dtype=...)",
                dtype,
                source,
            ));
            softmax_source = "torch softmax: f32 inside, one rounding out";
        }
        Family::Baichuan => {
            plan.bias.storage = dtype;
            plan.raw_score = dtype;
            plan.scaled = dtype;
            plan.sum = dtype;
            let source =
                "baichuan-inc modeling_baichuan.py, _gen_alibi_mask and BaichuanAttention.forward";
            plan.steps
                .push(step("bias: slope * position, then cast", dtype, source));
            plan.steps
                .push(step("q.k, then * scale, then + bias", dtype, source));
            softmax_source = "softmax in the model's dtype: f32 inside, one rounding out";
        }
        Family::Jais => {
            plan.slope = dtype;
            plan.bias.position = dtype;
            plan.bias.product = dtype;
            plan.bias.storage = dtype;
            plan.raw_score = dtype;
            plan.scaled = dtype;
            plan.sum = dtype;
            let source = "core42 modeling_jais.py, AlibiPositionEmbeddingLayer and _attn";
            plan.steps.push(step(
                "slope: a parameter in the model's dtype",
                dtype,
                source,
            ));
            plan.steps.push(step(
                "bias: slope * |j - i|, both in the model's dtype",
                dtype,
                source,
            ));
            plan.steps
                .push(step("q.k, then / width^p, then + bias", dtype, source));
            softmax_source = "softmax in the model's dtype: f32 inside, one rounding out";
        }
        Family::JinaBert => {
            plan.bias.storage = dtype;
            plan.raw_score = dtype;
            plan.scaled = dtype;
            plan.sum = dtype;
            let source = "jinaai modeling_bert.py, rebuild_alibi_tensor and JinaBertSelfAttention";
            plan.steps.push(step(
                "bias: -slope * |i - j| in f32; a 16-bit model's buffer is cast with it",
                dtype,
                source,
            ));
            plan.steps
                .push(step("q.k, then / sqrt(width), then + bias", dtype, source));
            softmax_source = "softmax in the dtype of the sum: f32 inside, one rounding out";
        }
        Family::Mpt | Family::Replit | Family::MosaicBert | Family::Custom => {
            plan.raw_score = dtype;
            plan.scaled = dtype;
            let source = match of.family {
                Family::Mpt => {
                    "transformers modeling_mpt.py, build_mpt_alibi_tensor and MptAttention.forward"
                }
                Family::Replit => "replit-code-v1_5 attention.py (llm-foundry)",
                Family::MosaicBert => "mosaic-bert bert_layers.py, torch path",
                _ => {
                    "no upstream code: the plain eager form, as MPT's, with the model's own bias form"
                }
            };
            plan.steps.push(step("bias: slope * position", F32, source));
            match plan.scale_order {
                ScaleOrder::BiasAfterScale => {
                    plan.steps.push(step("q.k, then * scale", dtype, source));
                    plan.steps.push(step("plus the f32 bias", F32, source));
                }
                ScaleOrder::BiasBeforeScale => {
                    plan.placement = BiasPlacement::BeforeScale;
                    plan.steps.push(step("q.k", dtype, source));
                    plan.steps.push(step("(q.k + bias) * scale", F32, source));
                }
            }
            softmax_source = "softmax of the f32 sum, then cast to the dtype of V";
        }
    }
    plan.steps
        .push(step("numerator and quotient", F32, softmax_source));
    plan.steps.push(step("probability", dtype, softmax_source));
    plan
}

pub(super) fn hf_sdpa(dtype: Format, of: Of) -> PrecisionPlan {
    let mut plan = base(PlanName::HfSdpa, dtype, of);
    plan.bias.storage = dtype;
    if of.family == Family::Falcon {
        falcon_bias(&mut plan);
        plan.placement = BiasPlacement::StoredTimesScale;
        plan.steps.push(step(
            "mask: bias / sqrt(head width)",
            dtype,
            "transformers modeling_falcon.py, FalconModel (sdpa)",
        ));
    } else if plan.scale_order == ScaleOrder::BiasBeforeScale {
        plan.placement = BiasPlacement::StoredTimesScale;
        plan.steps.push(step(
            "mask: bias * scale in the model's dtype",
            dtype,
            "no upstream code: as Falcon's mask in transformers, with the model's own bias form",
        ));
    } else {
        plan.steps.push(step(
            "mask: bias in the model's dtype",
            dtype,
            "transformers ships SDPA with ALiBi for Falcon only; this is what passing the bias as attn_mask computes",
        ));
    }
    let source = "torch aten/native/cpu/FlashAttentionKernel.cpp, run on the CPU";
    plan.exp = match dtype {
        Bf16 => ExpRule {
            format: F32,
            underflow: Underflow::Flush,
            source: "measured: torch 2.15 CPU SDPA, bf16",
            ..derived(F32, Underflow::Flush)
        },
        _ => ExpRule {
            format: F32,
            underflow: Underflow::Flush,
            zero_below: SDPA_CPU_F32_ZERO_BELOW,
            source: "measured: torch 2.15 CPU SDPA, f32",
        },
    };
    // One scalar `std::exp` a row and block, where numerators take the vector form: measured on torch 2.15, whose first block leaves
    // subnormal weights of 2.8e-42 after a rise of 95 nats.
    plan.rescale = Some(derived(F32, Underflow::Gradual));
    plan.max_reference = MaxReference::Running {
        key_block: SDPA_CPU_KEY_BLOCK,
        order: BlockOrder::OldestFirst,
    };
    plan.steps.push(step("q.k * scale + mask", F32, source));
    plan.steps
        .push(step("numerator: vector exp, flushes to zero", F32, source));
    plan.steps.push(step(
        "numerator cast for the product with V; divided at the end",
        dtype,
        source,
    ));
    plan
}

/// Falcon's alibi tensor: bf16 slope times bf16 position in bf16 whatever the dtype, then cast.
fn falcon_bias(plan: &mut PrecisionPlan) {
    plan.slope = Bf16;
    plan.bias = BiasPath {
        form: BiasForm::KeyPosition,
        origin: KeyOrigin::Zero,
        position: Bf16,
        product: Bf16,
        storage: plan.dtype,
    };
    plan.steps.push(step(
        "bias: bf16(bf16(slope) * bf16(position)), then cast",
        plan.dtype,
        "transformers modeling_falcon.py, build_alibi_tensor",
    ));
}
