//! Activations and sums over f32 slices, in loops that vectorise.
//!
//! The C library's `expf`, `tanhf` and `erff` cost about as much as the matrix products around them. Here every function is
//! arithmetic around one exponential, which the kernels crate computes for many values at a time, within 1 ulp. The loops run on the
//! widest vectors of the machine ([`simd`]); nothing in them is fused or reordered by that, so the bits are the same on all.

use kernels::erf::{erf_from, erfc_exponent};
use kernels::exp::exp_in_place;

/// Values handled at a time: their exponentials live on the stack.
const CHUNK: usize = 256;

/// Runs `f` compiled for the widest vectors of this machine. `f` and what it calls must be `#[inline(always)]`.
#[inline(always)]
pub(crate) fn simd<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}

/// Replaces every `x` by `after(x, exp(before(x)))`.
#[inline(always)]
fn through_exp(values: &mut [f32], before: impl Fn(f32) -> f32, after: impl Fn(f32, f32) -> f32) {
    for chunk in values.chunks_mut(CHUNK) {
        let mut e = [0f32; CHUNK];
        let e = &mut e[..chunk.len()];
        simd(
            #[inline(always)]
            || {
                for (e, &x) in e.iter_mut().zip(chunk.iter()) {
                    *e = before(x);
                }
            },
        );
        exp_in_place(e);
        simd(
            #[inline(always)]
            || {
                for (x, &e) in chunk.iter_mut().zip(e.iter()) {
                    *x = after(*x, e);
                }
            },
        );
    }
}

/// `x / (1 + exp(-x))`.
pub(crate) fn silu(values: &mut [f32]) {
    through_exp(
        values,
        #[inline(always)]
        |x| -x,
        #[inline(always)]
        |x, e| x / (1.0 + e),
    );
}

/// `x/2 (1 + tanh(u))` with `u = sqrt(2/pi) (x + 0.044715 x^3)`, which is `x / (1 + exp(-2u))`.
pub(crate) fn gelu_tanh(values: &mut [f32]) {
    through_exp(
        values,
        // sqrt(2/pi), as BLOOM and torch write it.
        #[inline(always)]
        |x| -2.0 * (0.797_884_6 * x * (1.0 + 0.044_715 * x * x)),
        #[inline(always)]
        |x, e| x / (1.0 + e),
    );
}

/// `x/2 (1 + erf(x / sqrt 2))`.
pub(crate) fn gelu_erf(values: &mut [f32]) {
    use std::f32::consts::FRAC_1_SQRT_2;
    through_exp(
        values,
        #[inline(always)]
        |x| erfc_exponent(x * FRAC_1_SQRT_2),
        #[inline(always)]
        |x, e| 0.5 * x * (1.0 + erf_from(x * FRAC_1_SQRT_2, e)),
    );
}

/// Sum in f64, in eight interleaved partial sums.
#[inline(always)]
pub(crate) fn sum(values: &[f32]) -> f64 {
    fold(values, f64::from)
}

/// Sum of squared differences from `centre`, in f64.
#[inline(always)]
pub(crate) fn sum_squares(values: &[f32], centre: f64) -> f64 {
    fold(
        values,
        #[inline(always)]
        |x| {
            let d = f64::from(x) - centre;
            d * d
        },
    )
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
    let mut tail = 0.0;
    for &x in rest {
        tail += f(x);
    }
    let l = lanes;
    (((l[0] + l[4]) + (l[1] + l[5])) + ((l[2] + l[6]) + (l[3] + l[7]))) + tail
}

/// Largest value; -infinity for an empty slice.
#[inline(always)]
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
    let mut total = 0.0;
    for chunk in values.chunks(CHUNK) {
        let mut e = [0f32; CHUNK];
        let e = &mut e[..chunk.len()];
        for (e, &x) in e.iter_mut().zip(chunk) {
            *e = x - max;
        }
        exp_in_place(e);
        total += sum(e);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest absolute error of `f` against `truth` over half a million values of a range.
    fn worst(from: f32, to: f32, f: fn(&mut [f32]), truth: impl Fn(f64) -> f64) -> f64 {
        let at = |i: u32| from + (to - from) * (i as f32 / 500_000.0);
        let inputs: Vec<f32> = (0..=500_000).map(at).collect();
        let mut got = inputs.clone();
        f(&mut got);
        let errors = inputs
            .iter()
            .zip(&got)
            .map(|(&x, &y)| (f64::from(y) - truth(f64::from(x))).abs());
        errors.fold(0.0, f64::max)
    }

    fn one(f: fn(&mut [f32]), x: f32) -> f32 {
        let mut values = [x];
        f(&mut values);
        values[0]
    }

    /// erf by its Taylor series, and by the continued fraction of erfc where the series cancels.
    fn erf_f64(x: f64) -> f64 {
        let a = x.abs();
        if a < 2.5 {
            let (mut term, mut sum) = (x, x);
            for n in 1..60 {
                let n = f64::from(n);
                term *= -x * x / n;
                sum += term / (2.0 * n + 1.0);
            }
            return sum * std::f64::consts::FRAC_2_SQRT_PI;
        }
        let mut tail = 0.0;
        for n in (1..60).rev() {
            tail = f64::from(n) / 2.0 / (a + tail);
        }
        let erfc = (-a * a).exp() / (a + tail) / std::f64::consts::PI.sqrt();
        x.signum() * (1.0 - erfc)
    }

    fn erf(values: &mut [f32]) {
        through_exp(values, erfc_exponent, erf_from);
    }

    #[test]
    fn activations_are_accurate() {
        // Abramowitz and Stegun, table 7.1.
        assert!((erf_f64(1.0) - 0.842_700_792_9).abs() < 1e-10);
        assert!((erf_f64(2.0) - 0.995_322_265_0).abs() < 1e-10);
        assert!((erf_f64(3.0) - 0.999_977_909_5).abs() < 1e-10);
        let error = worst(-6.0, 6.0, erf, erf_f64);
        assert!(error < 1.3e-7, "erf {error:e}");
        // Results reach 8: two spacings of f32 just below 8. (The exponential, the addition and the division may each be
        // half a spacing off or a little more.)
        let bound = 2.0 * 2f64.powi(-21);
        let phi = |x: f64| 0.5 * x * (1.0 + erf_f64(x * std::f64::consts::FRAC_1_SQRT_2));
        let tanh = |x: f64| {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + u.tanh())
        };
        let error = worst(-8.0, 8.0, gelu_erf, phi);
        assert!(error < bound, "gelu erf {error:e}");
        let error = worst(-8.0, 8.0, gelu_tanh, tanh);
        assert!(error < bound, "gelu tanh {error:e}");
        let error = worst(-8.0, 8.0, silu, |x| x / (1.0 + (-x).exp()));
        assert!(error < bound, "silu {error:e}");
    }

    #[test]
    fn activations_at_the_ends() {
        for f in [silu, gelu_tanh, gelu_erf] {
            assert_eq!(one(f, 0.0), 0.0);
            assert_eq!(one(f, 1e10), 1e10);
            assert_eq!(one(f, -1e10), 0.0);
            assert!(one(f, f32::NAN).is_nan());
        }
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
