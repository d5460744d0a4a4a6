//! PyTorch's FlexAttention, the template that is compiled for GPUs.

use super::{Of, base, derived, step};
use crate::convention::BiasForm;
use crate::format::Format::{self, F32};
use crate::format::Underflow;
use crate::plan::{BlockOrder, MaxReference, PlanName, PrecisionPlan};

/// `BLOCK_N` of FlexAttention's forward template.
const FLEX_KEY_BLOCK: usize = 64;
/// `_DEFAULT_SPARSE_BLOCK_SIZE` of its block masks (torch nn/attention/flex_attention.py).
const FLEX_MASK_BLOCK: usize = 128;

pub(super) fn flex_attention(dtype: Format, of: Of) -> PrecisionPlan {
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
