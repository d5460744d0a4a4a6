//! Attention under a [`PrecisionPlan`]: every step rounded to the plan's formats, whole rows at a time, in f64 arithmetic. The
//! middle of the ladder of truth. Slow on purpose.

use numerics::{BiasFunction, PrecisionPlan, RowInput, emulate_row};

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
    for (head, &slope) in slopes.iter().enumerate() {
        for row in 0..s.n_queries {
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
                continue; // sees nothing
            }
            lse[head * s.n_queries + row] = emulated.max + emulated.sum.ln();
            let at = (row * s.n_heads + head) * s.head_width;
            for (c, o) in out[at..at + s.head_width].iter_mut().enumerate() {
                let products = emulated.weights.iter().enumerate().map(|(key, w)| {
                    w * f64::from(input.v.row(key, s.kv_head(head), s.head_width)[c])
                });
                let sum = plan.accumulator.round(products.sum());
                *o = plan
                    .output
                    .round(plan.accumulator.round(sum / emulated.divisor));
            }
        }
    }
    (out, lse)
}
