//! How many pairs of a block lie beyond a gap of their row, and at which differences.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use std::ops::Range;

use crate::lane_loops::{LaneBias, Terms, along_diagonals, with_lane_bias};
use crate::lanes::{Isa, Lanes, dispatch};
use crate::score_tile::ScoreTile;
use crate::tile::{AddBias, KEY_BLOCK, TILE_MAX};
use crate::weigh::relative_keys;

/// Two thresholds, one value a lane, the second never the smaller.
pub type Band<'a> = [&'a [f32]; 2];

/// Most bands that are looked at together.
pub const BANDS: usize = 3;

/// Pairs above the first threshold of each band, and above the second; 0 for bands that were not given. Where the two are the same,
/// no pair lies in the band.
pub type BandCounts = [[u64; 2]; BANDS];

impl ScoreTile<'_> {
    /// Counts the pairs of the keys `keys` (one block, or the visible part of one) whose gap `max - (raw + bias)`, nats, one rounding
    /// each, is above each threshold of `bands`. `max` holds a value a lane. `bias` is that of the forward pass if it is not given.
    /// With `last_key`, pairs of a lane behind its last key (-1: all of them) are above nothing. Those above the second threshold of
    /// the first band are added to `by_difference`, if it is given, as in [`ScoreTile::weigh`].
    ///
    /// # Panics
    /// If the keys are more than a block or not there, if there are more than [`BANDS`] bands or none, or if a slice has another
    /// length.
    pub fn beyond(
        &self,
        keys: Range<usize>,
        bias: Option<LaneBias<'_>>,
        max: &[f32],
        last_key: Option<&[i32]>,
        bands: &[Band<'_>],
        by_difference: Option<&mut [u32]>,
    ) -> BandCounts {
        let n = self.lanes;
        assert!(
            max.len() == n && last_key.is_none_or(|last| last.len() == n),
            "one value a lane"
        );
        let fits = match bias {
            None => true,
            Some(LaneBias::ByKey(bias)) => bias.len() == keys.len(),
            Some(LaneBias::ByDifference(bias)) => bias.len() + 1 == keys.len() + n,
        };
        assert!(fits, "bias of {} keys", keys.len());
        check(n, keys.len(), bands, by_difference.as_deref());
        let block = Block {
            tile: self,
            raw: self.raw(keys.clone()),
            // Resolved here: there are enough versions of the loop.
            bias: bias.or_else(|| self.lane_bias(&keys)),
            keys,
            max,
            last_key,
        };
        in_parts(bands, by_difference, |bands, to| {
            dispatch!(
                self.isa,
                count_gaps,
                (block: &Block<'_>, bands: &[Band<'_>], to: Option<&mut [u32]>) -> BandCounts
                    = (&block, bands, to)
            )
        })
    }
}

