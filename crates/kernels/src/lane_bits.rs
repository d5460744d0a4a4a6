//! Which pairs of a block lie beyond a gap of their row: one bit a pair, so that what is done with the answer costs next to
//! nothing beside finding it.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use std::ops::Range;

use crate::lane_loops::LaneBias;
use crate::lanes::{Lanes, dispatch};
use crate::score_tile::ScoreTile;
use crate::tile::{AddBias, DifferenceBias, KEY_BLOCK, KeyBias, NoBias, TILE_MAX, TileBias};
use crate::weigh::relative_keys;

/// Pairs of a block of keys: bit `lane` of value `key`, keys counted from the block's first.
pub type BlockBits = [u64; KEY_BLOCK];

/// Gaps that are marked at a time.
const AT_ONCE: usize = 4;

impl ScoreTile<'_> {
    /// Marks the pairs of the keys `keys` (one block, or the visible part of one) whose gap `max - (raw + bias)`, nats, one rounding
    /// each, is above each of `gaps`: `out[i]` for `gaps[i]`. `max` and every one of `gaps` hold a value a lane. `bias` is that of
    /// the forward pass if it is not given. With `last_key`, pairs of a lane behind its last key (-1: all of them) are not marked.
    ///
    /// # Panics
    /// If the keys are more than a block or not there, or if a slice has another length.
    pub fn beyond(
        &self,
        keys: Range<usize>,
        bias: Option<LaneBias<'_>>,
        max: &[f32],
        last_key: Option<&[i32]>,
        gaps: &[&[f32]],
        out: &mut [BlockBits],
    ) {
        let n = self.lanes;
        assert!(
            max.len() == n
                && last_key.is_none_or(|last| last.len() == n)
                && gaps.iter().all(|gaps| gaps.len() == n)
                && gaps.len() == out.len(),
            "one value a lane"
        );
        assert!(
            !keys.is_empty() && keys.len() <= KEY_BLOCK,
            "{} keys",
            keys.len()
        );
        let fits = match bias {
            None => true,
            Some(LaneBias::ByKey(bias)) => bias.len() == keys.len(),
            Some(LaneBias::ByDifference(bias)) => bias.len() + 1 == keys.len() + n,
        };
        assert!(fits, "bias of {} keys", keys.len());
        let block = Marked {
            tile: self,
            raw: self.raw(keys.clone()),
            keys,
            bias,
            max,
            last_key,
        };
        for (gaps, out) in gaps.chunks(AT_ONCE).zip(out.chunks_mut(AT_ONCE)) {
            dispatch!(
                self.isa,
                mark,
                (block: &Marked<'_>, gaps: &[&[f32]], out: &mut [BlockBits]) = (&block, gaps, out)
            );
        }
    }
}

/// One block, its lengths checked.
struct Marked<'a> {
    tile: &'a ScoreTile<'a>,
    raw: &'a [f32],
    keys: Range<usize>,
    bias: Option<LaneBias<'a>>,
    max: &'a [f32],
    last_key: Option<&'a [i32]>,
}

#[inline(always)]
fn mark<S: Lanes>(s: S, block: &Marked<'_>, gaps: &[&[f32]], out: &mut [BlockBits]) {
    match block.bias {
        Some(LaneBias::ByKey(bias)) => mark_some(s, block, KeyBias(bias.as_ptr()), gaps, out),
        Some(LaneBias::ByDifference(bias)) => {
            let first = bias.as_ptr().wrapping_add(block.keys.len() - 1);
            mark_some(s, block, DifferenceBias(first), gaps, out);
        }
        None => match block.tile.tile_bias {
            TileBias::None => mark_some(s, block, NoBias, gaps, out),
            TileBias::ByKey(values) => {
                let bias = KeyBias(values[block.keys.clone()].as_ptr());
                mark_some(s, block, bias, gaps, out);
            }
            TileBias::ByDifference { table, zero } => {
                // As far as the kernel itself reads.
                let at = zero + block.tile.first_query - block.keys.start;
                assert!(at + 1 >= block.keys.len() && at + block.tile.lanes <= table.len());
                mark_some(
                    s,
                    block,
                    DifferenceBias(table.as_ptr().wrapping_add(at)),
                    gaps,
                    out,
                );
            }
        },
    }
    for bits in out.iter_mut().flatten() {
        *bits = u64::from_le(*bits);
    }
}

#[inline(always)]
fn mark_some<S: Lanes, B: AddBias>(
    s: S,
    block: &Marked<'_>,
    bias: B,
    gaps: &[&[f32]],
    out: &mut [BlockBits],
) {
    match (gaps.len(), block.last_key.is_some()) {
        (1, false) => mark_lanes::<S, B, 1, false>(s, block, bias, gaps, out),
        (2, false) => mark_lanes::<S, B, 2, false>(s, block, bias, gaps, out),
        (3, false) => mark_lanes::<S, B, 3, false>(s, block, bias, gaps, out),
        (4, false) => mark_lanes::<S, B, 4, false>(s, block, bias, gaps, out),
        (1, true) => mark_lanes::<S, B, 1, true>(s, block, bias, gaps, out),
        (2, true) => mark_lanes::<S, B, 2, true>(s, block, bias, gaps, out),
        (3, true) => mark_lanes::<S, B, 3, true>(s, block, bias, gaps, out),
        (4, true) => mark_lanes::<S, B, 4, true>(s, block, bias, gaps, out),
        (n, _) => unreachable!("{n} gaps at a time"),
    }
}

