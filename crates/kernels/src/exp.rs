//! Vectorised exponential and hyperbolic tangent in f32, with stated error bounds.
//!
//! The exponential writes `x = n ln 2 + r` with `|r| <= ln 2 / 2` (two-part constant, fused multiply-adds), evaluates a
//! polynomial of degree 6 and scales by `2^n`, rounding once. Its coefficients minimise the relative error subject to
//! `p(0) = p'(0) = 1` (Lawson iteration in f64, then each coefficient rounded to f32 in turn, lowest first, and the rest
//! refitted); the polynomial is off by at most 3.2e-9, a nineteenth of the f32 rounding unit.
#![allow(unsafe_code, reason = "vector loads and stores on slices")]
#![allow(
    clippy::excessive_precision,
    reason = "coefficients to nine digits, as many as an f32 can need"
)]

use crate::lanes::{Isa, Lanes, dispatch};

/// Largest error of [`exp_in_place`] in units of the last place of the exact result, on a processor with a fused
/// multiply-add.
pub const EXP_ULPS_MAX: f64 = 1.0;

/// The same on a processor without one, where each multiply-add rounds twice.
pub const EXP_ULPS_MAX_UNFUSED: f64 = 2.0;

/// Largest error of [`soft_cap_in_place`] in units of the last place of the exact result, on a processor with a fused
/// multiply-add.
pub const SOFT_CAP_ULPS_MAX: f64 = 4.0;

/// The same on a processor without one.
pub const SOFT_CAP_ULPS_MAX_UNFUSED: f64 = 5.0;

/// `ln(2^-150)`, rounded down to f32: an exponential at or below it is nearer to 0 than to the smallest f32, or as near
/// and 0 is even. `numerics` derives the same number as the threshold of gradual underflow.
pub(crate) const ZERO_AT: f32 = -103.972_084;

/// Coefficients of `r^2 ..= r^6`, highest first.
const POLY: [f32; 5] = [
    0.001_382_066_1,
    0.008_368_675,
    0.041_668_266,
    0.166_665_21,
    0.499_999_94,
];
/// `1.5 * 2^23`: adding it rounds a float below `2^22` to an integer, ties to even.
const ROUNDER: f32 = 12_582_912.0;
/// ln 2 in two parts (Cody and Waite): the first has 15 bits, so that its product with any `n` here is exact even without a
/// fused multiply-add.
const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = (std::f64::consts::LN_2 - LN2_HIGH as f64) as f32;

/// `(n, r)` with `t = n ln 2 + r`, `n` integral and `|r| <= ln 2 / 2`.
#[inline(always)]
fn reduce<S: Lanes>(s: S, t: S::V) -> (S::V, S::V) {
    let rounder = s.splat(ROUNDER);
    let n = s.sub(
        s.fma(t, s.splat(std::f32::consts::LOG2_E), rounder),
        rounder,
    );
    let r = s.fma(n, s.splat(-LN2_HIGH), t);
    (n, s.fma(n, s.splat(-LN2_LOW), r))
}

/// `(p, n)` with `exp(t) = p / factor * 2^n`; `factor` a power of two that costs nothing here.
#[inline(always)]
fn split<S: Lanes>(s: S, t: S::V, factor: f32) -> (S::V, S::V) {
    let (n, r) = reduce(s, t);
    let mut p = s.splat(factor * POLY[0]);
    for c in &POLY[1..] {
        p = s.fma(p, r, s.splat(factor * c));
    }
    p = s.fma(p, r, s.splat(factor));
    p = s.fma(p, r, s.splat(factor));
    (p, n)
}

/// `factor * exp(t)` for `t <= 0`, exactly 0 where `exp(t)` rounds to 0 in f32, NaN for NaN. `factor` is a power of two,
/// at least 2^24, so that no result is subnormal; see the kernel for why that matters.
#[inline(always)]
pub(crate) fn exp_lifted<S: Lanes>(s: S, t: S::V, factor: f32) -> S::V {
    let (p, n) = split(s, t, factor);
    s.scale_above(p, n, t, s.splat(ZERO_AT))
}

/// `exp(x)` for any x.
#[inline(always)]
pub(crate) fn exp<S: Lanes>(s: S, x: S::V) -> S::V {
    // Beyond these the result is 0 or infinite anyway. NaN passes: it is the second operand.
    let t = s.min(s.splat(89.0), s.max(s.splat(-105.0), x));
    let (p, n) = split(s, t, 1.0);
    s.select(s.le(t, s.splat(ZERO_AT)), s.splat(0.0), s.scale(p, n))
}

