//! How far content ever raised a distant score.

use std::ops::Range;

use numerics::BiasFunction;

use crate::evidence::row::{Chunk, Row};
use crate::evidence::scan::CHUNK;
use crate::evidence::types::ContentAdvantage;

/// Keys that count as recent: the query itself and the 19 before it (and, in encoders, the 19 after it).
pub(crate) const RECENT: usize = 20;

/// Pairs of a head that enter the percentiles in longer texts, about, at least: 80 of them lie above a 99th percentile. They are taken
/// from all rows, because a row's pairs share what they are compared with, and pairs with a key share the key.
const SAMPLED_PAIRS: usize = 1 << 13;

/// Keys of the longest rows that are sampled, at least.
const SAMPLED_KEYS: usize = 8;

/// Queries that are sampled at the same keys: a vector of the widest, which takes a key for all its queries at once.
const RUN: usize = 16;

/// Width of a histogram bin, nats.
const RESOLUTION: f64 = 1.0 / 32.0;

/// Advantages beyond this, nats, are clamped into the last bin; a percentile there is not reported.
const RANGE: f64 = 256.0;

const BINS: usize = (2.0 * RANGE / RESOLUTION) as usize;

/// A histogram of advantages. Only the bins between the smallest and the largest that ever took something are there; memory does
/// not depend on the length.
#[derive(Clone, Debug)]
struct Histogram {
    /// Bin of `bins[0]`.
    first: usize,
    bins: Vec<u64>,
    /// The largest advantage, nats; looked for where it can be.
    largest: f32,
    /// Its bin.
    last: u16,
}

impl Histogram {
    fn new() -> Self {
        Self {
            first: 0,
            bins: Vec::new(),
            largest: f32::NEG_INFINITY,
            last: 0,
        }
    }

    /// Takes some of `N` scores, each over what it is compared with.
    #[inline(always)]
    fn add<const N: usize>(&mut self, scores: &[f32; N], over: &[f32; N], some: Range<usize>) {
        const PER_NAT: f32 = (1.0 / RESOLUTION) as f32;
        let mut bins = [0_u16; N];
        // All of them: a loop of constant length.
        for i in 0..N {
            let position = (scores[i] - over[i] + RANGE as f32) * PER_NAT;
            // The largest bin takes what is beyond, the smallest what is below; NaN goes there too.
            let position = if position > 0.0 { position } else { 0.0 };
            let last = (BINS - 1) as f32;
            let position = if position < last { position } else { last };
            // From 2^23 on the last digits of a float are a whole number: a conversion that vectorises.
            bins[i] = (position.floor() + 8_388_608.0).to_bits() as u16;
        }
        let (values, bins) = (some.clone(), &bins[some]);
        if bins.is_empty() {
            return;
        }
        let (mut least, mut most) = (u16::MAX, 0);
        for &bin in bins {
            (least, most) = (least.min(bin), most.max(bin));
        }
        if most >= self.last {
            let values = values.map(|i| scores[i] - over[i]);
            self.raise(values.fold(f32::NEG_INFINITY, f32::max), most);
        }
        self.reach(usize::from(least), usize::from(most));
        let to = &mut self.bins[usize::from(least) - self.first..];
        for &bin in bins {
            to[usize::from(bin - least)] += 1;
        }
    }

    #[cold]
    fn raise(&mut self, largest: f32, bin: u16) {
        self.last = self.last.max(bin);
        self.largest = self.largest.max(largest);
    }

    /// Makes bins `least ..= most` be there.
    #[inline(always)]
    fn reach(&mut self, least: usize, most: usize) {
        let inside = self.first <= least && most < self.first + self.bins.len();
        if !inside {
            self.grow(least, most);
        }
    }

