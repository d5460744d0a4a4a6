//! How far a plan's entries can be from the exact ones.

use super::{BiasPlacement, PrecisionPlan, ScoreSpec};
use crate::bias::BiasShape;
use crate::convention::BiasForm;
use crate::format::Format;

impl PrecisionPlan {
    /// A bound on `|plan entry - exact entry|` in nats, for every pair of the sequence, where the exact entry is
    /// `q.k * scale + bias` in real numbers with the bias in the plan's own form (a key-position bias differs from the relative
    /// one by a constant of the row, which no gap sees) and `|q.k * scale| <= score_bound`. Infinite where a value can leave
    /// its format. A gap is a difference of two entries: its error is at most twice this.
    ///
    /// Derivation: every step is one rounding, `r(x) = x (1 + e)` with `|e| <= u` the unit roundoff, or an absolute error of half
    /// the smallest subnormal. The scaled score passes at most the f32 input, `raw_score`, the f32 scale, the f32 product and
    /// `scaled`; the bias passes slope, its f32 scaling (the scale and the operation), position, product, storage, f32, the f32
    /// scale, the f32 product and storage again; the sum passes three f32 additions and `sum`. A chain of relative errors `u_k`
    /// is bounded by `exp(sum u_k) - 1`. Caps have slope at most 1, so they carry errors without growth and add two f32
    /// roundings and one of `sum`.
    pub fn score_error_nats(&self, spec: &ScoreSpec<'_>, score_bound: f64) -> f64 {
        let bias_bound = self.bias_bound(spec);
        let magnitude = score_bound + bias_bound;
        if self.idealised {
            // Real arithmetic in the plan's definition; a few f64 roundings in ours.
            return 8.0 * Format::F64.unit_roundoff() * magnitude;
        }
        let u = Format::unit_roundoff;
        let u32 = u(Format::F32);
        let chain = |sum: f64| sum.exp_m1();
        let score_chain = chain(3.0 * u32 + u(self.raw_score) + u(self.scaled));
        let b = &self.bias;
        let bias_chain =
            chain(u(self.slope) + u(b.position) + u(b.product) + 2.0 * u(b.storage) + 5.0 * u32);
        let sum_chain = chain(5.0 * u32 + 2.0 * u(self.sum));
        let scored = score_bound * (1.0 + score_chain) + bias_bound * (1.0 + bias_chain);
        let mut error = score_bound * score_chain + bias_bound * bias_chain + scored * sum_chain;

        // Absolute errors among subnormals. A slope's is multiplied by the position.
        let half_step = |format: Format| format.min_subnormal() / 2.0;
        let before = if self.placement.is_before_scale()
            || self.placement == BiasPlacement::StoredTimesScale
        {
            spec.scale
        } else {
            1.0
        };
        let times = f64::from(self.bias_multiplicity);
        let positions = spec.length as f64 + 1.0;
        if self.runtime_slope(spec.slope).abs() * spec.bias.interpolation < self.slope.min_normal()
        {
            error += half_step(self.slope) * positions * before * times;
        }
        error += times * before * (half_step(b.product) + half_step(b.storage))
            + half_step(b.storage)
            + half_step(self.raw_score) * spec.scale
            + half_step(self.scaled)
            + 2.0 * half_step(self.sum);

        // Overflow anywhere on the way.
        let fits = |format: Format, value: f64| value * (1.0 + 1e-3) < format.max_finite();
        let raw_bound = score_bound / spec.scale;
        let stored_bound = bias_bound / (before * times);
        let all_fit = fits(self.raw_score, raw_bound)
            && fits(self.scaled, score_bound)
            && fits(b.product, stored_bound)
            && fits(b.storage, stored_bound)
            && fits(b.position, positions)
            && fits(Format::F32, raw_bound + stored_bound)
            && fits(self.sum, scored);
        if all_fit { error } else { f64::INFINITY }
    }

    /// Largest `|bias|` in nats of any pair, in the plan's form, exact arithmetic.
    fn bias_bound(&self, spec: &ScoreSpec<'_>) -> f64 {
        let slope = self.effective_slope(spec.slope, spec.scale);
        match self.bias_form(spec.bias, spec.causal) {
            BiasForm::KeyPosition if !self.idealised => match spec.bias.shape {
                BiasShape::None => 0.0,
                _ => slope.abs() * spec.bias.interpolation * (spec.length as f64 + 1.0),
            },
            _ => match &spec.bias.shape {
                BiasShape::T5Buckets { table, .. } => table[spec.head]
                    .iter()
                    .fold(0.0, |bound: f64, bias| bound.max(bias.abs())),
                _ => spec.bias.bias(spec.head, slope, spec.length as f64).abs(),
            },
        }
    }
}
