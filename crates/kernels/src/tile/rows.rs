//! Raw scores of some queries of a tile against some keys, whether or not their blocks were computed: the same bits as the tile has or
//! would have had.
#![allow(
    unsafe_code,
    reason = "keys and queries are read raw; each block states why it is sound"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "constant indices into register arrays; iterators can push the arrays into memory"
)]

use std::ops::Range;

use super::HeadTask;
use crate::lanes::Lanes;

/// Every `step`-th key from `first` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SomeKeys {
    pub(crate) first: usize,
    pub(crate) step: usize,
    pub(crate) n: usize,
}

/// Keys at a time.
const AT_ONCE: usize = 8;

/// Writes `scale q . k` of some keys, `[keys, lanes]`, for the vectors that hold the queries `some`; `queries` are those of a tile of
/// `lanes`, packed and scaled.
#[inline(always)]
pub(crate) fn raw_of_keys<S: Lanes>(
    s: S,
    task: &HeadTask<'_>,
    lanes: usize,
    queries: &[f32],
    some: Range<usize>,
    keys: SomeKeys,
    out: &mut [f32],
) {
    let SomeKeys { first, step, n } = keys;
    assert!(
        queries.len() >= task.width * lanes
            && some.end <= lanes
            && lanes.is_multiple_of(S::WIDTH)
            && out.len() == n * lanes
            && (n == 0 || first + (n - 1) * step < task.n_keys),
        "{keys:?} of {}, {some:?} of {lanes}",
        task.n_keys
    );
    let from_lane = some.start / S::WIDTH * S::WIDTH;
    for from in (0..n).step_by(AT_ONCE) {
        // Where there are fewer, the last one is taken again.
        let mut rows = [task.k.ptr; AT_ONCE];
        for (r, row) in rows.iter_mut().enumerate() {
            let key = first + (from + r).min(n - 1) * step;
            // SAFETY: that key exists.
            *row = unsafe { task.k.ptr.add(key * task.k.stride) };
        }
        for lane in (from_lane..some.end).step_by(S::WIDTH) {
            let mut sums = [s.splat(0.0); AT_ONCE];
            // SAFETY: the queries are a tile's, `out` has a row for each key.
            unsafe {
                for c in 0..task.width {
                    let q = s.load(queries.as_ptr().add(c * lanes + lane));
                    for r in 0..AT_ONCE {
                        sums[r] = s.fma(q, s.splat(*rows[r].add(c)), sums[r]);
                    }
                }
                for r in 0..AT_ONCE {
                    if from + r < n {
                        s.store(out.as_mut_ptr().add((from + r) * lanes + lane), sums[r]);
                    }
                }
            }
        }
    }
}
