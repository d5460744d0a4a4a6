//! Pairs of a block above the thresholds of their rows.
//!
//! A pair is counted by three criteria: the plan's own rule, the numerator, the weight. Often two of them have the same
//! thresholds, and mostly the ends of a block decide one of them for all its pairs; the others are counted. For each there is a
//! lower and an upper threshold, and the count is certain where both give the same: for the plan's own rule the band in which
//! pairs are undecided, and where gaps of the forward pass stand in for those of an idealised plan, the difference of the two.

use kernels::{count_above, sum_by_difference};

use super::{Carrier, Lanes, group};
use crate::evidence::scan::Real;

/// Pairs above the thresholds of their rows.
#[derive(Default)]
pub(super) struct Found {
    pub(super) own: u64,
    pub(super) undecided: u64,
    pub(super) numerator: u64,
    pub(super) weight: u64,
}

impl Found {
    /// Counts a block with exact gaps and thresholds: own, undecided from where and to where, numerator, weight.
    #[inline(always)]
    pub(super) fn count_all<T: Carrier, const W: usize>(
        &mut self,
        gaps: &[T],
        thresholds: &[[T; W]; 5],
        by_own_rule: bool,
        terms: &mut [f32],
        counters: &mut [f32],
    ) {
        let [own, below, above, numerator, weight] = count_lanes(gaps, thresholds);
        self.numerator += numerator;
        self.weight += weight;
        if by_own_rule {
            self.own += own;
            self.undecided += below - above;
            if own > 0 {
                add_above(gaps, &thresholds[0], terms, counters);
            }
        }
    }
}

/// Thresholds of one criterion for gaps of f32.
struct Criterion<const W: usize> {
    low: [f32; W],
    high: [f32; W],
    /// Smallest of the low ones and largest of the high ones.
    ends: (f64, f64),
}

impl<const W: usize> Criterion<W> {
    #[inline(always)]
    fn new(low: [f32; W], high: [f32; W], lanes: &Lanes<W>) -> Self {
        let (mut least, mut most) = (f32::INFINITY, f32::NEG_INFINITY);
        for lane in 0..W {
            least = if lanes.good[lane] {
                least.min(low[lane])
            } else {
                least
            };
            most = if lanes.good[lane] {
                most.max(high[lane])
            } else {
                most
            };
        }
        Self {
            low,
            high,
            ends: (f64::from(least), f64::from(most)),
        }
    }

    /// Pairs above, if that is certain. `pairs` are those of the block, `ends` bounds on their gaps.
    #[inline(always)]
    fn count(&self, gaps: &[f32], pairs: u64, ends: (f64, f64)) -> Option<u64> {
        if ends.0 > self.ends.1 {
            return Some(pairs);
        }
        if ends.1 < self.ends.0 {
            return Some(0);
        }
        let [low, high] = count_above(W, gaps, [&self.low, &self.high]);
        (low == high).then_some(low)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.low == other.low && self.high == other.high
    }
}

/// The thresholds of a tile under one plan, for gaps of f32.
pub(super) struct Criteria<const W: usize> {
    /// `None` for a plan with another rule of its own.
    own: Option<Criterion<W>>,
    numerator: Criterion<W>,
    weight: Criterion<W>,
    /// Which of the others has the same thresholds.
    numerator_is_own: bool,
    weight_is_own: bool,
    weight_is_numerator: bool,
}

impl<const W: usize> Criteria<W> {
    /// `thresholds` as in [`Found::count_all`]. `slack`: how far gaps of the forward pass, which stand in for the plan's own, may be
    /// off, nats.
    #[inline(always)]
    pub(super) fn new(
        thresholds: &[[f64; W]; 5],
        slack: Option<f64>,
        by_own_rule: bool,
        lanes: &Lanes<W>,
    ) -> Self {
        let [own, below, above, numerator, weight] = thresholds;
        let off = slack.unwrap_or(0.0);
        let low = |lanes: &[f64; W]| {
            let mut low = [0.0_f32; W];
            for lane in 0..W {
                let floor = <f32 as Real>::floor(lanes[lane] - off);
                low[lane] = if slack.is_some() {
                    floor.next_down()
                } else {
                    floor
                };
            }
            low
        };
        let high = |lanes: &[f64; W]| {
            let mut high = [0.0_f32; W];
            for lane in 0..W {
                let floor = <f32 as Real>::floor(lanes[lane] + off);
                high[lane] = if slack.is_some() {
                    floor.next_up()
                } else {
                    floor
                };
            }
            high
        };
        let criterion =
            |least: &[f64; W], most: &[f64; W]| Criterion::new(low(least), high(most), lanes);
        let (numerator, weight) = (criterion(numerator, numerator), criterion(weight, weight));
        let own = by_own_rule.then(|| {
            let mut least = *below;
            for lane in 0..W {
                least[lane] = least[lane].min(own[lane]);
            }
            criterion(&least, above)
        });
        let is_own = |other: &Criterion<W>| own.as_ref().is_some_and(|own| own.is_same(other));
        Self {
            numerator_is_own: is_own(&numerator),
            weight_is_own: is_own(&weight),
            weight_is_numerator: weight.is_same(&numerator),
            own,
            numerator,
            weight,
        }
    }

