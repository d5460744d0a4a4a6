//! The plan's own entries `score + bias`, one scalar at a time.

use super::{BiasPlacement, PrecisionPlan};
use crate::bias::{BiasFunction, BiasShape, CapOrder};
use crate::convention::{BiasForm, KeyOrigin, ScaleOrder};
use crate::format::Format;

/// One head of one sequence: what turns a raw score `q.k` into an entry.
#[derive(Clone, Copy, Debug)]
pub struct ScoreSpec<'a> {
    /// The bias with its remedies.
    pub bias: &'a BiasFunction,
    /// Index of the head (for per-head tables of the bias).
    pub head: usize,
    /// The head's slope, before any scale.
    pub slope: f64,
    /// Attention scale, usually `1 / sqrt(head width)`.
    pub scale: f64,
    /// Whether keys after the query are masked.
    pub causal: bool,
    /// Number of keys of the whole sequence.
    pub length: u64,
}

impl PrecisionPlan {
    /// The form the bias really takes: [`super::BiasPath::form`] for the plain linear bias under a causal mask. A bias that is
    /// not linear in the position cannot be written as a function of the key alone, and without a causal mask `m j` would not
    /// be ALiBi; both are functions of the distance. So is a bias inside a soft cap: the constant of the row by which the two
    /// forms differ would be bent with it.
    pub fn bias_form(&self, bias: &BiasFunction, causal: bool) -> BiasForm {
        let separable = match bias.shape {
            BiasShape::Linear => bias.clamp.is_none(),
            BiasShape::None => true,
            _ => false,
        };
        let inside_cap = bias
            .soft_cap
            .is_some_and(|cap| cap.order == CapOrder::AfterBias);
        if separable && causal && !inside_cap {
            self.bias.form
        } else {
            BiasForm::Relative
        }
    }

    /// `key` counted from the plan's origin.
    pub(crate) fn key_position(&self, length: u64, key: u64) -> f64 {
        match self.bias.origin {
            KeyOrigin::Zero => key as f64,
            KeyOrigin::One => key as f64 + 1.0,
            KeyOrigin::LengthEnd => key as f64 - (length as f64 - 1.0),
        }
    }

    /// The slope that is multiplied with the position, rounded as the plan does.
    fn slope_in_bias(&self, spec: &ScoreSpec<'_>) -> f64 {
        let slope = self
            .slope
            .round(self.runtime_slope(spec.slope) * spec.bias.interpolation);
        let scale = Format::F32.round(spec.scale);
        match self.placement {
            BiasPlacement::SlopeTimesScale => Format::F32.round(slope * scale),
            BiasPlacement::SlopeOverScale => Format::F32.round(slope / scale),
            _ => slope,
        }
    }

    /// The stored bias at a key position or signed distance, whichever [`PrecisionPlan::bias_form`] says. `f64`, because
    /// closed forms look far beyond any sequence.
    pub(crate) fn stored_bias_at(&self, spec: &ScoreSpec<'_>, position: f64) -> f64 {
        self.stored_biases(spec)(position)
    }

