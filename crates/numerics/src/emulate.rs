//! One attention row under a precision plan, step by step in the plan's formats: slow, scalar, and the truth that every
//! faster path is tested against.
//!
//! What is not emulated: the order in which a runtime adds up `q.k`, the row's sum and `P V` (each sum is exact here, then
//! rounded once to its format), and the last bits of its `exp` (ours is f64's, rounded once).

use crate::bias::BiasFunction;
use crate::format::{Format, Underflow};
use crate::plan::{BlockVisits, Criterion, MaxReference, PrecisionPlan, RowPlace, ScoreSpec};

/// One row of scores before scale and bias.
#[derive(Clone, Copy, Debug)]
pub struct RowInput<'a> {
    /// `q.k` of every key, not scaled.
    pub raw_scores: &'a [f64],
    /// Attention scale, usually `1 / sqrt(head width)`.
    pub scale: f64,
    /// Index of the head.
    pub head: usize,
    /// The head's slope, before any scale.
    pub slope: f64,
    /// The bias with its remedies.
    pub bias: &'a BiasFunction,
    /// Position of the query.
    pub query: usize,
    /// Whether keys after the query are masked.
    pub causal: bool,
    /// Number of keys of the whole sequence (at least the number of raw scores).
    pub length: usize,
}

/// What a plan makes of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatedRow {
    /// Entries score + bias as the plan holds them; minus infinity where masked.
    pub scores: Vec<f64>,
    /// `exp(entry - reference maximum - offset)` as the plan holds it, before any cast.
    pub numerators: Vec<f64>,
    /// What finally multiplies V: the normalised probability where the plan normalises first; else the cast numerator,
    /// scaled down by every later rise of the maximum. The output is `sum(weight * V) / divisor`.
    pub weights: Vec<f64>,
    /// The row's sum of numerators relative to the final maximum.
    pub sum: f64,
    /// Divides the output: 1 where the weights are normalised already, else `sum`.
    pub divisor: f64,
    /// The final maximum (without the plan's offset).
    pub max: f64,
}

/// Emulates one row under the plan's own rule.
///
/// A row in which no key is allowed has weights, sum and divisor 0. Where a bias has overflowed to plus infinity the weights are
/// NaN, as they are in the runtime.
pub fn emulate_row(plan: &PrecisionPlan, row: &RowInput<'_>) -> EmulatedRow {
    emulate_row_with(plan, row, Criterion::Plan)
}

/// [`emulate_row`] with another criterion: [`Criterion::Exp`] gives the bare numerators as weights, [`Criterion::Weight`] the
/// numerators divided by the row's sum, rounded to the plan's probability format. Both use the row's own maximum.
pub fn emulate_row_with(
    plan: &PrecisionPlan,
    row: &RowInput<'_>,
    criterion: Criterion,
) -> EmulatedRow {
    let spec = ScoreSpec {
        bias: row.bias,
        head: row.head,
        slope: row.slope,
        scale: row.scale,
        causal: row.causal,
        length: row.length as u64,
    };
    let scores: Vec<f64> = row
        .raw_scores
        .iter()
        .enumerate()
        .map(|(key, raw)| {
            if row.causal && key > row.query {
                f64::NEG_INFINITY
            } else {
                plan.score(&spec, *raw, row.query as u64, key as u64)
            }
        })
        .collect();
    let place = RowPlace {
        query: row.query,
        length: row.length,
        causal: row.causal,
    };
    emulate_entries(plan, scores, place, criterion)
}