/// `cap * tanh(x / cap)`, within [`SOFT_CAP_ULPS_MAX`].
///
/// `tanh y = (e - 1) / ((e - 1) + 2)` with `e = exp(2y)`: one exponential, one division, no case for small arguments, because
/// `e - 1 = 2^n (exp(r) - 1) + (2^n - 1)` cancels nothing. `2 / cap` in two parts: with one, its rounding alone would use up what is
/// left of the bound.
#[inline(always)]
pub(crate) fn soft_cap<S: Lanes>(s: S, x: S::V, cap: f32) -> S::V {
    let two = 2.0 / cap;
    let rest = (2.0 / f64::from(cap) - f64::from(two)) as f32;
    // Beyond ten caps the result is the cap in f32. NaN passes: it is the second operand.
    let end = (10.0 * cap).min(f32::MAX);
    let x = s.min(s.splat(end), s.max(s.splat(-end), x));
    let t = s.fma(x, s.splat(two), s.mul(x, s.splat(rest)));
    let (n, r) = reduce(s, t);
    let mut p = s.splat(POLY[0]);
    for c in &POLY[1..] {
        p = s.fma(p, r, s.splat(*c));
    }
    let p = s.fma(p, s.mul(r, r), r);
    let power = s.scale_normal(s.splat(1.0), n);
    let e = s.fma(power, p, s.sub(power, s.splat(1.0)));
    s.mul(s.splat(cap), s.div(e, s.add(e, s.splat(2.0))))
}

/// A function of one vector. A trait and not a closure, because closures cannot be `inline(always)`.
trait Map: Copy {
    fn apply<S: Lanes>(self, s: S, x: S::V) -> S::V;
}

#[derive(Clone, Copy)]
struct Exp;

impl Map for Exp {
    #[inline(always)]
    fn apply<S: Lanes>(self, s: S, x: S::V) -> S::V {
        exp(s, x)
    }
}

#[derive(Clone, Copy)]
struct SoftCap(f32);

impl Map for SoftCap {
    #[inline(always)]
    fn apply<S: Lanes>(self, s: S, x: S::V) -> S::V {
        soft_cap(s, x, self.0)
    }
}

#[inline(always)]
fn map_in_place<S: Lanes, F: Map>(s: S, xs: &mut [f32], f: F) {
    let mut chunks = xs.chunks_exact_mut(S::WIDTH);
    for chunk in &mut chunks {
        // SAFETY: the chunk has `WIDTH` elements.
        unsafe { s.store(chunk.as_mut_ptr(), f.apply(s, s.load(chunk.as_ptr()))) };
    }
    let rest = chunks.into_remainder();
    let mut last = [0.0_f32; 16];
    last[..rest.len()].copy_from_slice(rest);
    // SAFETY: `last` has 16 elements, and no instruction set here has wider vectors.
    unsafe { s.store(last.as_mut_ptr(), f.apply(s, s.load(last.as_ptr()))) };
    rest.copy_from_slice(&last[..rest.len()]);
}

pub(crate) fn exp_with(isa: Isa, xs: &mut [f32]) {
    dispatch!(isa, map_in_place, (xs: &mut [f32], f: Exp) = (xs, Exp))
}

pub(crate) fn soft_cap_with(isa: Isa, xs: &mut [f32], cap: f32) {
    dispatch!(isa, map_in_place, (xs: &mut [f32], f: SoftCap) = (xs, SoftCap(cap)))
}

/// Replaces every element by its exponential, within [`EXP_ULPS_MAX`]. Subnormal results are kept; at and below
/// `ln(2^-150)` the result is exactly 0; NaN stays NaN. An element's result does not depend on its place in the slice.
pub fn exp_in_place(xs: &mut [f32]) {
    exp_with(Isa::detect(), xs);
}

/// Replaces every element `x` by `cap * tanh(x / cap)`, within [`SOFT_CAP_ULPS_MAX`], the same bits as the attention kernel gives it.
pub fn soft_cap_in_place(xs: &mut [f32], cap: f32) {
    soft_cap_with(Isa::detect(), xs, cap);
}

#[cfg(test)]
mod tests {
    use super::*;
    use numerics::{Format, Underflow, exp_zero_threshold};

    /// Error in units of the last place of the exact result.
    fn ulps(got: f32, exact: f64) -> f64 {
        if !got.is_finite() || got == 0.0 {
            let rounded = Format::F32.round(exact);
            return if f64::from(got) == rounded {
                0.0
            } else {
                f64::INFINITY
            };
        }
        (f64::from(got) - exact).abs() / Format::F32.ulp(exact)
    }

    /// Worst error over every `step`-th float of both signs with `least <= |x| <= limit`, and where it is.
    fn worst(
        least: f32,
        limit: f32,
        step: usize,
        f: impl Fn(&mut [f32]),
        exact: impl Fn(f64) -> f64,
    ) -> (f64, f32) {
        let mut worst = (0.0, 0.0);
        let mut codes = (least.to_bits()..=limit.to_bits()).step_by(step).peekable();
        while codes.peek().is_some() {
            let chunk: Vec<u32> = codes.by_ref().take(4096).collect();
            for sign in [0, 0x8000_0000] {
                let xs: Vec<f32> = chunk.iter().map(|c| f32::from_bits(c | sign)).collect();
                let mut ys = xs.clone();
                f(&mut ys);
                for (&x, &y) in xs.iter().zip(&ys) {
                    let error = ulps(y, exact(f64::from(x)));
                    if error > worst.0 {
                        worst = (error, x);
                    }
                }
            }
        }
        worst
    }

