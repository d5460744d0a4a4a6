//! Evidence from whole tiles, queries side by side, as the kernel holds them: the fast way, with the counts of the slow one.
//!
//! Per block of keys the kernel knows every query's smallest and largest score. A block whose every gap is on one side of a
//! threshold is decided at once for the whole tile, under every plan: gaps under a plan differ from those of the forward pass by
//! no more than its roundings ([`Slack`]). Only blocks that straddle a threshold are looked at pair by pair, with the plan's own
//! entries and each row's own thresholds, so the counts are those of a loop over all pairs. Only blocks within
//! [`UNSUMMED_NATS`] of a maximum add to the masses.
//!
//! [`Slack`]: crate::evidence::slack::Slack
//! [`UNSUMMED_NATS`]: crate::evidence::rules::UNSUMMED_NATS
#![allow(
    clippy::needless_range_loop,
    reason = "one index over several arrays of lanes; iterators over all of them hide which lane is meant, and can push them into memory"
)]

mod criteria;
mod doubt;
mod entries;
mod own;
mod plans;
mod queries;
mod sample;
mod streamed;

use std::ops::Range;

use kernels::{BlockRange, ScoreTile};

use crate::evidence::call::Call;
use crate::evidence::collector::Job;
use crate::evidence::distance::TILE_PAD;
use crate::evidence::head::{HeadCounts, Scratch};
use crate::evidence::lanes::Entry;
use crate::evidence::row::{Row, assemble};
use crate::evidence::scan::CHUNK;

use queries::Lanes;

/// Entries before difference 0 in arrays by difference: hidden pairs of a tile lie there.
const PAD: usize = TILE_PAD;

/// Buffers of one tile.
#[derive(Debug, Default)]
pub(crate) struct TileScratch {
    blocks: Vec<Block>,
    ranges: Vec<BlockRange>,
    /// Indices of blocks whose gaps lie on both sides of a threshold, and bounds on those, nats.
    straddling: Vec<(usize, (f64, f64))>,
    /// `[CHUNK, lanes]`
    narrow: Vec<f32>,
    wide: Vec<f64>,
    terms: Vec<f32>,
    /// Largest score of each lane over each block on the diagonal.
    diagonal: Vec<Vec<f32>>,
    /// Weights of the live blocks of a group, `[keys, lanes]`.
    weights: Vec<f32>,
    /// Mass at `PAD + difference`; zero between uses.
    mass: Vec<f32>,
    /// Scores at sampled keys, or every row for what goes row by row.
    rows: Vec<f32>,
    /// Largest entry of each lane in each block, of one group.
    highs: Vec<f32>,
}

/// One block of keys.
#[derive(Clone, Debug)]
struct Block {
    keys: Range<usize>,
    /// Some lane does not see some key.
    hidden: bool,
    /// Some key is on the tile's diagonal.
    diagonal: bool,
    /// Smallest and largest gap of any pair, nats: those of the forward pass.
    near: f32,
    far: f32,
}

/// The buffer of whichever carrier a table needs.
trait Carrier: Entry {
    fn entries(buffers: &mut TileScratch) -> &mut Vec<Self>;
    /// Raises each lane's maximum to the largest of `entries`, `[keys, W]`.
    fn raise<const W: usize>(entries: &[Self], max: &mut [Self; W]);
    /// Values of f32, if these are.
    fn narrow(values: &mut [Self]) -> Option<&mut [f32]>;
}

impl Carrier for f32 {
    fn entries(buffers: &mut TileScratch) -> &mut Vec<Self> {
        &mut buffers.narrow
    }

    fn raise<const W: usize>(entries: &[Self], max: &mut [Self; W]) {
        kernels::raise(W, entries, max);
    }

    fn narrow(values: &mut [f32]) -> Option<&mut [f32]> {
        Some(values)
    }
}

impl Carrier for f64 {
    fn entries(buffers: &mut TileScratch) -> &mut Vec<Self> {
        &mut buffers.wide
    }

    fn narrow(_values: &mut [f64]) -> Option<&mut [f32]> {
        None
    }

    #[inline(always)]
    fn raise<const W: usize>(entries: &[Self], max: &mut [Self; W]) {
        for entry in entries.as_chunks::<W>().0 {
            for lane in 0..W {
                max[lane] = if entry[lane] > max[lane] {
                    entry[lane]
                } else {
                    max[lane]
                };
            }
        }
    }
}

/// Takes one tile of `W` lanes.
#[inline(always)]
pub(crate) fn take_tile<const W: usize>(
    counts: &mut HeadCounts,
    job: &Job,
    call: &Call,
    tile: &ScoreTile<'_>,
    scratch: &mut Scratch,
) {
    let mut lanes = Lanes::<W>::new(tile);
    counts.rows += lanes.n_good;
    counts.non_finite_rows += tile.n_rows as u64 - lanes.n_good;
    if lanes.n_good == 0 {
        return;
    }
    let keys = 0..tile.keys_end();
    lanes.add_runs(job.offsets, tile.first_query, &keys, &mut counts.pairs);
    let buffers = &mut scratch.tile;
    buffers.narrow.resize(CHUNK * W, 0.0);
    buffers.wide.resize(CHUNK * W, 0.0);
    buffers.terms.resize(CHUNK * W, 0.0);
    let differences = PAD + tile.keys_end() + W;
    if buffers.mass.len() < differences {
        buffers.mass.resize(differences, 0.0);
    }
    let own = &call.groups[0];
    if own.lanes.is_none() {
        return all_plans(counts, job, call, tile, scratch, &lanes);
    }
    let (raw_max, far) = find_blocks(tile, &lanes, buffers);
    let best = own::take(counts, job, tile, &mut lanes, buffers);
    let seen = lanes.alive().map(|lane| lanes.seen_max[lane]);
    let seen_max = seen.fold(0.0, f32::max);
    sample::take(counts, tile, &lanes, &best, &mut buffers.rows);
    for (index, group) in call.groups.iter().enumerate() {
        // Plans that have to go row by row.
        let mut left = Vec::new();
        if let Some(table) = &group.lanes {
            let mut taker = plans::Taker {
                counts,
                job,
                group,
                table,
                tile,
                slack: group.slack.nats(raw_max, group.most),
                raw_max,
                far,
                seen_max,
                is_own: index == 0,
            };
            // Sums of its own are nothing to the next group.
            let mut own_lanes;
            let lanes = if group.shares_sum {
                &mut lanes
            } else {
                own_lanes = lanes.clone();
                &mut own_lanes
            };
            if table.is_wide() {
                taker.take::<f64, W>(lanes, &mut scratch.tile, &mut left);
            } else {
                taker.take::<f32, W>(lanes, &mut scratch.tile, &mut left);
            }
        } else {
            left.clone_from(&group.plans);
        }
        if !left.is_empty() {
            each_row(call, job, tile, scratch, &lanes, |row, lane, scratch| {
                scratch.seen_max = lanes.seen_max[lane];
                counts.take_one(job, group, &left, row, lanes.sum[lane], scratch, false);
            });
        }
    }
}

