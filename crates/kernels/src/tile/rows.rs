//! Raw scores of a few rows against keys whose blocks their tile has left out: the same bits as the tile would have had.
#![allow(
    unsafe_code,
    reason = "raw loads and stores; each block states why it is sound"
)]

use std::ops::Range;

use super::scores::products;
use super::{Block, Buffer, HeadTask, KEY_BLOCK};
use crate::lanes::Lanes;

/// Writes `scale q . k` of query rows `rows` and keys `keys`, whole blocks: `out[i * stride + key]` for `rows[i]`.
#[inline(always)]
pub(crate) fn raw_rows<S: Lanes>(
    s: S,
    task: &HeadTask<'_>,
    rows: &[usize],
    keys: Range<usize>,
    stride: usize,
    out: &mut [f32],
) {
    let (w, width) = (S::WIDTH, task.width);
    assert!(
        keys.start.is_multiple_of(KEY_BLOCK)
            && keys.end.is_multiple_of(KEY_BLOCK)
            && keys.end <= task.n_keys.min(stride)
            && out.len() >= rows.len().next_multiple_of(w) * stride,
        "keys {keys:?} of {} rows",
        rows.len()
    );
    if keys.is_empty() {
        return;
    }
    let (mut queries, mut scores) = (Buffer::new(width * w), Buffer::new(KEY_BLOCK * w));
    let (qt, sp) = (queries.as_mut_ptr(), scores.as_mut_ptr());
    for (group, rows) in rows.chunks(w).enumerate() {
        for c in 0..width {
            for lane in 0..w {
                // SAFETY: a tile has such rows, so the head has; `qt` holds `width * w` values.
                unsafe {
                    let x = rows
                        .get(lane)
                        .map_or(0.0, |row| *task.q.ptr.add(row * task.q.stride + c));
                    *qt.add(c * w + lane) = x * task.scale;
                }
            }
        }
        for j0 in keys.clone().step_by(KEY_BLOCK) {
            let block = Block {
                task,
                first_query: j0,
                j0,
                nk: KEY_BLOCK,
                diagonal: false,
                padded: false,
            };
            // SAFETY: the keys exist; `out` has a row of `stride` values for each lane of the group.
            unsafe {
                products::<S, 8, 1>(s, &block, qt, sp);
                let to = out.as_mut_ptr().add(group * w * stride + j0);
                for at in (0..KEY_BLOCK).step_by(w) {
                    s.transpose(sp.add(at * w), w, to.add(at), stride);
                }
            }
        }
    }
}
