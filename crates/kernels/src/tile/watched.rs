//! Scores of one block for an observer of whole tiles: the raw ones are kept, and each query's extremes.
#![allow(
    unsafe_code,
    reason = "raw loads in the inner loops; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use super::scores::{AddBias, DifferenceBias, KeyBias, NoBias, dots, with_bias};
use super::{Block, KeptBlock, TileBias};
use crate::lanes::Lanes;

/// [`super::scores::plain_scores`] for an observer: keeps the raw scores, and each query's extremes over the block.
///
/// # Safety
/// As for [`super::scores::plain_scores`]; `kept` has room for the block and its extremes; the scores go where its weights will be.
#[inline(always)]
pub(super) unsafe fn watched_scores<S: Lanes, const R: usize, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    qt: *const f32,
    kept: KeptBlock,
    mx: &mut [S::V; NV],
) {
    // SAFETY: by the caller's promise.
    unsafe {
        with_bias!(block, bias => watched_biased::<S, _, R, NV>(s, block, qt, bias, kept, mx))
    }
}

/// # Safety
/// As for [`watched_scores`].
#[inline(always)]
unsafe fn watched_biased<S: Lanes, B: AddBias, const R: usize, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    qt: *const f32,
    bias: B,
    kept: KeptBlock,
    mx: &mut [S::V; NV],
) {
    let (least, most) = (s.splat(f32::INFINITY), s.splat(f32::NEG_INFINITY));
    let mut ends = Extremes {
        raw: [[least; NV], [most; NV]],
        score: [[least; NV], [most; NV]],
    };
    let mut j = 0;
    // SAFETY: `j + R <= nk` in the first loop, `j < nk` in the second; `kept` holds the block and four tiles.
    unsafe {
        while j + R <= block.nk {
            watched_rows::<S, B, R, NV>(s, block, j, qt, bias, kept, &mut ends);
            j += R;
        }
        while j < block.nk {
            watched_rows::<S, B, 1, NV>(s, block, j, qt, bias, kept, &mut ends);
            j += 1;
        }
        for v in 0..NV {
            mx[v] = s.max(mx[v], ends.score[1][v]);
            for (i, x) in [
                ends.raw[0][v],
                ends.raw[1][v],
                ends.score[0][v],
                ends.score[1][v],
            ]
            .into_iter()
            .enumerate()
            {
                s.store(kept.ends.add((i * NV + v) * S::WIDTH), x);
            }
        }
    }
}

/// Smallest and largest raw scores and scores so far, per query.
struct Extremes<S: Lanes, const NV: usize> {
    raw: [[S::V; NV]; 2],
    score: [[S::V; NV]; 2],
}

/// # Safety
/// As for [`super::scores::score_rows`] and [`watched_scores`].
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the state of one block")]
unsafe fn watched_rows<S: Lanes, B: AddBias, const R: usize, const NV: usize>(
    s: S,
    block: &Block<'_, '_>,
    j: usize,
    qt: *const f32,
    bias: B,
    kept: KeptBlock,
    ends: &mut Extremes<S, NV>,
) {
    let w = S::WIDTH;
    // SAFETY: by the caller's promise.
    unsafe {
        let mut acc = dots::<S, R, NV, 0, true>(
            s,
            block,
            j,
            qt,
            [kept.raw, kept.weights].map(|to| to.add(j * NV * w).cast_const()),
        );
        let mut raw = [ends.raw[0], ends.raw[1]];
        for r in 0..R {
            for v in 0..NV {
                s.store(kept.raw.add(((j + r) * NV + v) * w), acc[r][v]);
                raw[0][v] = s.min(raw[0][v], acc[r][v]);
                raw[1][v] = s.max(raw[1][v], acc[r][v]);
            }
        }
        ends.raw = raw;
        for r in 0..R {
            for v in 0..NV {
                acc[r][v] = bias.add(s, acc[r][v], j + r, v);
            }
        }
        let mut score = [ends.score[0], ends.score[1]];
        for r in 0..R {
            for v in 0..NV {
                score[0][v] = s.min(score[0][v], acc[r][v]);
                score[1][v] = s.max(score[1][v], acc[r][v]);
            }
        }
        ends.score = score;
        for r in 0..R {
            for v in 0..NV {
                s.store(kept.weights.add(((j + r) * NV + v) * w), acc[r][v]);
            }
        }
    }
}
