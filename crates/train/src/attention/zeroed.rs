//! Attention with weights beyond a gap made exactly zero, a row at a time in vectors: keys and values lie by channel, so that every
//! loop runs over keys.
//!
//! The same mathematics as `planned`, whose sums have another order. It takes a rule with a gap and no soft cap, and values that are
//! finite: a zero weight times infinity would be NaN here, and is left out there.

use kernels::exp::exp_in_place;

use super::planned::{HeadGradient, Packed, RowRule};
use crate::ops::{lanes_sum, simd};

/// One head of one sequence: queries `[n, w]`, keys and values `[w, n]`.
pub(super) struct Columns {
    n: usize,
    w: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

/// Weights of one query's row.
#[derive(Default)]
struct Row {
    /// Of keys `0 ..= query`.
    weights: Vec<f32>,
    /// Keys before this one have weight 0.
    first: usize,
    lse: f32,
}

impl Columns {
    /// `None` where a value is not finite.
    pub(super) fn gather(packed: &Packed<'_>, n: usize, w: usize) -> Option<Self> {
        let mut columns = Self {
            n,
            w,
            q: vec![0.0; n * w],
            k: vec![0.0; n * w],
            v: vec![0.0; n * w],
        };
        let mut finite = true;
        for row in 0..n {
            columns.q[row * w..(row + 1) * w].copy_from_slice(packed.part(0, row));
            for (to, which) in [(&mut columns.k, 1), (&mut columns.v, 2)] {
                for (c, &x) in packed.part(which, row).iter().enumerate() {
                    to[c * n + row] = x;
                    finite &= x.is_finite();
                }
            }
        }
        (finite && columns.q.iter().all(|x| x.is_finite())).then_some(columns)
    }

    /// Weights of `query`; exactly 0 where the gap to the largest score is above `limit`.
    #[inline(always)]
    fn weigh(&self, rule: &RowRule<'_>, limit: f32, query: usize, row: &mut Row) {
        let (n, w) = (query + 1, self.w);
        row.weights.clear();
        // newest key last, at distance 0
        let newest_first = rule.table().iter().take(n);
        row.weights.extend(newest_first.rev().copied());
        row.weights.resize(n, 0.0);
        let entries = &mut row.weights[..n];
        for c in 0..w {
            let q = self.q[query * w + c] * rule.scale();
            let k = &self.k[c * self.n..c * self.n + n];
            for (entry, &k) in entries.iter_mut().zip(k) {
                *entry += q * k;
            }
        }
        let max = entries.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for entry in entries.iter_mut() {
            let gap = max - *entry;
            *entry = if gap > limit { f32::NEG_INFINITY } else { -gap };
        }
        exp_in_place(entries);
        let sum = lanes_sum(n, |j| entries[j]);
        let inverse = 1.0 / sum;
        for entry in entries.iter_mut() {
            *entry *= inverse;
        }
        row.first = entries.iter().position(|p| *p != 0.0).unwrap_or(0);
        row.lse = max + sum.ln();
    }

    /// Output `[n, w]`, and the logarithm of each row's sum.
    pub(super) fn forward(&self, rule: &RowRule<'_>, limit: f32) -> (Vec<f32>, Vec<f32>) {
        let (n, w) = (self.n, self.w);
        let (mut out, mut lse) = (vec![0.0; n * w], Vec::with_capacity(n));
        let mut row = Row::default();
        for query in 0..n {
            simd(
                #[inline(always)]
                || {
                    self.weigh(rule, limit, query, &mut row);
                    let p = &row.weights[row.first..];
                    for c in 0..w {
                        let v = &self.v[c * n + row.first..c * n + query + 1];
                        out[query * w + c] = lanes_sum(p.len(), |j| p[j] * v[j]);
                    }
                },
            );
            lse.push(row.lse);
        }
        (out, lse)
    }

