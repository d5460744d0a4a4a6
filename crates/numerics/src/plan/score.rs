//! The plan's own entries `score + bias`, one at a time and whole rows at a time.

use super::{BiasPlacement, PrecisionPlan};
use crate::bias::{BiasFunction, BiasShape, CapOrder, SoftCap};
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

    /// Position (signed) at which the stored bias of a pair is taken: the key's, from its origin, or query minus key.
    fn bias_position(&self, spec: &ScoreSpec<'_>, query: u64, key: u64) -> f64 {
        match self.bias_form(spec.bias, spec.causal) {
            BiasForm::KeyPosition => self.key_position(spec.length, key),
            BiasForm::Relative => query as f64 - key as f64,
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
        let slope = self.slope.round(spec.slope * spec.bias.interpolation);
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
        let form = self.bias_form(spec.bias, spec.causal);
        let linear = matches!(spec.bias.shape, BiasShape::Linear) && spec.bias.clamp.is_none();
        let product = if linear {
            let slope = self.slope_in_bias(spec);
            let position = match form {
                BiasForm::KeyPosition => self.bias.position.round(position),
                BiasForm::Relative => -self.bias.position.round(position.abs()),
            };
            // `+ 0.0`: the diagonal's bias is +0.
            slope * position + 0.0
        } else {
            self.distance_bias(spec, position)
        };
        self.bias.storage.round(self.bias.product.round(product))
    }

    /// A bias that is not linear, in the unit in which the plan adds it (before or after the scale).
    fn distance_bias(&self, spec: &ScoreSpec<'_>, distance: f64) -> f64 {
        let scale = Format::F32.round(spec.scale);
        let slope = self.slope.round(spec.slope)
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

    /// [`PrecisionPlan::score`] with the stored bias given; not for idealised plans.
    pub(crate) fn score_from_bias(&self, spec: &ScoreSpec<'_>, raw: f64, stored: f64) -> f64 {
        let f32 = |x: f64| Format::F32.round(x);
        let scale = f32(spec.scale);
        let raw = self.raw_score.round(f32(raw));
        let bias = match self.placement {
            BiasPlacement::StoredTimesScale => self.bias.storage.round(f32(f32(stored) * scale)),
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
            // Further additions come through the mask: bias * scale in the storage format.
            f32(entry + self.bias.storage.round(f32(f32(stored) * scale)))
        });
        let entry = self.sum.round(entry);
        match cap {
            Some(cap) if cap.order == CapOrder::AfterBias => self.sum.round(f32(cap.apply(entry))),
            _ => entry,
        }
    }

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
        if spec.slope.abs() * spec.bias.interpolation < self.slope.min_normal() {
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

/// The bias of a pair as the plan stores it, in the unit in which the plan adds it (before the scale for Falcon eager and
/// FlashAttention-2). Defined for idealised plans too, whose collapse counts use it.
pub fn stored_bias(plan: &PrecisionPlan, spec: &ScoreSpec<'_>, query: u64, key: u64) -> f64 {
    plan.stored_bias_at(spec, plan.bias_position(spec, query, key))
}

/// A rounding of f32 values, made cheap for the formats that occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cast {
    Keep,
    Bf16,
    F16,
    Other(Format),
}

impl Cast {
    fn of(format: Format) -> Cast {
        match format {
            Format::F64 | Format::F32 => Cast::Keep,
            Format::Bf16 => Cast::Bf16,
            Format::F16 => Cast::F16,
            other => Cast::Other(other),
        }
    }

    #[inline]
    fn round(self, x: f32) -> f32 {
        match self {
            Cast::Keep => x,
            Cast::Bf16 => round_bf16(x),
            Cast::F16 => round_f16(x),
            Cast::Other(format) => format.round(f64::from(x)) as f32,
        }
    }
}

/// Adds just under half a step, or half where the kept part is odd; carries and infinities come out right.
#[inline]
fn round_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let odd = (bits >> 16) & 1;
    let rounded = f32::from_bits(bits.wrapping_add(0x7fff + odd) & 0xffff_0000);
    if x.is_nan() { x } else { rounded }
}

#[inline]
fn round_f16(x: f32) -> f32 {
    let magnitude = x.abs();
    // f32 numbers next to 0.5 are 2^-24 apart, the smallest f16 subnormal.
    let small = (magnitude + 0.5) - 0.5;
    let bits = magnitude.to_bits();
    let odd = (bits >> 13) & 1;
    let large = f32::from_bits(bits.wrapping_add(0x0fff + odd) & 0xffff_e000);
    let rounded = if magnitude < 6.103_515_6e-5 {
        small
    } else {
        large
    };
    let bounded = if rounded > 65504.0 {
        f32::INFINITY
    } else {
        rounded
    };
    if x.is_nan() { x } else { bounded.copysign(x) }
}

