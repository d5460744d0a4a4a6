//! The scores of one tile of queries as the kernel holds them: queries side by side, keys one below the other.

#![allow(
    unsafe_code,
    reason = "vector loads and stores; each block states why it is sound"
)]

use std::ops::Range;

use crate::input::HeadBias;
use crate::lane_loops::LaneBias;
use crate::lanes::{Isa, Lanes, dispatch};
use crate::tile::{ENDS, HeadTask, KEY_BLOCK, SomeKeys, TILE_MAX, TileBias, raw_of_keys};

/// Scores of a few consecutive queries of one head against all keys they see, in a causal call without padding and without a
/// soft cap. Lane `r` of every group of [`ScoreTile::lanes`] values belongs to query `first_query + r`; lanes from `n_rows` on
/// belong to nobody and hold anything.
#[derive(Clone, Copy, Debug)]
pub struct ScoreTile<'a> {
    /// Query head.
    pub head: usize,
    /// Key index of the first query (`query_offset` included).
    pub first_query: usize,
    /// Queries; at most `lanes`.
    pub n_rows: usize,
    /// Keys of the whole call.
    pub n_keys: usize,
    /// Lanes of the tile: 8, 16 or 48.
    pub lanes: usize,
    /// `[n_rows]`: largest score with bias, in nats.
    pub row_max: &'a [f32],
    /// `[n_rows]`: sum of `exp(score - max)` as the forward pass holds it.
    pub row_sum: &'a [f32],
    /// `[n_rows]`: logarithm of the sum of `exp(score)`, in nats.
    pub row_lse: &'a [f32],
    /// `[n_rows]`: logarithm of `row_sum`; 0 for a row that sees nothing.
    pub row_ln_sum: &'a [f64],
    /// `[n_rows]`: sum of `exp(score - max) (max - score)`, nats, from the forward pass.
    pub row_gap: &'a [f32],
    /// Keys before this one were not computed, as [`crate::HeadSink::spare_scores`] allowed; a multiple of
    /// [`ScoreTile::BLOCK`].
    pub proven_zero_before: usize,
    pub(crate) raw: &'a [f32],
    /// See [`crate::tile::TileStore`]; likewise `ends`.
    pub(crate) weights: &'a [f32],
    pub(crate) ends: &'a [f32],
    pub(crate) bias: HeadBias<'a>,
    /// The same as the kernel reads it.
    pub(crate) tile_bias: TileBias<'a>,
    /// What the tile was computed with, and from.
    pub(crate) isa: Isa,
    pub(crate) task: &'a HeadTask<'a>,
    /// `[width, lanes]`: the queries, scaled.
    pub(crate) queries: &'a [f32],
}

/// Keys from `proven_zero_before` to `end`, a multiple of 16: `out[lane * stride + key] = raw[key * lanes + lane]`.
#[inline(always)]
fn turn<S: Lanes>(s: S, tile: &ScoreTile<'_>, stride: usize, end: usize, out: &mut [f32]) {
    let (raw, out) = (tile.raw.as_ptr(), out.as_mut_ptr());
    for lane in (0..tile.lanes).step_by(S::WIDTH) {
        for key in (tile.proven_zero_before..end).step_by(S::WIDTH) {
            // SAFETY: `rows_into` has checked that the scores reach to `end`; `out` has `lanes` rows of at least that many.
            unsafe {
                s.transpose(
                    raw.add(key * tile.lanes + lane),
                    tile.lanes,
                    out.add(lane * stride + key),
                    stride,
                );
            }
        }
    }
}

/// At least one key, and no more than a block's.
pub(crate) fn check_block(keys: &Range<usize>) {
    assert!((1..=KEY_BLOCK).contains(&keys.len()), "{} keys", keys.len());
}

/// Elements from one row to the next. Rows of a power-of-two length would fall into the same few cache sets.
fn row_stride(keys: usize) -> usize {
    keys.next_multiple_of(KEY_BLOCK) + 16
}

/// Extremes of each query over one block of keys, one value a lane. NaN scores are passed over.
#[derive(Clone, Copy, Debug)]
pub struct BlockEnds<'a> {
    /// Smallest raw score.
    pub raw_low: &'a [f32],
    /// Largest raw score.
    pub raw_high: &'a [f32],
    /// Smallest score with bias.
    pub low: &'a [f32],
    /// Largest score with bias.
    pub high: &'a [f32],
}

impl<'a> ScoreTile<'a> {
    /// Keys of a block.
    pub const BLOCK: usize = KEY_BLOCK;
    /// Lanes of the widest tile.
    pub const LANES_MAX: usize = TILE_MAX;

    /// Keys that the tile's last query sees; earlier queries see fewer.
    pub fn keys_end(&self) -> usize {
        (self.first_query + self.n_rows).min(self.n_keys)
    }