/// [`emulate_row_with`] from the finished entries, score + bias as the plan holds them and minus infinity where masked: for
/// callers that have the scores scaled already ([`crate::ScorePath::entry_scaled`]).
pub fn emulate_entries(
    plan: &PrecisionPlan,
    scores: Vec<f64>,
    place: RowPlace,
    criterion: Criterion,
) -> EmulatedRow {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        let zeros = vec![0.0; scores.len()];
        return EmulatedRow {
            scores,
            numerators: zeros.clone(),
            weights: zeros,
            sum: 0.0,
            divisor: 0.0,
            max,
        };
    }
    match plan.max_reference {
        MaxReference::Running { key_block, order } if criterion == Criterion::Plan => {
            let n_blocks = scores.len().div_ceil(key_block);
            let visits = order
                .of_row(place)
                .visits(n_blocks, |block| block * key_block);
            streamed(plan, scores, max, key_block, visits)
        }
        _ => whole_row(plan, scores, max, criterion),
    }
}

fn whole_row(
    plan: &PrecisionPlan,
    scores: Vec<f64>,
    max: f64,
    criterion: Criterion,
) -> EmulatedRow {
    let numerators: Vec<f64> = scores.iter().map(|s| plan.numerator(max, *s)).collect();
    let sum = plan.accumulator.round(numerators.iter().sum());
    let cast = |x: f64| plan.probability.round_with(x, plan.probability_underflow);
    let normalised = |quotient: Format| -> Vec<f64> {
        numerators
            .iter()
            .map(|n| cast(quotient.round_with(n / sum, plan.quotient_underflow(quotient))))
            .collect()
    };
    let (weights, divisor) = match (criterion, plan.normalise_before_cast) {
        (Criterion::Exp, _) => (numerators.clone(), sum),
        (Criterion::Plan, None) => (numerators.iter().map(|n| cast(*n)).collect(), sum),
        (Criterion::Plan | Criterion::Weight, Some(quotient)) => (normalised(quotient), 1.0),
        (Criterion::Weight, None) => (normalised(plan.probability), 1.0),
    };
    EmulatedRow {
        scores,
        numerators,
        weights,
        sum,
        divisor,
        max,
    }
}

impl PrecisionPlan {
    /// A quotient in the probability format underflows as that cast does; in another format gradually.
    fn quotient_underflow(&self, quotient: Format) -> Underflow {
        if quotient == self.probability {
            self.probability_underflow
        } else {
            Underflow::Gradual
        }
    }
}

/// A streaming kernel: blocks in the given order, numerators against the maximum so far, everything gathered before scaled
/// down when it rises.
fn streamed(
    plan: &PrecisionPlan,
    scores: Vec<f64>,
    max: f64,
    key_block: usize,
    visits: BlockVisits,
) -> EmulatedRow {
    let n = scores.len();
    let mut numerators = vec![0.0; n];
    let mut weights = vec![0.0; n];
    // Product of all later rescalings, of each block visited so far.
    let mut factors: Vec<(usize, f64)> = Vec::with_capacity(n.div_ceil(key_block));
    let mut running = f64::NEG_INFINITY;
    let mut sum = 0.0;
    for block in visits.blocks() {
        let keys = block * key_block..((block + 1) * key_block).min(n);
        let block_max = scores[keys.clone()]
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        if block_max == f64::NEG_INFINITY {
            continue;
        }
        if block_max > running {
            if running > f64::NEG_INFINITY {
                let rescale = plan.rescaling(running, block_max);
                for (_, factor) in &mut factors {
                    *factor *= rescale;
                }
                sum *= rescale;
            }
            running = block_max;
        }
        for key in keys {
            let numerator = plan.numerator(running, scores[key]);
            numerators[key] = numerator;
            weights[key] = plan
                .probability
                .round_with(numerator, plan.probability_underflow);
            sum += numerator;
        }
        factors.push((block, 1.0));
    }
    for (block, factor) in factors {
        let keys = block * key_block..((block + 1) * key_block).min(n);
        for weight in &mut weights[keys] {
            *weight = plan.accumulator.round(*weight * factor);
        }
    }
    let sum = plan.accumulator.round(sum);
    EmulatedRow {
        scores,
        numerators,
        weights,
        sum,
        divisor: sum,
        max,
    }
}
