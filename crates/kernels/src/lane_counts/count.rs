//! How many scores of a block lie below each cut, and at which differences.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use super::{Below, Biased, CUTS, Cut, Pairs, Scores, Seen, with_scores};
use crate::lane_loops::{Terms, along_diagonals, with_lane_bias};
use crate::lanes::Lanes;
use crate::tile::NoBias;
use crate::weigh::relative_keys;

#[inline(always)]
pub(super) fn count_scores<S: Lanes>(
    s: S,
    pairs: &Pairs<'_>,
    cuts: &[Cut<'_>],
    to: Option<&mut [u32]>,
) -> [Below; CUTS] {
    let (keys, lanes) = (pairs.keys.len(), pairs.lanes);
    with_scores!(pairs, biased => count_block(s, biased, keys, lanes, cuts, to))
}

#[inline(always)]
pub(super) fn count_plain<S: Lanes>(
    s: S,
    lanes: usize,
    scores: &[f32],
    cuts: &[Cut<'_>],
    to: Option<&mut [u32]>,
) -> [Below; CUTS] {
    let keys = scores.len() / lanes;
    let scores = Biased {
        raw: scores.as_ptr(),
        bias: NoBias,
    };
    count_block(s, scores, keys, lanes, cuts, to)
}

#[inline(always)]
fn count_block<S: Lanes, C: Scores>(
    s: S,
    scores: C,
    keys: usize,
    lanes: usize,
    cuts: &[Cut<'_>],
    to: Option<&mut [u32]>,
) -> [Below; CUTS] {
    // SAFETY: the callers have checked every length.
    unsafe {
        // The tiles that there are: see `sized_tile`.
        match (S::WIDTH == 16, lanes / S::WIDTH) {
            (_, 1) => count_vectors::<S, C, 1>(s, scores, keys, cuts, to),
            (false, 2) => count_vectors::<S, C, 2>(s, scores, keys, cuts, to),
            (true, 3) => count_vectors::<S, C, 3>(s, scores, keys, cuts, to),
            (_, n) => unreachable!("a tile of {n} vectors"),
        }
    }
}

/// # Safety
/// As for [`count_lanes`].
#[inline(always)]
unsafe fn count_vectors<S: Lanes, C: Scores, const NV: usize>(
    s: S,
    scores: C,
    keys: usize,
    cuts: &[Cut<'_>],
    to: Option<&mut [u32]>,
) -> [Below; CUTS] {
    // SAFETY: by the caller's promise.
    unsafe {
        match (cuts.len(), to) {
            (1, None) => count_lanes::<S, C, NV, 1, false>(s, scores, keys, cuts, &mut []),
            (1, Some(to)) => count_lanes::<S, C, NV, 1, true>(s, scores, keys, cuts, to),
            (2, None) => count_lanes::<S, C, NV, 2, false>(s, scores, keys, cuts, &mut []),
            (2, Some(to)) => count_lanes::<S, C, NV, 2, true>(s, scores, keys, cuts, to),
            (n, _) => unreachable!("{n} cuts at a time"),
        }
    }
}

/// # Safety
/// `scores` has `keys` rows of a tile, every cut a value a lane, `to` one value for every key and a tile if `OWN`.
#[inline(always)]
unsafe fn count_lanes<S: Lanes, C: Scores, const NV: usize, const N: usize, const OWN: bool>(
    s: S,
    scores: C,
    keys: usize,
    cuts: &[Cut<'_>],
    to: &mut [u32],
) -> [Below; CUTS] {
    let zero = s.splat(0.0);
    let mut counting = Counting::<S, C, NV, N, OWN> {
        scores,
        below: [[zero; NV]; N],
        // The larger of this and any value is the value.
        top: [[s.splat(f32::NAN); NV]; N],
        found: [[zero; NV]; N],
    };
    let before = if OWN { total(to) } else { 0 };
    let mut found = [Below::default(); CUTS];
    // SAFETY: by the caller's promise.
    unsafe {
        for v in 0..NV {
            for i in 0..N {
                counting.below[i][v] = s.load(cuts[i].below.as_ptr().add(v * S::WIDTH));
            }
        }
        if OWN {
            let to = to.as_mut_ptr().cast::<f32>();
            along_diagonals::<S, _, NV>(s, &mut counting, keys, to);
        } else {
            for j in 0..keys {
                for v in 0..NV {
                    counting.add(s, j, v, zero);
                }
            }
        }
        for i in 0..N {
            for v in 0..NV {
                let surely = s.load(cuts[i].surely.as_ptr().add(v * S::WIDTH));
                // False where nothing is below.
                let under = s.select(s.le(surely, counting.top[i][v]), s.splat(1.0), zero);
                found[i].in_doubt |= !s.all(s.le(under, zero));
                found[i].pairs += s.tallied(counting.found[i][v]);
            }
        }
    }
    if OWN {
        found[0].pairs = u64::from(total(to).wrapping_sub(before));
    }
    found
}

/// Scores below some cuts.
struct Counting<S: Lanes, C, const NV: usize, const N: usize, const OWN: bool> {
    scores: C,
    below: [[S::V; NV]; N],
    /// The largest of those below.
    top: [[S::V; NV]; N],
    /// How many. Those below the first cut are summed by difference if `OWN`.
    found: [[S::V; NV]; N],
}

impl<S: Lanes, C: Scores, const NV: usize, const N: usize, const OWN: bool> Terms<S>
    for Counting<S, C, NV, N, OWN>
{
    const COUNTS: bool = true;

    #[inline(always)]
    unsafe fn add(&mut self, s: S, j: usize, v: usize, mut sum: S::V) -> S::V {
        // SAFETY: by the caller's promise.
        let value = unsafe { self.scores.at::<S, NV>(s, j, v) };
        for i in 0..N {
            let below = s.lt(value, self.below[i][v]);
            let top = self.top[i][v];
            self.top[i][v] = s.select(below, s.max(top, value), top);
            if OWN && i == 0 {
                sum = s.tally(below, sum);
            } else {
                self.found[i][v] = s.tally(below, self.found[i][v]);
            }
        }
        sum
    }

    #[inline(always)]
    fn join(s: S, a: S::V, b: S::V) -> S::V {
        s.add_counters(a, b)
    }
}

/// Sum of some counters, without what does not fit.
#[inline(always)]
fn total(counters: &[u32]) -> u32 {
    counters.iter().fold(0, |sum, &n| sum.wrapping_add(n))
}
