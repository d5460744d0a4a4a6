//! Weights of a tile whose rows are final, by difference. One pass over what the forward pass has kept, everything in registers.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use std::ops::Range;

use crate::exp::exp;
use crate::lane_loops::{Terms, along_diagonals};
use crate::lanes::{Lanes, dispatch};
use crate::score_tile::{ScoreTile, check_block};
use crate::tile::{LIFT, TILE_MAX};

/// What [`ScoreTile::weigh`] found in a block.
#[derive(Clone, Copy, Debug)]
pub struct WeighedBlock {
    /// `[lanes]`: weight of the block's first key times the lane's share.
    pub first: [f32; TILE_MAX],
    /// Pairs whose weight times share reaches each of the two limits; 0 for one that was not given.
    pub reaching: [u64; 2],
}

impl ScoreTile<'_> {
    /// Adds the weights `share * exp(score - max)` of the keys `keys`, one block or the visible part of it, to `by_difference`,
    /// whose first value belongs to the difference of the tile's first query to the last of these keys and which has
    /// `keys.len() + lanes` values, the last of which gets nothing; and counts those that reach each of two limits, if they are given. `max` and `share` hold a
    /// value a lane, the largest score and one over the row's sum, 0 for a lane that takes no part. The exponentials are those of the
    /// forward pass. Weights below `exp(-40)` of the largest of their row are taken as 0.
    ///
    /// # Panics
    /// If the keys are more than a block or not there, or if a slice has another length.
    pub fn weigh(
        &self,
        keys: Range<usize>,
        max: &[f32],
        share: &[f32],
        limits: [Option<f32>; 2],
        by_difference: &mut [f32],
    ) -> WeighedBlock {
        self.check_lanes(max.len());
        self.check_lanes(share.len());
        check_block(&keys);
        assert!(
            by_difference.len() == keys.len() + self.lanes,
            "{} sums for {} keys",
            by_difference.len(),
            keys.len()
        );
        let block = Kept {
            weights: self.weights(keys.clone()),
            references: self.references(keys.start),
            max,
            share,
        };
        dispatch!(
            self.isa,
            weigh_lanes,
            (block: Kept<'_>, limits: [Option<f32>; 2], to: &mut [f32]) -> WeighedBlock
                = (block, limits, by_difference)
        )
    }
}

/// What the forward pass has kept of one block, `[keys, lanes]`, and of every lane.
#[derive(Clone, Copy)]
struct Kept<'a> {
    weights: &'a [f32],
    references: &'a [f32],
    max: &'a [f32],
    share: &'a [f32],
}

#[inline(always)]
fn weigh_lanes<S: Lanes>(
    s: S,
    block: Kept<'_>,
    limits: [Option<f32>; 2],
    to: &mut [f32],
) -> WeighedBlock {
    match block.share.len() / S::WIDTH {
        1 => weigh_vectors::<S, 1>(s, block, limits, to),
        2 => weigh_vectors::<S, 2>(s, block, limits, to),
        3 => weigh_vectors::<S, 3>(s, block, limits, to),
        n => unreachable!("a tile of {n} vectors"),
    }
}

