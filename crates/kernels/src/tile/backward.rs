//! The backward pass of one tile of queries against all keys.
//!
//! With `P = exp(S - lse)`, the gradient `G` of the output and `delta = sum_c G * out` per query, a block of keys gives
//!
//! ```text
//! dP = G V^T        dS = P * (dP - delta)
//! dV += P^T G       dK += dS^T (scale Q)       dQ += scale dS K
//! ```
//!
//! `S` is computed again by the forward pass's own operations. `lse` is never below the row's maximum, so what the forward pass
//! proved zero is zero here. A pair whose weight is exactly zero has gradient zero by definition here, whatever the
//! rest overflows to.
#![allow(
    unsafe_code,
    reason = "raw loads in the inner loops; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use super::bound::{Proof, Reach};
use super::ends::{pack_rows, unpack_rows};
use super::scores::{cap_block, dot_step, finish_scores, plain_scores, products};
use super::values::weighted_values;
use super::{Block, Buffer, HeadTask, KEY_BLOCK, LIFT, Rows, TILE_MAX};
use crate::exp::exp_lifted;
use crate::input::CapOrder;
use crate::lanes::Lanes;
use crate::skip::AttentionStats;

/// Working memory of one thread for one head width.
pub(crate) struct BackwardScratch {
    /// Queries and output gradients, `[width, tile]`.
    qt: Buffer,
    gt: Buffer,
    /// The same, `[tile, padded width]`.
    qn: Buffer,
    gn: Buffer,
    /// `[width, tile]`
    dqt: Buffer,
    /// `[KEY_BLOCK, tile]`: scores then weights; their gradients; the slope of the soft cap.
    p: Buffer,
    ds: Buffer,
    slope: Buffer,
}

impl BackwardScratch {
    pub(crate) fn new(width: usize) -> Self {
        let tile = || Buffer::new(padded(width) * TILE_MAX);
        let block = || Buffer::new(KEY_BLOCK * TILE_MAX);
        Self {
            qt: tile(),
            gt: tile(),
            qn: tile(),
            gn: tile(),
            dqt: tile(),
            p: block(),
            ds: block(),
            slope: block(),
        }
    }
}

/// Elements of a row of the gradient accumulators: whole vectors of any instruction set.
pub(crate) fn padded(width: usize) -> usize {
    width.next_multiple_of(16)
}

/// Where one head's gradients are summed, all of them times [`LIFT`].
pub(crate) struct HeadSums<'a> {
    /// `[n_keys, padded width]`
    pub(crate) dk: &'a mut Buffer,
    pub(crate) dv: &'a mut Buffer,
    /// Gradient of the bias by difference query - key, and the index of difference 0; covers what [`super::TileBias::ByDifference`]
    /// would.
    pub(crate) dbias: Option<(&'a mut [f32], usize)>,
}

/// What one tile of queries brings.
#[derive(Clone, Copy)]
pub(crate) struct TileGradient<'a> {
    /// Gradient of the output of this head.
    pub(crate) g: Rows,
    /// `[rows]`; infinite for rows that see nothing.
    pub(crate) lse: &'a [f32; TILE_MAX],
    /// `[rows]`
    pub(crate) delta: &'a [f32; TILE_MAX],
    /// `dq`: row `r` starts at `ptr + r * stride`.
    pub(crate) dq: *mut f32,
    pub(crate) dq_stride: usize,
}