/// The blocks of a tile, oldest first, with their gaps; the largest absolute raw score, and the largest gap.
#[inline(always)]
fn find_blocks<const W: usize>(
    tile: &ScoreTile<'_>,
    lanes: &Lanes<W>,
    buffers: &mut TileScratch,
) -> (f32, f64) {
    buffers.blocks.clear();
    buffers.diagonal.clear();
    buffers.ranges.clear();
    let all_good = lanes.n_good == W as u64;
    let from = tile.proven_zero_before;
    let diagonal = tile.diagonal_from().max(from);
    let (max, last) = (&lanes.max, &lanes.last_key);
    tile.ranges(from..diagonal, max, last, &mut buffers.ranges);
    for start in (diagonal..tile.keys_end()).step_by(CHUNK) {
        let keys = start..(start + CHUNK).min(tile.keys_end());
        let (range, high) = tile.range_of_pairs(keys, max, last);
        buffers.ranges.push(range);
        buffers.diagonal.push(high[..W].to_vec());
    }
    let (mut raw_max, mut far) = (0.0_f32, 0.0_f32);
    for (start, range) in (from..).step_by(CHUNK).zip(&buffers.ranges) {
        let is_diagonal = start >= diagonal;
        (raw_max, far) = (raw_max.max(range.raw), far.max(range.far));
        buffers.blocks.push(Block {
            keys: start..(start + CHUNK).min(tile.keys_end()),
            hidden: is_diagonal || !all_good,
            diagonal: is_diagonal,
            near: range.near,
            far: range.far,
        });
    }
    (raw_max, f64::from(far))
}

/// Where the sums by difference of some keys are among those of a tile, and one more that gets nothing.
#[inline(always)]
fn differences<const W: usize>(tile: &ScoreTile<'_>, keys: &Range<usize>) -> Range<usize> {
    let nearest = PAD + tile.first_query + 1 - keys.end;
    nearest..nearest + keys.len() + W
}

fn array<const W: usize>(values: &[f32]) -> &[f32; W] {
    values.try_into().expect("one value a lane")
}

fn array_mut<const W: usize>(values: &mut [f32]) -> &mut [f32; W] {
    values.try_into().expect("one value a lane")
}

/// The first `G` values.
#[inline(always)]
fn group<T, const G: usize>(values: &[T]) -> &[T; G] {
    values.first_chunk().expect("a group of lanes")
}

/// Takes everything row by row.
#[inline(never)]
fn all_plans<const W: usize>(
    counts: &mut HeadCounts,
    job: &Job,
    call: &Call,
    tile: &ScoreTile<'_>,
    scratch: &mut Scratch,
    lanes: &Lanes<W>,
) {
    each_row(call, job, tile, scratch, lanes, |row, lane, scratch| {
        for (index, group) in call.groups.iter().enumerate() {
            let (plans, sum, own) = (&group.plans, lanes.sum[lane], index == 0);
            counts.take_one(job, group, plans, row, sum, scratch, own);
        }
    });
}

/// Calls `take` with each row of a tile that takes part, and its lane.
fn each_row<const W: usize>(
    call: &Call,
    job: &Job,
    tile: &ScoreTile<'_>,
    scratch: &mut Scratch,
    lanes: &Lanes<W>,
    mut take: impl FnMut(&Row<'_>, usize, &mut Scratch),
) {
    let (mut raw, mut chunks) = (
        std::mem::take(&mut scratch.tile.rows),
        std::mem::take(&mut scratch.chunks),
    );
    let stride = tile.rows_into(&mut raw);
    for lane in lanes.alive() {
        let query = tile.first_query + lane;
        let seen = &raw[lane * stride..][..(query + 1).min(tile.n_keys)];
        let pairs = call.cut(query, seen, &mut chunks);
        let place = call.place(job, query);
        let row = assemble(job.offsets, place, seen, &chunks, pairs);
        take(&row, lane, scratch);
    }
    (scratch.tile.rows, scratch.chunks) = (raw, chunks);
}

/// Adds the masses of a tile to those of the head, and clears them.
fn flush_mass(by_offset: &mut [f64], mass: &mut [f32], length: usize, differences: usize) {
    let to = by_offset[length - differences..length].iter_mut().rev();
    for (to, mass) in to.zip(&mut mass[PAD..PAD + differences]) {
        *to += f64::from(*mass);
        *mass = 0.0;
    }
    // Hidden pairs have added zeros.
}
