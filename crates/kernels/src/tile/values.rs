//! Weights times values of one block of keys for one tile of queries.
#![allow(
    unsafe_code,
    reason = "raw loads in the inner loops; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use super::Block;
use super::scores::visible;
use crate::lanes::Lanes;

/// `ot[c] = alpha * ot[c] + sum_j v[j][c] * p[j]` for R channels; `alpha` is 1 if there is none.
///
/// # Safety
/// `v` is valid for `nk` rows of R, `p` for `nk` rows and `ot` for R rows of a tile.
#[inline(always)]
pub(super) unsafe fn weighted_values<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    v: *const f32,
    stride: usize,
    p: *const f32,
    nk: usize,
    ot: *mut f32,
    alpha: Option<&[S::V; NV]>,
) {
    let tile = NV * S::WIDTH;
    // SAFETY: by the caller's promise.
    unsafe {
        let mut acc = [[s.splat(0.0); NV]; R];
        let mut j = 0;
        while j + 2 <= nk {
            value_step::<S, R, NV, 0>(s, v.add(j * stride), p.add(j * tile), &mut acc);
            value_step::<S, R, NV, 0>(s, v.add((j + 1) * stride), p.add((j + 1) * tile), &mut acc);
            j += 2;
        }
        if j < nk {
            value_step::<S, R, NV, 0>(s, v.add(j * stride), p.add(j * tile), &mut acc);
        }
        add_to::<S, R, NV>(s, &acc, ot, alpha);
    }
}

/// [`weighted_values`] for a block on the diagonal: leaves out what [`Block::hidden_vectors`] says is hidden, whose weights are 0.
///
/// # Safety
/// As for [`weighted_values`].
#[inline(always)]
pub(super) unsafe fn visible_values<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    v: *const f32,
    stride: usize,
    p: *const f32,
    ot: *mut f32,
    alpha: Option<&[S::V; NV]>,
) {
    let tile = NV * S::WIDTH;
    // SAFETY: by the caller's promise.
    unsafe {
        let mut acc = [[s.splat(0.0); NV]; R];
        let mut j = 0;
        for hidden in 0..NV {
            let end = block.first_hidden::<S>(hidden);
            while j < end {
                let (v, p) = (v.add(j * stride), p.add(j * tile));
                match hidden {
                    0 => value_step::<S, R, NV, 0>(s, v, p, &mut acc),
                    1 => value_step::<S, R, NV, 1>(s, v, p, &mut acc),
                    _ => value_step::<S, R, NV, 2>(s, v, p, &mut acc),
                }
                j += 1;
            }
        }
        add_to::<S, R, NV>(s, &acc, ot, alpha);
    }
}

/// `ot = alpha * ot + acc`. Where `alpha` is 1, adding gives the same bits and leaves the multipliers to the products.
///
/// # Safety
/// `ot` is valid for R rows of a tile.
#[inline(always)]
unsafe fn add_to<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    acc: &[[S::V; NV]; R],
    ot: *mut f32,
    alpha: Option<&[S::V; NV]>,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        if let Some(alpha) = alpha {
            for r in 0..R {
                for x in 0..NV {
                    let at = ot.add((r * NV + x) * S::WIDTH);
                    s.store(at, s.fma(alpha[x], s.load(at), acc[r][x]));
                }
            }
        } else {
            for r in 0..R {
                for x in 0..NV {
                    let at = ot.add((r * NV + x) * S::WIDTH);
                    s.store(at, s.add(s.load(at), acc[r][x]));
                }
            }
        }
    }
}

/// Adds one key to R channels: `acc[r] += v[r] * p`, the first `H` vectors left out.
///
/// # Safety
/// `v` is valid for R values, `p` for a tile.
#[inline(always)]
unsafe fn value_step<S: Lanes, const R: usize, const NV: usize, const H: usize>(
    s: S,
    v: *const f32,
    p: *const f32,
    acc: &mut [[S::V; NV]; R],
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut x = [s.splat(0.0); NV];
        for i in H..NV {
            x[i] = s.load(p.add(i * S::WIDTH));
        }
        for r in 0..R {
            let b = s.splat(*v.add(r));
            for i in H..NV {
                acc[r][i] = s.fma(x[i], b, acc[r][i]);
            }
        }
    }
}

/// [`weighted_values`] for a block on the diagonal whose values are not all finite: a hidden pair has weight 0, and 0 times
/// infinity or NaN would reach rows that never see the key. Here hidden pairs add nothing at all.
///
/// # Safety
/// As for [`weighted_values`], for all channels.
#[inline(always)]
pub(super) unsafe fn weighted_values_masked<S: Lanes, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    v: *const f32,
    p: *const f32,
    ot: *mut f32,
    alpha: &[S::V; NV],
) {
    let w = S::WIDTH;
    let tile = NV * w;
    for c in 0..block.task.width {
        for x in 0..NV {
            // SAFETY: by the caller's promise.
            unsafe {
                let mut acc = s.splat(0.0);
                for j in 0..block.nk {
                    let b = s.splat(*v.add(j * block.task.v.stride + c));
                    let sum = s.fma(s.load(p.add(j * tile + x * w)), b, acc);
                    acc = s.select(visible(s, block, j, x), sum, acc);
                }
                let at = ot.add(c * tile + x * w);
                s.store(at, s.fma(alpha[x], s.load(at), acc));
            }
        }
    }
}

/// Whether all `rows * width` values are finite.
///
/// # Safety
/// `v` is valid for them.
#[inline(always)]
pub(super) unsafe fn is_finite<S: Lanes>(
    s: S,
    v: *const f32,
    stride: usize,
    rows: usize,
    width: usize,
) -> bool {
    // 0 * x is 0 for finite x and NaN otherwise; NaN sticks in a sum.
    let zero = s.splat(0.0);
    let mut sum = zero;
    let mut rest = 0.0_f32;
    for r in 0..rows {
        let mut c = 0;
        // SAFETY: inside row `r`.
        unsafe {
            while c + S::WIDTH <= width {
                sum = s.fma(s.load(v.add(r * stride + c)), zero, sum);
                c += S::WIDTH;
            }
            while c < width {
                rest += *v.add(r * stride + c) * 0.0;
                c += 1;
            }
        }
    }
    let mut lanes = [0.0_f32; 16];
    // SAFETY: no vector is wider than 16.
    unsafe { s.store(lanes.as_mut_ptr(), sum) };
    !rest.is_nan() && !lanes.iter().any(|x| x.is_nan())
}
