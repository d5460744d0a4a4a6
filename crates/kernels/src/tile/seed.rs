//! Where the running maxima start.
//!
//! The final maximum of a row decides which weights are zero, so the sooner it is known the more can be left out. Many
//! heads put it on the first keys (attention sinks), which the walk from the newest key meets last; without a causal rule
//! the walk starts far ahead of the query. So the maxima start from a few scores that the row has anyway: of the first
//! keys, and where later keys are visible, of the query's own position. They depend on the row alone, never on its tile,
//! and come from the operations that the walk repeats, so they are never above the final maximum.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use super::ends::pack_rows;
use super::scores::{cap_block, finish_scores, products};
use super::{Block, HeadTask, TILE_MAX, TileBias};
use crate::input::CapOrder;
use crate::lanes::Lanes;

/// Keys to start from.
const FIRST_KEYS: usize = 8;

/// Maxima over the first keys of each query of the tile; over its own position too where there is no causal rule.
///
/// # Safety
/// As for [`super::tile`]; `qt` holds the packed queries, `sp` a block of scores, `spare` a tile. Both are overwritten.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the state of one tile")]
pub(super) unsafe fn first_maxima<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    task: &HeadTask<'_>,
    first_query: usize,
    rows: usize,
    n_keys: usize,
    qt: *const f32,
    sp: *mut f32,
    spare: *mut f32,
) -> [S::V; NV] {
    let mut m = [s.splat(f32::NEG_INFINITY); NV];
    let nk = FIRST_KEYS.min(n_keys);
    let block = Block {
        task,
        first_query,
        j0: 0,
        nk,
        diagonal: task.causal && nk > first_query + 1,
        padded: task
            .key_valid
            .is_some_and(|valid| valid[..nk].contains(&false)),
    };
    // SAFETY: the first `nk` keys exist, and fit into a block.
    unsafe {
        products::<S, R, NV>(s, &block, qt, sp);
        if let Some((cap, CapOrder::BeforeBias)) = task.soft_cap {
            cap_block::<S, NV>(s, nk, cap, sp);
        }
        finish_scores::<S, NV>(s, &block, sp, &mut m);
        if !task.causal {
            own_scores::<S, NV>(s, task, first_query, rows, qt, sp, spare);
            for v in 0..NV {
                m[v] = s.max(m[v], s.load(sp.add(v * S::WIDTH)));
            }
        }
    }
    m
}

/// Score of each query with the key at its own position, into `to`; `-inf` where there is no such key.
///
/// # Safety
/// As for [`first_maxima`].
#[inline(always)]
unsafe fn own_scores<S: Lanes, const NV: usize>(
    s: S,
    task: &HeadTask<'_>,
    first_query: usize,
    rows: usize,
    qt: *const f32,
    to: *mut f32,
    spare: *mut f32,
) {
    let w = S::WIDTH;
    let n = rows.min(task.n_keys.saturating_sub(first_query));
    let mut bias = [f32::NEG_INFINITY; TILE_MAX];
    let mut seen = [f32::NEG_INFINITY; TILE_MAX];
    for r in 0..n {
        let key = first_query + r;
        bias[r] = match task.bias {
            TileBias::None => 0.0,
            TileBias::ByKey(values) => values[key],
            TileBias::ByDifference { table, zero } => table[zero],
        };
        if task.key_valid.is_none_or(|valid| valid[key]) {
            seen[r] = f32::INFINITY;
        }
    }
    // SAFETY: keys `first_query .. first_query + n` exist; the arrays have room for a tile.
    unsafe {
        pack_rows::<S, NV>(s, task.k, first_query, n, task.width, 1.0, spare);
        for v in 0..NV {
            let mut sum = s.splat(0.0);
            for c in 0..task.width {
                let at = (c * NV + v) * w;
                sum = s.fma(s.load(qt.add(at)), s.load(spare.add(at)), sum);
            }
            s.store(to.add(v * w), sum);
        }
        if let Some((cap, CapOrder::BeforeBias)) = task.soft_cap {
            cap_block::<S, NV>(s, 1, cap, to);
        }
        for v in 0..NV {
            let at = to.add(v * w);
            let x = s.add(s.load(at), s.load(bias.as_ptr().add(v * w)));
            s.store(
                at,
                if matches!(task.bias, TileBias::None) {
                    s.load(at)
                } else {
                    x
                },
            );
        }
        if let Some((cap, CapOrder::AfterBias)) = task.soft_cap {
            cap_block::<S, NV>(s, 1, cap, to);
        }
        for v in 0..NV {
            let at = to.add(v * w);
            // A NaN stays: the second operand.
            s.store(at, s.min(s.load(seen.as_ptr().add(v * w)), s.load(at)));
        }
    }
}
