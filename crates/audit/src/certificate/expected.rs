//! The expected horizon: where a head with inputs of random direction goes blind.
//!
//! Scores of one query over its keys are then normal with the head's deviation s and independent, entries `s z_k + b(k)`.
//!
//! * The row's maximum has its median M where `sum_k ln Phi((M - b(k)) / s) = -ln 2`.
//! * Given that maximum, key k has it with probability `p_k` proportional to `phi(u_k) / Phi(u_k)`, `u_k = (M - b(k)) / s`, and
//!   the others are normal cut off at M, so the sum of exponentials has the mean
//!   `exp(M) + sum_k (1 - p_k) exp(b(k) + s^2 / 2) Phi(u_k - s) / Phi(u_k)`; its logarithm stands for the row's log-sum-exp.
//! * A pair of average content (z = 0, half of all pairs) is blind once `b(d)` is below M less the numerator's threshold, or
//!   below the log-sum-exp less the weight's, where the plan has one.
//!
//! A soft cap bends the scores before M is taken; the mean of the sum leaves it out.

use numerics::{CapOrder, MaxReference};
use std::f64::consts::{LN_2, SQRT_2};

use super::entry::Entries;
use super::{CertificateInput, first};
use crate::bounds::HeadBounds;

/// The last distance at which a pair of average content is not blind; `None` if it never is blind.
pub(super) fn horizon(
    bounds: &HeadBounds,
    input: &CertificateInput<'_>,
    entries: &Entries<'_>,
) -> Option<u64> {
    let row = Row::new(bounds, input, entries);
    let maximum = row.median_of_maximum();
    let plan = input.plan;
    let numerator = match plan.max_reference {
        MaxReference::Final => plan.numerator_zero_nats(),
        MaxReference::Running { .. } => {
            plan.numerator_zero_nats().min(plan.accumulator_zero_nats())
        }
    };
    let mut exponent = maximum - numerator;
    if let Some(weight) = plan.weight_zero_nats() {
        exponent = exponent.max(row.log_sum(maximum) - weight);
    }
    let cap = input
        .bias
        .soft_cap
        .filter(|cap| cap.order == CapOrder::AfterBias);
    let is_blind = |d: u64| {
        let bias = entries.bias(d as f64);
        cap.map_or(bias, |cap| cap.apply(bias)) < exponent
    };
    let found = match entries.constant_from() {
        Some(end) => (0..=end).find(|&d| is_blind(d)),
        None => first(input.length.max(1) - 1, is_blind),
    };
    found.map(|d| d.saturating_sub(1))
}

/// The keys of the longest row (without a causal mask: of the middle one), in groups.
struct Row<'a> {
    /// Bias in nats and number of keys.
    groups: Vec<(f64, f64)>,
    deviation: f64,
    input: &'a CertificateInput<'a>,
}

impl<'a> Row<'a> {
    fn new(bounds: &HeadBounds, input: &'a CertificateInput<'a>, entries: &Entries<'_>) -> Self {
        let (n, sides) = if input.causal {
            (input.length.max(1), 1.0)
        } else {
            (input.length / 2 + 1, 2.0)
        };
        let mut groups = Vec::new();
        let mut start = 0;
        while start < n {
            let size = if start < 32 { 1 } else { start / 8 };
            let end = (start + size).min(n);
            let middle = (start + end - 1) as f64 / 2.0;
            let count = (end - start) as f64 * if start == 0 { 1.0 } else { sides };
            groups.push((entries.bias(middle.floor()), count));
            start = end;
        }
        Self {
            groups,
            // Too small to matter, too large to divide by zero.
            deviation: bounds.score_deviation.clamp(1e-9, 1e9),
            input,
        }
    }

    /// The score, in deviations, whose entry is `maximum`.
    fn score_at(&self, maximum: f64, bias: f64) -> f64 {
        // Saturates where no score reaches the maximum, or every score does.
        let uncapped = |x: f64, cap: f64| cap * (x / cap).clamp(-1.0, 1.0).atanh();
        let score = match self.input.bias.soft_cap {
            None => maximum - bias,
            Some(cap) if cap.order == CapOrder::BeforeBias => uncapped(maximum - bias, cap.cap),
            Some(cap) => uncapped(maximum, cap.cap) - bias,
        };
        score / self.deviation
    }

