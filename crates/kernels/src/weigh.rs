//! Weights of a tile whose rows are final: by difference, with gap, and how many are beyond two gaps. One pass over the
//! scores, everything in registers.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use std::ops::Range;

use crate::exp::exp_lifted;
use crate::lane_loops::Diagonals;
use crate::lanes::{Lanes, dispatch};
use crate::score_tile::ScoreTile;
use crate::tile::{AddBias, DifferenceBias, KEY_BLOCK, KeyBias, LIFT, NoBias, TILE_MAX, TileBias};

/// What [`ScoreTile::weigh`] has to know of every lane: slices of [`ScoreTile::lanes`] values.
#[derive(Clone, Copy, Debug)]
pub struct LaneRows<'a> {
    /// Largest score, nats, from which gaps are taken.
    pub max: &'a [f32],
    /// Factor on the lane's weights in the sums by difference: one over the row's sum.
    pub share: &'a [f32],
    /// Last key that the lane sees; -1 for a lane that takes no part.
    pub last_key: &'a [i32],
    /// Gaps, nats, beyond which pairs are counted.
    pub beyond: [&'a [f32]; 2],
}

/// What [`ScoreTile::weigh`] found in a block.
#[derive(Clone, Copy, Debug)]
pub struct WeighedBlock {
    /// `[lanes]`: sum of `exp(-gap) * gap`, nats; 0 for lanes that see nothing of the block.
    pub gap: [f32; TILE_MAX],
    /// `[lanes]`: weight of the block's first key times the lane's share.
    pub first: [f32; TILE_MAX],
    /// Pairs beyond each of the two gaps. Every hidden pair and every idle lane's counts as beyond.
    pub beyond: [u64; 2],
}

/// Largest raw scores of a block, nats; minus infinity (`size`: 0) where there is no such pair.
#[derive(Clone, Copy, Debug)]
pub struct VisibleBlock {
    /// `[lanes]`: over the keys at least `recent` tokens away.
    pub far: [f32; TILE_MAX],
    /// `[lanes]`: over the nearer ones but the query's own.
    pub near: [f32; TILE_MAX],
    /// `[lanes]`: largest absolute value over all.
    pub size: [f32; TILE_MAX],
}

/// Scores of a block over the pairs that are visible.
#[derive(Clone, Copy, Debug)]
pub struct BlockRange {
    /// `[lanes]`: smallest score with bias, nats; infinite for lanes that see nothing of the block.
    pub low: [f32; TILE_MAX],
    /// `[lanes]`: largest; minus infinity likewise.
    pub high: [f32; TILE_MAX],
    /// Smallest and largest gap of any pair, nats; infinite and minus infinite if there is none.
    pub near: f32,
    /// See `near`.
    pub far: f32,
    /// Largest absolute raw score, of hidden pairs and idle lanes too.
    pub raw: f32,
}

impl ScoreTile<'_> {
    /// The scores of the block, or the visible part of one, `keys`. Reads the pairs only on the diagonal.
    ///
    /// # Panics
    /// As [`ScoreTile::weigh`].
    pub fn range(&self, keys: Range<usize>, rows: &LaneRows<'_>) -> BlockRange {
        self.check(&keys, rows);
        dispatch!(
            self.isa,
            range_lanes,
            (tile: &ScoreTile<'_>, keys: Range<usize>, rows: &LaneRows<'_>) -> BlockRange
                = (self, keys, rows)
        )
    }

    /// Largest raw scores of the pairs of a block whose gap, nats, is not above `gap`.
    ///
    /// # Panics
    /// As [`ScoreTile::weigh`].
    pub fn visible(
        &self,
        keys: Range<usize>,
        rows: &LaneRows<'_>,
        gap: f32,
        recent: usize,
    ) -> VisibleBlock {
        self.check(&keys, rows);
        dispatch!(
            self.isa,
            visible_lanes,
            (tile: &ScoreTile<'_>, keys: Range<usize>, rows: &LaneRows<'_>, gap: f32, recent: usize) -> VisibleBlock
                = (self, keys, rows, gap, recent)
        )
    }

    fn check(&self, keys: &Range<usize>, rows: &LaneRows<'_>) {
        let n = self.lanes;
        let lengths = [rows.max, rows.share, rows.beyond[0], rows.beyond[1]].map(<[f32]>::len);
        assert!(
            lengths == [n; 4] && rows.last_key.len() == n,
            "one value a lane"
        );
        assert!(
            !keys.is_empty() && keys.len() <= KEY_BLOCK,
            "{} keys",
            keys.len()
        );
    }

    /// Adds the weights `share * exp(score - max)` of the keys `keys`, one block or the visible part of it, to `by_difference`,
    /// whose first value belongs to the difference of the tile's first query to the last of these keys and which has
    /// `keys.len() - 1 + lanes` values; and sums up gaps. `hidden` says that some lane does not see some key.
    ///
    /// # Panics
    /// If the keys are more than a block or not there, or if a slice has another length.
    pub fn weigh(
        &self,
        keys: Range<usize>,
        hidden: bool,
        rows: &LaneRows<'_>,
        by_difference: &mut [f32],
    ) -> WeighedBlock {
        self.check(&keys, rows);
        assert!(
            by_difference.len() == keys.len() - 1 + self.lanes,
            "{} sums for {} keys",
            by_difference.len(),
            keys.len()
        );
        let raw = self.raw(keys.clone());
        dispatch!(
            self.isa,
            weigh_lanes,
            (tile: &ScoreTile<'_>, keys: Range<usize>, hidden: bool, raw: &[f32], rows: &LaneRows<'_>, to: &mut [f32]) -> WeighedBlock
                = (self, keys, hidden, raw, rows, by_difference)
        )
    }
}