    #[cold]
    fn grow(&mut self, least: usize, most: usize) {
        if self.bins.is_empty() {
            self.first = least;
        }
        // In steps, so that it is not done again for every bin.
        let first = self.first.min(least) / CHUNK * CHUNK;
        let end = (self.first + self.bins.len())
            .max(most + 1)
            .next_multiple_of(CHUNK);
        let mut bins = vec![0; end - first];
        let from = self.first - first;
        bins[from..from + self.bins.len()].copy_from_slice(&self.bins);
        (self.first, self.bins) = (first, bins);
    }

    fn merge(&mut self, other: &Self) {
        if other.bins.is_empty() {
            return;
        }
        self.raise(other.largest, other.last);
        self.reach(other.first, other.first + other.bins.len() - 1);
        let to = &mut self.bins[other.first - self.first..];
        for (bin, more) in to.iter_mut().zip(&other.bins) {
            *bin += more;
        }
    }

    /// Upper edge of the bin in which the fraction `q` of the pairs is reached, or the largest advantage if that is less.
    fn quantile(&self, q: f64) -> Option<f64> {
        let total: u64 = self.bins.iter().sum();
        let wanted = (q * total as f64).ceil() as u64;
        let mut seen = 0;
        let bin = self.bins.iter().position(|&count| {
            seen += count;
            seen >= wanted.max(1)
        })?;
        let bin = self.first + bin;
        let edge = (bin + 1) as f64 * RESOLUTION - RANGE;
        (bin > 0 && bin < BINS - 1).then(|| edge.min(f64::from(self.largest)))
    }
}

/// Accumulates [`ContentAdvantage`] over rows.
#[derive(Clone, Debug)]
pub(crate) struct Advantage {
    /// A run is sampled at every `step`-th key; 1: all pairs.
    step: usize,
    over_diagonal: Extreme,
    over_recent: Extreme,
}

#[derive(Clone, Debug)]
struct Extreme {
    largest: f32,
    histogram: Histogram,
}

impl Extreme {
    fn new() -> Self {
        Self {
            largest: f32::NEG_INFINITY,
            histogram: Histogram::new(),
        }
    }

    fn raise(&mut self, advantage: f32) {
        if advantage > self.largest {
            self.largest = advantage;
        }
    }

    fn largest(&self) -> Option<f64> {
        (self.largest > f32::NEG_INFINITY).then(|| f64::from(self.largest))
    }

    fn merge(&mut self, other: &Self) {
        self.raise(other.largest);
        self.histogram.merge(&other.histogram);
    }
}

impl Advantage {
    /// Bytes of the histograms at their largest.
    pub(crate) const BYTES: u64 = 2 * 8 * BINS as u64;

    pub(crate) fn new(length: usize) -> Self {
        Self {
            step: (length * length / 2 / SAMPLED_PAIRS)
                .min(length / SAMPLED_KEYS)
                .max(1),
            over_diagonal: Extreme::new(),
            over_recent: Extreme::new(),
        }
    }

    /// The keys at which some queries are sampled: the end of the queries that share them, the first key, and the step.
    pub(crate) fn sampled_keys(&self, query: usize) -> (usize, usize, usize) {
        let run = query / RUN;
        // Multiples of the golden ratio, as spread out as can be.
        let phase = (run as u32).wrapping_mul(0x9e37_79b9);
        let first = (phase as usize * self.step) >> 32;
        ((run + 1) * RUN, first, self.step)
    }

    /// Takes one row. `visible` holds the chunks of pairs whose f32 weight is not exactly zero, with their extremes over those;
    /// `is_visible` says it of one key.
    #[inline(always)]
    pub(crate) fn row(
        &mut self,
        row: &Row<'_>,
        visible: &[Chunk],
        is_visible: impl Fn(usize) -> bool,
    ) {
        let query = row.query();
        // A query that is padding itself has no diagonal to compare with.
        let Some(diagonal) = row
            .chunks
            .iter()
            .rev()
            .find(|chunk| chunk.keys().contains(&query))
            .map(|_| row.raw[query])
        else {
            return;
        };
        let near = recent_keys(query);
        // Largest raw score among the recent keys other than the query, and among those further away.
        let (mut recent, mut far) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
        for chunk in visible {
            if chunk.end <= near.start || chunk.start >= near.end {
                far = far.max(chunk.high);
                continue;
            }
            for key in chunk.keys().filter(|&key| key != query && is_visible(key)) {
                let best = if near.contains(&key) {
                    &mut recent
                } else {
                    &mut far
                };
                *best = best.max(row.raw[key]);
            }
        }
        self.best(diagonal, recent, far);
        self.sample(row, diagonal, recent.max(diagonal));
    }

