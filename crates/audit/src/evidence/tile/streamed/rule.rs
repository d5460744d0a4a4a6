//! When a streaming plan loses a weight.

use numerics::{Format, PrecisionPlan};

use crate::evidence::plan::is_lost;
use crate::evidence::rules::{CAST_NATS, PlanRules, UNDECIDED_NATS};

/// When a streaming plan loses a weight.
pub(super) struct Rule<'a> {
    pub(super) plan: &'a PrecisionPlan,
    /// Gaps to the running maximum above it are zero numerators, nats.
    pub(super) threshold: f64,
    /// Gaps to the final maximum above it are lost in the accumulator, nats, but for what a cast moves numerators by.
    pub(super) lost: f64,
    /// Up to this gap to the running maximum numerators are normal numbers, nats.
    normal: f64,
    /// How far casts move those, nats.
    normal_cast: f64,
    /// Rises of the maximum of up to this much lose nothing but zeros, nats.
    harmless: f64,
    /// Rises of up to this much scale by a normal number, nats.
    pub(super) exact_rise: f64,
}

impl<'a> Rule<'a> {
    pub(super) fn new(plan: &'a PrecisionPlan, rules: &PlanRules) -> Self {
        let casts = [plan.exp.format, plan.probability];
        let smallest = casts
            .iter()
            .fold(0.0, |most: f64, cast| most.max(cast.min_normal()));
        let half_step = |format: &Format| 0.5_f64.powi(format.significand_bits() as i32);
        // A numerator that is not zero is no smaller than the smallest subnormal of either format.
        let exponent = |format: Format| format.min_subnormal_exponent();
        let least = casts.into_iter().map(exponent).fold(i32::MIN, i32::max);
        let keeps = exponent(plan.accumulator) <= least;
        Self {
            plan,
            threshold: rules.own.gap(1.0),
            lost: plan.accumulator_zero_nats(),
            normal: -smallest.ln() - plan.max_offset - CAST_NATS,
            normal_cast: 1.01 * casts.iter().map(half_step).sum::<f64>() + 1e-9,
            // Half of it is still rounded up.
            harmless: if keeps { 0.5 } else { -1.0 },
            exact_rise: plan.exact_rise_nats(),
        }
    }

    /// Bounds on the scores that are blind where the running maximum is `running` and the final one `max`: all below the second, none
    /// from the first on. `off`: how far gaps of these scores may be off, nats; `coarse`: some rise may scale by a rounded factor.
    #[inline(always)]
    pub(super) fn bounds(&self, running: f64, max: f64, off: f64, coarse: bool) -> (f64, f64) {
        let risen = max - running;
        let zero = (running - self.threshold, off + UNDECIDED_NATS);
        let is_normal = self.lost - risen + CAST_NATS < self.normal;
        let is_exact = !coarse || risen + off <= self.exact_rise;
        let cast = if is_normal && is_exact {
            self.normal_cast
        } else {
            CAST_NATS
        };
        let lost = (max - self.lost, off + cast);
        let (below, surely) = (zero.0 + zero.1, zero.0 - zero.1);
        if risen + off > self.harmless {
            (below.max(lost.0 + lost.1), surely.max(lost.0 - lost.1))
        } else {
            (below, surely)
        }
    }

    /// Whether a pair is lost in the accumulator; `gap` to the running maximum, whose later rises scale it down by `decay`.
    pub(super) fn is_lost(&self, gap: f64, decay: f64) -> bool {
        is_lost(self.plan, self.lost, gap, decay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numerics::Family;

    /// Outside its bounds a score is what the plan's own arithmetic says, whatever the maximum does later.
    #[test]
    fn bounds_hold_what_is_decided_pair_by_pair() {
        let plans = [
            "hf-sdpa",
            "hf-sdpa:bf16",
            "flash-attn2:f16",
            "flash-attn2:bf16",
            "vllm-triton",
            "vllm-triton:f16",
            "flex-attention",
            "flex-attention:bf16",
        ];
        for name in plans {
            let plan = PrecisionPlan::parse(name, Family::Mpt).expect("a plan of this family");
            let rules = PlanRules::new(&plan);
            let rule = Rule::new(&plan, &rules);
            let mut between = 0;
            for tenths in [0, 1, 4, 6, 7, 20, 100, 170, 400, 865, 900, 1100, 2000] {
                let risen = f64::from(tenths) / 10.0;
                let (below, surely) = rule.bounds(0.0, risen, 0.0, true);
                assert!(surely <= below);
                for at in [rule.threshold, rule.lost - risen] {
                    for step in -4000..4000 {
                        // Thousandths of a nat, and millionths.
                        let gaps = [1e-3, 1e-6].map(|unit| at + f64::from(step) * unit);
                        // The running maximum is no less than any score so far.
                        for gap in gaps.into_iter().filter(|gap| *gap >= 0.0) {
                            let blind = gap > rule.threshold || rule.is_lost(gap, risen);
                            let label = format!("{name}: gap {gap}, risen {risen}");
                            assert!(-gap >= surely || blind, "{label}: seen, {surely}");
                            assert!(-gap < below || !blind, "{label}: blind, {below}");
                            between += u32::from(-gap >= surely && -gap < below);
                        }
                    }
                }
            }
            assert!(between > 0, "{name}: no bound was near");
        }
    }
}
