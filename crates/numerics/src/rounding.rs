//! Roundings of f32 to 16 bits, fast enough for loops over every pair.

use crate::format::Format;

/// A rounding of f32 values, to nearest, ties to even.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// None.
    Keep,
    /// To bfloat16.
    Bf16,
    /// To IEEE half precision, with subnormals; infinite beyond its largest number.
    F16,
}

impl Rounding {
    /// The rounding to a format; `None` where there is no fast one.
    pub const fn of(format: Format) -> Option<Self> {
        match format {
            Format::F32 => Some(Self::Keep),
            Format::Bf16 => Some(Self::Bf16),
            Format::F16 => Some(Self::F16),
            _ => None,
        }
    }

    /// As [`Format::round`], in f32.
    #[inline(always)]
    pub fn apply(self, x: f32) -> f32 {
        match self {
            Self::Keep => x,
            Self::Bf16 => round_bf16(x),
            Self::F16 => round_f16(x),
        }
    }
}

/// A rounding of f32 values to a format: the fast one where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// With a fast rounding.
    Fast(Rounding),
    /// By the format's own rounding.
    Other(Format),
}

impl Cast {
    /// Leaves every value as it is.
    pub const KEEP: Self = Self::Fast(Rounding::Keep);
    /// To bfloat16.
    pub const BF16: Self = Self::Fast(Rounding::Bf16);
    /// To IEEE half precision.
    pub const F16: Self = Self::Fast(Rounding::F16);

    /// The cast to a format. Every f32 is an f64, so that one changes nothing.
    pub const fn to(format: Format) -> Self {
        match (format, Rounding::of(format)) {
            (Format::F64, _) => Self::KEEP,
            (_, Some(rounding)) => Self::Fast(rounding),
            (other, None) => Self::Other(other),
        }
    }

    /// As [`Format::round`], in f32.
    #[inline(always)]
    pub fn apply(self, x: f32) -> f32 {
        match self {
            Self::Fast(rounding) => rounding.apply(x),
            Self::Other(format) => format.round(f64::from(x)) as f32,
        }
    }
}

// The roundings work on bits and choose without branches, so that loops over them vectorise. Bits of magnitudes are compared
// as signed numbers, which is what the baseline instruction set can do.

/// Bits of the f32 infinity; magnitudes above it are NaN.
const INFINITY_BITS: i32 = 0x7f80_0000;

/// Adds just under half a step, or half where the kept part is odd; carries and infinities come out right.
#[inline(always)]
pub(crate) fn round_bf16(x: f32) -> f32 {
    let bits = x.to_bits() as i32;
    let magnitude = bits & i32::MAX;
    let odd = (magnitude >> 16) & 1;
    let rounded = magnitude.wrapping_add(0x7fff + odd) & !0xffff;
    let is_nan = magnitude > INFINITY_BITS;
    let chosen = if is_nan { magnitude } else { rounded };
    f32::from_bits((chosen | (bits & i32::MIN)) as u32)
}

#[inline(always)]
pub(crate) fn round_f16(x: f32) -> f32 {
    // Bits of 2^-14, the smallest normal f16, and of 65504, the largest.
    const MIN_NORMAL_BITS: i32 = 0x3880_0000;
    const MAX_BITS: i32 = 0x477f_e000;
    let bits = x.to_bits() as i32;
    let magnitude = bits & i32::MAX;
    // f32 numbers next to 0.5 are 2^-24 apart, the smallest f16 subnormal.
    let small = ((x.abs() + 0.5) - 0.5).to_bits() as i32;
    let odd = (magnitude >> 13) & 1;
    let large = magnitude.wrapping_add(0x0fff + odd) & !0x1fff;
    let rounded = if magnitude < MIN_NORMAL_BITS {
        small
    } else {
        large
    };
    let bounded = if rounded > MAX_BITS {
        INFINITY_BITS
    } else {
        rounded
    };
    let is_nan = magnitude > INFINITY_BITS;
    let chosen = if is_nan { magnitude } else { bounded };
    f32::from_bits((chosen | (bits & i32::MIN)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every f32 near every f16 and bf16 value and every tie, against the general rounding: all upper halves, with the lower
    /// bits that decide.
    #[test]
    fn fast_roundings_are_the_general_ones() {
        let same =
            |a: f32, b: f64| (a.is_nan() && b.is_nan()) || f64::from(a).to_bits() == b.to_bits();
        for upper in 0..=0xffff_u32 {
            for lower in [
                0, 1, 0x0fff, 0x1000, 0x1001, 0x1fff, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000,
                0x8001, 0xefff, 0xf000, 0xf001, 0xffff,
            ] {
                let x = f32::from_bits(upper << 16 | lower);
                let wide = f64::from(x);
                assert!(same(round_bf16(x), Format::Bf16.round(wide)), "bf16 {x:e}");
                assert!(same(round_f16(x), Format::F16.round(wide)), "f16 {x:e}");
            }
        }
    }
}
