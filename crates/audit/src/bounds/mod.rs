//! Bounds of attention scores from weights alone: no text, every text.
//!
//! A norm in front of the query and key projections bounds their input whatever was written, so each head has a largest
//! possible score R and a largest possible difference G between two scores of one query. From G and a head's slope follow the
//! distances that are visible, or blind, for any input ([`crate::certificate`]). All arithmetic is f64 and every rounding is
//! added on the safe side; the derivations stand beside the code.
//!
//! The norm bound is loose (it allows the one input that excites the head most), by a factor near 100 at width 1024. In
//! the first layer the inputs are the vocabulary, which is finite: there the bound is exact where it can be afforded.

mod linalg;
mod projection;
mod vocabulary;

use std::fmt;

use model::{
    LayerRole, ModelSpec, QkNormExtent, QkNormSpec, Weight, WeightError, WeightRole, WeightSource,
};
use numerics::{Format, ScaleOrder};
use rayon::prelude::*;

pub use projection::ProjectionRounding;
use projection::{NormOutput, ScoreBounds, Side, head_rows, score_bounds};

/// How the bounds of a head were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoundMethod {
    /// From the norm of the normalised input: rigorous and loose.
    Norm,
    /// The exact maximum over every pair of tokens; first layer only.
    Vocabulary,
    /// The weights allow scores beyond what f64 holds: there is no bound.
    Unbounded,
}

impl BoundMethod {
    /// The word used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Norm => "norm",
            Self::Vocabulary => "vocabulary",
            Self::Unbounded => "unbounded",
        }
    }
}

impl fmt::Display for BoundMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What the weights alone say about one head's scores. Scores are `q.k * scale` in nats, before any soft cap and without
/// the position bias, computed in real arithmetic from the weights as they are stored; see [`HeadBounds::rounding`].
#[derive(Clone, Debug, PartialEq)]
pub struct HeadBounds {
    /// Layer, counted from 0.
    pub layer: usize,
    /// Query head, counted from 0.
    pub head: usize,
    /// The head's slope, nats per token, as the model has it.
    pub slope: f64,
    /// Slope that reaches the softmax: times the attention scale where the family scales its bias (Falcon).
    pub effective_slope: f64,
    /// Factor of `q.k` in this layer.
    pub scale: f64,
    /// R: `|score| <= R` for every input. Infinite where unbounded.
    pub score_bound: f64,
    /// G: two keys of the same query differ by at most G in score, for every input. Infinite where unbounded.
    pub gap_bound: f64,
    /// R by the norm bound, whatever the method.
    pub norm_score_bound: f64,
    /// G by the norm bound, whatever the method.
    pub norm_gap_bound: f64,
    /// Standard deviation of a query's scores over its keys, for inputs of random direction and unit variance per channel
    /// (docs/NUMERICS.md, Bounds from weights: `|Wq' Wk|_F * scale`, and the query's bias).
    pub score_deviation: f64,
    /// How `score_bound` and `gap_bound` were found.
    pub method: BoundMethod,
    /// How far rounding in the norm and the projections can move a score from the exact one.
    pub rounding: ProjectionRounding,
    /// Bounds from the vocabulary hold for the tokens themselves; a runtime's norm reads them after roundings. By how many unit
    /// roundoffs, over its deviation, its input may be off; 0 where nothing is rounded before it, infinite where that is not known.
    pub token_roundings: f64,
}

impl HeadBounds {
    /// [`HeadBounds::score_bound`] and [`HeadBounds::gap_bound`] of scores that a runtime computes with activations in `format`: the
    /// smaller ones of both methods. The norm bound holds for any input, rounded or not.
    #[must_use]
    pub fn in_format(&self, format: Format) -> (f64, f64) {
        let with = |score: f64, gap: f64, moved: f64| {
            let score = score + moved;
            (score, (gap + 2.0 * moved).min(2.0 * score))
        };
        let norm = with(
            self.norm_score_bound,
            self.norm_gap_bound,
            self.rounding.nats(format),
        );
        if self.method != BoundMethod::Vocabulary {
            return norm;
        }
        let moved = self.rounding.nats_after(format, self.token_roundings);
        let tokens = with(self.score_bound, self.gap_bound, moved);
        (norm.0.min(tokens.0), norm.1.min(tokens.1))
    }
}

/// What to bound, and how much work to spend.
#[derive(Clone, Copy)]
pub struct BoundsOptions<'a> {
    /// Which `(layer, head)` to look at; indices stay those of the model.
    pub keep: &'a (dyn Fn(usize, usize) -> bool + Sync),
    /// Multiplications and additions that the exact bound over the vocabulary may take in all; above that the first layer
    /// gets the norm bound like the others. 2 a second and core is 1e10 on plain hardware.
    pub vocabulary_flops_max: f64,
}

