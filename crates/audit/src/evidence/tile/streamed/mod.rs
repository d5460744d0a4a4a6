//! Plans whose maximum moves with the blocks of keys, from tiles; see `PlanCounts::streamed` for the same from rows and for the
//! rule.
//!
//! Blocks that were not computed lie so far below the final maximum that the accumulator loses them. Where one of their
//! scores would have been the running maximum, everything weighed against it is lost for the same reason: leaving them out of
//! the running maxima changes no count.
//!
//! A pair is blind if it lies far enough below the running maximum, or far enough below the final one: whichever comes first is one
//! bound on its score, known but for roundings and for the cast of its numerator. What lies between is decided pair by pair.

mod rule;
mod visits;

use kernels::{Cut, ScoreTile};
use numerics::plan::{BlockOrder, RowOrder, RowPlace, ZeroRule};

use super::criteria::ROUNDINGS;
use super::plans::{Ranges, Taker};
use super::{Block, Lanes, TileScratch, array, array_mut, differences};
use crate::evidence::plan::decay_of_rises;
use crate::evidence::rules::{CAST_NATS, PlanRules, UNDECIDED_NATS};
use crate::evidence::scan::Real;
use rule::Rule;
use visits::{Visit, raise, visits};

pub(super) use visits::cut_blocks;

