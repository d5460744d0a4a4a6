//! The plan's entries, whole rows at a time: tables and f32 arithmetic instead of emulated scalars.

use super::{BiasPlacement, PrecisionPlan, ScoreSpec};
use crate::bias::{BiasShape, CapOrder, SoftCap};
use crate::convention::BiasForm;
use crate::rounding::{Cast, round_bf16, round_f16};

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
    /// As `exact`, `stored` and `repeated` for keys after the query, where the bias tells the two sides apart (T5).
    exact_ahead: Vec<f64>,
    stored_ahead: Vec<f32>,
    repeated_ahead: Vec<f32>,
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
        let exact_at = self.exact_biases(spec);
        let position_at = |index: u64| match form {
            BiasForm::KeyPosition => self.key_position(length, index),
            BiasForm::Relative => index as f64,
        };
        // What the f32 addition sees.
        let added = |stored: f64| -> f32 {
            let stored = stored as f32;
            match self.placement {
                BiasPlacement::StoredTimesScale => {
                    self.bias_in_mask(spec, f64::from(stored)) as f32
                }
                _ => stored,
            }
        };
        let (mut exact, mut stored, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        let (mut exact_ahead, mut stored_ahead) = (Vec::new(), Vec::new());
        let mut repeated_ahead = Vec::new();
        if self.idealised {
            exact = (0..length).map(|d| exact_at(d as f64)).collect();
            if two_sided {
                exact_ahead = (0..length).map(|d| exact_at(-(d as f64))).collect();
            }
        } else {
            let stored_at = self.stored_biases(spec);
            stored = (0..length)
                .map(|index| added(stored_at(position_at(index))))
                .collect();
            if two_sided {
                stored_ahead = (0..length).map(|d| added(stored_at(-(d as f64)))).collect();
            }
            if self.bias_multiplicity > 1 {
                let repeat = |table: &[f32]| -> Vec<f32> {
                    table
                        .iter()
                        .map(|b| self.bias_in_mask(spec, f64::from(*b)) as f32)
                        .collect()
                };
                repeated = repeat(&stored);
                repeated_ahead = repeat(&stored_ahead);
            }
        }
        ScorePath {
            form,
            exact,
            stored,
            repeated,
            exact_ahead,
            stored_ahead,
            repeated_ahead,
            scale: spec.scale as f32,
            scale_exact: spec.scale,
            raw: Cast::to(self.raw_score),
            scaled: Cast::to(self.scaled),
            sum: Cast::to(self.sum),
            before_scale: self.placement.is_before_scale(),
            cap: spec.bias.soft_cap,
        }
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
        f64::from(self.rounded_entry(self.raw.apply(raw), index, ahead))
    }

    /// The entries of one row, keys `first_key ..`, from raw scores `q.k` (not scaled), as f32. For an idealised plan the exact
    /// entries rounded once to f32; see [`ScorePath::row_f64`] for those themselves.
    ///
    /// # Panics
    /// If `raw` and `out` differ in length or reach beyond the path's length.
    pub fn row(&self, raw: &[f32], query: usize, first_key: usize, out: &mut [f32]) {
        assert_eq!(raw.len(), out.len(), "one entry a raw score");
        let scale = self.scale;
        let scale_exact = self.scale_exact;
        let done = self.plain_row(
            raw,
            query,
            first_key,
            out,
            |raw| f64::from(raw) * scale_exact,
            |raw| raw,
            |raw| raw * scale,
        );
        if !done {
            for (offset, (raw, out)) in raw.iter().zip(out).enumerate() {
                *out = self.entry(*raw, query, first_key + offset) as f32;
            }
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
        let scale = self.scale;
        let done = self.plain_row(
            scaled,
            query,
            first_key,
            out,
            f64::from,
            |scaled| scaled / scale,
            |scaled| scaled,
        );
        if !done {
            for (offset, (scaled, out)) in scaled.iter().zip(out).enumerate() {
                *out = self.entry_scaled(*scaled, query, first_key + offset) as f32;
            }
        }
    }

    /// A whole row without soft cap, with the roundings chosen once outside the loop so that it vectorises: the roundings that
    /// occur in the plans. `false`, and `out` untouched, where the general path is needed.
    ///
    /// `exact` turns an input into the exact scaled score, `unscaled` into the raw score, `scaled` into the scaled score where no
    /// rounding lies between.
    #[allow(
        clippy::too_many_arguments,
        reason = "one row and three ways to read its scores"
    )]
    fn plain_row(
        &self,
        scores: &[f32],
        query: usize,
        first_key: usize,
        out: &mut [f32],
        exact: impl Fn(f32) -> f64 + Copy,
        unscaled: impl Fn(f32) -> f32 + Copy,
        scaled: impl Fn(f32) -> f32 + Copy,
    ) -> bool {
        let keys = first_key..first_key + scores.len();
        let one_side = self.form == BiasForm::KeyPosition || keys.end <= query + 1;
        if self.cap.is_some() || !one_side || keys.is_empty() {
            return false;
        }
        if !self.repeated.is_empty() {
            return self.repeated_row(scores, keys, out, unscaled);
        }
        if self.is_exact() {
            self.each(&self.exact, keys, query, scores, out, |score, bias| {
                (exact(score) + bias) as f32
            });
            return true;
        }
        let scale = self.scale;
        // A loop of its own for every combination.
        macro_rules! rows {
            ($score:ident, $bias:ident => $entry:expr) => {{
                let entry = |$score: f32, $bias: f32| $entry;
                self.each(&self.stored, keys, query, scores, out, entry);
                true
            }};
        }
        match (self.before_scale, self.raw, self.scaled, self.sum) {
            (true, Cast::KEEP, _, Cast::KEEP) => {
                rows!(s, bias => (unscaled(s) + bias) * scale)
            }
            (false, Cast::KEEP, Cast::KEEP, Cast::KEEP) => rows!(s, bias => scaled(s) + bias),
            (false, Cast::KEEP, Cast::KEEP, Cast::BF16) => {
                rows!(s, bias => round_bf16(scaled(s) + bias))
            }
            (false, Cast::KEEP, Cast::KEEP, Cast::F16) => {
                rows!(s, bias => round_f16(scaled(s) + bias))
            }
            (false, Cast::BF16, Cast::BF16, Cast::KEEP) => {
                rows!(s, bias => round_bf16(round_bf16(unscaled(s)) * scale) + bias)
            }
            (false, Cast::F16, Cast::F16, Cast::KEEP) => {
                rows!(s, bias => round_f16(round_f16(unscaled(s)) * scale) + bias)
            }
            (false, Cast::BF16, Cast::BF16, Cast::BF16) => {
                rows!(s, bias => round_bf16(round_bf16(round_bf16(unscaled(s)) * scale) + bias))
            }
            (false, Cast::F16, Cast::F16, Cast::F16) => {
                rows!(s, bias => round_f16(round_f16(round_f16(unscaled(s)) * scale) + bias))
            }
            _ => false,
        }
    }

    /// [`ScorePath::plain_row`] for a key-position bias that is added twice (Falcon eager).
    fn repeated_row(
        &self,
        scores: &[f32],
        keys: std::ops::Range<usize>,
        out: &mut [f32],
        unscaled: impl Fn(f32) -> f32 + Copy,
    ) -> bool {
        if self.form != BiasForm::KeyPosition || !self.before_scale {
            return false;
        }
        let (stored, repeated) = (&self.stored[keys.clone()], &self.repeated[keys]);
        let scale = self.scale;
        macro_rules! rows {
            ($round:expr) => {{
                let biases = stored.iter().zip(repeated);
                for ((score, out), (bias, again)) in scores.iter().zip(out).zip(biases) {
                    let raw = $round(unscaled(*score));
                    *out = $round((raw + bias) * scale + again);
                }
                true
            }};
        }
        match (self.raw, self.sum) {
            (Cast::KEEP, Cast::KEEP) => rows!(|x: f32| x),
            (Cast::BF16, Cast::BF16) => rows!(round_bf16),
            (Cast::F16, Cast::F16) => rows!(round_f16),
            _ => false,
        }
    }

    /// Applies `entry` to every score and its bias: forwards through a table by key, backwards through one by distance.
    #[inline(always)]
    fn each<B: Copy>(
        &self,
        table: &[B],
        keys: std::ops::Range<usize>,
        query: usize,
        scores: &[f32],
        out: &mut [f32],
        entry: impl Fn(f32, B) -> f32,
    ) {
        let pairs = scores.iter().zip(out);
        match self.form {
            BiasForm::KeyPosition => {
                for ((score, out), bias) in pairs.zip(&table[keys]) {
                    *out = entry(*score, *bias);
                }
            }
            BiasForm::Relative => {
                let distances = query + 1 - keys.end..query + 1 - keys.start;
                for ((score, out), bias) in pairs.zip(table[distances].iter().rev()) {
                    *out = entry(*score, *bias);
                }
            }
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
            f64::from(self.finish(self.add_after_scale(scaled, index, ahead), index, ahead))
        } else if self.raw == Cast::KEEP && !self.before_scale {
            // No rounding lies between the raw and the scaled score: nothing to recover.
            let x = self.scaled.apply(scaled);
            f64::from(self.finish(self.add_after_scale(x, index, ahead), index, ahead))
        } else {
            let raw = self.raw.apply(scaled / self.scale);
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
            let mut x = self.scaled.apply(raw * self.scale);
            if let Some(cap) = self.cap.filter(|_| caps_first) {
                x = cap.apply(f64::from(x)) as f32;
            }
            self.add_after_scale(x, index, ahead)
        };
        self.finish(entry, index, ahead)
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
    fn finish(&self, entry: f32, index: usize, ahead: bool) -> f32 {
        let repeated = if ahead && !self.repeated_ahead.is_empty() {
            &self.repeated_ahead
        } else {
            &self.repeated
        };
        let entry = match repeated.get(index) {
            Some(bias) => entry + bias,
            None => entry,
        };
        let entry = self.sum.apply(entry);
        match self.cap {
            Some(cap) if cap.order == CapOrder::AfterBias => {
                self.sum.apply(cap.apply(f64::from(entry)) as f32)
            }
            _ => entry,
        }
    }
}