/// About two seconds on two cores.
pub const VOCABULARY_FLOPS_DEFAULT: f64 = 3e10;

impl Default for BoundsOptions<'_> {
    fn default() -> Self {
        Self {
            keep: &|_, _| true,
            vocabulary_flops_max: VOCABULARY_FLOPS_DEFAULT,
        }
    }
}

impl fmt::Debug for BoundsOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundsOptions")
            .field("vocabulary_flops_max", &self.vocabulary_flops_max)
            .finish_non_exhaustive()
    }
}

/// Bounds of every kept head, in the order of layers and heads.
///
/// Reads the first norm and the query and key projections of each layer once, two layers in memory at a time; heads are
/// spread over rayon's threads and the result does not depend on their number.
///
/// # Errors
/// A weight that is missing, has the wrong shape, or holds a number that is not finite.
pub fn static_bounds(
    spec: &ModelSpec,
    source: &dyn WeightSource,
    options: &BoundsOptions<'_>,
) -> Result<Vec<HeadBounds>, WeightError> {
    let kept = |layer: usize| (0..spec.n_heads).any(|head| (options.keep)(layer, head));
    let layers: Vec<usize> = (0..spec.n_layers).filter(|&layer| kept(layer)).collect();
    let mut bounds = Vec::new();
    let mut next = layers
        .first()
        .map(|&layer| LayerWeights::read(spec, source, layer));
    for (position, &layer) in layers.iter().enumerate() {
        let Some(weights) = next.take() else { break };
        let weights = weights?;
        // The next layer is read while this one is worked on.
        let (found, ahead) = rayon::join(
            || bound_layer(spec, source, layer, &weights, options),
            || {
                layers
                    .get(position + 1)
                    .map(|&layer| LayerWeights::read(spec, source, layer))
            },
        );
        bounds.extend(found?);
        source.release(&LayerWeights::ROLES.map(|role| WeightRole::Layer(layer, role)));
        next = ahead;
    }
    Ok(bounds)
}

/// The weights of one layer that scores depend on.
struct LayerWeights {
    norm_weight: Weight,
    norm_bias: Option<Weight>,
    query: Weight,
    query_bias: Option<Weight>,
    key: Weight,
    key_bias: Option<Weight>,
    query_norm: Option<(Weight, Option<Weight>)>,
    key_norm: Option<(Weight, Option<Weight>)>,
}

impl LayerWeights {
    /// What may be read of a layer.
    const ROLES: [LayerRole; 10] = [
        LayerRole::Norm1Weight,
        LayerRole::Norm1Bias,
        LayerRole::QueryWeight,
        LayerRole::QueryBias,
        LayerRole::KeyWeight,
        LayerRole::KeyBias,
        LayerRole::QueryNormWeight,
        LayerRole::QueryNormBias,
        LayerRole::KeyNormWeight,
        LayerRole::KeyNormBias,
    ];

    fn read(
        spec: &ModelSpec,
        source: &dyn WeightSource,
        layer: usize,
    ) -> Result<Self, WeightError> {
        let optional = |role| -> Result<Option<Weight>, WeightError> {
            let role = WeightRole::Layer(layer, role);
            spec.weight_shape(role)
                .map(|shape| read_checked(source, role, &shape))
                .transpose()
        };
        let needed = |role| {
            optional(role)?.ok_or_else(|| WeightError::Missing {
                role: WeightRole::Layer(layer, role),
                detail: "the model's description has none".to_owned(),
            })
        };
        let norm_of = |weight, bias| -> Result<Option<(Weight, Option<Weight>)>, WeightError> {
            let weight = optional(weight)?;
            weight
                .map(|weight| Ok((weight, optional(bias)?)))
                .transpose()
        };
        Ok(Self {
            norm_weight: needed(LayerRole::Norm1Weight)?,
            norm_bias: optional(LayerRole::Norm1Bias)?,
            query: needed(LayerRole::QueryWeight)?,
            query_bias: optional(LayerRole::QueryBias)?,
            key: needed(LayerRole::KeyWeight)?,
            key_bias: optional(LayerRole::KeyBias)?,
            query_norm: norm_of(LayerRole::QueryNormWeight, LayerRole::QueryNormBias)?,
            key_norm: norm_of(LayerRole::KeyNormWeight, LayerRole::KeyNormBias)?,
        })
    }

