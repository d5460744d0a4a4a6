//! One tile of queries against all keys: the kernel.
//!
//! Lanes are *queries*. A tile is `NV` vectors wide; per block of keys
//!
//! ```text
//! S^T[key][query] = sum_c K[key][c] * Q^T[c][query]        (broadcast K, vector of queries)
//! O^T[c][query]   = alpha[query] * O^T[c][query] + sum_key V[key][c] * P^T[key][query]
//! ```
//!
//! so K and V are read in their natural layout, and maxima, sums and rescaling are plain vertical operations: a query never
//! meets another query. Hence a row's bits do not depend on the tile it is in.
//!
//! Blocks run from the newest key to the oldest, because with a bias that falls with distance the maximum is then found
//! early. Sums are taken per block and added to the running sum, so rounding grows with `KEY_BLOCK + n / KEY_BLOCK` and
//! not with `n`.
//!
//! Weights are kept multiplied by [`LIFT`]. Without it the weights between 2^-126 and 2^-149 are subnormal and every
//! multiply-add with one takes a microcode assist (six times slower overall on a steep head); with it none is, and the
//! factor cancels in the quotient.
#![allow(
    unsafe_code,
    reason = "raw loads in the inner loops; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

mod backward;
mod bound;
mod ends;
mod rows;
mod scores;
mod seed;
mod store;
mod values;
mod watched;

pub(crate) use backward::{BackwardScratch, HeadSums, TileGradient, backward_tile, padded};

use crate::exp::{exp, exp_lifted};
use crate::input::CapOrder;
use crate::lanes::Lanes;
use crate::skip::{AttentionStats, Bounds};
use bound::{Proof, Reach};

pub(crate) use rows::{SomeKeys, raw_of_keys};
pub(crate) use scores::{AddBias, DifferenceBias, KeyBias, NoBias};
pub(crate) use store::{Buffer, ENDS, Scratch, Strip, TileOut, TileStore, Watch};

use ends::{pack_rows, write_out};
use scores::{cap_block, finish_scores, plain_scores, products};
use seed::first_maxima;
use store::KeptBlock;
use values::{is_finite, visible_values, weighted_values, weighted_values_masked};
use watched::watched_scores;

/// Keys of one block.
pub(crate) const KEY_BLOCK: usize = 64;
/// Rows of the widest tile of any instruction set (3 vectors of 16).
pub(crate) const TILE_MAX: usize = 48;
/// Factor on the weights. The smallest weight that is not 0 becomes 2^-102, so products with values down to 2^-24 stay
/// normal; and `n_keys * max |v|` may reach 2^80.
pub(crate) const LIFT: f32 = (1_u64 << 48) as f32;
/// `ln(LIFT)`
const LIFT_LN: f64 = 48.0 * std::f64::consts::LN_2;

/// Rows of one head: row `t` starts at `ptr + t * stride`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) ptr: *const f32,
    pub(crate) stride: usize,
}

/// Bias of one head as the kernel reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TileBias<'a> {
    None,
    /// `[n_keys]`
    ByKey(&'a [f32]),
    /// Entry `zero + (query - key)`, for every difference that a tile can touch, masked or not.
    ByDifference {
        table: &'a [f32],
        zero: usize,
    },
}

/// One head, ready for the kernel. All pointers are valid for the whole call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadTask<'a> {
    pub(crate) q: Rows,
    pub(crate) k: Rows,
    pub(crate) v: Rows,
    pub(crate) n_keys: usize,
    pub(crate) width: usize,
    pub(crate) query_offset: usize,
    pub(crate) causal: bool,
    pub(crate) scale: f32,
    pub(crate) soft_cap: Option<(f32, CapOrder)>,
    pub(crate) bias: TileBias<'a>,
    pub(crate) key_valid: Option<&'a [bool]>,
    /// Present if blocks of zero weight are to be left out.
    pub(crate) bounds: Option<Bounds<'a>>,
}

/// What the score kernel needs to know about one block.
#[derive(Clone, Copy)]
struct Block<'a, 'b> {
    task: &'a HeadTask<'b>,
    /// Key index of the tile's first query.
    first_query: usize,
    /// First key.
    j0: usize,
    /// Keys.
    nk: usize,
    /// Some pair is hidden by the causal rule.
    diagonal: bool,
    /// Some key is padding.
    padded: bool,
}

impl Block<'_, '_> {
    /// Vectors, from the first, whose queries all come before keys `j` and later.
    fn hidden_vectors<S: Lanes>(&self, j: usize) -> usize {
        let past_first = (self.j0 + j).saturating_sub(self.first_query);
        if self.diagonal {
            past_first / S::WIDTH
        } else {
            0
        }
    }

    /// First key that is hidden from more than the first `vectors` vectors.
    fn first_hidden<S: Lanes>(&self, vectors: usize) -> usize {
        (self.first_query + (vectors + 1) * S::WIDTH)
            .saturating_sub(self.j0)
            .min(self.nk)
    }
}

