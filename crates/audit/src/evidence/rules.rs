//! From which gap on the weights of a plan are zero, for many rows at a time.

use numerics::plan::ZeroRule;
use numerics::{Criterion, PrecisionPlan};

/// Half width, nats, of the band around a threshold in which a pair counts as undecided: more than the rounding of an f32
/// gap below 256 nats (`2^-17`), and than what another order of summation does to the logarithm of an f32 sum.
pub(crate) const UNDECIDED_NATS: f64 = 1.0 / 65536.0;

/// How far the logarithm of a row's sum may be off, nats: f32 exponentials, and f32 accumulation in another order.
pub(crate) const LN_SUM_ERROR: f64 = 1.0 / 1_048_576.0;

/// Gap, nats, beyond which a pair adds nothing to a row's sum: 2^20 such pairs together move its logarithm by less than a
/// tenth of [`LN_SUM_ERROR`].
pub(crate) const UNSUMMED_NATS: f64 = 30.0;

/// How far rounding to the probability format can move a weight, nats: a subnormal may double.
pub(crate) const CAST_NATS: f64 = 1.0;

/// When the weights of a plan are zero, prepared for many rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanRules {
    pub(crate) own: ZeroRule,
    pub(crate) weight: ZeroRule,
    pub(crate) weight_is_own: bool,
    pub(crate) numerator_is_own: bool,
    pub(crate) numerator: f64,
}

impl PlanRules {
    pub(crate) fn new(plan: &PrecisionPlan) -> Self {
        let (own, weight) = (
            plan.zero_rule(Criterion::Plan),
            plan.zero_rule(Criterion::Weight),
        );
        let numerator = plan.zero_gap(Criterion::Exp, 0.0);
        Self {
            own,
            weight,
            weight_is_own: own == weight,
            numerator_is_own: own == ZeroRule::Fixed(numerator),
            numerator,
        }
    }

    /// The smallest threshold of any row of at most `length` pairs.
    pub(crate) fn lowest(&self, length: usize) -> f64 {
        // No weight is above 1; one more, and a hundredth, for what sums may be off.
        let largest_sum = 1.01 * (length as f64 + 1.0);
        self.thresholds(largest_sum, LN_SUM_ERROR).ends().0
    }

    /// [`PlanRules::thresholds`] of `W` sums and their logarithms: own, below, above, numerator, weight.
    #[inline(always)]
    pub(crate) fn thresholds_of_lanes<const W: usize>(
        &self,
        sums: &[f64; W],
        ln_sums: &[f64; W],
        sum_error: f64,
    ) -> [[f64; W]; 5] {
        let (mut least, mut most) = (*sums, *sums);
        for lane in 0..W {
            least[lane] = sums[lane] * (1.0 - sum_error);
            most[lane] = sums[lane] * (1.0 + sum_error);
        }
        let [own, mut below, mut above] = self.own.gaps([sums, &most, &least], ln_sums);
        for lane in 0..W {
            below[lane] = own[lane].min(below[lane]) - UNDECIDED_NATS;
            above[lane] = own[lane].max(above[lane]) + UNDECIDED_NATS;
        }
        let [weight] = if self.weight_is_own {
            [own]
        } else {
            self.weight.gaps([sums], ln_sums)
        };
        [own, below, above, [self.numerator; W], weight]
    }

    /// Bounds on own, below and above of `W` rows, of which `least_sum` is the smallest sum: the exact ones where they would be wide.
    #[inline(always)]
    pub(crate) fn own_bounds<const W: usize>(
        &self,
        sums: &[f64; W],
        ln_sums: &[f64; W],
        least_sum: f64,
        sum_error: f64,
    ) -> [[f64; W]; 2] {
        let Some(own) = self.own.bounds(least_sum) else {
            let [own, mut below, above, ..] = self.thresholds_of_lanes(sums, ln_sums, sum_error);
            for lane in 0..W {
                below[lane] = own[lane].min(below[lane]);
            }
            return [below, above];
        };
        let room = own.moved_by(sum_error) + UNDECIDED_NATS;
        let mut bounds = [[0.0; W]; 2];
        for lane in 0..W {
            let [low, high] = own.of(ln_sums[lane]);
            (bounds[0][lane], bounds[1][lane]) = (low - room, high + room);
        }
        bounds
    }

    /// The same on weight.
    #[inline(always)]
    pub(crate) fn weight_bounds<const W: usize>(
        &self,
        sums: &[f64; W],
        ln_sums: &[f64; W],
        least_sum: f64,
    ) -> [[f64; W]; 2] {
        let Some(weight) = self.weight.bounds(least_sum) else {
            let [weight] = self.weight.gaps([sums], ln_sums);
            return [weight; 2];
        };
        let mut bounds = [[0.0; W]; 2];
        for lane in 0..W {
            [bounds[0][lane], bounds[1][lane]] = weight.of(ln_sums[lane]);
        }
        bounds
    }

    #[inline(always)]
    pub(crate) fn thresholds(&self, sum: f64, sum_error: f64) -> Thresholds {
        // A larger sum never raises the threshold.
        let [[own], [below], [above], [numerator], [weight]] =
            self.thresholds_of_lanes(&[sum], &[sum.ln()], sum_error);
        Thresholds {
            own,
            below,
            above,
            numerator,
            weight,
        }
    }
}

/// Gaps, nats, above which a pair of one row counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    /// Blind by the plan's own rule.
    pub(crate) own: f64,
    /// Undecided from here on ...
    pub(crate) below: f64,
    /// ... to here: the threshold itself, and where it moves to if the row's sum is a little off.
    pub(crate) above: f64,
    pub(crate) numerator: f64,
    pub(crate) weight: f64,
}

impl Thresholds {
    /// Smallest and largest.
    pub(crate) fn ends(&self) -> (f64, f64) {
        (
            self.numerator.min(self.weight).min(self.below),
            self.numerator.max(self.weight).max(self.above),
        )
    }
}
