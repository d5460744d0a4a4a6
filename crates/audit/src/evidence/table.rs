//! Scores of a head under one score path, evaluated a chunk at a time.
//!
//! [`numerics::ScorePath`] defines every entry; here the common forms are laid out so that their loops vectorise (the bias
//! contiguous in the key, roundings without branches). Both give the same bits, which a test holds.
//!
//! Every form is monotone: a larger raw score or a larger bias never gives a smaller entry. So the entries of a chunk lie
//! between those of its smallest raw score with its smallest bias and of its largest with its largest.

use std::borrow::Cow;

use kernels::ScoreRows;
use numerics::plan::BiasPlacement;
use numerics::{
    BiasForm, BiasFunction, BiasShape, CapOrder, Format, PrecisionPlan, Rounding, ScorePath,
    ScoreSpec, stored_biases,
};

use crate::evidence::lanes::{LaneKind, LaneTable};
use crate::evidence::row::{Chunk, Row};
use crate::evidence::scan::{CHUNK, Real};
use crate::evidence::slack::{F32_UNIT, Slack};

/// How raw score and bias make an entry.
#[derive(Clone, Debug)]
enum Kind {
    /// `raw + bias` in f64: idealised plans.
    Exact,
    /// `raw + bias` in f32, then a soft cap if there is one: this tool's own forward pass, and most f32 plans.
    F32 { cap: Option<f32> },
    /// `sum(scaled(raw) + bias)`, roundings to 16 bits.
    Rounded { scaled: Rounding, sum: Rounding },
    /// `(raw / scale + bias) * scale` in f32.
    BeforeScale { scale: f32 },
    /// Anything else, one pair at a time.
    Path(Box<ScorePath>),
}

/// The entries of one head of one call.
#[derive(Clone, Debug)]
pub(crate) struct ScoreTable {
    kind: Kind,
    /// Whether the bias is indexed by the key (else by the offset `key - query + n_keys - 1`).
    by_key: bool,
    n_keys: usize,
    bias_f64: Vec<f64>,
    bias: Vec<f32>,
    /// Whether the bias is monotone on each side of the query, so that a chunk's extremes are at its ends.
    monotone: bool,
}

impl ScoreTable {
    /// The entries of this tool's own forward pass over `n_keys` keys; `pad` is the number of keys before the first valid one.
    pub(crate) fn own(rows: &ScoreRows<'_>, pad: usize, n_keys: usize) -> Self {
        let cap = rows
            .soft_cap
            .filter(|&(_, order)| order == kernels::CapOrder::AfterBias)
            .map(|(cap, _)| cap);
        Self::of_bias(n_keys, rows.causal, cap, |query, key| {
            rows.bias_at(query + pad, key + pad)
        })
    }

    /// Entries in f32 with the bias `at(query, key)`, which depends on the key or on the distance alone.
    pub(crate) fn of_bias(
        n_keys: usize,
        causal: bool,
        cap: Option<f32>,
        at: impl Fn(usize, usize) -> f32,
    ) -> Self {
        let last = n_keys - 1;
        // A table by key does not depend on the query; a table by distance that does not is constant, and either will do.
        let by_key = (0..n_keys).all(|key| {
            let bias = at(last, key);
            at(0, key) == bias && (n_keys < 2 || at(1, key) == bias)
        });
        let bias: Vec<f32> = if by_key || causal {
            // For a causal table by distance the last query's row holds every distance, in the order of the offsets.
            (0..n_keys).map(|key| at(last, key)).collect()
        } else {
            let behind = (0..n_keys).map(|key| at(last, key));
            behind.chain((1..n_keys).map(|key| at(0, key))).collect()
        };
        Self {
            kind: Kind::F32 { cap },
            by_key,
            n_keys,
            bias_f64: Vec::new(),
            monotone: is_monotone(&bias, n_keys, by_key),
            bias,
        }
    }

