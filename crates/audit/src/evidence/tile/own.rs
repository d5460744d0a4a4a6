//! What the forward pass itself does, from tiles; see [`crate::evidence::own`] for the same from rows.

use kernels::ScoreTile;

use super::plans::ROOM_NATS;
use super::{Lanes, TileScratch, array, differences, flush_mass};
use crate::evidence::advantage::RECENT;
use crate::evidence::collector::Job;
use crate::evidence::head::HeadCounts;
use crate::evidence::own::{HALF_BF16_ULP, HALF_F32_ULP, INVISIBLE_NATS};
use crate::evidence::rules::UNSUMMED_NATS;

#[inline(always)]
pub(super) fn take<const W: usize>(
    counts: &mut HeadCounts,
    job: &Job,
    tile: &ScoreTile<'_>,
    lanes: &mut Lanes<W>,
    buffers: &mut TileScratch,
) -> Best<W> {
    masses(counts, job, tile, lanes, buffers);
    visible(counts, tile, lanes, buffers)
}

/// Raw scores that others are compared with; anything for lanes that do not take part.
pub(super) struct Best<const W: usize> {
    /// The query's own.
    pub(super) diagonal: [f32; W],
    /// Best visible one of the recent keys, the query's own included.
    pub(super) recent: [f32; W],
}

/// Masses, entropy, key 0, and shares below an ulp.
#[inline(always)]
fn masses<const W: usize>(
    counts: &mut HeadCounts,
    job: &Job,
    tile: &ScoreTile<'_>,
    lanes: &Lanes<W>,
    buffers: &mut TileScratch,
) {
    let own = &mut counts.own;
    let mut share = [0.0_f32; W];
    let ln_sums = lanes.ln_sum_ends;
    for lane in lanes.alive() {
        let (sum, query) = (lanes.sum[lane], tile.first_query + lane);
        own.entropy_sum += lanes.ln_sum[lane] + f64::from(tile.row_gap[lane]) / sum;
        if query > 0 {
            own.key0_rows += 1;
            own.key0_uniform_sum += 1.0 / f64::from(lanes.last_key[lane] + 1);
        }
    }
    // Over all lanes, so that it vectorises.
    for lane in 0..W {
        let reciprocal = (1.0 / lanes.sum[lane]) as f32;
        share[lane] = if lanes.good[lane] { reciprocal } else { 0.0 };
    }
    let mut oldest = tile.keys_end();
    let mut reaching = [0; 2];
    for block in &buffers.blocks {
        let keys = &block.keys;
        if f64::from(block.near) > UNSUMMED_NATS {
            continue;
        }
        oldest = oldest.min(keys.start);
        let mass = &mut buffers.mass[differences::<W>(tile, keys)];
        // Mostly the ends of a block say on which side of a limit all its weights are.
        let ends = (
            f64::from(block.near) + ln_sums[0] - ROOM_NATS,
            f64::from(block.far) + ln_sums[1] + ROOM_NATS,
        );
        let mut looked = [None; 2];
        for (i, (limit, nats)) in [HALF_BF16_ULP, HALF_F32_ULP].into_iter().enumerate() {
            if ends.1 < nats {
                reaching[i] += lanes.pairs(keys);
            } else if ends.0 <= nats {
                looked[i] = Some(limit);
            }
        }
        let found = tile.weigh(keys.clone(), &lanes.max, &share, looked, mass);
        for (reaching, more) in reaching.iter_mut().zip(found.reaching) {
            *reaching += more;
        }
        if keys.start == 0 {
            for lane in lanes.alive().filter(|lane| tile.first_query + lane > 0) {
                own.key0_sum += f64::from(found.first[lane]);
            }
        }
    }
    let pairs = lanes.pairs(&(0..tile.keys_end()));
    own.below_bf16 += pairs - reaching[0];
    own.below_f32 += pairs - reaching[1];
    let n_sums = (tile.first_query + W).saturating_sub(oldest);
    let length = job.offsets.length();
    flush_mass(&mut own.mass, &mut buffers.mass, length, n_sums.min(length));
}

/// Largest raw scores of the pairs whose weight is not exactly zero.
#[inline(always)]
fn visible<const W: usize>(
    counts: &mut HeadCounts,
    tile: &ScoreTile<'_>,
    lanes: &mut Lanes<W>,
    buffers: &TileScratch,
) -> Best<W> {
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
        let all = block.far <= INVISIBLE_NATS;
        let found = tile.visible(keys.clone(), &lanes.max, INVISIBLE_NATS, RECENT, all);
        for lane in 0..W {
            far[lane] = far[lane].max(found.far[lane]);
            recent[lane] = recent[lane].max(found.near[lane]);
            size[lane] = size[lane].max(found.size[lane]);
        }
    }
    lanes.seen_max = size;
    let mut best = Best {
        diagonal: [0.0; W],
        recent: [0.0; W],
    };
    for lane in lanes.alive() {
        counts.own.max_score = counts.own.max_score.max(size[lane]);
        let query = tile.first_query + lane;
        if query < tile.n_keys {
            let own = tile.raw(query..query + 1)[lane];
            counts.advantage.best(own, recent[lane], far[lane]);
            (best.diagonal[lane], best.recent[lane]) = (own, recent[lane].max(own));
        }
    }
    best
}