/// Two bands at a time: three are seldom.
fn in_parts(
    bands: &[Band<'_>],
    by_difference: Option<&mut [u32]>,
    count: impl Fn(&[Band<'_>], Option<&mut [u32]>) -> BandCounts,
) -> BandCounts {
    let (first, last) = bands.split_at(bands.len().min(2));
    let mut counts = count(first, by_difference);
    if !last.is_empty() {
        [counts[2], ..] = count(last, None);
    }
    counts
}

/// [`ScoreTile::beyond`] for values `[keys, lanes]`, at most a block, instead of gaps.
///
/// # Panics
/// Likewise.
pub fn count_above(
    lanes: usize,
    values: &[f32],
    bands: &[Band<'_>],
    by_difference: Option<&mut [u32]>,
) -> BandCounts {
    let keys = values.len() / lanes;
    assert!(values.len() == keys * lanes, "{lanes} lanes");
    check(lanes, keys, bands, by_difference.as_deref());
    in_parts(bands, by_difference, |bands, to| {
        dispatch!(
            Isa::of_lanes(lanes),
            count_values,
            (lanes: usize, values: &[f32], bands: &[Band<'_>], to: Option<&mut [u32]>) -> BandCounts
                = (lanes, values, bands, to)
        )
    })
}

fn check(lanes: usize, keys: usize, bands: &[Band<'_>], by_difference: Option<&[u32]>) {
    assert!(
        (1..=KEY_BLOCK).contains(&keys) && lanes <= TILE_MAX,
        "{keys} keys"
    );
    assert!(
        (1..=BANDS).contains(&bands.len()) && bands.iter().flatten().all(|t| t.len() == lanes),
        "one value a lane"
    );
    assert!(
        by_difference.is_none_or(|to| to.len() == keys + lanes),
        "counts of {keys} keys"
    );
}

/// One block, its lengths checked.
struct Block<'a> {
    tile: &'a ScoreTile<'a>,
    raw: &'a [f32],
    keys: Range<usize>,
    bias: Option<LaneBias<'a>>,
    max: &'a [f32],
    last_key: Option<&'a [i32]>,
}

/// What is compared with the thresholds.
trait Values: Copy {
    /// Of key `j` and vector `v`.
    ///
    /// # Safety
    /// They are in the block.
    unsafe fn at<S: Lanes, const NV: usize>(self, s: S, j: usize, v: usize) -> S::V;
}

/// Points to `[keys, lanes]`.
#[derive(Clone, Copy)]
struct Plain(*const f32);

impl Values for Plain {
    #[inline(always)]
    unsafe fn at<S: Lanes, const NV: usize>(self, s: S, j: usize, v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        unsafe { s.load(self.0.add((j * NV + v) * S::WIDTH)) }
    }
}

/// Gaps of raw scores; points to those and to the maxima.
#[derive(Clone, Copy)]
struct Gaps<B> {
    raw: *const f32,
    max: *const f32,
    bias: B,
}

impl<B: AddBias> Values for Gaps<B> {
    #[inline(always)]
    unsafe fn at<S: Lanes, const NV: usize>(self, s: S, j: usize, v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        unsafe {
            let raw = s.load(self.raw.add((j * NV + v) * S::WIDTH));
            let max = s.load(self.max.add(v * S::WIDTH));
            s.sub(max, self.bias.add(s, raw, j, v))
        }
    }
}

/// Gaps of the pairs up to each lane's last key, counted from the block's first; minus infinity behind it.
#[derive(Clone, Copy)]
struct Seen<G> {
    gaps: G,
    last: *const f32,
}

impl<G: Values> Values for Seen<G> {
    #[inline(always)]
    unsafe fn at<S: Lanes, const NV: usize>(self, s: S, j: usize, v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        unsafe {
            let last = s.load(self.last.add(v * S::WIDTH));
            let gap = self.gaps.at::<S, NV>(s, j, v);
            s.select(
                s.le(s.splat(j as f32), last),
                gap,
                s.splat(f32::NEG_INFINITY),
            )
        }
    }
}

#[inline(always)]
fn count_gaps<S: Lanes>(
    s: S,
    block: &Block<'_>,
    bands: &[Band<'_>],
    to: Option<&mut [u32]>,
) -> BandCounts {
    with_lane_bias!(block.bias, block.keys, bias => count_biased(s, block, bias, bands, to))
}

#[inline(always)]
fn count_biased<S: Lanes, B: AddBias>(
    s: S,
    block: &Block<'_>,
    bias: B,
    bands: &[Band<'_>],
    to: Option<&mut [u32]>,
) -> BandCounts {
    let gaps = Gaps {
        raw: block.raw.as_ptr(),
        max: block.max.as_ptr(),
        bias,
    };
    let keys = block.keys.len();
    match block.last_key {
        None => count_block(s, gaps, keys, block.tile.lanes, bands, to),
        Some(last) => {
            let last = relative_keys(last, &block.keys);
            let seen = Seen {
                gaps,
                last: last.as_ptr(),
            };
            count_block(s, seen, keys, block.tile.lanes, bands, to)
        }
    }
}

#[inline(always)]
fn count_values<S: Lanes>(
    s: S,
    lanes: usize,
    values: &[f32],
    bands: &[Band<'_>],
    to: Option<&mut [u32]>,
) -> BandCounts {
    let keys = values.len() / lanes;
    count_block(s, Plain(values.as_ptr()), keys, lanes, bands, to)
}

#[inline(always)]
fn count_block<S: Lanes, G: Values>(
    s: S,
    values: G,
    keys: usize,
    lanes: usize,
    bands: &[Band<'_>],
    to: Option<&mut [u32]>,
) -> BandCounts {
    // SAFETY: the callers have checked every length.
    unsafe {
        // The tiles that there are: see `sized_tile`.
        match (S::WIDTH == 16, lanes / S::WIDTH) {
            (_, 1) => count_vectors::<S, G, 1>(s, values, keys, bands, to),
            (false, 2) => count_vectors::<S, G, 2>(s, values, keys, bands, to),
            (true, 3) => count_vectors::<S, G, 3>(s, values, keys, bands, to),
            (_, n) => unreachable!("a tile of {n} vectors"),
        }
    }
}

/// # Safety
/// As for [`count_lanes`].
#[inline(always)]
unsafe fn count_vectors<S: Lanes, G: Values, const NV: usize>(
    s: S,
    values: G,
    keys: usize,
    bands: &[Band<'_>],
    to: Option<&mut [u32]>,
) -> BandCounts {
    // SAFETY: by the caller's promise.
    unsafe {
        // A band after the first mostly is one threshold.
        let one = |band: &Band<'_>| std::ptr::eq(band[0], band[1]);
        match (bands, to) {
            ([_], None) => {
                count_lanes::<S, G, NV, 1, false, false>(s, values, keys, bands, &mut [])
            }
            ([_], Some(to)) => count_lanes::<S, G, NV, 1, true, false>(s, values, keys, bands, to),
            ([_, second], None) if one(second) => {
                count_lanes::<S, G, NV, 2, false, true>(s, values, keys, bands, &mut [])
            }
            ([_, second], Some(to)) if one(second) => {
                count_lanes::<S, G, NV, 2, true, true>(s, values, keys, bands, to)
            }
            ([_, _], None) => {
                count_lanes::<S, G, NV, 2, false, false>(s, values, keys, bands, &mut [])
            }
            ([_, _], Some(to)) => {
                count_lanes::<S, G, NV, 2, true, false>(s, values, keys, bands, to)
            }
            (bands, _) => unreachable!("{} bands at a time", bands.len()),
        }
    }
}

/// `ONE`: both thresholds of the second band are the same.
///
/// # Safety
/// `values` has `keys` rows of a tile, every threshold a value a lane, `to` one value for every key and a tile if `OWN`.
#[inline(always)]
unsafe fn count_lanes<
    S: Lanes,
    G: Values,
    const NV: usize,
    const N: usize,
    const OWN: bool,
    const ONE: bool,
>(
    s: S,
    values: G,
    keys: usize,
    bands: &[Band<'_>],
    to: &mut [u32],
) -> BandCounts {
    let zero = s.splat(0.0);
    let mut above = Pairs::<S, G, NV, N, OWN, ONE> {
        values,
        cuts: [[[zero; NV]; 2]; N],
        found: [[[zero; NV]; 2]; N],
    };
    let before = if OWN { total(to) } else { 0 };
    // SAFETY: by the caller's promise.
    unsafe {
        for v in 0..NV {
            for i in 0..N {
                for side in 0..2 {
                    above.cuts[i][side][v] = s.load(bands[i][side].as_ptr().add(v * S::WIDTH));
                }
            }
        }
        if OWN {
            let to = to.as_mut_ptr().cast::<f32>();
            along_diagonals::<S, _, NV, 2>(s, &mut above, keys, to);
        } else {
            for j in 0..keys {
                for v in 0..NV {
                    above.add(s, j, v, zero);
                }
            }
        }
    }
    let mut counts = [[0_u64; 2]; BANDS];
    for i in 0..N {
        for side in 0..2 {
            for v in 0..NV {
                counts[i][side] += s.tallied(above.found[i][side][v]);
            }
        }
    }
    if OWN {
        counts[0][1] = u64::from(total(to).wrapping_sub(before));
    }
    if ONE {
        counts[1][0] = counts[1][1];
    }
    counts
}

/// Pairs above thresholds.
struct Pairs<S: Lanes, G, const NV: usize, const N: usize, const OWN: bool, const ONE: bool> {
    values: G,
    cuts: [[[S::V; NV]; 2]; N],
    /// How many. Those above the first band's second threshold are summed by difference if `OWN`.
    found: [[[S::V; NV]; 2]; N],
}

impl<S: Lanes, G: Values, const NV: usize, const N: usize, const OWN: bool, const ONE: bool>
    Terms<S> for Pairs<S, G, NV, N, OWN, ONE>
{
    #[inline(always)]
    unsafe fn add(&mut self, s: S, j: usize, v: usize, mut sum: S::V) -> S::V {
        // SAFETY: by the caller's promise.
        let value = unsafe { self.values.at::<S, NV>(s, j, v) };
        for i in 0..N {
            for side in 0..2 {
                if ONE && i == 1 && side == 0 {
                    continue;
                }
                let above = s.lt(self.cuts[i][side][v], value);
                if OWN && i == 0 && side == 1 {
                    sum = s.tally(above, sum);
                } else {
                    self.found[i][side][v] = s.tally(above, self.found[i][side][v]);
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_a_plain_loop() {
        for lanes in [8, 16, 48] {
            for keys in [1, 5, 64] {
                let values: Vec<f32> = (0..keys * lanes).map(|i| (i * 37 % 101) as f32).collect();
                let low: Vec<f32> = (0..lanes).map(|lane| 20.0 + lane as f32).collect();
                let high: Vec<f32> = (0..lanes).map(|lane| 90.0 - lane as f32 / 2.0).collect();
                let bands = [[&low[..], &high[..]], [&high, &high], [&low, &low]];
                for n in 1..=3 {
                    let mut ones = vec![2_u32; keys + lanes];
                    let found = count_above(lanes, &values, &bands[..n], Some(&mut ones));
                    assert_eq!(found, count_above(lanes, &values, &bands[..n], None));
                    let mut expected = [[0; 2]; BANDS];
                    let mut by_difference = vec![2_u32; keys + lanes];
                    for (i, value) in values.iter().enumerate() {
                        let (key, lane) = (i / lanes, i % lanes);
                        for (expected, band) in expected.iter_mut().zip(&bands[..n]) {
                            for (expected, cut) in expected.iter_mut().zip(band) {
                                *expected += u64::from(*value > cut[lane]);
                            }
                        }
                        if *value > high[lane] {
                            by_difference[keys - 1 - key + lane] += 1;
                        }
                    }
                    assert_eq!(found, expected, "{lanes} lanes, {keys} keys");
                    assert_eq!(ones, by_difference, "{lanes} lanes, {keys} keys");
                }
            }
        }
    }
}
