//! Intervals of paired differences.

use audit::eval::wilson;

/// Standard error of the change of a mean loss a token, documents as the unit: deviations of `d - change n` about zero, over the
/// tokens (ratio estimator, as for one result).
pub(super) fn ratio_error(documents: &[(f64, f64, f64)], change: f64) -> f64 {
    let k = documents.len() as f64;
    let tokens: f64 = documents.iter().map(|(n, _, _)| n).sum();
    let squares: f64 = documents
        .iter()
        .map(|(n, a, b)| (b - a - change * n).powi(2))
        .sum();
    (k / (k - 1.0) * squares).sqrt() / tokens
}

/// 95 % interval of `p_b - p_a` from the counts right in both, in A only, in B only, in neither: the square-and-add interval from two
/// Wilson intervals with the correlation of the pairs, its numerator reduced by n/2 where positive (Newcombe 1998, Statistics in
/// Medicine 17, 2635, method 10).
pub(super) fn newcombe([both, only_a, only_b, neither]: [u64; 4]) -> Option<(f64, f64)> {
    let n = both + only_a + only_b + neither;
    let (of_a, of_b) = (wilson(both + only_a, n)?, wilson(both + only_b, n)?);
    let (x, y) = (
        (both + only_a) as f64 / n as f64,
        (both + only_b) as f64 / n as f64,
    );
    let margins = [
        both + only_a,
        only_b + neither,
        both + only_b,
        only_a + neither,
    ];
    let product: f64 = margins.iter().map(|margin| *margin as f64).product();
    let cross = both as f64 * neither as f64 - only_a as f64 * only_b as f64;
    let cross = if cross > 0.0 {
        (cross - n as f64 / 2.0).max(0.0)
    } else {
        cross
    };
    let phi = if product > 0.0 {
        cross / product.sqrt()
    } else {
        0.0
    };
    let half = |one: f64, other: f64| {
        (one * one - 2.0 * phi * one * other + other * other)
            .max(0.0)
            .sqrt()
    };
    // the difference is B - A: its lower end takes B's lower and A's upper reach
    let low = y - x - half(y - of_b.low, of_a.high - x);
    let high = y - x + half(of_b.high - y, x - of_a.low);
    Some((low.max(-1.0), high.min(1.0)))
}

/// The 97.5th percentile of Student's t distribution with so many degrees of freedom.
///
/// With `t = sqrt(df) tan(angle)` the density is proportional to `cos(angle)^(df - 1)`; its integral is taken by Simpson's rule and
/// the angle found by bisection. Beyond 200 degrees the first two terms of its expansion about the normal percentile are within 1e-5.
pub(super) fn t_975(df: u64) -> f64 {
    const Z: f64 = 1.959_963_984_540_054;
    let n = df as f64;
    if df > 200 {
        return Z + (Z.powi(3) + Z) / (4.0 * n);
    }
    let right = std::f64::consts::FRAC_PI_2;
    let area = |to: f64| {
        const PARTS: u32 = 1000;
        let step = to / f64::from(PARTS);
        let sum: f64 = (0..=PARTS)
            .map(|part| {
                let weight = match part {
                    0 | PARTS => 1.0,
                    odd if odd % 2 == 1 => 4.0,
                    _ => 2.0,
                };
                weight * (f64::from(part) * step).cos().max(0.0).powf(n - 1.0)
            })
            .sum();
        sum * step / 3.0
    };
    let whole = area(right);
    let (mut low, mut high) = (0.0, right);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if area(middle) < 0.95 * whole {
            low = middle;
        } else {
            high = middle;
        }
    }
    n.sqrt() * low.tan()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Percentiles of any statistical table.
    #[test]
    fn students_percentiles_are_those_of_the_tables() {
        for (df, expected) in [
            (1, 12.7062),
            (2, 4.3027),
            (9, 2.2622),
            (30, 2.0423),
            (200, 1.9719),
            (1000, 1.9623),
        ] {
            let found = t_975(df);
            assert!((found / expected - 1.0).abs() < 1e-4, "{df}: {found}");
        }
    }

    /// Pairs that agree in everything leave a difference of zero with the width of their own chance; pairs that all disagree one way
    /// exclude zero. The third is Newcombe's table (1998), 36, 12, 2, 0: 0.0569 to 0.3404 by method 10.
    #[test]
    fn paired_shares_have_newcombes_interval() {
        let (low, high) = newcombe([5, 0, 0, 5]).unwrap();
        assert!(low < 0.0 && high > 0.0 && high < 0.35, "{low} {high}");
        let (low, high) = newcombe([0, 0, 10, 0]).unwrap();
        assert!(low > 0.5 && high == 1.0, "{low} {high}");
        let (low, high) = newcombe([36, 2, 12, 0]).unwrap();
        assert!(
            (low - 0.0569).abs() < 5e-4 && (high - 0.3404).abs() < 5e-4,
            "{low} {high}"
        );
        assert_eq!(newcombe([0, 0, 0, 0]), None);
    }
}
