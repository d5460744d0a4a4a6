//! Plans whose maximum moves with the blocks of keys, row by row; see `tile::streamed` for the same from tiles.

use numerics::PrecisionPlan;
use numerics::plan::BlockOrder;

use super::{PlanCounts, Run};
use crate::evidence::row::Chunk;
use crate::evidence::rules::{CAST_NATS, PlanRules, UNDECIDED_NATS};
use crate::evidence::scan::{CHUNK, Real, largest, to_gaps};
use crate::evidence::scored::ScoredRow;

impl PlanCounts {
    /// A streaming kernel: a pair is blind if its numerator is zero against the maximum when its block was visited, if a
    /// later rise of the maximum scales its block by zero, or if all later rises together lose it in the accumulator.
    #[inline(always)]
    pub(super) fn streamed<T: Real>(
        &mut self,
        plan: &PrecisionPlan,
        rules: &PlanRules,
        scored: &ScoredRow<'_>,
        key_block: usize,
        order: BlockOrder,
    ) {
        let blocks = visit::<T>(scored, key_block, order);
        let threshold = rules.own.gap(scored.sum);
        let lost = plan.accumulator_zero_nats();
        let max = T::of(scored.max);
        let gap = |reference: T, entry: f64| reference.minus(T::of(entry)).to_f64();
        // Blocks visited before this one were scaled by zero.
        let rise = |visit: usize| {
            blocks[visit]
                .maximum
                .minus(blocks[visit - 1].maximum)
                .to_f64()
        };
        let killed = (1..blocks.len())
            .rev()
            .find(|&visit| rise(visit) > -plan.rescale_rule().zero_below)
            .unwrap_or(0);
        // Mostly all later rises together; a factor that is subnormal is a rounded one.
        let coarse = (1..blocks.len()).any(|visit| rise(visit) > plan.exact_rise_nats());
        let mut run = Run::default();
        let mut gaps = [T::ZERO; CHUNK];
        for (visit, block) in blocks.iter().enumerate() {
            for index in block.chunks.clone() {
                let chunk = &scored.row.chunks[index];
                let (low, high) = scored.bounds[index];
                let all = visit < killed
                    || gap(block.maximum, high) > threshold + UNDECIDED_NATS
                    || gap(max, high) > lost + CAST_NATS;
                if all {
                    self.blind += chunk.len() as u64;
                    run.extend(scored.row.offsets(chunk), &mut self.by_offset);
                    continue;
                }
                if gap(block.maximum, low) <= threshold - UNDECIDED_NATS
                    && gap(max, low) <= lost - CAST_NATS
                {
                    continue;
                }
                let gaps = &mut gaps[..chunk.len()];
                scored.table.entries(scored.row, chunk, gaps);
                to_gaps(gaps, block.maximum);
                let decay = match coarse {
                    false => max.minus(block.maximum).to_f64(),
                    true => {
                        let maxima = blocks[visit..].iter().map(|block| block.maximum.to_f64());
                        decay_of_rises(plan, maxima)
                    }
                };
                let counters = self.by_offset.singles_mut(scored.row.offsets(chunk));
                for (gap, counter) in gaps.iter().zip(counters) {
                    let gap = gap.to_f64();
                    let is_lost = is_lost(plan, lost, gap, decay);
                    let blind = gap > threshold || is_lost;
                    *counter += u32::from(blind);
                    self.blind += u64::from(blind);
                    // What is lost anyway is not undecided.
                    let close = (gap - threshold).abs() <= UNDECIDED_NATS;
                    self.undecided += u64::from(close && !is_lost);
                }
            }
        }
        run.finish(&mut self.by_offset);
    }
}

/// `-ln` of what later rises of the maximum scale a block down by; its own and the later maxima.
pub(crate) fn decay_of_rises(plan: &PrecisionPlan, maxima: impl Iterator<Item = f64>) -> f64 {
    let (mut decay, mut before) = (0.0, None);
    for after in maxima {
        if let Some(before) = before.replace(after) {
            decay += plan.decay_of_rise(before, after);
        }
    }
    decay
}

/// Whether a weight with this gap, cast and then scaled down by `decay` nats, is zero in the accumulator. `lost` is
/// [`PrecisionPlan::accumulator_zero_nats`], which decides where it is far away.
#[inline]
pub(crate) fn is_lost(plan: &PrecisionPlan, lost: f64, gap: f64, decay: f64) -> bool {
    if gap + decay <= lost - CAST_NATS {
        return false;
    }
    let numerator = plan
        .exp
        .format
        .round_with((-gap - plan.max_offset).exp(), plan.exp.underflow);
    let weight = plan
        .probability
        .round_with(numerator, plan.probability_underflow);
    plan.accumulator.round(weight * plan.factor_of_decay(decay)) == 0.0
}

/// One block in the order of the visit.
#[derive(Clone, Debug)]
struct Block<T> {
    chunks: std::ops::Range<usize>,
    /// Largest entry of this and every earlier block.
    maximum: T,
}

/// The key blocks of a row in the order of the visit, with the running maximum.
#[inline(always)]
fn visit<T: Real>(scored: &ScoredRow<'_>, key_block: usize, order: BlockOrder) -> Vec<Block<T>> {
    let chunks = scored.row.chunks;
    let mut blocks: Vec<Block<T>> = Vec::with_capacity(chunks.len());
    let number = |chunk: &Chunk| chunk.start / key_block;
    let mut start = 0;
    while start < chunks.len() {
        let block = number(&chunks[start]);
        let length = chunks[start..]
            .iter()
            .take_while(|chunk| number(chunk) == block)
            .count();
        blocks.push(Block {
            chunks: start..start + length,
            maximum: T::LOWEST,
        });
        start += length;
    }
    let first_key = |block: usize| chunks[blocks[block].chunks.start].start;
    let visits = order.of_row(scored.row.place);
    let visits = visits.visits(blocks.len(), first_key);
    visits.arrange(&mut blocks);
    let mut running = T::LOWEST;
    let mut entries = [T::ZERO; CHUNK];
    for block in &mut blocks {
        let floor = scored.bounds[block.chunks.clone()]
            .iter()
            .fold(running.to_f64(), |floor, bounds| floor.max(bounds.0));
        for index in block.chunks.clone() {
            let high = scored.bounds[index].1;
            // The largest entry is at least `floor`, so a chunk below it cannot hold it.
            if high > running.to_f64() && high >= floor {
                let entries = &mut entries[..chunks[index].len()];
                scored.table.entries(scored.row, &chunks[index], entries);
                running = largest(entries, running);
            }
        }
        block.maximum = running;
    }
    blocks
}
