//! How far every head sees, in closed form: from slopes and a plan, for equal content (every `q.k` is 0).
//!
//! No loop runs over pairs. What is computed instead:
//!
//! - entries that depend on the distance only (`relative`): one first blind distance, and arithmetic series; where the row's
//!   sum matters, one step a row until the sum stands still;
//! - a rounded bias of the key's position (`by_key`): one step a row, since rounding is monotone;
//! - kernels that keep a running maximum and meet old keys first (`streamed`): one step a row with counts prepared a block.
//!
//! All are tested against [`crate::emulate`] pair by pair.

mod by_key;
mod relative;
mod streamed;

use crate::bias::BiasFunction;
use crate::collapse::{Collapse, collapse};
use crate::convention::BiasForm;
use crate::emulate::{RowInput, emulate_row_with};
use crate::plan::{BlockOrder, Criterion, MaxReference, PrecisionPlan, ScoreSpec};
use thiserror::Error;

/// Most rows that are stepped through one by one.
pub const ROWS_MAX: u64 = 10_000_000;
/// Longest sequence whose pairs are enumerated, for biases that are not monotone.
pub const ENUMERATED_LENGTH_MAX: u64 = 4096;

/// What to compute.
#[derive(Clone, Copy, Debug)]
pub struct HorizonInput<'a> {
    /// Slope of every head, before any scale.
    pub slopes: &'a [f64],
    /// Attention scale where the family scales its bias with the score (Falcon: `1 / sqrt(head width)`); 1 for all others.
    pub scale_before: f64,
    /// The bias with its remedies.
    pub bias: &'a BiasFunction,
    /// The precision plan.
    pub plan: &'a PrecisionPlan,
    /// Which weight must be zero.
    pub criterion: Criterion,
    /// Tokens in the sequence.
    pub length: u64,
    /// Whether keys after the query are masked.
    pub causal: bool,
}

/// One head's horizon. Distances in tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadHorizon {
    /// Index of the head.
    pub head: usize,
    /// Its slope as given.
    pub slope: f64,
    /// The slope the softmax sees: with the attention scale where the family applies it to the bias, and with
    /// [`PrecisionPlan::bias_multiplicity`]. Without interpolation, which belongs to the bias.
    pub effective_slope: f64,
    /// Smallest distance of a blind pair. Where no pair of this length is blind: the first distance at which a longer sequence
    /// would have one (it can exceed any integer type: 4.4e53 for log-scaled distance; integrated, not counted, where the row's
    /// sum grows for more than 4,096 further keys). `None` if no sequence has one, or if it cannot be told.
    pub first_blind_distance: Option<f64>,
    /// Largest distance of a pair that is not blind; `None` if there is none (every row is NaN).
    pub last_visible_distance: Option<u64>,
    /// Pairs inside the mask.
    pub pairs: u128,
    /// Blind ones among them.
    pub blind_pairs: u128,
    /// Blind keys in the last query's row.
    pub blind_last_row: u64,
    /// `blind_last_row / length`.
    pub blind_share_last_row: f64,
    /// The same share with a real-valued first blind distance instead of counted keys, `1 - (T / m) / length` for the linear
    /// bias: how the published table was computed.
    pub blind_share_last_row_continuous: f64,
    /// Rows that are NaN because a key-position bias overflowed to infinity; their pairs are not counted as blind.
    pub nan_rows: u64,
    /// Pairs in those rows. An overflow of the bias at a key spoils every row that sees it, so they are the last rows.
    pub nan_pairs: u128,
    /// Different stored biases among the last 20 keys of the last query's row (the nearest).
    pub distinct_bias_last_20: u64,
    /// Different stored biases among the first 20 keys of that row (the furthest).
    pub distinct_bias_first_20: u64,
    /// Different stored biases in that row; `None` where counting would take more than [`ROWS_MAX`] steps.
    pub distinct_bias_total: Option<u64>,
    /// Longest run of neighbouring keys with the same stored bias; `None` as above.
    pub longest_equal_run: Option<u64>,
    /// Smallest key position (or distance, in the relative form) at which the stored bias is not finite; `None` if that is
    /// beyond 2^53.
    pub overflow_distance: Option<f64>,
}

/// Why a horizon cannot be computed; one line for the user.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct HorizonError(String);

