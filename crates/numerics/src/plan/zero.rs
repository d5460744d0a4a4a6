//! When a weight is exactly zero.

use super::{ExpRule, PrecisionPlan};
use crate::format::{Format, Underflow};
use std::f64::consts::LN_2;

/// Which weight must be zero for a pair to count as blind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Criterion {
    /// The plan's own: whatever finally multiplies V.
    #[default]
    Plan,
    /// The numerator alone: `exp(score - max)` is 0 in the plan's exponential.
    Exp,
    /// The numerator divided by the row's sum, rounded to the plan's probability format, is 0.
    Weight,
}

impl Criterion {
    /// The name used on the command line: `plan`, `exp`, `weight`.
    pub const fn name(self) -> &'static str {
        match self {
            Criterion::Plan => "plan",
            Criterion::Exp => "exp",
            Criterion::Weight => "weight",
        }
    }

    /// Reads a [`Criterion::name`], ignoring case.
    pub fn parse(s: &str) -> Option<Criterion> {
        let name = s.trim().to_ascii_lowercase();
        [Criterion::Plan, Criterion::Exp, Criterion::Weight]
            .into_iter()
            .find(|criterion| criterion.name() == name)
    }
}

/// `log2` of the bound below (flush) or at (gradual) which a cast to `format` gives 0.
fn zero_limit_log2(format: Format, underflow: Underflow) -> i32 {
    match underflow {
        Underflow::Gradual => format.min_subnormal_exponent() - 1,
        Underflow::Flush => format.min_exponent(),
    }
}

impl PrecisionPlan {
    /// `T > 0`, nats: the numerator that multiplies V (or is normalised) is 0 iff `gap > T`, with `gap` the reference maximum
    /// minus the entry. Where nothing is normalised before it, the cast to the probability format is included.
    pub fn numerator_zero_nats(&self) -> f64 {
        let exp = self.exp_zero_nats();
        if self.normalise_before_cast.is_some() {
            return exp;
        }
        let cast = -f64::from(zero_limit_log2(
            self.probability,
            self.probability_underflow,
        )) * LN_2;
        exp.min(cast - self.max_offset)
    }

    /// `T > 0`, nats: `exp(score - max - max_offset)` is 0 in the exponential's own format iff `gap > T`.
    pub fn exp_zero_nats(&self) -> f64 {
        -self.exp.zero_below - self.max_offset
    }

    /// `T > 0`, nats: the normalised weight is 0 iff `gap + ln(sum) > T`; `None` where the plan never normalises before a
    /// cast. Nominal: the numerator's own rounding moves the exact point among subnormals, see
    /// [`PrecisionPlan::zero_gap`].
    pub fn weight_zero_nats(&self) -> Option<f64> {
        self.normalise_before_cast?;
        let limit = zero_limit_log2(self.probability, self.probability_underflow);
        Some(-f64::from(limit) * LN_2)
    }

    /// The gap in nats above which an entry's weight is exactly 0, in a row whose sum of `exp(-gap)` has the logarithm
    /// `ln_sum`. `gap` is taken from the plan's reference maximum; for [`super::MaxReference::Running`] that is the maximum when
    /// the key's block was visited, and the accumulator's own loss comes on top ([`PrecisionPlan::accumulator_zero_nats`]).
    ///
    /// Exact up to the rounding of `exp` itself: numerator and quotient are both rounded, which matters among subnormals. With
    /// slope 0.5 in f32 the sum is 2.54; at distance 206 the numerator 1.32 ulp rounds to 1 ulp and 1/2.54 to 0, though
    /// 1.32/2.54 would not.
    pub fn zero_gap(&self, criterion: Criterion, ln_sum: f64) -> f64 {
        match criterion {
            Criterion::Exp => self.exp_zero_nats(),
            Criterion::Plan => match self.normalise_before_cast {
                None => self.numerator_zero_nats(),
                Some(quotient) => self.quotient_zero_gap(quotient, ln_sum),
            },
            Criterion::Weight => {
                let quotient = self.normalise_before_cast.unwrap_or(self.probability);
                self.quotient_zero_gap(quotient, ln_sum)
            }
        }
    }

    /// Whether the weight is exactly 0 under the plan's own criterion.
    pub fn is_zero(&self, gap: f64, ln_sum: f64) -> bool {
        gap > self.zero_gap(Criterion::Plan, ln_sum)
    }

