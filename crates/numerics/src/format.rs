//! Binary floating-point formats and one correct rounding into each of them, from an `f64` carrier.
//!
//! A format is an argument, never a tensor's dtype: every step of a precision plan names the one it rounds to. All formats
//! here are subsets of `f64`, so a value *in* a format is simply an `f64`. [`Format::round`] performs a single
//! round-to-nearest-even from the `f64` it is given; rounding through an intermediate format would round twice.

use std::fmt;

/// A binary floating-point format with `p` significand bits and smallest normal exponent `emin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// NVIDIA TensorFloat-32: the exponent of `f32` with 10 stored significand bits.
    Tf32,
    /// bfloat16: the upper half of an `f32`.
    Bf16,
    /// IEEE 754 binary16.
    F16,
    /// OCP 8-bit E4M3 (`e4m3fn`): no infinity, one NaN per sign, largest value 448.
    Fp8E4m3,
    /// OCP 8-bit E5M2: IEEE-like, with infinities.
    Fp8E5m2,
}

/// What happens to results too small to be normal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Underflow {
    /// IEEE 754: subnormals are kept.
    Gradual,
    /// Flush to zero: a result whose magnitude is below the smallest normal number *before rounding* becomes 0.
    Flush,
}

/// Significand bits of the `f64` carrier that are stored (without the hidden bit).
const F64_STORED_BITS: u32 = 52;

