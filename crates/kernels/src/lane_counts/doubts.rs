//! Which pairs of a block lie between the two bounds of a cut.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]

use super::{Biased, Cut, Pairs, Scores, Seen, with_scores};
use crate::lane_loops::with_lane_bias;
use crate::lanes::Lanes;
use crate::tile::NoBias;
use crate::weigh::relative_keys;

#[inline(always)]
pub(super) fn doubts_of_scores<S: Lanes>(
    s: S,
    pairs: &Pairs<'_>,
    cut: Cut<'_>,
    found: &mut Vec<(usize, usize)>,
) {
    let (keys, lanes) = (pairs.keys.len(), pairs.lanes);
    with_scores!(pairs, scores => doubts_of_block(s, scores, keys, lanes, cut, found));
}

#[inline(always)]
pub(super) fn plain_doubts<S: Lanes>(
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
