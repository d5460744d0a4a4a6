//! Every code of the narrow formats, against a decoder written from their definitions.

use half::{bf16, f16};
use proptest::prelude::*;
use snellen_numerics::{Format, Underflow};

/// A format as its definition states it: fields of the code and what the top exponent means.
struct Definition {
    format: Format,
    exponent_bits: u32,
    stored_bits: u32,
    bias: i32,
    /// The top exponent holds infinity and NaNs; otherwise (E4M3) only the all-ones code is NaN.
    ieee_top: bool,
}

const NARROW: [Definition; 5] = [
    Definition {
        format: Format::Tf32,
        exponent_bits: 8,
        stored_bits: 10,
        bias: 127,
        ieee_top: true,
    },
    Definition {
        format: Format::Bf16,
        exponent_bits: 8,
        stored_bits: 7,
        bias: 127,
        ieee_top: true,
    },
    Definition {
        format: Format::F16,
        exponent_bits: 5,
        stored_bits: 10,
        bias: 15,
        ieee_top: true,
    },
    Definition {
        format: Format::Fp8E4m3,
        exponent_bits: 4,
        stored_bits: 3,
        bias: 7,
        ieee_top: false,
    },
    Definition {
        format: Format::Fp8E5m2,
        exponent_bits: 5,
        stored_bits: 2,
        bias: 15,
        ieee_top: true,
    },
];

impl Definition {
    /// Number of codes without the sign.
    fn positive_codes(&self) -> u32 {
        1 << (self.exponent_bits + self.stored_bits)
    }

    /// The value of a code without its sign bit.
    fn decode(&self, code: u32) -> f64 {
        let stored = code & ((1 << self.stored_bits) - 1);
        let exponent = code >> self.stored_bits;
        let top = (1 << self.exponent_bits) - 1;
        let fraction = f64::from(stored) / f64::from(1_u32 << self.stored_bits);
        match exponent {
            _ if !self.ieee_top && code == self.positive_codes() - 1 => f64::NAN,
            e if self.ieee_top && e == top && stored == 0 => f64::INFINITY,
            e if self.ieee_top && e == top => f64::NAN,
            0 => fraction * 2.0_f64.powi(1 - self.bias),
            e => (1.0 + fraction) * 2.0_f64.powi(e as i32 - self.bias),
        }
    }

    /// Finite values in ascending order; the index is the code.
    fn finite(&self) -> Vec<f64> {
        let all = (0..self.positive_codes()).map(|code| self.decode(code));
        all.take_while(|value| value.is_finite()).collect()
    }
}

#[track_caller]
fn check_both_signs(format: Format, x: f64, expected: f64) {
    for sign in [1.0, -1.0] {
        let got = format.round(sign * x);
        let same =
            got.to_bits() == (sign * expected).to_bits() || (got.is_nan() && expected.is_nan());
        assert!(
            same,
            "{format}: {:e} rounds to {got:e}, expected {:e}",
            sign * x,
            sign * expected
        );
    }
}

#[test]
fn every_code_is_kept() {
    for definition in &NARROW {
        for code in 0..definition.positive_codes() {
            let value = definition.decode(code);
            check_both_signs(definition.format, value, value);
        }
    }
}

#[test]
fn every_midpoint_goes_to_the_even_code_and_its_neighbours_to_the_nearer() {
    for definition in &NARROW {
        let format = definition.format;
        let values = definition.finite();
        for (code, pair) in values.windows(2).enumerate() {
            let (low, high) = (pair[0], pair[1]);
            let middle = low / 2.0 + high / 2.0;
            check_both_signs(format, low.next_up(), low);
            check_both_signs(format, middle.next_down(), low);
            check_both_signs(format, middle, if code % 2 == 0 { low } else { high });
            check_both_signs(format, middle.next_up(), high);
            check_both_signs(format, high.next_down(), high);
            assert_eq!(format.ulp(low), high - low, "{format}: spacing at {low:e}");
        }
    }
}

