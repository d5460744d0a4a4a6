//! Pairs of a block beyond the thresholds of their rows.
//!
//! A pair is counted by three criteria: the plan's own rule, the numerator, the weight. Often two of them have the same
//! thresholds, and mostly the ends of a block decide one of them for all its pairs. The others are counted by their scores: of each
//! threshold two bounds are known, and a score that lies between is looked at by itself, with the plan's own entry and the row's
//! exact threshold. The band between is where pairs are undecided under the plan's own rule, and as wide as roundings of scores
//! make it, or the difference of the two where scores of the forward pass stand in for the plan's own.

use kernels::{Below, CUTS, Cut};

use super::Lanes;

#[cfg(doc)]
use crate::evidence::rules::PlanRules;

/// Pairs above the thresholds of their rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) own: u64,
    pub(super) undecided: u64,
    pub(super) numerator: u64,
    pub(super) weight: u64,
}

/// Bounds on the scores that are beyond the threshold of one criterion.
struct Band<const W: usize> {
    /// See [`Cut`].
    below: [f32; W],
    surely: [f32; W],
    /// Smallest and largest gap between which the thresholds lie, nats.
    ends: (f64, f64),
}

impl<const W: usize> Band<W> {
    /// From two bounds a lane on the thresholds; the rest as in [`Criteria::new`].
    #[inline(always)]
    fn new(
        [least, most]: &[[f64; W]; 2],
        max: &[f64; W],
        slack: impl Fn(f64) -> f64,
        lanes: &Lanes<W>,
    ) -> Self {
        let (mut first, mut last) = ([f64::INFINITY; 8], [f64::NEG_INFINITY; 8]);
        let mut size = [0.0_f64; 8];
        for from in (0..W).step_by(8) {
            for i in 0..8 {
                let lane = from + i;
                let (low, high, of_max) = if lanes.good[lane] {
                    (least[lane], most[lane], max[lane].abs())
                } else {
                    (f64::INFINITY, f64::NEG_INFINITY, 0.0)
                };
                first[i] = if low < first[i] { low } else { first[i] };
                last[i] = if high > last[i] { high } else { last[i] };
                size[i] = if of_max > size[i] { of_max } else { size[i] };
            }
        }
        let first = first.into_iter().fold(f64::INFINITY, f64::min);
        let last = last.into_iter().fold(f64::NEG_INFINITY, f64::max);
        let size = size.into_iter().fold(0.0, f64::max);
        let (mut below, mut surely) = ([f32::NEG_INFINITY; W], [f32::NEG_INFINITY; W]);
        // Nothing is beyond an infinite threshold.
        if last.is_finite() {
            // Roundings of a gap, and of the bounds themselves.
            let off = slack(last) + (size + last.abs()) * ROUNDINGS;
            for lane in 0..W {
                let bounds = (
                    (max[lane] - least[lane] + off) as f32,
                    (max[lane] - most[lane] - off) as f32,
                );
                let good = lanes.good[lane];
                below[lane] = if good { bounds.0 } else { below[lane] };
                surely[lane] = if good { bounds.1 } else { surely[lane] };
            }
        }
        Self {
            below,
            surely,
            ends: (first, last),
        }
    }

    /// Whether another criterion's band lies in this one: where no score does, both decide alike.
    #[inline(always)]
    fn holds(&self, other: &Self) -> bool {
        let mut holds = true;
        for lane in 0..W {
            holds &= self.surely[lane] <= other.surely[lane];
            holds &= other.below[lane] <= self.below[lane];
        }
        holds
    }

    #[inline(always)]
    fn cut(&self) -> Cut<'_> {
        Cut {
            below: &self.below,
            surely: &self.surely,
        }
    }
}

/// Four units of rounding of f32, relative to what is rounded.
const ROUNDINGS: f64 = 1.0 / 4_194_304.0;

/// Thresholds of one row, for gaps of the plan's own kind.
pub(super) struct RowThresholds<T> {
    pub(super) own: T,
    pub(super) undecided: [T; 2],
    pub(super) numerator: T,
    pub(super) weight: T,
}

/// The thresholds of a tile under one plan. Criteria that decide alike share a band.
pub(super) struct Criteria<const W: usize> {
    bands: Vec<Band<W>>,
    /// `None` for a plan with another rule of its own.
    own: Option<usize>,
    numerator: usize,
    weight: usize,
}

