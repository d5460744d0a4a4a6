//! Dropout whose mask is a function of where and when, so that nothing has to be kept for the backward pass or for resuming.

use rayon::prelude::*;

use super::{TASK_VALUES, simd};

/// One dropout site at one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mask {
    /// Identifies seed, step, micro-batch and site.
    pub(crate) key: u64,
    /// Share of values dropped, 0 to below 1.
    pub(crate) rate: f32,
}

/// A 32-bit mixing function (constants of C. Wellons' "lowbias32", public domain).
#[inline(always)]
fn mix(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

impl Mask {
    /// `values = values * kept / (1 - rate)`. The same call on the gradient is the backward pass.
    pub(crate) fn apply(&self, values: &mut [f32]) {
        if self.rate == 0.0 {
            return;
        }
        let limit = (f64::from(self.rate) * 4_294_967_296.0) as u32;
        let scale = 1.0 / (1.0 - self.rate);
        let (low, high) = (self.key as u32, (self.key >> 32) as u32);
        values
            .par_chunks_mut(TASK_VALUES)
            .enumerate()
            .for_each(|(task, values)| {
                simd(
                    #[inline(always)]
                    || {
                        // Tensors have fewer than 2^32 values.
                        let first = (task * TASK_VALUES) as u32;
                        for (i, v) in values.iter_mut().enumerate() {
                            let bits = mix(mix(first.wrapping_add(i as u32) ^ low) ^ high);
                            *v = if bits >= limit { *v * scale } else { 0.0 };
                        }
                    },
                );
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_the_mean_too() {
        let mask = Mask {
            key: 0x1234_5678_9abc_def0,
            rate: 0.2,
        };
        let mut values = vec![1.0f32; 200_000];
        mask.apply(&mut values);
        let dropped = values.iter().filter(|v| **v == 0.0).count() as f64 / 200_000.0;
        // Five standard deviations of a binomial share.
        assert!(
            (dropped - 0.2).abs() < 5.0 * (0.2 * 0.8 / 200_000.0f64).sqrt(),
            "{dropped}"
        );
        assert!(values.iter().all(|v| *v == 0.0 || *v == 1.25));
        let mut again = vec![1.0f32; 200_000];
        mask.apply(&mut again);
        assert!(values == again);
        let mut other = vec![1.0f32; 200_000];
        Mask { key: 1, ..mask }.apply(&mut other);
        assert!(values != other);
    }
}