impl Taker<'_> {
    /// Whether a plan can be taken from a tile: its blocks are whole blocks here or whole parts of one, its threshold is that of the
    /// numerator.
    pub(super) fn can_stream(&self, key_block: usize, rules: &PlanRules) -> bool {
        (key_block.is_multiple_of(ScoreTile::BLOCK) || ScoreTile::BLOCK.is_multiple_of(key_block))
            && !self.table.is_wide()
            && matches!(rules.own, ZeroRule::Fixed(_))
    }

    /// Counts by the plan's own rule, lanes together whose rows go over the blocks in one order. No block is more than `key_block`
    /// keys: see [`cut_blocks`].
    #[inline(always)]
    pub(super) fn each_order<const W: usize>(
        &mut self,
        plan: usize,
        rules: &PlanRules,
        key_block: usize,
        order: BlockOrder,
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
    ) {
        let (first_query, length) = (self.tile.first_query, self.tile.n_keys);
        let of_lane = |lane: usize| {
            order.of_row(RowPlace {
                query: first_query + lane,
                length,
                causal: true,
            })
        };
        let mut some = 0..0;
        while some.end < W {
            let order = of_lane(some.end);
            some = some.end..some.end + 1;
            while some.end < W && of_lane(some.end) == order {
                some.end += 1;
            }
            let alone = (some.len() < W).then(|| lanes.only(&some));
            let lanes = alone.as_ref().unwrap_or(lanes);
            if lanes.n_good > 0 {
                self.streamed(plan, rules, key_block, order, lanes, buffers);
            }
        }
    }

    /// [`Taker::each_order`] for one of them.
    #[inline(always)]
    fn streamed<const W: usize>(
        &mut self,
        plan: usize,
        rules: &PlanRules,
        key_block: usize,
        order: RowOrder,
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
    ) {
        self.find_highs(order, lanes, buffers);
        let (visits, placed) = visits::<W>(buffers, key_block, order);
        let rule = Rule::new(&self.job.plans[plan], rules);
        let Some(last) = visits.last() else { return };
        let max = last.maximum;
        let killed = self.killed(&rule, &visits, lanes, buffers);
        // Of gaps of the scores that are compared, and of the bounds on those.
        let size = lanes
            .alive()
            .fold(0.0, |size: f32, lane| size.max(max[lane].abs()));
        let size = f64::from(size) + rule.threshold + rule.lost;
        let off = self.slack_of_scores() + size * ROUNDINGS;
        let least = (rule.threshold - UNDECIDED_NATS).min(rule.lost - CAST_NATS);
        let mut blind = Ranges::default();
        let skipped = 0..self.tile.proven_zero_before;
        blind.extend(&skipped);
        let (mut found, mut undecided) = (lanes.pairs(&skipped), 0);
        let mut counters = self.counts.plans[plan]
            .by_offset
            .take_tiles(self.job.offsets);
        // Ascending blocks, whatever the order of the visits: what is blind in a row joins into one run.
        for ascending in 0..visits.len() {
            let number = placed.place(ascending);
            let visit = &visits[number];
            let mut bounds = None;
            for index in visit.blocks.clone() {
                let block = buffers.blocks[index].clone();
                let (near, far) = (f64::from(block.near), f64::from(block.far));
                if far + self.slack <= least && !killed.some {
                    continue;
                }
                if near - self.slack > rule.lost + CAST_NATS {
                    found += lanes.pairs(&block.keys);
                    blind.extend(&block.keys);
                    continue;
                }
                if bounds.is_none() {
                    bounds = Some(visit_bounds(
                        &rule, visit, &max, &killed, number, off, lanes,
                    ));
                }
                let (below, surely) = bounds.as_ref().expect("just set");
                let highs: &[f32; W] = array(&buffers.highs[index * W..(index + 1) * W]);
                let (mut every, mut some) = (true, false);
                // No score of the block is lower than that.
                let lowest = (far + self.slack) as f32 * (1.0 + f32::EPSILON);
                for lane in 0..W {
                    every &= highs[lane] < surely[lane] || !lanes.good[lane];
                    some |= max[lane] - lowest < below[lane];
                }
                if !some {
                    continue;
                }
                if every {
                    found += lanes.pairs(&block.keys);
                    blind.extend(&block.keys);
                    continue;
                }
                let cut = Cut { below, surely };
                let to = &mut counters[differences::<W>(self.tile, &block.keys)];
                let [counted, ..] =
                    self.count_below(&block, &[cut], lanes, buffers, Some(&mut *to));
                found += counted.pairs;
                if !counted.in_doubt {
                    continue;
                }
                let later = &visits[number..];
                let coarse = killed.coarse;
                let more = self.decide(&rule, &block, cut, later, coarse, lanes, buffers, to);
                (found, undecided) = (found - more.seen, undecided + more.undecided);
            }
        }
        self.add_runs(plan, &blind, lanes);
        let counts = &mut self.counts.plans[plan];
        counts.by_offset.put_tiles(counters);
        counts.blind += found;
        counts.undecided += undecided;
    }

    /// How far gaps of the scores that are compared may be from the plan's own, nats.
    fn slack_of_scores(&self) -> f64 {
        if self.stands_in() { self.slack } else { 0.0 }
    }

    /// Decides the pairs of a block that are in doubt, which `to` has counted as blind, by difference: those that are seen are taken out.
    /// `visits`: that of the block, and all later ones; `coarse` as in [`Killed`].
    #[inline(never)]
    #[allow(clippy::too_many_arguments, reason = "one block and where it goes")]
    fn decide<const W: usize>(
        &self,
        rule: &Rule<'_>,
        block: &Block,
        cut: Cut<'_>,
        visits: &[Visit<W>],
        coarse: bool,
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
        to: &mut [u32],
    ) -> Decided {
        let mut decided = Decided::default();
        for (key, lane) in self.in_doubt(block, cut, lanes, buffers) {
            let mut maximum = |visit: &Visit<W>| {
                let known = visit.maximum[lane];
                match self.stands_in() {
                    true => self.largest_of_lane(lane, visit.seen(), known, lanes, buffers),
                    false => known,
                }
            };
            let (running, max) = (maximum(&visits[0]), maximum(&visits[visits.len() - 1]));
            let mut decay = f64::from(max - running);
            if coarse && decay > rule.exact_rise {
                let maxima = visits.iter().map(|visit| f64::from(maximum(visit)));
                decay = decay_of_rises(rule.plan, maxima);
            }
            let gap = self.gap_of::<f32, W>(block, key, lane, running, lanes, buffers);
            let gap = f64::from(gap);
            let is_lost = rule.is_lost(gap, decay);
            if gap <= rule.threshold && !is_lost {
                decided.seen += 1;
                to[block.keys.end - 1 - key + lane] -= 1;
            }
            let is_close = (gap - rule.threshold).abs() <= UNDECIDED_NATS;
            decided.undecided += u64::from(is_close && !is_lost);
        }
        decided
    }

    /// Before which visit everything was scaled by zero.
    #[inline(always)]
    fn killed<const W: usize>(
        &self,
        rule: &Rule<'_>,
        visits: &[Visit<W>],
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
    ) -> Killed<W> {
        let mut killed = Killed {
            before: [0; W],
            some: false,
            coarse: false,
        };
        let kill = -rule.plan.rescale_rule().zero_below;
        let slack = self.slack_of_scores();
        for (number, pair) in visits.windows(2).enumerate() {
            let mut most = [f32::NEG_INFINITY; W];
            for lane in 0..W {
                most[lane] = pair[1].maximum[lane] - pair[0].maximum[lane];
            }
            let most = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
            killed.coarse |= f64::from(most) + slack > rule.exact_rise;
            if f64::from(most) + slack <= kill {
                continue;
            }
            for lane in lanes.alive() {
                let [mut before, mut after] = [0, 1].map(|i: usize| pair[i].maximum[lane]);
                if self.stands_in() && (f64::from(after - before) - kill).abs() <= slack {
                    before = self.largest_of_lane(lane, pair[0].seen(), before, lanes, buffers);
                    after = self.largest_of_lane(lane, pair[1].seen(), after, lanes, buffers);
                }
                if f64::from(after - before) > kill {
                    killed.before[lane] = number + 1;
                    killed.some = true;
                }
            }
        }
        killed
    }

    /// Largest score of each lane in each block: of the forward pass where those stand in, or else of the plan. Of a part of a block that
    /// cannot raise a maximum, that of the block.
    #[inline(always)]
    fn find_highs<const W: usize>(
        &self,
        order: RowOrder,
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
    ) {
        let mut highs = std::mem::take(&mut buffers.highs);
        let n = buffers.blocks.len();
        if highs.len() < n * W {
            highs.resize(n * W, 0.0);
        }
        let mut running = [f32::LOWEST; W];
        let visits = order.visits(n, |index| buffers.blocks[index].keys.start);
        for index in visits.blocks() {
            let block = buffers.blocks[index].clone();
            let to: &mut [f32; W] = array_mut(&mut highs[index * W..(index + 1) * W]);
            if !self.by_forward() {
                *to = [f32::LOWEST; W];
                self.raise(&block, lanes, buffers, to);
                continue;
            }
            *to = *array(self.high(&block, buffers));
            let mut raises = false;
            for lane in 0..W {
                raises |= to[lane] > running[lane];
            }
            if !raises {
                continue;
            }
            if block.keys.len() == ScoreTile::BLOCK {
                // They are those of the block.
            } else if !block.diagonal {
                to.copy_from_slice(&self.tile.highs(block.keys)[..W]);
            } else {
                let (max, last) = (&lanes.max, &lanes.last_key);
                let (_, high) = self.tile.range_of_pairs(block.keys, max, last);
                to.copy_from_slice(&high[..W]);
            }
            raise(&mut running, to);
        }
        buffers.highs = highs;
    }

    /// Largest score of each lane, of the forward pass, in the block that a block is or is a part of.
    pub(super) fn high<'b>(&'b self, block: &Block, buffers: &'b TileScratch) -> &'b [f32] {
        let start = block.keys.start / ScoreTile::BLOCK * ScoreTile::BLOCK;
        if block.diagonal {
            let first = self.tile.diagonal_from().max(self.tile.proven_zero_before);
            &buffers.diagonal[(start - first) / ScoreTile::BLOCK]
        } else {
            self.tile.ends(start).high
        }
    }
}

