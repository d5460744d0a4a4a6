//! Vectors of f32 behind one small trait, so that every kernel is written once and compiled for each instruction set.
//!
//! A value of a [`Lanes`] type is a proof that the processor has the instructions: it comes from [`Isa::detect`] alone.
//! The methods are `inline(always)`, so that they melt into the entry point that carries `#[target_feature]`; called from
//! anywhere else they would still be right, only slow.
//!
//! Arithmetic is the same on every instruction set that has a fused multiply-add: same operations, same order, same bits.
#![allow(
    unsafe_code,
    reason = "SIMD intrinsics; each block states why it is sound"
)]

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

/// `WIDTH` f32 values and what the kernels do with them. Comparisons with NaN are false; `max` and `min` return the
/// second operand if either is NaN (as the x86 instructions do).
pub(crate) trait Lanes: Copy {
    /// A vector.
    type V: Copy;
    /// One flag per lane.
    type M: Copy;
    /// Lanes of a vector.
    const WIDTH: usize;

    fn splat(self, x: f32) -> Self::V;
    /// The lanes' numbers, from 0.
    #[inline(always)]
    fn iota(self) -> Self::V {
        const IOTA: [f32; 16] = [
            0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.,
        ];
        // SAFETY: no vector is wider than 16.
        unsafe { self.load(IOTA.as_ptr()) }
    }
    /// Reads `WIDTH` values.
    ///
    /// # Safety
    /// `p` is valid for reading `WIDTH` f32; no alignment is asked.
    unsafe fn load(self, p: *const f32) -> Self::V;
    /// Writes `WIDTH` values.
    ///
    /// # Safety
    /// `p` is valid for writing `WIDTH` f32; no alignment is asked.
    unsafe fn store(self, p: *mut f32, x: Self::V);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the processor can.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    fn abs(self, a: Self::V) -> Self::V;
    /// `a < b`
    fn lt(self, a: Self::V, b: Self::V) -> Self::M;
    /// `a <= b`
    fn le(self, a: Self::V, b: Self::V) -> Self::M;
    /// Whether every flag is set.
    fn all(self, m: Self::M) -> bool;
    /// `yes` where the flag is set, else `no`.
    fn select(self, m: Self::M, yes: Self::V, no: Self::V) -> Self::V;
    /// `x * 2^n` for integral `n` with `x` and `x * 2^n` normal numbers; NaN stays NaN; anything else gives anything.
    fn scale_normal(self, x: Self::V, n: Self::V) -> Self::V;
    /// [`Lanes::scale_normal`], but 0 where `t <= cut`.
    #[inline(always)]
    fn scale_above(self, x: Self::V, n: Self::V, t: Self::V, cut: Self::V) -> Self::V {
        self.select(self.le(t, cut), self.splat(0.0), self.scale_normal(x, n))
    }
    /// `x * 2^n` rounded once, for integral `n` in [-160, 130] and `x` in [0.5, 2]; NaN stays NaN.
    fn scale(self, x: Self::V, n: Self::V) -> Self::V;
    /// Rounded to bfloat16, to nearest, ties to even. Not for NaN.
    fn round_bf16(self, x: Self::V) -> Self::V;
    /// Rounded to IEEE half precision, to nearest, ties to even, with subnormals; infinite beyond its largest number. Not for NaN.
    fn round_f16(self, x: Self::V) -> Self::V;
    /// Lanes 1 and up of `x`, then lane 0 of `next`.
    fn shift_in(self, x: Self::V, next: Self::V) -> Self::V;
    /// Counts 1 in every lane whose flag is set. Counters are whole numbers, as bits, from 0 on.
    fn tally(self, m: Self::M, counters: Self::V) -> Self::V;
    /// The sums of two vectors of counters.
    fn add_counters(self, a: Self::V, b: Self::V) -> Self::V;
    /// The sum of some counters.
    #[inline(always)]
    fn tallied(self, counters: Self::V) -> u64 {
        let mut lanes = [0.0_f32; 16];
        // SAFETY: no vector is wider than 16.
        unsafe { self.store(lanes.as_mut_ptr(), counters) };
        lanes.iter().map(|lane| u64::from(lane.to_bits())).sum()
    }
    /// The largest lane. Not for NaN.
    #[inline(always)]
    fn largest(self, x: Self::V) -> f32 {
        let mut lanes = [f32::NEG_INFINITY; 16];
        // SAFETY: no vector is wider than 16.
        unsafe { self.store(lanes.as_mut_ptr(), x) };
        lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
    /// Asks for the cache line at `p`; never faults.
    fn prefetch(self, p: *const f32);
    /// Transposes a `WIDTH` x `WIDTH` block: `dst[c * dst_stride + r] = src[r * src_stride + c]`.
    ///
    /// # Safety
    /// Both blocks are valid for their `WIDTH` rows of `WIDTH` f32, and do not overlap.
    #[inline(always)]
    unsafe fn transpose(
        self,
        src: *const f32,
        src_stride: usize,
        dst: *mut f32,
        dst_stride: usize,
    ) {
        for r in 0..Self::WIDTH {
            for c in 0..Self::WIDTH {
                // SAFETY: inside the two blocks, by the caller's promise.
                unsafe { *dst.add(c * dst_stride + r) = *src.add(r * src_stride + c) };
            }
        }
    }
}

/// Smallest normal number of IEEE half precision, `2^-14`.
const F16_NORMAL: f32 = 1.0 / 16384.0;

/// The instruction sets there is a kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Isa {
    /// The fastest one this processor runs. The standard library caches the answer.
    pub(crate) fn detect() -> Self {
        *Self::available()
            .first()
            .expect("the portable kernel is always there")
    }

