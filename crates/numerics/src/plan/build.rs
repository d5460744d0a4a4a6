//! What each runtime does, resolved for a family and a dtype.

use super::{
    BiasPath, BiasPlacement, BlockOrder, ExpRule, MaxReference, PlanError, PlanName, PlanStep,
    PrecisionPlan, SlopeRule,
};
use crate::convention::{BiasConvention, BiasForm, Family, KeyOrigin, ScaleOrder};
use crate::format::{Format, Underflow};
use crate::threshold::exp_zero_threshold;

use Format::{Bf16, F16, F32, F64};

/// Keys in a block of FlashAttention-2's forward pass without dropout (`kBlockN`, flash_fwd_launch_template.h): 128 up to
/// head width 64, 64 for wider heads (128 is used at 64 on every device; wider heads vary by device between 32 and 64).
fn flash_attn2_key_block(head_width: usize) -> usize {
    if head_width <= 64 { 128 } else { 64 }
}
/// Head width assumed until [`PrecisionPlan::for_head_width`] says otherwise: that of BLOOM-560m and Falcon-RW.
const HEAD_WIDTH_DEFAULT: usize = 64;
/// `TILE_SIZE` of vLLM's unified kernel at prefill.
const VLLM_TRITON_KEY_BLOCK: usize = 32;
/// `BLOCK_N` of FlexAttention's forward template.
const FLEX_KEY_BLOCK: usize = 64;
/// `_DEFAULT_SPARSE_BLOCK_SIZE` of its block masks (torch nn/attention/flex_attention.py).
const FLEX_MASK_BLOCK: usize = 128;
/// `kvSplitSize` of PyTorch's CPU flash attention, oldest block first: confirmed by running it, see the test
/// `sdpa_blocks_as_torch_has_them`.
const SDPA_CPU_KEY_BLOCK: usize = 512;

/// Zero thresholds of PyTorch 2.15's CPU SDPA inside one block of keys, by running it on one-hot values: the vector `exp`
/// flushes a little before the smallest normal. In bf16 the mask is on a grid of 0.5 there, so the value is the middle of the
/// step; it is above the f32 one because bf16 has an `exp` of its own.
const SDPA_CPU_F32_ZERO_BELOW: f64 = -86.99;
const SDPA_CPU_BF16_ZERO_BELOW: f64 = -87.25;

/// `FATTN_KQ_MAX_OFFSET`, `3 ln 2`: keeps the half accumulator from overflowing (llama.cpp fattn-common.cuh).
const LLAMA_CUDA_MAX_OFFSET: f64 = 3.0 * std::f64::consts::LN_2;

fn derived(format: Format, underflow: Underflow) -> ExpRule {
    ExpRule {
        format,
        underflow,
        zero_below: exp_zero_threshold(format, underflow),
        source: match underflow {
            Underflow::Gradual => "derived: ln(smallest subnormal / 2)",
            Underflow::Flush => "derived: ln(smallest normal)",
        },
    }
}

fn step(what: &'static str, format: Format, source: &'static str) -> PlanStep {
    PlanStep {
        what,
        format,
        source,
    }
}

impl PrecisionPlan {
    /// The plan of a runtime for a family and dtype; the key is `NAME:DTYPE`.
    ///
    /// # Errors
    /// A family the runtime rejects.
    pub fn build(name: PlanName, dtype: Format, family: Family) -> Result<Self, PlanError> {
        let convention = family.convention();
        Self::build_of(name, dtype, Of { family, convention })
    }

    /// This plan for a model whose bias is formed otherwise than its family's: a described decoder says how. Idealised plans follow
    /// the model; a runtime of a known family has its own form, and one of [`Family::Custom`] does with the description what it does
    /// with such a family. Other changes of a plan come after this one.
    #[must_use]
    pub fn with_model_convention(self, family: Family, convention: &BiasConvention) -> Self {
        if !(self.idealised || family == Family::Custom) {
            return self;
        }
        let convention = *convention;
        match Self::build_of(self.name, self.dtype, Of { family, convention }) {
            Ok(plan) => Self {
                key: self.key,
                ..plan
            },
            // What refuses a family has refused to build this plan.
            Err(_) => self,
        }
    }

