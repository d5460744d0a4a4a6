//! Memory of a tile: its working memory, what is kept of it for an observer, and where its results go.
#![allow(
    unsafe_code,
    reason = "buffers are handed out as pointers; each block states why it is sound"
)]

#[cfg(doc)]
use super::LIFT;
use super::{KEY_BLOCK, TILE_MAX};
use crate::skip::AttentionStats;

/// Where one tile's raw scores go, when somebody watches: row `r` at `ptr + r * stride`, `TILE_MAX` rows, `stride` at
/// least `n_keys` rounded up to a whole block.
#[derive(Clone, Copy)]
pub(crate) struct Strip {
    pub(crate) ptr: *mut f32,
    pub(crate) stride: usize,
}

/// What is kept of one tile as it is computed, for an observer of whole tiles: queries side by side.
#[derive(Clone, Copy)]
pub(crate) struct TileStore {
    /// `[n_keys rounded up to a block, tile]`: raw scores.
    pub(crate) raw: *mut f32,
    /// `[n_keys rounded up to a block, tile]`: [`LIFT`] times the exponentials of the scores, each over its block's reference; 0
    /// for hidden pairs.
    pub(crate) weights: *mut f32,
    /// `[blocks, ENDS, tile]`: of each query over a block the smallest and largest raw score, the smallest and largest score, and
    /// the reference. The first four are not written for blocks on the diagonal.
    pub(crate) ends: *mut f32,
}

/// Values of each query that are kept of a block.
pub(crate) const ENDS: usize = 5;

impl TileStore {
    /// The part of the block that starts at key `j0`.
    ///
    /// # Safety
    /// The store has that block.
    pub(super) unsafe fn block(self, j0: usize, tile: usize) -> KeptBlock {
        // SAFETY: by the caller's promise.
        unsafe {
            KeptBlock {
                raw: self.raw.add(j0 * tile),
                weights: self.weights.add(j0 * tile),
                ends: self.ends.add(j0 / KEY_BLOCK * ENDS * tile),
            }
        }
    }
}

/// [`TileStore`] of one block.
#[derive(Clone, Copy)]
pub(super) struct KeptBlock {
    pub(super) raw: *mut f32,
    pub(super) weights: *mut f32,
    pub(super) ends: *mut f32,
}

/// Who watches a tile.
#[derive(Clone, Copy)]
pub(crate) enum Watch {
    Nobody,
    Rows(Strip),
    /// Only in calls without padding and without a cap.
    Tiles(TileStore),
}

/// Where one tile's results go.
pub(crate) struct TileOut {
    /// Row `r` starts at `ptr + r * stride`.
    pub(crate) out: *mut f32,
    pub(crate) out_stride: usize,
    /// `[rows]`
    pub(crate) lse: *mut f32,
    /// `[rows]`
    pub(crate) max: [f32; TILE_MAX],
    /// `[rows]`: sums of `exp(score - max)`.
    pub(crate) sum: [f32; TILE_MAX],
    /// `[rows]`: their logarithms; not written for rows that see nothing.
    pub(crate) ln_sum: [f64; TILE_MAX],
    /// `[rows]`: sums of `exp(score - max) (max - score)`, if whole tiles are watched.
    pub(crate) gap: [f32; TILE_MAX],
    /// Width of the tile: the queries, and lanes without one.
    pub(crate) lanes: usize,
    /// Blocks met and left out.
    pub(crate) stats: AttentionStats,
    /// Keys before this one were not computed: their weights are zero in every row.
    pub(crate) from_key: usize,
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Zeroed f32 on a cache line boundary.
pub(crate) struct Buffer(Vec<Line>);

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        Self(vec![Line([0.0; 16]); len.div_ceil(16)])
    }
    pub(crate) fn as_mut_ptr(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }
    pub(crate) fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as below, and the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 16) }
    }
    pub(crate) fn as_slice(&self) -> &[f32] {
        // SAFETY: `Line` is 16 f32 without padding, and the vector holds that many initialised lines.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 16) }
    }
}

/// Working memory of one thread for one head width.
pub(crate) struct Scratch {
    /// `[width, tile]`
    pub(super) qt: Buffer,
    /// `[width, tile]`
    pub(super) ot: Buffer,
    /// `[KEY_BLOCK, tile]`, scores and then weights
    pub(super) s: Buffer,
}

impl Scratch {
    /// The queries of the last tile, `[width, tile]`, scaled.
    pub(crate) fn queries(&self) -> &[f32] {
        self.qt.as_slice()
    }
}

impl Scratch {
    pub(crate) fn new(width: usize) -> Self {
        Self {
            qt: Buffer::new(width * TILE_MAX),
            ot: Buffer::new(width * TILE_MAX),
            s: Buffer::new(KEY_BLOCK * TILE_MAX),
        }
    }
}
