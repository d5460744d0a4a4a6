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

use crate::input::{AttentionShape, HeadBias};
use crate::lanes::{Isa, Lanes, dispatch};
use crate::tile::{KEY_BLOCK, Rows};

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
    /// `k` and `v` are valid for `n_keys` rows of `width`.
    pub(crate) fn new(isa: Isa, k: Rows, v: Rows, n_keys: usize, width: usize) -> Self {
        let mut own = vec![0.0; n_keys.div_ceil(KEY_BLOCK)];
        let to = &mut own;
        dispatch!(
            isa,
            block_norms,
            (k: Rows, v: Rows, n: usize, width: usize, to: &mut [f32]) = (k, v, n_keys, width, to)
        );
        let mut largest = 0.0_f32;
        let older = own
            .iter()
            .map(|&n| {
                largest = largest.max(n);
                largest
            })
            .collect();
        Self { own, older }
    }
}

/// Norm bounds of every block, into `own`.
#[inline(always)]
fn block_norms<S: Lanes>(s: S, k: Rows, v: Rows, n_keys: usize, width: usize, own: &mut [f32]) {
    let w = S::WIDTH;
    let mut parts = [0.0_f32; 256];
    let mut turned = [0.0_f32; 256];
    for (block, own) in own.iter_mut().enumerate() {
        let (from, to) = (block * KEY_BLOCK, ((block + 1) * KEY_BLOCK).min(n_keys));
        let mut largest = 0.0_f32;
        for j0 in (from..to).step_by(w) {
            let n = w.min(to - j0);
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
        *own = norm_bound(largest, width);
    }
}

/// Upper bounds on the bias of one head.
#[derive(Debug)]
pub(crate) enum BiasBounds {
    None,
    /// Largest bias of a block of keys, and of that block and all older ones.
    ByKey {
        own: Vec<f32>,
        older: Vec<f32>,
    },
    /// Indexed like the difference table: the largest bias at this difference query - key or a larger one (`behind`, for
    /// differences >= 0), or at this difference or a smaller one (`ahead`, for those < 0; empty in causal calls).
    ByDifference {
        behind: Vec<f32>,
        ahead: Vec<f32>,
    },
}

impl BiasBounds {
    /// Bounds for queries up to key index `back`. `zero` is the table index of difference 0.
    pub(crate) fn new(
        shape: &AttentionShape,
        bias: HeadBias<'_>,
        zero: usize,
        back: usize,
    ) -> Self {
        match bias {
            HeadBias::None => Self::None,
            HeadBias::ByKey(values) => {
                let own: Vec<f32> = values
                    .chunks(KEY_BLOCK)
                    .map(|block| {
                        running_max(block.iter())
                            .last()
                            .unwrap_or(f32::NEG_INFINITY)
                    })
                    .collect();
                let older = running_max(own.iter()).collect();
                Self::ByKey { own, older }
            }
            HeadBias::ByDistance(values) => {
                let n = values.len().min(back + 1);
                // Beyond the largest difference there are only lanes without a row.
                let mut behind = vec![f32::NEG_INFINITY; zero + n + 4 * crate::tile::TILE_MAX];
                for (to, max) in behind[zero..zero + n]
                    .iter_mut()
                    .rev()
                    .zip(running_max(values[..n].iter().rev()))
                {
                    *to = max;
                }
                let mut ahead = vec![];
                if !shape.causal {
                    let far = values.get(1..zero.min(values.len())).unwrap_or_default();
                    ahead = vec![f32::NEG_INFINITY; zero + crate::tile::TILE_MAX];
                    let to = &mut ahead[zero - far.len()..zero];
                    for (to, max) in to.iter_mut().zip(running_max(far.iter().rev())) {
                        *to = max;
                    }
                }
                Self::ByDifference { behind, ahead }
            }
        }
    }
}

/// Running maxima, NaN taken as infinite: nothing is below it.
fn running_max<'a>(values: impl Iterator<Item = &'a f32>) -> impl Iterator<Item = f32> {
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
    pub(crate) bias: &'a BiasBounds,
    /// Blocks in the middle may be left out, not only all blocks from one on.
    pub(crate) holes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

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
                    let rows = |x: &[f32]| Rows {
                        ptr: x.as_ptr(),
                        stride: width,
                    };
                    let norms = KeyNorms::new(isa, rows(&k), rows(&v), n, width);
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
                    let rows = |x: &[f32]| Rows {
                        ptr: x.as_ptr(),
                        stride: width,
                    };
                    let norms = KeyNorms::new(Isa::detect(), rows(&x[0]), rows(&x[1]), n, width);
                    let infinite: Vec<bool> = norms.own.iter().map(|n| n.is_infinite()).collect();
                    assert_eq!(infinite, [false, true, false, false]);
                    let infinite: Vec<bool> = norms.older.iter().map(|n| n.is_infinite()).collect();
                    assert_eq!(infinite, [false, true, true, true]);
                }
            }
        }
    }
}
