//! Pairs of a tile for the percentiles of [`crate::evidence::advantage`].

use kernels::ScoreTile;

use super::{Lanes, own};
use crate::evidence::head::HeadCounts;

/// Sampled pairs go to the percentiles.
#[inline(always)]
pub(super) fn take<const W: usize>(
    counts: &mut HeadCounts,
    tile: &ScoreTile<'_>,
    lanes: &Lanes<W>,
    best: &own::Best<W>,
    scores: &mut Vec<f32>,
) {
    let end = tile.keys_end();
    let all_good = lanes.n_good == W as u64;
    let mut from = tile.first_query;
    while from < end {
        let (run_end, first, step) = counts.advantage.sampled_keys(from);
        let queries = from..run_end.min(end);
        let n = queries.end.saturating_sub(first).div_ceil(step);
        let in_tile = queries.start - tile.first_query..queries.end - tile.first_query;
        // Those that the forward pass has left out.
        let n_left = tile
            .proven_zero_before
            .saturating_sub(first)
            .div_ceil(step)
            .min(n);
        if scores.len() < n_left * W {
            scores.resize(n_left * W, 0.0);
        }
        let left = &mut scores[..n_left * W];
        tile.raw_of_keys(in_tile.clone(), first, step, n_left, left);
        for i in 0..n {
            let key = first + i * step;
            let scores = if i < n_left {
                &left[i * W..(i + 1) * W]
            } else {
                tile.raw(key..key + 1)
            };
            // Lanes that take no part are left out one by one.
            let together = if all_good { in_tile.len() } else { 1 };
            for lane in in_tile.clone().step_by(together) {
                let some = lane..lane + together;
                if lanes.good[lane] {
                    counts.advantage.sample_key(
                        key,
                        tile.first_query + lane,
                        &scores[some.clone()],
                        [&best.diagonal[some.clone()], &best.recent[some]],
                    );
                }
            }
        }
        from = queries.end;
    }
}
