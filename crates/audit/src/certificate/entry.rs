//! Entries of a pair at a distance: the exact bias, and all that may move an entry away from it.

use std::cell::Cell;

use numerics::{
    BiasForm, BiasFunction, BiasShape, CapOrder, Format, PrecisionPlan, ScaleOrder, ScoreSpec,
};

use super::CertificateInput;
use super::limits::Limits;
use crate::bounds::HeadBounds;

/// The format in which a plan's runtime holds queries and keys. Idealised plans take them as the f32 forward pass gives them.
pub(super) fn activation_format(plan: &PrecisionPlan) -> Format {
    if plan.idealised {
        Format::F32
    } else {
        plan.dtype
    }
}

/// One head's entries under one plan.
pub(super) struct Entries<'a> {
    bounds: &'a HeadBounds,
    plan: &'a PrecisionPlan,
    bias: &'a BiasFunction,
    length: u64,
    causal: bool,
    slope: f64,
    multiplicity: f64,
    /// Largest difference of two scores of a query as the runtime computes them, after a cap before the bias.
    gap: f64,
    /// Largest score as the runtime computes it, before any cap.
    score: f64,
    /// Largest bias of any pair.
    bias_max: f64,
    /// `ln sum_k exp(b(d_k))` with rounding slack, and the number of distances it was made for.
    log_sum: Cell<Option<(u64, f64)>>,
}

impl<'a> Entries<'a> {
    pub(super) fn new(bounds: &'a HeadBounds, input: &CertificateInput<'a>) -> Self {
        let plan = input.plan;
        let (mut score, mut gap) = bounds.in_format(activation_format(plan));
        if let Some(cap) = input
            .bias
            .soft_cap
            .filter(|cap| cap.order == CapOrder::BeforeBias)
        {
            // tanh has slope at most 1 and stays within the cap.
            gap = gap.min(2.0 * cap.cap);
        }
        score *= 1.0 + 4.0 * f64::EPSILON;
        gap *= 1.0 + 4.0 * f64::EPSILON;
        let mut entries = Self {
            bounds,
            plan,
            bias: input.bias,
            length: input.length.max(1),
            causal: input.causal,
            slope: match plan.scale_order {
                ScaleOrder::BiasAfterScale => plan.runtime_slope(bounds.slope),
                ScaleOrder::BiasBeforeScale => plan.runtime_slope(bounds.slope) * bounds.scale,
            },
            multiplicity: f64::from(plan.bias_multiplicity),
            gap,
            score,
            bias_max: 0.0,
            log_sum: Cell::new(None),
        };
        let end = entries.constant_from().unwrap_or(0);
        entries.bias_max = (0..=end)
            .map(|d| entries.bias_range(d).1)
            .fold(f64::NEG_INFINITY, f64::max);
        entries
    }

    /// Largest difference of two scores of a query, nats.
    pub(super) fn gap(&self) -> f64 {
        self.gap
    }

    /// Distance from which the bias no longer changes, for shapes that need not be monotone.
    pub(super) fn constant_from(&self) -> Option<u64> {
        match &self.bias.shape {
            BiasShape::T5Buckets { max_distance, .. } => Some(*max_distance as u64 + 1),
            _ => None,
        }
    }

    /// The exact bias of a past key, nats: as often as the plan adds it.
    pub(super) fn bias(&self, distance: f64) -> f64 {
        self.multiplicity * self.bias.bias(self.bounds.head, self.slope, distance)
    }

    /// Smallest and largest bias of a pair at a distance; without a causal mask the key may lie on either side.
    fn bias_range(&self, d: u64) -> (f64, f64) {
        let past = self.bias(d as f64);
        if self.causal {
            return (past, past);
        }
        let ahead = self.bias(-(d as f64));
        (past.min(ahead), past.max(ahead))
    }

    /// Nats by which the plan's entry of a pair may differ from the exact one, at distances up to `d`.
    pub(super) fn plan_error(&self, d: u64) -> f64 {
        let form = if self.plan.idealised {
            BiasForm::Relative
        } else {
            self.plan.bias_form(self.bias, self.causal)
        };
        let spec = ScoreSpec {
            bias: self.bias,
            head: self.bounds.head,
            slope: self.bounds.slope,
            scale: self.bounds.scale,
            causal: self.causal,
            // A bias by key position is rounded worst at the end of the sequence; one by distance depends on that alone.
            length: match form {
                BiasForm::KeyPosition => self.length.max(d + 1),
                BiasForm::Relative => d + 1,
            },
        };
        // The plan's bound counts the bias as often as the slope does; a clamp is added as often as the bias is.
        self.multiplicity * self.plan.score_error_nats(&spec, self.score)
    }

