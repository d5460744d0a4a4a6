//! FlashAttention-2.

use super::{Of, base, derived, step};
use crate::convention::{BiasForm, KeyOrigin, ScaleOrder};
use crate::format::Format::{self, F32};
use crate::format::Underflow;
use crate::plan::{BiasPlacement, BlockOrder, MaxReference, PlanName, PrecisionPlan};

/// Head width assumed until [`PrecisionPlan::for_head_width`] says otherwise: that of BLOOM-560m and Falcon-RW.
const HEAD_WIDTH_DEFAULT: usize = 64;

/// Keys in a block of FlashAttention-2's forward pass without dropout (`kBlockN`, flash_fwd_launch_template.h): 128 up to
/// head width 64, 64 for wider heads (128 is used at 64 on every device; wider heads vary by device between 32 and 64).
pub(super) fn flash_attn2_key_block(head_width: usize) -> usize {
    if head_width <= 64 { 128 } else { 64 }
}

pub(super) fn flash_attn2(dtype: Format, of: Of) -> PrecisionPlan {
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
