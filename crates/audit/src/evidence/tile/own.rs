//! What the forward pass itself does, from tiles; see [`crate::evidence::own`] for the same from rows.

use kernels::ScoreTile;
use kernels::exp::exp_in_place;

use super::{Lanes, PAD, TileScratch, array, flush_mass, group};
use crate::evidence::advantage::RECENT;
use crate::evidence::collector::Job;
use crate::evidence::head::{Group, HeadCounts};
use crate::evidence::lanes::LaneTable;
use crate::evidence::own::{BF16_ULP_NATS, F32_ULP_NATS, INVISIBLE_NATS};
use crate::evidence::plan::UNSUMMED_NATS;
use crate::evidence::scan::{GAP_MAX, Real};

#[inline(always)]
pub(super) fn take<const W: usize>(
    counts: &mut HeadCounts,
    job: &Job,
    group: &Group,
    tile: &ScoreTile<'_>,
    lanes: &Lanes<W>,
    buffers: &mut TileScratch,
) {
    let table = group.lanes.as_ref().expect("the caller has looked");
    masses(counts, job, table, tile, lanes, buffers);
    visible(counts, table, tile, lanes, buffers);
}

/// Masses, entropy, key 0, and shares below an ulp.
#[inline(always)]
fn masses<const W: usize>(
    counts: &mut HeadCounts,
    job: &Job,
    table: &LaneTable,
    tile: &ScoreTile<'_>,
    lanes: &Lanes<W>,
    buffers: &mut TileScratch,
) {
    let own = &mut counts.own;
    // Nobody's lanes have infinite gaps, and count as hidden.
    let (mut share, mut bf16, mut f32) = ([0.0_f32; W], [0.0_f32; W], [0.0_f32; W]);
    for lane in lanes.alive() {
        let ln_sum = lanes.sum[lane].ln();
        share[lane] = (1.0 / lanes.sum[lane]) as f32;
        bf16[lane] = <f32 as Real>::floor(BF16_ULP_NATS - ln_sum);
        f32[lane] = <f32 as Real>::floor(F32_ULP_NATS - ln_sum);
        own.entropy_sum += ln_sum;
        let query = tile.first_query + lane;
        if query > 0 {
            own.key0_rows += 1;
            own.key0_uniform_sum += 1.0 / f64::from(lanes.last_key[lane] + 1);
        }
    }
    let skipped = lanes.pairs(&(0..tile.proven_zero_before));
    own.below_bf16 += skipped;
    own.below_f32 += skipped;
    let mut gap_sum = [0.0_f64; W];
    let (mut below_bf16, mut below_f32) = (0, 0);
    let mut hidden = 0;
    let mut oldest = tile.keys_end();
    for block in &buffers.blocks {
        let keys = &block.keys;
        if f64::from(block.near) > UNSUMMED_NATS {
            let pairs = lanes.pairs(keys);
            own.below_bf16 += pairs;
            own.below_f32 += pairs;
            continue;
        }
        oldest = oldest.min(keys.start);
        let gaps = &mut buffers.narrow[..keys.len() * W];
        let terms = &mut buffers.terms[..keys.len() * W];
        let raw = tile.raw(keys.clone());
        table.gaps::<f32, W>(raw, tile.first_query, keys, &lanes.max, gaps);
        if block.hidden {
            lanes.hide(keys, f32::INFINITY, gaps);
        }
        for (term, gap) in terms.iter_mut().zip(gaps.iter()) {
            *term = -gap;
        }
        exp_in_place(terms);
        let nearest = PAD + tile.first_query + 1 - keys.end;
        let mass = &mut buffers.mass[nearest..nearest + keys.len() - 1 + W];
        let sums = if W.is_multiple_of(16) {
            add_block::<W, 16>(gaps, terms, mass, [&share, &bf16, &f32])
        } else {
            add_block::<W, 8>(gaps, terms, mass, [&share, &bf16, &f32])
        };
        for (sum, more) in gap_sum.iter_mut().zip(sums.gap) {
            *sum += f64::from(more);
        }
        below_bf16 += sums.bf16;
        below_f32 += sums.f32;
        if block.hidden {
            // Hidden pairs have counted above: their gaps are infinite.
            hidden += (keys.len() * W) as u64 - lanes.pairs(keys);
        }
        if keys.start == 0 {
            for lane in lanes.alive().filter(|lane| tile.first_query + lane > 0) {
                own.key0_sum += f64::from(terms[lane] * share[lane]);
            }
        }
    }
    for lane in lanes.alive() {
        own.entropy_sum += gap_sum[lane] / lanes.sum[lane];
    }
    own.below_bf16 += below_bf16 - hidden;
    own.below_f32 += below_f32 - hidden;
    let differences = (tile.first_query + W).saturating_sub(oldest);
    let length = job.offsets.length();
    flush_mass(
        &mut own.mass,
        &mut buffers.mass,
        length,
        differences.min(length),
    );
}

/// What a block adds: to the sum of weight times gap of each lane, and pairs below an ulp.
struct BlockSums<const W: usize> {
    gap: [f32; W],
    bf16: u64,
    f32: u64,
}

