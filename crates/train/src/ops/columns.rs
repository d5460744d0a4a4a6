//! Biases of linear layers: a row added to every row, and its gradient, a sum over rows.

use rayon::prelude::*;

use super::{each_rows, simd};

/// Columns of one task.
const STRIPE: usize = 256;

/// Sets every row of `out` to `bias`, or to zero.
pub(crate) fn fill_rows(out: &mut [f32], width: usize, bias: Option<&[f32]>) {
    each_rows(out, width, |_, rows| match bias {
        Some(bias) => rows
            .chunks_exact_mut(width)
            .for_each(|row| row.copy_from_slice(bias)),
        None => rows.fill(0.0),
    });
}

/// `out = from + bias`, row by row.
pub(crate) fn copy_plus(out: &mut [f32], from: &[f32], width: usize, bias: Option<&[f32]>) {
    each_rows(out, width, |first, rows| {
        let from = &from[first * width..][..rows.len()];
        match bias {
            None => rows.copy_from_slice(from),
            Some(bias) => simd(
                #[inline(always)]
                || {
                    for (row, from) in rows.chunks_exact_mut(width).zip(from.chunks_exact(width)) {
                        for ((o, &x), &b) in row.iter_mut().zip(from).zip(bias) {
                            *o = x + b;
                        }
                    }
                },
            ),
        }
    });
}

/// `to[c] += sum over rows of from[r, c]`, rows in ascending order.
pub(crate) fn add_column_sums(to: &mut [f32], from: &[f32]) {
    let width = to.len();
    to.par_chunks_mut(STRIPE)
        .enumerate()
        .for_each(|(stripe, to)| {
            simd(
                #[inline(always)]
                || {
                    let mut sums = [0f32; STRIPE];
                    let sums = &mut sums[..to.len()];
                    for row in from.chunks_exact(width) {
                        for (sum, &x) in sums.iter_mut().zip(&row[stripe * STRIPE..]) {
                            *sum += x;
                        }
                    }
                    for (to, &sum) in to.iter_mut().zip(&*sums) {
                        *to += sum;
                    }
                },
            );
        });
}