/// Calls `$body` with the bias of the keys `$keys` of a tile as `$bias`.
macro_rules! with_bias {
    ($tile:expr, $keys:expr, $bias:ident => $body:expr) => {
        match $tile.tile_bias {
            TileBias::None => {
                let $bias = NoBias;
                $body
            }
            TileBias::ByKey(values) => {
                let $bias = KeyBias(values[$keys.clone()].as_ptr());
                $body
            }
            TileBias::ByDifference { table, zero } => {
                // As far as the kernel itself reads.
                let at = zero + $tile.first_query - $keys.start;
                assert!(at + 1 >= $keys.len() && at + $tile.lanes <= table.len());
                let $bias = DifferenceBias(table.as_ptr().wrapping_add(at));
                $body
            }
        }
    };
}
#[inline(always)]
fn weigh_lanes<S: Lanes>(
    s: S,
    tile: &ScoreTile<'_>,
    keys: Range<usize>,
    hidden: bool,
    raw: &[f32],
    rows: &LaneRows<'_>,
    to: &mut [f32],
) -> WeighedBlock {
    match tile.lanes / S::WIDTH {
        1 => weigh_biased::<S, 1>(s, tile, keys, hidden, raw, rows, to),
        2 => weigh_biased::<S, 2>(s, tile, keys, hidden, raw, rows, to),
        3 => weigh_biased::<S, 3>(s, tile, keys, hidden, raw, rows, to),
        n => unreachable!("a tile of {n} vectors"),
    }
}

#[inline(always)]
fn weigh_biased<S: Lanes, const NV: usize>(
    s: S,
    tile: &ScoreTile<'_>,
    keys: Range<usize>,
    hidden: bool,
    raw: &[f32],
    rows: &LaneRows<'_>,
    to: &mut [f32],
) -> WeighedBlock {
    with_bias!(tile, keys, bias => {
        // SAFETY: `weigh` has checked every length.
        unsafe {
            if hidden {
                weigh_block::<S, _, NV, true>(s, &keys, raw, bias, rows, to)
            } else {
                weigh_block::<S, _, NV, false>(s, &keys, raw, bias, rows, to)
            }
        }
    })
}

#[inline(always)]
fn range_lanes<S: Lanes>(
    s: S,
    tile: &ScoreTile<'_>,
    keys: Range<usize>,
    rows: &LaneRows<'_>,
) -> BlockRange {
    let (inf, lowest) = (s.splat(f32::INFINITY), s.splat(f32::NEG_INFINITY));
    let mut range = BlockRange {
        low: [f32::INFINITY; TILE_MAX],
        high: [f32::NEG_INFINITY; TILE_MAX],
        near: f32::INFINITY,
        far: f32::NEG_INFINITY,
        raw: 0.0,
    };
    let last = relative_keys(rows.last_key, &keys);
    let (mut near, mut far, mut size) = (inf, lowest, s.splat(0.0));
    for v in 0..tile.lanes / S::WIDTH {
        let at = v * S::WIDTH;
        // SAFETY: `range` has checked every length; the ends of a block hold a value a lane.
        unsafe {
            let last = s.load(last.as_ptr().add(at));
            let (low, high);
            if keys.start >= tile.diagonal_from() {
                let raw = tile.raw(keys.clone());
                with_bias!(tile, keys, bias => {
                    (low, high) = scan_range(s, keys.len(), raw, bias, v, tile.lanes, last, &mut size);
                });
            } else {
                let ends = tile.ends(keys.start);
                let good = s.le(s.splat(0.0), last);
                low = s.select(good, s.load(ends.low.as_ptr().add(at)), inf);
                high = s.select(good, s.load(ends.high.as_ptr().add(at)), lowest);
                let most = s.max(s.load(ends.raw_high.as_ptr().add(at)), size);
                let least = s.sub(s.splat(0.0), s.load(ends.raw_low.as_ptr().add(at)));
                size = s.max(least, most);
            }
            let max = s.load(rows.max.as_ptr().add(at));
            near = s.min(s.sub(max, high), near);
            far = s.max(s.sub(max, low), far);
            s.store(range.low.as_mut_ptr().add(at), low);
            s.store(range.high.as_mut_ptr().add(at), high);
        }
    }
    let mut lanes = [[0.0_f32; 16]; 3];
    for (lanes, x) in lanes.iter_mut().zip([near, far, size]) {
        // SAFETY: no vector is wider than 16.
        unsafe { s.store(lanes.as_mut_ptr(), x) };
    }
    for lane in 0..S::WIDTH {
        range.near = range.near.min(lanes[0][lane]);
        range.far = range.far.max(lanes[1][lane]);
        range.raw = range.raw.max(lanes[2][lane]);
    }
    range
}

