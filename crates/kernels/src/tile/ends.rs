//! The two ends of a tile: queries in, outputs out.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use super::{LIFT, LIFT_LN, Rows, TILE_MAX, TileOut};
use crate::lanes::Lanes;

/// Rows `first .. first + n` transposed and scaled: `to[c * tile + r] = scale * x[first + r][c]`, zero for lanes beyond `n`.
///
/// # Safety
/// Those rows exist, `to` has room for the tile.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a block copy: from, to, sizes")]
pub(super) unsafe fn pack_rows<S: Lanes, const NV: usize>(
    s: S,
    x: Rows,
    first: usize,
    n: usize,
    width: usize,
    scale: f32,
    to: *mut f32,
) {
    let w = S::WIDTH;
    let tile = NV * w;
    for v in 0..NV {
        let mut c = 0;
        // SAFETY: whole blocks where the rows exist, single elements elsewhere.
        unsafe {
            if (v + 1) * w <= n {
                let src = x.ptr.add((first + v * w) * x.stride);
                while c + w <= width {
                    s.transpose(src.add(c), x.stride, to.add(c * tile + v * w), tile);
                    c += w;
                }
            }
            while c < width {
                for r in v * w..(v + 1) * w {
                    let x = if r < n {
                        *x.ptr.add((first + r) * x.stride + c)
                    } else {
                        0.0
                    };
                    *to.add(c * tile + r) = x;
                }
                c += 1;
            }
        }
    }
    let factor = s.splat(scale);
    for i in 0..width * NV {
        // SAFETY: inside the tile just written.
        unsafe {
            let at = to.add(i * w);
            s.store(at, s.mul(s.load(at), factor));
        }
    }
}

/// Divides by the sums, transposes back, and gives the log-sum-exp.
///
/// # Safety
/// `ot` holds the tile and `to` has `rows` rows.
#[inline(always)]
pub(super) unsafe fn write_out<S: Lanes, const NV: usize>(
    s: S,
    width: usize,
    rows: usize,
    m: &[S::V; NV],
    l: &[S::V; NV],
    ot: *mut f32,
    to: &mut TileOut,
) {
    let w = S::WIDTH;
    let tile = NV * w;
    let zero = s.splat(0.0);
    let mut sums = [0.0_f32; TILE_MAX];
    // SAFETY: all inside the tile or the `rows` rows of the output.
    unsafe {
        for v in 0..NV {
            s.store(sums.as_mut_ptr().add(v * w), l[v]);
            s.store(to.max.as_mut_ptr().add(v * w), m[v]);
            // A sum of 0 means that the row saw nothing (the largest weight of any other row is 1).
            let empty = s.le(l[v], zero);
            for c in 0..width {
                let at = ot.add(c * tile + v * w);
                // Adding 0 turns -0, which an underflow can leave behind, into 0: only there could a block of zero weights
                // make a difference.
                let sum = s.add(s.load(at), zero);
                s.store(at, s.select(empty, zero, s.div(sum, l[v])));
            }
        }
        unpack_rows::<S, NV>(s, width, rows, ot, to.out, to.out_stride);
        for r in 0..rows {
            to.sum[r] = sums[r] / LIFT;
            let (max, sum) = (f64::from(to.max[r]), f64::from(sums[r]));
            *to.lse.add(r) = if sum <= 0.0 {
                f32::NEG_INFINITY
            } else {
                let ln = sum.ln();
                to.ln_sum[r] = ln - LIFT_LN;
                (max + ln - LIFT_LN) as f32
            };
        }
    }
}

/// A tile transposed back: `to[r * stride + c] = from[c * tile + r]` for `r < rows`.
///
/// # Safety
/// `from` holds the tile, `to` the rows.
#[inline(always)]
pub(super) unsafe fn unpack_rows<S: Lanes, const NV: usize>(
    s: S,
    width: usize,
    rows: usize,
    from: *const f32,
    to: *mut f32,
    stride: usize,
) {
    let w = S::WIDTH;
    let tile = NV * w;
    for v in 0..NV {
        let mut c = 0;
        // SAFETY: whole blocks where the rows exist, single elements elsewhere.
        unsafe {
            if (v + 1) * w <= rows {
                while c + w <= width {
                    let dst = to.add(v * w * stride + c);
                    s.transpose(from.add(c * tile + v * w), tile, dst, stride);
                    c += w;
                }
            }
            while c < width {
                for r in v * w..((v + 1) * w).min(rows) {
                    *to.add(r * stride + c) = *from.add(c * tile + r);
                }
                c += 1;
            }
        }
    }
}
