//! Weights under a runtime that rounds scores to 16 bits, for a tile of queries side by side.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use std::marker::PhantomData;
use std::ops::Range;

use numerics::Rounding;

use crate::exp::exp;
use crate::lane_loops::{LaneBias, Terms, along_diagonals, check};
use crate::lanes::{Isa, Lanes, dispatch};
use crate::score_tile::ScoreTile;
use crate::tile::{AddBias, DifferenceBias, KEY_BLOCK, KeyBias, TILE_MAX};
use crate::weigh::relative_keys;

/// Entries `sum(scaled(raw) + bias)` of a block of keys, nats.
#[derive(Clone, Copy, Debug)]
pub struct RoundedEntries<'a> {
    /// The bias of the block.
    pub bias: LaneBias<'a>,
    /// Rounding of the raw score.
    pub scaled: Rounding,
    /// Rounding of the sum.
    pub sum: Rounding,
}

impl ScoreTile<'_> {
    /// Raises `max`, one value a lane, to the largest entry of each lane over the keys `keys` (one block, or the visible part of
    /// one) up to its last one; NaN is passed over.
    ///
    /// # Panics
    /// If the keys are more than a block or not there, or if a slice has another length.
    pub fn raise_rounded(
        &self,
        keys: Range<usize>,
        entries: &RoundedEntries<'_>,
        last_key: &[i32],
        max: &mut [f32],
    ) {
        let block = self.rounded(keys, entries, last_key, max.len());
        dispatch!(
            self.isa,
            raise,
            (block: &Rounds<'_>, max: &mut [f32]) = (&block, max)
        );
    }

    /// Writes the weights `exp(entry - max)` of the keys `keys`, 0 behind a lane's last key, to `weights`, `[keys, lanes]`, and their
    /// sums, key after key, to `sums`. `max` and `sums` hold a value a lane.
    ///
    /// # Panics
    /// As [`ScoreTile::raise_rounded`].
    pub fn weigh_rounded(
        &self,
        keys: Range<usize>,
        entries: &RoundedEntries<'_>,
        last_key: &[i32],
        max: &[f32],
        weights: &mut [f32],
        sums: &mut [f32],
    ) {
        assert!(
            weights.len() == keys.len() * self.lanes && sums.len() == self.lanes,
            "one value a lane"
        );
        let block = self.rounded(keys, entries, last_key, max.len());
        dispatch!(
            self.isa,
            weigh,
            (block: &Rounds<'_>, max: &[f32], weights: &mut [f32], sums: &mut [f32])
                = (&block, max, weights, sums)
        );
    }

    /// Writes the entries of the keys `keys`, `hidden` behind a lane's last key, to `out`, `[keys, lanes]`.
    ///
    /// # Panics
    /// As [`ScoreTile::raise_rounded`].
    pub fn rounded_entries(
        &self,
        keys: Range<usize>,
        entries: &RoundedEntries<'_>,
        last_key: &[i32],
        hidden: f32,
        out: &mut [f32],
    ) {
        assert!(out.len() == keys.len() * self.lanes, "one value a lane");
        let block = self.rounded(keys, entries, last_key, self.lanes);
        dispatch!(
            self.isa,
            fill,
            (block: &Rounds<'_>, hidden: f32, out: &mut [f32]) = (&block, hidden, out)
        );
    }

    fn rounded<'a>(
        &'a self,
        keys: Range<usize>,
        entries: &'a RoundedEntries<'a>,
        last_key: &[i32],
        n_max: usize,
    ) -> Rounds<'a> {
        assert!(
            last_key.len() == self.lanes && n_max == self.lanes,
            "one value a lane"
        );
        assert!(
            !keys.is_empty() && keys.len() <= KEY_BLOCK,
            "{} keys",
            keys.len()
        );
        let fits = match entries.bias {
            LaneBias::ByKey(bias) => bias.len() == keys.len(),
            LaneBias::ByDifference(bias) => bias.len() + 1 == keys.len() + self.lanes,
        };
        assert!(fits, "bias of {} keys", keys.len());
        Rounds {
            n: keys.len(),
            lanes: self.lanes,
            raw: self.raw(keys.clone()),
            last: relative_keys(last_key, &keys),
            entries,
        }
    }
}

/// One block, its lengths checked.
struct Rounds<'a> {
    n: usize,
    lanes: usize,
    raw: &'a [f32],
    last: [f32; TILE_MAX],
    entries: &'a RoundedEntries<'a>,
}

trait Round: Copy {
    fn round<S: Lanes>(s: S, x: S::V) -> S::V;
}

#[derive(Clone, Copy)]
struct Keep;
#[derive(Clone, Copy)]
struct Bf16;
#[derive(Clone, Copy)]
struct F16;

