//! Eight lanes in plain Rust: whatever the compiler makes of them.
#![allow(unsafe_code, reason = "implements the raw loads and stores of `Lanes`")]
#![allow(
    clippy::needless_range_loop,
    reason = "several arrays of lanes side by side"
)]

use super::{F16_NORMAL, Lanes};

/// Lanes without intrinsics, available everywhere.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

const W: usize = 8;
type V = [f32; W];

#[inline(always)]
fn map(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
    let mut out = [0.0; W];
    for i in 0..W {
        out[i] = f(a[i], b[i]);
    }
    out
}

/// Fused where the target has the instruction at compile time. Elsewhere `mul_add` would be a slow library call.
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

fn round_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000)
}

fn round_f16(x: f32) -> f32 {
    let size = x.abs();
    let bits = size.to_bits();
    let rounded = if size < F16_NORMAL {
        // Next to 0.5, f32 numbers are 2^-24 apart: the smallest f16 subnormal.
        (size + 0.5) - 0.5
    } else {
        f32::from_bits(bits.wrapping_add(0x0fff + ((bits >> 13) & 1)) & 0xffff_e000)
    };
    let bounded = if rounded > 65504.0 {
        f32::INFINITY
    } else {
        rounded
    };
    bounded.copysign(x)
}

/// `2^n` for integral `n` in [-126, 127].
#[inline(always)]
fn pow2(n: f32) -> f32 {
    f32::from_bits((((n as i32) + 127) as u32) << 23)
}

impl Lanes for Portable {
    type V = V;
    type M = [bool; W];
    const WIDTH: usize = W;

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [x; W]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> V {
        // SAFETY: valid for `W` f32 by the caller's promise; unaligned read.
        unsafe { p.cast::<V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: V) {
        // SAFETY: as for `load`.
        unsafe { p.cast::<V>().write_unaligned(x) }
    }
    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        map(a, b, |x, y| x + y)
    }
    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        map(a, b, |x, y| x - y)
    }
    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        map(a, b, |x, y| x * y)
    }
    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        map(a, b, |x, y| x / y)
    }
    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        let mut out = [0.0; W];
        for i in 0..W {
            out[i] = fused(a[i], b[i], c[i]);
        }
        out
    }
    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        map(a, b, |x, y| if x > y { x } else { y })
    }
    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        map(a, b, |x, y| if x < y { x } else { y })
    }
    #[inline(always)]
    fn abs(self, a: V) -> V {
        map(a, a, |x, _| x.abs())
    }
    #[inline(always)]
    fn le(self, a: V, b: V) -> [bool; W] {
        let mut out = [false; W];
        for i in 0..W {
            out[i] = a[i] <= b[i];
        }
        out
    }
    #[inline(always)]
    fn lt(self, a: V, b: V) -> [bool; W] {
        let mut out = [false; W];
        for i in 0..W {
            out[i] = a[i] < b[i];
        }
        out
    }
    #[inline(always)]
    fn all(self, m: [bool; W]) -> bool {
        m.iter().all(|&x| x)
    }
    #[inline(always)]
    fn select(self, m: [bool; W], yes: V, no: V) -> V {
        let mut out = [0.0; W];
        for i in 0..W {
            out[i] = if m[i] { yes[i] } else { no[i] };
        }
        out
    }
    #[inline(always)]
    fn scale_normal(self, x: V, n: V) -> V {
        // `n` goes straight into the exponent: 2^n itself may be out of range.
        map(x, n, |x, n| {
            f32::from_bits(x.to_bits().wrapping_add(((n as i32) << 23) as u32))
        })
    }
    #[inline(always)]
    fn scale(self, x: V, n: V) -> V {
        // Two steps, because 2^n itself may be out of range; the first is exact, only the second rounds.
        map(x, n, |x, n| {
            let half = (n * 0.5).floor();
            x * pow2(half) * pow2(n - half)
        })
    }
    #[inline(always)]
    fn round_bf16(self, x: V) -> V {
        x.map(round_bf16)
    }
    #[inline(always)]
    fn round_f16(self, x: V) -> V {
        x.map(round_f16)
    }
    #[inline(always)]
    fn shift_in(self, x: V, next: V) -> V {
        let mut out = [next[0]; W];
        out[..W - 1].copy_from_slice(&x[1..]);
        out
    }
    #[inline(always)]
    fn tally(self, m: [bool; W], counters: V) -> V {
        let mut out = counters;
        for i in 0..W {
            out[i] = f32::from_bits(counters[i].to_bits() + u32::from(m[i]));
        }
        out
    }
    #[inline(always)]
    fn add_counters(self, a: V, b: V) -> V {
        map(a, b, |x, y| {
            f32::from_bits(x.to_bits().wrapping_add(y.to_bits()))
        })
    }
    #[inline(always)]
    fn prefetch(self, _p: *const f32) {}
}