    fn build_of(name: PlanName, dtype: Format, of: Of) -> Result<Self, PlanError> {
        let mut plan = match name {
            PlanName::F64 | PlanName::Ieee | PlanName::Ftz => idealised(name, dtype, of),
            PlanName::HfEager => hf_eager(dtype, of),
            PlanName::HfSdpa => hf_sdpa(dtype, of),
            PlanName::FlashAttn2 => flash_attn2(dtype, of),
            PlanName::VllmPaged => vllm_paged(dtype, of),
            PlanName::VllmTriton => vllm_triton(dtype, of),
            PlanName::LlamaCppCpu => llama_cpp(name, dtype, of)?,
            PlanName::LlamaCppCudaFa => llama_cpp(name, dtype, of)?,
            PlanName::FoundryTorch => foundry_torch(dtype, of),
            PlanName::FlexAttention => flex_attention(dtype, of),
            PlanName::MegatronDeepspeed => megatron_deepspeed(dtype, of),
        };
        plan.key = format!("{}:{}", name.name(), dtype.name());
        Ok(plan)
    }

    /// This plan for heads of `head_width` columns: FlashAttention-2 chooses its key block by it, and the running maximum
    /// that its casts refer to moves in such blocks. No other plan changes.
    #[must_use]
    pub fn for_head_width(mut self, head_width: usize) -> Self {
        if let (PlanName::FlashAttn2, MaxReference::Running { key_block, .. }) =
            (self.name, &mut self.max_reference)
        {
            *key_block = flash_attn2_key_block(head_width);
        }
        self
    }
}

/// What a plan is for.
#[derive(Clone, Copy)]
struct Of {
    family: Family,
    convention: BiasConvention,
}

/// Everything in f32, final maximum, `exp` gradual, nothing cast: the base that the builders edit.
fn base(name: PlanName, dtype: Format, of: Of) -> PrecisionPlan {
    let convention = of.convention;
    let placement = match convention.scale_order {
        ScaleOrder::BiasAfterScale => BiasPlacement::AfterScale,
        ScaleOrder::BiasBeforeScale => BiasPlacement::SlopeTimesScale,
    };
    PrecisionPlan {
        name,
        dtype,
        slope: F32,
        bias: BiasPath {
            form: convention.form,
            origin: convention.key_origin,
            position: F32,
            product: F32,
            storage: F32,
        },
        idealised: false,
        raw_score: F32,
        scaled: F32,
        scale_order: convention.scale_order,
        placement,
        bias_multiplicity: 1,
        slope_rule: SlopeRule::CONFIGURED,
        sum: F32,
        max_reference: MaxReference::Final,
        max_offset: 0.0,
        exp: derived(F32, Underflow::Gradual),
        normalise_before_cast: None,
        probability: dtype,
        probability_underflow: Underflow::Gradual,
        accumulator: F32,
        output: dtype,
        steps: Vec::new(),
        key: String::new(),
    }
}