impl Format {
    /// Every format, widest first.
    pub const ALL: [Format; 7] = [
        Format::F64,
        Format::F32,
        Format::Tf32,
        Format::Bf16,
        Format::F16,
        Format::Fp8E4m3,
        Format::Fp8E5m2,
    ];

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Format::F64 => "f64",
            Format::F32 => "f32",
            Format::Tf32 => "tf32",
            Format::Bf16 => "bf16",
            Format::F16 => "f16",
            Format::Fp8E4m3 => "fp8-e4m3",
            Format::Fp8E5m2 => "fp8-e5m2",
        }
    }

    /// Reads a name or one of its common aliases (`fp16`, `float32`, `bfloat16`, `half`, `e4m3`, ...), ignoring case and
    /// treating `_` as `-`. A leading `torch.` is dropped.
    pub fn parse(s: &str) -> Option<Format> {
        let lower = s.trim().to_ascii_lowercase().replace('_', "-");
        let name = lower.strip_prefix("torch.").unwrap_or(&lower);
        Some(match name {
            "f64" | "fp64" | "float64" | "double" => Format::F64,
            "f32" | "fp32" | "float32" | "float" | "single" => Format::F32,
            "tf32" | "tensorfloat32" | "tensorfloat-32" => Format::Tf32,
            "bf16" | "bfloat16" => Format::Bf16,
            "f16" | "fp16" | "float16" | "half" => Format::F16,
            "fp8-e4m3" | "fp8e4m3" | "f8e4m3" | "f8-e4m3" | "e4m3" | "e4m3fn" | "float8-e4m3"
            | "float8-e4m3fn" | "fp8-e4m3fn" | "f8-e4m3fn" => Format::Fp8E4m3,
            "fp8-e5m2" | "fp8e5m2" | "f8e5m2" | "f8-e5m2" | "e5m2" | "float8-e5m2" => {
                Format::Fp8E5m2
            }
            _ => return None,
        })
    }

    /// Significand bits including the hidden one: `p`.
    pub const fn significand_bits(self) -> u32 {
        match self {
            Format::F64 => 53,
            Format::F32 => 24,
            Format::Tf32 | Format::F16 => 11,
            Format::Bf16 => 8,
            Format::Fp8E4m3 => 4,
            Format::Fp8E5m2 => 3,
        }
    }

    /// Exponent of the smallest normal number: `emin`, so that the smallest normal is `2^emin`.
    pub const fn min_exponent(self) -> i32 {
        match self {
            Format::F64 => -1022,
            Format::F32 | Format::Tf32 | Format::Bf16 => -126,
            Format::F16 | Format::Fp8E5m2 => -14,
            Format::Fp8E4m3 => -6,
        }
    }

    /// Exponent of the smallest positive number: `emin - (p - 1)`, so that the smallest subnormal is `2^` this.
    pub const fn min_subnormal_exponent(self) -> i32 {
        self.min_exponent() - (self.significand_bits() as i32 - 1)
    }

    /// Exponent of the largest binade: the largest finite number lies in `[2^emax, 2^(emax+1))`.
    pub const fn max_exponent(self) -> i32 {
        match self {
            Format::F64 => 1023,
            Format::F32 | Format::Tf32 | Format::Bf16 => 127,
            Format::F16 | Format::Fp8E5m2 => 15,
            Format::Fp8E4m3 => 8,
        }
    }

    /// Largest finite number.
    pub fn max_finite(self) -> f64 {
        // E4M3 spends the top significand of the top binade on NaN, so its largest value is one step lower.
        let steps_below_two = if self == Format::Fp8E4m3 { 2.0 } else { 1.0 };
        let step = power_of_two(1 - self.significand_bits() as i32);
        (2.0 - steps_below_two * step) * power_of_two(self.max_exponent())
    }

    /// Smallest positive normal number, `2^emin`.
    pub fn min_normal(self) -> f64 {
        power_of_two(self.min_exponent())
    }

    /// Smallest positive number with gradual underflow, `2^(emin - p + 1)`.
    pub fn min_subnormal(self) -> f64 {
        power_of_two(self.min_subnormal_exponent())
    }

    /// Unit roundoff `2^-p`: the largest relative error of one rounding in the normal range.
    pub fn unit_roundoff(self) -> f64 {
        power_of_two(-(self.significand_bits() as i32))
    }

    /// `x` rounded once to this format: to nearest, ties to even, gradual underflow.
    ///
    /// Overflow gives an infinity of the same sign, or NaN in E4M3, which has no infinity (and whose infinite inputs are NaN
    /// too). The sign of zero is kept.
    #[inline]
    pub fn round(self, x: f64) -> f64 {
        match self {
            Format::F64 => x,
            // The hardware conversion is the same single rounding; a test compares the two.
            Format::F32 => f64::from(x as f32),
            _ => self.round_by_bits(x),
        }
    }

    /// [`Format::round`], or with [`Underflow::Flush`] zero (of the same sign) where `|x|` is below the smallest normal.
    pub fn round_with(self, x: f64, underflow: Underflow) -> f64 {
        match underflow {
            Underflow::Flush if x.abs() < self.min_normal() => 0.0_f64.copysign(x),
            Underflow::Flush | Underflow::Gradual => self.round(x),
        }
    }

    /// [`Format::round_with`] on every element. Exact: an `f32` holds every value of every format but `f64`, and `f64`
    /// leaves `f32` values as they are.
    pub fn round_slice(self, values: &mut [f32], underflow: Underflow) {
        if matches!(
            (self, underflow),
            (Format::F64 | Format::F32, Underflow::Gradual)
        ) {
            return;
        }
        for value in values {
            *value = self.round_with(f64::from(*value), underflow) as f32;
        }
    }

    /// Whether `x` is a value of this format (NaN is; an infinity is, except in E4M3).
    pub fn holds(self, x: f64) -> bool {
        x.is_nan() || self.round(x) == x
    }

    /// Distance between neighbouring values of this format at `|x|` (the upper side at a power of two).
    ///
    /// The smallest subnormal at 0; the spacing of the top binade beyond the largest finite number; NaN for a NaN or an
    /// infinity.
    pub fn ulp(self, x: f64) -> f64 {
        if !x.is_finite() {
            return f64::NAN;
        }
        let exponent = floor_log2(x).clamp(self.min_exponent(), self.max_exponent());
        power_of_two(exponent - (self.significand_bits() as i32 - 1))
    }

    /// Rounding on the bits of the carrier; for formats narrower than `f64`.
    fn round_by_bits(self, x: f64) -> f64 {
        debug_assert!(self != Format::F64, "f64 needs no rounding");
        if x.is_nan() || x == 0.0 {
            return x;
        }
        let magnitude = x.abs();
        let rounded = if magnitude < self.min_normal() {
            // One spacing for all subnormals. At `anchor` the spacing of f64 is exactly that, so the addition rounds to
            // nearest even and the subtraction is exact.
            let anchor = power_of_two(self.min_subnormal_exponent() + F64_STORED_BITS as i32);
            (magnitude + anchor) - anchor
        } else {
            // Add just under half a step, or exactly half where the kept part is odd; a carry into the exponent field is
            // the right result.
            let dropped = F64_STORED_BITS + 1 - self.significand_bits();
            let bits = magnitude.to_bits();
            let odd = (bits >> dropped) & 1;
            let half_step = (1_u64 << (dropped - 1)) - 1 + odd;
            if magnitude.is_finite() {
                f64::from_bits((bits + half_step) >> dropped << dropped)
            } else {
                magnitude
            }
        };
        let overflow = if self == Format::Fp8E4m3 {
            f64::NAN
        } else {
            f64::INFINITY
        };
        if rounded > self.max_finite() {
            overflow.copysign(x)
        } else {
            rounded.copysign(x)
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// `2^exponent`, exact, for every exponent an `f64` can hold (subnormals included); 0 or infinity beyond.
pub(crate) fn power_of_two(exponent: i32) -> f64 {
    match exponent {
        1024.. => f64::INFINITY,
        -1022..=1023 => f64::from_bits(((exponent + 1023) as u64) << F64_STORED_BITS),
        -1074..=-1023 => f64::from_bits(1_u64 << (exponent + 1074)),
        _ => 0.0,
    }
}

/// `floor(log2 |x|)` of a finite `x`; a very small number for 0.
fn floor_log2(x: f64) -> i32 {
    let bits = x.abs().to_bits();
    match (bits >> F64_STORED_BITS) as i32 {
        0 if bits == 0 => i32::MIN / 2,
        0 => (63 - bits.leading_zeros() as i32) - 1074,
        biased => biased - 1023,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn powers_of_two_over_the_whole_range() {
        for exponent in -1074..=1023 {
            // Two factors, as `powi(-1074)` alone may go through the reciprocal of an infinity.
            let half = exponent / 2;
            let expected = 2.0_f64.powi(half) * 2.0_f64.powi(exponent - half);
            assert_eq!(power_of_two(exponent), expected);
            assert_eq!(floor_log2(expected), exponent);
        }
        assert_eq!(power_of_two(1024), f64::INFINITY);
        assert_eq!(power_of_two(-1075), 0.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// The bit algorithm that serves the narrow formats, on the one format that has a hardware conversion beside it.
        #[test]
        fn rounding_by_bits_is_the_hardware_conversion_to_f32(
            x in prop_oneof![
                any::<u64>().prop_map(f64::from_bits),
                // Neighbourhoods of f32 values and of their midpoints, subnormals included.
                (any::<f32>(), -2_i64..=2, any::<bool>()).prop_map(|(x, steps, middle)| {
                    let centre = if middle { f64::from(x) / 2.0 + f64::from(x.next_up()) / 2.0 } else { f64::from(x) };
                    f64::from_bits(centre.to_bits().wrapping_add_signed(steps))
                }),
            ],
        ) {
            let expected = f64::from(x as f32);
            let got = Format::F32.round_by_bits(x);
            prop_assert!(got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(), "{:e}", x);
        }
    }
}