impl HorizonError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        HorizonError(text.into())
    }
}

/// Blind pairs of one head, before collapse and shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counts {
    pub(crate) first_blind: Option<f64>,
    pub(crate) last_visible: Option<u64>,
    pub(crate) blind_pairs: u128,
    pub(crate) blind_last_row: u64,
    pub(crate) nan_rows: u64,
    /// `ln sum exp(-gap)` of the last row, for the continuous share.
    pub(crate) ln_sum_last: f64,
}

/// One head's question, shared by the ways to answer it.
pub(crate) struct HeadQuestion<'a> {
    pub(crate) plan: &'a PrecisionPlan,
    pub(crate) spec: ScoreSpec<'a>,
    pub(crate) criterion: Criterion,
    pub(crate) length: u64,
    pub(crate) causal: bool,
}

impl HeadQuestion<'_> {
    /// Entry of equal content at a (whole, not negative) distance.
    pub(crate) fn entry_at_distance(&self, distance: f64) -> f64 {
        if self.plan.idealised {
            let slope = self.plan.effective_slope(self.spec.slope, self.spec.scale);
            return self.spec.bias.combine(self.spec.head, slope, 0.0, distance);
        }
        self.plan.score_from_bias(
            &self.spec,
            0.0,
            self.plan.stored_bias_at(&self.spec, distance),
        )
    }

    /// Entry of equal content at a key, for the key-position form.
    pub(crate) fn entry_at_key(&self, key: u64) -> f64 {
        let position = self.plan.key_position(self.length, key);
        self.plan.score_from_bias(
            &self.spec,
            0.0,
            self.plan.stored_bias_at(&self.spec, position),
        )
    }

    /// The gap as the plan computes it.
    pub(crate) fn gap(&self, max: f64, entry: f64) -> f64 {
        self.plan.rounded_gap(max, entry)
    }

    pub(crate) fn zero_gap(&self, ln_sum: f64) -> f64 {
        self.plan.zero_gap(self.criterion, ln_sum)
    }

    pub(crate) fn pairs(&self) -> u128 {
        let n = u128::from(self.length);
        if self.causal { n * (n + 1) / 2 } else { n * n }
    }

    pub(crate) fn rows_error(&self, why: &str) -> HorizonError {
        HorizonError::new(format!(
            "length {}: {why}, and at most {ROWS_MAX} steps are taken; use a shorter length, or an idealised plan (ieee, ftz) with the criterion exp",
            self.length
        ))
    }
}

/// Blind pairs, shares and collapse of every head, for equal content.
///
/// # Errors
/// Length 0; a slope that is negative or not finite; a bias that does not fit the number of heads; a length for which the plan
/// needs more than [`ROWS_MAX`] steps; a bias that is not monotone at a length above [`ENUMERATED_LENGTH_MAX`].
pub fn horizon(input: &HorizonInput<'_>) -> Result<Vec<HeadHorizon>, HorizonError> {
    if input.length == 0 {
        return Err(HorizonError::new(
            "length 0: a horizon needs at least one token",
        ));
    }
    input
        .bias
        .validate(input.slopes.len())
        .map_err(|error| HorizonError::new(error.to_string()))?;
    input
        .slopes
        .iter()
        .enumerate()
        .map(|(head, slope)| head_horizon(input, head, *slope))
        .collect()
}

/// Pairs of the last `rows` rows.
fn pairs_of_last_rows(rows: u64, length: u64, causal: bool) -> u128 {
    let (rows, length) = (u128::from(rows), u128::from(length));
    if !causal {
        return rows * length;
    }
    // The rows before them are a triangle.
    let before = length.saturating_sub(rows);
    (length * (length + 1) - before * (before + 1)) / 2
}