    /// The entries under a plan. `spec.length` is the number of keys.
    pub(crate) fn of_plan(plan: &PrecisionPlan, spec: &ScoreSpec<'_>) -> Self {
        let n_keys = usize::try_from(spec.length).expect("a sequence fits in memory");
        let form = if plan.idealised {
            BiasForm::Relative
        } else {
            plan.bias_form(spec.bias, spec.causal)
        };
        let by_key = form == BiasForm::KeyPosition;
        let mut table = Self {
            kind: Kind::Exact,
            by_key,
            n_keys,
            bias_f64: Vec::new(),
            bias: Vec::new(),
            monotone: false,
        };
        let capped = spec
            .bias
            .soft_cap
            .is_some_and(|cap| cap.order == CapOrder::AfterBias);
        let pairs = pairs_of_index(n_keys, by_key, spec.causal);
        let path = || plan.score_path(spec);
        if plan.idealised && !capped {
            let exact = plan.exact_biases(spec);
            table.bias_f64 = pairs
                .map(|(query, key)| exact(query as f64 - key as f64))
                .collect();
            table.monotone = is_monotone(&table.bias_f64, n_keys, by_key);
            return table;
        }
        let plain = !capped
            && !plan.idealised
            && plan.bias_multiplicity == 1
            && plan.raw_score == Format::F32;
        let after = matches!(
            plan.placement,
            BiasPlacement::AfterScale | BiasPlacement::SlopeTimesScale
        );
        let before_cap = spec.bias.soft_cap.is_some();
        let kind = match (Rounding::of(plan.scaled), Rounding::of(plan.sum)) {
            (Some(Rounding::Keep), Some(Rounding::Keep)) if plain && after => {
                Kind::F32 { cap: None }
            }
            // Behind a cap that comes before the bias the kernel's score is capped already; numerics adds it unrounded.
            (Some(scaled), Some(sum)) if plain && after && !before_cap => {
                Kind::Rounded { scaled, sum }
            }
            (_, Some(Rounding::Keep))
                if plain && plan.placement.is_before_scale() && !before_cap =>
            {
                Kind::BeforeScale {
                    scale: spec.scale as f32,
                }
            }
            _ => Kind::Path(Box::new(path())),
        };
        match kind {
            Kind::Path(_) => table.monotone = has_monotone_shape(spec.bias),
            _ => {
                let stored = stored_biases(plan, spec);
                table.bias = pairs
                    .map(|(query, key)| stored(query as u64, key as u64) as f32)
                    .collect();
                table.monotone = is_monotone(&table.bias, n_keys, by_key);
            }
        }
        table.kind = kind;
        table
    }