/// Smallest and largest visible score of each lane of vector `v`; `size` takes the largest absolute raw score.
///
/// # Safety
/// As for [`weigh_block`].
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "one block and where it goes")]
unsafe fn scan_range<S: Lanes, B: AddBias>(
    s: S,
    n: usize,
    raw: &[f32],
    bias: B,
    v: usize,
    lanes: usize,
    last: S::V,
    size: &mut S::V,
) -> (S::V, S::V) {
    let (inf, lowest) = (s.splat(f32::INFINITY), s.splat(f32::NEG_INFINITY));
    let (mut low, mut high) = (inf, lowest);
    for j in 0..n {
        // SAFETY: by the caller's promise.
        unsafe {
            let raw = s.load(raw.as_ptr().add(j * lanes + v * S::WIDTH));
            let score = bias.add(s, raw, j, v);
            let seen = s.le(s.splat(j as f32), last);
            low = s.min(s.select(seen, score, inf), low);
            high = s.max(s.select(seen, score, lowest), high);
            *size = s.max(s.abs(raw), *size);
        }
    }
    (low, high)
}

#[inline(always)]
fn visible_lanes<S: Lanes>(
    s: S,
    tile: &ScoreTile<'_>,
    keys: Range<usize>,
    rows: &LaneRows<'_>,
    gap: f32,
    recent: usize,
) -> VisibleBlock {
    let raw = tile.raw(keys.clone());
    let mut block = VisibleBlock {
        far: [f32::NEG_INFINITY; TILE_MAX],
        near: [f32::NEG_INFINITY; TILE_MAX],
        size: [0.0; TILE_MAX],
    };
    with_bias!(tile, keys, bias => {
        for v in 0..tile.lanes / S::WIDTH {
            // SAFETY: `visible` has checked every length.
            unsafe { visible_vector(s, tile, &keys, raw, bias, rows, v, (gap, recent), &mut block) };
        }
    });
    block
}

/// Vector `v` of a tile.
///
/// # Safety
/// As for [`weigh_block`].
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "one block and where it goes")]
unsafe fn visible_vector<S: Lanes, B: AddBias>(
    s: S,
    tile: &ScoreTile<'_>,
    keys: &Range<usize>,
    raw: &[f32],
    bias: B,
    rows: &LaneRows<'_>,
    v: usize,
    (gap, recent): (f32, usize),
    block: &mut VisibleBlock,
) {
    let (w, lowest) = (S::WIDTH, s.splat(f32::NEG_INFINITY));
    let (mut far, mut near, mut size) = (lowest, lowest, s.splat(0.0));
    let last = relative_keys(rows.last_key, keys);
    let (zero, one, recent) = (s.splat(0.0), s.splat(1.0), s.splat(recent as f32));
    let nearest = tile.first_query as i64 + (v * w) as i64 - keys.start as i64;
    // SAFETY: by the caller's promise.
    unsafe {
        let max = s.load(rows.max.as_ptr().add(v * w));
        let last = s.load(last.as_ptr().add(v * w));
        for j in 0..keys.len() {
            let score = s.load(raw.as_ptr().add(j * tile.lanes + v * w));
            let gaps = s.sub(max, bias.add(s, score, j, v));
            let seen = s.select(s.le(gaps, s.splat(gap)), score, lowest);
            let seen = s.select(s.le(s.splat(j as f32), last), seen, lowest);
            let distance = s.add(s.iota(), s.splat((nearest - j as i64) as f32));
            let is_far = s.le(recent, distance);
            far = s.max(far, s.select(is_far, seen, lowest));
            let other = s.select(s.le(one, distance), seen, lowest);
            near = s.max(near, s.select(is_far, lowest, other));
            // What is not seen has no size.
            let sizes = s.select(s.le(seen, lowest), zero, s.abs(seen));
            size = s.max(size, sizes);
        }
        s.store(block.far.as_mut_ptr().add(v * w), far);
        s.store(block.near.as_mut_ptr().add(v * w), near);
        s.store(block.size.as_mut_ptr().add(v * w), size);
    }
}