/// See [`Taker::decide`].
#[derive(Default)]
struct Decided {
    seen: u64,
    undecided: u64,
}

/// See [`Taker::killed`].
struct Killed<const W: usize> {
    before: [usize; W],
    some: bool,
    /// Some rise may scale by a subnormal number, a rounded one.
    coarse: bool,
}

/// [`Rule::bounds`] of every lane at one visit.
#[inline(always)]
fn visit_bounds<const W: usize>(
    rule: &Rule<'_>,
    visit: &Visit<W>,
    max: &[f32; W],
    killed: &Killed<W>,
    number: usize,
    off: f64,
    lanes: &Lanes<W>,
) -> ([f32; W], [f32; W]) {
    let (mut below, mut surely) = ([f32::NEG_INFINITY; W], [f32::NEG_INFINITY; W]);
    for lane in 0..W {
        let (running, max) = (f64::from(visit.maximum[lane]), f64::from(max[lane]));
        let bounds = rule.bounds(running, max, off, killed.coarse);
        let bounds = if number < killed.before[lane] {
            // Every pair is blind, whatever it scores.
            (f32::INFINITY, f32::INFINITY)
        } else {
            (bounds.0 as f32, bounds.1 as f32)
        };
        below[lane] = if lanes.good[lane] {
            bounds.0
        } else {
            below[lane]
        };
        surely[lane] = if lanes.good[lane] {
            bounds.1
        } else {
            surely[lane]
        };
    }
    (below, surely)
}