    /// Takes the best visible raw scores of one row: the query's own, of the other recent keys, of those further away.
    #[inline(always)]
    pub(crate) fn best(&mut self, diagonal: f32, recent: f32, far: f32) {
        self.over_diagonal.raise(recent.max(far) - diagonal);
        self.over_recent.raise(far - recent.max(diagonal));
    }

    /// Takes the sampled pairs of a row, visible or not; `recent` is the best visible raw score of the recent keys, the query's own
    /// included.
    #[inline(always)]
    fn sample(&mut self, row: &Row<'_>, diagonal: f32, recent: f32) {
        let near = &recent_keys(row.query());
        let (_, first, step) = self.sampled_keys(row.query());
        let mut scores = [0.0_f32; CHUNK];
        for chunk in row.chunks {
            let [before, inside, after] = split(chunk, near);
            for (keys, is_far) in [(before, true), (inside, false), (after, true)] {
                let from = first + keys.start.saturating_sub(first).next_multiple_of(step);
                let mut n = 0;
                for key in (from..keys.end).step_by(step) {
                    if key != row.query() {
                        scores[n] = row.raw[key];
                        n += 1;
                    }
                }
                let over = &mut self.over_diagonal.histogram;
                over.add(&scores, &[diagonal; CHUNK], 0..n);
                if is_far {
                    let over = &mut self.over_recent.histogram;
                    over.add(&scores, &[recent; CHUNK], 0..n);
                }
            }
        }
    }

