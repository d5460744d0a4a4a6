//! Position collapse: different keys whose stored bias is the same number (significand failure, not exponent failure).

use crate::bias::BiasShape;
use crate::convention::BiasForm;
use crate::format::Format;
use crate::horizon::ROWS_MAX;
use crate::plan::{PrecisionPlan, ScoreSpec};

/// Keys in the two samples at the ends of a row.
pub const SAMPLE_KEYS: u64 = 20;

/// Largest position looked at for overflow, 2^53: beyond it positions are no longer exact here either.
const POSITION_MAX: f64 = 9_007_199_254_740_992.0;

/// Collapse of the stored bias in the row of the last query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Collapse {
    /// Different values among the last 20 keys (the nearest).
    pub distinct_last_20: u64,
    /// Different values among the first 20 keys (the furthest).
    pub distinct_first_20: u64,
    /// Different values in the row; `None` where counting would take too long.
    pub distinct_total: Option<u64>,
    /// Longest run of neighbouring keys with one value; `None` as above.
    pub longest_equal_run: Option<u64>,
    /// Smallest key position, or distance in the relative form, whose stored bias is not finite.
    pub overflow_position: Option<f64>,
}

/// Counts for the row of the last query of a sequence of `spec.length` keys, in the plan's bias form.
///
/// # Panics
/// If `spec.length` is 0.
pub fn collapse(plan: &PrecisionPlan, spec: &ScoreSpec<'_>) -> Collapse {
    let length = spec.length;
    assert!(length > 0, "a row has at least one key");
    let last = length - 1;
    let form = plan.bias_form(spec.bias, spec.causal);
    let value = |key: u64| {
        let position = match form {
            BiasForm::KeyPosition => plan.key_position(length, key),
            BiasForm::Relative => (last - key) as f64,
        };
        plan.stored_bias_at(spec, position)
    };
    let sample = SAMPLE_KEYS.min(length);
    let (distinct_total, longest_equal_run) = whole_row(plan, spec, length, value).unzip();
    Collapse {
        distinct_last_20: distinct(length - sample..length, value),
        distinct_first_20: distinct(0..sample, value),
        distinct_total,
        longest_equal_run,
        overflow_position: overflow(plan, spec),
    }
}

/// Bits that tell values apart; both zeros are one value, all NaN are one.
fn bits(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits()
    } else {
        (value + 0.0).to_bits()
    }
}

fn distinct(keys: std::ops::Range<u64>, value: impl Fn(u64) -> f64) -> u64 {
    let mut seen: Vec<u64> = keys.map(|key| bits(value(key))).collect();
    seen.sort_unstable();
    seen.dedup();
    seen.len() as u64
}

/// Distinct values and longest run over all keys.
fn whole_row(
    plan: &PrecisionPlan,
    spec: &ScoreSpec<'_>,
    length: u64,
    value: impl Fn(u64) -> f64,
) -> Option<(u64, u64)> {
    if matches!(spec.bias.shape, BiasShape::None)
        || (spec.slope == 0.0 && value(0) == value(length - 1))
    {
        // Slope 0: a constant, unless the shape ignores the slope, which the ends tell for monotone shapes.
        if spec.bias.is_monotone() {
            return Some((1, length));
        }
    }
    if !spec.bias.is_monotone() {
        if length > ROWS_MAX {
            return None;
        }
        let all: Vec<u64> = (0..length).map(|key| bits(value(key))).collect();
        let longest = all.chunk_by(|a, b| a == b).map(<[u64]>::len).max();
        let mut sorted = all;
        sorted.sort_unstable();
        sorted.dedup();
        return Some((sorted.len() as u64, longest.unwrap_or(0) as u64));
    }
    if all_distinct(plan, spec, length) {
        return Some((length, 1));
    }
    // A 16-bit format has at most 2^15 values of one sign, so runs are few however long the row; wider ones need a step a key.
    let few = plan.bias.storage.significand_bits() + 8 <= 24;
    if !few && length > ROWS_MAX {
        return None;
    }
    Some(runs(length, value))
}

/// Whether every key surely has a value of its own: linear, nothing narrower than `p` bits on the way, and fewer than
/// `2^(p-1)` positions, so that one step `m` is at least one ulp of the product everywhere (`ulp(m j) <= 2^(1-p) m j <= m`).
/// Two such neighbours could meet only in a tie, and a step of exactly one ulp starting on the grid never ties.
fn all_distinct(plan: &PrecisionPlan, spec: &ScoreSpec<'_>, length: u64) -> bool {
    let linear = matches!(spec.bias.shape, BiasShape::Linear) && spec.bias.clamp.is_none();
    let b = &plan.bias;
    let p = [b.position, b.product, b.storage]
        .into_iter()
        .map(Format::significand_bits)
        .min()
        .unwrap_or(0);
    // Double rounding (product wider than storage) keeps neighbours apart as well: each rounding does.
    let slope = plan.runtime_slope(spec.slope) * spec.bias.interpolation;
    linear && p >= 24 && slope > 1e-30 && length < 1 << (p - 1)
}

/// Runs of equal values of a monotone function, by doubling steps and bisection.
fn runs(length: u64, value: impl Fn(u64) -> f64) -> (u64, u64) {
    let (mut count, mut longest) = (0, 0);
    let mut start = 0;
    while start < length {
        let here = bits(value(start));
        // Invariant: value(same) is `here`, value(other) is not (or lies past the end).
        let (mut same, mut step) = (start, 1);
        let mut other = loop {
            let next = start.saturating_add(step).min(length);
            if next == length || bits(value(next)) != here {
                break next;
            }
            same = next;
            step *= 2;
        };
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if bits(value(middle)) == here {
                same = middle;
            } else {
                other = middle;
            }
        }
        count += 1;
        longest = longest.max(other - start);
        start = other;
    }
    (count, longest)
}

fn overflow(plan: &PrecisionPlan, spec: &ScoreSpec<'_>) -> Option<f64> {
    let infinite = |position: f64| !plan.stored_bias_at(spec, position).is_finite();
    if !infinite(POSITION_MAX) {
        return None;
    }
    let (mut below, mut above) = (-1.0, POSITION_MAX);
    while above - below > 1.0 {
        let middle = ((below + above) / 2.0).floor();
        if infinite(middle) {
            above = middle;
        } else {
            below = middle;
        }
    }
    Some(above)
}
