//! Pairs of a tile for the percentiles of [`crate::evidence::advantage`].

use std::ops::Range;

use kernels::ScoreTile;

use super::{Lanes, own};
use crate::evidence::advantage::Advantage;
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
            let mut take = Take {
                advantage: &mut counts.advantage,
                key: first + i * step,
                first_query: tile.first_query,
                scores,
                best,
            };
            if all_good {
                take.lanes(in_tile.clone());
                continue;
            }
            for lane in in_tile.clone().filter(|&lane| lanes.good[lane]) {
                take.lanes(lane..lane + 1);
            }
        }
        from = queries.end;
    }
}

/// One sampled key of a tile.
struct Take<'a, const W: usize> {
    advantage: &'a mut Advantage,
    key: usize,
    first_query: usize,
    scores: &'a [f32; W],
    best: &'a own::Best<W>,
}

impl<const W: usize> Take<'_, W> {
    #[inline(always)]
    fn lanes(&mut self, lanes: Range<usize>) {
        let over = [
            &self.best.diagonal[lanes.clone()],
            &self.best.recent[lanes.clone()],
        ];
        let query = self.first_query + lanes.start;
        self.advantage
            .sample_key(self.key, query, &self.scores[lanes], over);
    }
}
