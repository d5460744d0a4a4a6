//! Plans whose maximum moves with the blocks of keys, from tiles; see `PlanCounts::streamed` for the same from rows and for the
//! rule.
//!
//! Blocks that were not computed lie so far below the final maximum that the accumulator loses them. Where one of their
//! scores would have been the running maximum, everything weighed against it is lost for the same reason: leaving them out of
//! the running maxima changes no count.

use std::ops::Range;

use kernels::{GapLimits, ScoreTile};
use numerics::PrecisionPlan;
use numerics::plan::{BlockOrder, ZeroRule};

use super::plans::{Ranges, Taker, add_ones};
use super::{Block, Lanes, TileScratch, array};
use crate::evidence::plan::is_lost;
use crate::evidence::rules::{CAST_NATS, PlanRules, UNDECIDED_NATS};
use crate::evidence::scan::Real;

/// One visit of a streaming kernel.
struct Visit<const W: usize> {
    /// Indices of the tile's blocks.
    blocks: Range<usize>,
    /// Running maximum of each lane.
    maximum: [f32; W],
}

impl Taker<'_> {
    /// Whether a plan can be taken from a tile: its blocks are whole blocks here or whole parts of one, its threshold is that of the
    /// numerator.
    pub(super) fn can_stream(&self, key_block: usize, rules: &PlanRules) -> bool {
        (key_block.is_multiple_of(ScoreTile::BLOCK) || ScoreTile::BLOCK.is_multiple_of(key_block))
            && !self.table.is_wide()
            && matches!(rules.own, ZeroRule::Fixed(_))
    }

    /// Counts by the plan's own rule. No block is more than `key_block` keys: see [`cut_blocks`].
    #[inline(always)]
    pub(super) fn streamed<const W: usize>(
        &mut self,
        plan: usize,
        rules: &PlanRules,
        key_block: usize,
        order: BlockOrder,
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
    ) {
        self.find_highs(key_block, lanes, buffers);
        let visits = visits::<W>(buffers, key_block, order);
        let settings = &self.job.plans[plan];
        let threshold = rules.own.gap(1.0);
        let lost = settings.accumulator_zero_nats();
        let Some(last) = visits.last() else { return };
        let max = last.maximum;
        // Blocks visited before this one were scaled by zero.
        let mut killed = [0_usize; W];
        for (number, pair) in visits.windows(2).enumerate() {
            for lane in 0..W {
                let rise = pair[1].maximum[lane] - pair[0].maximum[lane];
                if f64::from(rise) > -settings.exp.zero_below {
                    killed[lane] = number + 1;
                }
            }
        }
        let mut number_of = vec![0; buffers.blocks.len()];
        for (number, visit) in visits.iter().enumerate() {
            number_of[visit.blocks.clone()].fill(number);
        }
        let undecided_ends = undecided_ends(threshold);
        let mut blind = Ranges::default();
        let skipped = 0..self.tile.proven_zero_before;
        blind.extend(&skipped);
        let (mut found, mut undecided) = (lanes.pairs(&skipped), 0);
        let mut counters = self.counts.plans[plan]
            .by_offset
            .take_tiles(self.job.offsets);
        for index in 0..buffers.blocks.len() {
            let (block, number) = (buffers.blocks[index].clone(), number_of[index]);
            let running = &visits[number].maximum;
            let high: &[f32; W] = array(&buffers.highs[index * W..(index + 1) * W]);
            let mut all = [false; W];
            let (mut some, mut every, mut losing) = (false, true, false);
            for lane in lanes.alive() {
                if lanes.seen_end(lane, &block.keys) == block.keys.start {
                    continue;
                }
                all[lane] = number < killed[lane]
                    || f64::from(running[lane] - high[lane]) > threshold + UNDECIDED_NATS
                    || f64::from(max[lane] - high[lane]) > lost + CAST_NATS;
                let furthest = f64::from(block.far) + self.slack;
                let risen = f64::from(max[lane] - running[lane]);
                let none =
                    furthest - risen <= threshold - UNDECIDED_NATS && furthest <= lost - CAST_NATS;
                some |= all[lane] || !none;
                every &= all[lane];
                losing |= !all[lane] && furthest > lost - CAST_NATS;
            }
            if !some {
                continue;
            }
            if every {
                found += lanes.pairs(&block.keys);
                blind.extend(&block.keys);
                continue;
            }
            let mut running = *running;
            let blind_from = [<f32 as Real>::floor(threshold); W];
            let mut undecided_band = [[undecided_ends.0; W], [undecided_ends.1; W]];
            for lane in 0..W {
                if all[lane] {
                    // Every visible pair is blind, whatever it scores, and none is close.
                    running[lane] = f32::INFINITY;
                    (undecided_band[0][lane], undecided_band[1][lane]) =
                        (f32::INFINITY, f32::INFINITY);
                }
            }
            let limits = GapLimits {
                threshold: &blind_from,
                undecided: undecided_band.each_ref().map(|ends| &ends[..]),
            };
            let to = &mut counters[self.differences::<W>(&block.keys)];
            let by_difference = if losing { None } else { Some(&mut *to) };
            let beyond = self.count_beyond(&block, limits, &running, lanes, buffers, by_difference);
            undecided += beyond.undecided;
            if !losing {
                found += beyond.pairs;
                continue;
            }
            let mut terms = std::mem::take(&mut buffers.terms);
            let ones = &mut terms[..block.keys.len() * W];
            let gaps = self.gaps::<f32, W>(&block, lanes, &running, buffers);
            let reached = &visits[number].maximum;
            let risen: [f64; W] = std::array::from_fn(|lane| f64::from(max[lane] - reached[lane]));
            found += lost_pairs(settings, lost, gaps, &blind_from, &risen, ones);
            add_ones::<W>(ones, to);
            buffers.terms = terms;
        }
        self.add_runs(plan, &blind, lanes);
        let counts = &mut self.counts.plans[plan];
        counts.by_offset.put_tiles(counters);
        counts.blind += found;
        counts.undecided += undecided;
    }

    /// Largest entry of each lane in each block.
    #[inline(always)]
    fn find_highs<const W: usize>(
        &self,
        key_block: usize,
        lanes: &Lanes<W>,
        buffers: &mut TileScratch,
    ) {
        let kept = self.is_own && key_block >= ScoreTile::BLOCK;
        let mut highs = std::mem::take(&mut buffers.highs);
        highs.clear();
        let mut diagonal = 0;
        for index in 0..buffers.blocks.len() {
            let block = buffers.blocks[index].clone();
            if kept && block.diagonal {
                highs.extend_from_slice(&buffers.diagonal[diagonal]);
                diagonal += 1;
                continue;
            }
            if kept {
                highs.extend_from_slice(self.tile.ends(block.keys.start).high);
                continue;
            }
            let mut high = [f32::LOWEST; W];
            self.raise(&block, lanes, buffers, &mut high);
            highs.extend_from_slice(&high);
        }
        buffers.highs = highs;
    }
}

