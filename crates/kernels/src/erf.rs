//! The error function around one exponential, so that a loop takes many exponentials at a time ([`crate::exp`]).
//!
//! Minimax polynomials by N. Juffa ("Faster implementation of erff", public), about 1 ulp.

/// `r` with `1 - exp(r) = erf(|x|)` for `|x|` above 475/512, where [`erf_from`] uses it.
#[inline(always)]
pub fn erfc_exponent(x: f32) -> f32 {
    let t = x.abs();
    let t = if t > 4.0 { 4.0 } else { t };
    let s = t * t;
    let high = -1.728_534_7e-5 * t + 3.831_971_3e-4;
    let low = -3.883_964_4e-3 * t + 2.425_462_2e-2;
    let mut r = high * s + low;
    r = r * t - 1.067_778_8e-1;
    r = r * t - 6.348_467e-1;
    r = r * t - 1.287_175_1e-1;
    r * t - t
}

/// Where the two forms meet, 475/512.
const SWITCH: f32 = 0.927_734_4;

/// `erf(x)`, given `e = exp(erfc_exponent(x))`.
#[inline(always)]
pub fn erf_from(x: f32, e: f32) -> f32 {
    let far = (1.0 - e).copysign(x);
    let s = x * x;
    let mut r = -5.967_617e-4;
    r = r * s + 4.991_194_2e-3;
    r = r * s - 2.676_813_5e-2;
    r = r * s + 1.128_199_26e-1;
    r = r * s - 3.761_253_4e-1;
    r = r * s + 1.283_791_7e-1;
    let near = r * x + x;
    // NaN takes the near form, which keeps it.
    if x.abs() > SWITCH { far } else { near }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn erf(x: f32) -> f32 {
        let mut e = [erfc_exponent(x)];
        crate::exp::exp_in_place(&mut e);
        erf_from(x, e[0])
    }

    #[test]
    fn known_values() {
        // Abramowitz and Stegun, table 7.1.
        for (x, wanted) in [
            (0.5, 0.520_499_9),
            (1.0, 0.842_700_8),
            (2.0, 0.995_322_3),
            (3.0, 0.999_977_9),
        ] {
            assert!((erf(x) - wanted).abs() < 1.3e-7, "{x}");
            assert_eq!(erf(-x), -erf(x));
        }
        assert_eq!((erf(0.0), erf(10.0)), (0.0, 1.0));
        assert!(erf(f32::NAN).is_nan());
    }
}
