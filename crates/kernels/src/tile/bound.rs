//! The proof, for one tile and one block, that every weight is exactly zero. See [`crate::skip`] for the argument.
#![allow(
    unsafe_code,
    reason = "vector loads; each block states why it is sound"
)]

use super::TILE_MAX;
use crate::bias::BiasBounds;
use crate::exp::{ZERO_AT, soft_cap};
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

    /// Whether all weights of block `b` (`older`: of it and of all older ones) are exactly zero, given that every row has
    /// reached the score `max`. `offset` is `query - key` of the tile's first query and the block's nearest key: positive
    /// for a block behind the whole tile, negative for one ahead of it.
    #[inline(always)]
    #[allow(
        clippy::too_many_arguments,
        reason = "one call site each for the two directions"
    )]
    pub(super) fn proves_zero(
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
        let finite = s.splat(f32::MAX);
        let minus_inf = s.splat(f32::NEG_INFINITY);
        let mut zero_everywhere = true;
        for v in 0..NV {
            let alive = s.le(s.iota(), s.splat(self.rows as f32 - 1.0 - (v * w) as f32));
            let mut score = s.mul(self.norm[v], s.splat(norm));
            zero_everywhere &= s.all(s.le(score, finite));
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
            zero_everywhere &= s.all(s.le(gap, s.splat(ZERO_AT)));
        }
        zero_everywhere
    }
}

/// Bias of the nearest key.
#[derive(Clone, Copy)]
enum Near<'a> {
    Same(f32),
    /// One per lane.
    Each(&'a [f32]),
}
