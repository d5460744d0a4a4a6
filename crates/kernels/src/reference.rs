//! Attention in f64, whole rows at a time: the top of the ladder of truth. Slow on purpose.

use crate::input::{AttentionInput, CapOrder};

/// Attention of `input` in f64, the f32 inputs taken as exact. Returns `(out, lse)` with the layouts of
/// [`crate::attention`]: `[n_queries, heads * width]` and `[heads, n_queries]`.
///
/// A row that sees nothing, or whose every score is `-inf`, gives zeros and an lse of `-inf`.
pub fn attention(input: &AttentionInput<'_>) -> (Vec<f64>, Vec<f64>) {
    input.check();
    let s = input.shape;
    let mut out = vec![0.0; s.n_queries * s.n_heads * s.head_width];
    let mut lse = vec![f64::NEG_INFINITY; s.n_heads * s.n_queries];
    for head in 0..s.n_heads {
        for row in 0..s.n_queries {
            let scores = scores(input, head, row);
            let at = (row * s.n_heads + head) * s.head_width;
            lse[head * s.n_queries + row] =
                combine(input, head, &scores, &mut out[at..at + s.head_width]);
        }
    }
    (out, lse)
}

/// Scores in nats with bias and cap of every key the causal rule shows to query `row`; `-inf` for padding.
pub fn scores(input: &AttentionInput<'_>, head: usize, row: usize) -> Vec<f64> {
    let s = input.shape;
    let bias = input.bias.head(head, s.n_heads);
    (0..s.visible_keys(row))
        .map(|key| {
            if input.key_valid.is_some_and(|valid| !valid[key]) {
                return f64::NEG_INFINITY;
            }
            let raw = dot(input, head, row, key) * f64::from(s.scale);
            let b = f64::from(bias.at(s.query_offset + row, key));
            match s.soft_cap {
                None => raw + b,
                Some((cap, CapOrder::BeforeBias)) => {
                    let cap = f64::from(cap);
                    cap * (raw / cap).tanh() + b
                }
                Some((cap, CapOrder::AfterBias)) => {
                    let cap = f64::from(cap);
                    cap * ((raw + b) / cap).tanh()
                }
            }
        })
        .collect()
}

/// `q . k`, not scaled, of query `row` and key `key`.
pub fn dot(input: &AttentionInput<'_>, head: usize, row: usize, key: usize) -> f64 {
    let s = input.shape;
    let q = input.q.row(row, head, s.head_width);
    let k = input.k.row(key, s.kv_head(head), s.head_width);
    q.iter()
        .zip(k)
        .map(|(&a, &b)| f64::from(a) * f64::from(b))
        .sum()
}

/// Softmax of `scores` times the values into `out`; returns the log of the sum of exponentials.
fn combine(input: &AttentionInput<'_>, head: usize, scores: &[f64], out: &mut [f64]) -> f64 {
    let s = input.shape;
    // f64::max drops NaN; the exponentials keep it.
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let nan = scores.iter().any(|x| x.is_nan());
    if max == f64::NEG_INFINITY && !nan {
        return f64::NEG_INFINITY;
    }
    let weights: Vec<f64> = scores.iter().map(|&x| (x - max).exp()).collect();
    let sum: f64 = weights.iter().sum();
    for (key, &w) in weights.iter().enumerate() {
        if input.key_valid.is_some_and(|valid| !valid[key]) {
            continue; // hidden, so that even a NaN there stays there
        }
        let v = input.v.row(key, s.kv_head(head), s.head_width);
        for (o, &x) in out.iter_mut().zip(v) {
            *o += w * f64::from(x);
        }
    }
    for o in out.iter_mut() {
        *o /= sum;
    }
    max + sum.ln()
}