/// Adds the gradients of rows `first_row .. first_row + rows`.
///
/// # Safety
/// The pointers of `task` and `grad` are valid for what their documentation says; nobody else touches `grad.dq`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the arguments of the kernel")]
pub(crate) unsafe fn backward_tile<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    task: &HeadTask<'_>,
    first_row: usize,
    rows: usize,
    grad: &TileGradient<'_>,
    scratch: &mut BackwardScratch,
    sums: &mut HeadSums<'_>,
) -> AttentionStats {
    let w = S::WIDTH;
    let (width, wide) = (task.width, padded(task.width));
    let (qt, gt) = (scratch.qt.as_mut_ptr(), scratch.gt.as_mut_ptr());
    let (qn, gn) = (scratch.qn.as_mut_ptr(), scratch.gn.as_mut_ptr());
    let (p, ds, dqt) = (
        scratch.p.as_mut_ptr(),
        scratch.ds.as_mut_ptr(),
        scratch.dqt.as_mut_ptr(),
    );
    let slope = scratch.slope.as_mut_ptr();
    let zero = s.splat(0.0);
    let first_query = task.query_offset + first_row;
    let n_keys = if task.causal {
        (first_query + rows).min(task.n_keys)
    } else {
        task.n_keys
    };
    let n_blocks = n_keys.div_ceil(KEY_BLOCK);
    let mut stats = AttentionStats {
        blocks: n_blocks as u64,
        blocks_skipped: 0,
    };
    let mut lse = [zero; NV];
    let mut delta = [zero; NV];
    let mut reach = None;
    // SAFETY: the scratch holds tiles; rows `first_row .. first_row + rows` exist in q and g.
    unsafe {
        pack_rows::<S, NV>(s, task.q, first_row, rows, width, task.scale, qt);
        pack_rows::<S, NV>(s, grad.g, first_row, rows, width, 1.0, gt);
        copy_rows(s, task.q, first_row, rows, width, task.scale, qn);
        copy_rows(s, grad.g, first_row, rows, width, 1.0, gn);
        for i in 0..width * NV {
            s.store(dqt.add(i * w), zero);
        }
        for v in 0..NV {
            lse[v] = s.load(grad.lse.as_ptr().add(v * w));
            delta[v] = s.load(grad.delta.as_ptr().add(v * w));
        }
        // A gradient that is not finite meets even weights of zero.
        if task.bounds.is_some() && grad.delta[..rows].iter().all(|d| d.is_finite()) {
            reach = Some(Reach::<S, NV>::new(s, qt, width, rows));
        }
    }
    // The value products: values in the place of keys.
    let values = HeadTask {
        k: task.v,
        v: task.k,
        ..*task
    };
    for b in (0..n_blocks).rev() {
        let j0 = b * KEY_BLOCK;
        let nk = (n_keys - j0).min(KEY_BLOCK);
        if let (Some(bounds), Some(reach)) = (&task.bounds, &reach) {
            match reach.proves_block(s, task, bounds, b, nk, first_query, &lse) {
                Proof::Older => {
                    stats.blocks_skipped += b as u64 + 1;
                    break;
                }
                Proof::Own => {
                    stats.blocks_skipped += 1;
                    continue;
                }
                Proof::None => {}
            }
        }
        let padded = task
            .key_valid
            .is_some_and(|valid| valid[j0..j0 + nk].contains(&false));
        let diagonal = task.causal && j0 + nk > first_query + 1;
        let block = Block {
            task,
            first_query,
            j0,
            nk,
            diagonal,
            padded,
        };
        let value_block = Block {
            task: &values,
            ..block
        };
        let mut unused = lse;
        // SAFETY: keys `j0 .. j0 + nk` exist, the scratch holds blocks.
        unsafe {
            if task.soft_cap.is_none() && !diagonal && !padded {
                plain_scores::<S, R, NV>(s, &block, qt, p, &mut unused);
            } else {
                products::<S, R, NV>(s, &block, qt, p);
                if let Some((cap, CapOrder::BeforeBias)) = task.soft_cap {
                    cap_block::<S, NV>(s, nk, cap, p);
                    cap_slope::<S, NV>(s, nk, cap, p, slope);
                }
                finish_scores::<S, NV>(s, &block, p, &mut unused);
                if let Some((cap, CapOrder::AfterBias)) = task.soft_cap {
                    cap_slope::<S, NV>(s, nk, cap, p, slope);
                }
            }
            products::<S, R, NV>(s, &value_block, gt, ds);
            for j in 0..nk {
                for v in 0..NV {
                    let at = (j * NV + v) * w;
                    let weight = exp_lifted(s, s.sub(s.load(p.add(at)), lse[v]), LIFT);
                    s.store(p.add(at), weight);
                    let x = s.mul(weight, s.sub(s.load(ds.add(at)), delta[v]));
                    s.store(ds.add(at), s.select(s.le(weight, zero), zero, x));
                }
            }
            if let Some((_, CapOrder::AfterBias)) = task.soft_cap {
                multiply::<S, NV>(s, nk, p, slope, ds);
            }
            if let Some((dbias, zero_at)) = &mut sums.dbias {
                let from = *zero_at + first_query - j0;
                for j in 0..nk {
                    for (v, to) in dbias[from - j..from - j + NV * w]
                        .chunks_exact_mut(w)
                        .enumerate()
                    {
                        let x = s.load(ds.add((j * NV + v) * w));
                        s.store(to.as_mut_ptr(), s.add(s.load(to.as_ptr()), x));
                    }
                }
            }
            if let Some((_, CapOrder::BeforeBias)) = task.soft_cap {
                multiply::<S, NV>(s, nk, p, slope, ds);
            }
            let k0 = task.k.ptr.add(j0 * task.k.stride);
            let tile = NV * w;
            let mut c = 0;
            while c + R <= width {
                let to = dqt.add(c * tile);
                weighted_values::<S, R, NV>(s, k0.add(c), task.k.stride, ds, nk, to, None);
                c += R;
            }
            while c < width {
                let to = dqt.add(c * tile);
                weighted_values::<S, 1, NV>(s, k0.add(c), task.k.stride, ds, nk, to, None);
                c += 1;
            }
            let at = j0 * wide;
            transposed_product::<S, NV>(s, p, gn, nk, rows, wide, sums.dv.as_mut_ptr().add(at));
            transposed_product::<S, NV>(s, ds, qn, nk, rows, wide, sums.dk.as_mut_ptr().add(at));
        }
    }
    // SAFETY: `dqt` holds the tile, `dq` the rows.
    unsafe {
        let factor = s.splat(task.scale / LIFT);
        for i in 0..width * NV {
            let at = dqt.add(i * w);
            // Adding 0 turns -0 into 0, as in the forward pass.
            s.store(at, s.fma(s.load(at), factor, zero));
        }
        unpack_rows::<S, NV>(s, width, rows, dqt, grad.dq, grad.dq_stride);
    }
    stats
}

