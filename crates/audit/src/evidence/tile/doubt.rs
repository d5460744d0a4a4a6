//! Pairs so near a threshold that only the plan's own entry and the row's exact threshold decide.

use super::criteria::{Criteria, Found, Look, RowThresholds};
use super::plans::{ROOM_NATS, Taker};
use super::{Block, Carrier, Lanes, TileScratch};
use crate::evidence::rules::PlanRules;

/// Where the pairs are, and what decides them.
pub(super) struct Doubt<'a, T, const W: usize> {
    pub(super) block: &'a Block,
    pub(super) rules: &'a PlanRules,
    /// Largest entry of each lane under the plan, if all have been looked for.
    pub(super) max: Option<&'a [T; W]>,
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
            let max = match doubt.max {
                Some(max) => max[lane],
                None => {
                    let all = 0..buffers.blocks.len();
                    self.largest_of_lane(lane, all, lanes.max[lane], lanes, buffers)
                }
            };
            let gap = self.gap_of::<T, W>(block, key, lane, max, lanes, buffers);
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

    /// Gap of one pair of a block from `max`.
    #[inline(always)]
    pub(super) fn gap_of<T: Carrier, const W: usize>(
        &self,
        block: &Block,
        key: usize,
        lane: usize,
        max: T,
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
    ) -> T {
        let pair = Block {
            keys: key..key + 1,
            hidden: false,
            ..block.clone()
        };
        max.minus(self.entries::<T, W>(&pair, T::LOWEST, lanes, buffers)[lane])
    }

    /// Largest entry of one lane over some of the tile's blocks, of a group that shares the sums of the forward pass: its biases are finite,
    /// and gaps of its entries nearly those of the scores, of which `known` is the largest.
    pub(super) fn largest_of_lane<T: Carrier, const W: usize>(
        &self,
        lane: usize,
        blocks: impl Iterator<Item = usize>,
        known: f32,
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
    ) -> T {
        if self.is_own {
            return T::of_f32(known);
        }
        // The gap of a largest entry is 0 here, so it is at most the slack in the forward pass.
        let most = self.slack + ROOM_NATS;
        let mut largest = T::LOWEST;
        for index in blocks {
            let block = buffers.blocks[index].clone();
            if f64::from(known - self.high(&block, buffers)[lane]) > most {
                continue;
            }
            let entries = self.entries::<T, W>(&block, T::LOWEST, lanes, buffers);
            for entry in entries.iter().skip(lane).step_by(W) {
                largest = if *entry > largest { *entry } else { largest };
            }
        }
        largest
    }
}
