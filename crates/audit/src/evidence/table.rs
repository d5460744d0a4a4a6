//! Scores of a head under one score path, evaluated a chunk at a time.
//!
//! [`numerics::ScorePath`] defines every entry; here the common forms are laid out so that their loops vectorise (the bias
//! contiguous in the key, roundings without branches). Both give the same bits, which a test holds.
//!
//! Every form is monotone: a larger raw score or a larger bias never gives a smaller entry. So the entries of a chunk lie
//! between those of its smallest raw score with its smallest bias and of its largest with its largest.

use std::borrow::Cow;

use kernels::{LaneRounding, ScoreRows};
use numerics::plan::BiasPlacement;
use numerics::{
    BiasForm, BiasFunction, BiasShape, CapOrder, Format, PrecisionPlan, ScorePath, ScoreSpec,
    stored_biases,
};

use crate::evidence::lanes::{LaneKind, LaneTable};
use crate::evidence::row::{Chunk, Row};
use crate::evidence::scan::{CHUNK, Real};

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

/// A rounding of f32 values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    Keep,
    Bf16,
    F16,
}

impl Rounding {
    pub(crate) fn of(format: Format) -> Option<Self> {
        match format {
            Format::F32 => Some(Self::Keep),
            Format::Bf16 => Some(Self::Bf16),
            Format::F16 => Some(Self::F16),
            _ => None,
        }
    }

    /// The same in the kernel's words.
    pub(crate) fn of_lanes(self) -> LaneRounding {
        match self {
            Self::Keep => LaneRounding::Keep,
            Self::Bf16 => LaneRounding::Bf16,
            Self::F16 => LaneRounding::F16,
        }
    }

    #[inline(always)]
    pub(crate) fn apply(self, x: f32) -> f32 {
        match self {
            Self::Keep => x,
            Self::Bf16 => {
                let bits = x.to_bits();
                f32::from_bits(bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000)
            }
            Self::F16 => {
                // Next to 0.5, f32 numbers are 2^-24 apart: the smallest f16 subnormal.
                let magnitude = x.abs();
                let bits = magnitude.to_bits();
                let large =
                    f32::from_bits(bits.wrapping_add(0x0fff + ((bits >> 13) & 1)) & 0xffff_e000);
                let small = (magnitude + 0.5) - 0.5;
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
                bounded.copysign(x)
            }
        }
    }
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
        let largest = |values: &[f64]| largest_size(values.iter().copied());
        let all = Apart {
            bias: deviation(&bias, self.by_key, &own_bias, own.by_key),
            bias_max: largest(&bias).max(largest(&own_bias)),
        };
        let by_distance = !self.by_key && !own.by_key && own_bias.last().is_some_and(|b| *b == 0.0);
        let falls = own_bias.iter().fold(true, |falls, b| falls & (*b <= 0.0));
        Slack {
            within: NEAR_NATS.map(|nats| {
                let is_near = by_distance && falls && all.bias < 1.0;
                is_near.then(|| all.within(nats, &bias, &own_bias))
            }),
            all,
            relative: relative + F32_UNIT,
        }
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
        let base = self.base(row.query);
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
                let at = |raw: f32, key: usize| path.entry_scaled(raw, row.query, key);
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
        let base = self.base(row.query);
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
                    *out = T::of(path.entry_scaled(raw, row.query, key));
                }
            }
        }
    }
}

/// Unit of rounding of f32.
const F32_UNIT: f64 = 1.0 / 16_777_216.0;

/// Biases up to these, nats, are compared by themselves: roundings of larger ones are larger, and their pairs beyond every threshold.
const NEAR_NATS: [f64; 2] = [256.0, 1024.0];

/// How far the gaps of two tables can differ for the same raw scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slack {
    /// Over the pairs with biases up to [`NEAR_NATS`]; `None` where the bias says nothing about the gap.
    within: [Option<Apart>; 2],
    all: Apart,
    /// Roundings of an entry in both tables, relative to the largest raw score plus the largest bias.
    relative: f64,
}

/// How far two tables of biases differ.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Apart {
    /// Largest difference, nats, once a constant for each query is taken off.
    bias: f64,
    /// Largest absolute bias.
    bias_max: f64,
}

impl Apart {
    /// The same up to a bias of `nats`, for tables by distance.
    fn within(&self, nats: f64, bias: &[f64], own_bias: &[f64]) -> Self {
        let constant = bias
            .last()
            .map_or(0.0, |last| last - own_bias[own_bias.len() - 1]);
        let (mut apart, mut most) = (0.0_f64, 0.0_f64);
        for (a, b) in bias.iter().zip(own_bias) {
            let (off, size) = ((a - b - constant).abs(), a.abs().max(b.abs()));
            let near = b.abs() <= nats;
            apart = if near && off > apart { off } else { apart };
            most = if near && size > most { size } else { most };
        }
        Self {
            bias: apart.min(self.bias),
            bias_max: most.min(self.bias_max),
        }
    }
}

impl Slack {
    /// Bound on the difference of two gaps, nats, given the largest absolute raw score: entry and maximum may be off in opposite
    /// directions. A millionth of a nat for what is subnormal in f16, and for the f32 subtraction. It holds for gaps up to `most`; pairs
    /// for which it does not are further away in both tables.
    pub(crate) fn nats(&self, raw_max: f32, most: f64) -> f64 {
        // A row's maximum is no less than its own score, and a bias of more than this takes a pair further than `most` below that.
        let bias_most = most + 2.0 * f64::from(raw_max) + 16.0;
        let near = NEAR_NATS.iter().position(|nats| bias_most <= *nats);
        let apart = near.and_then(|near| self.within[near]).unwrap_or(self.all);
        let most = f64::from(raw_max) + apart.bias_max;
        let slack =
            2.0 * (apart.bias + self.relative * 1.001 * most) + F32_UNIT * 2.0 * most + 1e-6;
        if slack.is_nan() { f64::INFINITY } else { slack }
    }
}

