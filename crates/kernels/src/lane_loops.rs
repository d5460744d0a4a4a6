//! Loops over `[keys, lanes]`, the layout in which a tile of queries holds its scores: explicit vectors, because the compiler turns
//! such loops into single values as soon as it cannot see that the slices are apart.
//!
//! A sum by difference runs along the diagonals of a block. The lanes of a register hold neighbouring differences; from one
//! key to the one before it every query's difference grows by one, so the register moves down by one lane and the lane that
//! falls out is done. (Adding every key's lanes to memory one place further on waits for the store before it, each time.)
//!
//! Every function takes the number of lanes of a [`crate::ScoreTile`], and panics if the slices do not fit.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use crate::lanes::{Isa, Lanes, dispatch};

/// The bias of a block of keys for a tile of queries, nats.
#[derive(Clone, Copy, Debug)]
pub enum LaneBias<'a> {
    /// One value a key.
    ByKey(&'a [f32]),
    /// `keys - 1 + lanes` values: the last `lanes` are those of the first key, each further key's begin one earlier.
    ByDifference(&'a [f32]),
}

/// Calls `$body` with what adds an optional [`LaneBias`] of the keys `$keys` as `$bias`.
macro_rules! with_lane_bias {
    ($of:expr, $keys:expr, $bias:ident => $body:expr) => {
        match $of {
            None => {
                let $bias = $crate::tile::NoBias;
                $body
            }
            Some($crate::lane_loops::LaneBias::ByKey(values)) => {
                let $bias = $crate::tile::KeyBias(values.as_ptr());
                $body
            }
            Some($crate::lane_loops::LaneBias::ByDifference(values)) => {
                let first = values.as_ptr().wrapping_add($keys.len() - 1);
                let $bias = $crate::tile::DifferenceBias(first);
                $body
            }
        }
    };
}
pub(crate) use with_lane_bias;

/// `out = max - (raw + bias)` with one rounding each, or `out = raw + bias` without `max` (one value a lane).
pub fn lane_gaps(
    lanes: usize,
    raw: &[f32],
    bias: LaneBias<'_>,
    max: Option<&[f32]>,
    out: &mut [f32],
) {
    let keys = out.len() / lanes;
    let bias_fits = match bias {
        LaneBias::ByKey(bias) => bias.len() == keys,
        LaneBias::ByDifference(bias) => bias.len() + 1 == keys + lanes,
    };
    let max_fits = max.is_none_or(|max| max.len() == lanes);
    assert!(
        keys > 0 && raw.len() == out.len() && out.len() == keys * lanes && bias_fits && max_fits,
        "{lanes} lanes"
    );
    dispatch!(
        Isa::of_lanes(lanes),
        gaps,
        (lanes: usize, raw: &[f32], bias: LaneBias<'_>, max: Option<&[f32]>, out: &mut [f32])
            = (lanes, raw, bias, max, out)
    );
}

#[inline(always)]
fn gaps<S: Lanes>(
    s: S,
    lanes: usize,
    raw: &[f32],
    bias: LaneBias<'_>,
    max: Option<&[f32]>,
    out: &mut [f32],
) {
    let keys = out.len() / lanes;
    let (raw, out) = (raw.as_ptr(), out.as_mut_ptr());
    for at in (0..lanes).step_by(S::WIDTH) {
        for key in 0..keys {
            // SAFETY: `lane_gaps` has checked every length.
            unsafe {
                let bias = match bias {
                    LaneBias::ByKey(bias) => s.splat(*bias.as_ptr().add(key)),
                    LaneBias::ByDifference(bias) => s.load(bias.as_ptr().add(keys - 1 - key + at)),
                };
                let mut x = s.add(s.load(raw.add(key * lanes + at)), bias);
                if let Some(max) = max {
                    x = s.sub(s.load(max.as_ptr().add(at)), x);
                }
                s.store(out.add(key * lanes + at), x);
            }
        }
    }
}

/// `max = value` where a value of the lane is larger; NaN is passed over.
pub fn raise(lanes: usize, values: &[f32], max: &mut [f32]) {
    assert!(
        max.len() == lanes && values.len().is_multiple_of(lanes),
        "{lanes} lanes"
    );
    dispatch!(
        Isa::of_lanes(lanes),
        maxima,
        (lanes: usize, values: &[f32], max: &mut [f32]) = (lanes, values, max)
    );
}

#[inline(always)]
fn maxima<S: Lanes>(s: S, lanes: usize, values: &[f32], max: &mut [f32]) {
    let (keys, from) = (values.len() / lanes, values.as_ptr());
    for at in (0..lanes).step_by(S::WIDTH) {
        // SAFETY: `raise` has checked every length.
        unsafe {
            let mut top = s.load(max.as_ptr().add(at));
            for key in 0..keys {
                top = s.max(s.load(from.add(key * lanes + at)), top);
            }
            s.store(max.as_mut_ptr().add(at), top);
        }
    }
}

/// Adds `values`, `[keys, lanes]`, to the sums by difference, the newest key's first: value `lane` of the last key to
/// `by_difference[lane]`, of the key before it to `by_difference[lane + 1]`, and so on.
pub fn sum_by_difference(lanes: usize, values: &[f32], by_difference: &mut [f32]) {
    check(lanes, values, by_difference);
    dispatch!(
        Isa::of_lanes(lanes),
        sum_lanes,
        (lanes: usize, values: &[f32], to: &mut [f32]) = (lanes, values, by_difference)
    );
}

pub(crate) fn check(lanes: usize, values: &[f32], by_difference: &[f32]) {
    let keys = values.len() / lanes;
    assert!(
        keys > 0 && values.len() == keys * lanes && by_difference.len() == keys - 1 + lanes,
        "{} sums for {keys} keys",
        by_difference.len()
    );
}

#[inline(always)]
fn sum_lanes<S: Lanes>(s: S, lanes: usize, values: &[f32], to: &mut [f32]) {
    let (keys, from, to) = (values.len() / lanes, values.as_ptr(), to.as_mut_ptr());
    // SAFETY: the caller has checked the lengths.
    unsafe {
        match lanes / S::WIDTH {
            1 => sum_block::<S, 1>(s, keys, from, to),
            2 => sum_block::<S, 2>(s, keys, from, to),
            3 => sum_block::<S, 3>(s, keys, from, to),
            n => unreachable!("a tile of {n} vectors"),
        }
    }
}

/// # Safety
/// `from` holds `keys` rows of a tile, `to` one value less than `keys` and a tile.
#[inline(always)]
unsafe fn sum_block<S: Lanes, const NV: usize>(s: S, keys: usize, from: *const f32, to: *mut f32) {
    let w = S::WIDTH;
    // SAFETY: by the caller's promise.
    unsafe {
        let mut sums = Diagonals::<S, NV>::load(s, to);
        for j in (0..keys).rev() {
            for v in 0..NV {
                let x = s.load(from.add((j * NV + v) * w));
                sums.lanes[v] = s.add(sums.lanes[v], x);
            }
            if j > 0 {
                sums.step(s, to.add(keys - 1 - j));
            }
        }
        sums.store(s, to.add(keys - 1));
    }
}

/// Sums by difference of a tile's lanes, lane 0 the smallest difference.
pub(crate) struct Diagonals<S: Lanes, const NV: usize> {
    pub(crate) lanes: [S::V; NV],
}

impl<S: Lanes, const NV: usize> Diagonals<S, NV> {
    /// # Safety
    /// `at` holds a tile.
    #[inline(always)]
    pub(crate) unsafe fn load(s: S, at: *const f32) -> Self {
        let mut sums = [s.splat(0.0); NV];
        for v in 0..NV {
            // SAFETY: by the caller's promise.
            sums[v] = unsafe { s.load(at.add(v * S::WIDTH)) };
        }
        Self { lanes: sums }
    }

    /// # Safety
    /// As for [`Diagonals::load`].
    #[inline(always)]
    pub(crate) unsafe fn store(self, s: S, at: *mut f32) {
        for v in 0..NV {
            // SAFETY: by the caller's promise.
            unsafe { s.store(at.add(v * S::WIDTH), self.lanes[v]) };
        }
    }

    /// Moves on to the key before: the smallest difference is written to `at`, where it belongs, and the one behind the largest is
    /// read.
    ///
    /// # Safety
    /// `at` holds a tile and one value more.
    #[inline(always)]
    pub(crate) unsafe fn step(&mut self, s: S, at: *mut f32) {
        // SAFETY: by the caller's promise.
        unsafe {
            *at = s.first(self.lanes[0]);
            for v in 0..NV - 1 {
                self.lanes[v] = s.shift_in(self.lanes[v], self.lanes[v + 1]);
            }
            let next = s.splat(*at.add(NV * S::WIDTH));
            self.lanes[NV - 1] = s.shift_in(self.lanes[NV - 1], next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_by_difference_take_every_value_once() {
        for lanes in [8, 16, 48] {
            for keys in [1, 2, 7, 64] {
                let values: Vec<f32> = (0..keys * lanes).map(|i| (i * 37 % 101) as f32).collect();
                let mut sums = vec![1.0; keys - 1 + lanes];
                let mut expected = sums.clone();
                for (i, value) in values.iter().enumerate() {
                    expected[keys - 1 - i / lanes + i % lanes] += value;
                }
                sum_by_difference(lanes, &values, &mut sums);
                assert_eq!(sums, expected, "{lanes} lanes, {keys} keys");
            }
        }
    }

    #[test]
    fn gaps_and_maxima_are_those_of_plain_loops() {
        for lanes in [8, 16, 48] {
            for keys in [1, 5, 64] {
                let number = |i: usize| (i * 37 % 101) as f32 / 3.0;
                let raw: Vec<f32> = (0..keys * lanes).map(number).collect();
                let table: Vec<f32> = (0..keys + lanes).map(|i| number(i * 5)).collect();
                let max: Vec<f32> = (0..lanes).map(|i| number(i * 11) + 20.0).collect();
                let biases = [
                    LaneBias::ByKey(&table[..keys]),
                    LaneBias::ByDifference(&table[..keys - 1 + lanes]),
                ];
                for bias in biases {
                    for max in [None, Some(&max[..])] {
                        let mut out = vec![0.0; raw.len()];
                        lane_gaps(lanes, &raw, bias, max, &mut out);
                        for (i, &x) in out.iter().enumerate() {
                            let (key, lane) = (i / lanes, i % lanes);
                            let entry = raw[i]
                                + match bias {
                                    LaneBias::ByKey(bias) => bias[key],
                                    LaneBias::ByDifference(bias) => bias[keys - 1 - key + lane],
                                };
                            assert_eq!(x, max.map_or(entry, |max| max[lane] - entry));
                        }
                    }
                }
                let mut top = vec![15.0; lanes];
                raise(lanes, &raw, &mut top);
                for lane in 0..lanes {
                    let column = raw.iter().skip(lane).step_by(lanes).copied();
                    assert_eq!(top[lane], column.fold(15.0, f32::max));
                }
            }
        }
    }
}
