//! Lanes of x86-64: AVX-512 (16) and AVX2 with FMA (8).
#![allow(unsafe_code, reason = "std::arch intrinsics")]

use std::arch::x86_64::*;

use super::{F16_NORMAL, Lanes};

/// Sixteen lanes. The private field makes [`Avx512::new`] the only way to one.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// Eight lanes.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx512 {
    /// # Safety
    /// The processor has avx512f, avx512dq, avx2 and fma.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Avx2 {
    /// # Safety
    /// The processor has avx2 and fma.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

// SAFETY of every block below that has no comment of its own: the instruction exists on this processor, because a value
// of the type exists, and only `new` makes one. Loads and stores add the caller's promise about the pointer.

impl Lanes for Avx512 {
    type V = __m512;
    type M = __mmask16;
    const WIDTH: usize = 16;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: __m512) {
        unsafe { _mm512_storeu_ps(p, x) }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    fn le(self, a: __m512, b: __m512) -> __mmask16 {
        unsafe { _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b) }
    }
    #[inline(always)]
    fn lt(self, a: __m512, b: __m512) -> __mmask16 {
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
    }
    #[inline(always)]
    fn all(self, m: __mmask16) -> bool {
        m == 0xffff
    }
    #[inline(always)]
    fn select(self, m: __mmask16, yes: __m512, no: __m512) -> __m512 {
        unsafe { _mm512_mask_blend_ps(m, no, yes) }
    }
    #[inline(always)]
    fn scale_normal(self, x: __m512, n: __m512) -> __m512 {
        unsafe { _mm512_scalef_ps(x, n) }
    }
    #[inline(always)]
    fn scale_above(self, x: __m512, n: __m512, t: __m512, cut: __m512) -> __m512 {
        unsafe { _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask::<_CMP_NLE_UQ>(t, cut), x, n) }
    }
    #[inline(always)]
    fn scale(self, x: __m512, n: __m512) -> __m512 {
        unsafe { _mm512_scalef_ps(x, n) }
    }
    #[inline(always)]
    fn round_bf16(self, x: __m512) -> __m512 {
        unsafe {
            let bits = _mm512_castps_si512(x);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
            let up = _mm512_add_epi32(bits, half);
            _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(-0x1_0000)))
        }
    }
    #[inline(always)]
    fn round_f16(self, x: __m512) -> __m512 {
        unsafe {
            const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
            _mm512_cvtph_ps(_mm512_cvtps_ph::<NEAREST>(x))
        }
    }
    #[inline(always)]
    fn shift_in(self, x: __m512, next: __m512) -> __m512 {
        unsafe {
            let (x, next) = (_mm512_castps_si512(x), _mm512_castps_si512(next));
            _mm512_castsi512_ps(_mm512_alignr_epi32::<1>(next, x))
        }
    }
    #[inline(always)]
    fn tally(self, m: __mmask16, counters: __m512) -> __m512 {
        unsafe {
            let from = _mm512_castps_si512(counters);
            let minus_one = _mm512_set1_epi32(-1);
            _mm512_castsi512_ps(_mm512_mask_sub_epi32(from, m, from, minus_one))
        }
    }
    #[inline(always)]
    fn add_counters(self, a: __m512, b: __m512) -> __m512 {
        unsafe {
            let (a, b) = (_mm512_castps_si512(a), _mm512_castps_si512(b));
            _mm512_castsi512_ps(_mm512_add_epi32(a, b))
        }
    }
    #[inline(always)]
    fn tallied(self, counters: __m512) -> u64 {
        unsafe { _mm512_reduce_add_epi32(_mm512_castps_si512(counters)) as u32 as u64 }
    }
    #[inline(always)]
    fn largest(self, x: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(x) }
    }
    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        src: *const f32,
        src_stride: usize,
        dst: *mut f32,
        dst_stride: usize,
    ) {
        unsafe {
            let mut r = [_mm512_setzero_ps(); 16];
            for (i, x) in r.iter_mut().enumerate() {
                *x = _mm512_loadu_ps(src.add(i * src_stride));
            }
            // 2x2 blocks of f32, then of pairs, then of 128-bit quarters twice.
            let mut t = r;
            for i in 0..8 {
                t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
            }
            let mut u = t;
            for b in [0, 4, 8, 12] {
                let p = [
                    _mm512_castps_pd(t[b]),
                    _mm512_castps_pd(t[b + 1]),
                    _mm512_castps_pd(t[b + 2]),
                    _mm512_castps_pd(t[b + 3]),
                ];
                u[b] = _mm512_castpd_ps(_mm512_unpacklo_pd(p[0], p[2]));
                u[b + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p[0], p[2]));
                u[b + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(p[1], p[3]));
                u[b + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(p[1], p[3]));
            }
            for i in 0..4 {
                let a0 = _mm512_shuffle_f32x4::<0x88>(u[i], u[4 + i]);
                let a1 = _mm512_shuffle_f32x4::<0xdd>(u[i], u[4 + i]);
                let b0 = _mm512_shuffle_f32x4::<0x88>(u[8 + i], u[12 + i]);
                let b1 = _mm512_shuffle_f32x4::<0xdd>(u[8 + i], u[12 + i]);
                r[i] = _mm512_shuffle_f32x4::<0x88>(a0, b0);
                r[4 + i] = _mm512_shuffle_f32x4::<0x88>(a1, b1);
                r[8 + i] = _mm512_shuffle_f32x4::<0xdd>(a0, b0);
                r[12 + i] = _mm512_shuffle_f32x4::<0xdd>(a1, b1);
            }
            for (i, x) in r.iter().enumerate() {
                _mm512_storeu_ps(dst.add(i * dst_stride), *x);
            }
        }
    }
}