    /// `T > 0`, nats, for running-maximum plans: a weight scaled down to `exp(-gap - max_offset)`, `gap` to the row's final maximum, is
    /// lost in the accumulator iff `gap > T`, but for what the cast of its numerator moves it by.
    pub fn accumulator_zero_nats(&self) -> f64 {
        -f64::from(zero_limit_log2(self.accumulator, Underflow::Gradual)) * LN_2 - self.max_offset
    }

    /// Whether the zero rule depends on the row's sum.
    pub fn uses_row_sum(&self, criterion: Criterion) -> bool {
        match criterion {
            Criterion::Exp => false,
            Criterion::Plan => self.normalise_before_cast.is_some(),
            Criterion::Weight => true,
        }
    }

    /// [`PrecisionPlan::zero_gap`] prepared for many rows, by the row's sum instead of its logarithm.
    pub fn zero_rule(&self, criterion: Criterion) -> ZeroRule {
        let quotient = match criterion {
            Criterion::Exp => None,
            Criterion::Plan => self.normalise_before_cast,
            Criterion::Weight => Some(self.normalise_before_cast.unwrap_or(self.probability)),
        };
        match quotient {
            Some(quotient) => ZeroRule::Quotient(self.quotient_rule(quotient)),
            None => ZeroRule::Fixed(self.zero_gap(criterion, 0.0)),
        }
    }

    fn quotient_zero_gap(&self, quotient: Format, ln_sum: f64) -> f64 {
        self.quotient_rule(quotient).gap(ln_sum.exp())
    }

    fn quotient_rule(&self, quotient: Format) -> QuotientRule {
        let e = self.exp.format;
        let unit_exponent = e.min_subnormal_exponent();
        let limit_exponent = zero_limit_log2(self.probability, self.probability_underflow);
        let mut limit = 2.0_f64.powi(limit_exponent - unit_exponent);
        if quotient != self.probability {
            // Half a step of the quotient's format at the limit: 2^-p relative, unless the limit is subnormal there.
            let step_exponent = (limit_exponent - (quotient.significand_bits() as i32 - 1))
                .max(quotient.min_subnormal_exponent());
            let half_step = 2.0_f64.powi(step_exponent - 1 - unit_exponent);
            limit += match self.probability_underflow {
                Underflow::Gradual => half_step,
                Underflow::Flush => -half_step,
            };
        }
        let unit_nats = f64::from(unit_exponent) * LN_2;
        QuotientRule {
            exp_zero: self.exp_zero_nats(),
            limit,
            unit_nats,
            scale: limit * (-self.max_offset).exp(),
            // The offset itself cancels.
            gap_of_one: -limit.ln() - unit_nats,
            significand_bits: i64::from(e.significand_bits()),
            flush: self.probability_underflow == Underflow::Flush,
            max_offset: self.max_offset,
            offset_factor: (-self.max_offset).exp(),
            accumulator: self.accumulator,
        }
    }
}

/// The gap above which a weight is exactly 0, as a function of the row's sum. See [`PrecisionPlan::zero_gap`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ZeroRule {
    /// The same in every row, nats.
    Fixed(f64),
    /// Depends on the row's sum.
    Quotient(QuotientRule),
}

impl ZeroRule {
    /// The gap in nats above which an entry's weight is exactly 0 in a row whose `exp(-gap)` add up to `sum`. Never larger for
    /// a larger sum.
    #[inline]
    pub fn gap(&self, sum: f64) -> f64 {
        match self {
            ZeroRule::Fixed(gap) => *gap,
            ZeroRule::Quotient(rule) => rule.gap(sum),
        }
    }

    /// Two bounds on the gap of any sum from `least_sum` on, as functions of its logarithm; `None` where they would be more than
    /// `2^-17` apart.
    #[inline]
    pub fn bounds(&self, least_sum: f64) -> Option<GapBounds> {
        match self {
            ZeroRule::Fixed(gap) => Some(GapBounds {
                of_one: *gap,
                per_ln: 0.0,
                most: *gap,
                off: 0.0,
            }),
            ZeroRule::Quotient(rule) => rule.bounds(least_sum),
        }
    }

