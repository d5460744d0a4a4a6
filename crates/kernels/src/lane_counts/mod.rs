//! How many pairs of a block lie on one side of a bound of their row, and at which differences.
//!
//! [`below`] counts scores under bounds that are known but for a little, and says where that little matters; [`beyond`] counts gaps
//! exactly.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]

mod below;
mod beyond;

pub use below::{Below, CUTS, Cut, count_below};
pub use beyond::{Beyond, GapLimits, count_beyond};

use std::ops::Range;

use crate::lane_loops::LaneBias;
use crate::lanes::Lanes;
use crate::score_tile::{ScoreTile, check_block};
use crate::tile::AddBias;

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

/// What is compared with bounds.
trait Values: Copy {
    /// A value that no count takes.
    const HIDDEN: f32;

    /// Of key `j` and vector `v`.
    ///
    /// # Safety
    /// They are in the block.
    unsafe fn at<S: Lanes, const NV: usize>(self, s: S, j: usize, v: usize) -> S::V;
}

/// Scores; points to the raw ones, `[keys, lanes]`.
#[derive(Clone, Copy)]
struct Scores<B> {
    raw: *const f32,
    bias: B,
}

impl<B: AddBias> Values for Scores<B> {
    const HIDDEN: f32 = f32::INFINITY;

    #[inline(always)]
    unsafe fn at<S: Lanes, const NV: usize>(self, s: S, j: usize, v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        unsafe {
            let raw = s.load(self.raw.add((j * NV + v) * S::WIDTH));
            self.bias.add(s, raw, j, v)
        }
    }
}

/// Gaps of scores; points to the maxima.
#[derive(Clone, Copy)]
struct Gaps<V> {
    scores: V,
    max: *const f32,
}

impl<V: Values> Values for Gaps<V> {
    const HIDDEN: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    unsafe fn at<S: Lanes, const NV: usize>(self, s: S, j: usize, v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        unsafe {
            let max = s.load(self.max.add(v * S::WIDTH));
            s.sub(max, self.scores.at::<S, NV>(s, j, v))
        }
    }
}

/// Values of the pairs up to each lane's last key, counted from the block's first.
#[derive(Clone, Copy)]
struct Seen<V> {
    values: V,
    last: *const f32,
}

impl<V: Values> Values for Seen<V> {
    const HIDDEN: f32 = V::HIDDEN;

    #[inline(always)]
    unsafe fn at<S: Lanes, const NV: usize>(self, s: S, j: usize, v: usize) -> S::V {
        // SAFETY: by the caller's promise.
        unsafe {
            let last = s.load(self.last.add(v * S::WIDTH));
            let value = self.values.at::<S, NV>(s, j, v);
            s.select(s.le(s.splat(j as f32), last), value, s.splat(V::HIDDEN))
        }
    }
}

fn check_sums(keys: usize, lanes: usize, by_difference: Option<&[u32]>) {
    assert!(
        by_difference.is_none_or(|to| to.len() == keys + lanes),
        "counts of {keys} keys"
    );
}

/// Sum of some counters, without what does not fit.
#[inline(always)]
fn total(counters: &[u32]) -> u32 {
    counters.iter().fold(0, |sum, &n| sum.wrapping_add(n))
}