/// `2^n` for integral `n` in [-126, 127].
#[inline(always)]
fn pow2_avx2(_proof: Avx2, n: __m256) -> __m256 {
    unsafe {
        let e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(e))
    }
}

impl Lanes for Avx2 {
    type V = __m256;
    type M = __m256;
    const WIDTH: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, x: __m256) {
        unsafe { _mm256_storeu_ps(p, x) }
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
    }
    #[inline(always)]
    fn le(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_cmp_ps::<_CMP_LE_OQ>(a, b) }
    }
    #[inline(always)]
    fn lt(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(a, b) }
    }
    #[inline(always)]
    fn all(self, m: __m256) -> bool {
        unsafe { _mm256_movemask_ps(m) == 0xff }
    }
    #[inline(always)]
    fn select(self, m: __m256, yes: __m256, no: __m256) -> __m256 {
        unsafe { _mm256_blendv_ps(no, yes, m) }
    }
    #[inline(always)]
    fn scale_normal(self, x: __m256, n: __m256) -> __m256 {
        // `n` goes straight into the exponent: 2^n itself may be out of range.
        unsafe {
            let e = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), e))
        }
    }
    #[inline(always)]
    fn scale(self, x: __m256, n: __m256) -> __m256 {
        // Two steps, because 2^n itself may be out of range; the first is exact, only the second rounds.
        let half = unsafe { _mm256_floor_ps(_mm256_mul_ps(n, _mm256_set1_ps(0.5))) };
        let first = self.mul(x, pow2_avx2(self, half));
        self.mul(first, pow2_avx2(self, self.sub(n, half)))
    }
    #[inline(always)]
    fn round_bf16(self, x: __m256) -> __m256 {
        unsafe {
            let bits = _mm256_castps_si256(x);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let half = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd);
            let up = _mm256_add_epi32(bits, half);
            _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(-0x1_0000)))
        }
    }
    #[inline(always)]
    fn round_f16(self, x: __m256) -> __m256 {
        // The conversion is another feature, F16C.
        unsafe {
            let sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0));
            let size = self.abs(x);
            let bits = _mm256_castps_si256(size);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<13>(bits), _mm256_set1_epi32(1));
            let half = _mm256_add_epi32(_mm256_set1_epi32(0x0fff), odd);
            let up = _mm256_add_epi32(bits, half);
            let large = _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(-0x2000)));
            // Next to 0.5, f32 numbers are 2^-24 apart: the smallest f16 subnormal.
            let half = self.splat(0.5);
            let small = self.sub(self.add(size, half), half);
            let rounded = self.select(self.lt(size, self.splat(F16_NORMAL)), small, large);
            let beyond = self.lt(self.splat(65504.0), rounded);
            let rounded = self.select(beyond, self.splat(f32::INFINITY), rounded);
            _mm256_or_ps(rounded, sign)
        }
    }
    #[inline(always)]
    fn shift_in(self, x: __m256, next: __m256) -> __m256 {
        unsafe {
            let order = _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 0);
            _mm256_permutevar8x32_ps(_mm256_blend_ps::<1>(x, next), order)
        }
    }
    #[inline(always)]
    fn tally(self, m: __m256, counters: __m256) -> __m256 {
        // A flag is -1.
        unsafe {
            let (from, flags) = (_mm256_castps_si256(counters), _mm256_castps_si256(m));
            _mm256_castsi256_ps(_mm256_sub_epi32(from, flags))
        }
    }
    #[inline(always)]
    fn add_counters(self, a: __m256, b: __m256) -> __m256 {
        unsafe {
            let (a, b) = (_mm256_castps_si256(a), _mm256_castps_si256(b));
            _mm256_castsi256_ps(_mm256_add_epi32(a, b))
        }
    }
    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        src: *const f32,
        src_stride: usize,
        dst: *mut f32,
        dst_stride: usize,
    ) {
        unsafe {
            let mut r = [_mm256_setzero_ps(); 8];
            for (i, x) in r.iter_mut().enumerate() {
                *x = _mm256_loadu_ps(src.add(i * src_stride));
            }
            // 2x2 blocks of f32, then of pairs, then of 128-bit halves.
            let mut t = r;
            for i in 0..4 {
                t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
            }
            let mut u = t;
            for b in [0, 4] {
                u[b] = _mm256_shuffle_ps::<0x44>(t[b], t[b + 2]);
                u[b + 1] = _mm256_shuffle_ps::<0xee>(t[b], t[b + 2]);
                u[b + 2] = _mm256_shuffle_ps::<0x44>(t[b + 1], t[b + 3]);
                u[b + 3] = _mm256_shuffle_ps::<0xee>(t[b + 1], t[b + 3]);
            }
            for i in 0..4 {
                r[i] = _mm256_permute2f128_ps::<0x20>(u[i], u[4 + i]);
                r[4 + i] = _mm256_permute2f128_ps::<0x31>(u[i], u[4 + i]);
            }
            for (i, x) in r.iter().enumerate() {
                _mm256_storeu_ps(dst.add(i * dst_stride), *x);
            }
        }
    }
}
