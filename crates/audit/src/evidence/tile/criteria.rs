//! Pairs of a block above the thresholds of their rows.
//!
//! A pair is counted by three criteria: the plan's own rule, the numerator, the weight. Often two of them have the same
//! thresholds, and mostly the ends of a block decide one of them for all its pairs; the others are counted. For each there is a
//! lower and an upper threshold, and the count is certain where both give the same: for the plan's own rule the band in which
//! pairs are undecided, and where gaps of the forward pass stand in for those of an idealised plan, the difference of the two.

use kernels::{BANDS, BandCounts};

use super::plans::add_ones;
use super::{Carrier, Lanes, group};
use crate::evidence::scan::Real;

#[cfg(doc)]
use crate::evidence::rules::PlanRules;

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
        counters: &mut [u32],
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
struct Band<const W: usize> {
    low: [f32; W],
    high: [f32; W],
    /// Smallest of the low ones and largest of the high ones.
    ends: (f64, f64),
    /// The low ones are the high ones.
    sharp: bool,
}

impl<const W: usize> Band<W> {
    /// From two bounds a lane; `slack` as in [`Criteria::new`].
    #[inline(always)]
    fn new([least, most]: &[[f64; W]; 2], slack: Option<f64>, lanes: &Lanes<W>) -> Self {
        let (mut low, mut high) = ([0.0_f32; W], [0.0_f32; W]);
        match slack {
            None => {
                for lane in 0..W {
                    low[lane] = <f32 as Real>::floor(least[lane]);
                    high[lane] = <f32 as Real>::floor(most[lane]);
                }
            }
            Some(off) => {
                for lane in 0..W {
                    low[lane] = <f32 as Real>::floor(least[lane] - off).next_down();
                    high[lane] = <f32 as Real>::floor(most[lane] + off).next_up();
                }
            }
        }
        let (mut first, mut last) = (f32::INFINITY, f32::NEG_INFINITY);
        for lane in 0..W {
            let (low, high) = if lanes.good[lane] {
                (low[lane], high[lane])
            } else {
                (f32::INFINITY, f32::NEG_INFINITY)
            };
            (first, last) = (first.min(low), last.max(high));
        }
        Self {
            sharp: low == high,
            low,
            high,
            ends: (f64::from(first), f64::from(last)),
        }
    }

    /// Whether every threshold of another criterion lies in the band of this one: where no gap lies in the band, both decide alike.
    #[inline(always)]
    fn holds(&self, other: &Self) -> bool {
        let mut holds = true;
        for lane in 0..W {
            holds &= self.low[lane] <= other.low[lane] && other.high[lane] <= self.high[lane];
        }
        holds
    }
}

/// The thresholds of a tile under one plan, for gaps of f32. Criteria that decide alike share a band.
pub(super) struct Criteria<const W: usize> {
    bands: Vec<Band<W>>,
    /// `None` for a plan with another rule of its own.
    own: Option<usize>,
    numerator: usize,
    weight: usize,
}

/// Pairs of a block above a threshold.
#[derive(Clone, Copy)]
pub(super) enum Above {
    None,
    All,
    /// Those that are counted for the band of this number.
    Counted(usize),
}

impl Above {
    #[inline(always)]
    fn count(self, pairs: u64, counts: &BandCounts) -> u64 {
        match self {
            Above::None => 0,
            Above::All => pairs,
            Above::Counted(index) => counts[index][1],
        }
    }
}

/// What the ends of a block decide, and the bands that they do not.
pub(super) struct Look<'a> {
    above: [Above; BANDS],
    bands: [kernels::Band<'a>; BANDS],
    n: usize,
    /// The plan's own rule is the first of them.
    pub(super) by_own_rule: bool,
}

impl<'a> Look<'a> {
    /// The bands that have to be looked at.
    pub(super) fn bands(&self) -> &[kernels::Band<'a>] {
        &self.bands[..self.n]
    }
}

impl<const W: usize> Criteria<W> {
    /// `bounds` as in [`PlanRules::bounds_of_lanes`], and the threshold of the numerator. `slack`: how far gaps of the forward pass, which
    /// stand in for the plan's own, may be off, nats.
    #[inline(always)]
    pub(super) fn new(
        [own, weight]: &[[[f64; W]; 2]; 2],
        numerator: f64,
        slack: Option<f64>,
        by_own_rule: bool,
        lanes: &Lanes<W>,
    ) -> Self {
        let mut bands = Vec::with_capacity(3);
        if by_own_rule {
            bands.push(Band::new(own, slack, lanes));
        }
        let mut others = [0; 2];
        for (index, bounds) in others.iter_mut().zip([&[[numerator; W]; 2], weight]) {
            let band = Band::new(bounds, slack, lanes);
            let known = bands.iter().position(|other: &Band<W>| other.holds(&band));
            *index = known.unwrap_or(bands.len());
            if known.is_none() {
                bands.push(band);
            }
        }
        Self {
            bands,
            own: by_own_rule.then_some(0),
            numerator: others[0],
            weight: others[1],
        }
    }

    /// What `ends`, bounds on the gaps of a block, decide.
    #[inline(always)]
    pub(super) fn look(&self, ends: (f64, f64)) -> Look<'_> {
        let mut look = Look {
            above: [Above::None; BANDS],
            bands: [[&[]; 2]; BANDS],
            n: 0,
            by_own_rule: false,
        };
        for (band, above) in self.bands.iter().zip(&mut look.above) {
            if ends.0 > band.ends.1 {
                *above = Above::All;
            } else if ends.1 >= band.ends.0 {
                *above = Above::Counted(look.n);
                let low = if band.sharp { &band.high } else { &band.low };
                look.bands[look.n] = [low, &band.high];
                look.n += 1;
            }
        }
        let own = self.own.map(|own| look.above[own]);
        look.by_own_rule = matches!(own, Some(Above::Counted(0)));
        look
    }

    /// Counts a block if every criterion is certain; which pairs are blind by the plan's own rule. `pairs` are those of the block,
    /// `counts` those of the bands of `look`.
    #[inline(always)]
    pub(super) fn count(
        &self,
        look: &Look<'_>,
        pairs: u64,
        counts: &BandCounts,
        found: &mut Found,
    ) -> Option<Above> {
        if counts[..look.n].iter().any(|[low, high]| low != high) {
            return None;
        }
        let own = self.own.map_or(Above::None, |own| look.above[own]);
        found.own += own.count(pairs, counts);
        found.numerator += look.above[self.numerator].count(pairs, counts);
        found.weight += look.above[self.weight].count(pairs, counts);
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

/// Adds the gaps above a lane's threshold to the counters by difference; `terms` is a buffer of their size.
#[inline(always)]
fn add_above<T: Carrier, const W: usize>(
    gaps: &[T],
    threshold: &[T; W],
    terms: &mut [f32],
    counters: &mut [u32],
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
    add_ones::<W>(terms, counters);
}
