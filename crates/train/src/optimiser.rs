//! AdamW with decoupled weight decay (Loshchilov and Hutter 2019), and clipping by the global norm.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ops::{lanes_sum, simd};
use crate::params::Param;

/// Values of a parallel task.
const TASK: usize = 64 * 1024;

/// Settings of the optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay of matrices; norms, biases and position parameters have none.
    pub weight_decay: f64,
    /// Largest global norm of the gradient; 0 for no clipping.
    pub clip: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            clip: 1.0,
        }
    }
}

/// Moments of every parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// First moments.
    pub first: Vec<f32>,
    /// Second moments.
    pub second: Vec<f32>,
}

impl Moments {
    /// Zeros for `n` parameters.
    pub fn new(n: usize) -> Self {
        Self {
            first: vec![0.0; n],
            second: vec![0.0; n],
        }
    }
}

/// Global norm of a gradient: squares summed in f64 over fixed pieces, in order.
pub fn global_norm(gradient: &[f32]) -> f64 {
    let sums: Vec<f64> = gradient
        .par_chunks(TASK)
        .map(|piece| {
            // f32 sums of at most 1024 squares, then f64.
            piece
                .chunks(1024)
                .map(|g| {
                    f64::from(simd(
                        #[inline(always)]
                        || lanes_sum(g.len(), |i| g[i] * g[i]),
                    ))
                })
                .sum()
        })
        .collect();
    sums.iter().sum::<f64>().sqrt()
}

impl AdamW {
    /// One update in place. `step` counts from 1, `scale` multiplies the gradient (clipping).
    #[allow(clippy::too_many_arguments, reason = "one call site")]
    pub fn update(
        &self,
        params: &mut [f32],
        gradient: &[f32],
        moments: &mut Moments,
        table: &[Param],
        step: u64,
        learning_rate: f64,
        scale: f64,
    ) {
        let correction1 = 1.0 - self.beta1.powf(step as f64);
        let correction2 = 1.0 - self.beta2.powf(step as f64);
        let rate = (learning_rate / correction1) as f32;
        let root = (1.0 / correction2.sqrt()) as f32;
        let (b1, b2) = (self.beta1 as f32, self.beta2 as f32);
        let (a1, a2) = ((1.0 - self.beta1) as f32, (1.0 - self.beta2) as f32);
        let (eps, scale) = (self.eps as f32, scale as f32);
        for param in table {
            let range = param.range.clone();
            let keep = if param.decay {
                (1.0 - learning_rate * self.weight_decay) as f32
            } else {
                1.0
            };
            params[range.clone()]
                .par_chunks_mut(TASK)
                .zip(gradient[range.clone()].par_chunks(TASK))
                .zip(moments.first[range.clone()].par_chunks_mut(TASK))
                .zip(moments.second[range].par_chunks_mut(TASK))
                .for_each(|(((p, g), m), v)| {
                    simd(
                        #[inline(always)]
                        || {
                            for (((p, &g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
                                let g = g * scale;
                                *m = b1 * *m + a1 * g;
                                *v = b2 * *v + a2 * g * g;
                                *p = *p * keep - rate * *m / (v.sqrt() * root + eps);
                            }
                        },
                    );
                });
        }
    }
}
