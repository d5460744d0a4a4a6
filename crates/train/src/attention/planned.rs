//! Attention row by row under a rule that makes weights zero: slow, every pair visited, for runs in which the number format is
//! what is studied. Zeroing beyond a gap alone goes faster, in `zeroed`.

use numerics::{BiasFunction, CapOrder, RowInput, emulate_row};
use rayon::prelude::*;

use super::zeroed::Columns;
use super::{Attention, AttentionRule};
use crate::ops::{dot, simd};

/// One head's rule, and where its bias is.
#[derive(Clone, Debug)]
pub(crate) struct RowRule<'a> {
    rule: &'a AttentionRule,
    head: usize,
    scale: f32,
    slope: f64,
    function: &'a BiasFunction,
    /// By distance; empty without a bias.
    table: &'a [f32],
    cap: Option<(f32, CapOrder)>,
}

/// The weights of one query's row.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowWeights {
    /// Weight of every key up to the query; exactly 0 where the rule says so. They sum to 1, as nearly as the plan's do.
    pub(crate) weights: Vec<f32>,
    /// Derivative of the softmax's entry by the uncapped score: 1 without a soft cap.
    pub(crate) slope_of_cap: Vec<f32>,
    /// Logarithm of the sum of exponentials, nats.
    pub(crate) lse: f32,
    raw: Vec<f64>,
}

impl<'a> RowRule<'a> {
    pub(super) fn new(attention: &Attention<'a>, head: usize) -> Self {
        let bias = attention.bias;
        let table = if bias.table.is_empty() {
            &[][..]
        } else {
            &bias.table[head * bias.distances..(head + 1) * bias.distances]
        };
        Self {
            rule: attention.rule,
            head,
            scale: attention.scale(),
            slope: bias.slopes.get(head).copied().unwrap_or(0.0),
            function: &bias.function,
            table,
            cap: bias.cap(),
        }
    }

    fn bias(&self, distance: usize) -> f32 {
        self.table.get(distance).copied().unwrap_or(0.0)
    }

    /// The bias by distance; empty without one.
    pub(super) fn table(&self) -> &'a [f32] {
        self.table
    }

    pub(super) fn scale(&self) -> f32 {
        self.scale
    }

    /// The gap beyond which weights are zero, where rows can be taken in vectors.
    fn gap(&self) -> Option<f32> {
        match self.rule {
            AttentionRule::ZeroBeyond(nats) if self.cap.is_none() => Some(*nats as f32),
            _ => None,
        }
    }

    /// Weights of query `query` over keys `0 ..= query`; `key` gives the vector of a key.
    pub(crate) fn row<'k>(
        &self,
        query: usize,
        q: &[f32],
        key: impl Fn(usize) -> &'k [f32],
        row: &mut RowWeights,
    ) {
        let n = query + 1;
        row.weights.clear();
        row.slope_of_cap.clear();
        let dots = (0..n).map(|j| {
            simd(
                #[inline(always)]
                || dot(q, key(j)),
            )
        });
        row.raw.clear();
        row.raw.extend(dots.map(f64::from));
        // The entries in f32, whatever the rule: the cap's derivative is taken there.
        for (j, &raw) in row.raw.iter().enumerate() {
            let bias = self.bias(query - j);
            let score = raw as f32 * self.scale;
            let (entry, slope) = match self.cap {
                None => (score + bias, 1.0),
                Some((cap, CapOrder::BeforeBias)) => {
                    let t = (score / cap).tanh();
                    (cap * t + bias, 1.0 - t * t)
                }
                Some((cap, CapOrder::AfterBias)) => {
                    let t = ((score + bias) / cap).tanh();
                    (cap * t, 1.0 - t * t)
                }
            };
            row.weights.push(entry);
            row.slope_of_cap.push(slope);
        }
        match self.rule {
            AttentionRule::Exact => self.zero_beyond(
                -numerics::exp_zero_threshold(numerics::Format::F32, numerics::Underflow::Gradual),
                row,
            ),
            AttentionRule::ZeroBeyond(nats) => self.zero_beyond(*nats, row),
            AttentionRule::Plan(plan) => {
                let emulated = emulate_row(
                    plan,
                    &RowInput {
                        raw_scores: &row.raw,
                        scale: f64::from(self.scale),
                        head: self.head,
                        slope: self.slope,
                        bias: self.function,
                        query,
                        causal: true,
                        length: n,
                    },
                );
                for (to, weight) in row.weights.iter_mut().zip(&emulated.weights) {
                    *to = (weight / emulated.divisor) as f32;
                }
                row.lse = (emulated.max + emulated.sum.ln()) as f32;
            }
        }
    }

    /// Softmax in f32 of the entries in `row.weights`, zero where the gap is above `nats`.
    fn zero_beyond(&self, nats: f64, row: &mut RowWeights) {
        let max = row
            .weights
            .iter()
            .copied()
            .fold(f32::NEG_INFINITY, f32::max);
        let limit = nats as f32;
        let mut sum = 0.0f64;
        for entry in &mut row.weights {
            let gap = max - *entry;
            *entry = if gap > limit { 0.0 } else { (-gap).exp() };
            sum += f64::from(*entry);
        }
        let inverse = (1.0 / sum) as f32;
        for weight in &mut row.weights {
            *weight *= inverse;
        }
        row.lse = max + sum.ln() as f32;
    }
}