#[inline(always)]
fn mark_lanes<S: Lanes, B: AddBias, const N: usize, const MASK: bool>(
    s: S,
    block: &Marked<'_>,
    bias: B,
    gaps: &[&[f32]],
    out: &mut [BlockBits],
) {
    let (w, lanes, n) = (S::WIDTH, block.tile.lanes, block.keys.len());
    let lowest = s.splat(f32::NEG_INFINITY);
    let last_key = block
        .last_key
        .map_or([0.0; TILE_MAX], |last| relative_keys(last, &block.keys));
    for bits in &mut *out {
        *bits = [0; KEY_BLOCK];
    }
    let to: [*mut u8; N] = std::array::from_fn(|i| out[i].as_mut_ptr().cast());
    for v in 0..lanes / w {
        // SAFETY: `beyond` has checked every length; a tile has at most 48 lanes, so its bits fit into a u64.
        unsafe {
            let max = s.load(block.max.as_ptr().add(v * w));
            let last = s.load(last_key.as_ptr().add(v * w));
            let mut cut = [lowest; N];
            for (cut, gaps) in cut.iter_mut().zip(gaps) {
                *cut = s.load(gaps.as_ptr().add(v * w));
            }
            for j in 0..n {
                let raw = s.load(block.raw.as_ptr().add(j * lanes + v * w));
                let mut gap = s.sub(max, bias.add(s, raw, j, v));
                if MASK {
                    gap = s.select(s.le(s.splat(j as f32), last), gap, lowest);
                }
                for i in 0..N {
                    s.store_bits(s.lt(cut[i], gap), to[i].add(j * 8 + v * w / 8));
                }
            }
        }
    }
}

/// Marks the values, `[keys, lanes]`, at most a block, above each of `thresholds`, one value a lane: as [`ScoreTile::beyond`] does
/// for gaps.
///
/// # Panics
/// If a slice does not fit, or there are more than 64 lanes.
pub fn mark_above(lanes: usize, values: &[f32], thresholds: &[&[f32]], out: &mut [BlockBits]) {
    let keys = values.len() / lanes;
    assert!(
        values.len() == keys * lanes && keys <= KEY_BLOCK && lanes <= 64,
        "{lanes} lanes"
    );
    assert!(
        thresholds.len() == out.len() && thresholds.iter().all(|t| t.len() == lanes),
        "one value a lane"
    );
    for (threshold, out) in thresholds.iter().zip(out) {
        dispatch!(
            crate::lanes::Isa::of_lanes(lanes),
            mark_values,
            (lanes: usize, values: &[f32], threshold: &[f32], out: &mut BlockBits)
                = (lanes, values, threshold, out)
        );
    }
}

#[inline(always)]
fn mark_values<S: Lanes>(
    s: S,
    lanes: usize,
    values: &[f32],
    threshold: &[f32],
    out: &mut BlockBits,
) {
    *out = [0; KEY_BLOCK];
    let to: *mut u8 = out.as_mut_ptr().cast();
    for at in (0..lanes).step_by(S::WIDTH) {
        // SAFETY: `mark_above` has checked every length.
        unsafe {
            let cut = s.load(threshold.as_ptr().add(at));
            for key in 0..values.len() / lanes {
                let x = s.load(values.as_ptr().add(key * lanes + at));
                s.store_bits(s.lt(cut, x), to.add(key * 8 + at / 8));
            }
        }
    }
    for bits in out {
        *bits = u64::from_le(*bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_those_of_a_plain_loop() {
        for lanes in [8, 16, 24, 48] {
            for keys in [1, 5, 64] {
                let values: Vec<f32> = (0..keys * lanes).map(|i| (i * 37 % 101) as f32).collect();
                let low: Vec<f32> = (0..lanes).map(|lane| 20.0 + lane as f32).collect();
                let high: Vec<f32> = (0..lanes).map(|lane| 90.0 - lane as f32).collect();
                let mut bits = [[1; KEY_BLOCK]; 2];
                mark_above(lanes, &values, &[&low, &high], &mut bits);
                for (bits, threshold) in bits.iter().zip([&low, &high]) {
                    let mut expected = [0_u64; KEY_BLOCK];
                    for (i, value) in values.iter().enumerate() {
                        expected[i / lanes] |=
                            u64::from(*value > threshold[i % lanes]) << (i % lanes);
                    }
                    assert_eq!(*bits, expected, "{lanes} lanes, {keys} keys");
                }
            }
        }
    }
}