/// Adds the weights `terms` times the lanes' shares to the mass by difference, and sums up. `G` lanes at a time over all keys, so
/// that their sums stay in registers.
#[inline(always)]
fn add_block<const W: usize, const G: usize>(
    gaps: &[f32],
    terms: &[f32],
    mass: &mut [f32],
    [share, bf16, f32]: [&[f32; W]; 3],
) -> BlockSums<W> {
    let mut sums = BlockSums {
        gap: [0.0; W],
        bf16: 0,
        f32: 0,
    };
    let keys = gaps.len() / W;
    for from in (0..W).step_by(G) {
        let part = |lanes: &[f32; W]| -> [f32; G] { *group(&lanes[from..]) };
        let (share, bf16, f32) = (part(share), part(bf16), part(f32));
        let mut sum = [0.0_f32; G];
        let (mut below_bf16, mut below_f32) = ([0_u32; G], [0_u32; G]);
        for key in 0..keys {
            let gap: &[f32; G] = group(&gaps[key * W + from..]);
            let term: &[f32; G] = group(&terms[key * W + from..]);
            let mass: &mut [f32; G] = mass[keys - 1 - key + from..]
                .first_chunk_mut()
                .expect("one value a lane");
            for lane in 0..G {
                mass[lane] += term[lane] * share[lane];
                below_bf16[lane] += u32::from(gap[lane] > bf16[lane]);
                below_f32[lane] += u32::from(gap[lane] > f32[lane]);
                let gap = if gap[lane] < GAP_MAX {
                    gap[lane]
                } else {
                    GAP_MAX
                };
                sum[lane] += term[lane] * gap;
            }
        }
        sums.gap[from..from + G].copy_from_slice(&sum);
        sums.bf16 += below_bf16.iter().map(|&n| u64::from(n)).sum::<u64>();
        sums.f32 += below_f32.iter().map(|&n| u64::from(n)).sum::<u64>();
    }
    sums
}

/// Largest raw scores of the pairs whose weight is not exactly zero.
#[inline(always)]
fn visible<const W: usize>(
    counts: &mut HeadCounts,
    table: &LaneTable,
    tile: &ScoreTile<'_>,
    lanes: &Lanes<W>,
    buffers: &mut TileScratch,
) {
    let near_from =
        tile.first_query.saturating_sub(RECENT - 1) / ScoreTile::BLOCK * ScoreTile::BLOCK;
    let lowest = f32::NEG_INFINITY;
    let (mut far, mut recent) = ([lowest; W], [lowest; W]);
    let mut size = [0.0_f32; W];
    for block in &buffers.blocks {
        let keys = &block.keys;
        if block.near > INVISIBLE_NATS {
            continue;
        }
        if !block.hidden && keys.start < near_from && block.far <= INVISIBLE_NATS {
            let ends = tile.ends(keys.start);
            let (low, high): (&[f32; W], &[f32; W]) = (array(ends.raw_low), array(ends.raw_high));
            for lane in 0..W {
                far[lane] = far[lane].max(high[lane]);
                size[lane] = size[lane].max(high[lane]).max(-low[lane]);
            }
            continue;
        }
        let gaps = &mut buffers.narrow[..keys.len() * W];
        let raw = tile.raw(keys.clone());
        table.gaps::<f32, W>(raw, tile.first_query, keys, &lanes.max, gaps);
        if block.hidden {
            lanes.hide(keys, f32::INFINITY, gaps);
        }
        let rows = gaps.as_chunks::<W>().0.iter().zip(raw.as_chunks::<W>().0);
        for (key, (gap, raw)) in keys.clone().zip(rows) {
            let nearest = tile.first_query as i32 - key as i32;
            for lane in 0..W {
                let distance = nearest + lane as i32;
                let seen = gap[lane] <= INVISIBLE_NATS;
                let score = if seen { raw[lane] } else { lowest };
                let part = |within: bool| if within { score } else { lowest };
                far[lane] = far[lane].max(part(distance >= RECENT as i32));
                recent[lane] = recent[lane].max(part(distance > 0 && distance < RECENT as i32));
                size[lane] = size[lane].max(if seen { raw[lane].abs() } else { 0.0 });
            }
        }
    }
    for lane in lanes.alive() {
        counts.own.max_score = counts.own.max_score.max(size[lane]);
        let query = tile.first_query + lane;
        if query < tile.n_keys {
            let own = tile.raw(query..query + 1)[lane];
            counts.advantage.best(own, recent[lane], far[lane]);
        }
    }
}

/// Best visible raw score among the recent keys of one row, the query's own included.
pub(super) fn recent_best<const W: usize>(
    group: &Group,
    tile: &ScoreTile<'_>,
    lanes: &Lanes<W>,
    lane: usize,
    row: &[f32],
) -> f32 {
    let table = group.lanes.as_ref().expect("the caller has looked");
    let query = tile.first_query + lane;
    let mut best = row[query];
    for key in query
        .saturating_sub(RECENT - 1)
        .max(tile.proven_zero_before)..query
    {
        let mut gap = [0.0_f32; W];
        let keys = key..key + 1;
        table.gaps::<f32, W>(
            tile.raw(keys.clone()),
            tile.first_query,
            &keys,
            &lanes.max,
            &mut gap,
        );
        if gap[lane] <= INVISIBLE_NATS {
            best = best.max(row[key]);
        }
    }
    best
}
