//! Gaps beyond thresholds, for plans whose maximum moves.
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use std::ops::Range;

use super::{Gaps, Pairs, Scores, Seen, Values, check_sums, total};
use crate::lane_loops::{LaneBias, Terms, along_diagonals, with_lane_bias};
use crate::lanes::{Isa, Lanes, dispatch};
use crate::score_tile::{ScoreTile, check_block};
use crate::tile::TILE_MAX;
use crate::weigh::relative_keys;

/// Gaps that decide, one value a lane each.
#[derive(Clone, Copy, Debug)]
pub struct GapLimits<'a> {
    /// Pairs above it are counted.
    pub threshold: &'a [f32],
    /// Pairs above the first and not above the second are undecided.
    pub undecided: [&'a [f32]; 2],
}

/// Pairs of a block by [`GapLimits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    /// Above the threshold.
    pub pairs: u64,
    /// Undecided.
    pub undecided: u64,
}

impl ScoreTile<'_> {
    /// Counts the pairs of the keys `keys` (one block, or the visible part of one) by their gap `max - (raw + bias)`, nats, one rounding
    /// each. `max` holds a value a lane. `bias` is that of the forward pass if it is not given. With `last_key`, pairs of a lane behind
    /// its last key (-1: all of them) do not count. Those above the threshold are added to `by_difference`, if it is given, as in
    /// [`ScoreTile::weigh`].
    ///
    /// # Panics
    /// If the keys are more than a block or not there, or if a slice has another length.
    pub fn beyond(
        &self,
        keys: Range<usize>,
        bias: Option<LaneBias<'_>>,
        max: &[f32],
        last_key: Option<&[i32]>,
        limits: GapLimits<'_>,
        by_difference: Option<&mut [u32]>,
    ) -> Beyond {
        self.check_lanes(max.len());
        check(self.lanes, keys.len(), limits, by_difference.as_deref());
        let pairs = Pairs::new(self, keys, bias, last_key);
        dispatch!(
            self.isa,
            count_gaps,
            (pairs: &Pairs<'_>, max: &[f32], limits: GapLimits<'_>, to: Option<&mut [u32]>) -> Beyond
                = (&pairs, max, limits, by_difference)
        )
    }
}