/// A head's part of a packed row.
pub(crate) struct Packed<'a> {
    qkv: &'a [f32],
    first: usize,
    width: usize,
    head: usize,
    head_width: usize,
}

impl<'a> Packed<'a> {
    /// Query (0), key (1) or value (2) of row `row` of the sequence.
    pub(crate) fn part(&self, which: usize, row: usize) -> &'a [f32] {
        let at =
            (self.first + row) * 3 * self.width + which * self.width + self.head * self.head_width;
        &self.qkv[at..at + self.head_width]
    }
}

/// Gradients of one head of one sequence: `[rows, head_width]` each, and by distance.
pub(super) struct HeadGradient {
    pub(super) dq: Vec<f32>,
    pub(super) dk: Vec<f32>,
    pub(super) dv: Vec<f32>,
    pub(super) by_distance: Vec<f32>,
}

impl HeadGradient {
    pub(super) fn zeros(n: usize, w: usize) -> Self {
        Self {
            dq: vec![0.0; n * w],
            dk: vec![0.0; n * w],
            dv: vec![0.0; n * w],
            by_distance: vec![0.0; n],
        }
    }
}

impl Attention<'_> {
    pub(crate) fn packed<'q>(&self, qkv: &'q [f32], first: usize, head: usize) -> Packed<'q> {
        Packed {
            qkv,
            first,
            width: self.width(),
            head,
            head_width: self.head_width,
        }
    }

    /// (sequence, head) of every task, in a fixed order.
    fn tasks(&self) -> Vec<(usize, usize, usize)> {
        self.sequences
            .iter()
            .flat_map(|&(first, end)| (0..self.heads).map(move |head| (first, end, head)))
            .collect()
    }

    pub(super) fn forward_planned(&self, qkv: &[f32], out: &mut [f32], lse: &mut [f32]) {
        self.forward_rows(qkv, out, lse, true);
    }

    /// Row by row; whole rows in vectors where `vectors` allows it and the rule and values do.
    pub(super) fn forward_rows(
        &self,
        qkv: &[f32],
        out: &mut [f32],
        lse: &mut [f32],
        vectors: bool,
    ) {
        let (w, width) = (self.head_width, self.width());
        let tasks = self.tasks();
        let done: Vec<(Vec<f32>, Vec<f32>)> = tasks
            .par_iter()
            .map(|&(first, end, head)| {
                let rule = self.row_rule(head);
                let packed = self.packed(qkv, first, head);
                if let (true, Some(limit)) = (vectors, rule.gap())
                    && let Some(columns) = Columns::gather(&packed, end - first, w)
                {
                    return columns.forward(&rule, limit);
                }
                let mut row = RowWeights::default();
                let (mut out, mut lse) = (vec![0.0; (end - first) * w], Vec::new());
                for query in 0..end - first {
                    rule.row(
                        query,
                        packed.part(0, query),
                        |j| packed.part(1, j),
                        &mut row,
                    );
                    let to = &mut out[query * w..(query + 1) * w];
                    for (j, &p) in row.weights.iter().enumerate() {
                        // Not for speed: a zero weight times an infinite value is no NaN where the pair is left out.
                        if p != 0.0 {
                            for (to, &v) in to.iter_mut().zip(packed.part(2, j)) {
                                *to += p * v;
                            }
                        }
                    }
                    if let AttentionRule::Plan(plan) = self.rule {
                        for to in to.iter_mut() {
                            *to = plan.output.round(f64::from(*to)) as f32;
                        }
                    }
                    lse.push(row.lse);
                }
                (out, lse)
            })
            .collect();
        for (&(first, end, head), (head_out, head_lse)) in tasks.iter().zip(&done) {
            for r in 0..end - first {
                out[(first + r) * width + head * w..][..w]
                    .copy_from_slice(&head_out[r * w..(r + 1) * w]);
            }
            lse[first * self.heads + head * (end - first)..][..end - first]
                .copy_from_slice(head_lse);
        }
    }

    pub(super) fn backward_planned(
        &self,
        qkv: &[f32],
        d_out: &[f32],
        d_qkv: &mut [f32],
        d_table: Option<&mut [f32]>,
    ) {
        self.backward_rows(qkv, d_out, d_qkv, d_table, true);
    }

    /// The backward pass of [`Attention::forward_rows`].
    pub(super) fn backward_rows(
        &self,
        qkv: &[f32],
        d_out: &[f32],
        d_qkv: &mut [f32],
        d_table: Option<&mut [f32]>,
        vectors: bool,
    ) {
        let (w, width) = (self.head_width, self.width());
        let tasks = self.tasks();
        let done: Vec<HeadGradient> = tasks
            .par_iter()
            .map(|&(first, end, head)| self.head_backward(qkv, d_out, (first, end), head, vectors))
            .collect();
        for (&(first, end, head), gradient) in tasks.iter().zip(&done) {
            for r in 0..end - first {
                let row = &mut d_qkv[(first + r) * 3 * width..][..3 * width];
                let from = r * w..(r + 1) * w;
                for (part, values) in [&gradient.dq, &gradient.dk, &gradient.dv]
                    .into_iter()
                    .enumerate()
                {
                    row[part * width + head * w..][..w].copy_from_slice(&values[from.clone()]);
                }
            }
        }
        if let Some(d_table) = d_table {
            for (&(_, _, head), gradient) in tasks.iter().zip(&done) {
                let to = &mut d_table[head * self.bias.distances..];
                for (to, &d) in to.iter_mut().zip(&gradient.by_distance) {
                    *to += d;
                }
            }
        }
    }

    fn head_backward(
        &self,
        qkv: &[f32],
        d_out: &[f32],
        (first, end): (usize, usize),
        head: usize,
        vectors: bool,
    ) -> HeadGradient {
        let (w, n) = (self.head_width, end - first);
        let (rule, packed) = (self.row_rule(head), self.packed(qkv, first, head));
        let (scale, cap) = (self.scale(), self.bias.cap());
        if let (true, Some(limit)) = (vectors, rule.gap())
            && let Some(columns) = Columns::gather(&packed, n, w)
        {
            let width = self.width();
            return columns.backward(&rule, limit, |query| {
                &d_out[(first + query) * width + head * w..][..w]
            });
        }
        let mut g = HeadGradient::zeros(n, w);
        let mut row = RowWeights::default();
        let mut d_weights = Vec::new();
        for query in 0..n {
            let q = packed.part(0, query);
            rule.row(query, q, |j| packed.part(1, j), &mut row);
            let d = &d_out[(first + query) * self.width() + head * w..][..w];
            d_weights.clear();
            d_weights.extend((0..=query).map(|j| {
                simd(
                    #[inline(always)]
                    || dot(d, packed.part(2, j)),
                )
            }));
            let weighted = row.weights.iter().zip(&d_weights);
            let mean: f64 = weighted.map(|(&p, &d)| f64::from(p) * f64::from(d)).sum();
            for (j, &p) in row.weights.iter().enumerate() {
                if p == 0.0 {
                    continue;
                }
                let d_entry = p * (d_weights[j] - mean as f32);
                let d_score = d_entry * row.slope_of_cap[j];
                g.by_distance[query - j] += match cap {
                    Some((_, CapOrder::AfterBias)) => d_score,
                    _ => d_entry,
                };
                let k = packed.part(1, j);
                for c in 0..w {
                    g.dq[query * w + c] += d_score * scale * k[c];
                    g.dk[j * w + c] += d_score * scale * q[c];
                    g.dv[j * w + c] += p * d[c];
                }
            }
        }
        g
    }
}