    /// [`ZeroRule::gap`] of `N` sums, `M` times, to a few roundings of 64 bits: the further ones are near the first of their place and
    /// mostly have the same. `ln_sums` are the logarithms of the first ones.
    #[inline(always)]
    pub fn gaps<const N: usize, const M: usize>(
        &self,
        sums: [&[f64; N]; M],
        ln_sums: &[f64; N],
    ) -> [[f64; N]; M] {
        let rule = match self {
            ZeroRule::Fixed(gap) => return [[*gap; N]; M],
            ZeroRule::Quotient(rule) => rule,
        };
        let mut edges = [[0.0; N]; M];
        let mut gaps = [[0.0; N]; M];
        let mut coarse = 0_u64;
        // A loop that vectorises, which logarithms do not: mostly steps are small beside the edge, and a series does.
        let mut per_edge = [0.0; N];
        for i in 0..N {
            per_edge[i] = 1.0 / (rule.scale * sums[0][i]);
        }
        for near in 0..M {
            edges[near] = rule.edges(sums[near]);
            for i in 0..N {
                let off = edges[near][i] * per_edge[i] - 1.0;
                let ln_off = off * (1.0 - off * (1.0 / 2.0 - off * (1.0 / 3.0 - off / 4.0)));
                gaps[near][i] = (rule.gap_of_one - ln_sums[i] - ln_off).min(rule.exp_zero);
                coarse |= u64::from(!is_fine(off));
            }
        }
        if coarse == 0 {
            return gaps;
        }
        for i in 0..N {
            for near in 0..M {
                let off = edges[near][i] * per_edge[i] - 1.0;
                if near > 0 && edges[near][i] == edges[0][i] {
                    gaps[near][i] = gaps[0][i];
                } else if !is_fine(off) {
                    gaps[near][i] = rule.gap_of_edge(edges[near][i]);
                }
            }
        }
        gaps
    }
}

/// See [`ZeroRule::bounds`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GapBounds {
    of_one: f64,
    per_ln: f64,
    most: f64,
    off: f64,
}

impl GapBounds {
    /// Bounds on the gap of a sum with this logarithm, nats.
    #[inline(always)]
    pub fn of(&self, ln_sum: f64) -> [f64; 2] {
        let gap = self.of_one - self.per_ln * ln_sum;
        let gap = if gap < self.most { gap } else { self.most };
        [gap - self.off, gap + self.off]
    }

    /// Bound on how far the gap moves with a sum that is off by so much of itself, at most a hundredth, nats: its logarithm is off by hardly more.
    #[inline(always)]
    pub fn moved_by(&self, sum_error: f64) -> f64 {
        if self.per_ln == 0.0 {
            return 0.0;
        }
        1.01 * self.per_ln * sum_error
    }
}

/// Whether four terms give the logarithm of `1 + off` to 2^-60.
#[inline(always)]
fn is_fine(off: f64) -> bool {
    off.abs() <= 1.0 / 4096.0
}

/// Gap above which `cast(round(quotient, numerator / sum))` is 0.
///
/// Work in units of the exponential's smallest subnormal `u`. The largest quotient that becomes 0 is `limit` (half the
/// smallest probability, widened by half a step of the quotient's format if that is another one). A numerator becomes 0
/// iff it is at most `limit * sum`; numerators lie on the grid of the exponential's format, so the largest such one is `n`,
/// and `exp` rounds to `n` or less iff it is below `n` plus half a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuotientRule {
    exp_zero: f64,
    limit: f64,
    unit_nats: f64,
    significand_bits: i64,
    flush: bool,
    max_offset: f64,
    offset_factor: f64,
    accumulator: Format,
    /// What a sum is multiplied with for the edge, but for roundings.
    scale: f64,
    /// The gap of a sum of 1, but for those.
    gap_of_one: f64,
}

impl QuotientRule {
    #[inline]
    fn gap(&self, sum: f64) -> f64 {
        self.gap_of_edge(self.edge(sum))
    }

    fn bounds(&self, least_sum: f64) -> Option<GapBounds> {
        // An edge lies within half a step of where the exact quotient would be, and steps are at most 2^(1 - p) of what is above 2^p;
        // the sum is rounded once, and so are the logarithms.
        let half_step = power_of_two(-self.significand_bits);
        let rounding = power_of_two(-i64::from(self.accumulator.significand_bits()));
        let off = 2.0 * (half_step + rounding) + power_of_two(-40);
        let fine = self.scale * least_sum >= 2.0 * power_of_two(self.significand_bits);
        (fine && off <= power_of_two(-18)).then_some(GapBounds {
            of_one: self.gap_of_one,
            per_ln: 1.0,
            most: self.exp_zero,
            off,
        })
    }

    /// Where numerators become 0, in units of the exponential's smallest subnormal; NaN for a sum that is.
    #[inline(always)]
    fn edge(&self, sum: f64) -> f64 {
        self.edges(&[sum])[0]
    }

