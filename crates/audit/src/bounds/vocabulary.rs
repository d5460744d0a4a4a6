//! The exact bound of the first layer: without position embeddings its inputs are the tokens of the vocabulary, so the
//! largest score and the largest gap are maxima over pairs of tokens.
//!
//! `R = max |q_a.k_b| scale`, `G = max over a of (max over b of q_a.k_b - min over c of q_a.k_c) scale`; cost
//! `2 V^2 head_width` a head. A text attains both, so nothing smaller is true.

use std::ops::Range;

use model::{
    ModelSpec, NormKind, NormSpec, QkNormExtent, Weight, WeightError, WeightRole, WeightSource,
};
use rayon::prelude::*;

use super::linalg::{Matrix, gamma, product_transposed, up};
use super::{LayerWeights, read_checked};

/// Tokens of one task.
const TOKENS_PER_TASK: usize = 64;

/// Exact bounds of one head, nats.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExactBounds {
    pub(super) score: f64,
    pub(super) gap: f64,
    /// See [`super::HeadBounds::token_roundings`].
    pub(super) token_roundings: f64,
}

/// Multiplications and additions that [`exact_bounds`] takes.
pub(super) fn flops(spec: &ModelSpec, n_heads: usize) -> f64 {
    let tokens = spec.vocab_size as f64;
    let channels = (spec.query_width() + spec.kv_width()) as f64;
    let projections = 2.0 * tokens * spec.width as f64 * channels;
    projections + 2.0 * tokens * tokens * (n_heads * spec.head_width) as f64
}

/// Gain and shift of a norm in f64.
struct Norm {
    kind: NormKind,
    eps: f64,
    gain: Vec<f64>,
    shift: Vec<f64>,
}

impl Norm {
    fn new(spec: &NormSpec, gain: &[f32], shift: Option<&[f32]>) -> Self {
        let shift = shift.map_or_else(
            || vec![0.0; gain.len()],
            |shift| shift.iter().map(|x| f64::from(*x)).collect(),
        );
        Self {
            kind: spec.kind,
            eps: f64::from(spec.eps),
            gain: gain.iter().map(|x| f64::from(*x)).collect(),
            shift,
        }
    }

    /// Normalises in place; returns what errors of the input are divided by.
    fn apply(&self, x: &mut [f64]) -> Spread {
        let n = x.len() as f64;
        let mean = match self.kind {
            NormKind::LayerNorm => x.iter().sum::<f64>() / n,
            NormKind::RmsNorm => 0.0,
        };
        let largest = x.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        x.iter_mut().for_each(|v| *v -= mean);
        let variance = x.iter().map(|v| v * v).sum::<f64>() / n;
        let deviation = (variance + self.eps).sqrt();
        if deviation == 0.0 {
            // A constant row with eps 0: the runtime divides 0 by 0. The norm bound's ball contains the limit 0.
            x.copy_from_slice(&self.shift);
            return Spread {
                largest: 0.0,
                deviation: 1.0,
            };
        }
        for ((v, gain), shift) in x.iter_mut().zip(&self.gain).zip(&self.shift) {
            *v = *v / deviation * gain + shift;
        }
        Spread { largest, deviation }
    }

    fn largest_gain(&self) -> f64 {
        self.gain.iter().fold(0.0, |m, v| m.max(v.abs()))
    }

    fn largest_shift(&self) -> f64 {
        self.shift.iter().fold(0.0, |m, v| m.max(v.abs()))
    }
}

/// Largest magnitude and deviation of what a norm reads.
#[derive(Clone, Copy)]
struct Spread {
    largest: f64,
    deviation: f64,
}

impl Spread {
    /// How much relative errors may grow.
    fn growth(self) -> f64 {
        1.0 + self.largest / self.deviation
    }
}

/// Bounds of each of `heads`, in that order.
pub(super) fn exact_bounds(
    spec: &ModelSpec,
    source: &dyn WeightSource,
    weights: &LayerWeights,
    heads: &[usize],
) -> Result<Vec<ExactBounds>, WeightError> {
    let embedding_role = WeightRole::Embedding;
    let embedding = read_checked(source, embedding_role, &[spec.vocab_size, spec.width])?;
    let mut norms = Vec::new();
    if let Some(norm) = &spec.embedding.norm {
        let optional = |role| {
            spec.weight_shape(role)
                .map(|shape| read_checked(source, role, &shape))
                .transpose()
        };
        let gain = optional(WeightRole::EmbeddingNormWeight)?;
        let shift = optional(WeightRole::EmbeddingNormBias)?;
        if let Some(gain) = gain {
            norms.push(Norm::new(
                norm,
                &gain.data,
                shift.as_ref().map(|w| w.data.as_slice()),
            ));
        }
    }
    let first_shift = weights.norm_bias.as_ref().map(|w| w.data.as_slice());
    norms.push(Norm::new(
        &spec.block.norm,
        &weights.norm_weight.data,
        first_shift,
    ));

    let inputs = Inputs::new(spec, &embedding, &norms);
    drop(embedding);
    let query = project(spec, weights, &inputs, true);
    let key = project(spec, weights, &inputs, false);
    let mut bounds = maxima(spec, heads, &query, &key);
    for bound in &mut bounds {
        bound.token_roundings = inputs.roundings;
    }
    Ok(bounds)
}

