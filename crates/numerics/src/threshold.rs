//! Where the exponential leaves a format.
//!
//! All limits are powers of two, so their logarithms are whole multiples of ln 2. Working with the exponent instead of the
//! number keeps `f64` exact too, whose half of the smallest subnormal is not an `f64`.

use crate::format::{Format, Underflow};
use std::f64::consts::LN_2;

/// ln 2 minus its nearest `f64`. Source: ln 2 = 0.693147180559945309417232121458176568...; a test recomputes it.
const LN_2_REST: f64 = 2.319_046_813_846_299_6e-17;

/// The exponent in nats (negative) below which `exp` becomes 0 in `format`: `exp(x)` is 0 exactly for `x < threshold`.
///
/// With gradual underflow the limit is half the smallest subnormal (the tie goes to the even neighbour, 0):
/// `ln(min_subnormal / 2)`. With flushing it is `ln(min_normal)`. The returned value is that logarithm rounded *up* to
/// `f64`; as the logarithm itself is irrational, no `f64` lies between the two and the strict comparison is exact.
pub fn exp_zero_threshold(format: Format, underflow: Underflow) -> f64 {
    exp_zero_threshold_scaled(format, underflow, 0)
}

/// [`exp_zero_threshold`] of `2^log2_scale * exp(x)`: what a cast sees when probabilities are scaled up before it
/// (fp8 kernels multiply by 256, `log2_scale` 8).
pub fn exp_zero_threshold_scaled(format: Format, underflow: Underflow, log2_scale: i32) -> f64 {
    let limit_log2 = match underflow {
        Underflow::Gradual => format.min_subnormal_exponent() - 1,
        Underflow::Flush => format.min_exponent(),
    };
    ln_power_of_two_rounded_up(limit_log2 - log2_scale)
}

/// `exponent * ln 2`, rounded towards positive infinity.
fn ln_power_of_two_rounded_up(exponent: i32) -> f64 {
    let n = f64::from(exponent);
    let product = n * LN_2;
    // What the product lost, and what LN_2 itself lacks: together far more exact than half an ulp of the product.
    let rest = n.mul_add(LN_2, -product) + n * LN_2_REST;
    let nearest = product + rest;
    if (product - nearest) + rest > 0.0 {
        nearest.next_up()
    } else {
        nearest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_ln_2_is_what_its_series_leaves() {
        // Sum of 1 / (k 2^k) in units of 2^-120; each of 119 terms is cut by less than one unit.
        let ln_2: i128 = (1..120).map(|k: i128| (1 << (120 - k)) / k).sum();
        // LN_2 lies in [0.5, 1): a whole number of 2^-53.
        let nearest = ((LN_2 * 2.0_f64.powi(53)) as i128) << (120 - 53);
        let rest = (ln_2 - nearest) as f64 / 2.0_f64.powi(120);
        assert!((rest / LN_2_REST - 1.0).abs() < 1e-15, "{rest:e}");
    }
}
