//! Which blocks of keys can be left out because every weight in them is exactly zero, whatever the keys hold.
//!
//! A score is `fl(raw + bias)`, and its weight is exactly 0 where `fl(score - max) <= ln(2^-150)`. Rounding is monotone, so
//! with `raw <= u` and `bias <= b` for every pair of a block, all its weights are 0 as soon as `fl(fl(u + b) - max)` is at
//! or below that threshold: no slack is needed for these two steps, and the maximum cannot move either. What is left is a
//! rigorous `u`, from the Cauchy-Schwarz inequality with the roundings of norms and products added, and a rigorous `b`,
//! from maxima of the bias table. Nothing is assumed about the bias; it only has to fall for the proof to succeed often.
//!
//! Leaving such a block out changes no bit: the kernel would multiply every sum by exactly 1 and add exactly +0 to it.
//! Blocks that hold anything non-finite have an infinite norm and are always computed.
#![allow(
    unsafe_code,
    reason = "vector loads; each block states why it is sound"
)]

use std::ops::Range;

use crate::bias::BiasBounds;
use crate::lanes::Lanes;
use crate::tile::Rows;

/// What attention did, beside its results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttentionStats {
    /// Blocks of keys met by tiles of queries inside the mask. How many there are depends on the processor's vector width.
    pub blocks: u64,
    /// Those not computed because every weight in them is exactly zero.
    pub blocks_skipped: u64,
}

impl AttentionStats {
    /// Share of blocks skipped, 0 to 1; 0 where there are none.
    pub fn skipped_share(&self) -> f64 {
        self.blocks_skipped as f64 / self.blocks.max(1) as f64
    }
}

impl std::ops::AddAssign for AttentionStats {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.blocks_skipped += other.blocks_skipped;
    }
}

/// Least f32 that is certainly not below the norm of `width` numbers whose squares sum to `sum_squares` in f32, in any
/// order of additions: each of at most `width` roundings loses a factor `1 - 2^-24` or, below the normal range, 2^-150.
/// Infinite for a sum that is not finite.
pub(crate) fn norm_bound(sum_squares: f32, width: usize) -> f32 {
    if !sum_squares.is_finite() {
        return f32::INFINITY;
    }
    let width = width as f64;
    let exact =
        f64::from(sum_squares) * (1.0 + (width + 2.0) * f64::from(f32::EPSILON)) + width * LOST;
    (exact.sqrt() as f32).next_up()
}

/// 2^-148, four times what a sum can lose to one underflow.
const LOST: f64 = 2.802_596_928_649_634e-45;

/// The same, with room for the roundings of a product of two such vectors: `|fl(a . b)| <= reach_bound(a) * norm_bound(b)`,
/// also after rounding that product.
pub(crate) fn reach_bound(sum_squares: f32, width: usize) -> f32 {
    let slack = 1.0 + (width as f64 + 8.0) * f64::from(f32::EPSILON);
    ((f64::from(norm_bound(sum_squares, width)) * slack) as f32).next_up()
}

/// Upper bounds on the norms of the keys of one key head, by block.
#[derive(Debug)]
pub(crate) struct KeyNorms {
    /// Largest norm of a block; infinite if the block's keys or values are not all finite.
    pub(crate) own: Vec<f32>,
    /// Largest of `own` over this block and all older ones.
    pub(crate) older: Vec<f32>,
}

impl KeyNorms {
    /// From the norm of every block.
    pub(crate) fn new(own: Vec<f32>) -> Self {
        let older = running_max(own.iter()).collect();
        Self { own, older }
    }
}

/// Norm bound of the keys `keys` of one block; infinite if a key or a value is not finite.
///
/// # Safety
/// Those rows of `k` and `v` exist.
#[inline(always)]
pub(crate) unsafe fn block_norm<S: Lanes>(
    s: S,
    k: Rows,
    v: Rows,
    keys: Range<usize>,
    width: usize,
) -> f32 {
    let w = S::WIDTH;
    let mut parts = [0.0_f32; 256];
    let mut turned = [0.0_f32; 256];
    let mut largest = 0.0_f32;
    for j0 in keys.clone().step_by(w) {
        let n = w.min(keys.end - j0);
        parts[n * w..].fill(0.0);
        let mut rests = [0.0_f32; 16];
        // SAFETY: keys `j0 .. j0 + n` exist; a square of `w * w <= 256` values fits into both arrays.
        unsafe {
            for (r, rest) in rests[..n].iter_mut().enumerate() {
                let (k, v) = (
                    k.ptr.add((j0 + r) * k.stride),
                    v.ptr.add((j0 + r) * v.stride),
                );
                let mut sum = s.splat(0.0);
                let mut c = 0;
                while c + w <= width {
                    let x = s.load(k.add(c));
                    // 0 times a value is 0, or NaN if the value is not finite.
                    sum = s.fma(x, x, s.fma(s.load(v.add(c)), s.splat(0.0), sum));
                    c += w;
                }
                s.store(parts.as_mut_ptr().add(r * w), sum);
                while c < width {
                    let x = *k.add(c);
                    *rest += x * x + *v.add(c) * 0.0;
                    c += 1;
                }
            }
            s.transpose(parts.as_ptr(), w, turned.as_mut_ptr(), w);
            let mut sum = s.load(rests.as_ptr());
            for r in 0..w {
                sum = s.add(sum, s.load(turned.as_ptr().add(r * w)));
            }
            s.store(rests.as_mut_ptr(), sum);
        }
        for &sum in &rests[..w] {
            // A comparison that NaN fails.
            largest = if sum <= f32::MAX {
                largest.max(sum)
            } else {
                f32::INFINITY
            };
        }
    }
    norm_bound(largest, width)
}

