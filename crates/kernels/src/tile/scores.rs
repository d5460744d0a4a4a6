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

/// Raw scores of a block: `sp[j * tile + lane] = q[lane] . k[j]`, the scale being part of the packed queries. Where the causal rule
/// hides a key from a whole vector of queries, 0.
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
            match block.hidden_vectors::<S>(j) {
                0 => product_rows::<S, R, NV, 0>(s, block, j, qt, sp),
                1 => product_rows::<S, R, NV, 1>(s, block, j, qt, sp),
                _ => product_rows::<S, R, NV, 2>(s, block, j, qt, sp),
            }
            j += R;
        }
        while j < block.nk {
            product_rows::<S, 1, NV, 0>(s, block, j, qt, sp);
            j += 1;
        }
    }
}

/// Products of keys `j .. j + R` of a block. The accumulators are touched by unrolled loops with constant indices
/// only: anything else makes the compiler keep them in memory, at half the speed. The first `H` vectors are left out and 0.
/// `STORED`: the results will go to `to`.
///
/// # Safety
/// Those keys are in the block.
#[inline(always)]
pub(super) unsafe fn dots<
    S: Lanes,
    const R: usize,
    const NV: usize,
    const H: usize,
    const STORED: bool,
>(
    s: S,
    block: &Block<'_, '_>,
    j: usize,
    qt: *const f32,
    to: [*const f32; 2],
) -> [[S::V; NV]; R] {
    let tile = NV * S::WIDTH;
    let task = block.task;
    let stride = task.k.stride;
    let mut acc = [[s.splat(0.0); NV]; R];
    // SAFETY: keys `j0 + j .. j0 + j + R` exist; `qt` holds a tile.
    unsafe {
        let k = task.k.ptr.add((block.j0 + j) * stride);
        // Needed soon: the next rows of this block, and the values of these keys.
        let (next_k, v) = (
            k.wrapping_add(R * stride),
            task.v.ptr.add((block.j0 + j) * task.v.stride),
        );
        let mut c = 0;
        while c + 2 <= task.width {
            if R > 1 {
                s.prefetch(next_k.wrapping_add(c * R));
                s.prefetch(v.wrapping_add(c * R));
            }
            if STORED && c < 2 * R * NV {
                // One vector of the results, which are not in the cache.
                s.prefetch(to[0].wrapping_add(c / 2 * S::WIDTH));
                s.prefetch(to[1].wrapping_add(c / 2 * S::WIDTH));
            }
            dot_step::<S, R, NV, H>(s, k.add(c), stride, qt.add(c * tile), &mut acc);
            dot_step::<S, R, NV, H>(s, k.add(c + 1), stride, qt.add((c + 1) * tile), &mut acc);
            c += 2;
        }
        if c < task.width {
            dot_step::<S, R, NV, H>(s, k.add(c), stride, qt.add(c * tile), &mut acc);
        }
    }
    acc
}

/// Raw scores of keys `j .. j + R` of a block, 0 for the first `H` vectors.
///
/// # Safety
/// As for [`dots`]; `sp` holds the block.
#[inline(always)]
unsafe fn product_rows<S: Lanes, const R: usize, const NV: usize, const H: usize>(
    s: S,
    block: &Block<'_, '_>,
    j: usize,
    qt: *const f32,
    sp: *mut f32,
) {
    let w = S::WIDTH;
    // SAFETY: by the caller's promise.
    unsafe {
        let acc = dots::<S, R, NV, H, false>(s, block, j, qt, [std::ptr::null(); 2]);
        for r in 0..R {
            for v in 0..NV {
                s.store(sp.add(((j + r) * NV + v) * w), acc[r][v]);
            }
        }
    }
}

/// Bias of key `j` of a block for the queries of vector `v`, added to their scores.
pub(crate) trait AddBias: Copy {
    /// # Safety
    /// Key `j` is in the block, and the tables cover the tile.
    unsafe fn add<S: Lanes>(self, s: S, x: S::V, j: usize, v: usize) -> S::V;
}

#[derive(Clone, Copy)]
pub(crate) struct NoBias;

impl AddBias for NoBias {
    #[inline(always)]
    unsafe fn add<S: Lanes>(self, _s: S, x: S::V, _j: usize, _v: usize) -> S::V {
        x
    }
}

/// Points to the bias of the block's first key.
#[derive(Clone, Copy)]
pub(crate) struct KeyBias(pub(crate) *const f32);

impl AddBias for KeyBias {
    #[inline(always)]
    unsafe fn add<S: Lanes>(self, s: S, x: S::V, j: usize, _v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        s.add(x, s.splat(unsafe { *self.0.add(j) }))
    }
}

/// Points to the bias of the tile's first query and the block's first key.
#[derive(Clone, Copy)]
pub(crate) struct DifferenceBias(pub(crate) *const f32);

