//! The blocks of a streaming kernel: which there are, and in which order they are visited.

use std::ops::Range;

use kernels::ScoreTile;
use numerics::plan::{BlockVisits, RowOrder};

use crate::evidence::scan::Real;
use crate::evidence::tile::{Block, TileScratch, array};

/// One visit of a streaming kernel.
pub(super) struct Visit<const W: usize> {
    /// Indices of the tile's blocks.
    pub(super) blocks: Range<usize>,
    /// The same, and those of all visits before.
    until: [Range<usize>; 2],
    /// Running maximum of each lane.
    pub(super) maximum: [f32; W],
}

impl<const W: usize> Visit<W> {
    /// The blocks of this visit and of all before.
    pub(super) fn seen(&self) -> impl Iterator<Item = usize> + use<W> {
        self.until.clone().into_iter().flatten()
    }
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

/// The tile's blocks in the order of the visit, with the running maxima; and which visit is that of which ascending block.
#[inline(always)]
pub(super) fn visits<const W: usize>(
    buffers: &TileScratch,
    key_block: usize,
    order: RowOrder,
) -> (Vec<Visit<W>>, BlockVisits) {
    let mut visits: Vec<Visit<W>> = Vec::new();
    let number = |index: usize| buffers.blocks[index].keys.start / key_block;
    for index in 0..buffers.blocks.len() {
        match visits.last_mut() {
            Some(visit) if number(visit.blocks.start) == number(index) => {
                visit.blocks.end = index + 1;
            }
            _ => visits.push(Visit {
                blocks: index..index + 1,
                until: [0..0, 0..0],
                maximum: [f32::LOWEST; W],
            }),
        }
    }
    let first_key = |visit: usize| buffers.blocks[visits[visit].blocks.start].keys.start;
    let placed = order.visits(visits.len(), first_key);
    placed.arrange(&mut visits);
    let mut running = [f32::LOWEST; W];
    let n = buffers.blocks.len();
    let first = visits.first().map_or(0, |visit| visit.blocks.start);
    for visit in &mut visits {
        let blocks = visit.blocks.clone();
        visit.until = match order {
            RowOrder::NewestFirst => [blocks.start..n, 0..0],
            RowOrder::From(_) if blocks.start >= first => [first..blocks.end, 0..0],
            RowOrder::From(_) => [first..n, 0..blocks.end],
        };
        for index in visit.blocks.clone() {
            raise(
                &mut running,
                array(&buffers.highs[index * W..(index + 1) * W]),
            );
        }
        visit.maximum = running;
    }
    (visits, placed)
}
