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
    // Mostly the tile is one run.
    while from < end {
        let (run_end, first, step) = counts.advantage.sampled_keys(from);
        let queries = from..run_end.min(end);
        let n = queries.end.saturating_sub(first).div_ceil(step);
        if scores.len() < n * W {
            scores.resize(n * W, 0.0);
        }
        tile.raw_of_keys(first, step, n, &mut scores[..n * W]);
        let in_tile = queries.start - tile.first_query..queries.end - tile.first_query;
        for (i, scores) in scores[..n * W].as_chunks::<W>().0.iter().enumerate() {
            let key = first + i * step;
            let over = [&best.diagonal, &best.recent];
            let advantage = &mut counts.advantage;
            if all_good {
                advantage.sample_key(key, tile.first_query, scores, over, &in_tile);
                continue;
            }
            for lane in in_tile.clone().filter(|&lane| lanes.good[lane]) {
                advantage.sample_key(key, tile.first_query, scores, over, &(lane..lane + 1));
            }
        }
        from = queries.end;
    }
}