/// Largest difference of two bias tables up to a constant for each query; infinite if it cannot be told.
fn deviation(a: &[f64], a_by_key: bool, b: &[f64], b_by_key: bool) -> f64 {
    if a.len() != b.len() || a.is_empty() {
        return f64::INFINITY;
    }
    let last = a.len() - 1;
    let constant = a[last] - b[last];
    let apart = largest_size(a.iter().zip(b).map(|(a, b)| a - b - constant));
    if a_by_key == b_by_key || last == 0 {
        return apart;
    }
    // One by key, one by distance: they agree up to a constant as far as both are straight lines.
    let slope = (b[last] - b[0]) / last as f64;
    let line = |i: usize| b[0] + slope * i as f64;
    let bent = largest_size(b.iter().enumerate().map(|(i, x)| x - line(i)));
    apart + 2.0 * bent
}

/// Largest absolute value; infinite if there is a NaN. Without a branch for each, so that it vectorises.
fn largest_size(values: impl Iterator<Item = f64>) -> f64 {
    let (mut largest, mut some_nan) = (0.0_f64, false);
    for x in values {
        let size = x.abs();
        largest = if size > largest { size } else { largest };
        some_nan |= x.is_nan();
    }
    if some_nan { f64::INFINITY } else { largest }
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
mod tests {
    use super::*;
    use crate::evidence::distance::Offsets;
    use crate::evidence::row::{assemble, cut, valid_runs};
    use numerics::{Family, SoftCap};

    #[test]
    fn roundings_agree_with_the_formats() {
        for bits in (0..=u32::MAX).step_by(4093) {
            let x = f32::from_bits(bits);
            if x.is_nan() {
                continue;
            }
            for (rounding, format) in [(Rounding::Bf16, Format::Bf16), (Rounding::F16, Format::F16)]
            {
                assert_eq!(
                    f64::from(rounding.apply(x)),
                    format.round(f64::from(x)),
                    "{x:e} to {format}"
                );
            }
        }
    }

    /// Every plan, family and a few biases: the same bits as the scalar definition, and bounds that hold.
    #[test]
    fn entries_equal_the_scalar_score_of_every_plan() {
        let n = 150;
        let mut seed = 1_u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((seed >> 40) as f32 / (1 << 24) as f32 - 0.5) * 20.0
        };
        let biases = [
            BiasFunction::linear(),
            BiasFunction {
                clamp: Some(-12.0),
                ..BiasFunction::linear()
            },
            BiasFunction::with_shape(BiasShape::Log),
            BiasFunction {
                soft_cap: Some(SoftCap {
                    cap: 15.0,
                    order: CapOrder::AfterBias,
                }),
                ..BiasFunction::linear()
            },
            BiasFunction {
                soft_cap: Some(SoftCap {
                    cap: 15.0,
                    order: CapOrder::BeforeBias,
                }),
                ..BiasFunction::linear()
            },
        ];
        let mut tried = 0;
        for family in Family::ALL {
            for name in numerics::plan::PlanName::ALL {
                for &dtype in name.dtypes() {
                    let Ok(plan) = PrecisionPlan::build(name, dtype, family) else {
                        continue;
                    };
                    for bias in &biases {
                        let causal = family.convention().causal;
                        let spec = ScoreSpec {
                            bias,
                            head: 0,
                            slope: 0.17,
                            scale: 0.125,
                            causal,
                            length: n as u64,
                        };
                        let table = ScoreTable::of_plan(&plan, &spec);
                        let path = plan.score_path(&spec);
                        let capped = |raw: f64| match bias.soft_cap {
                            Some(cap) if cap.order == CapOrder::BeforeBias => cap.apply(raw),
                            _ => raw,
                        };
                        let query = 100;
                        let end = if causal { query + 1 } else { n };
                        let raw: Vec<f32> = (0..end)
                            .map(|_| capped(f64::from(random())) as f32)
                            .collect();
                        let mut chunks = Vec::new();
                        let pairs = cut(query, &raw, end, &valid_runs(n, None), CHUNK, &mut chunks);
                        let row = assemble(Offsets::new(n, causal), query, &raw, &chunks, pairs);
                        let mut bounds = Vec::new();
                        if table.is_wide() {
                            table.bounds::<f64>(&row, &mut bounds);
                        } else {
                            table.bounds::<f32>(&row, &mut bounds);
                        }
                        for (chunk, &(low, high)) in chunks.iter().zip(&bounds) {
                            let mut scores = vec![0.0; chunk.len()];
                            if table.is_wide() {
                                table.entries(&row, chunk, &mut scores);
                            } else {
                                let mut narrow = vec![0.0_f32; chunk.len()];
                                table.entries(&row, chunk, &mut narrow);
                                scores = narrow.into_iter().map(f64::from).collect();
                            }
                            for (key, score) in chunk.keys().zip(scores) {
                                let expected = path.entry_scaled(raw[key], query, key);
                                assert_eq!(
                                    score,
                                    expected,
                                    "{family} {} {bias:?} key {key}",
                                    plan.key()
                                );
                                assert!(
                                    low <= score && score <= high,
                                    "{family} {} {bias:?} key {key}",
                                    plan.key()
                                );
                            }
                        }
                        tried += 1;
                    }
                }
            }
        }
        assert!(tried > 1000, "only {tried} combinations");
    }
}