/// Rows `first .. first + n` times `scale`, each padded with zeros to whole vectors.
///
/// # Safety
/// Those rows exist; `to` has room for them.
#[inline(always)]
unsafe fn copy_rows<S: Lanes>(
    s: S,
    x: Rows,
    first: usize,
    n: usize,
    width: usize,
    scale: f32,
    to: *mut f32,
) {
    let (w, wide) = (S::WIDTH, padded(width));
    for r in 0..n {
        // SAFETY: inside row `r`.
        unsafe {
            let from = x.ptr.add((first + r) * x.stride);
            let to = to.add(r * wide);
            let mut c = 0;
            while c + w <= width {
                s.store(to.add(c), s.mul(s.load(from.add(c)), s.splat(scale)));
                c += w;
            }
            while c < wide {
                *to.add(c) = if c < width { *from.add(c) * scale } else { 0.0 };
                c += 1;
            }
        }
    }
}

/// Slope of `cap * tanh(x / cap)` from its value `y`: `1 - (y / cap)^2`.
///
/// # Safety
/// Both hold a block.
#[inline(always)]
unsafe fn cap_slope<S: Lanes, const NV: usize>(
    s: S,
    nk: usize,
    cap: f32,
    y: *const f32,
    to: *mut f32,
) {
    let (one, inverse) = (s.splat(1.0), s.splat(1.0 / cap));
    for i in 0..nk * NV {
        // SAFETY: inside the block.
        unsafe {
            let t = s.mul(s.load(y.add(i * S::WIDTH)), inverse);
            s.store(to.add(i * S::WIDTH), s.sub(one, s.mul(t, t)));
        }
    }
}

