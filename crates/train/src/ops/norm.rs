//! LayerNorm and RMSNorm over the channels of a row, forward and backward.

use rayon::prelude::*;

use super::{each_rows, lanes_sum, rows_per_task, simd};
use crate::shape::NormKind;

/// A norm and its parameters. Without a bias: plain scaling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm<'a> {
    pub(crate) kind: NormKind,
    pub(crate) eps: f32,
    /// `[width]`
    pub(crate) weight: &'a [f32],
    /// `[width]`
    pub(crate) bias: Option<&'a [f32]>,
}

/// Mean (0 for RMSNorm) and reciprocal deviation of a row.
#[inline(always)]
fn statistics(kind: NormKind, eps: f32, x: &[f32]) -> (f32, f32) {
    let n = x.len();
    let mean = match kind {
        NormKind::LayerNorm => lanes_sum(n, |i| x[i]) / n as f32,
        NormKind::RmsNorm => 0.0,
    };
    let variance = lanes_sum(n, |i| {
        let d = x[i] - mean;
        d * d
    }) / n as f32;
    (mean, 1.0 / (variance + eps).sqrt())
}

impl Norm<'_> {
    /// `out = norm(x)`, rows of `weight.len()`.
    pub(crate) fn forward(&self, x: &[f32], out: &mut [f32]) {
        let width = self.weight.len();
        each_rows(out, width, |first, out| {
            simd(
                #[inline(always)]
                || {
                    for (r, out) in out.chunks_exact_mut(width).enumerate() {
                        let x = &x[(first + r) * width..][..width];
                        let (mean, inverse) = statistics(self.kind, self.eps, x);
                        match self.bias {
                            Some(bias) => {
                                for c in 0..width {
                                    out[c] = (x[c] - mean) * inverse * self.weight[c] + bias[c];
                                }
                            }
                            None => {
                                for c in 0..width {
                                    out[c] = (x[c] - mean) * inverse * self.weight[c];
                                }
                            }
                        }
                    }
                },
            );
        });
    }

    /// Adds to `dx` the gradient of the input, to `d_weight` and `d_bias` those of the parameters. `dy` is the gradient of the
    /// output.
    pub(crate) fn backward(
        &self,
        x: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        d_weight: &mut [f32],
        d_bias: Option<&mut [f32]>,
    ) {
        let width = self.weight.len();
        let rows = rows_per_task(width);
        // One partial sum of the parameters' gradients a task, added in task order.
        let partial: Vec<Vec<f32>> = dx
            .par_chunks_mut(rows * width)
            .enumerate()
            .map(|(task, dx)| {
                let mut sums = vec![0f32; 2 * width];
                let (d_weight, d_bias) = sums.split_at_mut(width);
                simd(
                    #[inline(always)]
                    || {
                        for (r, dx) in dx.chunks_exact_mut(width).enumerate() {
                            let at = (task * rows + r) * width;
                            self.row_backward(
                                &x[at..][..width],
                                &dy[at..][..width],
                                dx,
                                d_weight,
                                d_bias,
                            );
                        }
                    },
                );
                sums
            })
            .collect();
        for sums in &partial {
            for (to, &from) in d_weight.iter_mut().zip(&sums[..width]) {
                *to += from;
            }
        }
        if let Some(d_bias) = d_bias {
            for sums in &partial {
                for (to, &from) in d_bias.iter_mut().zip(&sums[width..]) {
                    *to += from;
                }
            }
        }
    }

    /// With `h = (x - mean) * inverse` and `g = dy * weight`: `dx += inverse * (g - mean(g) - h * mean(g h))`; RMSNorm has no
    /// `mean(g)`.
    #[inline(always)]
    fn row_backward(
        &self,
        x: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        d_weight: &mut [f32],
        d_bias: &mut [f32],
    ) {
        let n = self.weight.len();
        let (x, dy, dx, weight) = (&x[..n], &dy[..n], &mut dx[..n], &self.weight[..n]);
        let (d_weight, d_bias) = (&mut d_weight[..n], &mut d_bias[..n]);
        let (mean, inverse) = statistics(self.kind, self.eps, x);
        let g_mean = match self.kind {
            NormKind::LayerNorm => lanes_sum(n, |i| dy[i] * weight[i]) / n as f32,
            NormKind::RmsNorm => 0.0,
        };
        let gh_mean = lanes_sum(n, |i| dy[i] * weight[i] * ((x[i] - mean) * inverse)) / n as f32;
        for i in 0..n {
            let h = (x[i] - mean) * inverse;
            d_weight[i] += dy[i] * h;
            d_bias[i] += dy[i];
            dx[i] += inverse * (dy[i] * weight[i] - g_mean - h * gh_mean);
        }
    }
}