#[inline(always)]
fn weigh_vectors<S: Lanes, const NV: usize>(
    s: S,
    block: Kept<'_>,
    limits: [Option<f32>; 2],
    to: &mut [f32],
) -> WeighedBlock {
    // SAFETY: `weigh` has checked every length.
    unsafe {
        match limits {
            [Some(a), Some(b)] => weigh_block::<S, NV, 2>(s, block, [a, b], to),
            [None, None] => weigh_block::<S, NV, 0>(s, block, [], to),
            [Some(a), None] => weigh_block::<S, NV, 1>(s, block, [a], to),
            [None, Some(b)] => {
                let mut found = weigh_block::<S, NV, 1>(s, block, [b], to);
                found.reaching.swap(0, 1);
                found
            }
        }
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

/// Below this, nats, a reference lies so far under the row's maximum that its block's weights are nothing to the row. Products of
/// factors this small would be subnormal.
const FADED: f32 = -40.0;

/// # Safety
/// The slices of `block` hold a tile, the weights one for every key, `to` one and a value for every key.
#[inline(always)]
unsafe fn weigh_block<S: Lanes, const NV: usize, const L: usize>(
    s: S,
    block: Kept<'_>,
    limits: [f32; L],
    to: &mut [f32],
) -> WeighedBlock {
    let w = S::WIDTH;
    let mut takes_part = true;
    for v in 0..NV {
        // SAFETY: by the caller's promise.
        let share = unsafe { s.load(block.share.as_ptr().add(v * w)) };
        takes_part &= s.all(s.lt(s.splat(0.0), share));
    }
    // SAFETY: by the caller's promise.
    unsafe {
        if takes_part {
            weigh_keys::<S, NV, L, true>(s, block, limits, to)
        } else {
            weigh_keys::<S, NV, L, false>(s, block, limits, to)
        }
    }
}

/// `ALL`: every lane takes part.
///
/// # Safety
/// As for [`weigh_block`].
#[inline(always)]
unsafe fn weigh_keys<S: Lanes, const NV: usize, const L: usize, const ALL: bool>(
    s: S,
    block: Kept<'_>,
    limits: [f32; L],
    to: &mut [f32],
) -> WeighedBlock {
    let w = S::WIDTH;
    let n = block.weights.len() / (NV * w);
    let zero = s.splat(0.0);
    let mut terms = Weights::<S, NV, L, ALL> {
        kept: block.weights.as_ptr(),
        factor: [zero; NV],
        // What is not finite belongs to lanes that take no part.
        absent: [s.le(zero, zero); NV],
        cuts: [[zero; NV]; L],
        reaching: [[zero; NV]; L],
    };
    // SAFETY: by the caller's promise.
    unsafe {
        for v in 0..NV {
            let share = s.load(block.share.as_ptr().add(v * w));
            let absent = s.le(share, zero);
            let reference = s.load(block.references.as_ptr().add(v * w));
            let rise = s.sub(reference, s.load(block.max.as_ptr().add(v * w)));
            let weight = s.mul(exp(s, rise), s.mul(share, s.splat(1.0 / LIFT)));
            let mut factor = s.select(s.le(rise, s.splat(FADED)), zero, weight);
            if !ALL {
                factor = s.select(absent, zero, factor);
            }
            for i in 0..L {
                terms.cuts[i][v] = s.div(s.splat(limits[i]), factor);
            }
            (terms.factor[v], terms.absent[v]) = (factor, absent);
        }
        let to = to.as_mut_ptr();
        along_diagonals::<S, _, NV>(s, &mut terms, n, to);
        let mut found = WeighedBlock {
            first: [0.0; TILE_MAX],
            reaching: [0; 2],
        };
        for v in 0..NV {
            let first = s.mul(terms.kept(s, 0, v), terms.factor[v]);
            s.store(found.first.as_mut_ptr().add(v * w), first);
        }
        for i in 0..L {
            for v in 0..NV {
                found.reaching[i] += s.tallied(terms.reaching[i][v]);
            }
        }
        found
    }
}

/// The weights of a block.
struct Weights<S: Lanes, const NV: usize, const L: usize, const ALL: bool> {
    /// What the forward pass has kept of them, `[keys, lanes]`.
    kept: *const f32,
    factor: [S::V; NV],
    absent: [S::M; NV],
    /// What is kept of a weight that is at the limit.
    cuts: [[S::V; NV]; L],
    /// How many reach it.
    reaching: [[S::V; NV]; L],
}

impl<S: Lanes, const NV: usize, const L: usize, const ALL: bool> Weights<S, NV, L, ALL> {
    /// # Safety
    /// Key `j` is in the block, and has vector `v`.
    #[inline(always)]
    unsafe fn kept(&self, s: S, j: usize, v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        let kept = unsafe { s.load(self.kept.add((j * NV + v) * S::WIDTH)) };
        if ALL {
            kept
        } else {
            s.select(self.absent[v], s.splat(0.0), kept)
        }
    }
}

impl<S: Lanes, const NV: usize, const L: usize, const ALL: bool> Terms<S>
    for Weights<S, NV, L, ALL>
{
    const COUNTS: bool = L > 0;

    #[inline(always)]
    unsafe fn add(&mut self, s: S, j: usize, v: usize, sum: S::V) -> S::V {
        // SAFETY: by the caller's promise.
        let kept = unsafe { self.kept(s, j, v) };
        for i in 0..L {
            let reaches = s.le(self.cuts[i][v], kept);
            self.reaching[i][v] = s.tally(reaches, self.reaching[i][v]);
        }
        s.fma(kept, self.factor[v], sum)
    }
}

#[cfg(test)]
#[path = "weigh_tests.rs"]
mod tests;