impl Round for Keep {
    #[inline(always)]
    fn round<S: Lanes>(_s: S, x: S::V) -> S::V {
        x
    }
}

impl Round for Bf16 {
    #[inline(always)]
    fn round<S: Lanes>(s: S, x: S::V) -> S::V {
        s.round_bf16(x)
    }
}

impl Round for F16 {
    #[inline(always)]
    fn round<S: Lanes>(s: S, x: S::V) -> S::V {
        s.round_f16(x)
    }
}

/// A bias whose sum is rounded to `Q` and the score before it to `P`.
#[derive(Clone, Copy)]
struct Rounded<B, P, Q>(B, PhantomData<(P, Q)>);

impl<B: AddBias, P: Round, Q: Round> AddBias for Rounded<B, P, Q> {
    #[inline(always)]
    unsafe fn add<S: Lanes>(self, s: S, x: S::V, j: usize, v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        Q::round(s, unsafe { self.0.add(s, P::round(s, x), j, v) })
    }
}

/// Calls `$body` with the entries of a block as `$bias`.
macro_rules! with_entries {
    ($block:expr, $bias:ident => $body:expr) => {{
        macro_rules! rounded {
            ($of:expr, $p:ty, $q:ty) => {{
                let $bias = Rounded::<_, $p, $q>($of, PhantomData);
                $body
            }};
        }
        macro_rules! pairs {
            ($of:expr) => {
                match ($block.entries.scaled, $block.entries.sum) {
                    (Rounding::Keep, Rounding::Keep) => rounded!($of, Keep, Keep),
                    (Rounding::Keep, Rounding::Bf16) => rounded!($of, Keep, Bf16),
                    (Rounding::Keep, Rounding::F16) => rounded!($of, Keep, F16),
                    (Rounding::Bf16, Rounding::Keep) => rounded!($of, Bf16, Keep),
                    (Rounding::Bf16, Rounding::Bf16) => rounded!($of, Bf16, Bf16),
                    (Rounding::Bf16, Rounding::F16) => rounded!($of, Bf16, F16),
                    (Rounding::F16, Rounding::Keep) => rounded!($of, F16, Keep),
                    (Rounding::F16, Rounding::Bf16) => rounded!($of, F16, Bf16),
                    (Rounding::F16, Rounding::F16) => rounded!($of, F16, F16),
                }
            };
        }
        match $block.entries.bias {
            LaneBias::ByKey(bias) => pairs!(KeyBias(bias.as_ptr())),
            LaneBias::ByDifference(bias) => {
                pairs!(DifferenceBias(bias.as_ptr().wrapping_add($block.n - 1)))
            }
        }
    }};
}

#[inline(always)]
fn raise<S: Lanes>(s: S, block: &Rounds<'_>, max: &mut [f32]) {
    with_entries!(block, bias => raise_by(s, block, bias, max));
}

#[inline(always)]
fn raise_by<S: Lanes, B: AddBias>(s: S, block: &Rounds<'_>, bias: B, max: &mut [f32]) {
    let lowest = s.splat(f32::NEG_INFINITY);
    for v in 0..block.lanes / S::WIDTH {
        let at = v * S::WIDTH;
        // SAFETY: the callers have checked every length.
        unsafe {
            let last = s.load(block.last.as_ptr().add(at));
            let mut top = s.load(max.as_ptr().add(at));
            for j in 0..block.n {
                let raw = s.load(block.raw.as_ptr().add(j * block.lanes + at));
                let entry = bias.add(s, raw, j, v);
                top = s.max(s.select(s.le(s.splat(j as f32), last), entry, lowest), top);
            }
            s.store(max.as_mut_ptr().add(at), top);
        }
    }
}

#[inline(always)]
fn fill<S: Lanes>(s: S, block: &Rounds<'_>, hidden: f32, out: &mut [f32]) {
    with_entries!(block, bias => fill_by(s, block, bias, hidden, out));
}

#[inline(always)]
fn fill_by<S: Lanes, B: AddBias>(s: S, block: &Rounds<'_>, bias: B, hidden: f32, out: &mut [f32]) {
    let hidden = s.splat(hidden);
    for v in 0..block.lanes / S::WIDTH {
        let at = v * S::WIDTH;
        // SAFETY: the callers have checked every length.
        unsafe {
            let last = s.load(block.last.as_ptr().add(at));
            for j in 0..block.n {
                let raw = s.load(block.raw.as_ptr().add(j * block.lanes + at));
                let entry = bias.add(s, raw, j, v);
                let entry = s.select(s.le(s.splat(j as f32), last), entry, hidden);
                s.store(out.as_mut_ptr().add(j * block.lanes + at), entry);
            }
        }
    }
}