    /// First key of the first block in which some query does not see some key. A multiple of [`ScoreTile::BLOCK`].
    pub fn diagonal_from(&self) -> usize {
        (self.first_query + 1) / KEY_BLOCK * KEY_BLOCK
    }

    /// Raw scores of the keys `keys` from `proven_zero_before` on: scaled `q . k` in nats without bias, `[keys, lanes]`. Keys
    /// after a query hold what they would score.
    pub fn raw(&self, keys: Range<usize>) -> &'a [f32] {
        &self.raw[self.computed(keys)]
    }

    /// Where some keys that were computed are in `[keys, lanes]`.
    fn computed(&self, keys: Range<usize>) -> Range<usize> {
        assert!(
            self.proven_zero_before <= keys.start && keys.end <= self.keys_end(),
            "keys {keys:?} of {} from {}",
            self.keys_end(),
            self.proven_zero_before
        );
        keys.start * self.lanes..keys.end * self.lanes
    }

    /// What the forward pass has kept of the keys `keys` from `proven_zero_before` on: `[keys, lanes]`, [`crate::tile::LIFT`] times the
    /// exponential of score less reference, 0 for a key after its query.
    pub(crate) fn weights(&self, keys: Range<usize>) -> &'a [f32] {
        &self.weights[self.computed(keys)]
    }

    /// The score, nats, from which each query's weights in the block of key `key` are taken.
    pub(crate) fn references(&self, key: usize) -> &'a [f32] {
        let at = (key / KEY_BLOCK * ENDS + ENDS - 1) * self.lanes;
        &self.ends[at..at + self.lanes]
    }

    /// Extremes of the block that starts at key `start`, before the diagonal.
    pub fn ends(&self, start: usize) -> BlockEnds<'a> {
        assert!(
            start.is_multiple_of(KEY_BLOCK)
                && (self.proven_zero_before..self.diagonal_from()).contains(&start),
            "block at {start}"
        );
        let at = start / KEY_BLOCK * ENDS * self.lanes;
        let part = |i: usize| &self.ends[at + i * self.lanes..at + (i + 1) * self.lanes];
        BlockEnds {
            raw_low: part(0),
            raw_high: part(1),
            low: part(2),
            high: part(3),
        }
    }

    /// Raw scores of some queries, lanes of the tile, against `n` keys, every `step`-th from `first` on, computed anew: also those before
    /// `proven_zero_before`, and those after a query. `[n, lanes]`; other lanes are overwritten or left alone.
    ///
    /// # Panics
    /// If the last key is not before `n_keys`, or `out` has another length.
    pub fn raw_of_keys(
        &self,
        some: Range<usize>,
        first: usize,
        step: usize,
        n: usize,
        out: &mut [f32],
    ) {
        let keys = SomeKeys { first, step, n };
        dispatch!(
            self.isa,
            raw_of_keys,
            (task: &HeadTask<'_>, lanes: usize, queries: &[f32], some: Range<usize>, keys: SomeKeys, out: &mut [f32])
                = (self.task, self.lanes, self.queries, some, keys, out)
        );
    }

    /// Raw scores of every row, minus infinity before `proven_zero_before`: row `r` begins at `r` times the number that is returned, and holds anything
    /// behind the last key that its query sees.
    pub fn rows_into(&self, out: &mut Vec<f32>) -> usize {
        let stride = row_stride(self.keys_end());
        if out.len() < stride * self.lanes {
            out.resize(stride * self.lanes, 0.0);
        }
        let end = self.keys_end().next_multiple_of(16);
        assert!(end * self.lanes <= self.raw.len(), "{end} keys");
        for row in out.chunks_mut(stride).take(self.n_rows) {
            row[..self.proven_zero_before].fill(f32::NEG_INFINITY);
        }
        dispatch!(
            self.isa,
            turn,
            (tile: &ScoreTile<'_>, stride: usize, end: usize, out: &mut [f32])
                = (self, stride, end, out)
        );
        stride
    }

    /// A slice of that many values has one a lane.
    pub(crate) fn check_lanes(&self, values: usize) {
        assert!(values == self.lanes, "one value a lane");
    }

    /// The bias of the forward pass on the keys `keys`, a block or a part of one that the tile reads; `None` if there is none.
    #[inline(always)]
    pub(crate) fn lane_bias(&self, keys: &Range<usize>) -> Option<LaneBias<'a>> {
        match self.tile_bias {
            TileBias::None => None,
            TileBias::ByKey(values) => Some(LaneBias::ByKey(&values[keys.clone()])),
            TileBias::ByDifference { table, zero } => {
                let first = zero + self.first_query - keys.start;
                let values = &table[first + 1 - keys.len()..first + self.lanes];
                Some(LaneBias::ByDifference(values))
            }
        }
    }

    /// Bias in nats of a pair inside the mask; both are key indices.
    pub fn bias_at(&self, query: usize, key: usize) -> f32 {
        self.bias.at(query, key)
    }
}
