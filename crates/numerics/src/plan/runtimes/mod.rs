//! What each runtime does, resolved for a family and a dtype: a file for each.

mod flash_attention;
mod flex_attention;
mod llama_cpp;
mod training;
mod transformers;
mod vllm;

use flash_attention::{flash_attn2, flash_attn2_key_block};
use flex_attention::flex_attention;
use llama_cpp::llama_cpp;
use training::{foundry_torch, megatron_deepspeed};
use transformers::{hf_eager, hf_sdpa};
use vllm::{vllm_paged, vllm_triton};

use super::{
    BiasPath, BiasPlacement, ExpRule, MaxReference, PlanError, PlanName, PlanStep, PrecisionPlan,
    SlopeRule,
};
use crate::convention::{BiasConvention, Family, ScaleOrder};
use crate::format::{Format, Underflow};
use crate::threshold::exp_zero_threshold;

use Format::{F32, F64};

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
        rescale: None,
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