/// The last keys of the lanes, counted from the first of `keys`: small where it matters, so that f32 holds them.
#[inline(always)]
pub(crate) fn relative_keys(last_keys: &[i32], keys: &Range<usize>) -> [f32; TILE_MAX] {
    let mut last_key = [0.0_f32; TILE_MAX];
    for (to, &key) in last_key.iter_mut().zip(last_keys) {
        *to = (key - keys.start as i32) as f32;
    }
    last_key
}

/// A gap that has no weight, and is finite so that weight times gap is 0.
const HIDDEN: f32 = -1e30;

/// # Safety
/// All slices hold a tile, `raw` one for every key, `to` one and a value for every key but one; `bias` covers the block.
#[inline(always)]
unsafe fn weigh_block<S: Lanes, B: AddBias, const NV: usize, const MASK: bool>(
    s: S,
    keys: &Range<usize>,
    raw: &[f32],
    bias: B,
    rows: &LaneRows<'_>,
    to: &mut [f32],
) -> WeighedBlock {
    let (w, n, to) = (S::WIDTH, keys.len(), to.as_mut_ptr());
    let zero = s.splat(0.0);
    let (mut max, mut share, mut last) = ([zero; NV], [zero; NV], [zero; NV]);
    let (mut cut, mut weighted) = ([[zero; NV]; 2], [zero; NV]);
    let (mut within, mut p) = ([[zero; NV]; 2], [zero; NV]);
    let last_key = relative_keys(rows.last_key, keys);
    let one = s.splat(1.0);
    // SAFETY: by the caller's promise.
    unsafe {
        for v in 0..NV {
            let at = v * w;
            max[v] = s.load(rows.max.as_ptr().add(at));
            share[v] = s.mul(s.load(rows.share.as_ptr().add(at)), s.splat(1.0 / LIFT));
            last[v] = s.load(last_key.as_ptr().add(at));
            for (cut, gaps) in cut.iter_mut().zip(rows.beyond) {
                // A gap above the threshold is a score not above or at minus the threshold.
                cut[v] = s.sub(zero, s.load(gaps.as_ptr().add(at)));
            }
        }
        let mut sums = Diagonals::<S, NV>::load(s, to);
        for j in (0..n).rev() {
            for v in 0..NV {
                let score = bias.add(s, s.load(raw.as_ptr().add((j * NV + v) * w)), j, v);
                // A score of minus infinity has weight 0 too.
                let mut t = s.max(s.sub(score, max[v]), s.splat(HIDDEN));
                if MASK {
                    t = s.select(s.le(s.splat(j as f32), last[v]), t, s.splat(HIDDEN));
                }
                p[v] = exp_lifted(s, t, LIFT);
                weighted[v] = s.fma(p[v], t, weighted[v]);
                for i in 0..2 {
                    let near = s.le(cut[i][v], t);
                    within[i][v] = s.select(near, s.add(within[i][v], one), within[i][v]);
                }
                sums.lanes[v] = s.fma(p[v], share[v], sums.lanes[v]);
            }
            if j > 0 {
                sums.step(s, to.add(n - 1 - j));
            }
        }
        sums.store(s, to.add(n - 1));
        let mut block = WeighedBlock {
            gap: [0.0; TILE_MAX],
            first: [0.0; TILE_MAX],
            beyond: [0; 2],
        };
        for v in 0..NV {
            let at = v * w;
            let gap = s.mul(weighted[v], s.splat(-1.0 / LIFT));
            s.store(block.gap.as_mut_ptr().add(at), gap);
            s.store(block.first.as_mut_ptr().add(at), s.mul(p[v], share[v]));
        }
        for i in 0..2 {
            let mut lanes = [0.0_f32; TILE_MAX];
            for v in 0..NV {
                s.store(lanes.as_mut_ptr().add(v * w), within[i][v]);
            }
            let within: f32 = lanes.iter().sum();
            block.beyond[i] = (n * NV * w) as u64 - within as u64;
        }
        block
    }
}

#[cfg(test)]
#[path = "weigh_tests.rs"]
mod tests;