    /// Queries (or keys) of one head as the image of a ball.
    fn side(&self, spec: &ModelSpec, head: usize, is_query: bool) -> Option<Side> {
        let (weight, bias, norm, n_heads) = if is_query {
            (
                &self.query,
                &self.query_bias,
                &self.query_norm,
                spec.n_heads,
            )
        } else {
            (&self.key, &self.key_bias, &self.key_norm, spec.n_kv_heads)
        };
        let d = spec.head_width;
        let channels = head * d..(head + 1) * d;
        if let (Some((gain, shift)), Some(norm)) = (norm, &spec.block.attention.qk_norm) {
            return normed_side(norm, gain, shift.as_ref(), channels, n_heads * d);
        }
        let before = NormOutput {
            kind: spec.block.norm.kind,
            gain: &self.norm_weight.data,
            shift: self.norm_bias.as_ref().map(|w| w.data.as_slice()),
        };
        let bias = bias.as_ref().map(|bias| &bias.data[channels]);
        Side::new(head_rows(weight, head, d), bias, &before)
    }
}

/// A query/key norm hides the projection: only its own gain, shift and extent count.
fn normed_side(
    norm: &QkNormSpec,
    gain: &Weight,
    shift: Option<&Weight>,
    channels: std::ops::Range<usize>,
    n_all: usize,
) -> Option<Side> {
    let (range, n_channels) = match norm.extent {
        QkNormExtent::PerHead => (0..channels.len(), channels.len()),
        QkNormExtent::Full => (channels, n_all),
    };
    let output = NormOutput {
        kind: norm.norm.kind,
        gain: &gain.data[range.clone()],
        shift: shift.map(|shift| &shift.data[range.clone()]),
    };
    Side::normed(&output, n_channels)
}

fn bound_layer(
    spec: &ModelSpec,
    source: &dyn WeightSource,
    layer: usize,
    weights: &LayerWeights,
    options: &BoundsOptions<'_>,
) -> Result<Vec<HeadBounds>, WeightError> {
    let heads: Vec<usize> = (0..spec.n_heads)
        .filter(|&head| (options.keep)(layer, head))
        .collect();
    let scale = spec.score_scale(layer);
    let group = spec.n_heads / spec.n_kv_heads;
    let by_norm: Vec<Option<ScoreBounds>> = heads
        .par_iter()
        .map(|&head| {
            let query = weights.side(spec, head, true)?;
            let key = weights.side(spec, head / group, false)?;
            let clip = spec.block.attention.clip_qkv;
            // The clamp comes before a query/key norm, which then decides alone.
            let clip = clip.filter(|_| spec.block.attention.qk_norm.is_none());
            Some(score_bounds(&query, &key, scale, clip))
        })
        .collect();
    let affordable = vocabulary::flops(spec, heads.len()) <= options.vocabulary_flops_max;
    let exact = if layer == 0 && affordable {
        Some(vocabulary::exact_bounds(spec, source, weights, &heads)?)
    } else {
        None
    };
    let bounds = heads
        .iter()
        .zip(by_norm)
        .enumerate()
        .map(|(position, (&head, found))| {
            let slope = spec.alibi.slopes[head];
            let effective_slope = match spec.alibi.convention.scale_order {
                ScaleOrder::BiasAfterScale => slope,
                ScaleOrder::BiasBeforeScale => slope * f64::from(scale),
            };
            let norm = found.unwrap_or(ScoreBounds::UNBOUNDED);
            let bounded = norm.score.is_finite() && norm.gap.is_finite();
            let mut bounds = HeadBounds {
                layer,
                head,
                slope,
                effective_slope,
                scale: f64::from(scale),
                score_bound: norm.score,
                gap_bound: norm.gap,
                norm_score_bound: norm.score,
                norm_gap_bound: norm.gap,
                score_deviation: norm.deviation,
                method: if bounded {
                    BoundMethod::Norm
                } else {
                    BoundMethod::Unbounded
                },
                rounding: norm.rounding,
                token_roundings: 0.0,
            };
            if let Some(exact) = exact.as_ref().map(|exact| exact[position])
                && bounded
            {
                // Both hold; the exact one is smaller except for its slack in tiny models.
                bounds.score_bound = exact.score.min(norm.score);
                bounds.gap_bound = exact.gap.min(norm.gap);
                bounds.method = BoundMethod::Vocabulary;
                bounds.token_roundings = exact.token_roundings;
            }
            bounds
        });
    Ok(bounds.collect())
}

/// Reads a weight and refuses a wrong shape and numbers that are not finite.
fn read_checked(
    source: &dyn WeightSource,
    role: WeightRole,
    shape: &[usize],
) -> Result<Weight, WeightError> {
    let weight = source.weight(role)?;
    weight.check(role, shape)?;
    Ok(weight)
}
