//! Attention under a [`PrecisionPlan`]: every step rounded to the plan's formats, whole rows at a time, in f64 arithmetic. The
//! middle of the ladder of truth. Slow on purpose.

use numerics::{BiasFunction, PrecisionPlan, RowInput, emulate_row};
use rayon::prelude::*;

use crate::input::AttentionInput;

/// Attention of `input` as `plan` computes it. Returns `(out, lse)` with the layouts of [`crate::attention`]:
/// `[n_queries, heads * width]` and `[heads, n_queries]`.
///
/// The plan forms the bias itself, from `slopes` (one a head) and `bias`, with its own roundings: `input.bias` and
/// `input.shape.soft_cap` are not read. q, k and v are taken as they are; round them to the plan's dtype first where that
/// matters. Sums over channels and keys are exact and rounded once (see [`numerics::emulate_row`]).
///
/// # Panics
/// If the sizes disagree, or if `input.key_valid` hides a key: padding is not emulated.
pub fn attention(
    input: &AttentionInput<'_>,
    plan: &PrecisionPlan,
    slopes: &[f64],
    bias: &BiasFunction,
) -> (Vec<f64>, Vec<f64>) {
    input.check();
    let s = input.shape;
    assert!(
        slopes.len() == s.n_heads,
        "{} slopes for {} heads",
        slopes.len(),
        s.n_heads
    );
    assert!(
        input.key_valid.is_none_or(|valid| !valid.contains(&false)),
        "padding is not emulated"
    );
    let mut out = vec![0.0; s.n_queries * s.n_heads * s.head_width];
    let mut lse = vec![f64::NEG_INFINITY; s.n_heads * s.n_queries];
    let rows = out.par_chunks_mut(s.n_heads * s.head_width).enumerate();
    let row_lse: Vec<Vec<f64>> = rows
        .map(|(row, out)| {
            let heads = slopes.iter().enumerate().zip(out.chunks_mut(s.head_width));
            heads
                .map(|((head, &slope), out)| one_row(input, plan, bias, head, slope, row, out))
                .collect()
        })
        .collect();
    for (row, heads) in row_lse.iter().enumerate() {
        for (head, &value) in heads.iter().enumerate() {
            lse[head * s.n_queries + row] = value;
        }
    }
    (out, lse)
}

/// One query of one head into `out`, `[head width]`; gives the logarithm of its sum.
fn one_row(
    input: &AttentionInput<'_>,
    plan: &PrecisionPlan,
    bias: &BiasFunction,
    head: usize,
    slope: f64,
    row: usize,
    out: &mut [f64],
) -> f64 {
    let s = input.shape;
    let raw_scores: Vec<f64> = (0..s.visible_keys(row))
        .map(|key| crate::reference::dot(input, head, row, key))
        .collect();
    let emulated = emulate_row(
        plan,
        &RowInput {
            raw_scores: &raw_scores,
            scale: f64::from(s.scale),
            head,
            slope,
            bias,
            query: s.query_offset + row,
            causal: s.causal,
            length: s.n_keys,
        },
    );
    if emulated.sum == 0.0 {
        return f64::NEG_INFINITY; // sees nothing
    }
    for (c, o) in out.iter_mut().enumerate() {
        let products = emulated
            .weights
            .iter()
            .enumerate()
            .map(|(key, w)| w * f64::from(input.v.row(key, s.kv_head(head), s.head_width)[c]));
        let sum = plan.accumulator.round(products.sum());
        *o = plan
            .output
            .round(plan.accumulator.round(sum / emulated.divisor));
    }
    emulated.max + emulated.sum.ln()
}
