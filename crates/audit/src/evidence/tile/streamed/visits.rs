//! The blocks of a streaming kernel: which there are, and in which order they are visited.

use std::ops::Range;

use kernels::ScoreTile;
use numerics::plan::BlockOrder;

use crate::evidence::scan::Real;
use crate::evidence::tile::{Block, TileScratch, array};

/// One visit of a streaming kernel.
pub(super) struct Visit<const W: usize> {
    /// Indices of the tile's blocks.
    pub(super) blocks: Range<usize>,
    /// The same, and those of all visits before.
    pub(super) until: Range<usize>,
    /// Running maximum of each lane.
    pub(super) maximum: [f32; W],
}

/// Cuts the tile's blocks into parts where a plan's are narrower; the whole ones, which are to be put back.
pub(in crate::evidence::tile) fn cut_blocks(
    key_block: usize,
    buffers: &mut TileScratch,
) -> Option<Vec<Block>> {
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

/// Which of `n` ascending ones comes at place `i` of the order; and the place of ascending number `i`.
pub(super) fn in_order(order: BlockOrder, n: usize, i: usize) -> usize {
    match order {
        BlockOrder::NewestFirst => n - 1 - i,
        BlockOrder::OldestFirst => i,
    }
}

/// Raises each lane's maximum to a larger score.
#[inline(always)]
pub(super) fn raise<const W: usize>(max: &mut [f32; W], scores: &[f32; W]) {
    for lane in 0..W {
        max[lane] = if scores[lane] > max[lane] {
            scores[lane]
        } else {
            max[lane]
        };
    }
}

/// The tile's blocks in the order of the visit, with the running maxima.
#[inline(always)]
pub(super) fn visits<const W: usize>(
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
                until: 0..0,
                maximum: [f32::LOWEST; W],
            }),
        }
    }
    if order == BlockOrder::NewestFirst {
        visits.reverse();
    }
    let mut running = [f32::LOWEST; W];
    let n = buffers.blocks.len();
    for visit in &mut visits {
        visit.until = match order {
            BlockOrder::NewestFirst => visit.blocks.start..n,
            BlockOrder::OldestFirst => 0..visit.blocks.end,
        };
        for index in visit.blocks.clone() {
            raise(
                &mut running,
                array(&buffers.highs[index * W..(index + 1) * W]),
            );
        }
        visit.maximum = running;
    }
    visits
}
