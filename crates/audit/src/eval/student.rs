//! Student's t distribution: intervals of a mean, paired differences, and Holm's correction for many comparisons.

use super::statistics::{Interval, Moments};

/// `ln Gamma(x)` for `x > 0`: Lanczos' series with g = 7 and nine terms (coefficients of Godfrey), relative error below 1e-14.
fn ln_gamma(x: f64) -> f64 {
    const G: f64 = 7.0;
    const TERMS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        // the reflection formula
        return (std::f64::consts::PI / (std::f64::consts::PI * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let t = x + G + 0.5;
    let series: f64 = TERMS
        .iter()
        .enumerate()
        .skip(1)
        .fold(TERMS[0], |sum, (i, term)| {
            sum + term / (x + f64::from(i as u32))
        });
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + series.ln()
}

/// The regularised incomplete beta function `I_x(a, b)`, by its continued fraction (Lentz's method) on the side where that
/// converges fast.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a;
    let guard = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut c, mut d) = (1.0, 1.0 / guard(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..500 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / guard(1.0 + even * d);
        c = guard(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / guard(1.0 + odd * d);
        c = guard(1.0 + odd / c);
        let change = d * c;
        fraction *= change;
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * fraction
}

/// Probability that `|t|` or more is seen by chance, with `freedom` degrees of freedom: two-sided.
#[must_use]
pub fn student_p(t: f64, freedom: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// The `t` with [`student_p`] of 0.05: half the width of a 95 % interval in standard errors.
#[must_use]
pub fn student_t95(freedom: f64) -> f64 {
    let (mut low, mut high) = (1.9, 13.0);
    while high - low > 1e-12 * high {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if student_p(middle, freedom) > 0.05 {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// The 95 % interval of a mean by Student's t; `None` below two values.
#[must_use]
pub fn mean_interval(values: &Moments) -> Option<Interval> {
    let (mean, error) = (values.mean()?, values.standard_error()?);
    #[allow(clippy::cast_precision_loss)] // a count
    let reach = student_t95((values.n() - 1) as f64) * error;
    Some(Interval {
        low: mean - reach,
        high: mean + reach,
    })
}

/// Two-sided p value of a mean of differences against 0 (paired t test); `None` below two values and where all are equal, as
/// they then say nothing of their spread.
#[must_use]
pub fn paired_p(differences: &Moments) -> Option<f64> {
    let (mean, error) = (differences.mean()?, differences.standard_error()?);
    #[allow(clippy::cast_precision_loss)] // a count
    (error > 0.0).then(|| student_p(mean / error, (differences.n() - 1) as f64))
}

/// Holm's step-down correction (Holm 1979): p values that hold together for all of the comparisons, in the order given.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut corrected = vec![0.0; p.len()];
    let mut largest = 0.0f64;
    for (rank, &at) in order.iter().enumerate() {
        #[allow(clippy::cast_precision_loss)] // a count
        let left = (p.len() - rank) as f64;
        largest = largest.max((left * p[at]).min(1.0));
        corrected[at] = largest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Percentage points of the t distribution, two-sided 5 %, as every printed table has them (to three decimals).
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, t) in [
            (1.0, 12.706),
            (2.0, 4.303),
            (3.0, 3.182),
            (4.0, 2.776),
            (9.0, 2.262),
            (30.0, 2.042),
            (120.0, 1.980),
        ] {
            let found = student_t95(freedom);
            assert!((found - t).abs() < 5.1e-4, "{freedom}: {found}");
        }
    }

    /// Other columns of the tables, and closed forms: `1 - 2 atan(t)/pi` for one degree, `1 - t/sqrt(2 + t^2)` for two.
    #[test]
    fn p_values_are_those_of_tables_and_closed_forms() {
        for (t, freedom, p) in [
            (4.604, 4.0, 0.01),
            (2.132, 4.0, 0.10),
            (3.169, 10.0, 0.01),
            (3.850, 20.0, 0.001),
        ] {
            let found = student_p(t, freedom);
            assert!((found / p - 1.0).abs() < 2e-3, "{t} {freedom}: {found}");
        }
        for t in [0.0, 0.1, 1.0, 3.0, 40.0] {
            let one = 1.0 - 2.0 * f64::atan(t) / std::f64::consts::PI;
            let two = 1.0 - t / (2.0 + t * t).sqrt();
            assert!((student_p(t, 1.0) - one).abs() < 1e-12, "{t}");
            assert!((student_p(t, 2.0) - two).abs() < 1e-12, "{t}");
        }
        assert_eq!(student_p(f64::INFINITY, 3.0), 0.0);
    }

    /// Gosset's own data (Student 1908, the effect of two soporific drugs on ten patients): t = 4.062 with 9 degrees, p = 0.00283.
    #[test]
    fn the_paired_test_of_1908() {
        let differences = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let moments: Moments = differences.into_iter().collect();
        let p = paired_p(&moments).unwrap();
        assert!((p - 0.002_833).abs() < 1e-6, "{p}");
        let interval = mean_interval(&moments).unwrap();
        assert!((interval.low - 0.700).abs() < 1e-3 && (interval.high - 2.460).abs() < 1e-3);
        let same: Moments = [1.0, 1.0].into_iter().collect();
        assert_eq!(paired_p(&same), None);
        assert_eq!(mean_interval(&[1.0].into_iter().collect()), None);
    }

    #[test]
    fn holm_steps_down() {
        let found = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in found.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-15, "{found}");
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }
}
