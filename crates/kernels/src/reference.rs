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

/// Gradients in f64, packed.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceGradients {
    /// `[n_queries, n_heads * head_width]`
    pub dq: Vec<f64>,
    /// `[n_keys, n_kv_heads * head_width]`
    pub dk: Vec<f64>,
    /// `[n_keys, n_kv_heads * head_width]`
    pub dv: Vec<f64>,
    /// `[n_heads, max_distance + 1]`: of a bias by distance.
    pub dbias: Vec<f64>,
}

/// Gradients of `sum(out * d_out)` in f64, by the textbook formulas; `d_out` is `[n_queries, n_heads * head_width]`.
pub fn attention_backward(input: &AttentionInput<'_>, d_out: &[f32]) -> ReferenceGradients {
    backward(input, d_out, |x| x)
}

/// The sums of [`attention_backward`] over the absolute values of their terms, caps taken as 1: what rounding errors of the
/// gradients are relative to.
pub fn attention_backward_magnitudes(
    input: &AttentionInput<'_>,
    d_out: &[f32],
) -> ReferenceGradients {
    backward(input, d_out, f64::abs)
}

/// `term` is the identity, or the absolute value.
fn backward(input: &AttentionInput<'_>, d_out: &[f32], term: fn(f64) -> f64) -> ReferenceGradients {
    let s = input.shape;
    let (width, distances) = (s.head_width, input.max_distance() + 1);
    let signed = term(-1.0) < 0.0;
    let mut to = ReferenceGradients {
        dq: vec![0.0; s.n_queries * s.n_heads * width],
        dk: vec![0.0; s.n_keys * s.n_kv_heads * width],
        dv: vec![0.0; s.n_keys * s.n_kv_heads * width],
        dbias: vec![0.0; s.n_heads * distances],
    };
    for head in 0..s.n_heads {
        for row in 0..s.n_queries {
            let scores = scores(input, head, row);
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if max == f64::NEG_INFINITY {
                continue; // sees nothing
            }
            let sum: f64 = scores.iter().map(|x| (x - max).exp()).sum();
            let p: Vec<f64> = scores.iter().map(|x| (x - max).exp() / sum).collect();
            let at = (row * s.n_heads + head) * width;
            let g = &d_out[at..at + width];
            let kv = |key: usize| (key * s.n_kv_heads + s.kv_head(head)) * width;
            let dp: Vec<f64> = (0..p.len())
                .map(|key| {
                    let v = input.v.row(key, s.kv_head(head), width);
                    let products = g
                        .iter()
                        .zip(v)
                        .map(|(&g, &v)| term(f64::from(g) * f64::from(v)));
                    if p[key] == 0.0 { 0.0 } else { products.sum() }
                })
                .collect();
            let delta: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
            for key in (0..p.len()).filter(|&key| p[key] != 0.0) {
                let mut ds = p[key]
                    * if signed {
                        dp[key] - delta
                    } else {
                        dp[key] + delta
                    };
                let slope = |y: f64, cap: f32| {
                    if signed {
                        1.0 - (y / f64::from(cap)).powi(2)
                    } else {
                        1.0
                    }
                };
                if let Some((cap, CapOrder::AfterBias)) = s.soft_cap {
                    ds *= slope(scores[key], cap);
                }
                let query = s.query_offset + row;
                to.dbias[head * distances + query.abs_diff(key)] += ds;
                if let Some((cap, CapOrder::BeforeBias)) = s.soft_cap {
                    let bias = f64::from(input.bias.head(head, s.n_heads).at(query, key));
                    ds *= slope(scores[key] - bias, cap);
                }
                ds *= f64::from(s.scale);
                let q = input.q.row(row, head, width);
                let k = input.k.row(key, s.kv_head(head), width);
                for c in 0..width {
                    to.dq[at + c] += term(ds * f64::from(k[c]));
                    to.dk[kv(key) + c] += term(ds * f64::from(q[c]));
                    to.dv[kv(key) + c] += term(p[key] * f64::from(g[c]));
                }
            }
        }
    }
    to
}
