//! Means with standard errors, and intervals of a share.

/// Sum, mean and variance; the variance by Welford's recurrence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    n: u64,
    /// Exact for counts, where the running mean is not.
    sum: f64,
    mean: f64,
    /// Sum of squared deviations from the mean.
    squares: f64,
}

#[allow(clippy::cast_precision_loss)] // counts
impl Moments {
    /// Takes in a value.
    pub fn add(&mut self, value: f64) {
        self.n += 1;
        self.sum += value;
        let off = value - self.mean;
        self.mean += off / self.n as f64;
        self.squares += off * (value - self.mean);
    }

    /// Number of values.
    #[must_use]
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Sum of the values.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Mean; `None` of nothing.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.n > 0).then(|| self.sum / self.n as f64)
    }

    /// Standard error of the mean, the values taken as independent: the sample deviation (`n - 1`) over `sqrt(n)`, as
    /// lm-evaluation-harness does it. `None` below two values.
    #[must_use]
    pub fn standard_error(&self) -> Option<f64> {
        let n = self.n as f64;
        (self.n > 1).then(|| (self.squares / (n - 1.0) / n).sqrt())
    }
}

impl Extend<f64> for Moments {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.add(value));
    }
}

impl FromIterator<f64> for Moments {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut moments = Self::default();
        moments.extend(values);
        moments
    }
}

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The 97.5th percentile of the standard normal distribution.
const Z95: f64 = 1.959_963_984_540_054;

/// Wilson's 95 % score interval of a share (Wilson 1927): unlike the normal interval it has a width at 0 and at 1. `None` when
/// nothing was tried.
#[must_use]
#[allow(clippy::cast_precision_loss)] // counts
pub fn wilson(hits: u64, tried: u64) -> Option<Interval> {
    if tried == 0 {
        return None;
    }
    let (n, p) = (tried as f64, hits as f64 / tried as f64);
    let z2 = Z95 * Z95;
    let centre = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z95 / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    // the ends at 0 and 1 are exact in theory and off by an ulp in arithmetic
    Some(Interval {
        low: if hits == 0 {
            0.0
        } else {
            (centre - half).max(0.0)
        },
        high: if hits == tried {
            1.0
        } else {
            (centre + half).min(1.0)
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_definition() {
        let values = [1.0, 2.0, 4.0, 9.0];
        let moments: Moments = values.into_iter().collect();
        assert_eq!(moments.mean(), Some(4.0));
        // A share of counts is the nearest number to it.
        let share: Moments = (0..40).map(|i| f64::from(i % 5 < 2)).collect();
        assert_eq!(share.mean(), Some(0.4));
        // sum of squares 9 + 4 + 0 + 25 = 38; 38 / 3 / 4
        let expected = (38.0f64 / 12.0).sqrt();
        // four steps of Welford, each within an ulp or two
        assert!((moments.standard_error().unwrap() - expected).abs() < 16.0 * f64::EPSILON);
        assert_eq!(Moments::default().mean(), None);
        assert_eq!(
            [3.0].into_iter().collect::<Moments>().standard_error(),
            None
        );
    }

    #[test]
    fn wilson_solves_its_own_equation() {
        // the ends are where |p - share| = z sqrt(share (1 - share) / n)
        for (hits, tried) in [(1, 10), (5, 10), (37, 50), (499, 500)] {
            let p = hits as f64 / tried as f64;
            let interval = wilson(hits, tried).unwrap();
            for share in [interval.low, interval.high] {
                let reach = Z95 * (share * (1.0 - share) / tried as f64).sqrt();
                assert!(((p - share).abs() - reach).abs() < 1e-12, "{hits}/{tried}");
            }
        }
        let none = wilson(0, 20).unwrap();
        assert!(
            none.low == 0.0 && none.high > 0.1 && none.high < 0.2,
            "{none:?}"
        );
        assert_eq!(wilson(20, 20).unwrap().high, 1.0);
        assert_eq!(wilson(0, 0), None);
    }
}
