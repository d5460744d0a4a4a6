//! Code that models were trained with: llm-foundry and Megatron-DeepSpeed.

use super::{Of, base, step};
use crate::convention::{BiasForm, KeyOrigin};
use crate::format::Format::{self, F32};
use crate::plan::{PlanName, PrecisionPlan};

pub(super) fn foundry_torch(dtype: Format, of: Of) -> PrecisionPlan {
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

pub(super) fn megatron_deepspeed(dtype: Format, of: Of) -> PrecisionPlan {
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
