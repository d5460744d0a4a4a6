//! Where the attention mass lies under one plan's roundings.

use numerics::{Cast, Format, PrecisionPlan, Rounding, Underflow};

use crate::evidence::distance::{Offsets, bin_masses};
use crate::evidence::rules::UNSUMMED_NATS;
use crate::evidence::scan::CHUNK;
use crate::evidence::scored::ScoredRow;

/// Whether the plan's roundings can move attention mass by more than half an ulp of bf16: scores, bias or exponential below
/// f32, a bias that is added more than once or has other slopes, or probabilities with fewer bits than bf16.
pub(crate) fn changes_mass(plan: &PrecisionPlan) -> bool {
    let narrow = |format: Format| format.significand_bits() < Format::F32.significand_bits();
    let bias = plan.bias;
    let scores = [
        plan.slope,
        bias.position,
        bias.product,
        bias.storage,
        plan.raw_score,
        plan.scaled,
        plan.sum,
    ];
    let other_bias = plan.bias_multiplicity > 1 || plan.slope_rule.is_another_schedule();
    (!plan.idealised && (other_bias || scores.into_iter().any(narrow)))
        || narrow(plan.exp.format)
        || plan.probability.significand_bits() < Format::Bf16.significand_bits()
}

/// The roundings that lie between an exact numerator and a weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightRounding {
    exp: FlushingCast,
    quotient: Option<FlushingCast>,
    probability: FlushingCast,
    /// `exp(-max_offset)`.
    offset: f32,
}

/// A cast that may flush.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushingCast {
    cast: Cast,
    /// Smaller values become 0.
    smallest: f32,
}

impl FlushingCast {
    pub(crate) fn new(format: Format, underflow: Underflow) -> Self {
        Self {
            cast: Cast::to(format),
            smallest: match underflow {
                Underflow::Gradual => 0.0,
                Underflow::Flush => format.min_normal() as f32,
            },
        }
    }

    #[inline(always)]
    pub(crate) fn apply(self, x: f32) -> f32 {
        let rounded = self.cast.apply(x);
        if x < self.smallest { 0.0 } else { rounded }
    }

    /// The rounding alone, where it is a fast one and nothing is flushed.
    fn gradual(self) -> Option<Rounding> {
        match self.cast {
            Cast::Fast(rounding) if self.smallest == 0.0 => Some(rounding),
            _ => None,
        }
    }
}

impl WeightRounding {
    pub(crate) fn new(plan: &PrecisionPlan) -> Self {
        Self {
            exp: FlushingCast::new(plan.exp.format, plan.exp.underflow),
            quotient: plan
                .normalise_before_cast
                .map(|format| FlushingCast::new(format, Underflow::Gradual)),
            probability: FlushingCast::new(plan.probability, plan.probability_underflow),
            offset: (-plan.max_offset).exp() as f32,
        }
    }

    /// The rounding of the probability where it is the only one: numerator and quotient in f32, nothing flushed.
    pub(crate) fn plain_quotient(self) -> Option<Rounding> {
        let f32 = |cast: FlushingCast| cast.gradual() == Some(Rounding::Keep);
        let plain = f32(self.exp) && self.quotient.is_some_and(f32) && self.offset == 1.0;
        self.probability.gradual().filter(|_| plain)
    }

    /// The weight of a pair whose exact numerator `exp(entry - max)` is `numerator`, over the row's sum; `share` is the
    /// reciprocal of the sum of such numerators.
    #[inline(always)]
    pub(crate) fn weight(self, numerator: f32, share: f32) -> f32 {
        let numerator = self.exp.apply(numerator * self.offset);
        let share = share / self.offset;
        match self.quotient {
            Some(quotient) => self.probability.apply(quotient.apply(numerator * share)),
            None => self.probability.apply(numerator) * share,
        }
    }
}

/// Mass of one head under one plan.
#[derive(Clone, Debug)]
pub(crate) struct PlanMass {
    pub(crate) by_offset: Vec<f64>,
}

impl PlanMass {
    pub(crate) fn new(offsets: Offsets) -> Self {
        Self {
            by_offset: vec![0.0; offsets.len()],
        }
    }

    pub(crate) fn clear(&mut self) {
        self.by_offset.fill(0.0);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mass, more) in self.by_offset.iter_mut().zip(&other.by_offset) {
            *mass += more;
        }
    }

    /// Takes one row; `scored.sum` is the sum as the plan holds it.
    #[inline(always)]
    pub(crate) fn row(&mut self, plan: &PrecisionPlan, scored: &ScoredRow<'_>, weights: &[f32]) {
        let rounding = WeightRounding::new(plan);
        let share = (1.0 / scored.sum) as f32;
        let mut terms = [0.0_f32; CHUNK];
        for (chunk, &(_, high)) in scored.row.chunks.iter().zip(scored.bounds) {
            if scored.max - high > UNSUMMED_NATS {
                continue;
            }
            let terms = &mut terms[..chunk.len()];
            for (term, &weight) in terms.iter_mut().zip(&weights[chunk.keys()]) {
                *term = rounding.weight(weight, share);
            }
            let mass = &mut self.by_offset[scored.row.offsets(chunk)];
            for (mass, &term) in mass.iter_mut().zip(terms.iter()) {
                *mass += f64::from(term);
            }
        }
    }

    /// The histogram, normalised, and its distance from another one.
    pub(crate) fn finish(
        &self,
        offsets: Offsets,
        edges: &[u64],
        own: &[f64],
    ) -> (Vec<f64>, Option<f64>) {
        let by_distance = offsets.fold(self.by_offset.iter().copied());
        let mut bins = bin_masses(&by_distance, edges);
        let total: f64 = bins.iter().sum();
        if total <= 0.0 {
            return (bins, None);
        }
        for bin in &mut bins {
            *bin /= total;
        }
        let variation = bins
            .iter()
            .zip(own)
            .map(|(a, b)| (a - b).abs())
            .sum::<f64>()
            / 2.0;
        (bins, Some(variation))
    }
}