#[inline(always)]
fn weigh<S: Lanes>(s: S, block: &Rounds<'_>, max: &[f32], weights: &mut [f32], sums: &mut [f32]) {
    with_entries!(block, bias => weigh_by(s, block, bias, max, weights, sums));
}

#[inline(always)]
fn weigh_by<S: Lanes, B: AddBias>(
    s: S,
    block: &Rounds<'_>,
    bias: B,
    max: &[f32],
    weights: &mut [f32],
    sums: &mut [f32],
) {
    let lowest = s.splat(f32::NEG_INFINITY);
    for v in 0..block.lanes / S::WIDTH {
        let at = v * S::WIDTH;
        // SAFETY: the callers have checked every length.
        unsafe {
            let last = s.load(block.last.as_ptr().add(at));
            let max = s.load(max.as_ptr().add(at));
            let mut sum = s.splat(0.0);
            for j in 0..block.n {
                let raw = s.load(block.raw.as_ptr().add(j * block.lanes + at));
                let t = s.sub(bias.add(s, raw, j, v), max);
                let weight = exp(s, s.select(s.le(s.splat(j as f32), last), t, lowest));
                sum = s.add(sum, weight);
                s.store(weights.as_mut_ptr().add(j * block.lanes + at), weight);
            }
            s.store(sums.as_mut_ptr().add(at), sum);
        }
    }
}

/// [`crate::sum_by_difference`] of `rounding(share * weight)`; `share` holds a value a lane.
///
/// # Panics
/// If the slices do not fit.
pub fn sum_shares_by_difference(
    lanes: usize,
    weights: &[f32],
    share: &[f32],
    rounding: Rounding,
    by_difference: &mut [f32],
) {
    check(lanes, weights, by_difference);
    assert!(share.len() == lanes, "{lanes} lanes");
    dispatch!(
        Isa::of_lanes(lanes),
        sum_shares,
        (lanes: usize, weights: &[f32], share: &[f32], rounding: Rounding, to: &mut [f32])
            = (lanes, weights, share, rounding, by_difference)
    );
}

#[inline(always)]
fn sum_shares<S: Lanes>(
    s: S,
    lanes: usize,
    weights: &[f32],
    share: &[f32],
    rounding: Rounding,
    to: &mut [f32],
) {
    match rounding {
        Rounding::Keep => sum_sized::<S, Keep>(s, lanes, weights, share, to),
        Rounding::Bf16 => sum_sized::<S, Bf16>(s, lanes, weights, share, to),
        Rounding::F16 => sum_sized::<S, F16>(s, lanes, weights, share, to),
    }
}

#[inline(always)]
fn sum_sized<S: Lanes, P: Round>(
    s: S,
    lanes: usize,
    weights: &[f32],
    share: &[f32],
    to: &mut [f32],
) {
    // SAFETY: the caller has checked the lengths.
    unsafe {
        match lanes / S::WIDTH {
            1 => sum_rounded::<S, P, 1>(s, weights, share, to),
            2 => sum_rounded::<S, P, 2>(s, weights, share, to),
            3 => sum_rounded::<S, P, 3>(s, weights, share, to),
            n => unreachable!("a tile of {n} vectors"),
        }
    }
}

/// # Safety
/// `weights` holds rows of a tile, `to` a value for each and a tile.
#[inline(always)]
unsafe fn sum_rounded<S: Lanes, P: Round, const NV: usize>(
    s: S,
    weights: &[f32],
    share: &[f32],
    to: &mut [f32],
) {
    let keys = weights.len() / (NV * S::WIDTH);
    let mut terms = Shares::<S, P, NV> {
        weights: weights.as_ptr(),
        shares: [s.splat(0.0); NV],
        rounding: PhantomData,
    };
    // SAFETY: by the caller's promise.
    unsafe {
        for v in 0..NV {
            terms.shares[v] = s.load(share.as_ptr().add(v * S::WIDTH));
        }
        along_diagonals::<S, _, NV>(s, &mut terms, keys, to.as_mut_ptr());
    }
}

/// Rounded products of weights, `[keys, lanes]`, and the lanes' shares.
struct Shares<S: Lanes, P, const NV: usize> {
    weights: *const f32,
    shares: [S::V; NV],
    rounding: PhantomData<P>,
}

impl<S: Lanes, P: Round, const NV: usize> Terms<S> for Shares<S, P, NV> {
    #[inline(always)]
    unsafe fn add(&mut self, s: S, j: usize, v: usize, sum: S::V) -> S::V {
        // SAFETY: by the caller's promise.
        let weight = unsafe { s.load(self.weights.add((j * NV + v) * S::WIDTH)) };
        s.add(sum, P::round(s, s.mul(weight, self.shares[v])))
    }
}