    /// [`PrecisionPlan::stored_bias_at`] for many positions: what does not depend on them is done once.
    pub(crate) fn stored_biases<'a>(&'a self, spec: &'a ScoreSpec<'a>) -> impl Fn(f64) -> f64 + 'a {
        let form = self.bias_form(spec.bias, spec.causal);
        let linear = matches!(spec.bias.shape, BiasShape::Linear) && spec.bias.clamp.is_none();
        let slope = self.slope_in_bias(spec);
        let formats = self.bias;
        move |position| {
            let product = if linear {
                let position = match form {
                    BiasForm::KeyPosition => formats.position.round(position),
                    BiasForm::Relative => -formats.position.round(position.abs()),
                };
                // `+ 0.0`: the diagonal's bias is +0.
                slope * position + 0.0
            } else {
                self.distance_bias(spec, position)
            };
            formats.storage.round(formats.product.round(product))
        }
    }

    /// The exact bias in nats of the idealised plans, by the distance `query - key`.
    pub fn exact_biases<'a>(&self, spec: &'a ScoreSpec<'a>) -> impl Fn(f64) -> f64 + 'a {
        let slope = self.effective_slope(spec.slope, spec.scale);
        move |distance| spec.bias.bias(spec.head, slope, distance)
    }

    /// A bias that is not linear, in the unit in which the plan adds it (before or after the scale).
    fn distance_bias(&self, spec: &ScoreSpec<'_>, distance: f64) -> f64 {
        let scale = Format::F32.round(spec.scale);
        let slope = self.slope.round(self.runtime_slope(spec.slope))
            * match self.scale_order {
                ScaleOrder::BiasAfterScale => 1.0,
                ScaleOrder::BiasBeforeScale => scale,
            };
        let nats = spec.bias.bias(spec.head, slope, distance);
        if self.placement.is_before_scale() || self.placement == BiasPlacement::StoredTimesScale {
            nats / scale
        } else {
            nats
        }
    }

    /// The plan's entry for a raw score `q.k` (not scaled): scale, bias, soft cap, with every rounding, one scalar at a time.
    ///
    /// For an idealised plan the exact entry in f64 with the relative bias. Minus infinity is never returned for a masked pair:
    /// masking is the caller's.
    pub fn score(&self, spec: &ScoreSpec<'_>, raw: f64, query: u64, key: u64) -> f64 {
        if self.idealised {
            let slope = self.effective_slope(spec.slope, spec.scale);
            let distance = query as f64 - key as f64;
            return spec
                .bias
                .combine(spec.head, slope, raw * spec.scale, distance);
        }
        let stored = stored_bias(self, spec, query, key);
        self.score_from_bias(spec, raw, stored)
    }

    /// A stored bias as a mask has it that is added after the scale: divided by one over the scale, which is not what multiplying gives
    /// where that is no power of two. Source: transformers 5.24 modeling_falcon.py, `alibi / math.sqrt(...)`; torch divides in f32.
    pub(crate) fn bias_in_mask(&self, spec: &ScoreSpec<'_>, stored: f64) -> f64 {
        let f32 = |x: f64| Format::F32.round(x);
        self.bias
            .storage
            .round(f32(f32(stored) / f32(1.0 / spec.scale)))
    }

    /// [`PrecisionPlan::score`] with the stored bias given; not for idealised plans.
    pub(crate) fn score_from_bias(&self, spec: &ScoreSpec<'_>, raw: f64, stored: f64) -> f64 {
        let f32 = |x: f64| Format::F32.round(x);
        let scale = f32(spec.scale);
        let raw = self.raw_score.round(f32(raw));
        let bias = match self.placement {
            BiasPlacement::StoredTimesScale => self.bias_in_mask(spec, stored),
            _ => f32(stored),
        };
        let cap = spec.bias.soft_cap;
        let capped_first = cap.filter(|cap| cap.order == CapOrder::BeforeBias);
        let entry = if self.placement.is_before_scale() && capped_first.is_none() {
            f32(f32(raw + bias) * scale)
        } else {
            let mut x = self.scaled.round(f32(raw * scale));
            if let Some(cap) = capped_first {
                x = f32(cap.apply(x));
            }
            let bias = if self.placement.is_before_scale() {
                f32(bias * scale)
            } else {
                bias
            };
            f32(x + bias)
        };
        let entry = (1..self.bias_multiplicity).fold(entry, |entry, _| {
            // Further additions come through the mask.
            f32(entry + self.bias_in_mask(spec, stored))
        });
        let entry = self.sum.round(entry);
        match cap {
            Some(cap) if cap.order == CapOrder::AfterBias => self.sum.round(f32(cap.apply(entry))),
            _ => entry,
        }
    }
}

/// The bias of a pair as the plan stores it, in the unit in which the plan adds it (before the scale for Falcon eager and
/// FlashAttention-2). Defined for idealised plans too, whose collapse counts use it.
pub fn stored_bias(plan: &PrecisionPlan, spec: &ScoreSpec<'_>, query: u64, key: u64) -> f64 {
    stored_biases(plan, spec)(query, key)
}

/// [`stored_bias`] for many pairs: what is the same for all of them is done once.
pub fn stored_biases<'a>(
    plan: &'a PrecisionPlan,
    spec: &'a ScoreSpec<'a>,
) -> impl Fn(u64, u64) -> f64 + 'a {
    let form = plan.bias_form(spec.bias, spec.causal);
    let stored = plan.stored_biases(spec);
    move |query, key| {
        stored(match form {
            BiasForm::KeyPosition => plan.key_position(spec.length, key),
            BiasForm::Relative => query as f64 - key as f64,
        })
    }
}
