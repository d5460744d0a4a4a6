//! How many scores of a block lie below bounds of their rows that are known but for a little, at which differences, and where that
//! little matters.
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
use crate::score_tile::{ScoreTile, check_block};
use crate::tile::{AddBias, NoBias, TILE_MAX};
use crate::weigh::relative_keys;

/// A bound on the scores of each lane, known but for a little.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a> {
    /// No score from here on is below the bound.
    pub below: &'a [f32],
    /// Every score below this is; never more than `below`.
    pub surely: &'a [f32],
}

/// Most cuts that are looked at together.
pub const CUTS: usize = 3;

/// What was found under one [`Cut`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// Pairs whose score is less than [`Cut::below`].
    pub pairs: u64,
    /// Some of them are no less than [`Cut::surely`].
    pub in_doubt: bool,
}

impl ScoreTile<'_> {
    /// Counts the pairs of the keys `keys` (one block, or the visible part of it) whose score `raw + bias`, nats, rounded once, is below
    /// each of `cuts`; the rest of the result is empty. `bias` is that of the forward pass if it is not given. With `last_key`,
    /// pairs of a lane behind its last key (-1: all of them) are below nothing. The pairs below the first cut are added to
    /// `by_difference`, if it is given, as in [`ScoreTile::weigh`].
    ///
    /// # Panics
    /// If the keys are more than a block or not there, if there are more than [`CUTS`] cuts or none, or if a slice has another
    /// length.
    pub fn below(
        &self,
        keys: Range<usize>,
        bias: Option<LaneBias<'_>>,
        last_key: Option<&[i32]>,
        cuts: &[Cut<'_>],
        by_difference: Option<&mut [u32]>,
    ) -> [Below; CUTS] {
        check(self.lanes, keys.len(), cuts, by_difference.as_deref());
        let pairs = Pairs::new(self, keys, bias, last_key);
        in_parts(cuts, by_difference, |cuts, to| {
            dispatch!(
                self.isa,
                count_scores,
                (pairs: &Pairs<'_>, cuts: &[Cut<'_>], to: Option<&mut [u32]>) -> [Below; CUTS]
                    = (&pairs, cuts, to)
            )
        })
    }

    /// The pairs of the keys `keys` that are in doubt under one cut, as key and lane.
    ///
    /// # Panics
    /// As [`ScoreTile::below`].
    pub fn in_doubt(
        &self,
        keys: Range<usize>,
        bias: Option<LaneBias<'_>>,
        last_key: Option<&[i32]>,
        cut: Cut<'_>,
    ) -> Vec<(usize, usize)> {
        check(self.lanes, keys.len(), &[cut], None);
        let first = keys.start;
        let pairs = Pairs::new(self, keys, bias, last_key);
        let mut found = Vec::new();
        dispatch!(
            self.isa,
            doubts_of_scores,
            (pairs: &Pairs<'_>, cut: Cut<'_>, found: &mut Vec<(usize, usize)>)
                = (&pairs, cut, &mut found)
        );
        for (key, _) in &mut found {
            *key += first;
        }
        found
    }
}