fn idealised(name: PlanName, dtype: Format, of: Of) -> PrecisionPlan {
    let underflow = if name == PlanName::Ftz {
        Underflow::Flush
    } else {
        Underflow::Gradual
    };
    let wide = if dtype == F64 { F64 } else { F32 };
    let here = "this plan's definition";
    // The form only matters for the collapse counts, which are about the bias as the family itself stores it.
    let convention = of.convention;
    PrecisionPlan {
        slope: wide,
        bias: BiasPath {
            form: convention.form,
            origin: convention.key_origin,
            position: wide,
            product: wide,
            storage: dtype,
        },
        idealised: true,
        raw_score: F64,
        scaled: F64,
        sum: F64,
        exp: derived(dtype, underflow),
        probability: dtype,
        probability_underflow: underflow,
        accumulator: wide,
        steps: vec![
            step("score: q.k * scale + bias, exact", F64, here),
            step(
                "bias, for collapse counts only: slope * position in the family's form, then cast",
                dtype,
                here,
            ),
            step("numerator: exp(score - row maximum)", dtype, here),
            step(
                "weights: the numerators; the row's sum divides the output",
                dtype,
                here,
            ),
        ],
        ..base(name, dtype, of)
    }
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

fn hf_eager(dtype: Format, of: Of) -> PrecisionPlan {
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

fn hf_sdpa(dtype: Format, of: Of) -> PrecisionPlan {
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
            zero_below: SDPA_CPU_BF16_ZERO_BELOW,
            source: "measured: torch 2.15 CPU SDPA, bf16",
        },
        _ => ExpRule {
            format: F32,
            underflow: Underflow::Flush,
            zero_below: SDPA_CPU_F32_ZERO_BELOW,
            source: "measured: torch 2.15 CPU SDPA, f32",
        },
    };
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

fn flash_attn2(dtype: Format, of: Of) -> PrecisionPlan {
    let mut plan = base(PlanName::FlashAttn2, dtype, of);
    plan.bias.form = BiasForm::KeyPosition;
    plan.bias.origin = KeyOrigin::Zero;
    plan.placement = match plan.scale_order {
        ScaleOrder::BiasAfterScale => BiasPlacement::SlopeOverScale,
        ScaleOrder::BiasBeforeScale => BiasPlacement::BeforeScale,
    };
    plan.exp = derived(F32, Underflow::Flush);
    plan.max_reference = MaxReference::Running {
        key_block: flash_attn2_key_block(HEAD_WIDTH_DEFAULT),
        order: BlockOrder::NewestFirst,
    };
    plan.steps = vec![
        step(
            "slope, divided by the attention scale on entry",
            F32,
            "flash-attention csrc/flash_attn/src/alibi.h",
        ),
        step("q.k", F32, "flash_fwd_kernel.h, tensor core accumulator"),
        step(
            "plus slope * key (causal), minus slope * |i - j| (not causal)",
            F32,
            "flash-attention csrc/flash_attn/src/alibi.h, apply_alibi",
        ),
        step(
            "numerator: exp2 of scaled score minus running maximum, flushed",
            F32,
            "softmax.h, scale_apply_exp2",
        ),
        step(
            "numerator cast for the product with V; blocks newest to oldest",
            dtype,
            "flash_fwd_kernel.h",
        ),
        step(
            "accumulator, scaled down when the maximum rises; divided at the end",
            F32,
            "softmax.h, softmax_rescale_o",
        ),
    ];
    plan
}

fn vllm_paged(dtype: Format, of: Of) -> PrecisionPlan {
    let mut plan = base(PlanName::VllmPaged, dtype, of);
    plan.bias.form = BiasForm::Relative;
    plan.normalise_before_cast = Some(F32);
    let source = "vllm csrc/attention/attention_kernels.cuh";
    plan.steps = vec![
        step(
            "slope (times the attention scale where the family scales its bias)",
            F32,
            "vllm model code",
        ),
        step("bias: slope * (key - context length + 1)", F32, source),
        step("q.k * scale + bias", F32, source),
        step("numerator: __expf of score minus row maximum", F32, source),
        step("numerator / (sum + 1e-6)", F32, source),
        step("probability", dtype, source),
    ];
    plan
}

fn vllm_triton(dtype: Format, of: Of) -> PrecisionPlan {
    let mut plan = base(PlanName::VllmTriton, dtype, of);
    plan.bias.form = BiasForm::KeyPosition;
    plan.bias.origin = KeyOrigin::Zero;
    plan.max_reference = MaxReference::Running {
        key_block: VLLM_TRITON_KEY_BLOCK,
        order: BlockOrder::OldestFirst,
    };
    let source = "vllm v1/attention/ops/triton_unified_attention.py";
    plan.steps = vec![
        step(
            "slope (times the attention scale where the family scales its bias)",
            F32,
            "vllm model code",
        ),
        step(
            "scale * q.k, plus slope * (key - context length)",
            F32,
            source,
        ),
        step(
            "numerator: exp of score minus running maximum; tiles oldest to newest",
            F32,
            source,
        ),
        step("numerator cast to the dtype of V", dtype, source),
        step(
            "accumulator, scaled down when the maximum rises; divided at the end",
            F32,
            source,
        ),
    ];
    plan
}

fn llama_cpp(name: PlanName, dtype: Format, of: Of) -> Result<PrecisionPlan, PlanError> {
    if of.family == Family::Falcon {
        return Err(PlanError::new(format!(
            "precision plan {}: llama.cpp refuses Falcon models with ALiBi; use hf-sdpa, hf-eager or vllm-triton",
            name.name()
        )));
    }
    let mut plan = base(name, dtype, of);
    plan.bias.form = BiasForm::Relative;
    plan.output = F32;
    if name == PlanName::LlamaCppCpu {
        plan.normalise_before_cast = Some(F32);
        let source = "llama.cpp ggml-cpu/ops.cpp, ggml_compute_forward_soft_max_f32";
        plan.steps = vec![
            step("slope, powf", F32, source),
            step("score * scale + slope * mask, mask = -|i - j|", F32, source),
            step("numerator and quotient", F32, source),
            step(
                "probability cast to the type of the V cache",
                dtype,
                "llama.cpp ggml-cpu.c, ggml_compute_forward_mul_mat (vec_dot type of V)",
            ),
        ];
    } else {
        // The mask is stored in f16: exact to 2048, infinite from 65520.
        plan.bias.position = F16;
        plan.max_offset = LLAMA_CUDA_MAX_OFFSET;
        plan.exp = derived(F32, Underflow::Gradual);
        let source = "llama.cpp ggml-cuda/fattn-mma-f16.cuh";
        plan.steps = vec![
            step(
                "mask = -|i - j|",
                F16,
                "llama.cpp, flash attention takes an f16 mask",
            ),
            step("score * scale + slope * mask", F32, source),
            step(
                "numerator: exp(score - maximum - 3 ln 2)",
                F32,
                "llama.cpp ggml-cuda/fattn-common.cuh, FATTN_KQ_MAX_OFFSET",
            ),
            step(
                "numerator cast for the product with V. Modelled against the row's own maximum: the f16 accumulator loses what lies further below it",
                F16,
                source,
            ),
        ];
    }
    Ok(plan)
}

fn foundry_torch(dtype: Format, of: Of) -> PrecisionPlan {
    let mut plan = base(PlanName::FoundryTorch, dtype, of);
    plan.normalise_before_cast = Some(F32);
    plan.raw_score = dtype;
    plan.scaled = dtype;
    if plan.bias.form == BiasForm::KeyPosition {
        plan.bias.origin = KeyOrigin::LengthEnd;
    }
    let source = "llm-foundry models/layers/attention.py, scaled_multihead_dot_product_attention";
    plan.steps = vec![
        step(
            "bias: slope * (key - (length - 1))",
            F32,
            "llm-foundry attention.py, build_alibi_bias",
        ),
        step("q.k, then * scale", dtype, source),
        step("plus the f32 bias", F32, source),
        step("numerator and quotient", F32, source),
        step("probability cast to the dtype of V", dtype, source),
    ];
    plan
}

fn flex_attention(dtype: Format, of: Of) -> PrecisionPlan {
    let mut plan = base(PlanName::FlexAttention, dtype, of);
    plan.bias.form = BiasForm::Relative;
    // The template goes over two lists: blocks that the mask cuts through, with those of an incomplete last row of squares, which
    // `_convert_mask_to_block_mask` pads with hidden pairs; then those that it leaves whole.
    plan.max_reference = MaxReference::Running {
        key_block: FLEX_KEY_BLOCK,
        order: BlockOrder::MaskedFirst {
            mask_block: FLEX_MASK_BLOCK,
        },
    };
    plan.exp = derived(F32, Underflow::Flush);
    let source = "torch _inductor/kernel/flex_attention.py, forward template";
    plan.steps = vec![
        step("q.k * scale", F32, source),
        step(
            "score_mod: plus slope * (key - query)",
            F32,
            "attention-gym mods/alibi.py",
        ),
        step(
            "numerator: exp2 of score minus running maximum; partly masked blocks first",
            F32,
            source,
        ),
        step("numerator cast to the dtype of Q", dtype, source),
        step(
            "accumulator, scaled down when the maximum rises; divided at the end",
            F32,
            source,
        ),
    ];
    plan
}

fn megatron_deepspeed(dtype: Format, of: Of) -> PrecisionPlan {
    let mut plan = base(PlanName::MegatronDeepspeed, dtype, of);
    if plan.bias.form == BiasForm::KeyPosition {
        plan.bias.origin = KeyOrigin::Zero;
    }
    plan.normalise_before_cast = Some(F32);
    plan.bias.storage = dtype;
    plan.sum = dtype;
    let source = "bigscience Megatron-DeepSpeed megatron/model/transformer.py";
    plan.steps = vec![
        step("slope times arange, then the table is cast", dtype, source),
        step(
            "baddbmm: score * scale + bias, rounded once (query-key layer scaling undone in the softmax)",
            dtype,
            source,
        ),
        step(
            "numerator and quotient",
            F32,
            "megatron/fused_kernels/scaled_masked_softmax.h",
        ),
        step(
            "probability",
            dtype,
            "megatron/fused_kernels/scaled_masked_softmax.h",
        ),
    ];
    plan
}
