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
        if scores.len() < n * W {
            scores.resize(n * W, 0.0);
        }
        let in_tile = queries.start - tile.first_query..queries.end - tile.first_query;
        tile.raw_of_keys(in_tile.clone(), first, step, n, &mut scores[..n * W]);
        for (i, scores) in scores[..n * W].as_chunks::<W>().0.iter().enumerate() {
            // Lanes that take no part are left out one by one.
            let together = if all_good { in_tile.len() } else { 1 };
            for lane in in_tile.clone().step_by(together) {
                let some = lane..lane + together;
                if lanes.good[lane] {
                    counts.advantage.sample_key(
                        first + i * step,
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