/// The normalised tokens.
struct Inputs {
    /// `[width, tokens]` of one task each, in order.
    blocks: Vec<Matrix>,
    /// Largest growth of relative errors in the norms, over all tokens.
    growth: f64,
    /// See [`super::HeadBounds::token_roundings`].
    roundings: f64,
}

/// Roundings of a norm's output, each to half a unit of what is being formed: the quotient, times the gain, plus the shift.
const NORM_ROUNDINGS: f64 = 3.0;

impl Inputs {
    fn new(spec: &ModelSpec, embedding: &Weight, norms: &[Norm]) -> Self {
        let scale = f64::from(spec.embedding.scale);
        let width = spec.width;
        // A query/key norm makes its own of what the projections are off by: no bound here.
        let normed_later = spec.block.attention.qk_norm.is_some();
        let blocks: Vec<(Matrix, f64, f64)> = embedding
            .data
            .par_chunks(TOKENS_PER_TASK * width)
            .map(|rows| {
                let tokens = rows.chunks_exact(width);
                let mut block = Matrix::zeros(width, tokens.len());
                let (mut growth, mut roundings) = (1.0f64, 0.0f64);
                for (t, row) in tokens.enumerate() {
                    let mut x: Vec<f64> = row.iter().map(|v| f64::from(*v) * scale).collect();
                    let spreads: Vec<Spread> =
                        norms.iter().map(|norm| norm.apply(&mut x)).collect();
                    growth = growth.max(spreads.iter().map(|s| s.growth()).product());
                    roundings = roundings.max(token_roundings(scale, norms, &spreads));
                    x.iter()
                        .enumerate()
                        .for_each(|(j, v)| block.row_mut(j)[t] = *v);
                }
                (block, growth, roundings)
            })
            .collect();
        let largest =
            |of: fn(&(Matrix, f64, f64)) -> f64, least| blocks.iter().map(of).fold(least, f64::max);
        Self {
            growth: largest(|(_, growth, _)| *growth, 1.0),
            roundings: if normed_later {
                f64::INFINITY
            } else {
                largest(|(_, _, roundings)| *roundings, 0.0)
            },
            blocks: blocks.into_iter().map(|(block, ..)| block).collect(),
        }
    }
}

/// By how many unit roundoffs, times its own deviation, what the layer's norm reads may be off for a token (root mean square over the
/// channels): the embedding where it is scaled, and the output of a norm after it. An input off by `e` moves the result of a norm
/// before its gain by at most `2 t / (1 - t)` a channel, `t = e / deviation` (root mean squares), which is below `4 t` for `t <= 1/2`.
fn token_roundings(scale: f64, norms: &[Norm], spreads: &[Spread]) -> f64 {
    let relative = |s: &Spread| s.largest / s.deviation;
    // Both a factor of 1 and the embedding itself are exact.
    let scaled = if scale == 1.0 {
        0.0
    } else {
        relative(&spreads[0])
    };
    let [_, last] = spreads else {
        return scaled;
    };
    let norm = &norms[0];
    let formed = last.largest + norm.largest_shift();
    let after = (NORM_ROUNDINGS * formed + 4.0 * norm.largest_gain() * scaled) / last.deviation;
    // `4 t` asks for a small error of the embedding itself too.
    after.max(scaled)
}

/// Queries or keys of every token.
struct Projected {
    /// `[channels, tokens]` of one task each, in order.
    blocks: Vec<Matrix>,
    /// Upper bound of what any single value is off by, all heads.
    error: f64,
    /// Largest magnitude of any value.
    largest: f64,
}

