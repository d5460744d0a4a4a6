//! The proof, for one tile and one block, that every weight is exactly zero. See [`crate::skip`] for the argument.
#![allow(
    unsafe_code,
    reason = "vector loads; each block states why it is sound"
)]

use super::{HeadTask, KEY_BLOCK, TILE_MAX, TileBias};
use crate::bias::BiasBounds;
use crate::exp::soft_cap;
use crate::input::CapOrder;
use crate::lanes::Lanes;
use crate::skip::{Bounds, reach_bound};

/// What a tile knows about its own queries.
#[derive(Clone, Copy)]
pub(super) struct Reach<S: Lanes, const NV: usize> {
    /// `|fl(scale q . k)| <= norm * (bound on |k|)`, per query.
    norm: [S::V; NV],
    /// Queries; the other lanes are idle.
    rows: usize,
}

/// Relative slack of the soft cap, far above its four units in the last place.
const CAP_SLACK: f32 = 1.0 / (1 << 18) as f32;

impl<S: Lanes, const NV: usize> Reach<S, NV> {
    /// Of the packed queries `qt`, `[width, tile]`, the scale included.
    ///
    /// # Safety
    /// `qt` holds the tile.
    #[inline(always)]
    pub(super) unsafe fn new(s: S, qt: *const f32, width: usize, rows: usize) -> Self {
        let w = S::WIDTH;
        let mut sums = [s.splat(0.0); NV];
        let mut bounds = [0.0_f32; TILE_MAX];
        // SAFETY: by the caller's promise; `NV * w <= TILE_MAX`.
        unsafe {
            for c in 0..width {
                for (v, sum) in sums.iter_mut().enumerate() {
                    let x = s.load(qt.add(c * NV * w + v * w));
                    *sum = s.fma(x, x, *sum);
                }
            }
            for (v, sum) in sums.iter().enumerate() {
                s.store(bounds.as_mut_ptr().add(v * w), *sum);
            }
            for (r, bound) in bounds.iter_mut().enumerate() {
                *bound = if r < rows {
                    reach_bound(*bound, width)
                } else {
                    0.0
                };
            }
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = s.load(bounds.as_ptr().add(v * w));
            }
        }
        Self { norm: sums, rows }
    }

    /// What can be proven about block `b` of `nk` keys, given that every row has reached the score `max`.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "the state of one tile")]
    pub(super) fn proves_block(
        &self,
        s: S,
        task: &HeadTask<'_>,
        bounds: &Bounds<'_>,
        b: usize,
        nk: usize,
        first_query: usize,
        max: &[S::V; NV],
    ) -> Proof {
        let j0 = b * KEY_BLOCK;
        // Difference to the nearest key of a block behind the tile, or ahead of it.
        let (behind, ahead) = (j0 + nk <= first_query, j0 >= first_query + self.rows);
        let nearest = if behind { j0 + nk - 1 } else { j0 };
        let offset = first_query as isize - nearest as isize;
        let zero = match task.bias {
            TileBias::ByDifference { zero, .. } => zero,
            _ => 0,
        };
        let cap = task.soft_cap;
        if behind && self.proves_zero(s, bounds, b, true, zero, offset, max, cap) {
            return Proof::Older;
        }
        if (behind || ahead)
            && bounds.holes
            && self.proves_zero(s, bounds, b, false, zero, offset, max, cap)
        {
            return Proof::Own;
        }
        Proof::None
    }

    /// Whether all weights of block `b` (`older`: of it and of all older ones) are exactly zero, given that every row has
    /// reached the score `max`. `offset` is `query - key` of the tile's first query and the block's nearest key: positive
    /// for a block behind the whole tile, negative for one ahead of it.
    #[inline(always)]
    #[allow(
        clippy::too_many_arguments,
        reason = "one call site each for the two directions"
    )]
    fn proves_zero(
        &self,
        s: S,
        bounds: &Bounds<'_>,
        b: usize,
        older: bool,
        zero: usize,
        offset: isize,
        max: &[S::V; NV],
        cap: Option<(f32, CapOrder)>,
    ) -> bool {
        let w = S::WIDTH;
        let norms = if older {
            &bounds.norms.older
        } else {
            &bounds.norms.own
        };
        let norm = norms[b];
        if norm > f32::MAX {
            return false;
        }
        let near = match bounds.bias {
            BiasBounds::None => Near::Same(0.0),
            BiasBounds::ByKey { own, older: all } => {
                Near::Same(if older { all[b] } else { own[b] })
            }
            BiasBounds::ByDifference { behind, ahead } => {
                let table = if offset > 0 { behind } else { ahead };
                let at = zero.wrapping_add_signed(offset);
                Near::Each(&table[at..at + NV * w])
            }
        };
        let raw_max = s.splat(bounds.raw_max);
        let minus_inf = s.splat(f32::NEG_INFINITY);
        let mut zero_everywhere = true;
        for v in 0..NV {
            let alive = s.le(s.iota(), s.splat(self.rows as f32 - 1.0 - (v * w) as f32));
            let mut score = s.mul(self.norm[v], s.splat(norm));
            zero_everywhere &= s.all(s.le(score, raw_max));
            if let Some((cap, CapOrder::BeforeBias)) = cap {
                let slack = s.fma(score, s.splat(1.0 + CAP_SLACK), s.splat(cap * CAP_SLACK));
                score = s.min(slack, s.splat(cap));
            }
            let bias = match near {
                Near::Same(b) => s.splat(b),
                // SAFETY: the slice holds the tile's `NV * w` differences.
                Near::Each(table) => unsafe { s.load(table.as_ptr().add(v * w)) },
            };
            score = s.add(score, bias);
            if let Some((cap, CapOrder::AfterBias)) = cap {
                let c = soft_cap(s, score, cap);
                score = s.add(
                    c,
                    s.fma(s.abs(c), s.splat(CAP_SLACK), s.splat(cap * CAP_SLACK)),
                );
            }
            let gap = s.select(alive, s.sub(score, max[v]), minus_inf);
            zero_everywhere &= s.all(s.le(gap, s.splat(bounds.cut)));
        }
        zero_everywhere
    }
}

/// What is proven to be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    None,
    /// This block.
    Own,
    /// This block and all older ones.
    Older,
}

/// Bias of the nearest key.
#[derive(Clone, Copy)]
enum Near<'a> {
    Same(f32),
    /// One per lane.
    Each(&'a [f32]),
}