    /// Gradients, given that of the output: `d(query)` is `[w]`.
    pub(super) fn backward<'d>(
        &self,
        rule: &RowRule<'_>,
        limit: f32,
        d: impl Fn(usize) -> &'d [f32],
    ) -> HeadGradient {
        let (n, w) = (self.n, self.w);
        let mut g = HeadGradient::zeros(n, w);
        let (mut dk, mut dv) = (vec![0.0; n * w], vec![0.0; n * w]);
        let mut row = Row::default();
        let mut entries: Vec<f32> = Vec::new();
        for query in 0..n {
            let d = d(query);
            simd(
                #[inline(always)]
                || {
                    self.weigh(rule, limit, query, &mut row);
                    let (first, p) = (row.first, &row.weights[row.first..]);
                    entries.clear();
                    entries.resize(p.len(), 0.0);
                    for (c, &d) in d.iter().enumerate() {
                        let v = &self.v[c * n + first..c * n + query + 1];
                        for (entry, &v) in entries.iter_mut().zip(v) {
                            *entry += d * v;
                        }
                    }
                    let mean = lanes_sum(p.len(), |j| p[j] * entries[j]);
                    // a zero weight gives exactly zero: everything here is finite
                    for (entry, &p) in entries.iter_mut().zip(p) {
                        *entry = p * (*entry - mean);
                    }
                    let near = g.by_distance[..p.len()].iter_mut();
                    for (to, &entry) in near.zip(entries.iter().rev()) {
                        *to += entry;
                    }
                    for (c, &d) in d.iter().enumerate() {
                        let at = c * n + first..c * n + query + 1;
                        let k = &self.k[at.clone()];
                        let sum = lanes_sum(p.len(), |j| entries[j] * k[j]);
                        g.dq[query * w + c] = sum * rule.scale();
                        let q = self.q[query * w + c] * rule.scale();
                        for (to, &entry) in dk[at.clone()].iter_mut().zip(&entries) {
                            *to += entry * q;
                        }
                        for (to, &p) in dv[at].iter_mut().zip(p) {
                            *to += p * d;
                        }
                    }
                },
            );
        }
        for row in 0..n {
            for c in 0..w {
                g.dk[row * w + c] = dk[c * n + row];
                g.dv[row * w + c] = dv[c * n + row];
            }
        }
        g
    }
}

#[cfg(test)]
mod tests {
    use crate::attention::{Attention, AttentionRule, Bias};
    use crate::rng::Stream;
    use numerics::BiasFunction;

    /// Both ways on the same values: equal to rounding, and exactly zero gradients where everything but the nearest keys is zeroed.
    #[test]
    fn in_vectors_and_row_by_row_agree() {
        let (heads, head_width, n) = (2, 8, 90);
        let width = heads * head_width;
        let mut stream = Stream::of(&[7]);
        let mut draw = |count: usize, size: f64| -> Vec<f32> {
            (0..count)
                .map(|_| ((stream.unit() - 0.5) * size) as f32)
                .collect()
        };
        let (qkv, d_out) = (draw(n * 3 * width, 6.0), draw(n * width, 2.0));
        let bias = Bias::new(BiasFunction::linear(), vec![0.5, 0.03125], n);
        for limit in [2.0, 17.3, 200.0] {
            let sequences = [(0, 40), (40, n)];
            let rule = AttentionRule::ZeroBeyond(limit);
            let attention = Attention {
                heads,
                head_width,
                bias: &bias,
                rule: &rule,
                sequences: &sequences,
            };
            let run = |fast: bool| {
                let (mut out, mut lse) = (vec![0.0; n * width], vec![0.0; n * heads]);
                let (mut d_qkv, mut d_table) = (vec![0.0; n * 3 * width], vec![0.0; n * heads]);
                attention.forward_rows(&qkv, &mut out, &mut lse, fast);
                attention.backward_rows(&qkv, &d_out, &mut d_qkv, Some(&mut d_table), fast);
                [out, lse, d_qkv, d_table]
            };
            let (fast, slow) = (run(true), run(false));
            for (name, (fast, slow)) in ["out", "lse", "d_qkv", "d_table"]
                .iter()
                .zip(fast.iter().zip(&slow))
            {
                let size = slow.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                for (a, b) in fast.iter().zip(slow) {
                    assert!(
                        (a - b).abs() <= 4e-6 * size,
                        "{name} at {limit}: {a} and {b} of {size}"
                    );
                }
                // what is exactly zero by rows is exactly zero in vectors
                let zeros = |x: &[f32]| x.iter().map(|x| *x == 0.0).collect::<Vec<_>>();
                if *name == "d_table" {
                    assert_eq!(zeros(fast), zeros(slow), "{limit}");
                }
            }
        }
    }
}
