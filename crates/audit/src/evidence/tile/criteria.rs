//! Pairs of a block beyond the thresholds of their rows.
//!
//! A pair is counted by three criteria: the plan's own rule, the numerator, the weight. Often two of them have the same
//! thresholds, and mostly the ends of a block decide one of them for all its pairs. The others are counted by their scores: of each
//! threshold two bounds are known, and a score that lies between is looked at by itself, with the plan's own entry and the row's
//! exact threshold. The band between is where pairs are undecided under the plan's own rule, and as wide as roundings of scores
//! make it, or the difference of the two where scores of the forward pass stand in for the plan's own.

use kernels::{Below, CUTS, Cut};

use super::Lanes;
use crate::evidence::rules::PlanRules;
use crate::evidence::slack::Slack;

/// Pairs above the thresholds of their rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) own: u64,
    pub(super) undecided: u64,
    pub(super) numerator: u64,
    pub(super) weight: u64,
}

/// Bounds on the scores that are beyond the threshold of one criterion: see [`Cut`].
struct Band<const W: usize> {
    below: [f32; W],
    surely: [f32; W],
}

impl<const W: usize> Band<W> {
    /// From two bounds a lane on the thresholds, of which `last` is the largest.
    #[inline(always)]
    fn new(
        [least, most]: &[[f64; W]; 2],
        last: f64,
        scores: &Compared<'_, W>,
        lanes: &Lanes<W>,
    ) -> Self {
        let mut band = Self {
            below: [f32::NEG_INFINITY; W],
            surely: [f32::NEG_INFINITY; W],
        };
        // Nothing is beyond an infinite threshold.
        if last.is_finite() {
            // Roundings of a gap, and of the bounds themselves.
            let off = scores.slack(last) + (scores.size + last.abs()) * ROUNDINGS;
            for lane in 0..W {
                let bounds = (
                    (scores.max[lane] - least[lane] + off) as f32,
                    (scores.max[lane] - most[lane] - off) as f32,
                );
                let good = lanes.good[lane];
                band.below[lane] = if good { bounds.0 } else { band.below[lane] };
                band.surely[lane] = if good { bounds.1 } else { band.surely[lane] };
            }
        }
        band
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
pub(super) const ROUNDINGS: f64 = 1.0 / 4_194_304.0;

/// Scores that are compared with bounds.
pub(super) struct Compared<'a, const W: usize> {
    /// Largest one of each lane.
    max: [f64; W],
    /// Largest absolute value of those.
    size: f64,
    /// How far gaps of these scores may be from the plan's own, if they are others, and the largest absolute raw score.
    slack: Option<(&'a Slack, f32)>,
}

impl<'a, const W: usize> Compared<'a, W> {
    #[inline(always)]
    pub(super) fn new(max: [f64; W], slack: Option<(&'a Slack, f32)>, lanes: &Lanes<W>) -> Self {
        let mut sizes = [0.0_f64; 8];
        for from in (0..W).step_by(8) {
            for i in 0..8 {
                let good = lanes.good[from + i];
                let size = if good { max[from + i].abs() } else { 0.0 };
                sizes[i] = if size > sizes[i] { size } else { sizes[i] };
            }
        }
        Self {
            max,
            size: sizes.into_iter().fold(0.0, f64::max),
            slack,
        }
    }

    /// For gaps of up to `most`, nats.
    fn slack(&self, most: f64) -> f64 {
        self.slack
            .map_or(0.0, |(slack, raw_max)| slack.nats(raw_max, most))
    }
}

/// Thresholds of one row, for gaps of the plan's own kind.
pub(super) struct RowThresholds<T> {
    pub(super) own: T,
    pub(super) undecided: [T; 2],
    pub(super) numerator: T,
    pub(super) weight: T,
}

/// One threshold a row.
struct Criterion<const W: usize> {
    /// Smallest and largest of the rows', nats.
    ends: (f64, f64),
    /// Some block's ends do not decide it.
    is_open: bool,
    /// Then.
    band: Option<Band<W>>,
}

impl<const W: usize> Criterion<W> {
    const NONE: Self = Self {
        ends: (0.0, 0.0),
        is_open: false,
        band: None,
    };

    /// What `ends`, bounds on the gaps of a block, say: all its pairs are above, or none, or it is open.
    #[inline(always)]
    fn above(&self, ends: (f64, f64)) -> Option<bool> {
        if ends.0 > self.ends.1 {
            Some(true)
        } else if ends.1 < self.ends.0 {
            Some(false)
        } else {
            None
        }
    }
}

/// The thresholds of a tile under one plan. Rules that decide alike are one criterion.
pub(super) struct Criteria<const W: usize> {
    criteria: [Criterion<W>; CUTS],
    n: usize,
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
    /// Of each cut, its criterion.
    criteria: [usize; CUTS],
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
    /// `ends`: smallest and largest threshold of any row, nats, by the plan's own rule, of the numerator and of the weight. The first with room for
    /// what is undecided.
    #[inline(always)]
    pub(super) fn new(rules: &PlanRules, by_own_rule: bool, ends: [(f64, f64); 3]) -> Self {
        let mut these = Self {
            criteria: [Criterion::NONE; CUTS],
            n: 0,
            own: None,
            numerator: 0,
            weight: 0,
        };
        if by_own_rule {
            these.own = Some(these.add(ends[0]));
        }
        if !(by_own_rule && rules.numerator_is_own) {
            these.numerator = these.add(ends[1]);
        }
        if !(by_own_rule && rules.weight_is_own) {
            these.weight = these.add(ends[2]);
        }
        these
    }

    fn add(&mut self, ends: (f64, f64)) -> usize {
        self.criteria[self.n].ends = ends;
        self.n += 1;
        self.n - 1
    }

    /// Says that there is a block with these ends.
    #[inline(always)]
    pub(super) fn meet(&mut self, ends: (f64, f64)) {
        for criterion in &mut self.criteria[..self.n] {
            criterion.is_open |= criterion.above(ends).is_none();
        }
    }

    /// Finds the bounds for the blocks that have been met. `error`: how far the logarithms of sums may be off, nats.
    #[inline(always)]
    pub(super) fn find_bounds(
        &mut self,
        rules: &PlanRules,
        scores: &Compared<'_, W>,
        lanes: &Lanes<W>,
        error: f64,
    ) {
        let (sums, ln_sums, least) = (&lanes.sum, &lanes.ln_sum, lanes.sum_ends[0]);
        for index in 0..self.n {
            if !self.criteria[index].is_open {
                continue;
            }
            let bounds = if self.own == Some(index) {
                rules.own_bounds(sums, ln_sums, least, error)
            } else if self.numerator == index {
                [[rules.numerator; W]; 2]
            } else {
                rules.weight_bounds(sums, ln_sums, least)
            };
            let last = self.criteria[index].ends.1;
            self.criteria[index].band = Some(Band::new(&bounds, last, scores, lanes));
        }
    }

    /// What `ends`, bounds on the gaps of a block that has been met, decide.
    #[inline(always)]
    pub(super) fn look(&self, ends: (f64, f64)) -> Look<'_> {
        let mut look = Look {
            above: [Above::None; CUTS],
            cuts: [Cut {
                below: &[],
                surely: &[],
            }; CUTS],
            criteria: [0; CUTS],
            n: 0,
            by_own_rule: false,
        };
        for (index, criterion) in self.criteria[..self.n].iter().enumerate() {
            match (criterion.above(ends), &criterion.band) {
                (Some(true), _) => look.above[index] = Above::All,
                (None, Some(band)) => {
                    look.above[index] = Above::Counted(look.n);
                    look.cuts[look.n] = band.cut();
                    look.criteria[look.n] = index;
                    look.by_own_rule |= self.own == Some(index);
                    look.n += 1;
                }
                _ => {}
            }
        }
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
        let criterion = look.criteria[cut];
        if criterion == self.numerator {
            found.numerator -= u64::from(*gap <= thresholds.numerator);
        }
        if criterion == self.weight {
            found.weight -= u64::from(*gap <= thresholds.weight);
        }
        if self.own != Some(criterion) {
            return false;
        }
        let [from, to] = &thresholds.undecided;
        found.undecided += u64::from(gap > from && gap <= to);
        let seen = *gap <= thresholds.own;
        found.own -= u64::from(seen);
        seen
    }
}
