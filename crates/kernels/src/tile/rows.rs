//! Raw scores of a tile against some keys, whether or not their blocks were computed: the same bits as the tile has or would have had.
#![allow(
    unsafe_code,
    reason = "the queries are read raw; each block states why it is sound"
)]

use super::scores::products;
use super::{Block, HeadTask, Rows};
use crate::lanes::Lanes;

/// Every `step`-th key from `first` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SomeKeys {
    pub(crate) first: usize,
    pub(crate) step: usize,
    pub(crate) n: usize,
}

/// Writes `scale q . k` of some keys, `[keys, lanes]`; `queries` are those of a tile of `lanes`, packed and scaled.
#[inline(always)]
pub(crate) fn raw_of_keys<S: Lanes>(
    s: S,
    task: &HeadTask<'_>,
    lanes: usize,
    queries: &[f32],
    keys: SomeKeys,
    out: &mut [f32],
) {
    let SomeKeys { first, step, n } = keys;
    assert!(
        queries.len() >= task.width * lanes
            && out.len() == n * lanes
            && (n == 0 || first + (n - 1) * step < task.n_keys),
        "{keys:?} of {}",
        task.n_keys
    );
    if n == 0 {
        return;
    }
    let (k, v) = (task.k, task.v);
    let apart = |rows: Rows| Rows {
        // SAFETY: key `first` exists.
        ptr: unsafe { rows.ptr.add(first * rows.stride) },
        stride: rows.stride * step,
    };
    let task = &HeadTask {
        k: apart(k),
        v: apart(v),
        ..*task
    };
    let block = Block {
        task,
        first_query: 0,
        j0: 0,
        nk: n,
        diagonal: false,
        padded: false,
    };
    let (q, to) = (queries.as_ptr(), out.as_mut_ptr());
    // SAFETY: `n` keys exist `step` apart; the queries are a tile's, and `out` has a row for each key.
    unsafe {
        match (S::WIDTH == 16, lanes / S::WIDTH) {
            (_, 1) => products::<S, 8, 1>(s, &block, q, to),
            (false, 2) => products::<S, 4, 2>(s, &block, q, to),
            (true, 3) => products::<S, 8, 3>(s, &block, q, to),
            (_, n) => unreachable!("a tile of {n} vectors"),
        }
    }
}