/// [`ScoreTile::below`] for scores `[keys, lanes]`, at most a block.
///
/// # Panics
/// Likewise.
pub fn count_below(
    lanes: usize,
    scores: &[f32],
    cuts: &[Cut<'_>],
    by_difference: Option<&mut [u32]>,
) -> [Below; CUTS] {
    let keys = scores.len() / lanes;
    assert!(scores.len() == keys * lanes, "{lanes} lanes");
    check_block(&(0..keys));
    check(lanes, keys, cuts, by_difference.as_deref());
    in_parts(cuts, by_difference, |cuts, to| {
        dispatch!(
            Isa::of_lanes(lanes),
            count_plain,
            (lanes: usize, scores: &[f32], cuts: &[Cut<'_>], to: Option<&mut [u32]>) -> [Below; CUTS]
                = (lanes, scores, cuts, to)
        )
    })
}

/// Pairs of one block, the lengths checked.
struct Pairs<'a> {
    lanes: usize,
    raw: &'a [f32],
    keys: Range<usize>,
    bias: Option<LaneBias<'a>>,
    last_key: Option<&'a [i32]>,
}

impl<'a> Pairs<'a> {
    /// `bias` is that of the forward pass if it is not given. With `last_key`, pairs of a lane behind its last key (-1: all of them) are
    /// left out.
    fn new(
        tile: &'a ScoreTile<'_>,
        keys: Range<usize>,
        bias: Option<LaneBias<'a>>,
        last_key: Option<&'a [i32]>,
    ) -> Self {
        let n = tile.lanes;
        assert!(
            last_key.is_none_or(|last| last.len() == n),
            "one value a lane"
        );
        check_block(&keys);
        let fits = match bias {
            None => true,
            Some(LaneBias::ByKey(bias)) => bias.len() == keys.len(),
            Some(LaneBias::ByDifference(bias)) => bias.len() + 1 == keys.len() + n,
        };
        assert!(fits, "bias of {} keys", keys.len());
        Self {
            lanes: n,
            raw: tile.raw(keys.clone()),
            // Resolved here: there are enough versions of the loops.
            bias: bias.or_else(|| tile.lane_bias(&keys)),
            keys,
            last_key,
        }
    }
}

/// [`ScoreTile::in_doubt`] for scores `[keys, lanes]`, at most a block, whose first key is 0.
///
/// # Panics
/// Likewise.
pub fn find_in_doubt(lanes: usize, scores: &[f32], cut: Cut<'_>) -> Vec<(usize, usize)> {
    let keys = scores.len() / lanes;
    assert!(scores.len() == keys * lanes, "{lanes} lanes");
    check_block(&(0..keys));
    check(lanes, keys, &[cut], None);
    let mut found = Vec::new();
    dispatch!(
        Isa::of_lanes(lanes),
        plain_doubts,
        (lanes: usize, scores: &[f32], cut: Cut<'_>, found: &mut Vec<(usize, usize)>)
            = (lanes, scores, cut, &mut found)
    );
    found
}

/// Scores of a block.
trait Scores: Copy {
    /// Of key `j` and vector `v`.
    ///
    /// # Safety
    /// They are in the block.
    unsafe fn at<S: Lanes, const NV: usize>(self, s: S, j: usize, v: usize) -> S::V;
}

/// Raw scores, `[keys, lanes]`, and the bias.
#[derive(Clone, Copy)]
struct Biased<B> {
    raw: *const f32,
    bias: B,
}

impl<B: AddBias> Scores for Biased<B> {
    #[inline(always)]
    unsafe fn at<S: Lanes, const NV: usize>(self, s: S, j: usize, v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        unsafe {
            let raw = s.load(self.raw.add((j * NV + v) * S::WIDTH));
            self.bias.add(s, raw, j, v)
        }
    }
}

/// Scores of the pairs up to each lane's last key, counted from the block's first; infinity behind it, which is below nothing.
#[derive(Clone, Copy)]
struct Seen<C> {
    scores: C,
    last: *const f32,
}

impl<C: Scores> Scores for Seen<C> {
    #[inline(always)]
    unsafe fn at<S: Lanes, const NV: usize>(self, s: S, j: usize, v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        unsafe {
            let last = s.load(self.last.add(v * S::WIDTH));
            let score = self.scores.at::<S, NV>(s, j, v);
            s.select(s.le(s.splat(j as f32), last), score, s.splat(f32::INFINITY))
        }
    }
}

/// Sum of some counters, without what does not fit.
#[inline(always)]
fn total(counters: &[u32]) -> u32 {
    counters.iter().fold(0, |sum, &n| sum.wrapping_add(n))
}

fn check(lanes: usize, keys: usize, cuts: &[Cut<'_>], by_difference: Option<&[u32]>) {
    let fits = |cut: &Cut<'_>| cut.below.len() == lanes && cut.surely.len() == lanes;
    assert!(
        (1..=CUTS).contains(&cuts.len()) && lanes <= TILE_MAX && cuts.iter().all(fits),
        "one value a lane"
    );
    assert!(
        by_difference.is_none_or(|to| to.len() == keys + lanes),
        "counts of {keys} keys"
    );
}

/// Two cuts at a time: three are seldom.
fn in_parts(
    cuts: &[Cut<'_>],
    by_difference: Option<&mut [u32]>,
    count: impl Fn(&[Cut<'_>], Option<&mut [u32]>) -> [Below; CUTS],
) -> [Below; CUTS] {
    let (first, last) = cuts.split_at(cuts.len().min(2));
    let mut found = count(first, by_difference);
    if !last.is_empty() {
        [found[2], ..] = count(last, None);
    }
    found
}

/// Calls `$body` with the scores of `$pairs` as `$scores`.
macro_rules! with_scores {
    ($pairs:expr, $scores:ident => $body:expr) => {
        with_lane_bias!($pairs.bias, $pairs.keys, bias => {
            let raw = $pairs.raw.as_ptr();
            let $scores = Biased { raw, bias };
            match $pairs.last_key {
                None => $body,
                Some(last) => {
                    let last = relative_keys(last, &$pairs.keys);
                    let last = last.as_ptr();
                    let $scores = Seen {
                        scores: $scores,
                        last,
                    };
                    $body
                }
            }
        })
    };
}

#[inline(always)]
fn count_scores<S: Lanes>(
    s: S,
    pairs: &Pairs<'_>,
    cuts: &[Cut<'_>],
    to: Option<&mut [u32]>,
) -> [Below; CUTS] {
    let (keys, lanes) = (pairs.keys.len(), pairs.lanes);
    with_scores!(pairs, biased => count_block(s, biased, keys, lanes, cuts, to))
}

#[inline(always)]
fn count_plain<S: Lanes>(
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
            along_diagonals::<S, _, NV, 2>(s, &mut counting, keys, to);
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

#[inline(always)]
fn doubts_of_scores<S: Lanes>(
    s: S,
    pairs: &Pairs<'_>,
    cut: Cut<'_>,
    found: &mut Vec<(usize, usize)>,
) {
    let (keys, lanes) = (pairs.keys.len(), pairs.lanes);
    with_scores!(pairs, scores => doubts_of_block(s, scores, keys, lanes, cut, found));
}

#[inline(always)]
fn plain_doubts<S: Lanes>(
    s: S,
    lanes: usize,
    scores: &[f32],
    cut: Cut<'_>,
    found: &mut Vec<(usize, usize)>,
) {
    let keys = scores.len() / lanes;
    let scores = Biased {
        raw: scores.as_ptr(),
        bias: NoBias,
    };
    doubts_of_block(s, scores, keys, lanes, cut, found);
}

#[inline(always)]
fn doubts_of_block<S: Lanes, C: Scores>(
    s: S,
    scores: C,
    keys: usize,
    lanes: usize,
    cut: Cut<'_>,
    found: &mut Vec<(usize, usize)>,
) {
    match lanes / S::WIDTH {
        1 => doubts::<S, C, 1>(s, scores, keys, cut, found),
        2 => doubts::<S, C, 2>(s, scores, keys, cut, found),
        3 => doubts::<S, C, 3>(s, scores, keys, cut, found),
        n => unreachable!("a tile of {n} vectors"),
    }
}

#[inline(always)]
fn doubts<S: Lanes, C: Scores, const NV: usize>(
    s: S,
    scores: C,
    keys: usize,
    cut: Cut<'_>,
    found: &mut Vec<(usize, usize)>,
) {
    let mut some = [0.0_f32; 16];
    for j in 0..keys {
        for v in 0..NV {
            // SAFETY: `in_doubt` has checked every length; no vector is wider than 16.
            unsafe {
                let value = scores.at::<S, NV>(s, j, v);
                let below = s.load(cut.below.as_ptr().add(v * S::WIDTH));
                let surely = s.load(cut.surely.as_ptr().add(v * S::WIDTH));
                // What is surely below is out of the question.
                let open = s.select(s.lt(value, surely), s.splat(f32::INFINITY), value);
                if s.all(s.le(below, open)) {
                    continue;
                }
                s.store(some.as_mut_ptr(), open);
            }
            for (i, open) in some[..S::WIDTH].iter().enumerate() {
                let lane = v * S::WIDTH + i;
                if *open < cut.below[lane] {
                    found.push((j, lane));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_a_plain_loop() {
        for lanes in [8, 16, 48] {
            for keys in [1, 5, 64] {
                let scores: Vec<f32> = (0..keys * lanes).map(|i| (i * 37 % 101) as f32).collect();
                let at = |first: f32, step: f32| -> Vec<f32> {
                    (0..lanes).map(|lane| first + step * lane as f32).collect()
                };
                let (low, high, none) = (at(20.0, 1.0), at(90.0, -0.5), at(f32::NEG_INFINITY, 0.0));
                let cuts = [(&high, &low), (&low, &low), (&none, &none)]
                    .map(|(below, surely)| Cut { below, surely });
                for n in 1..=3 {
                    let mut ones = vec![2_u32; keys + lanes];
                    let found = count_below(lanes, &scores, &cuts[..n], Some(&mut ones));
                    assert_eq!(found, count_below(lanes, &scores, &cuts[..n], None));
                    let mut expected = [Below::default(); CUTS];
                    let mut by_difference = vec![2_u32; keys + lanes];
                    for (i, &score) in scores.iter().enumerate() {
                        let (key, lane) = (i / lanes, i % lanes);
                        for (expected, cut) in expected.iter_mut().zip(&cuts[..n]) {
                            if score < cut.below[lane] {
                                expected.pairs += 1;
                                expected.in_doubt |= score >= cut.surely[lane];
                            }
                        }
                        if score < high[lane] {
                            by_difference[keys - 1 - key + lane] += 1;
                        }
                    }
                    assert_eq!(found, expected, "{lanes} lanes, {keys} keys");
                    assert_eq!(ones, by_difference, "{lanes} lanes, {keys} keys");
                }
                let mut doubts = find_in_doubt(lanes, &scores, cuts[0]);
                doubts.sort_unstable();
                let pairs = scores
                    .iter()
                    .enumerate()
                    .map(|(i, score)| (i / lanes, i % lanes, score));
                let expected =
                    pairs.filter(|&(_, lane, score)| *score < high[lane] && *score >= low[lane]);
                let expected: Vec<_> = expected.map(|(key, lane, _)| (key, lane)).collect();
                assert_eq!(doubts, expected, "{lanes} lanes, {keys} keys");
            }
        }
    }
}
