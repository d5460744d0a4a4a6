//! Pairs so near a threshold that only the plan's own entry and the row's exact threshold decide.

use super::criteria::{Criteria, Found, Look, RowThresholds};
use super::plans::Taker;
use super::{Block, Carrier, Lanes, TileScratch};
use crate::evidence::rules::PlanRules;

/// Where the pairs are, and what decides them.
pub(super) struct Doubt<'a, T, const W: usize> {
    pub(super) block: &'a Block,
    pub(super) rules: &'a PlanRules,
    /// Largest entry of each lane under the plan.
    pub(super) max: &'a [T; W],
}

impl Taker<'_> {
    /// Decides the pairs in doubt under cut `cut` of `look`, which were counted as beyond; `to` holds the counters by difference.
    #[inline(never)]
    #[allow(clippy::too_many_arguments, reason = "one block and where it goes")]
    pub(super) fn settle<T: Carrier, const W: usize>(
        &self,
        criteria: &Criteria<W>,
        look: &Look<'_>,
        cut: usize,
        doubt: &Doubt<'_, T, W>,
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
        found: &mut Found,
        to: &mut [u32],
    ) {
        let block = doubt.block;
        for (key, lane) in self.in_doubt(block, look.cuts()[cut], lanes, buffers) {
            let pair = Block {
                keys: key..key + 1,
                hidden: false,
                ..block.clone()
            };
            let gap = self.gaps::<T, W>(&pair, lanes, doubt.max, buffers)[lane];
            let (sum, ln_sum) = ([lanes.sum[lane]], [lanes.ln_sum[lane]]);
            let error = self.group.sum_error(lanes.seen_max[lane]);
            let thresholds = doubt.rules.thresholds_of_lanes(&sum, &ln_sum, error);
            let [own, below, above, numerator, weight] = thresholds.map(|[gap]| T::floor(gap));
            let thresholds = RowThresholds {
                own,
                undecided: [below, above],
                numerator,
                weight,
            };
            if criteria.settle(look, cut, &gap, &thresholds, found) {
                to[block.keys.end - 1 - key + lane] -= 1;
            }
        }
    }
}