    #[test]
    fn zero_threshold_is_the_derived_one() {
        let derived = exp_zero_threshold(Format::F32, Underflow::Gradual);
        assert!(
            f64::from(ZERO_AT) <= derived && derived < f64::from(ZERO_AT.next_up()),
            "{derived}"
        );
        let mut x = [ZERO_AT, ZERO_AT.next_up(), -103.5, -104.0, -1e30];
        exp_in_place(&mut x);
        assert_eq!(x.map(f32::to_bits), [0, 1, x[2].to_bits(), 0, 0]);
        assert!(x[2] > 0.0);
    }

    #[test]
    fn exp_keeps_its_bound_on_every_instruction_set() {
        for &isa in Isa::available() {
            let (error, at) = worst(0.0, 110.0, 1009, |xs| exp_with(isa, xs), f64::exp);
            let bound = if isa == Isa::Portable {
                EXP_ULPS_MAX_UNFUSED
            } else {
                EXP_ULPS_MAX
            };
            assert!(error <= bound, "{isa:?}: {error} ulp at {at}");
        }
    }

    /// About two minutes: `cargo test -p snellen-kernels --release -- --ignored every_float`.
    #[test]
    #[ignore = "two billion exponentials"]
    fn exp_keeps_its_bound_on_every_float() {
        let (error, at) = worst(0.0, 110.0, 1, exp_in_place, f64::exp);
        assert!(error <= EXP_ULPS_MAX, "{error} ulp at {at}");
    }

    #[test]
    fn exp_of_special_values() {
        for &isa in Isa::available() {
            let mut x = [
                f32::NAN,
                f32::INFINITY,
                f32::NEG_INFINITY,
                0.0,
                -0.0,
                88.722_84,
                1e30,
            ];
            exp_with(isa, &mut x);
            assert!(x[0].is_nan());
            assert_eq!(x[1..5], [f32::INFINITY, 0.0, 1.0, 1.0], "{isa:?}");
            assert_eq!(x[6], f32::INFINITY);
        }
    }

    /// Arguments whose quotient by the cap is subnormal are left out: there the error is absolute, below 2^-149 times the cap.
    /// A cap that is not a power of two rounds twice more.
    #[test]
    fn soft_cap_is_tanh() {
        for cap in [0.1_f32, 0.5, 7.0, 8.0, 30.0, 1000.0] {
            for &isa in Isa::available() {
                let c = f64::from(cap);
                let (error, at) = worst(
                    1e-30,
                    1e4,
                    5003,
                    |xs| soft_cap_with(isa, xs, cap),
                    |x| c * (x / c).tanh(),
                );
                let bound = if isa == Isa::Portable {
                    SOFT_CAP_ULPS_MAX_UNFUSED
                } else {
                    SOFT_CAP_ULPS_MAX
                };
                assert!(error <= bound, "{isa:?}, cap {cap}: {error} ulp at {at}");
            }
        }
    }

    #[test]
    fn soft_cap_of_special_values() {
        for cap in [0.1_f32, 8.0, 30.0, f32::MIN_POSITIVE, 1e37] {
            for &isa in Isa::available() {
                let mut x = [
                    f32::NAN,
                    f32::INFINITY,
                    f32::NEG_INFINITY,
                    0.0,
                    -0.0,
                    f32::MAX,
                ];
                soft_cap_with(isa, &mut x, cap);
                assert!(x[0].is_nan());
                assert_eq!(x[1..5], [cap, -cap, 0.0, 0.0], "{isa:?}, cap {cap}");
                assert!(
                    x[5] > 0.99 * cap && x[5] <= cap,
                    "{isa:?}, cap {cap}: {}",
                    x[5]
                );
            }
        }
    }

    /// Same operations in the same order: instruction sets with a fused multiply-add agree in every bit.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn instruction_sets_agree() {
        if !Isa::available().contains(&Isa::Avx512) {
            eprintln!("SKIPPED: this processor has no AVX-512 to compare");
            return;
        }
        for step in [2503, 9973] {
            let xs: Vec<f32> = (0..=u32::MAX)
                .step_by(step)
                .map(f32::from_bits)
                .filter(|x| !x.is_nan())
                .collect();
            let (mut a, mut b) = (xs.clone(), xs.clone());
            exp_with(Isa::Avx512, &mut a);
            exp_with(Isa::Avx2, &mut b);
            for (i, x) in xs.iter().enumerate() {
                assert_eq!(a[i].to_bits(), b[i].to_bits(), "exp({x})");
            }
        }
    }

    #[test]
    fn place_in_the_slice_does_not_matter() {
        let xs: Vec<f32> = (0..67).map(|i| i as f32 * -1.37).collect();
        let mut whole = xs.clone();
        exp_in_place(&mut whole);
        for (x, y) in xs.iter().zip(&whole) {
            let mut one = [*x];
            exp_in_place(&mut one);
            assert_eq!(one[0].to_bits(), y.to_bits());
        }
    }
}