/// Attention of `rows` queries from row `first_row` on, `rows <= NV * WIDTH`. `R` is the number of keys (then of channels)
/// that a micro-kernel treats at once.
///
/// # Safety
/// The pointers of `task`, `watch` and `to` are valid for what their documentation says.
#[inline(always)]
pub(crate) unsafe fn tile<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    task: &HeadTask<'_>,
    first_row: usize,
    rows: usize,
    scratch: &mut Scratch,
    watch: Watch,
    to: &mut TileOut,
) {
    let w = S::WIDTH;
    let tile = NV * w;
    let width = task.width;
    let (qt, ot) = (scratch.qt.as_mut_ptr(), scratch.ot.as_mut_ptr());
    let free = scratch.s.as_mut_ptr();
    let zero = s.splat(0.0);
    let minus_inf = s.splat(f32::NEG_INFINITY);
    // SAFETY: `qt` and `ot` hold `width * tile` values; row `first_row + r` of q exists for `r < rows`.
    unsafe {
        pack_rows::<S, NV>(s, task.q, first_row, rows, width, task.scale, qt);
    }
    let first_query = task.query_offset + first_row;
    let n_keys = if task.causal {
        (first_query + rows).min(task.n_keys)
    } else {
        task.n_keys
    };
    let n_blocks = n_keys.div_ceil(KEY_BLOCK);
    to.stats = AttentionStats {
        blocks: n_blocks as u64,
        blocks_skipped: 0,
    };
    (to.from_key, to.lanes) = (0, tile);
    let (mut reach, mut m) = (None, [minus_inf; NV]);
    // A single block finds the same maxima.
    if n_blocks > 1 {
        // SAFETY: `qt` holds the queries; `free` and `ot` are free until the first block.
        unsafe {
            m = first_maxima::<S, R, NV>(s, task, first_query, rows, n_keys, qt, free, ot);
            if task.bounds.is_some() {
                reach = Some(Reach::<S, NV>::new(s, qt, width, rows));
            }
        }
    }
    let mut l = [zero; NV];
    // Sum of weight times score over the reference, and that reference.
    let (mut gap, mut reference) = ([zero; NV], [zero; NV]);
    for i in 0..width * NV {
        // SAFETY: `ot` holds `width * tile` values.
        unsafe { s.store(ot.add(i * w), zero) };
    }
    for b in (0..n_blocks).rev() {
        let j0 = b * KEY_BLOCK;
        let nk = (n_keys - j0).min(KEY_BLOCK);
        if let (Some(bounds), Some(reach)) = (&task.bounds, &reach) {
            match reach.proves_block(s, task, bounds, b, nk, first_query, &m) {
                Proof::Older => {
                    to.stats.blocks_skipped += b as u64 + 1;
                    to.from_key = j0 + nk;
                    break;
                }
                Proof::Own => {
                    to.stats.blocks_skipped += 1;
                    continue;
                }
                Proof::None => {}
            }
        }
        let mut padded = false;
        if let Some(valid) = task.key_valid {
            let valid = &valid[j0..j0 + nk];
            padded = valid.contains(&false);
            if padded && !valid.contains(&true) {
                continue;
            }
        }
        let diagonal = task.causal && j0 + nk > first_query + 1;
        let block = Block {
            task,
            first_query,
            j0,
            nk,
            diagonal,
            padded,
        };
        let kept = match watch {
            // SAFETY: the store has this block.
            Watch::Tiles(store) => Some(unsafe { store.block(j0, tile) }),
            _ => None,
        };
        let sp = kept.map_or(free, |kept| kept.weights);
        let mut mx = m;
        // SAFETY: keys `j0 .. j0 + nk` exist, the scratch holds a block, the strip `j0 + KEY_BLOCK` columns of a tile.
        unsafe {
            let plain = task.soft_cap.is_none() && !diagonal && !padded;
            if let (true, Watch::Nobody) = (plain, watch) {
                plain_scores::<S, R, NV>(s, &block, qt, sp, &mut mx);
            } else if let (true, Some(kept)) = (plain, kept) {
                watched_scores::<S, R, NV>(s, &block, qt, kept, &mut mx);
            } else {
                products::<S, R, NV>(s, &block, qt, sp);
                if let Some((cap, CapOrder::BeforeBias)) = task.soft_cap {
                    cap_block::<S, NV>(s, nk, cap, sp);
                }
                if let Some(kept) = kept {
                    std::ptr::copy_nonoverlapping(sp, kept.raw, nk * tile);
                }
                if let Watch::Rows(strip) = watch {
                    for v in 0..NV {
                        for g in (0..nk).step_by(w) {
                            let dst = strip.ptr.add(v * w * strip.stride + j0 + g);
                            s.transpose(sp.add(g * tile + v * w), tile, dst, strip.stride);
                        }
                    }
                }
                finish_scores::<S, NV>(s, &block, sp, &mut mx);
            }
        }
        // A row that has seen nothing has maximum -inf; subtracting 0 instead keeps NaN out of it.
        let mut alpha = [zero; NV];
        let mut base = [zero; NV];
        for v in 0..NV {
            base[v] = s.select(s.le(mx[v], minus_inf), zero, mx[v]);
            alpha[v] = exp(s, s.sub(m[v], base[v]));
            m[v] = mx[v];
        }
        // Asked of `alpha` and not of the maxima: held over the exponential, they would push accumulators of the products out of the
        // registers.
        let mut moved = false;
        for v in 0..NV {
            moved |= !s.all(s.le(s.splat(1.0), alpha[v]));
        }
        let moved = moved.then_some(&alpha);
        // SAFETY: `sp` holds `nk` rows of scores, `kept` a reference a lane.
        let sum = unsafe {
            match kept {
                None => weights::<S, NV>(s, nk, &base, sp),
                Some(kept) => {
                    for v in 0..NV {
                        // What was summed is carried over to the new reference.
                        let rise = s.sub(reference[v], base[v]);
                        gap[v] = s.mul(alpha[v], s.fma(rise, l[v], gap[v]));
                        reference[v] = base[v];
                        s.store(kept.ends.add((4 * NV + v) * w), base[v]);
                    }
                    weights_and_gaps::<S, NV>(s, nk, &base, sp, &mut gap)
                }
            }
        };
        for v in 0..NV {
            l[v] = s.fma(alpha[v], l[v], sum[v]);
        }
        // SAFETY: `sp` holds `nk` rows of weights, V the same keys, `ot` the whole tile.
        unsafe {
            let v0 = task.v.ptr.add(j0 * task.v.stride);
            let finite = match &task.bounds {
                _ if !diagonal => true,
                Some(bounds) => bounds.norms.own[b] <= f32::MAX,
                None => is_finite(s, v0, task.v.stride, nk, width),
            };
            if !finite {
                weighted_values_masked::<S, NV>(s, &block, v0, sp, ot, &alpha);
                continue;
            }
            let stride = task.v.stride;
            let mut c = 0;
            while c + R <= width {
                let (v, o) = (v0.add(c), ot.add(c * tile));
                if diagonal {
                    visible_values::<S, R, NV>(s, &block, v, stride, sp, o, moved);
                } else {
                    weighted_values::<S, R, NV>(s, v, stride, sp, nk, o, moved);
                }
                c += R;
            }
            while c < width {
                let (v, o) = (v0.add(c), ot.add(c * tile));
                weighted_values::<S, 1, NV>(s, v, stride, sp, nk, o, moved);
                c += 1;
            }
        }
    }
    // SAFETY: `ot` holds the tile; `to` has `rows` rows.
    unsafe {
        for v in 0..NV {
            let gap = s.mul(gap[v], s.splat(-1.0 / LIFT));
            s.store(to.gap.as_mut_ptr().add(v * w), gap);
        }
        write_out::<S, NV>(s, width, rows, &m, &l, ot, to);
    }
}