/// Pairs of a block beyond a threshold.
#[derive(Clone, Copy)]
pub(super) enum Above {
    None,
    All,
    /// Those that are counted under the cut of this number.
    Counted(usize),
}

impl Above {
    #[inline(always)]
    fn count(self, pairs: u64, counts: &[Below; CUTS]) -> u64 {
        match self {
            Above::None => 0,
            Above::All => pairs,
            Above::Counted(index) => counts[index].pairs,
        }
    }
}

/// What the ends of a block decide, and the cuts that they do not.
pub(super) struct Look<'a> {
    above: [Above; CUTS],
    cuts: [Cut<'a>; CUTS],
    /// Of each cut, its band.
    bands: [usize; CUTS],
    n: usize,
    /// The plan's own rule is the first of them.
    pub(super) by_own_rule: bool,
}

impl<'a> Look<'a> {
    /// The cuts that have to be looked at.
    pub(super) fn cuts(&self) -> &[Cut<'a>] {
        &self.cuts[..self.n]
    }
}

impl<const W: usize> Criteria<W> {
    /// `bounds` as in [`PlanRules::bounds_of_lanes`], and the threshold of the numerator. `max`: the largest score of each lane.
    /// `slack`: how far gaps of these scores, up to some size, may be from the plan's own, nats.
    #[inline(always)]
    pub(super) fn new(
        [own, weight]: &[[[f64; W]; 2]; 2],
        numerator: f64,
        max: &[f64; W],
        slack: impl Fn(f64) -> f64,
        by_own_rule: bool,
        lanes: &Lanes<W>,
    ) -> Self {
        let mut bands = Vec::with_capacity(CUTS);
        if by_own_rule {
            bands.push(Band::new(own, max, &slack, lanes));
        }
        let mut others = [0; 2];
        for (index, bounds) in others.iter_mut().zip([&[[numerator; W]; 2], weight]) {
            let band = Band::new(bounds, max, &slack, lanes);
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
            above: [Above::None; CUTS],
            cuts: [Cut {
                below: &[],
                surely: &[],
            }; CUTS],
            bands: [0; CUTS],
            n: 0,
            by_own_rule: false,
        };
        for (index, band) in self.bands.iter().enumerate() {
            if ends.0 > band.ends.1 {
                look.above[index] = Above::All;
            } else if ends.1 >= band.ends.0 {
                look.above[index] = Above::Counted(look.n);
                look.cuts[look.n] = band.cut();
                look.bands[look.n] = index;
                look.n += 1;
            }
        }
        let own = self.own.map(|own| look.above[own]);
        look.by_own_rule = matches!(own, Some(Above::Counted(0)));
        look
    }

    /// Counts a block, those in doubt as beyond; which pairs are blind by the plan's own rule. `pairs` are those of the block,
    /// `counts` those under the cuts of `look`.
    #[inline(always)]
    pub(super) fn count(
        &self,
        look: &Look<'_>,
        pairs: u64,
        counts: &[Below; CUTS],
        found: &mut Found,
    ) -> Above {
        let own = self.own.map_or(Above::None, |own| look.above[own]);
        found.own += own.count(pairs, counts);
        found.numerator += look.above[self.numerator].count(pairs, counts);
        found.weight += look.above[self.weight].count(pairs, counts);
        own
    }

    /// Decides a pair that is in doubt under cut `cut` of `look`, and was counted as beyond. Whether it is seen by the plan's own rule, if that is the
    /// question.
    #[inline(always)]
    pub(super) fn settle<T: PartialOrd>(
        &self,
        look: &Look<'_>,
        cut: usize,
        gap: &T,
        thresholds: &RowThresholds<T>,
        found: &mut Found,
    ) -> bool {
        let band = look.bands[cut];
        if band == self.numerator {
            found.numerator -= u64::from(*gap <= thresholds.numerator);
        }
        if band == self.weight {
            found.weight -= u64::from(*gap <= thresholds.weight);
        }
        if self.own != Some(band) {
            return false;
        }
        let [from, to] = &thresholds.undecided;
        found.undecided += u64::from(gap > from && gap <= to);
        let seen = *gap <= thresholds.own;
        found.own -= u64::from(seen);
        seen
    }
}