    /// [`QuotientRule::edge`] of `N` sums, in loops that vectorise.
    #[inline(always)]
    fn edges<const N: usize>(&self, sums: &[f64; N]) -> [f64; N] {
        // The sums of exp(score - max - max_offset), as the plan holds them.
        let mut held = [0.0; N];
        if self.accumulator == Format::F32 {
            for i in 0..N {
                held[i] = f64::from((sums[i] * self.offset_factor) as f32);
            }
        } else {
            for i in 0..N {
                held[i] = self.accumulator.round(sums[i] * self.offset_factor);
            }
        }
        // Grid of the exponential's format, in units of u: whole numbers below 2^p, then ever coarser.
        let p = self.significand_bits;
        let whole_below = power_of_two(p);
        let (mut steps, mut step) = ([0.0; N], [0.0; N]);
        for i in 0..N {
            let bound = self.limit * held[i];
            let exponent = if bound < whole_below {
                0
            } else {
                (bound.to_bits() >> 52) as i64 - (BIAS + p - 1)
            };
            step[i] = power_of_two(exponent);
            steps[i] = bound * power_of_two(-exponent);
        }
        // Flushing keeps a quotient of exactly the smallest normal; a tie at half the smallest subnormal goes to 0.
        let mut edges = [0.0; N];
        if self.flush {
            for i in 0..N {
                edges[i] = (steps[i].ceil() - 1.0) * step[i] + step[i] / 2.0;
            }
        } else {
            for i in 0..N {
                edges[i] = steps[i].floor() * step[i] + step[i] / 2.0;
            }
        }
        edges
    }

    #[inline(always)]
    fn gap_of_edge(&self, edge: f64) -> f64 {
        // The smaller of two is the other one where one is NaN.
        (-(edge.ln() + self.unit_nats) - self.max_offset).min(self.exp_zero)
    }
}

/// Of the exponent in the bits of an f64.
const BIAS: i64 = 1023;

/// `2^n` for `n` from -1022 to 1023.
#[inline(always)]
fn power_of_two(n: i64) -> f64 {
    f64::from_bits(((n + BIAS) as u64) << 52)
}

impl PrecisionPlan {
    /// Reference maximum minus entry, in nats, as the plan computes it: rounded to f32 unless the plan is idealised. The offset
    /// is in the thresholds, not in the gap.
    pub fn rounded_gap(&self, max: f64, entry: f64) -> f64 {
        if self.idealised {
            return max - entry;
        }
        let f32 = |x: f64| Format::F32.round(x);
        f32(f32(max - entry) + f32(self.max_offset)) - self.max_offset
    }

    /// The exponential that scales the accumulator down when the maximum rises.
    pub fn rescale_rule(&self) -> &ExpRule {
        self.rescale.as_ref().unwrap_or(&self.exp)
    }

    /// The factor by which a rise of the running maximum scales the accumulator down.
    pub fn rescaling(&self, old_max: f64, new_max: f64) -> f64 {
        let difference = Format::F32.round(old_max - new_max);
        let rule = self.rescale_rule();
        if difference < rule.zero_below {
            return 0.0;
        }
        rule.format.round_with(difference.exp(), rule.underflow)
    }

    /// Rises of the maximum up to this, nats, scale by a normal number.
    pub fn exact_rise_nats(&self) -> f64 {
        -f64::from(self.rescale_rule().format.min_exponent()) * std::f64::consts::LN_2
    }

    /// `-ln` of [`PrecisionPlan::rescaling`]; infinite where that is 0. Its roundings are left out where it is a normal number.
    pub fn decay_of_rise(&self, old_max: f64, new_max: f64) -> f64 {
        let rise = new_max - old_max;
        if rise > self.exact_rise_nats() {
            -self.rescaling(old_max, new_max).ln()
        } else {
            rise
        }
    }

    /// `exp(-decay)` of a [`PrecisionPlan::decay_of_rise`], or of several together: a number of the format where it is next to one, since
    /// products with those can lie exactly between two others.
    pub fn factor_of_decay(&self, decay: f64) -> f64 {
        let factor = (-decay).exp();
        let rounded = self.rescale_rule().format.round(factor);
        if (factor - rounded).abs() <= 1e-9 * rounded {
            rounded
        } else {
            factor
        }
    }

    /// The numerator of an entry against a reference maximum, by the plan's rule and in its format.
    pub fn numerator(&self, max: f64, entry: f64) -> f64 {
        if entry == f64::NEG_INFINITY {
            return 0.0;
        }
        let difference = if self.idealised {
            entry - max - self.max_offset
        } else {
            let f32 = |x: f64| Format::F32.round(x);
            f32(f32(entry - max) - f32(self.max_offset))
        };
        if difference < self.exp.zero_below {
            return 0.0;
        }
        self.exp
            .format
            .round_with(difference.exp(), self.exp.underflow)
    }
}
