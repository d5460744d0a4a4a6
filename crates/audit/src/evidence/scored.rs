//! One row under one score path: its maximum, its sum, and the pairs that f32 sees.

use crate::evidence::own::INVISIBLE_NATS;
use crate::evidence::row::{Chunk, Row};
use crate::evidence::rules::UNSUMMED_NATS;
use crate::evidence::scan::{CHUNK, Real, exp_of_gaps, largest, to_gaps, weighted_gap};
use crate::evidence::table::ScoreTable;

/// One row under one score path: what every plan on that path needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoredRow<'a> {
    pub(crate) row: &'a Row<'a>,
    pub(crate) table: &'a ScoreTable,
    /// Bounds of the entries of each chunk.
    pub(crate) bounds: &'a [(f64, f64)],
    /// Largest entry.
    pub(crate) max: f64,
    /// `sum(exp(entry - max))`.
    pub(crate) sum: f64,
    /// How far its logarithm may be off, nats.
    pub(crate) sum_error: f64,
}

/// Gap of one pair in f32.
#[inline(always)]
pub(crate) fn gap_of(scored: &ScoredRow<'_>, key: usize) -> f32 {
    let chunk = Chunk {
        start: key,
        end: key + 1,
        low: 0.0,
        high: 0.0,
    };
    let mut entry = [0.0_f32];
    scored.table.entries(scored.row, &chunk, &mut entry);
    scored.max as f32 - entry[0]
}

/// The chunks of a row that hold pairs whose f32 weight is not exactly zero, with the extremes of their raw scores.
#[inline(always)]
pub(crate) fn visible_chunks(scored: &ScoredRow<'_>, visible: &mut Vec<Chunk>) {
    visible.clear();
    let max = scored.max as f32;
    let mut gaps = [0.0_f32; CHUNK];
    for (chunk, &(low, high)) in scored.row.chunks.iter().zip(scored.bounds) {
        if max - low as f32 <= INVISIBLE_NATS {
            visible.push(*chunk);
            continue;
        }
        if max - high as f32 > INVISIBLE_NATS {
            continue;
        }
        let gaps = &mut gaps[..chunk.len()];
        scored.table.entries(scored.row, chunk, gaps);
        to_gaps(gaps, max);
        let mut seen = Chunk {
            low: f32::INFINITY,
            high: f32::NEG_INFINITY,
            ..*chunk
        };
        for (&gap, &raw) in gaps.iter().zip(scored.row.scores(chunk)) {
            if gap <= INVISIBLE_NATS {
                seen.low = seen.low.min(raw);
                seen.high = seen.high.max(raw);
            }
        }
        if seen.low <= seen.high {
            visible.push(seen);
        }
    }
}

/// Largest absolute raw score of the visible pairs: `visible` holds the extremes of each chunk over them.
#[inline(always)]
pub(crate) fn largest_raw(visible: &[Chunk]) -> f32 {
    visible
        .iter()
        .fold(0.0, |size, chunk| size.max(chunk.high).max(-chunk.low))
}

/// Largest entry of a row: only chunks that could hold it are looked at, nearest keys first.
#[inline(always)]
pub(crate) fn row_max<T: Real>(table: &ScoreTable, row: &Row<'_>, bounds: &[(f64, f64)]) -> T {
    let floor = bounds
        .iter()
        .fold(f64::NEG_INFINITY, |floor, bounds| floor.max(bounds.0));
    let mut max = T::LOWEST;
    let mut entries = [T::ZERO; CHUNK];
    for (chunk, &(_, high)) in row.chunks.iter().zip(bounds).rev() {
        if high > max.to_f64() && high >= floor {
            let entries = &mut entries[..chunk.len()];
            table.entries(row, chunk, entries);
            max = largest(entries, max);
        }
    }
    max
}

/// Sum of `exp(entry - max)`, sum of the same times the gap, and the terms themselves by key. Chunks whose terms are all
/// negligible are passed over, their weights left alone but for the row's first key. The first sum is taken in f32 key after key
/// over every aligned block of [`CHUNK`] keys, and in f64 over those: the order of [`crate::evidence::tile`].
#[inline(always)]
pub(crate) fn row_sum<T: Real>(
    table: &ScoreTable,
    row: &Row<'_>,
    bounds: &[(f64, f64)],
    max: T,
    weights: &mut [f32],
) -> (f64, f64) {
    weights[row.first_key] = 0.0;
    let (mut total, mut gap_sum) = (0.0, 0.0);
    let (mut block, mut in_block) = (0, 0.0_f32);
    let mut gaps = [T::ZERO; CHUNK];
    for (chunk, &(_, high)) in row.chunks.iter().zip(bounds) {
        if max.minus(T::of(high)).to_f64() > UNSUMMED_NATS {
            continue;
        }
        if chunk.start / CHUNK != block {
            total += f64::from(in_block);
            (block, in_block) = (chunk.start / CHUNK, 0.0);
        }
        let gaps = &mut gaps[..chunk.len()];
        let weights = &mut weights[chunk.keys()];
        table.entries(row, chunk, gaps);
        to_gaps(gaps, max);
        exp_of_gaps(gaps, weights);
        in_block = weights.iter().fold(in_block, |sum, weight| sum + weight);
        gap_sum += weighted_gap(weights, gaps);
    }
    (total + f64::from(in_block), gap_sum)
}