/// [`ScoreTile::beyond`] for gaps `[keys, lanes]`, at most a block.
///
/// # Panics
/// Likewise.
pub fn count_beyond(
    lanes: usize,
    gaps: &[f32],
    limits: GapLimits<'_>,
    by_difference: Option<&mut [u32]>,
) -> Beyond {
    let keys = gaps.len() / lanes;
    assert!(gaps.len() == keys * lanes, "{lanes} lanes");
    check_block(&(0..keys));
    check(lanes, keys, limits, by_difference.as_deref());
    dispatch!(
        Isa::of_lanes(lanes),
        count_plain,
        (lanes: usize, gaps: &[f32], limits: GapLimits<'_>, to: Option<&mut [u32]>) -> Beyond
            = (lanes, gaps, limits, by_difference)
    )
}

fn check(lanes: usize, keys: usize, limits: GapLimits<'_>, by_difference: Option<&[u32]>) {
    let [low, high] = limits.undecided;
    let fits = [limits.threshold, low, high].map(|limit| limit.len() == lanes);
    assert!(fits == [true; 3] && lanes <= TILE_MAX, "one value a lane");
    check_sums(keys, lanes, by_difference);
}

/// Points to `[keys, lanes]`.
#[derive(Clone, Copy)]
struct Plain(*const f32);

impl Values for Plain {
    const HIDDEN: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    unsafe fn at<S: Lanes, const NV: usize>(self, s: S, j: usize, v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        unsafe { s.load(self.0.add((j * NV + v) * S::WIDTH)) }
    }
}

#[inline(always)]
fn count_gaps<S: Lanes>(
    s: S,
    pairs: &Pairs<'_>,
    max: &[f32],
    limits: GapLimits<'_>,
    to: Option<&mut [u32]>,
) -> Beyond {
    let (keys, lanes) = (pairs.keys.len(), pairs.lanes);
    with_lane_bias!(pairs.bias, pairs.keys, bias => {
        let raw = pairs.raw.as_ptr();
        let values = Gaps {
            scores: Scores { raw, bias },
            max: max.as_ptr(),
        };
        match pairs.last_key {
            None => count_block(s, values, keys, lanes, limits, to),
            Some(last) => {
                let last = relative_keys(last, &pairs.keys);
                let last = last.as_ptr();
                count_block(s, Seen { values, last }, keys, lanes, limits, to)
            }
        }
    })
}

#[inline(always)]
fn count_plain<S: Lanes>(
    s: S,
    lanes: usize,
    gaps: &[f32],
    limits: GapLimits<'_>,
    to: Option<&mut [u32]>,
) -> Beyond {
    let keys = gaps.len() / lanes;
    count_block(s, Plain(gaps.as_ptr()), keys, lanes, limits, to)
}

#[inline(always)]
fn count_block<S: Lanes, V: Values>(
    s: S,
    values: V,
    keys: usize,
    lanes: usize,
    limits: GapLimits<'_>,
    to: Option<&mut [u32]>,
) -> Beyond {
    // SAFETY: the callers have checked every length.
    unsafe {
        // The tiles that there are: see `sized_tile`.
        match (S::WIDTH == 16, lanes / S::WIDTH) {
            (_, 1) => count_vectors::<S, V, 1>(s, values, keys, limits, to),
            (false, 2) => count_vectors::<S, V, 2>(s, values, keys, limits, to),
            (true, 3) => count_vectors::<S, V, 3>(s, values, keys, limits, to),
            (_, n) => unreachable!("a tile of {n} vectors"),
        }
    }
}

/// # Safety
/// `values` has `keys` rows of a tile, every limit a value a lane, `to` one value for every key and a tile.
#[inline(always)]
unsafe fn count_vectors<S: Lanes, V: Values, const NV: usize>(
    s: S,
    values: V,
    keys: usize,
    limits: GapLimits<'_>,
    to: Option<&mut [u32]>,
) -> Beyond {
    let zero = s.splat(0.0);
    let mut counting = Counting::<S, V, NV> {
        values,
        limits: [[zero; NV]; 3],
        undecided: [[zero; NV]; 2],
    };
    let mut found = Beyond::default();
    let [low, high] = limits.undecided;
    // SAFETY: by the caller's promise.
    unsafe {
        for v in 0..NV {
            for (i, limit) in [limits.threshold, low, high].iter().enumerate() {
                counting.limits[i][v] = s.load(limit.as_ptr().add(v * S::WIDTH));
            }
        }
        if let Some(to) = to {
            let before = total(to);
            let at = to.as_mut_ptr().cast::<f32>();
            along_diagonals::<S, _, NV, 2>(s, &mut counting, keys, at);
            found.pairs = u64::from(total(to).wrapping_sub(before));
        } else {
            let mut above = [zero; NV];
            for j in 0..keys {
                for v in 0..NV {
                    above[v] = counting.add(s, j, v, above[v]);
                }
            }
            for above in above {
                found.pairs += s.tallied(above);
            }
        }
    }
    for v in 0..NV {
        let (low, high) = (counting.undecided[0][v], counting.undecided[1][v]);
        found.undecided += s.tallied(low) - s.tallied(high);
    }
    found
}

/// Gaps beyond the limits.
struct Counting<S: Lanes, V, const NV: usize> {
    values: V,
    /// The threshold, and where undecided pairs begin and end.
    limits: [[S::V; NV]; 3],
    /// Pairs above the last two.
    undecided: [[S::V; NV]; 2],
}

impl<S: Lanes, V: Values, const NV: usize> Terms<S> for Counting<S, V, NV> {
    #[inline(always)]
    unsafe fn add(&mut self, s: S, j: usize, v: usize, sum: S::V) -> S::V {
        // SAFETY: by the caller's promise.
        let value = unsafe { self.values.at::<S, NV>(s, j, v) };
        for side in 0..2 {
            let above = s.lt(self.limits[side + 1][v], value);
            self.undecided[side][v] = s.tally(above, self.undecided[side][v]);
        }
        s.tally(s.lt(self.limits[0][v], value), sum)
    }

    #[inline(always)]
    fn join(s: S, a: S::V, b: S::V) -> S::V {
        s.add_counters(a, b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_a_plain_loop() {
        for lanes in [8, 16, 48] {
            for keys in [1, 5, 64] {
                let gaps: Vec<f32> = (0..keys * lanes).map(|i| (i * 37 % 101) as f32).collect();
                let threshold: Vec<f32> = (0..lanes).map(|lane| 30.0 + lane as f32).collect();
                let low: Vec<f32> = (0..lanes).map(|lane| 20.0 + lane as f32).collect();
                let high: Vec<f32> = (0..lanes).map(|lane| 95.0 - lane as f32 / 2.0).collect();
                let limits = GapLimits {
                    threshold: &threshold,
                    undecided: [&low, &high],
                };
                let mut ones = vec![2_u32; keys + lanes];
                let found = count_beyond(lanes, &gaps, limits, Some(&mut ones));
                assert_eq!(found, count_beyond(lanes, &gaps, limits, None));
                let mut expected = Beyond::default();
                let mut by_difference = vec![2_u32; keys + lanes];
                for (i, &gap) in gaps.iter().enumerate() {
                    let (key, lane) = (i / lanes, i % lanes);
                    expected.undecided += u64::from(gap > low[lane] && gap <= high[lane]);
                    if gap > threshold[lane] {
                        expected.pairs += 1;
                        by_difference[keys - 1 - key + lane] += 1;
                    }
                }
                assert_eq!(found, expected, "{lanes} lanes, {keys} keys");
                assert_eq!(ones, by_difference, "{lanes} lanes, {keys} keys");
            }
        }
    }
}