fn project(spec: &ModelSpec, weights: &LayerWeights, inputs: &Inputs, is_query: bool) -> Projected {
    let (weight, bias, norm) = if is_query {
        (&weights.query, &weights.query_bias, &weights.query_norm)
    } else {
        (&weights.key, &weights.key_bias, &weights.key_norm)
    };
    let (channels, width) = (weight.shape[0], weight.shape[1]);
    let transposed = Matrix::from_fn(width, channels, |j, c| {
        f64::from(weight.data[c * width + j])
    });
    let clip = spec.block.attention.clip_qkv.map(f64::from);
    let qk_norm = spec.block.attention.qk_norm.as_ref().zip(norm.as_ref());
    let head_norm = qk_norm.map(|(spec_norm, (gain, shift))| {
        let extent = match spec_norm.extent {
            QkNormExtent::Full => channels,
            QkNormExtent::PerHead => spec.head_width,
        };
        let shift = shift.as_ref().map(|w| w.data.as_slice());
        (Norm::new(&spec_norm.norm, &gain.data, shift), extent)
    });
    let row_norms = weight
        .data
        .chunks_exact(width)
        .map(|row| row.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>());
    let heaviest_row = row_norms.fold(0.0, f64::max).sqrt();
    let results: Vec<(Matrix, f64, f64)> = inputs
        .blocks
        .par_iter()
        .map(|x| {
            let mut y = product_transposed(&transposed, x);
            for c in 0..channels {
                let shift = bias.as_ref().map_or(0.0, |bias| f64::from(bias.data[c]));
                let limit = clip.unwrap_or(f64::INFINITY);
                y.row_mut(c)
                    .iter_mut()
                    .for_each(|v| *v = (*v + shift).clamp(-limit, limit));
            }
            let mut growth = 1.0f64;
            if let Some((norm, extent)) = &head_norm {
                for first in (0..channels).step_by(*extent) {
                    growth = growth.max(normalise_columns(&mut y, first..first + extent, norm));
                }
            }
            let values = (0..channels).flat_map(|c| y.row(c));
            let largest = values.fold(0.0f64, |m, v| m.max(v.abs()));
            let x_norms =
                (0..x.n_cols).map(|t| (0..width).map(|j| x.row(j)[t].powi(2)).sum::<f64>());
            let x_norm = x_norms.fold(0.0, f64::max).sqrt();
            (y, largest, x_norm * growth)
        })
        .collect();
    let largest = results
        .iter()
        .map(|(_, largest, _)| *largest)
        .fold(0.0, f64::max);
    let x_norm = results.iter().map(|(_, _, norm)| *norm).fold(0.0, f64::max);
    // A chain of sums over `width` terms (two in each of up to two norms, one here, two in a query/key norm) and a few single
    // roundings; each relative to the magnitudes that were summed, |w_c| |x|, and grown by the norms. Generous by design: the
    // result is near 1e-9 nats.
    let bias_size = bias.as_ref().map_or(0.0, |b| {
        b.data
            .iter()
            .fold(0.0f64, |m, v| m.max(f64::from(*v).abs()))
    });
    let magnitude = heaviest_row * x_norm + bias_size + largest;
    let error = up(gamma(8 * (width + channels) + 64) * inputs.growth * magnitude);
    Projected {
        blocks: results.into_iter().map(|(y, _, _)| y).collect(),
        error,
        largest,
    }
}

/// Applies a norm to some rows of each column; returns the largest growth of errors.
fn normalise_columns(y: &mut Matrix, rows: Range<usize>, norm: &Norm) -> f64 {
    let mut growth = 1.0f64;
    for t in 0..y.n_cols {
        let mut column: Vec<f64> = rows.clone().map(|c| y.row(c)[t]).collect();
        growth = growth.max(norm.apply(&mut column).growth());
        for (c, v) in rows.clone().zip(column) {
            y.row_mut(c)[t] = v;
        }
    }
    growth
}

fn maxima(
    spec: &ModelSpec,
    heads: &[usize],
    query: &Projected,
    key: &Projected,
) -> Vec<ExactBounds> {
    let d = spec.head_width;
    let group = spec.n_heads / spec.n_kv_heads;
    let tasks: Vec<(usize, usize)> = heads
        .iter()
        .flat_map(|&head| (0..query.blocks.len()).map(move |block| (head, block)))
        .collect();
    // Of each task: largest magnitude, largest spread within a row.
    let found: Vec<(f64, f64)> = tasks
        .par_iter()
        .map(|&(head, block)| {
            let tokens = query.blocks[block].n_cols;
            let q = query.blocks[block].block(head * d..(head + 1) * d, 0..tokens);
            let mut high = vec![f64::NEG_INFINITY; tokens];
            let mut low = vec![f64::INFINITY; tokens];
            let kv = head / group;
            for keys in &key.blocks {
                let k = keys.block(kv * d..(kv + 1) * d, 0..keys.n_cols);
                let scores = product_transposed(&q, &k);
                for t in 0..tokens {
                    let row = scores.row(t);
                    high[t] = row.iter().copied().fold(high[t], f64::max);
                    low[t] = row.iter().copied().fold(low[t], f64::min);
                }
            }
            let rows = high.iter().zip(&low);
            rows.fold((0.0f64, 0.0f64), |(size, spread), (high, low)| {
                (size.max(high.abs()).max(low.abs()), spread.max(high - low))
            })
        })
        .collect();
    let scale = f64::from(spec.score_scale(0)).abs();
    // d products, each factor off by `error`.
    let (q, k) = (query.largest, key.largest);
    let slack = d as f64
        * (query.error * k + key.error * q + query.error * key.error + gamma(d + 2) * q * k);
    found
        .chunks(query.blocks.len())
        .map(|of_head| {
            let score = of_head.iter().map(|(size, _)| *size).fold(0.0, f64::max);
            let gap = of_head
                .iter()
                .map(|(_, spread)| *spread)
                .fold(0.0, f64::max);
            ExactBounds {
                score: up(scale * (score + up(slack))),
                gap: up(scale * (gap + up(2.0 * slack))),
                token_roundings: 0.0,
            }
        })
        .collect()
}