/// The value after the largest would be one step higher; from half of that step on (a tie goes to the even code) it is an
/// overflow.
#[test]
fn overflow_starts_half_a_step_above_the_largest_value() {
    for definition in &NARROW {
        let format = definition.format;
        let values = definition.finite();
        let largest = values[values.len() - 1];
        let half_step = (largest - values[values.len() - 2]) / 2.0;
        let overflow = if definition.ieee_top {
            f64::INFINITY
        } else {
            f64::NAN
        };
        // The largest code is odd where infinity follows it, and even in E4M3 (448, S.1111.110).
        let largest_is_even = values.len() % 2 == 1;
        check_both_signs(format, (largest + half_step).next_down(), largest);
        check_both_signs(
            format,
            largest + half_step,
            if largest_is_even { largest } else { overflow },
        );
        check_both_signs(format, (largest + half_step).next_up(), overflow);
        check_both_signs(format, f64::MAX, overflow);
        check_both_signs(format, f64::INFINITY, overflow);
        assert!(format.round(f64::NAN).is_nan());
        assert_eq!(format.max_finite(), largest);
    }
}

#[test]
fn published_parameters() {
    for definition in &NARROW {
        let format = definition.format;
        let values = definition.finite();
        assert_eq!(format.significand_bits(), definition.stored_bits + 1);
        assert_eq!(format.min_subnormal(), values[1]);
        assert_eq!(format.min_normal(), values[1 << definition.stored_bits]);
        assert_eq!(
            format.unit_roundoff(),
            2.0_f64.powi(-(definition.stored_bits as i32) - 1)
        );
        assert_eq!(
            format.max_exponent(),
            format.max_finite().log2().floor() as i32
        );
    }
    // OCP 8-bit floating point specification, revision 1.0, table 1.
    assert_eq!(Format::Fp8E4m3.max_finite(), 448.0);
    assert_eq!(Format::Fp8E5m2.max_finite(), 57344.0);
    assert_eq!(Format::F16.max_finite(), 65504.0);
    assert_eq!(Format::F32.max_finite(), f64::from(f32::MAX));
    assert_eq!(Format::F32.min_normal(), f64::from(f32::MIN_POSITIVE));
    assert_eq!(Format::F32.min_subnormal(), f64::from(f32::from_bits(1)));
    assert_eq!(Format::F64.max_finite(), f64::MAX);
    assert_eq!(Format::F64.min_normal(), f64::MIN_POSITIVE);
    assert_eq!(Format::F64.min_subnormal(), f64::from_bits(1));
    assert_eq!(Format::F64.unit_roundoff(), f64::EPSILON / 2.0);
}

/// Inputs that tell roundings apart: every value, midpoint, and the `f32` neighbours of both.
fn f32_probes(definition: &Definition) -> Vec<f32> {
    let values = definition.finite();
    let middles = values.windows(2).map(|pair| pair[0] / 2.0 + pair[1] / 2.0);
    let centres: Vec<f32> = values
        .iter()
        .copied()
        .chain(middles)
        .map(|x| x as f32)
        .collect();
    centres
        .iter()
        .flat_map(|x| [x.next_down(), *x, x.next_up()])
        .flat_map(|x| [x, -x])
        .collect()
}