fn head_horizon(
    input: &HorizonInput<'_>,
    head: usize,
    slope: f64,
) -> Result<HeadHorizon, HorizonError> {
    if !(slope.is_finite() && slope >= 0.0) {
        return Err(HorizonError::new(format!(
            "slope of head {head}: expected a finite number, 0 or more, found {slope}"
        )));
    }
    let question = HeadQuestion {
        plan: input.plan,
        spec: ScoreSpec {
            bias: input.bias,
            head,
            slope,
            scale: input.scale_before,
            causal: input.causal,
            length: input.length,
        },
        criterion: input.criterion,
        length: input.length,
        causal: input.causal,
    };
    let counts = count(&question)?;
    let Collapse {
        distinct_last_20,
        distinct_first_20,
        distinct_total,
        longest_equal_run,
        overflow_position,
    } = collapse(input.plan, &question.spec);
    let share = counts.blind_last_row as f64 / input.length as f64;
    Ok(HeadHorizon {
        head,
        slope,
        effective_slope: input.plan.effective_slope(slope, input.scale_before),
        first_blind_distance: counts.first_blind,
        last_visible_distance: counts.last_visible,
        pairs: question.pairs(),
        blind_pairs: counts.blind_pairs,
        blind_last_row: counts.blind_last_row,
        blind_share_last_row: share,
        blind_share_last_row_continuous: relative::continuous_share(&question, counts.ln_sum_last)
            .unwrap_or(share),
        nan_rows: counts.nan_rows,
        nan_pairs: pairs_of_last_rows(counts.nan_rows, input.length, input.causal),
        distinct_bias_last_20: distinct_last_20,
        distinct_bias_first_20: distinct_first_20,
        distinct_bias_total: distinct_total,
        longest_equal_run,
        overflow_distance: overflow_position,
    })
}

fn count(question: &HeadQuestion<'_>) -> Result<Counts, HorizonError> {
    let plan = question.plan;
    if !question.spec.bias.is_monotone() {
        return enumerate(question);
    }
    // An idealised plan's exponents come from the exact relative bias, whatever form its collapse counts use.
    let form = if plan.idealised {
        BiasForm::Relative
    } else {
        plan.bias_form(question.spec.bias, question.causal)
    };
    // With the newest block first and nothing after the query, the block of the diagonal, which has the maximum, is the first.
    let running = match plan.max_reference {
        MaxReference::Running { key_block, order } if question.criterion == Criterion::Plan => {
            let settled = order == BlockOrder::NewestFirst && question.causal;
            (!settled).then_some((key_block, order))
        }
        _ => None,
    };
    match (running, form) {
        (None, BiasForm::Relative) => relative::count(question),
        (None, BiasForm::KeyPosition) => by_key::count(question),
        (Some((key_block, BlockOrder::OldestFirst)), BiasForm::KeyPosition) => {
            streamed::count_by_key(question, key_block)
        }
        (Some((key_block, order)), _) => streamed::count_by_row(question, key_block, order),
    }
}

/// Pair by pair with the emulation.
fn enumerate(question: &HeadQuestion<'_>) -> Result<Counts, HorizonError> {
    if question.length > ENUMERATED_LENGTH_MAX {
        return Err(HorizonError::new(format!(
            "length {}: this bias is not monotone in the distance, so its pairs are enumerated, up to length {ENUMERATED_LENGTH_MAX}",
            question.length
        )));
    }
    let length = question.length as usize;
    let raw_scores = vec![0.0; length];
    let mut counts = Counts {
        first_blind: None,
        last_visible: None,
        blind_pairs: 0,
        blind_last_row: 0,
        nan_rows: 0,
        ln_sum_last: f64::NAN,
    };
    for query in 0..length {
        let n_keys = if question.causal { query + 1 } else { length };
        let row = emulate_row_with(
            question.plan,
            &RowInput {
                raw_scores: &raw_scores[..n_keys],
                scale: question.spec.scale,
                head: question.spec.head,
                slope: question.spec.slope,
                bias: question.spec.bias,
                query,
                causal: question.causal,
                length,
            },
            question.criterion,
        );
        counts.blind_last_row = 0;
        if row.weights.iter().any(|weight| weight.is_nan()) {
            counts.nan_rows += 1;
            continue;
        }
        for (key, weight) in row.weights.iter().enumerate() {
            let distance = query.abs_diff(key);
            if *weight == 0.0 {
                counts.blind_last_row += 1;
                let distance = distance as f64;
                counts.first_blind = Some(
                    counts
                        .first_blind
                        .map_or(distance, |first| first.min(distance)),
                );
            } else {
                counts.last_visible = counts.last_visible.max(Some(distance as u64));
            }
        }
        counts.blind_pairs += u128::from(counts.blind_last_row);
    }
    Ok(counts)
}
