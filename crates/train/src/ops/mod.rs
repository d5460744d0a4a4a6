//! What happens between the matrix products of a training step, forward and backward, on rows of f32.
//!
//! Loops are plain and vectorise; each runs under [`simd`], which compiles it for the widest vectors of the machine. Rust never
//! fuses a multiplication and an addition by itself and every sum has a fixed order here, so the bits are the same at every width
//! and for every number of threads.

pub(crate) mod activation;
pub(crate) mod columns;
pub(crate) mod dropout;
pub(crate) mod loss;
pub(crate) mod norm;
pub(crate) mod rotary;

use rayon::prelude::*;

/// Values of a parallel task: enough to hide its cost, few enough to share out.
const TASK_VALUES: usize = 32 * 1024;

/// Runs `f` compiled for the widest vectors of this machine. `f` and what it calls must be `#[inline(always)]`.
#[inline(always)]
pub(crate) fn simd<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}

/// Rows of `width` values that one task takes: a function of the width alone.
pub(crate) fn rows_per_task(width: usize) -> usize {
    (TASK_VALUES / width.max(1)).max(1)
}

/// Calls `f(first_row, rows)` for every group of rows of `out`, in parallel.
pub(crate) fn each_rows(out: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    let rows = rows_per_task(width);
    out.par_chunks_mut(rows * width)
        .enumerate()
        .for_each(|(task, chunk)| f(task * rows, chunk));
}

/// Sum of `f(i)` for `i < n` in sixteen interleaved partial sums.
#[inline(always)]
pub(crate) fn lanes_sum(n: usize, f: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0f32; 16];
    let whole = n / 16 * 16;
    let mut at = 0;
    while at < whole {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += f(at + lane);
        }
        at += 16;
    }
    let mut tail = 0.0;
    for i in whole..n {
        tail += f(i);
    }
    let mut width = 8;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0] + tail
}

/// `q . k` in the fixed order of [`lanes_sum`].
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    lanes_sum(n, |i| a[i] * b[i])
}

/// `to += from`, in parallel.
pub(crate) fn add_assign(to: &mut [f32], from: &[f32]) {
    assert_eq!(to.len(), from.len(), "sums of equal length");
    to.par_chunks_mut(TASK_VALUES)
        .zip(from.par_chunks(TASK_VALUES))
        .for_each(|(to, from)| {
            simd(|| {
                for (t, &f) in to.iter_mut().zip(from) {
                    *t += f;
                }
            });
        });
}