/// A head's scores under a plan, ready to be evaluated for very many pairs: the stored bias as a table (by key or by
/// distance, linear in the length) and the roundings of the sum in f32 arithmetic.
///
/// Equal to [`PrecisionPlan::score`] bit for bit. Entries of an idealised plan are exact f64 values.
#[derive(Clone, Debug)]
pub struct ScorePath {
    form: BiasForm,
    /// Idealised plans: bias in nats by distance. Empty otherwise.
    exact: Vec<f64>,
    /// Stored bias by key or by distance, in the unit in which it is added. Empty for idealised plans.
    stored: Vec<f32>,
    /// Added once more after the scale (Falcon eager), by key or distance; empty if not.
    repeated: Vec<f32>,
    /// As `exact` and `stored` for keys after the query, where the bias tells the two sides apart (T5).
    exact_ahead: Vec<f64>,
    stored_ahead: Vec<f32>,
    scale: f32,
    scale_exact: f64,
    raw: Cast,
    scaled: Cast,
    sum: Cast,
    before_scale: bool,
    cap: Option<SoftCap>,
}

impl PrecisionPlan {
    /// Precomputes the scores of one head. Memory: 4 bytes a key (8 for idealised plans and for Falcon eager).
    pub fn score_path(&self, spec: &ScoreSpec<'_>) -> ScorePath {
        let form = if self.idealised {
            BiasForm::Relative
        } else {
            self.bias_form(spec.bias, spec.causal)
        };
        let two_sided = !spec.causal
            && matches!(spec.bias.shape, BiasShape::T5Buckets { bidirectional, .. } if bidirectional);
        let length = spec.length;
        let slope = self.effective_slope(spec.slope, spec.scale);
        let exact_at = |distance: f64| spec.bias.bias(spec.head, slope, distance);
        let position_at = |index: u64| match form {
            BiasForm::KeyPosition => self.key_position(length, index),
            BiasForm::Relative => index as f64,
        };
        // What the f32 addition sees.
        let added = |stored: f64| -> f32 {
            let stored = stored as f32;
            match self.placement {
                BiasPlacement::StoredTimesScale => self.times_scale(spec, stored),
                _ => stored,
            }
        };
        let (mut exact, mut stored, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        let (mut exact_ahead, mut stored_ahead) = (Vec::new(), Vec::new());
        if self.idealised {
            exact = (0..length).map(|d| exact_at(d as f64)).collect();
            if two_sided {
                exact_ahead = (0..length).map(|d| exact_at(-(d as f64))).collect();
            }
        } else {
            stored = (0..length)
                .map(|index| added(self.stored_bias_at(spec, position_at(index))))
                .collect();
            if two_sided {
                stored_ahead = (0..length)
                    .map(|d| added(self.stored_bias_at(spec, -(d as f64))))
                    .collect();
            }
            if self.bias_multiplicity > 1 {
                repeated = stored.iter().map(|b| self.times_scale(spec, *b)).collect();
            }
        }
        ScorePath {
            form,
            exact,
            stored,
            repeated,
            exact_ahead,
            stored_ahead,
            scale: spec.scale as f32,
            scale_exact: spec.scale,
            raw: Cast::of(self.raw_score),
            scaled: Cast::of(self.scaled),
            sum: Cast::of(self.sum),
            before_scale: self.placement.is_before_scale(),
            cap: spec.bias.soft_cap,
        }
    }

    /// A stored bias times the f32 scale, in the storage format.
    fn times_scale(&self, spec: &ScoreSpec<'_>, stored: f32) -> f32 {
        let product = stored * spec.scale as f32;
        self.bias.storage.round(f64::from(product)) as f32
    }
}

impl ScorePath {
    /// Whether the table is by key or by distance.
    pub fn form(&self) -> BiasForm {
        self.form
    }

    /// Whether entries are exact f64 values.
    pub fn is_exact(&self) -> bool {
        !self.exact.is_empty()
    }

    #[inline]
    fn index(&self, query: usize, key: usize) -> (usize, bool) {
        match self.form {
            BiasForm::KeyPosition => (key, false),
            BiasForm::Relative => (query.abs_diff(key), key > query),
        }
    }

    /// The entry of a pair from its raw score `q.k`, not scaled.
    ///
    /// # Panics
    /// If the key or distance lies beyond the length the path was made for.
    #[inline]
    pub fn entry(&self, raw: f32, query: usize, key: usize) -> f64 {
        let (index, ahead) = self.index(query, key);
        if self.is_exact() {
            let scaled = f64::from(raw) * self.scale_exact;
            return self.exact_entry(scaled, index, ahead, false);
        }
        f64::from(self.rounded_entry(self.raw.round(raw), index, ahead))
    }

