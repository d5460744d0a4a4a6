//! What is known of the queries of a tile.

use std::ops::Range;

use kernels::ScoreTile;

use crate::evidence::distance::{OffsetCounts, Offsets};

/// What is known of each query of a tile.
#[derive(Clone, Debug)]
pub(super) struct Lanes<const W: usize> {
    /// Lanes that take part: rows whose scores are finite.
    pub(super) good: [bool; W],
    pub(super) n_good: u64,
    /// Last key a lane sees; -1 for lanes that do not take part.
    pub(super) last_key: [i32; W],
    /// Largest score; 0 for lanes that do not take part.
    pub(super) max: [f32; W],
    pub(super) sum: [f64; W],
    /// Logarithm of the sum.
    pub(super) ln_sum: [f64; W],
    /// Smallest and largest sum, and logarithm of one.
    pub(super) sum_ends: [f64; 2],
    pub(super) ln_sum_ends: [f64; 2],
    /// Largest absolute raw score of the pairs whose weight is not exactly zero; 0 until it is known.
    pub(super) seen_max: [f32; W],
}

impl<const W: usize> Lanes<W> {
    #[inline(always)]
    pub(super) fn new(tile: &ScoreTile<'_>) -> Self {
        let mut lanes = Self {
            good: [false; W],
            n_good: 0,
            last_key: [-1; W],
            max: [0.0; W],
            sum: [1.0; W],
            ln_sum: [0.0; W],
            sum_ends: [1.0; 2],
            ln_sum_ends: [0.0; 2],
            seen_max: [0.0; W],
        };
        for row in 0..tile.n_rows {
            if tile.row_max[row].is_finite() && tile.row_lse[row].is_finite() {
                lanes.good[row] = true;
                lanes.n_good += 1;
                lanes.last_key[row] = (tile.first_query + row).min(tile.n_keys - 1) as i32;
                lanes.max[row] = tile.row_max[row];
                lanes.sum[row] = f64::from(tile.row_sum[row]);
                lanes.ln_sum[row] = tile.row_ln_sum[row];
            }
        }
        lanes.find_ends();
        lanes
    }

    /// Lanes that take part.
    #[inline(always)]
    pub(super) fn alive(&self) -> impl Iterator<Item = usize> + '_ {
        (0..W).filter(|&lane| self.good[lane])
    }

    /// Leaves a lane out.
    pub(super) fn drop_lane(&mut self, lane: usize) {
        self.good[lane] = false;
        self.n_good -= 1;
        self.last_key[lane] = -1;
    }

    /// These lanes alone.
    pub(super) fn only(&self, some: &Range<usize>) -> Self {
        let mut lanes = self.clone();
        for lane in self.alive().filter(|lane| !some.contains(lane)) {
            lanes.drop_lane(lane);
        }
        lanes
    }

    /// One past the last of `keys` that a lane sees.
    #[inline(always)]
    pub(super) fn seen_end(&self, lane: usize, keys: &Range<usize>) -> usize {
        let end = usize::try_from(self.last_key[lane] + 1).unwrap_or(0);
        end.clamp(keys.start, keys.end)
    }

    /// Pairs of a block.
    #[inline(always)]
    pub(super) fn pairs(&self, keys: &Range<usize>) -> u64 {
        // Lanes see ever more keys: where the first sees all, all do.
        if self.n_good == W as u64 && self.seen_end(0, keys) == keys.end {
            return (keys.len() * W) as u64;
        }
        let seen = |lane| (self.seen_end(lane, keys) - keys.start) as u64;
        self.alive().map(seen).sum()
    }

    /// Counts every pair of a range of keys by offset.
    #[inline(always)]
    pub(super) fn add_runs(
        &self,
        offsets: Offsets,
        first_query: usize,
        keys: &Range<usize>,
        counts: &mut OffsetCounts,
    ) {
        if self.n_good == W as u64 && self.seen_end(0, keys) == keys.end {
            // Each lane's run begins and ends one offset before the last one's.
            let last = offsets.base(first_query + W - 1);
            counts.add_runs(last + keys.start..last + keys.end, W);
            return;
        }
        for lane in self.alive() {
            let base = offsets.base(first_query + lane);
            let end = self.seen_end(lane, keys);
            if end > keys.start {
                counts.add_run(base + keys.start..base + end);
            }
        }
    }

    /// Finds the ends of the sums.
    #[inline(always)]
    pub(super) fn find_ends(&mut self) {
        let ends = |values: &[f64; W], good: &[bool; W]| {
            let (mut least, mut most) = ([f64::INFINITY; 8], [f64::NEG_INFINITY; 8]);
            for from in (0..W).step_by(8) {
                for i in 0..8 {
                    let (value, good) = (values[from + i], good[from + i]);
                    let low = if good { value } else { f64::INFINITY };
                    let high = if good { value } else { f64::NEG_INFINITY };
                    least[i] = if low < least[i] { low } else { least[i] };
                    most[i] = if high > most[i] { high } else { most[i] };
                }
            }
            let least = least.into_iter().fold(f64::INFINITY, f64::min);
            [least, most.into_iter().fold(f64::NEG_INFINITY, f64::max)]
        };
        self.sum_ends = ends(&self.sum, &self.good);
        self.ln_sum_ends = ends(&self.ln_sum, &self.good);
    }

    /// Writes `value` over every pair of `keys` that is hidden or belongs to nobody; `out` is `[keys, W]`.
    #[inline(always)]
    pub(super) fn hide<T: Copy>(&self, keys: &Range<usize>, value: T, out: &mut [T]) {
        for (key, out) in keys.clone().zip(out.as_chunks_mut::<W>().0) {
            for lane in 0..W {
                out[lane] = if key as i32 > self.last_key[lane] {
                    value
                } else {
                    out[lane]
                };
            }
        }
    }
}