    /// Takes one sampled key for consecutive queries of a causal text, no more than a run of them, the first of which is `query`: their
    /// raw scores, and of each query its own and the best visible one of its recent keys, its own included.
    #[inline(always)]
    pub(crate) fn sample_key(
        &mut self,
        key: usize,
        query: usize,
        scores: &[f32],
        [diagonal, recent]: [&[f32]; 2],
    ) {
        for (least, extreme, over) in [
            (1, &mut self.over_diagonal, diagonal),
            (RECENT, &mut self.over_recent, recent),
        ] {
            let to = &mut extreme.histogram;
            let from = (key + least).saturating_sub(query).min(scores.len());
            let some = from..scores.len();
            // Mostly a whole run, in loops of constant length.
            match (scores.try_into(), over.try_into()) {
                (Ok(scores), Ok(over)) => to.add::<RUN>(scores, over, some),
                _ => some.for_each(|i| to.add(&[scores[i]], &[over[i]], 0..1)),
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.over_diagonal.merge(&other.over_diagonal);
        self.over_recent.merge(&other.over_recent);
    }

    /// The numbers; `slope` is the effective one, which the horizon needs.
    pub(crate) fn finish(
        &self,
        head: usize,
        effective_slope: f64,
        bias: &BiasFunction,
    ) -> ContentAdvantage {
        let largest = self.over_diagonal.largest();
        let p99 = self.over_diagonal.histogram.quantile(0.99);
        let horizon = |advantage: Option<f64>| {
            let advantage = advantage.filter(|&nats| nats > 0.0)?;
            bias.first_distance_below(head, effective_slope, -advantage)
        };
        ContentAdvantage {
            largest_over_diagonal: largest,
            p99_over_diagonal: p99,
            largest_over_recent: self.over_recent.largest(),
            p99_over_recent: self.over_recent.histogram.quantile(0.99),
            sampled_pairs: self.over_diagonal.histogram.bins.iter().sum(),
            resolution: RESOLUTION,
            effective_horizon: horizon(largest),
            effective_horizon_p99: horizon(p99),
        }
    }
}

/// Keys that count as recent for a query.
fn recent_keys(query: usize) -> Range<usize> {
    query.saturating_sub(RECENT - 1)..query + RECENT
}

/// The parts of a chunk before, inside and after a range of keys.
#[inline(always)]
fn split(chunk: &Chunk, range: &Range<usize>) -> [Range<usize>; 3] {
    let from = range.start.clamp(chunk.start, chunk.end);
    let to = range.end.clamp(from, chunk.end);
    [chunk.start..from, from..to, to..chunk.end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::distance::Offsets;
    use crate::evidence::row::{assemble, cut, valid_runs};
    use numerics::RowPlace;

    #[test]
    fn advantages_match_a_plain_double_loop() {
        let n = 90;
        for causal in [true, false] {
            let offsets = Offsets::new(n, causal);
            let mut advantage = Advantage::new(n);
            let score = |i: usize, j: usize| ((i * 131 + j * 71) % 97) as f32 / 8.0 - 6.0;
            let (mut diagonal, mut recent) = (Vec::new(), Vec::new());
            let mut chunks = Vec::new();
            for i in 0..n {
                let end = if causal { i + 1 } else { n };
                let raw: Vec<f32> = (0..end).map(|j| score(i, j)).collect();
                let pairs = cut(i, &raw, end, &valid_runs(n, None), 64, &mut chunks);
                let place = RowPlace {
                    query: i,
                    length: n,
                    causal,
                };
                let row = assemble(offsets, place, &raw, &chunks, pairs);
                advantage.row(&row, &chunks, |_| true);
                let best = (0..end)
                    .filter(|&j| i.abs_diff(j) < 20)
                    .map(|j| raw[j])
                    .fold(f32::MIN, f32::max);
                diagonal.extend((0..end).filter(|&j| j != i).map(|j| raw[j] - raw[i]));
                recent.extend(
                    (0..end)
                        .filter(|&j| i.abs_diff(j) >= 20)
                        .map(|j| raw[j] - best),
                );
            }
            let found = advantage.finish(0, 0.5, &BiasFunction::linear());
            let largest = |list: &[f32]| list.iter().copied().map(f64::from).reduce(f64::max);
            assert_eq!(found.largest_over_diagonal, largest(&diagonal));
            assert_eq!(found.largest_over_recent, largest(&recent));
            for (list, p99) in [
                (&mut diagonal, found.p99_over_diagonal),
                (&mut recent, found.p99_over_recent),
            ] {
                list.sort_by(f32::total_cmp);
                let exact = f64::from(list[(list.len() as f64 * 0.99).ceil() as usize - 1]);
                let p99 = p99.unwrap();
                let most = f64::from(list.iter().copied().fold(f32::MIN, f32::max));
                assert!(
                    p99 >= exact && p99 <= (exact + RESOLUTION).min(most),
                    "{p99} for {exact}"
                );
            }
            assert_eq!(found.sampled_pairs, diagonal.len() as u64);
            let slope_horizon = (found.largest_over_diagonal.unwrap() / 0.5).floor() + 1.0;
            assert_eq!(found.effective_horizon, Some(slope_horizon));
        }
    }

    #[test]
    fn one_token_has_no_advantage() {
        let mut advantage = Advantage::new(1);
        let mut chunks = Vec::new();
        let pairs = cut(0, &[3.0], 1, &valid_runs(1, None), 64, &mut chunks);
        let place = RowPlace {
            query: 0,
            length: 1,
            causal: true,
        };
        let row = assemble(Offsets::new(1, true), place, &[3.0], &chunks, pairs);
        advantage.row(&row, &chunks, |_| true);
        let found = advantage.finish(0, 0.5, &BiasFunction::linear());
        assert_eq!(found.largest_over_diagonal, None);
        assert_eq!(found.p99_over_diagonal, None);
        assert_eq!(found.effective_horizon, None);
    }
}