/// The `half` crate agrees wherever it is given an `f32`. It is not asked to convert from `f64`: `bf16::from_f64` looks at
/// the upper 32 bits only and `f16::from_f64` may pass through `f32`, so neither is one correct rounding of an `f64`.
#[test]
fn half_crate_agrees_on_every_f32_probe() {
    for x in f32_probes(&NARROW[1]) {
        assert_eq!(
            Format::Bf16.round(f64::from(x)).to_bits(),
            bf16::from_f32(x).to_f64().to_bits(),
            "bf16 of {x:e}"
        );
    }
    for x in f32_probes(&NARROW[2]) {
        assert_eq!(
            Format::F16.round(f64::from(x)).to_bits(),
            f16::from_f32(x).to_f64().to_bits(),
            "f16 of {x:e}"
        );
    }
    for code in 0..=u16::MAX {
        for (ours, theirs) in [
            (&NARROW[1], bf16::from_bits(code).to_f64()),
            (&NARROW[2], f16::from_bits(code).to_f64()),
        ] {
            let value = ours
                .decode(u32::from(code & 0x7fff))
                .copysign(if code >> 15 == 1 { -1.0 } else { 1.0 });
            assert!(
                value.to_bits() == theirs.to_bits() || (value.is_nan() && theirs.is_nan()),
                "code {code:#06x}"
            );
        }
    }
}

/// The `float8` crate agrees below the overflow threshold. Above it, it saturates to the largest value, where a conversion
/// without saturation (ours, and PyTorch's) gives NaN (E4M3) or infinity (E5M2).
#[test]
fn float8_crate_agrees_up_to_overflow() {
    for (definition, convert) in [
        (
            &NARROW[3],
            (|x| float8::F8E4M3::from_f64(x).to_f64()) as fn(f64) -> f64,
        ),
        (&NARROW[4], |x| float8::F8E5M2::from_f64(x).to_f64()),
    ] {
        let format = definition.format;
        let values = definition.finite();
        let middles = values.windows(2).map(|pair| pair[0] / 2.0 + pair[1] / 2.0);
        let centres: Vec<f64> = values.iter().copied().chain(middles).collect();
        for x in centres
            .iter()
            .flat_map(|x| [x.next_down(), *x, x.next_up()])
            .flat_map(|x| [x, -x])
        {
            assert_eq!(
                format.round(x).to_bits(),
                convert(x).to_bits(),
                "{format} of {x:e}"
            );
        }
        let beyond = 2.0 * format.max_finite();
        assert_eq!(convert(beyond), format.max_finite());
        assert!(!format.round(beyond).is_finite());
    }
    for code in 0..=u8::MAX {
        let sign = if code >> 7 == 1 { -1.0 } else { 1.0 };
        for (definition, theirs) in [
            (&NARROW[3], float8::F8E4M3::from_bits(code).to_f64()),
            (&NARROW[4], float8::F8E5M2::from_bits(code).to_f64()),
        ] {
            let ours = definition.decode(u32::from(code & 0x7f)).copysign(sign);
            assert!(
                ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()),
                "code {code:#04x}"
            );
        }
    }
}

/// Just above a tie, by less than an `f32` can tell: rounding through `f32` would find the tie and round down.
#[test]
fn rounding_is_single() {
    let x = 1.0 + 2.0_f64.powi(-8) + 2.0_f64.powi(-40);
    assert_eq!(Format::Bf16.round(x), 1.0 + 2.0_f64.powi(-7));
    assert_eq!(Format::Bf16.round(Format::F32.round(x)), 1.0);
    let x = 1.0 + 2.0_f64.powi(-11) + 2.0_f64.powi(-40);
    assert_eq!(Format::F16.round(x), 1.0 + 2.0_f64.powi(-10));
    assert_eq!(Format::F16.round(Format::F32.round(x)), 1.0);
}

#[test]
fn flushing_looks_at_the_value_before_rounding() {
    for format in Format::ALL {
        let smallest = format.min_normal();
        assert_eq!(format.round_with(smallest, Underflow::Flush), smallest);
        // Rounds to the smallest normal, but is below it.
        let just_below = smallest.next_down();
        assert_eq!(format.round_with(just_below, Underflow::Flush), 0.0);
        assert!(
            format
                .round_with(-just_below, Underflow::Flush)
                .is_sign_negative()
        );
        assert_eq!(
            format.round_with(format.min_subnormal(), Underflow::Gradual),
            format.min_subnormal()
        );
        assert_eq!(format.round_with(1.0, Underflow::Flush), 1.0);
        assert!(format.round_with(f64::NAN, Underflow::Flush).is_nan());
    }
}