/// Cuts the tile's blocks into parts where a plan's are narrower; the whole ones, which are to be put back.
pub(super) fn cut_blocks(key_block: usize, buffers: &mut TileScratch) -> Option<Vec<Block>> {
    (key_block < ScoreTile::BLOCK).then(|| {
        let parts = parts(&buffers.blocks, key_block);
        std::mem::replace(&mut buffers.blocks, parts)
    })
}

/// Blocks cut into parts of `n` keys. Bounds on the gaps of a block hold for its parts.
fn parts(blocks: &[Block], n: usize) -> Vec<Block> {
    let part_of = |block: &Block, start: usize| Block {
        keys: start..(start + n).min(block.keys.end),
        ..block.clone()
    };
    let parts = blocks.iter().flat_map(|block| {
        let starts = block.keys.clone().step_by(n);
        starts.map(move |start| part_of(block, start))
    });
    parts.collect()
}

/// Two gaps: undecided are the pairs above the first and not above the second.
fn undecided_ends(threshold: f64) -> (f32, f32) {
    let close = |gap: f32| (f64::from(gap) - threshold).abs() <= UNDECIDED_NATS;
    let mut low = (threshold - 2.0 * UNDECIDED_NATS) as f32;
    while !close(low.next_up()) {
        low = low.next_up();
        if f64::from(low) > threshold + UNDECIDED_NATS {
            // The floats around the threshold are wider apart than the band.
            return (f32::INFINITY, f32::INFINITY);
        }
    }
    let mut high = low;
    while close(high.next_up()) {
        high = high.next_up();
    }
    (low, high)
}

/// Writes 1 over every pair that is beyond its lane's threshold or lost in the accumulator, 0 over the others; how many there are.
#[inline(always)]
fn lost_pairs<const W: usize>(
    plan: &PrecisionPlan,
    lost: f64,
    gaps: &[f32],
    threshold: &[f32; W],
    risen: &[f64; W],
    out: &mut [f32],
) -> u64 {
    let mut found = [0.0_f32; W];
    let rows = gaps.as_chunks::<W>().0.iter();
    for (gap, out) in rows.zip(out.as_chunks_mut::<W>().0) {
        // What is certain in a loop that vectorises; the exact rule takes an exponential.
        let (mut blind, mut open) = ([0.0_f32; W], [0_u8; W]);
        for lane in 0..W {
            let total = f64::from(gap[lane]) + risen[lane];
            let certain = gap[lane] > threshold[lane] || total > lost + CAST_NATS;
            blind[lane] = if certain { 1.0 } else { 0.0 };
            open[lane] = u8::from(!certain && total > lost - CAST_NATS);
        }
        if open != [0; W] {
            for lane in (0..W).filter(|&lane| open[lane] == 1) {
                if is_lost(plan, f64::from(gap[lane]), risen[lane]) {
                    blind[lane] = 1.0;
                }
            }
        }
        for lane in 0..W {
            found[lane] += blind[lane];
        }
        *out = blind;
    }
    // At most a block's pairs: exact.
    found.iter().sum::<f32>() as u64
}

/// The tile's blocks in the order of the visit, with the running maxima.
#[inline(always)]
fn visits<const W: usize>(
    buffers: &TileScratch,
    key_block: usize,
    order: BlockOrder,
) -> Vec<Visit<W>> {
    let mut visits: Vec<Visit<W>> = Vec::new();
    let number = |index: usize| buffers.blocks[index].keys.start / key_block;
    for index in 0..buffers.blocks.len() {
        match visits.last_mut() {
            Some(visit) if number(visit.blocks.start) == number(index) => {
                visit.blocks.end = index + 1;
            }
            _ => visits.push(Visit {
                blocks: index..index + 1,
                maximum: [f32::LOWEST; W],
            }),
        }
    }
    if order == BlockOrder::NewestFirst {
        visits.reverse();
    }
    let mut running = [f32::LOWEST; W];
    for visit in &mut visits {
        for index in visit.blocks.clone() {
            let high: &[f32; W] = array(&buffers.highs[index * W..(index + 1) * W]);
            for lane in 0..W {
                running[lane] = if high[lane] > running[lane] {
                    high[lane]
                } else {
                    running[lane]
                };
            }
        }
        visit.maximum = running;
    }
    visits
}