    /// Whether another table gives the same entries for every input.
    pub(crate) fn same_entries(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::F32 { cap }, Kind::F32 { cap: other_cap }) => {
                cap == other_cap
                    && self.by_key == other.by_key
                    && self.n_keys == other.n_keys
                    && self.bias == other.bias
            }
            _ => false,
        }
    }

    /// How far entries of this table may be from those of `own`, up to a constant for each query: see [`Slack`].
    pub(crate) fn slack(&self, own: &Self) -> Slack {
        let unit = |rounding: Rounding| match rounding {
            Rounding::Keep => F32_UNIT,
            Rounding::Bf16 => 1.0 / 256.0,
            Rounding::F16 => 1.0 / 2048.0,
        };
        let relative = match &self.kind {
            Kind::Exact => 0.0,
            Kind::F32 { cap: None } => F32_UNIT,
            Kind::BeforeScale { .. } => 4.0 * F32_UNIT,
            Kind::Rounded { scaled, sum } => 1.01 * (unit(*scaled) + unit(*sum)),
            _ => f64::INFINITY,
        };
        let (bias, own_bias) = (self.bias_nats(), own.bias_nats());
        let (these, others) = ((&*bias, self.by_key), (&*own_bias, own.by_key));
        Slack::new(relative + F32_UNIT, these, others)
    }

    /// The bias in nats at every index of the table; empty for paths.
    fn bias_nats(&self) -> Cow<'_, [f64]> {
        match &self.kind {
            Kind::Exact => Cow::Borrowed(&self.bias_f64),
            Kind::BeforeScale { scale } => {
                let scale = f64::from(*scale);
                let nats = |&bias: &f32| f64::from(bias) * scale;
                Cow::Owned(self.bias.iter().map(nats).collect())
            }
            _ => Cow::Owned(self.bias.iter().map(|&bias| f64::from(bias)).collect()),
        }
    }

    /// The table for lanes of queries, or `None` for kinds that only go one pair at a time. Causal calls only.
    pub(crate) fn lane_table(&self) -> Option<LaneTable> {
        let kind = match &self.kind {
            Kind::Exact => LaneKind::Exact,
            Kind::F32 { cap: None } => LaneKind::F32,
            Kind::Rounded { scaled, sum } => LaneKind::rounded(*scaled, *sum)?,
            Kind::BeforeScale { scale } => LaneKind::BeforeScale { scale: *scale },
            _ => return None,
        };
        Some(LaneTable::new(
            kind,
            self.by_key,
            &self.bias,
            &self.bias_f64,
        ))
    }

    /// Index of key 0's bias for a query; add the key.
    #[inline(always)]
    fn base(&self, query: usize) -> usize {
        if self.by_key {
            0
        } else {
            self.n_keys - 1 - query
        }
    }

    /// Whether entries need an f64 (idealised plans): see [`Real`].
    pub(crate) fn is_wide(&self) -> bool {
        match &self.kind {
            Kind::Exact => true,
            Kind::Path(path) => path.is_exact(),
            _ => false,
        }
    }

    /// Lower and upper bound of the entries of every chunk of a row.
    #[inline(always)]
    pub(crate) fn bounds<T: Real>(&self, row: &Row<'_>, bounds: &mut Vec<(f64, f64)>) {
        bounds.clear();
        let base = self.base(row.query());
        if !self.monotone {
            let mut entries = [T::ZERO; CHUNK];
            bounds.extend(row.chunks.iter().map(|chunk| {
                let entries = &mut entries[..chunk.len()];
                self.entries(row, chunk, entries);
                entries
                    .iter()
                    .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), entry| {
                        (low.min(entry.to_f64()), high.max(entry.to_f64()))
                    })
            }));
            return;
        }
        match &self.kind {
            Kind::Exact => {
                let bias = &self.bias_f64[base..];
                bounds.extend(row.chunks.iter().map(|chunk| {
                    let (low, high) = ends(bias, chunk);
                    (f64::from(chunk.low) + low, f64::from(chunk.high) + high)
                }));
            }
            Kind::Path(path) => bounds.extend(row.chunks.iter().map(|chunk| {
                let at = |raw: f32, key: usize| path.entry_scaled(raw, row.query(), key);
                let (first, last) = (chunk.start, chunk.end - 1);
                (
                    at(chunk.low, first).min(at(chunk.low, last)),
                    at(chunk.high, first).max(at(chunk.high, last)),
                )
            })),
            Kind::F32 { cap: None } => self.f32_bounds(row, base, bounds, |raw, bias| raw + bias),
            _ => self.f32_bounds(row, base, bounds, |raw, bias| self.entry(raw, bias)),
        }
    }

    #[inline(always)]
    fn f32_bounds(
        &self,
        row: &Row<'_>,
        base: usize,
        bounds: &mut Vec<(f64, f64)>,
        entry: impl Fn(f32, f32) -> f32,
    ) {
        let bias = &self.bias[base..];
        bounds.extend(row.chunks.iter().map(|chunk| {
            let (low, high) = ends(bias, chunk);
            (
                f64::from(entry(chunk.low, low)),
                f64::from(entry(chunk.high, high)),
            )
        }));
    }

    /// One entry of the f32 kinds.
    fn entry(&self, raw: f32, bias: f32) -> f32 {
        match self.kind {
            Kind::F32 { cap: None } => raw + bias,
            Kind::F32 { cap: Some(cap) } => cap * ((raw + bias) / cap).tanh(),
            Kind::Rounded { scaled, sum } => sum.apply(scaled.apply(raw) + bias),
            Kind::BeforeScale { scale } => (raw / scale + bias) * scale,
            Kind::Exact | Kind::Path(_) => unreachable!("not an f32 kind"),
        }
    }

    /// The entries of a chunk. `out` has its length, and is f64 if [`ScoreTable::is_wide`].
    #[inline(always)]
    pub(crate) fn entries<T: Real>(&self, row: &Row<'_>, chunk: &Chunk, out: &mut [T]) {
        let base = self.base(row.query());
        let range = base + chunk.start..base + chunk.end;
        let raw = row.scores(chunk);
        // One loop a kind, so that nothing is decided per pair.
        match &self.kind {
            Kind::Exact => {
                for ((out, &raw), &bias) in out.iter_mut().zip(raw).zip(&self.bias_f64[range]) {
                    *out = T::of(f64::from(raw) + bias);
                }
            }
            Kind::F32 { cap: None } => fill(out, raw, &self.bias[range], |raw, bias| raw + bias),
            Kind::F32 { cap: Some(_) } => fill(out, raw, &self.bias[range], |raw, bias| {
                self.entry(raw, bias)
            }),
            Kind::Rounded { scaled, sum } => {
                let bias = &self.bias[range];
                macro_rules! rounded {
                    ($scaled:ident, $sum:ident) => {
                        fill(out, raw, bias, |raw, bias| {
                            Rounding::$sum.apply(Rounding::$scaled.apply(raw) + bias)
                        })
                    };
                }
                match (scaled, sum) {
                    (Rounding::Keep, Rounding::Bf16) => rounded!(Keep, Bf16),
                    (Rounding::Keep, Rounding::F16) => rounded!(Keep, F16),
                    (Rounding::Bf16, Rounding::Bf16) => rounded!(Bf16, Bf16),
                    (Rounding::F16, Rounding::F16) => rounded!(F16, F16),
                    (Rounding::Bf16, Rounding::Keep) => rounded!(Bf16, Keep),
                    (Rounding::F16, Rounding::Keep) => rounded!(F16, Keep),
                    _ => fill(out, raw, bias, |raw, bias| {
                        sum.apply(scaled.apply(raw) + bias)
                    }),
                }
            }
            Kind::BeforeScale { scale } => fill(out, raw, &self.bias[range], |raw, bias| {
                (raw / scale + bias) * scale
            }),
            Kind::Path(path) => {
                for ((key, out), &raw) in chunk.keys().zip(out).zip(raw) {
                    *out = T::of(path.entry_scaled(raw, row.query(), key));
                }
            }
        }
    }
}