impl AddBias for DifferenceBias {
    #[inline(always)]
    unsafe fn add<S: Lanes>(self, s: S, x: S::V, j: usize, v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        s.add(x, unsafe { s.load(self.0.sub(j).add(v * S::WIDTH)) })
    }
}

/// Calls `$body` with the bias of the block as its argument `$bias`.
macro_rules! with_bias {
    ($block:expr, $bias:ident => $body:expr) => {
        match $block.task.bias {
            TileBias::None => {
                let $bias = NoBias;
                $body
            }
            TileBias::ByKey(values) => {
                let $bias = KeyBias(values[$block.j0..$block.j0 + $block.nk].as_ptr());
                $body
            }
            TileBias::ByDifference { table, zero } => {
                let at = zero + $block.first_query - $block.j0;
                let $bias = DifferenceBias(table.as_ptr().add(at));
                $body
            }
        }
    };
}

pub(super) use with_bias;

/// Scores of a block whose every pair is visible and not capped, with bias, and their maxima: the same bits as
/// [`products`] and [`finish_scores`] give, without the way through memory.
///
/// # Safety
/// As for those two.
#[inline(always)]
pub(super) unsafe fn plain_scores<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    qt: *const f32,
    sp: *mut f32,
    mx: &mut [S::V; NV],
) {
    // SAFETY: by the caller's promise.
    unsafe { with_bias!(block, bias => biased_scores::<S, _, R, NV>(s, block, qt, sp, bias, mx)) }
}

/// # Safety
/// As for [`plain_scores`].
#[inline(always)]
unsafe fn biased_scores<S: Lanes, B: AddBias, const R: usize, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    qt: *const f32,
    sp: *mut f32,
    bias: B,
    mx: &mut [S::V; NV],
) {
    let mut j = 0;
    // SAFETY: `j + R <= nk` in the first loop, `j < nk` in the second.
    unsafe {
        while j + R <= block.nk {
            score_rows::<S, B, R, NV>(s, block, j, qt, sp, bias, mx);
            j += R;
        }
        while j < block.nk {
            score_rows::<S, B, 1, NV>(s, block, j, qt, sp, bias, mx);
            j += 1;
        }
    }
}

/// # Safety
/// As for [`dots`] and [`AddBias::add`]; `sp` holds the block.
#[inline(always)]
unsafe fn score_rows<S: Lanes, B: AddBias, const R: usize, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    j: usize,
    qt: *const f32,
    sp: *mut f32,
    bias: B,
    mx: &mut [S::V; NV],
) {
    let w = S::WIDTH;
    // SAFETY: by the caller's promise.
    unsafe {
        // Three loops, each small enough to be unrolled: rolled up, one loop would index the accumulators in memory.
        let mut acc = dots::<S, R, NV, 0, false>(s, block, j, qt, [std::ptr::null(); 2]);
        for r in 0..R {
            for v in 0..NV {
                acc[r][v] = bias.add(s, acc[r][v], j + r, v);
            }
        }
        let mut top = *mx;
        for r in 0..R {
            for v in 0..NV {
                top[v] = s.max(top[v], acc[r][v]);
            }
        }
        for r in 0..R {
            for v in 0..NV {
                s.store(sp.add(((j + r) * NV + v) * w), acc[r][v]);
            }
        }
        *mx = top;
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
        with_bias!(block, bias => for j in 0..block.nk {
            for v in 0..NV {
                let at = sp.add(j * tile + v * w);
                let x = bias.add(s, s.load(at), j, v);
                top[v] = s.max(top[v], x);
                s.store(at, x);
            }
        });
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

/// Adds channel `c` of R keys: `acc[r] += k[r * stride] * q`, the first `H` vectors left out.
///
/// # Safety
/// `k` is valid for R rows, `q` for a tile.
#[inline(always)]
pub(super) unsafe fn dot_step<S: Lanes, const R: usize, const NV: usize, const H: usize>(
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
            if v >= H {
                x[v] = s.load(q.add(v * S::WIDTH));
            }
        }
        for r in 0..R {
            let b = s.splat(*k.add(r * stride));
            for v in 0..NV {
                if v >= H {
                    acc[r][v] = s.fma(x[v], b, acc[r][v]);
                }
            }
        }
    }
}

/// Which lanes of vector `v` see key `j` of a block on the diagonal. Positions relative to the block are small, so f32
/// holds them exactly.
#[inline(always)]
pub(super) fn visible<S: Lanes>(s: S, block: &Block<'_, '_>, j: usize, v: usize) -> S::M {
    let key_from_lane0 = (block.j0 + j) as i64 - (block.first_query + v * S::WIDTH) as i64;
    s.le(s.splat(key_from_lane0 as f32), s.iota())
}
