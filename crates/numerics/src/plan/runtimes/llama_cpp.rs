//! llama.cpp: ggml on the CPU, and its CUDA flash attention.

use super::{Of, base, derived, step};
use crate::convention::{BiasForm, Family};
use crate::format::Format::{self, F16, F32};
use crate::format::Underflow;
use crate::plan::{PlanError, PlanName, PrecisionPlan};

/// `FATTN_KQ_MAX_OFFSET`, `3 ln 2`: keeps the half accumulator from overflowing (llama.cpp fattn-common.cuh).
const LLAMA_CUDA_MAX_OFFSET: f64 = 3.0 * std::f64::consts::LN_2;

pub(super) fn llama_cpp(name: PlanName, dtype: Format, of: Of) -> Result<PrecisionPlan, PlanError> {
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