    /// The entries of one row, keys `first_key ..`, from raw scores `q.k` (not scaled), as f32. For an idealised plan the exact
    /// entries rounded once to f32; see [`ScorePath::row_f64`] for those themselves.
    ///
    /// # Panics
    /// If `raw` and `out` differ in length or reach beyond the path's length.
    pub fn row(&self, raw: &[f32], query: usize, first_key: usize, out: &mut [f32]) {
        assert_eq!(raw.len(), out.len(), "one entry a raw score");
        if self.is_exact() {
            for (offset, (raw, out)) in raw.iter().zip(out).enumerate() {
                *out = self.entry(*raw, query, first_key + offset) as f32;
            }
            return;
        }
        for (offset, (raw, out)) in raw.iter().zip(out).enumerate() {
            let (index, ahead) = self.index(query, first_key + offset);
            *out = self.rounded_entry(self.raw.round(*raw), index, ahead);
        }
    }

    /// [`ScorePath::row`] without the last rounding of exact entries.
    ///
    /// # Panics
    /// As [`ScorePath::row`].
    pub fn row_f64(&self, raw: &[f32], query: usize, first_key: usize, out: &mut [f64]) {
        assert_eq!(raw.len(), out.len(), "one entry a raw score");
        for (offset, (raw, out)) in raw.iter().zip(out).enumerate() {
            *out = self.entry(*raw, query, first_key + offset);
        }
    }

    /// [`ScorePath::row`] from scores that are scaled already, and capped if the cap comes before the bias: what the kernels
    /// hand to their observers. The raw score is recovered as `scaled / scale` in f32, which is exact where the scale is a power
    /// of two and within one f32 ulp of the score otherwise. With a cap before the bias no plan rounds the raw score.
    ///
    /// # Panics
    /// As [`ScorePath::row`].
    pub fn row_scaled(&self, scaled: &[f32], query: usize, first_key: usize, out: &mut [f32]) {
        assert_eq!(scaled.len(), out.len(), "one entry a score");
        for (offset, (scaled, out)) in scaled.iter().zip(out).enumerate() {
            *out = self.entry_scaled(*scaled, query, first_key + offset) as f32;
        }
    }

    /// One entry of [`ScorePath::row_scaled`].
    ///
    /// # Panics
    /// As [`ScorePath::entry`].
    #[inline]
    pub fn entry_scaled(&self, scaled: f32, query: usize, key: usize) -> f64 {
        let (index, ahead) = self.index(query, key);
        if self.is_exact() {
            return self.exact_entry(f64::from(scaled), index, ahead, true);
        }
        if self.caps_first() {
            f64::from(self.finish(self.add_after_scale(scaled, index, ahead), index))
        } else if self.raw == Cast::Keep && !self.before_scale {
            // No rounding lies between the raw and the scaled score: nothing to recover.
            let x = self.scaled.round(scaled);
            f64::from(self.finish(self.add_after_scale(x, index, ahead), index))
        } else {
            let raw = self.raw.round(scaled / self.scale);
            f64::from(self.rounded_entry(raw, index, ahead))
        }
    }

    fn caps_first(&self) -> bool {
        self.cap
            .is_some_and(|cap| cap.order == CapOrder::BeforeBias)
    }

    #[inline]
    fn exact_entry(&self, scaled: f64, index: usize, ahead: bool, capped: bool) -> f64 {
        let table = if ahead && !self.exact_ahead.is_empty() {
            &self.exact_ahead
        } else {
            &self.exact
        };
        let bias = table[index];
        match self.cap {
            None => scaled + bias,
            Some(cap) if cap.order == CapOrder::BeforeBias => {
                let score = if capped { scaled } else { cap.apply(scaled) };
                score + bias
            }
            Some(cap) => cap.apply(scaled + bias),
        }
    }

    #[inline]
    fn bias_at(&self, index: usize, ahead: bool) -> f32 {
        if ahead && !self.stored_ahead.is_empty() {
            self.stored_ahead[index]
        } else {
            self.stored[index]
        }
    }

    /// `raw` has its format already.
    #[inline]
    fn rounded_entry(&self, raw: f32, index: usize, ahead: bool) -> f32 {
        let caps_first = self.caps_first();
        let entry = if self.before_scale && !caps_first {
            (raw + self.bias_at(index, ahead)) * self.scale
        } else {
            let mut x = self.scaled.round(raw * self.scale);
            if let Some(cap) = self.cap.filter(|_| caps_first) {
                x = cap.apply(f64::from(x)) as f32;
            }
            self.add_after_scale(x, index, ahead)
        };
        self.finish(entry, index)
    }

    #[inline]
    fn add_after_scale(&self, x: f32, index: usize, ahead: bool) -> f32 {
        let bias = self.bias_at(index, ahead);
        x + if self.before_scale {
            bias * self.scale
        } else {
            bias
        }
    }

    #[inline]
    fn finish(&self, entry: f32, index: usize) -> f32 {
        let entry = match self.repeated.get(index) {
            Some(bias) => entry + bias,
            None => entry,
        };
        let entry = self.sum.round(entry);
        match self.cap {
            Some(cap) if cap.order == CapOrder::AfterBias => {
                self.sum.round(cap.apply(f64::from(entry)) as f32)
            }
            _ => entry,
        }
    }
}
