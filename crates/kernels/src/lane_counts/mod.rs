//! How many scores of a block lie below bounds of their rows that are known but for a little, at which differences, and where that
//! little matters.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]

mod count;
mod doubts;

use std::ops::Range;

use crate::lane_loops::LaneBias;
use crate::lanes::{Isa, Lanes, dispatch};
use crate::score_tile::{ScoreTile, check_block};
use crate::tile::{AddBias, TILE_MAX};
use count::{count_plain, count_scores};
use doubts::{doubts_of_scores, plain_doubts};

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
use with_scores;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_a_plain_loop() {
        for &lanes in Isa::tiles() {
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
