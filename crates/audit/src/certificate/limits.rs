//! The plan's thresholds with the slack that its exponential, its sum and its accumulator need.

use numerics::{BlockOrder, Criterion, Format, MaxReference, PrecisionPlan, Underflow};
use std::f64::consts::LN_2;

/// Nats that the difference `entry - maximum` and the exponential may be off by near the threshold, in a plan that computes
/// them in f32 and rounds twice: `110 * 2^-24` for the difference, `2^-16` for rounding to the f32 grid near the smallest bf16
/// number before the cast (the coarsest such pair), `2^-22` for an exponential good to a few ulp, doubled.
const EXP_SLACK_NATS: f64 = 1e-4;

/// When a weight is surely not zero, and when it surely is, in nats below the maximum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A gap up to this leaves the numerator, and its share in the accumulator, above zero.
    pub(super) gap_visible: f64,
    /// A gap plus ln(sum) up to this leaves the normalised weight above zero; `None` where nothing is normalised before a cast.
    pub(super) weight_visible: Option<f64>,
    /// A gap above this makes the weight zero, whatever the sum; measured from the query's own entry.
    pub(super) gap_blind: f64,
}

impl Limits {
    pub(super) fn new(plan: &PrecisionPlan, length: u64, causal: bool) -> Self {
        let numerator = plan.numerator_zero_nats();
        let (mut gap_visible, mut gap_blind) = (numerator, plan.zero_gap(Criterion::Plan, 0.0));
        if let MaxReference::Running { key_block, order } = plan.max_reference {
            let slack = accumulator_slack(plan, length, key_block);
            let accumulator = plan.accumulator_zero_nats();
            gap_visible = gap_visible.min(accumulator - slack);
            let meets_own_key_first = causal && order == BlockOrder::NewestFirst;
            gap_blind = if meets_own_key_first {
                numerator.min(accumulator + slack)
            } else {
                accumulator + slack
            };
        }
        Self {
            gap_visible: gap_visible - EXP_SLACK_NATS,
            weight_visible: plan
                .weight_zero_nats()
                .map(|t| t - weight_slack(plan, length)),
            gap_blind: gap_blind + EXP_SLACK_NATS,
        }
    }

    /// The smaller threshold of the two that a visible pair must stay below.
    pub(super) fn smallest_visible(&self) -> f64 {
        self.weight_visible
            .map_or(self.gap_visible, |t| t.min(self.gap_visible))
    }
}

/// A streamed weight is a numerator times rescaling factors, rounded once. Rounding to a grid of subnormals changes a number
/// that stays above zero by a factor between 2/3 and 2, so the numerator's cast costs at most ln 2, and so does a rescaling
/// factor; of these at most one can be subnormal before the product is beyond the threshold anyway. All others are relative
/// roundings of 2^-24, and differences of maxima rounded to f32.
fn accumulator_slack(plan: &PrecisionPlan, length: u64, key_block: usize) -> f64 {
    let n_blocks = length as f64 / key_block.max(1) as f64 + 1.0;
    let per_block = 2.0
        * plan
            .exp
            .format
            .unit_roundoff()
            .max(Format::F32.unit_roundoff());
    2.0 * LN_2 + n_blocks * per_block
}

/// Numerators are on a grid: near the smallest one, rounding down costs a factor of at most 2/3, elsewhere half a step relative
/// to the smallest weight that survives, `exp(-T)`. The sum is off by `length * u` relative (each term rounded, then added up),
/// vLLM's `sum + 1e-6` by 1e-6.
fn weight_slack(plan: &PrecisionPlan, length: u64) -> f64 {
    let exp = plan.exp.format;
    let half_step = match plan.exp.underflow {
        Underflow::Gradual => exp.min_subnormal() / 2.0,
        Underflow::Flush => 0.0,
    };
    let smallest = plan.weight_zero_nats().map_or(1.0, |t| (-t).exp());
    let relative = (half_step / smallest).min(1.0 / 3.0);
    let sum = length as f64 * 2.0 * plan.accumulator.unit_roundoff();
    -(-relative).ln_1p() + sum.ln_1p() + 1e-6 + EXP_SLACK_NATS
}
