//! One query row, cut into chunks whose smallest and largest raw scores are known.

use std::ops::Range;

use numerics::RowPlace;

use crate::evidence::distance::Offsets;
use crate::evidence::scan::{CHUNK, min_max};

/// A few consecutive keys, all inside the mask and all on one side of the query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chunk {
    /// First key.
    pub(crate) start: usize,
    /// One past the last key; at most [`CHUNK`] keys.
    pub(crate) end: usize,
    /// Smallest raw score, nats.
    pub(crate) low: f32,
    /// Largest raw score, nats.
    pub(crate) high: f32,
}

impl Chunk {
    pub(crate) fn keys(&self) -> Range<usize> {
        self.start..self.end
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }
}

/// A row as the accumulators see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// Which row it is; keys before the first that is not padding do not count.
    pub(crate) place: RowPlace,
    /// Offset of key 0, see [`Offsets::base`].
    pub(crate) base: usize,
    /// First key that is not padding.
    pub(crate) first_key: usize,
    /// Pairs of this row.
    pub(crate) pairs: u64,
    /// Scaled `q.k` of every key from 0, without bias.
    pub(crate) raw: &'a [f32],
    /// Ascending by key; together they hold every pair of the row exactly once.
    pub(crate) chunks: &'a [Chunk],
}

impl Row<'_> {
    /// Key index of the query.
    pub(crate) fn query(&self) -> usize {
        self.place.query
    }

    /// Offsets of a chunk's pairs.
    pub(crate) fn offsets(&self, chunk: &Chunk) -> Range<usize> {
        self.base + chunk.start..self.base + chunk.end
    }

    /// Raw scores of a chunk.
    pub(crate) fn scores(&self, chunk: &Chunk) -> &[f32] {
        &self.raw[chunk.keys()]
    }
}

/// Runs of keys that are not padding, ascending.
pub(crate) fn valid_runs(n_keys: usize, key_valid: Option<&[bool]>) -> Vec<Range<usize>> {
    let Some(valid) = key_valid else {
        return std::iter::once(0..n_keys).collect();
    };
    let mut runs: Vec<Range<usize>> = Vec::new();
    for key in (0..n_keys).filter(|&key| valid[key]) {
        match runs.last_mut() {
            Some(run) if run.end == key => run.end += 1,
            _ => runs.push(key..key + 1),
        }
    }
    runs
}

/// Cuts the visible keys `0..end` of a query into chunks at multiples of `step` (at most [`CHUNK`]), at the edges of padding
/// and after the query itself.
#[inline(always)]
pub(crate) fn cut(
    query: usize,
    raw: &[f32],
    end: usize,
    runs: &[Range<usize>],
    step: usize,
    chunks: &mut Vec<Chunk>,
) -> u64 {
    debug_assert!((1..=CHUNK).contains(&step), "chunks of {step} keys");
    chunks.clear();
    let mut pairs = 0;
    for run in runs {
        let stop = run.end.min(end);
        let mut start = run.start;
        while start < stop {
            let mut next = ((start / step + 1) * step).min(stop);
            if start <= query {
                next = next.min(query + 1);
            }
            let (low, high) = min_max(&raw[start..next]);
            chunks.push(Chunk {
                start,
                end: next,
                low,
                high,
            });
            pairs += (next - start) as u64;
            start = next;
        }
    }
    pairs
}

/// Adds every pair of a row to a run count.
#[inline(always)]
pub(crate) fn count_pairs(row: &Row<'_>, counts: &mut super::distance::OffsetCounts) {
    let mut open: Option<Range<usize>> = None;
    for chunk in row.chunks {
        let offsets = row.offsets(chunk);
        match &mut open {
            Some(run) if run.end == offsets.start => run.end = offsets.end,
            _ => {
                if let Some(run) = open.replace(offsets) {
                    counts.add_run(run);
                }
            }
        }
    }
    if let Some(run) = open {
        counts.add_run(run);
    }
}

/// Builds the [`Row`] of a query once its chunks are cut.
pub(crate) fn assemble<'a>(
    offsets: Offsets,
    place: RowPlace,
    raw: &'a [f32],
    chunks: &'a [Chunk],
    pairs: u64,
) -> Row<'a> {
    let first_key = chunks.first().map_or(0, |chunk| chunk.start);
    Row {
        place,
        base: offsets.base(place.query),
        first_key,
        pairs,
        raw,
        chunks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_hold_every_visible_key_once_and_never_straddle_the_query() {
        let n = 300;
        let raw: Vec<f32> = (0..n).map(|k| ((k * 7919) % 257) as f32).collect();
        let mut valid = vec![true; n];
        valid[..37].fill(false);
        valid[150] = false;
        let runs = valid_runs(n, Some(&valid));
        assert_eq!(runs, [37..150, 151..300]);
        let mut chunks = Vec::new();
        for (query, end, step) in [(299, 300, 64), (120, 121, 64), (120, 300, 16), (10, 11, 64)] {
            let pairs = cut(query, &raw, end, &runs, step, &mut chunks);
            let keys: Vec<usize> = chunks.iter().flat_map(Chunk::keys).collect();
            let expected: Vec<usize> = (0..end).filter(|&k| valid[k]).collect();
            assert_eq!(keys, expected);
            assert_eq!(pairs as usize, expected.len());
            for chunk in &chunks {
                assert!(chunk.len() <= step && (chunk.end <= query + 1 || chunk.start > query));
                assert!(
                    raw[chunk.keys()]
                        .iter()
                        .all(|&s| chunk.low <= s && s <= chunk.high)
                );
            }
        }
    }
}
