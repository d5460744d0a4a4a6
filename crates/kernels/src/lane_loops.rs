//! Loops over `[keys, lanes]`, the layout in which a tile of queries holds its scores: explicit vectors, because the compiler turns
//! such loops into single values as soon as it cannot see that the slices are apart.
//!
//! A sum by difference runs along the diagonals of a block. The lanes of a register hold neighbouring differences; from one
//! key to the one before it every query's difference grows by one, so the register moves down by one lane and the lane that
//! falls out is done. Several runs of keys go side by side, because each step of one waits for the step before it. (Adding every
//! key's lanes to memory one place further on would wait for the store before it, each time.)
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
use crate::tile::TILE_MAX;

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
/// `by_difference[lane]`, of the key before it to `by_difference[lane + 1]`, and so on. There are `keys + lanes` sums, the last of
/// which gets nothing.
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
        keys > 0 && values.len() == keys * lanes && by_difference.len() == keys + lanes,
        "{} sums for {keys} keys",
        by_difference.len()
    );
}

#[inline(always)]
fn sum_lanes<S: Lanes>(s: S, lanes: usize, values: &[f32], to: &mut [f32]) {
    let (keys, to) = (values.len() / lanes, to.as_mut_ptr());
    let values = values.as_ptr();
    // SAFETY: the caller has checked the lengths.
    unsafe {
        match lanes / S::WIDTH {
            1 => along_diagonals::<S, _, 1>(s, &mut Plain::<1>(values), keys, to),
            2 => along_diagonals::<S, _, 2>(s, &mut Plain::<2>(values), keys, to),
            3 => along_diagonals::<S, _, 3>(s, &mut Plain::<3>(values), keys, to),
            n => unreachable!("a tile of {n} vectors"),
        }
    }
}

/// Points to `[keys, lanes]`.
struct Plain<const NV: usize>(*const f32);

impl<S: Lanes, const NV: usize> Terms<S> for Plain<NV> {
    #[inline(always)]
    unsafe fn add(&mut self, s: S, j: usize, v: usize, sum: S::V) -> S::V {
        // SAFETY: by the caller's promise.
        s.add(sum, unsafe { s.load(self.0.add((j * NV + v) * S::WIDTH)) })
    }
}

/// What is summed by difference.
pub(crate) trait Terms<S: Lanes> {
    /// They count something besides, in registers that the sums can not have.
    const COUNTS: bool = false;

    /// `sum` with the terms of vector `v` of key `j`.
    ///
    /// # Safety
    /// There are such.
    unsafe fn add(&mut self, s: S, j: usize, v: usize, sum: S::V) -> S::V;

    /// The sum of two sums.
    #[inline(always)]
    fn join(s: S, a: S::V, b: S::V) -> S::V {
        s.add(a, b)
    }
}

/// Adds the terms of `keys` keys to the sums by difference at `to`, as [`sum_by_difference`] does.
///
/// # Safety
/// `terms` has a tile of `NV` vectors for every key, `to` one value for every key and a tile.
#[inline(always)]
pub(crate) unsafe fn along_diagonals<S: Lanes, T: Terms<S>, const NV: usize>(
    s: S,
    terms: &mut T,
    keys: usize,
    to: *mut f32,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        // As many runs as there are registers for: of tiles of two vectors, which are narrow ones, there are half as many.
        if T::COUNTS || NV == 2 {
            side_by_side::<S, T, NV, 2>(s, terms, keys, to);
        } else {
            side_by_side::<S, T, NV, 4>(s, terms, keys, to);
        }
    }
}

/// [`along_diagonals`] with `P` runs of keys side by side.
///
/// # Safety
/// As for that.
#[inline(always)]
unsafe fn side_by_side<S: Lanes, T: Terms<S>, const NV: usize, const P: usize>(
    s: S,
    terms: &mut T,
    keys: usize,
    to: *mut f32,
) {
    let w = S::WIDTH;
    let mut end = keys;
    // SAFETY: by the caller's promise.
    unsafe {
        while end >= P * w {
            runs::<S, T, NV, P>(s, terms, end, to.add(keys - end));
            end -= P * w;
        }
        while end >= w {
            runs::<S, T, NV, 1>(s, terms, end, to.add(keys - end));
            end -= w;
        }
        if end > 0 {
            few::<S, T, NV>(s, terms, end, to.add(keys - end));
        }
    }
}