    fn median_of_maximum(&self) -> f64 {
        let highest = self
            .groups
            .iter()
            .map(|(bias, _)| *bias)
            .fold(f64::NEG_INFINITY, f64::max);
        let n: f64 = self.groups.iter().map(|(_, count)| count).sum();
        let log_below = |m: f64| -> f64 {
            let terms = self
                .groups
                .iter()
                .map(|(bias, count)| count * ln_phi(self.score_at(m, *bias)));
            terms.sum()
        };
        // Of one key the median is its bias; of n equal ones it is below sqrt(2 ln n) + 1 deviations. A cap only lowers it.
        let (mut low, mut high) = (
            highest,
            highest + self.deviation * ((2.0 * n.ln()).sqrt() + 1.0),
        );
        if let Some(cap) = self.input.bias.soft_cap {
            low = low.min(-cap.cap + highest.min(0.0));
        }
        for _ in 0..44 {
            let middle = low + (high - low) / 2.0;
            if log_below(middle) < -LN_2 {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    fn log_sum(&self, maximum: f64) -> f64 {
        let s = self.deviation;
        let at = |bias: f64| (maximum - bias) / s;
        let hazard = |bias: f64| {
            let u = at(bias);
            (-u * u / 2.0 - ln_phi(u)).exp()
        };
        let total: f64 = self
            .groups
            .iter()
            .map(|(bias, count)| count * hazard(*bias))
            .sum();
        let others = self.groups.iter().map(|(bias, count)| {
            let is_maximum = if total > 0.0 {
                hazard(*bias) / total
            } else {
                0.0
            };
            let u = at(*bias);
            let mean = (bias - maximum + s * s / 2.0 + ln_phi(u - s) - ln_phi(u)).exp();
            // Cut off at the maximum, the mean cannot exceed it.
            count * (1.0 - is_maximum) * mean.min(1.0)
        });
        maximum + others.sum::<f64>().ln_1p()
    }
}

/// `ln Phi(z)`, the logarithm of the normal distribution function, to about 1e-7.
fn ln_phi(z: f64) -> f64 {
    if z > 9.0 {
        return 0.0; // 1e-19 below it
    }
    if z < -8.0 {
        // Mills' ratio to second order: relative error 15 / z^6.
        let w = 1.0 / (z * z);
        return -z * z / 2.0 - (-z * (2.0 * std::f64::consts::PI).sqrt()).ln()
            + (-w + 3.0 * w * w).ln_1p();
    }
    let upper = erfc(z.abs() / SQRT_2) / 2.0;
    if z < 0.0 {
        upper.ln()
    } else {
        (-upper).ln_1p()
    }
}

/// Complementary error function for `x >= 0`, relative error below 1.2e-7 (Press et al., *Numerical Recipes in C*, 2nd edition,
/// section 6.2, `erfcc`).
fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + x / 2.0);
    let series = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let polynomial = series.iter().rev().fold(0.0, |sum, c| sum * t + c);
    t * (polynomial - x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_distribution_at_known_points() {
        // Abramowitz and Stegun, table 26.1 and (for the tail) 26.2.
        for (z, phi) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746),
            (2.0, 0.977_249_868),
            (-1.0, 0.158_655_254),
            (-3.0, 1.349_898_03e-3),
        ] {
            let found = ln_phi(z).exp();
            assert!((found / phi - 1.0).abs() < 3e-7, "{z}: {found}");
        }
        // -log10 Q(10) = 23.11805, Q(20) = 88.56010, table 26.2.
        for (z, log10) in [(-10.0, -23.118_05), (-20.0, -88.560_10)] {
            assert!(
                (ln_phi(z) / std::f64::consts::LN_10 - log10).abs() < 1e-5,
                "{z}"
            );
        }
        // The two branches meet.
        assert!((ln_phi(-8.000_001) - ln_phi(-7.999_999)).abs() < 5e-5);
    }
}