    /// Whether no text can make a pair at distance `d` blind.
    pub(super) fn is_visible(&self, d: u64, limits: &Limits) -> bool {
        let (low, _) = self.bias_range(d);
        let error = self.plan_error(d);
        let after = self.cap_after();
        // The largest entry of the row, as computed: where the error grows with the distance it grows less than the bias falls
        // (`error_outgrows_bias`), so the nearest keys have it.
        let rest = if self.error_outgrows_bias(d) {
            error
        } else {
            self.plan_error(0)
        };
        let gap = self.gap + self.bias_max - low;
        let gap = match after {
            None => gap + error + rest,
            // tanh shrinks differences, and whatever went into it the entries are within the cap, up to their own rounding.
            Some(cap) => {
                let roundoff = Format::F32
                    .unit_roundoff()
                    .max(self.plan.sum.unit_roundoff());
                (gap.max(0.0) + error + rest).min(2.0 * cap * (1.0 + 8.0 * roundoff))
            }
        };
        // Infinite errors may have met: what cannot be compared is not proved.
        if gap.is_nan() || gap > limits.gap_visible {
            return false;
        }
        let Some(weight) = limits.weight_visible else {
            return true;
        };
        let n_keys = self.length.max(d + 1);
        let by_count = gap + self.log_keys(n_keys);
        let total = match after {
            Some(_) => by_count,
            None => by_count.min(self.gap + self.log_sum(n_keys) - low + error),
        };
        total <= weight
    }

    /// Whether no text can leave a pair at distance `d` a weight.
    pub(super) fn is_blind(&self, d: u64, limits: &Limits) -> bool {
        let (_, high) = self.bias_range(d);
        let own = self.bias(0.0);
        let gap = match self.cap_after() {
            None => own - high - self.gap,
            Some(cap) => {
                let capped = |x: f64| cap * (x / cap).tanh();
                (capped(own - self.score) - capped(self.score + high)).min(own - high - self.gap)
            }
        };
        gap - self.plan_error(d) - self.plan_error(0) > limits.gap_blind
    }

    fn cap_after(&self) -> Option<f64> {
        let cap = self
            .bias
            .soft_cap
            .filter(|cap| cap.order == CapOrder::AfterBias);
        cap.map(|cap| cap.cap)
    }

    /// Whether the rounding error of an entry at distance `d` exceeds that of the query's own by more than the bias has fallen.
    fn error_outgrows_bias(&self, d: u64) -> bool {
        let fallen = self.bias(0.0) - self.bias(d as f64);
        let grown = self.plan_error(d) - self.plan_error(0);
        grown.is_nan() || grown > fallen.max(0.0)
    }

    fn log_keys(&self, n_distances: u64) -> f64 {
        let sides = if self.causal { 1.0 } else { 2.0 };
        (sides * n_distances as f64).ln()
    }

    /// Upper bound of `ln sum_k exp(b(d_k) + error(d_k))` over the keys of a row, whatever the row's position.
    ///
    /// Distances are taken one by one near the query and in blocks that grow by an eighth beyond, each block with the bias of its
    /// nearest distance and the error of its furthest. Without a causal mask there are at most two keys at each distance.
    fn log_sum(&self, n_distances: u64) -> f64 {
        if let Some((n, sum)) = self.log_sum.get()
            && n == n_distances
        {
            return sum;
        }
        let sides = if self.causal { 1.0 } else { 2.0 };
        let single_to = self.constant_from().map_or(32, |end| end + 1);
        let (mut sum, mut start) = (0.0f64, 0u64);
        while start < n_distances {
            let size = if start < single_to {
                1
            } else {
                (start / 8).max(1)
            };
            let end = (start + size).min(n_distances);
            let (_, high) = self.bias_range(start);
            let exponent = high - self.bias_max + self.plan_error(end - 1);
            let count = (end - start) as f64 * if start == 0 { 1.0 } else { sides };
            let term = count * exponent.exp();
            sum += term;
            start = end;
            // A monotone bias: all that follow are no larger than this one.
            if self.constant_from().is_none() && exponent < -60.0 - (n_distances as f64).ln() {
                let rest = (n_distances - start) as f64 * sides * exponent.exp();
                // Errors grow with the distance, but not faster than the bias falls, or the whole bound is void.
                sum += if self.error_outgrows_bias(n_distances) {
                    f64::INFINITY
                } else {
                    rest
                };
                break;
            }
        }
        let result = sum.ln() + self.bias_max + 1e-12;
        self.log_sum.set(Some((n_distances, result)));
        result
    }
}