/// Sums by difference of some neighbouring keys.
#[derive(Clone, Copy)]
struct Run<S: Lanes, const NV: usize> {
    /// Those that no older key adds to; the last one is the largest difference.
    done: S::V,
    /// The next ones.
    lanes: [S::V; NV],
}

impl<S: Lanes, const NV: usize> Run<S, NV> {
    #[inline(always)]
    fn new(s: S) -> Self {
        Self {
            done: s.splat(0.0),
            lanes: [s.splat(0.0); NV],
        }
    }

    /// Adds key `j`, the one before the last that was added.
    ///
    /// # Safety
    /// As for [`Terms::add`].
    #[inline(always)]
    unsafe fn add<T: Terms<S>>(&mut self, s: S, terms: &mut T, j: usize) {
        for v in 0..NV {
            // SAFETY: by the caller's promise.
            self.lanes[v] = unsafe { terms.add(s, j, v, self.lanes[v]) };
        }
        self.done = s.shift_in(self.done, self.lanes[0]);
        for v in 0..NV - 1 {
            self.lanes[v] = s.shift_in(self.lanes[v], self.lanes[v + 1]);
        }
        self.lanes[NV - 1] = s.shift_in(self.lanes[NV - 1], s.splat(0.0));
    }
}

/// `P` runs of a vector's number of keys, before key `end`.
///
/// # Safety
/// As for [`along_diagonals`].
#[inline(always)]
unsafe fn runs<S: Lanes, T: Terms<S>, const NV: usize, const P: usize>(
    s: S,
    terms: &mut T,
    end: usize,
    to: *mut f32,
) {
    let w = S::WIDTH;
    let mut runs = [Run::<S, NV>::new(s); P];
    // SAFETY: by the caller's promise.
    unsafe {
        for i in 0..w {
            for p in 0..P {
                runs[p].add(s, terms, end - 1 - p * w - i);
            }
        }
        for p in 0..P {
            let at = to.add(p * w);
            s.store(at, T::join(s, s.load(at), runs[p].done));
            for v in 0..NV {
                let at = at.add((v + 1) * w);
                s.store(at, T::join(s, s.load(at), runs[p].lanes[v]));
            }
        }
    }
}

/// The `n` oldest keys, fewer than a vector has lanes.
///
/// # Safety
/// As for [`along_diagonals`].
#[inline(always)]
unsafe fn few<S: Lanes, T: Terms<S>, const NV: usize>(s: S, terms: &mut T, n: usize, to: *mut f32) {
    let w = S::WIDTH;
    let mut run = Run::<S, NV>::new(s);
    // What is done lies at the end of its vector.
    let mut sums = [0.0_f32; 2 * 16 + TILE_MAX];
    let from = w - n;
    // SAFETY: by the caller's promise; `sums` holds a tile and two vectors.
    unsafe {
        for j in (0..n).rev() {
            run.add(s, terms, j);
        }
        s.store(sums.as_mut_ptr(), run.done);
        for v in 0..NV {
            s.store(sums.as_mut_ptr().add((v + 1) * w), run.lanes[v]);
        }
        let mut more = [0.0_f32; 16];
        let n_sums = n + NV * w;
        for at in (0..n_sums).step_by(w) {
            let some = w.min(n_sums - at);
            let (to, more) = (to.add(at), more.as_mut_ptr());
            std::ptr::copy_nonoverlapping(to, more, some);
            let sum = s.load(sums.as_ptr().add(from + at));
            s.store(more, T::join(s, s.load(more), sum));
            std::ptr::copy_nonoverlapping(more, to, some);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_by_difference_take_every_value_once() {
        for &lanes in Isa::tiles() {
            for keys in [1, 2, 7, 16, 35, 48, 64] {
                let values: Vec<f32> = (0..keys * lanes).map(|i| (i * 37 % 101) as f32).collect();
                let mut sums = vec![1.0; keys + lanes];
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
        for &lanes in Isa::tiles() {
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
