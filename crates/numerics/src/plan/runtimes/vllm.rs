//! vLLM: its paged kernel and its unified Triton kernel.

use super::{Of, base, step};
use crate::convention::{BiasForm, KeyOrigin};
use crate::format::Format::{self, F32};
use crate::plan::{BlockOrder, MaxReference, PlanName, PrecisionPlan};

/// `TILE_SIZE` of vLLM's unified kernel at prefill.
const VLLM_TRITON_KEY_BLOCK: usize = 32;

pub(super) fn vllm_paged(dtype: Format, of: Of) -> PrecisionPlan {
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

pub(super) fn vllm_triton(dtype: Format, of: Of) -> PrecisionPlan {
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
