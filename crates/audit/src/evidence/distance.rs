//! Counting by distance without a division or a branch per pair.
//!
//! A row walks along the keys, so per-pair arrays are indexed by the *offset* `key - query + (length - 1)`: ascending with
//! the key, contiguous within a row, and the same distance always lands in the same place. Offsets become distances once,
//! at the end.

use std::ops::Range;

/// The index arithmetic of one sequence length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offsets {
    /// Most tokens a sequence may have, at least 1.
    length: usize,
    /// Causal sequences never use the offsets past the diagonal, so they are not stored.
    causal: bool,
}

impl Offsets {
    pub(crate) fn new(length: usize, causal: bool) -> Self {
        Self {
            length: length.max(1),
            causal,
        }
    }

    pub(crate) fn length(self) -> usize {
        self.length
    }

    /// Number of offsets.
    pub(crate) fn len(self) -> usize {
        if self.causal {
            self.length
        } else {
            2 * self.length - 1
        }
    }

    /// Offset of key 0 for a query; add the key.
    pub(crate) fn base(self, query: usize) -> usize {
        debug_assert!(
            query < self.length,
            "query {query} of a sequence of {}",
            self.length
        );
        self.length - 1 - query
    }

    /// Distance in tokens at an offset.
    pub(crate) fn distance(self, offset: usize) -> usize {
        offset.abs_diff(self.length - 1)
    }

    /// Sums an array over offsets into one over distances `0..length`, in a fixed order.
    pub(crate) fn fold<T: Copy + Default + std::ops::AddAssign>(
        self,
        by_offset: impl Iterator<Item = T>,
    ) -> Vec<T> {
        let mut by_distance = vec![T::default(); self.length];
        for (offset, value) in by_offset.enumerate() {
            by_distance[self.distance(offset)] += value;
        }
        by_distance
    }
}

/// Counts of pairs by offset: runs of pairs in constant time each, single pairs in their own array.
#[derive(Clone, Debug)]
pub(crate) struct OffsetCounts {
    /// `+1` where a run begins, `-1` after its end: one longer than the offsets.
    runs: Vec<i32>,
    /// Pairs counted one by one; empty where there are none, which tiles leave alone.
    singles: Vec<u32>,
    /// Pairs of tiles, at [`TILE_PAD`] + distance; likewise.
    by_distance: Vec<u32>,
}

/// Counters before distance 0, and behind the largest one, in counts of tiles: hidden pairs of a tile lie there, and count nothing.
pub(crate) const TILE_PAD: usize = 64;

impl OffsetCounts {
    pub(crate) fn new(offsets: Offsets) -> Self {
        Self {
            runs: vec![0; offsets.len() + 1],
            singles: Vec::new(),
            by_distance: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.runs.fill(0);
        self.singles.fill(0);
        self.by_distance.fill(0);
    }

    /// The counters of tiles, of a causal sequence. They are to be put back.
    pub(crate) fn take_tiles(&mut self, offsets: Offsets) -> Vec<u32> {
        let mut counters = std::mem::take(&mut self.by_distance);
        if counters.is_empty() {
            counters.resize(offsets.length() + 2 * TILE_PAD, 0);
        }
        counters
    }

    /// Puts them back.
    pub(crate) fn put_tiles(&mut self, counters: Vec<u32>) {
        self.by_distance = counters;
    }

    /// Counts every offset of a range once.
    pub(crate) fn add_run(&mut self, range: Range<usize>) {
        self.runs[range.start] += 1;
        self.runs[range.end] -= 1;
    }

    /// Counts every offset of `n` ranges once, of which `range` is the first and each begins and ends one further than the last.
    pub(crate) fn add_runs(&mut self, range: Range<usize>, n: usize) {
        for begun in &mut self.runs[range.start..range.start + n] {
            *begun += 1;
        }
        for ended in &mut self.runs[range.end..range.end + n] {
            *ended -= 1;
        }
    }

    /// The counters of a range, for loops that add 0 or 1 to each.
    pub(crate) fn singles_mut(&mut self, range: Range<usize>) -> &mut [u32] {
        if self.singles.is_empty() {
            // One less than where runs begin and end.
            self.singles.resize(self.runs.len() - 1, 0);
        }
        &mut self.singles[range]
    }

    /// Adds another accumulator of the same sequence length.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (run, more) in self.runs.iter_mut().zip(&other.runs) {
            *run += more;
        }
        add_counts(&mut self.singles, &other.singles);
        add_counts(&mut self.by_distance, &other.by_distance);
    }

    /// Counts by distance `0..length`.
    pub(crate) fn by_distance(&self, offsets: Offsets) -> Vec<u64> {
        let mut counts = vec![0_u64; offsets.length()];
        // Offsets fall to distance 0 and then rise again.
        let (falling, rising) = self.runs[..offsets.len()].split_at(offsets.length());
        let mut open = 0_i32;
        for (count, run) in counts.iter_mut().rev().zip(falling) {
            open += run;
            // A run ends after it begins.
            *count = u64::from(open.cast_unsigned());
        }
        for (count, run) in counts.iter_mut().skip(1).zip(rising) {
            open += run;
            *count += u64::from(open.cast_unsigned());
        }
        for (offset, &single) in self.singles.iter().enumerate() {
            counts[offsets.distance(offset)] += u64::from(single);
        }
        for (count, &tiles) in counts
            .iter_mut()
            .zip(self.by_distance.iter().skip(TILE_PAD))
        {
            *count += u64::from(tiles);
        }
        counts
    }
}