    /// Thresholds above which pairs are blind by the plan's own rule, where they are decided.
    pub(super) fn own(&self) -> &[f32; W] {
        &self.own.as_ref().expect("the caller has looked").high
    }

    /// Counts a block if every criterion is certain; how many are blind by the plan's own rule.
    #[inline(always)]
    pub(super) fn count(
        &self,
        gaps: &[f32],
        pairs: u64,
        ends: (f64, f64),
        found: &mut Found,
    ) -> Option<u64> {
        let own = match &self.own {
            Some(own) => own.count(gaps, pairs, ends)?,
            None => 0,
        };
        let numerator = if self.numerator_is_own {
            own
        } else {
            self.numerator.count(gaps, pairs, ends)?
        };
        let weight = if self.weight_is_own {
            own
        } else if self.weight_is_numerator {
            numerator
        } else {
            self.weight.count(gaps, pairs, ends)?
        };
        found.own += own;
        found.numerator += numerator;
        found.weight += weight;
        Some(own)
    }
}

/// The largest values of the carrier that are not above the thresholds.
#[inline(always)]
pub(super) fn floors<T: Carrier, const W: usize>(thresholds: &[[f64; W]; 5]) -> [[T; W]; 5] {
    let mut floors = [[T::ZERO; W]; 5];
    for (floors, thresholds) in floors.iter_mut().zip(thresholds) {
        for lane in 0..W {
            floors[lane] = T::floor(thresholds[lane]);
        }
    }
    floors
}

/// Counts the gaps above `N` thresholds a lane, `G` lanes at a time over all keys, so that their counts stay in registers.
#[inline(always)]
fn count_group<T: Carrier, const W: usize, const G: usize, const N: usize>(
    gaps: &[T],
    thresholds: &[[T; W]; N],
) -> [u64; N] {
    let mut counts = [0; N];
    let keys = gaps.len() / W;
    for from in (0..W).step_by(G) {
        let thresholds: [[T; G]; N] = std::array::from_fn(|i| *group(&thresholds[i][from..]));
        let mut found = [[0_u32; G]; N];
        for key in 0..keys {
            let gap: &[T; G] = group(&gaps[key * W + from..]);
            for i in 0..N {
                for lane in 0..G {
                    found[i][lane] += u32::from(gap[lane] > thresholds[i][lane]);
                }
            }
        }
        for (count, found) in counts.iter_mut().zip(&found) {
            *count += u64::from(found.iter().sum::<u32>());
        }
    }
    counts
}

/// [`count_group`] in groups of the widest vector that a tile of `W` lanes is made of.
#[inline(always)]
fn count_lanes<T: Carrier, const W: usize, const N: usize>(
    gaps: &[T],
    thresholds: &[[T; W]; N],
) -> [u64; N] {
    if W.is_multiple_of(16) {
        count_group::<T, W, 16, N>(gaps, thresholds)
    } else {
        count_group::<T, W, 8, N>(gaps, thresholds)
    }
}

/// Adds the gaps above a lane's threshold to the counts by difference; `terms` is a buffer of their size.
#[inline(always)]
fn add_above<T: Carrier, const W: usize>(
    gaps: &[T],
    threshold: &[T; W],
    terms: &mut [f32],
    counts: &mut [f32],
) {
    let rows = gaps.as_chunks::<W>().0.iter();
    for (gap, term) in rows.zip(terms.as_chunks_mut::<W>().0) {
        for lane in 0..W {
            term[lane] = if gap[lane] > threshold[lane] {
                1.0
            } else {
                0.0
            };
        }
    }
    sum_by_difference(W, terms, counts);
}