/// Turns the scores of a block into weights in place; their sums.
///
/// # Safety
/// `sp` holds `nk` rows of a tile.
#[inline(always)]
unsafe fn weights<S: Lanes, const NV: usize>(
    s: S,
    nk: usize,
    base: &[S::V; NV],
    sp: *mut f32,
) -> [S::V; NV] {
    let mut sum = [s.splat(0.0); NV];
    for j in 0..nk {
        for v in 0..NV {
            // SAFETY: by the caller's promise.
            unsafe {
                let at = sp.add((j * NV + v) * S::WIDTH);
                let p = exp_lifted(s, s.sub(s.load(at), base[v]), LIFT);
                sum[v] = s.add(sum[v], p);
                s.store(at, p);
            }
        }
    }
    sum
}

/// [`weights`], the same bits, which also adds weight times `score - base` to `gap`.
///
/// # Safety
/// As for [`weights`].
#[inline(always)]
unsafe fn weights_and_gaps<S: Lanes, const NV: usize>(
    s: S,
    nk: usize,
    base: &[S::V; NV],
    sp: *mut f32,
    gap: &mut [S::V; NV],
) -> [S::V; NV] {
    let mut sum = [s.splat(0.0); NV];
    let mut sums = *gap;
    for j in 0..nk {
        for v in 0..NV {
            // SAFETY: by the caller's promise.
            unsafe {
                let at = sp.add((j * NV + v) * S::WIDTH);
                let t = s.sub(s.load(at), base[v]);
                let p = exp_lifted(s, t, LIFT);
                sum[v] = s.add(sum[v], p);
                // A hidden pair has no weight, and an infinite gap.
                sums[v] = s.fma(p, s.max(t, s.splat(LEAST_GAP)), sums[v]);
                s.store(at, p);
            }
        }
    }
    *gap = sums;
    sum
}

/// Below every score over its reference that has a weight, nats.
const LEAST_GAP: f32 = -128.0;
