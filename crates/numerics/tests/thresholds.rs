//! Thresholds against the table they are published in, against exact arithmetic, and against exponentials.

use snellen_numerics::{Format, Underflow, exp_zero_threshold, exp_zero_threshold_scaled};

/// docs/NUMERICS.md, Thresholds: format, ln(min subnormal), gradual, flushed, and the decimals they are printed with.
const GOLDEN: [(Format, f64, f64, f64); 5] = [
    (Format::F32, -103.2789, -103.9721, -87.3365),
    (Format::Bf16, -92.1886, -92.8817, -87.3365),
    (Format::F16, -16.6355, -17.3287, -9.7041),
    (Format::Fp8E5m2, -11.0904, -11.7835, -9.7041),
    (Format::Fp8E4m3, -6.2383, -6.9315, -4.1589),
];

#[track_caller]
fn assert_printed(got: f64, printed: f64, decimals: i32) {
    // One unit of the last decimal: the source rounds in places and truncates in others.
    assert!(
        (got - printed).abs() <= 10.0_f64.powi(-decimals),
        "{got}, printed as {printed}"
    );
}

#[test]
fn golden_table() {
    for (format, ln_subnormal, gradual, flush) in GOLDEN {
        assert_printed(format.min_subnormal().ln(), ln_subnormal, 4);
        assert_printed(exp_zero_threshold(format, Underflow::Gradual), gradual, 4);
        assert_printed(exp_zero_threshold(format, Underflow::Flush), flush, 4);
    }
    assert_printed(
        exp_zero_threshold(Format::F64, Underflow::Gradual),
        -745.13,
        2,
    );
    assert_printed(
        exp_zero_threshold(Format::F64, Underflow::Flush),
        -708.40,
        2,
    );
    assert_printed(
        exp_zero_threshold_scaled(Format::Fp8E4m3, Underflow::Gradual, 8),
        -12.48,
        2,
    );
}

/// ln 2 in units of 2^-100, exact to 101 such units: the sum of 1 / (k 2^k).
fn ln_2_fixed() -> i128 {
    (1..=100).map(|k: i128| (1 << (100 - k)) / k).sum()
}

/// A value below 2^10 whose last bit is at least 2^-60, in units of 2^-100.
fn fixed(x: f64) -> i128 {
    let scaled = x * 2.0_f64.powi(60);
    assert_eq!(scaled.fract(), 0.0, "{x} has bits below 2^-60");
    (scaled as i128) << 40
}

/// The threshold is the smallest `f64` above the true logarithm, for every format: then `x < threshold` decides exactly.
#[test]
fn thresholds_are_the_logarithm_rounded_up() {
    let ln_2 = ln_2_fixed();
    for format in Format::ALL {
        for (underflow, log2) in [
            (Underflow::Gradual, format.min_subnormal_exponent() - 1),
            (Underflow::Flush, format.min_exponent()),
        ] {
            let threshold = exp_zero_threshold(format, underflow);
            let exact = i128::from(log2) * ln_2;
            // The sum above is short by at most 101 units; the exponents multiply that.
            let slack = i128::from(log2.abs()) * 101;
            assert!(exact + slack < fixed(threshold), "{format} {underflow:?}");
            assert!(
                fixed(threshold.next_down()) < exact - slack,
                "{format} {underflow:?}"
            );
        }
    }
}

/// Rounding the exponential itself: zero just below the threshold, not zero just above.
#[test]
fn exponentials_vanish_at_the_threshold() {
    for format in Format::ALL {
        for underflow in [Underflow::Gradual, Underflow::Flush] {
            let threshold = exp_zero_threshold(format, underflow);
            // Wide enough for the error of `exp` at -745 (an argument is known to 2^-43 there).
            let nudge = 1e-11;
            assert_eq!(
                format.round_with((threshold - nudge).exp(), underflow),
                0.0,
                "{format} {underflow:?}"
            );
            assert!(
                format.round_with((threshold + nudge).exp(), underflow) > 0.0,
                "{format} {underflow:?}"
            );
        }
    }
}

#[test]
fn f32_exponential_of_the_standard_library_agrees() {
    let threshold = exp_zero_threshold(Format::F32, Underflow::Gradual) as f32;
    assert_eq!((threshold - 1e-4).exp(), 0.0);
    assert!((threshold + 1e-4).exp() > 0.0);
}