    /// The one for tiles of so many lanes, on this processor or on one with less: what it gives is the same.
    pub(crate) fn of_lanes(lanes: usize) -> Self {
        Self::available()
            .iter()
            .copied()
            .find(|isa| lanes.is_multiple_of(isa.width()))
            .unwrap_or(Self::Portable)
    }

    /// Lanes of the tiles that this processor has, see `sized_tile`.
    #[cfg(test)]
    pub(crate) fn tiles() -> &'static [usize] {
        match Self::detect().width() {
            16 => &[8, 16, 48],
            _ => &[8, 16],
        }
    }

    /// Lanes of a vector.
    fn width(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Avx512::WIDTH,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Avx2::WIDTH,
            Self::Portable => Portable::WIDTH,
        }
    }

    /// All that this processor runs, fastest first.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn available() -> &'static [Self] {
        const ALL: &[Isa] = &[Isa::Avx512, Isa::Avx2, Isa::Portable];
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 =
            avx2 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq");
        match (avx512, avx2) {
            (true, _) => ALL,
            (false, true) => &ALL[1..],
            (false, false) => &ALL[2..],
        }
    }

    /// All that this processor runs, fastest first.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn available() -> &'static [Self] {
        &[Isa::Portable]
    }
}

/// Calls the `inline(always)` generic function `$body` with the lanes of `$isa`, inside an entry point compiled for that
/// instruction set.
macro_rules! dispatch {
    ($isa:expr, $body:ident, ($($arg:ident : $ty:ty),*) $(-> $result:ty)? = ($($value:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
        fn avx512($($arg: $ty),*) $(-> $result)? {
            // SAFETY: this function is only called after `Isa` found the features.
            let lanes = unsafe { $crate::lanes::Avx512::new() };
            $body(lanes, $($arg),*)
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn avx2($($arg: $ty),*) $(-> $result)? {
            // SAFETY: as above.
            let lanes = unsafe { $crate::lanes::Avx2::new() };
            $body(lanes, $($arg),*)
        }
        match $isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa::Avx512` comes from `Isa::available`, which asked the processor.
            $crate::lanes::Isa::Avx512 => unsafe { avx512($($value),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise for `Isa::Avx2`.
            $crate::lanes::Isa::Avx2 => unsafe { avx2($($value),*) },
            $crate::lanes::Isa::Portable => $body($crate::lanes::Portable, $($value),*),
        }
    }};
}
pub(crate) use dispatch;

#[cfg(test)]
mod tests {
    use super::*;
    use numerics::Format;

    #[inline(always)]
    fn round<S: Lanes>(s: S, xs: &[f32], out: &mut [[f32; 16]; 2]) {
        // SAFETY: both hold 16 values.
        unsafe {
            for at in (0..16).step_by(S::WIDTH) {
                let x = s.load(xs.as_ptr().add(at));
                s.store(out[0].as_mut_ptr().add(at), s.round_bf16(x));
                s.store(out[1].as_mut_ptr().add(at), s.round_f16(x));
            }
        }
    }

    #[test]
    fn roundings_are_those_of_the_formats_on_every_instruction_set() {
        let edges = [
            65504.0, 65519.996, 65520.0, 65536.0, F16_NORMAL, 1e-8, 2.98e-8, 0.0,
        ];
        for &isa in Isa::available() {
            for start in (0..u32::MAX - 16 * 4099).step_by(16 * 4099) {
                let mut xs: [f32; 16] = std::array::from_fn(|i| {
                    let x = f32::from_bits(start + 4099 * i as u32);
                    if x.is_nan() { 1.0 } else { x }
                });
                if start == 0 {
                    xs[..8].copy_from_slice(&edges);
                }
                let mut out = [[0.0; 16]; 2];
                let (xs, to) = (&xs[..], &mut out);
                dispatch!(isa, round, (xs: &[f32], to: &mut [[f32; 16]; 2]) = (xs, to));
                for (out, format) in out.iter().zip([Format::Bf16, Format::F16]) {
                    for (x, y) in xs.iter().zip(out) {
                        let expected = format.round(f64::from(*x));
                        assert_eq!(f64::from(*y), expected, "{x:e} to {format}, {isa:?}");
                    }
                }
            }
        }
    }
}
