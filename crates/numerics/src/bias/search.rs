//! The inverse of a bias: from which distance on is it below an exponent?

use super::{BiasFunction, BiasShape, CapOrder, t5_bucket};

/// Up to here every whole number is an `f64`, and `d - 1` is exact.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

impl BiasFunction {
    /// The smallest whole distance whose bias is strictly below `exponent` (nats), as [`BiasFunction::bias`] computes it:
    /// shape, interpolation and clamp, without any soft cap.
    ///
    /// `None` if there is no such distance, or none that an `f64` can hold (log-scaled distance with a flat slope). Up to
    /// 2^53 the result is exact; beyond, it is the smallest such `f64`, and may exceed `u64`. Past keys only: distances of 0
    /// and more.
    ///
    /// # Panics
    /// As [`BiasFunction::bias`].
    pub fn first_distance_below(&self, head: usize, slope: f64, exponent: f64) -> Option<f64> {
        let below = |distance: f64| self.bias(head, slope, distance) < exponent;
        self.first_distance(below, || self.inverse(head, slope, exponent))
    }

    /// The smallest whole distance at which the entry of a key with score 0 is strictly below `exponent`, when the query's
    /// own entry is 0: equal content, soft cap included.
    ///
    /// The same as [`BiasFunction::first_distance_below`] unless a cap sits after the bias, which holds every such entry
    /// above `-cap`.
    ///
    /// # Panics
    /// As [`BiasFunction::bias`].
    pub fn first_equal_content_distance_below(
        &self,
        head: usize,
        slope: f64,
        exponent: f64,
    ) -> Option<f64> {
        let Some(cap) = self.soft_cap.filter(|cap| cap.order == CapOrder::AfterBias) else {
            return self.first_distance_below(head, slope, exponent);
        };
        let below = |distance: f64| self.combine(head, slope, 0.0, distance) < exponent;
        let uncapped = cap.cap * (exponent / cap.cap).atanh();
        self.first_distance(below, || self.inverse(head, slope, uncapped))
    }

    /// The smallest whole distance at which `below` holds, a predicate on the bias; `guess` is an inverse that may be off
    /// by its own rounding.
    fn first_distance(
        &self,
        below: impl Fn(f64) -> bool,
        guess: impl Fn() -> Option<f64>,
    ) -> Option<f64> {
        if below(0.0) {
            return Some(0.0);
        }
        if let BiasShape::T5Buckets {
            n_buckets,
            max_distance,
            bidirectional,
            ..
        } = &self.shape
        {
            // A table may go up and down: look at the first distance of each bucket.
            let bucket = |d: usize| t5_bucket(d as f64, *n_buckets, *max_distance, *bidirectional);
            let starts = (1..=*max_distance).filter(|d| bucket(*d) != bucket(d - 1));
            return starts.map(|d| d as f64).find(|d| below(*d));
        }
        match guess().map(f64::ceil) {
            Some(d) if d.is_finite() && d >= 1.0 && below(d) && !below(previous(d)) => Some(d),
            _ => bisect(below),
        }
    }

    /// The real distance at which the unclamped bias equals `exponent < 0`, where the shape has an inverse.
    fn inverse(&self, head: usize, slope: f64, exponent: f64) -> Option<f64> {
        let m = slope * self.interpolation;
        Some(match &self.shape {
            BiasShape::Linear => -exponent / m,
            BiasShape::Log => (-exponent / m).exp_m1(),
            BiasShape::Sqrt => (exponent / m).powi(2),
            BiasShape::KerpleLog { p, a } => {
                (-exponent / (p[head] * self.interpolation)).exp_m1() / a[head]
            }
            BiasShape::None | BiasShape::T5Buckets { .. } => return None,
        })
    }
}

/// The whole number before `d >= 1` that an `f64` can hold.
fn previous(d: f64) -> f64 {
    if d <= WHOLE_MAX {
        d - 1.0
    } else {
        d.next_down()
    }
}

/// The smallest whole `f64` of 1 or more for which the monotone predicate `below` holds; it does not hold at 0.
fn bisect(below: impl Fn(f64) -> bool) -> Option<f64> {
    if !below(f64::MAX) {
        return None;
    }
    // Whole numbers up to 2^53 by value; beyond, all f64 are whole and their bits are in order.
    let (to_distance, mut low, mut high): (fn(u64) -> f64, u64, u64) = if below(WHOLE_MAX) {
        (|n| n as f64, 0, WHOLE_MAX as u64)
    } else {
        (f64::from_bits, WHOLE_MAX.to_bits(), f64::MAX.to_bits())
    };
    // Invariant: not below at `low`, below at `high`.
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if below(to_distance(middle)) {
            high = middle
        } else {
            low = middle
        }
    }
    Some(to_distance(high))
}