/// Running maxima, NaN taken as infinite: nothing is below it.
pub(crate) fn running_max<'a>(values: impl Iterator<Item = &'a f32>) -> impl Iterator<Item = f32> {
    let mut max = f32::NEG_INFINITY;
    values.map(move |&x| {
        max = max.max(if x.is_nan() { f32::INFINITY } else { x });
        max
    })
}

/// What one head's tiles need in order to leave blocks out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    pub(crate) norms: &'a KeyNorms,
    pub(crate) bias: BiasBounds<'a>,
    /// Blocks in the middle may be left out, not only all blocks from one on.
    pub(crate) holes: bool,
    /// Scores this far below the maximum need not be computed (negative, nats): [`crate::exp::ZERO_AT`], or less for an observer.
    pub(crate) cut: f32,
    /// No block is left out that may hold a larger raw score: an observer's roundings grow with it.
    pub(crate) raw_max: f32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{Isa, dispatch};
    use crate::tile::KEY_BLOCK;

    /// Norms of rows `[n, width]`.
    fn norms(isa: Isa, k: &[f32], v: &[f32], width: usize) -> KeyNorms {
        #[inline(always)]
        fn all<S: Lanes>(s: S, k: &[f32], v: &[f32], width: usize, to: &mut Vec<f32>) {
            let n = k.len() / width;
            let rows = |x: &[f32]| Rows {
                ptr: x.as_ptr(),
                stride: width,
            };
            for from in (0..n).step_by(KEY_BLOCK) {
                // SAFETY: both slices have `n` rows.
                to.push(unsafe {
                    block_norm(s, rows(k), rows(v), from..(from + KEY_BLOCK).min(n), width)
                });
            }
        }
        let mut own = vec![];
        let to = &mut own;
        dispatch!(isa, all, (k: &[f32], v: &[f32], width: usize, to: &mut Vec<f32>) = (k, v, width, to));
        KeyNorms::new(own)
    }

    #[test]
    fn lost_is_four_smallest_halves() {
        assert_eq!(LOST, 2.0_f64.powi(-148));
    }

    /// The bound is above the exact norm, and not far above, for vectors of any size, on every instruction set.
    #[test]
    fn norms_are_bounded_from_above() {
        for &isa in Isa::available() {
            for width in [1, 5, 16, 64, 80] {
                for size in [1e-30_f32, 1e-22, 1e-15, 1.0, 1e15] {
                    let n = 130;
                    let mut random = crate::common::Random::new(width as u64);
                    let (k, v) = (random.vec(n * width, size), vec![1.0; n * width]);
                    let norms = norms(isa, &k, &v, width);
                    for (b, keys) in k.chunks(KEY_BLOCK * width).enumerate() {
                        let exact = keys
                            .chunks(width)
                            .map(|k| k.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt())
                            .fold(0.0, f64::max);
                        let got = f64::from(norms.own[b]);
                        assert!(
                            exact <= got,
                            "{isa:?} width {width} size {size}: {exact} > {got}"
                        );
                        let room = 1e-4 * exact + 1e-21;
                        assert!(
                            got <= exact + room,
                            "{isa:?} width {width} size {size}: {exact} {got}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn anything_not_finite_makes_the_block_infinite() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for width in [3, 16, 20] {
                for value in [false, true] {
                    let n = 200;
                    let mut x = [vec![1.0; n * width], vec![1.0; n * width]];
                    x[usize::from(value)][70 * width + width - 1] = bad;
                    let norms = norms(Isa::detect(), &x[0], &x[1], width);
                    let infinite: Vec<bool> = norms.own.iter().map(|n| n.is_infinite()).collect();
                    assert_eq!(infinite, [false, true, false, false]);
                    let infinite: Vec<bool> = norms.older.iter().map(|n| n.is_infinite()).collect();
                    assert_eq!(infinite, [false, true, true, true]);
                }
            }
        }
    }
}
