//! Elementary functions on f32, written so that loops over them vectorise (no calls, no branches, no table).
//!
//! The C library's `expf`, `tanhf` and `erff` cost about as much as the matrix products around them.

/// `exp(x)` to about 1 ulp, subnormal results included; 0 below -104, infinite above 88.73, NaN for NaN.
///
/// Cephes `expf` (S. Moshier): `x = n ln 2 + r`, a degree-6 polynomial in `r`, `2^n` in two factors so that subnormals
/// and the top binade come out right.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // 1.5 * 2^23: adding it rounds to an integer and leaves that integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 = HIGH + LOW, with HIGH short enough for n * HIGH to be exact.
    const HIGH: f32 = 0.693_359_375;
    const LOW: f32 = -2.121_944_4e-4;
    // Comparisons in this direction keep NaN.
    let x = if x < -105.0 { -105.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * HIGH) - n * LOW;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    p = p * (r * r) + r + 1.0;
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    p * power(half) * power(n.wrapping_sub(half))
}

/// `x / (1 + exp(-x))`.
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `x/2 (1 + tanh(u))` with `u = sqrt(2/pi) (x + 0.044715 x^3)`, which is `x / (1 + exp(-2u))`.
#[inline(always)]
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    // sqrt(2/pi), as BLOOM and torch write it.
    let u = 0.797_884_56 * x * (1.0 + 0.044_715 * x * x);
    x / (1.0 + exp(-2.0 * u))
}

/// `x/2 (1 + erf(x / sqrt 2))`.
#[inline(always)]
pub(crate) fn gelu_erf(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// `erf(x)`, absolute error below 3e-7: the rational approximation `x P(x^2)/Q(x^2)` on `[-4, 4]` used by Eigen and XLA.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let x = if x < -4.0 { -4.0 } else { x };
    let x = if x > 4.0 { 4.0 } else { x };
    let s = x * x;
    let mut p = -2.726_142_3e-10;
    p = p * s + 2.770_681_4e-8;
    p = p * s + -2.101_024e-6;
    p = p * s + -5.692_506_4e-5;
    p = p * s + -7.349_906e-4;
    p = p * s + -2.954_6e-3;
    p = p * s + -1.609_603_3e-2;
    let mut q = -1.456_607_2e-5;
    q = q * s + -2.133_740_6e-4;
    q = q * s + -1.682_827e-3;
    q = q * s + -7.373_329_3e-3;
    q = q * s + -1.426_473_9e-2;
    x * p / q
}

/// Sum in f64, in eight interleaved partial sums.
pub(crate) fn sum(values: &[f32]) -> f64 {
    fold(values, f64::from)
}

/// Sum of squared differences from `centre`, in f64.
pub(crate) fn sum_squares(values: &[f32], centre: f64) -> f64 {
    fold(values, |x| {
        let d = f64::from(x) - centre;
        d * d
    })
}

#[inline(always)]
fn fold(values: &[f32], f: impl Fn(f32) -> f64) -> f64 {
    let mut lanes = [0f64; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += f(x);
        }
    }
    let tail: f64 = rest.iter().map(|&x| f(x)).sum();
    let pairs = |a: usize| lanes[a] + lanes[a + 4];
    ((pairs(0) + pairs(1)) + (pairs(2) + pairs(3))) + tail
}

/// Largest value; -infinity for an empty slice.
pub(crate) fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    let all = lanes.iter().chain(rest).copied();
    all.fold(f32::NEG_INFINITY, f32::max)
}

/// `sum(exp(x - max))`, exponentials in f32, sum in f64.
pub(crate) fn sum_exp(values: &[f32], max: f32) -> f64 {
    fold(values, |x| f64::from(exp(x - max)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest error of `f` against `truth` over every `stride`-th f32 in the range, in ulps of the truth and absolute.
    fn worst(from: f32, to: f32, f: fn(f32) -> f32, truth: impl Fn(f64) -> f64) -> (f64, f64) {
        let (mut ulps, mut absolute) = (0f64, 0f64);
        for i in 0..=2_000_000 {
            let x = from + (to - from) * (i as f32 / 2_000_000.0);
            let t = truth(f64::from(x));
            let error = (f64::from(f(x)) - t).abs();
            let spacing = numerics::Format::F32.ulp(t);
            ulps = ulps.max(error / spacing);
            absolute = absolute.max(error);
        }
        (ulps, absolute)
    }

    #[test]
    fn exp_is_accurate_to_the_last_place() {
        let (ulps, _) = worst(-103.9, 88.7, exp, f64::exp);
        assert!(ulps < 1.6, "{ulps} ulp");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-104.5), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(89.0), f32::INFINITY);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(-103.5) > 0.0, "subnormals are kept");
    }

    /// erf by its Taylor series, and by the continued fraction of erfc where the series cancels.
    fn erf_f64(x: f64) -> f64 {
        let a = x.abs();
        if a < 2.5 {
            let (mut term, mut sum) = (x, x);
            for n in 1..80 {
                let n = f64::from(n);
                term *= -x * x / n;
                sum += term / (2.0 * n + 1.0);
            }
            return sum * std::f64::consts::FRAC_2_SQRT_PI;
        }
        let mut tail = 0.0;
        for n in (1..200).rev() {
            tail = f64::from(n) / 2.0 / (a + tail);
        }
        let erfc = (-a * a).exp() / (a + tail) / std::f64::consts::PI.sqrt();
        x.signum() * (1.0 - erfc)
    }

    #[test]
    fn erf_and_the_activations_are_accurate() {
        assert!((erf_f64(1.0) - 0.842_700_792_949_714_9).abs() < 1e-15);
        assert!((erf_f64(3.0) - 0.999_977_909_503_001_4).abs() < 1e-15);
        let (_, absolute) = worst(-6.0, 6.0, erf, erf_f64);
        assert!(absolute < 3e-7, "erf {absolute:e}");
        // erf's error times |x|/2, plus rounding of a result up to 8.
        let phi = |x: f64| 0.5 * x * (1.0 + erf_f64(x * std::f64::consts::FRAC_1_SQRT_2));
        let (_, absolute) = worst(-8.0, 8.0, gelu_erf, phi);
        assert!(absolute < 1.2e-6, "gelu erf {absolute:e}");
        let tanh = |x: f64| {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + u.tanh())
        };
        let (_, absolute) = worst(-8.0, 8.0, gelu_tanh, tanh);
        assert!(absolute < 6e-7, "gelu tanh {absolute:e}");
        let (_, absolute) = worst(-20.0, 20.0, silu, |x| x / (1.0 + (-x).exp()));
        assert!(absolute < 2e-6, "silu {absolute:e}");
        assert_eq!(silu(-1e30), 0.0);
        assert_eq!(gelu_tanh(-1e10), 0.0);
        assert_eq!(gelu_erf(1e10), 1e10);
    }

    #[test]
    fn reductions_agree_with_plain_loops() {
        let values: Vec<f32> = (0..1003)
            .map(|i| ((i * 37) % 101) as f32 * 0.1 - 5.0)
            .collect();
        let plain: f64 = values.iter().map(|&x| f64::from(x)).sum();
        assert!((sum(&values) - plain).abs() < 1e-9);
        assert_eq!(max(&values), 5.0);
        assert_eq!(max(&[]), f32::NEG_INFINITY);
        let plain: f64 = values.iter().map(|&x| f64::from(x - 5.0).exp()).sum();
        assert!((sum_exp(&values, 5.0) / plain - 1.0).abs() < 2e-7);
    }
}