/// Adds counters; of either kind there may be none.
fn add_counts(to: &mut Vec<u32>, more: &[u32]) {
    to.resize(to.len().max(more.len()), 0);
    for (count, more) in to.iter_mut().zip(more) {
        *count += more;
    }
}

/// Sums counts by distance into the bins between `edges`.
pub(crate) fn bin_counts(by_distance: &[u64], edges: &[u64]) -> Vec<u64> {
    bins(edges, by_distance.len())
        .map(|bin| by_distance[bin].iter().sum())
        .collect()
}

/// Sums masses by distance into the bins between `edges`.
pub(crate) fn bin_masses(by_distance: &[f64], edges: &[u64]) -> Vec<f64> {
    bins(edges, by_distance.len())
        .map(|bin| by_distance[bin].iter().sum())
        .collect()
}

fn bins(edges: &[u64], length: usize) -> impl Iterator<Item = Range<usize>> + '_ {
    let clip = move |edge: u64| usize::try_from(edge).unwrap_or(usize::MAX).min(length);
    edges
        .windows(2)
        .map(move |edge| clip(edge[0])..clip(edge[1]))
}

/// Smallest distances within which the fractions `q`, ascending, of the mass lie; `None` without mass.
pub(crate) fn reach<const N: usize>(mass_by_distance: &[f64], q: [f64; N]) -> [Option<u64>; N] {
    let total: f64 = mass_by_distance.iter().sum();
    let mut reach = [None; N];
    if total <= 0.0 || !total.is_finite() {
        return reach;
    }
    let (mut within, mut n) = (0.0, 0);
    for (distance, mass) in mass_by_distance.iter().enumerate() {
        within += mass;
        while n < N && within >= q[n] * total {
            reach[n] = Some(distance as u64);
            n += 1;
        }
        if n == N {
            break;
        }
    }
    // Only rounding could leave `within` short of the total it was summed to.
    reach[n..].fill(Some(mass_by_distance.len() as u64 - 1));
    reach
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_singles_land_on_their_distances_on_both_sides() {
        for causal in [true, false] {
            let offsets = Offsets::new(7, causal);
            let mut counts = OffsetCounts::new(offsets);
            let mut expected = vec![0_u64; 7];
            for query in 0..7 {
                let end = if causal { query + 1 } else { 7 };
                let base = offsets.base(query);
                for split in 0..=end {
                    counts.add_run(base..base + split);
                    for single in counts.singles_mut(base + split..base + end) {
                        *single += 1;
                    }
                    for key in 0..end {
                        expected[query.abs_diff(key)] += 1;
                    }
                }
            }
            assert_eq!(counts.by_distance(offsets), expected);
        }
    }

    #[test]
    fn reach_is_the_first_distance_that_holds_the_fraction() {
        let mass = [0.5, 0.25, 0.0, 0.25];
        let expected = [0, 1, 1, 3].map(Some);
        assert_eq!(reach(&mass, [0.5, 0.51, 0.75, 1.0]), expected);
        assert_eq!(reach(&[0.0, 0.0], [0.5]), [None]);
    }
}