/// Smaller and larger of a chunk's outer biases; `bias` starts at key 0.
#[inline(always)]
fn ends<T: Copy + PartialOrd>(bias: &[T], chunk: &Chunk) -> (T, T) {
    let (first, last) = (bias[chunk.start], bias[chunk.end - 1]);
    if first < last {
        (first, last)
    } else {
        (last, first)
    }
}

#[inline(always)]
fn fill<T: Real>(out: &mut [T], raw: &[f32], bias: &[f32], entry: impl Fn(f32, f32) -> f32) {
    for ((out, &raw), &bias) in out.iter_mut().zip(raw).zip(bias) {
        *out = T::of_f32(entry(raw, bias));
    }
}

/// A (query, key) for every index of a bias table.
fn pairs_of_index(
    n_keys: usize,
    by_key: bool,
    causal: bool,
) -> impl Iterator<Item = (usize, usize)> {
    let count = if by_key || causal {
        n_keys
    } else {
        2 * n_keys - 1
    };
    (0..count).map(move |index| {
        if by_key {
            (index, index)
        } else if index < n_keys {
            (n_keys - 1, index)
        } else {
            (0, index - (n_keys - 1))
        }
    })
}

/// Whether a table goes only one way on each side of the query.
fn is_monotone<T: PartialOrd>(bias: &[T], n_keys: usize, by_key: bool) -> bool {
    let one_way = |part: &[T]| part.is_sorted() || part.is_sorted_by(|a, b| a >= b);
    if by_key {
        return one_way(bias);
    }
    let diagonal = n_keys - 1;
    one_way(&bias[..=diagonal]) && one_way(&bias[diagonal..])
}

fn has_monotone_shape(bias: &BiasFunction) -> bool {
    bias.is_monotone() && !matches!(bias.shape, BiasShape::T5Buckets { .. })
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
