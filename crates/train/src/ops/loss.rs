//! Output projection and cross-entropy together, a few rows at a time, so that logits never exist whole.

use kernels::exp::exp_in_place;
use kernels::matrix::{Matrix, Store, multiply};
use rayon::prelude::*;

use super::{each_rows, lanes_sum, simd};

/// Logits held at a time, values: 16 MiB stay in a large cache from the product that makes them to the two that read them.
const LOGITS: usize = 4 * 1024 * 1024;
/// With a large vocabulary those are so few rows that reading its weights and their gradients counts: then this many rows,
const ROWS: usize = 512;
/// but never more values than these (64 MiB).
const LOGITS_MAX: usize = 16 * 1024 * 1024;

/// Rows of logits that [`head_loss`] holds at a time.
pub(crate) fn logit_rows(rows: usize, vocab: usize) -> usize {
    let most = ROWS.min(LOGITS_MAX / vocab);
    (LOGITS / vocab).max(most).clamp(1, rows.max(1))
}

/// What [`head_loss`] reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadInput<'a> {
    /// `[rows, width]`, after the last norm.
    pub(crate) x: &'a [f32],
    /// `[vocab, width]`
    pub(crate) weight: &'a [f32],
    /// `[rows]`
    pub(crate) targets: &'a [u32],
    /// `[rows]`: factor of the row's loss in the sum that is differentiated. Rows of weight 0 are not counted.
    pub(crate) weights: &'a [f32],
    pub(crate) width: usize,
    pub(crate) vocab: usize,
}

/// Gradients of [`head_loss`].
#[derive(Debug)]
pub(crate) struct HeadGradient<'a> {
    /// `[rows, width]`, overwritten.
    pub(crate) dx: &'a mut [f32],
    /// `[vocab, width]`, added to.
    pub(crate) d_weight: &'a mut [f32],
}

/// Loss of every row in nats, unweighted (0 where the weight is 0), and, if asked for, the gradients of `sum(weight * loss)`.
/// `buffer` is reused from call to call.
pub(crate) fn head_loss(
    input: &HeadInput<'_>,
    mut gradient: Option<HeadGradient<'_>>,
    losses: &mut [f32],
    buffer: &mut Vec<f32>,
) {
    let HeadInput {
        x,
        weight,
        targets,
        weights,
        width,
        vocab,
    } = *input;
    let rows = targets.len();
    let step = logit_rows(rows, vocab);
    buffer.resize(step * vocab, 0.0);
    for first in (0..rows).step_by(step) {
        let n = step.min(rows - first);
        let logits = &mut buffer[..n * vocab];
        let x = &x[first * width..][..n * width];
        multiply(
            logits,
            Matrix::new(x, n, width),
            Matrix::new(weight, vocab, width).t(),
            Store::Set,
        );
        let differentiate = gradient.is_some();
        let losses = &mut losses[first..first + n];
        losses
            .par_iter_mut()
            .zip(logits.par_chunks_exact_mut(vocab))
            .enumerate()
            .for_each(|(r, (loss, logits))| {
                let (target, weight) = (targets[first + r] as usize, weights[first + r]);
                *loss = row_loss(logits, target, weight, differentiate);
            });
        if let Some(gradient) = &mut gradient {
            let logits = &buffer[..n * vocab];
            multiply(
                &mut gradient.dx[first * width..][..n * width],
                Matrix::new(logits, n, vocab),
                Matrix::new(weight, vocab, width),
                Store::Set,
            );
            multiply(
                gradient.d_weight,
                Matrix::new(logits, n, vocab).t(),
                Matrix::new(x, n, width),
                Store::Add,
            );
        }
    }
}

/// The loss of a row; its logits become `weight * (softmax - target)` if `differentiate`.
fn row_loss(logits: &mut [f32], target: usize, weight: f32, differentiate: bool) -> f32 {
    if weight == 0.0 {
        if differentiate {
            logits.fill(0.0);
        }
        return 0.0;
    }
    let n = logits.len();
    let wanted = logits[target];
    let max = simd(
        #[inline(always)]
        || {
            let mut lanes = [f32::NEG_INFINITY; 16];
            let (chunks, rest) = logits.as_chunks::<16>();
            for chunk in chunks {
                for (lane, &x) in lanes.iter_mut().zip(chunk) {
                    *lane = if x > *lane { x } else { *lane };
                }
            }
            let all = lanes.iter().chain(rest).copied();
            let max = all.fold(f32::NEG_INFINITY, f32::max);
            for x in logits.iter_mut() {
                *x -= max;
            }
            max
        },
    );
    exp_in_place(logits);
    let sum = simd(
        #[inline(always)]
        || lanes_sum(n, |i| logits[i]),
    );
    if differentiate {
        simd(
            #[inline(always)]
            || {
                let scale = weight / sum;
                for x in logits.iter_mut() {
                    *x *= scale;
                }
            },
        );
        logits[target] -= weight;
    }
    sum.ln() + max - wanted
}

/// Writes the embedding of every token.
pub(crate) fn embed(table: &[f32], width: usize, ids: &[u32], out: &mut [f32]) {
    each_rows(out, width, |first, rows| {
        for (r, row) in rows.chunks_exact_mut(width).enumerate() {
            row.copy_from_slice(&table[ids[first + r] as usize * width..][..width]);
        }
    });
}

/// Adds the gradient of every token's embedding, rows in ascending order.
pub(crate) fn embed_backward(d_table: &mut [f32], width: usize, ids: &[u32], dx: &[f32]) {
    for (row, &id) in dx.chunks_exact(width).zip(ids) {
        let to = &mut d_table[id as usize * width..][..width];
        for (to, &d) in to.iter_mut().zip(row) {
            *to += d;
        }
    }
}
