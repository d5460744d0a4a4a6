//! Scores of one block of keys for one tile of queries.
#![allow(
    unsafe_code,
    reason = "raw loads in the inner loops; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use super::{Block, TileBias};
use crate::exp::soft_cap;
use crate::input::CapOrder;
use crate::lanes::Lanes;

/// Scaled products of a block: `sp[j * tile + lane] = scale * (q[lane] . k[j])`.
///
/// # Safety
/// As for [`tile`], for the keys of `block`.
#[inline(always)]
pub(super) unsafe fn products<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    qt: *const f32,
    sp: *mut f32,
) {
    let mut j = 0;
    // SAFETY: `j + R <= nk` in the first loop, `j < nk` in the second.
    unsafe {
        while j + R <= block.nk {
            product_rows::<S, R, NV>(s, block, j, qt, sp);
            j += R;
        }
        while j < block.nk {
            product_rows::<S, 1, NV>(s, block, j, qt, sp);
            j += 1;
        }
    }
}

/// Scaled products of keys `j .. j + R` of a block. The accumulators are touched by unrolled loops with constant indices
/// only: anything else makes the compiler keep them in memory, at half the speed.
///
/// # Safety
/// Those keys are in the block.
#[inline(always)]
unsafe fn product_rows<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    j: usize,
    qt: *const f32,
    sp: *mut f32,
) {
    let w = S::WIDTH;
    let tile = NV * w;
    let task = block.task;
    let stride = task.k.stride;
    // SAFETY: keys `j0 + j .. j0 + j + R` exist; `qt` and `sp` hold a tile and a block.
    unsafe {
        let k = task.k.ptr.add((block.j0 + j) * stride);
        // Needed soon: the next rows of this block, and the values of these keys.
        let (next_k, v) = (
            k.wrapping_add(R * stride),
            task.v.ptr.add((block.j0 + j) * task.v.stride),
        );
        let mut acc = [[s.splat(0.0); NV]; R];
        let mut c = 0;
        while c + 2 <= task.width {
            if R > 1 {
                s.prefetch(next_k.wrapping_add(c * R));
                s.prefetch(v.wrapping_add(c * R));
            }
            dot_step::<S, R, NV>(s, k.add(c), stride, qt.add(c * tile), &mut acc);
            dot_step::<S, R, NV>(s, k.add(c + 1), stride, qt.add((c + 1) * tile), &mut acc);
            c += 2;
        }
        if c < task.width {
            dot_step::<S, R, NV>(s, k.add(c), stride, qt.add(c * tile), &mut acc);
        }
        let scale = s.splat(task.scale);
        for r in 0..R {
            for v in 0..NV {
                s.store(sp.add((j + r) * tile + v * w), s.mul(acc[r][v], scale));
            }
        }
    }
}

/// Soft cap of a whole block in place.
///
/// # Safety
/// `sp` holds the block.
#[inline(always)]
pub(super) unsafe fn cap_block<S: Lanes, const NV: usize>(s: S, nk: usize, cap: f32, sp: *mut f32) {
    for i in 0..nk * NV {
        // SAFETY: inside the block.
        unsafe {
            let at = sp.add(i * S::WIDTH);
            s.store(at, soft_cap(s, s.load(at), cap));
        }
    }
}

/// Adds the bias, hides what the mask hides, and raises the running maxima `mx`. `sp` holds raw scores, then scores.
///
/// # Safety
/// `sp` holds the block; the difference table covers every query of the tile against every key of the block.
#[inline(always)]
pub(super) unsafe fn finish_scores<S: Lanes, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    sp: *mut f32,
    mx: &mut [S::V; NV],
) {
    let w = S::WIDTH;
    let tile = NV * w;
    let task = block.task;
    let mut top = *mx;
    // SAFETY: by the caller's promise; `j < nk`.
    unsafe {
        match task.bias {
            TileBias::None => {
                for j in 0..block.nk {
                    for v in 0..NV {
                        top[v] = s.max(top[v], s.load(sp.add(j * tile + v * w)));
                    }
                }
            }
            TileBias::ByKey(values) => {
                for (j, &b) in values[block.j0..block.j0 + block.nk].iter().enumerate() {
                    for v in 0..NV {
                        let at = sp.add(j * tile + v * w);
                        let x = s.add(s.load(at), s.splat(b));
                        top[v] = s.max(top[v], x);
                        s.store(at, x);
                    }
                }
            }
            TileBias::ByDifference { table, zero } => {
                let from = table.as_ptr().add(zero + block.first_query - block.j0);
                for j in 0..block.nk {
                    for v in 0..NV {
                        let at = sp.add(j * tile + v * w);
                        let x = s.add(s.load(at), s.load(from.sub(j).add(v * w)));
                        top[v] = s.max(top[v], x);
                        s.store(at, x);
                    }
                }
            }
        }
        let capped = matches!(task.soft_cap, Some((_, CapOrder::AfterBias)));
        if !capped && !block.diagonal && !block.padded {
            *mx = top;
            return;
        }
        if let Some((cap, CapOrder::AfterBias)) = task.soft_cap {
            cap_block::<S, NV>(s, block.nk, cap, sp);
        }
        let minus_inf = s.splat(f32::NEG_INFINITY);
        if block.diagonal {
            for j in 0..block.nk {
                for v in 0..NV {
                    let at = sp.add(j * tile + v * w);
                    s.store(at, s.select(visible(s, block, j, v), s.load(at), minus_inf));
                }
            }
        }
        if let Some(valid) = task.key_valid
            && block.padded
        {
            for (j, _) in valid[block.j0..block.j0 + block.nk]
                .iter()
                .enumerate()
                .filter(|(_, ok)| !**ok)
            {
                for v in 0..NV {
                    s.store(sp.add(j * tile + v * w), minus_inf);
                }
            }
        }
        for j in 0..block.nk {
            for v in 0..NV {
                mx[v] = s.max(mx[v], s.load(sp.add(j * tile + v * w)));
            }
        }
    }
}

/// Adds channel `c` of R keys: `acc[r] += k[r * stride] * q`.
///
/// # Safety
/// `k` is valid for R rows, `q` for a tile.
#[inline(always)]
unsafe fn dot_step<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    k: *const f32,
    stride: usize,
    q: *const f32,
    acc: &mut [[S::V; NV]; R],
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut x = [s.splat(0.0); NV];
        for v in 0..NV {
            x[v] = s.load(q.add(v * S::WIDTH));
        }
        for r in 0..R {
            let b = s.splat(*k.add(r * stride));
            for v in 0..NV {
                acc[r][v] = s.fma(x[v], b, acc[r][v]);
            }
        }
    }
}

/// Which lanes of vector `v` see key `j` of a block on the diagonal. Positions relative to the block are small, so f32
/// holds them exactly.
#[inline(always)]
pub(super) fn visible<S: Lanes>(s: S, block: &Block<'_, '_>, j: usize, v: usize) -> S::M {
    const IOTA: [f32; 16] = [
        0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.,
    ];
    // SAFETY: no vector is wider than 16.
    let lane = unsafe { s.load(IOTA.as_ptr()) };
    let key_from_lane0 = (block.j0 + j) as i64 - (block.first_query + v * S::WIDTH) as i64;
    s.le(s.splat(key_from_lane0 as f32), lane)
}