/// `x *= factor`, but 0 where the weight `p` is 0: there the factor of a hidden pair is not finite.
///
/// # Safety
/// All hold a block.
#[inline(always)]
unsafe fn multiply<S: Lanes, const NV: usize>(
    s: S,
    nk: usize,
    p: *const f32,
    factor: *const f32,
    x: *mut f32,
) {
    let zero = s.splat(0.0);
    for i in 0..nk * NV {
        let at = i * S::WIDTH;
        // SAFETY: inside the block.
        unsafe {
            let y = s.mul(s.load(x.add(at)), s.load(factor.add(at)));
            s.store(x.add(at), s.select(s.le(s.load(p.add(at)), zero), zero, y));
        }
    }
}

/// `to[j][c] += sum_i p[j][i] * x[i][c]` for `nk` keys and `rows` queries; `x` and `to` have rows of `wide`.
///
/// # Safety
/// `p` holds the block, `x` the rows, `to` rows for the keys.
#[inline(always)]
unsafe fn transposed_product<S: Lanes, const NV: usize>(
    s: S,
    p: *const f32,
    x: *const f32,
    nk: usize,
    rows: usize,
    wide: usize,
    to: *mut f32,
) {
    let (w, tile) = (S::WIDTH, NV * S::WIDTH);
    let mut c = 0;
    // SAFETY: by the caller's promise; `wide` is a multiple of both vector widths.
    unsafe {
        while c < wide {
            let (x, to) = (x.add(c), to.add(c));
            if w == 16 && c + 4 * w <= wide {
                outer::<S, 4, 4>(s, p, tile, x, nk, rows, wide, to);
                c += 4 * w;
            } else if c + 2 * w <= wide {
                outer::<S, 4, 2>(s, p, tile, x, nk, rows, wide, to);
                c += 2 * w;
            } else {
                outer::<S, 8, 1>(s, p, tile, x, nk, rows, wide, to);
                c += w;
            }
        }
    }
}

/// [`transposed_product`] for `NC` vectors of channels, `R` keys at a time.
///
/// # Safety
/// As there.
#[inline(always)]
#[allow(
    clippy::too_many_arguments,
    reason = "two strided matrices and a result"
)]
unsafe fn outer<S: Lanes, const R: usize, const NC: usize>(
    s: S,
    p: *const f32,
    tile: usize,
    x: *const f32,
    nk: usize,
    rows: usize,
    wide: usize,
    to: *mut f32,
) {
    let mut j = 0;
    // SAFETY: by the caller's promise.
    unsafe {
        while j + R <= nk {
            outer_keys::<S, R, NC>(s, p.add(j * tile), tile, x, rows, wide, to.add(j * wide));
            j += R;
        }
        while j < nk {
            outer_keys::<S, 1, NC>(s, p.add(j * tile), tile, x, rows, wide, to.add(j * wide));
            j += 1;
        }
    }
}

/// # Safety
/// As for [`outer`], for `R` keys.
#[inline(always)]
unsafe fn outer_keys<S: Lanes, const R: usize, const NC: usize>(
    s: S,
    p: *const f32,
    tile: usize,
    x: *const f32,
    rows: usize,
    wide: usize,
    to: *mut f32,
) {
    let mut acc = [[s.splat(0.0); NC]; R];
    // SAFETY: by the caller's promise.
    unsafe {
        let mut i = 0;
        while i + 2 <= rows {
            dot_step::<S, R, NC, 0>(s, p.add(i), tile, x.add(i * wide), &mut acc);
            dot_step::<S, R, NC, 0>(s, p.add(i + 1), tile, x.add((i + 1) * wide), &mut acc);
            i += 2;
        }
        if i < rows {
            dot_step::<S, R, NC, 0>(s, p.add(i), tile, x.add(i * wide), &mut acc);
        }
        for r in 0..R {
            for v in 0..NC {
                let at = to.add(r * wide + v * S::WIDTH);
                s.store(at, s.add(s.load(at), acc[r][v]));
            }
        }
    }
}
