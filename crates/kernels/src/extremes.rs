//! Extremes of the scores of a tile whose rows are final: of gaps over a block, of raw scores over the pairs that attention sees.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use std::ops::Range;

use crate::lane_loops::with_lane_bias;
use crate::lanes::{Lanes, dispatch};
use crate::score_tile::{ScoreTile, check_block};
use crate::tile::{AddBias, KEY_BLOCK, TILE_MAX};
use crate::weigh::relative_keys;

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

/// Gaps and scores of a block over the pairs that are visible.
#[derive(Clone, Copy, Debug)]
pub struct BlockRange {
    /// Smallest and largest gap of any pair, nats; infinite and minus infinite if there is none.
    pub near: f32,
    /// See `near`.
    pub far: f32,
    /// Largest absolute raw score, of hidden pairs and idle lanes too.
    pub raw: f32,
}

impl ScoreTile<'_> {
    /// The ranges of the whole blocks `keys`, before the diagonal, are added to `out`. Reads only what was kept of each block. `max`
    /// and `last_key` hold a value a lane, the largest score and the last key that the lane sees, -1 for a lane that takes no part.
    ///
    /// # Panics
    /// If those are not whole blocks before the diagonal, or if a slice has another length.
    pub fn ranges(
        &self,
        keys: Range<usize>,
        max: &[f32],
        last_key: &[i32],
        out: &mut Vec<BlockRange>,
    ) {
        self.check_lanes(max.len());
        self.check_lanes(last_key.len());
        assert!(
            keys.start.is_multiple_of(KEY_BLOCK)
                && keys.end.is_multiple_of(KEY_BLOCK)
                && (self.proven_zero_before..=self.diagonal_from()).contains(&keys.end)
                && self.proven_zero_before <= keys.start,
            "blocks {keys:?}"
        );
        dispatch!(
            self.isa,
            kept_ranges,
            (tile: &ScoreTile<'_>, keys: Range<usize>, max: &[f32], last_key: &[i32], out: &mut Vec<BlockRange>)
                = (self, keys, max, last_key, out)
        );
    }

    /// The range of a block, or of the visible part of one, and each lane's largest score, minus infinity if it sees nothing. `max` and
    /// `last_key` as in [`ScoreTile::ranges`].
    ///
    /// # Panics
    /// As [`ScoreTile::weigh`].
    pub fn range_of_pairs(
        &self,
        keys: Range<usize>,
        max: &[f32],
        last_key: &[i32],
    ) -> (BlockRange, [f32; TILE_MAX]) {
        self.check_lanes(max.len());
        self.check_lanes(last_key.len());
        check_block(&keys);
        dispatch!(
            self.isa,
            range_lanes,
            (tile: &ScoreTile<'_>, keys: Range<usize>, max: &[f32], last_key: &[i32]) -> (BlockRange, [f32; TILE_MAX])
                = (self, keys, max, last_key)
        )
    }

    /// Each lane's largest score over a block or a part of one before the diagonal, whose every key every lane sees. Lanes that take no part
    /// hold anything.
    ///
    /// # Panics
    /// As [`ScoreTile::weigh`], and if a key is not before the diagonal.
    pub fn highs(&self, keys: Range<usize>) -> [f32; TILE_MAX] {
        check_block(&keys);
        assert!(keys.end <= self.diagonal_from(), "keys {keys:?}");
        dispatch!(
            self.isa,
            high_lanes,
            (tile: &ScoreTile<'_>, keys: Range<usize>) -> [f32; TILE_MAX] = (self, keys)
        )
    }

    /// Largest raw scores of the pairs of a block whose gap from `max`, one value a lane, is not above `gap` nats; `all` says that none is. Lanes that take no
    /// part hold anything.
    ///
    /// # Panics
    /// As [`ScoreTile::weigh`].
    pub fn visible(
        &self,
        keys: Range<usize>,
        max: &[f32],
        gap: f32,
        recent: usize,
        all: bool,
    ) -> VisibleBlock {
        self.check_lanes(max.len());
        check_block(&keys);
        dispatch!(
            self.isa,
            visible_lanes,
            (tile: &ScoreTile<'_>, keys: Range<usize>, max: &[f32], gap: f32, recent: usize, all: bool) -> VisibleBlock
                = (self, keys, max, gap, recent, all)
        )
    }
}

/// Extremes over the lanes of a block.
struct Spread<S: Lanes> {
    near: S::V,
    far: S::V,
    size: S::V,
}

impl<S: Lanes> Spread<S> {
    #[inline(always)]
    fn new(s: S) -> Self {
        Self {
            near: s.splat(f32::INFINITY),
            far: s.splat(f32::NEG_INFINITY),
            size: s.splat(0.0),
        }
    }

    /// Takes the smallest and the largest scores of a vector of lanes.
    #[inline(always)]
    fn take(&mut self, s: S, max: S::V, low: S::V, high: S::V) {
        self.near = s.min(s.sub(max, high), self.near);
        self.far = s.max(s.sub(max, low), self.far);
    }

    #[inline(always)]
    fn range(&self, s: S) -> BlockRange {
        BlockRange {
            near: -s.largest(s.sub(s.splat(0.0), self.near)),
            far: s.largest(self.far),
            raw: s.largest(self.size),
        }
    }
}

#[inline(always)]
fn kept_ranges<S: Lanes>(
    s: S,
    tile: &ScoreTile<'_>,
    keys: Range<usize>,
    max: &[f32],
    last_key: &[i32],
    out: &mut Vec<BlockRange>,
) {
    let (inf, lowest) = (s.splat(f32::INFINITY), s.splat(f32::NEG_INFINITY));
    // A lane that takes part sees its own key, and so all keys before the diagonal.
    let last = relative_keys(last_key, &keys);
    for start in keys.step_by(KEY_BLOCK) {
        let ends = tile.ends(start);
        let mut spread = Spread::new(s);
        for v in 0..tile.lanes / S::WIDTH {
            let at = v * S::WIDTH;
            // SAFETY: `ranges` has checked every length; the ends of a block hold a value a lane.
            unsafe {
                let good = s.le(s.splat(0.0), s.load(last.as_ptr().add(at)));
                let low = s.select(good, s.load(ends.low.as_ptr().add(at)), inf);
                let high = s.select(good, s.load(ends.high.as_ptr().add(at)), lowest);
                let most = s.max(s.load(ends.raw_high.as_ptr().add(at)), spread.size);
                let least = s.sub(s.splat(0.0), s.load(ends.raw_low.as_ptr().add(at)));
                spread.size = s.max(least, most);
                spread.take(s, s.load(max.as_ptr().add(at)), low, high);
            }
        }
        out.push(spread.range(s));
    }
}

#[inline(always)]
fn range_lanes<S: Lanes>(
    s: S,
    tile: &ScoreTile<'_>,
    keys: Range<usize>,
    max: &[f32],
    last_key: &[i32],
) -> (BlockRange, [f32; TILE_MAX]) {
    let mut spread = Spread::new(s);
    let mut highs = [f32::NEG_INFINITY; TILE_MAX];
    let last = relative_keys(last_key, &keys);
    let raw = tile.raw(keys.clone());
    for v in 0..tile.lanes / S::WIDTH {
        let at = v * S::WIDTH;
        // SAFETY: `range_of_pairs` has checked every length.
        unsafe {
            let last = s.load(last.as_ptr().add(at));
            let (low, high);
            with_lane_bias!(tile.lane_bias(&keys), keys, bias => {
                let size = &mut spread.size;
                (low, high) = scan_range(s, keys.len(), raw, bias, v, tile.lanes, last, size);
            });
            s.store(highs.as_mut_ptr().add(at), high);
            spread.take(s, s.load(max.as_ptr().add(at)), low, high);
        }
    }
    (spread.range(s), highs)
}

/// Smallest and largest visible score of each lane of vector `v`; `size` takes the largest absolute raw score.
///
/// # Safety
/// `raw` holds a row of a tile for every key, `bias` covers the block.
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
fn high_lanes<S: Lanes>(s: S, tile: &ScoreTile<'_>, keys: Range<usize>) -> [f32; TILE_MAX] {
    let mut highs = [f32::NEG_INFINITY; TILE_MAX];
    let raw = tile.raw(keys.clone()).as_ptr();
    with_lane_bias!(tile.lane_bias(&keys), keys, bias => {
        for v in 0..tile.lanes / S::WIDTH {
            let mut high = s.splat(f32::NEG_INFINITY);
            // SAFETY: `raw` has a row of a tile for every key, which the bias covers; no tile is wider than `TILE_MAX`.
            unsafe {
                for j in 0..keys.len() {
                    let raw = s.load(raw.add(j * tile.lanes + v * S::WIDTH));
                    high = s.max(bias.add(s, raw, j, v), high);
                }
                s.store(highs.as_mut_ptr().add(v * S::WIDTH), high);
            }
        }
    });
    highs
}

#[inline(always)]
fn visible_lanes<S: Lanes>(
    s: S,
    tile: &ScoreTile<'_>,
    keys: Range<usize>,
    max: &[f32],
    gap: f32,
    recent: usize,
    all: bool,
) -> VisibleBlock {
    let raw = tile.raw(keys.clone());
    let mut block = VisibleBlock {
        far: [f32::NEG_INFINITY; TILE_MAX],
        near: [f32::NEG_INFINITY; TILE_MAX],
        size: [0.0; TILE_MAX],
    };
    with_lane_bias!(tile.lane_bias(&keys), keys, bias => {
        for v in 0..tile.lanes / S::WIDTH {
            // SAFETY: `visible` has checked every length.
            unsafe {
                let bounds = (gap, recent);
                if all {
                    visible_vector::<S, _, true>(s, tile, &keys, raw, bias, max, v, bounds, &mut block);
                } else {
                    visible_vector::<S, _, false>(s, tile, &keys, raw, bias, max, v, bounds, &mut block);
                }
            }
        }
    });
    block
}

/// Vector `v` of a tile.
///
/// # Safety
/// `raw` holds a row of a tile for every key, `bias` covers the block.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "one block and where it goes")]
unsafe fn visible_vector<S: Lanes, B: AddBias, const ALL: bool>(
    s: S,
    tile: &ScoreTile<'_>,
    keys: &Range<usize>,
    raw: &[f32],
    bias: B,
    max: &[f32],
    v: usize,
    (gap, recent): (f32, usize),
    block: &mut VisibleBlock,
) {
    let (w, lowest, inf) = (S::WIDTH, s.splat(f32::NEG_INFINITY), s.splat(f32::INFINITY));
    let (mut far, mut near, mut size) = (lowest, lowest, s.splat(0.0));
    let mut least = inf;
    let (zero, one, gap) = (s.splat(0.0), s.splat(1.0), s.splat(gap));
    // Distance of the first lane to the block's first key. Up to `far_end` all keys are far from all lanes, from `seen_end` on none
    // is seen.
    let nearest = tile.first_query as i64 + (v * w) as i64 - keys.start as i64;
    let end = |keys_before: i64| keys_before.clamp(0, keys.len() as i64) as usize;
    let (far_end, seen_end) = (end(nearest - recent as i64 + 1), end(nearest + w as i64));
    let recent = s.splat(recent as f32);
    // SAFETY: by the caller's promise.
    unsafe {
        let max = s.load(max.as_ptr().add(v * w));
        let at = |j: usize| s.load(raw.as_ptr().add(j * tile.lanes + v * w));
        for j in 0..far_end {
            let score = at(j);
            if ALL {
                far = s.max(score, far);
                least = s.min(score, least);
            } else {
                let seen = s.le(s.sub(max, bias.add(s, score, j, v)), gap);
                far = s.max(s.select(seen, score, lowest), far);
                least = s.min(s.select(seen, score, inf), least);
            }
        }
        for j in far_end..seen_end {
            let score = at(j);
            let distance = s.add(s.iota(), s.splat((nearest - j as i64) as f32));
            let seen = s.select(s.le(zero, distance), score, lowest);
            let gaps = s.sub(max, bias.add(s, score, j, v));
            let seen = s.select(s.le(gaps, gap), seen, lowest);
            let is_far = s.le(recent, distance);
            far = s.max(far, s.select(is_far, seen, lowest));
            let other = s.select(s.le(one, distance), seen, lowest);
            near = s.max(near, s.select(is_far, lowest, other));
            // What is not seen has no size.
            let sizes = s.select(s.le(seen, lowest), zero, s.abs(seen));
            size = s.max(size, sizes);
        }
        let size = s.max(s.sub(zero, least), s.max(far, size));
        s.store(block.far.as_mut_ptr().add(v * w), far);
        s.store(block.near.as_mut_ptr().add(v * w), near);
        s.store(block.size.as_mut_ptr().add(v * w), size);
    }
}