#[test]
fn names_and_aliases() {
    for format in Format::ALL {
        assert_eq!(Format::parse(format.name()), Some(format));
        assert_eq!(Format::parse(&format.name().to_uppercase()), Some(format));
        assert_eq!(format.to_string(), format.name());
    }
    for (alias, format) in [
        ("fp16", Format::F16),
        ("torch.float16", Format::F16),
        ("half", Format::F16),
        ("float32", Format::F32),
        ("bfloat16", Format::Bf16),
        ("E4M3", Format::Fp8E4m3),
        ("float8_e4m3fn", Format::Fp8E4m3),
        ("e5m2", Format::Fp8E5m2),
        ("double", Format::F64),
    ] {
        assert_eq!(Format::parse(alias), Some(format), "{alias}");
    }
    for unknown in ["", "int8", "f8", "q4_0"] {
        assert_eq!(Format::parse(unknown), None, "{unknown}");
    }
}

/// Whether `r` is `x` rounded to nearest even, by the definition: `r` is a multiple of the spacing `q` at `x`, no further
/// than `q / 2`, an even multiple in a tie. All steps are exact.
fn is_nearest_even(format: Format, x: f64, r: f64) -> bool {
    let q = format.ulp(x);
    let multiple = r / q;
    let error = (x - r).abs() / q;
    multiple.fract() == 0.0 && (error < 0.5 || (error == 0.5 && multiple % 2.0 == 0.0))
}

/// `f64` of every exponent a format can hold and some more, with few or many significand bits, so that ties occur.
fn any_finite() -> impl Strategy<Value = f64> {
    (any::<bool>(), -160_i32..130, any::<u64>(), 0_u32..53).prop_map(
        |(negative, exponent, bits, zeros)| {
            let fraction = (bits >> 12 >> zeros << zeros) as f64 / 2.0_f64.powi(52);
            (1.0 + fraction) * 2.0_f64.powi(exponent) * if negative { -1.0 } else { 1.0 }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn rounding_meets_its_definition(x in any_finite()) {
        for format in Format::ALL {
            let r = format.round(x);
            prop_assert!(format.holds(r));
            prop_assert_eq!(r.is_sign_negative(), x.is_sign_negative());
            if r.is_finite() {
                prop_assert!(is_nearest_even(format, x, r), "{} of {:e}: {:e}", format, x, r);
            } else {
                prop_assert!(x.abs() > format.max_finite());
            }
        }
    }

    /// tf32 of an `f32` by its bits: round away the lower 13.
    #[test]
    fn tf32_of_f32_by_bits(x in any::<f32>()) {
        let odd = (x.to_bits() >> 13) & 1;
        let expected = f32::from_bits((x.to_bits() + 0xfff + odd) & !0x1fff);
        prop_assert_eq!(Format::Tf32.round(f64::from(x)).to_bits(), f64::from(expected).to_bits());
    }

    #[test]
    fn rounding_is_monotone_and_idempotent(a in any_finite(), b in any_finite()) {
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        for format in Format::ALL {
            let (r_low, r_high) = (format.round(low), format.round(high));
            prop_assert!(r_low <= r_high || r_low.is_nan() || r_high.is_nan());
            prop_assert!(format.round(r_low).to_bits() == r_low.to_bits() || r_low.is_nan());
        }
    }

    #[test]
    fn slices_round_as_single_values(values in prop::collection::vec(any::<f32>(), 0..20)) {
        for format in Format::ALL {
            for underflow in [Underflow::Gradual, Underflow::Flush] {
                let mut rounded = values.clone();
                format.round_slice(&mut rounded, underflow);
                for (r, x) in rounded.iter().zip(&values) {
                    let expected = format.round_with(f64::from(*x), underflow);
                    prop_assert!(f64::from(*r).to_bits() == expected.to_bits() || expected.is_nan() && r.is_nan());
                }
            }
        }
    }
}
