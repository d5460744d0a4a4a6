//! The fast forward pass: packs keys and values, cuts the work into tasks, runs the kernel.
//!
//! A task is a head and a fixed run of tiles (with an observer: a whole head, so that rows arrive in order). Tasks share
//! nothing but read-only inputs, and every row is computed by one task in a fixed order of operations: hence the same bytes
//! for every number of threads.
#![allow(unsafe_code, reason = "tasks write disjoint parts of the output")]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::bias::BiasTables;
use crate::exp::ZERO_AT;
use crate::input::{AttentionInput, AttentionShape};
use crate::lanes::{Isa, Lanes, dispatch};
use crate::observer::{AttentionObserver, HeadSink, ScoreRows};
use crate::pack::{HeadKeys, Packs, rows_of};
use crate::score_tile::ScoreTile;
use crate::skip::{AttentionStats, Bounds};
use crate::tile::{
    Buffer, ENDS, HeadTask, KEY_BLOCK, Scratch, Strip, TILE_MAX, TileOut, TileStore, Watch, tile,
};

/// Query rows of one task when nobody watches: enough tiles to share the bias table and the working memory.
const TASK_ROWS: usize = 8 * TILE_MAX;

/// Attention of `input`: `out` is `[n_queries, n_heads * head_width]`, `lse` is `[n_heads, n_queries]` (log of the sum
/// of the exponentials of a row's scores, nats).
///
/// Rows that see no key, or only scores of `-inf`, give zeros and an lse of `-inf`. NaN reaches the rows that see it and no
/// others. A weight is exactly 0 where its exponential, before the division, rounds to 0 in f32 (gradual underflow).
/// Works up to `n_keys * max |v|` of 2^80.
///
/// Runs on the current rayon pool; the result does not depend on its size, nor on the observer, nor on what is skipped.
///
/// # Panics
/// If a slice does not have the size that `input.shape` states.
pub fn attention(
    input: &AttentionInput<'_>,
    out: &mut [f32],
    lse: &mut [f32],
    observer: Option<&dyn AttentionObserver>,
) {
    attention_with(input, &AttentionOptions::default(), out, lse, observer);
}

/// What may be chosen without changing a bit of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionOptions {
    /// Leave out blocks of keys whose every weight is provably exactly zero. On by default; off to test and to measure it.
    pub skip: bool,
    /// Most lanes of a vector: the widest instruction set of the processor with no more than these is used. 16 by default, which
    /// leaves none out; 8 to test and to measure the narrower ones.
    pub lanes: usize,
}

impl Default for AttentionOptions {
    fn default() -> Self {
        Self {
            skip: true,
            lanes: 16,
        }
    }
}

/// [`attention`] with options, and with a count of what was skipped.
///
/// Few queries (as in decoding) skip nothing: the norms of the keys would cost as much as the products they save.
///
/// # Panics
/// As [`attention`].
pub fn attention_with(
    input: &AttentionInput<'_>,
    options: &AttentionOptions,
    out: &mut [f32],
    lse: &mut [f32],
    observer: Option<&dyn AttentionObserver>,
) -> AttentionStats {
    attention_on(
        Isa::of_lanes(options.lanes),
        input,
        options,
        out,
        lse,
        observer,
    )
}

/// Whether enough rows read a key head for its norms to pay.
pub(crate) fn skip_pays(s: &AttentionShape) -> bool {
    s.n_queries * (s.n_heads / s.n_kv_heads) >= 32
}

/// [`attention_with`] on a given instruction set.
pub(crate) fn attention_on(
    isa: Isa,
    input: &AttentionInput<'_>,
    options: &AttentionOptions,
    out: &mut [f32],
    lse: &mut [f32],
    observer: Option<&dyn AttentionObserver>,
) -> AttentionStats {
    input.check();
    let s = input.shape;
    let row = s.n_heads * s.head_width;
    assert!(
        out.len() == s.n_queries * row,
        "out has {} elements for {} rows of {row}",
        out.len(),
        s.n_queries
    );
    assert!(
        lse.len() == s.n_heads * s.n_queries,
        "lse has {} elements for {} heads of {} queries",
        lse.len(),
        s.n_heads,
        s.n_queries
    );
    let rows_per_task = if observer.is_some() {
        s.n_queries.max(1)
    } else {
        TASK_ROWS
    };
    let tasks_per_head = s.n_queries.div_ceil(rows_per_task).max(1);
    // Tiles are handed out as they are computed, which is where nothing is hidden but by the causal rule.
    let tiles = s.causal
        && s.soft_cap.is_none()
        && input.key_valid.is_none()
        && observer.is_some_and(|o| o.takes_tiles());
    let skip =
        options.skip && skip_pays(&s) && observer.is_none_or(|o| tiles || !o.needs_all_scores());
    let call = Call {
        isa,
        input,
        packs: Packs::new(isa, input, tasks_per_head, skip),
        skip,
        tiles,
        out: Out {
            out: out.as_mut_ptr(),
            lse: lse.as_mut_ptr(),
        },
    };
    let (blocks, blocks_skipped) = (AtomicU64::new(0), AtomicU64::new(0));
    let stride = strip_stride(s.n_keys);
    let workspace = || Workspace {
        scratch: Scratch::new(s.head_width),
        bias: BiasTables::default(),
        watching: Watching {
            scores: Buffer::new(if observer.is_some() {
                TILE_MAX * stride
            } else {
                0
            }),
            weights: Buffer::new(if tiles { TILE_MAX * stride } else { 0 }),
            ends: Buffer::new(if tiles { ends_len(s.n_keys) } else { 0 }),
        },
    };
    each_task(s.n_heads * tasks_per_head, workspace, |work, task| {
        // Long rows first, so that the last tasks are short ones.
        let (head, part) = (
            task / tasks_per_head,
            tasks_per_head - 1 - task % tasks_per_head,
        );
        let first = part * rows_per_task;
        let end = (first + rows_per_task).min(s.n_queries);
        let stats = call.run(work, head, first, end, observer);
        blocks.fetch_add(stats.blocks, Ordering::Relaxed);
        blocks_skipped.fetch_add(stats.blocks_skipped, Ordering::Relaxed);
    });
    AttentionStats {
        blocks: blocks.into_inner(),
        blocks_skipped: blocks_skipped.into_inner(),
    }
}

/// Runs tasks `0 .. n` on the current pool, each thread taking the next one as it becomes free: skipping makes their costs
/// differ tenfold, so no fixed split balances them. `workspace` makes what a thread reuses.
pub(crate) fn each_task<W>(
    n: usize,
    workspace: impl Fn() -> W + Sync,
    run: impl Fn(&mut W, usize) + Sync,
) {
    let next = AtomicUsize::new(0);
    (0..rayon::current_num_threads().min(n))
        .into_par_iter()
        .with_max_len(1)
        .for_each(|_| {
            // A thread that comes too late makes nothing.
            let mut work = None;
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= n {
                    break;
                }
                run(work.get_or_insert_with(&workspace), task);
            }
        });
}

/// Working memory of [`attention`] in bytes beside its inputs and outputs, for `threads` threads, with or without an
/// observer. Linear in the number of keys and queries.
pub fn attention_workspace_bytes(shape: &AttentionShape, threads: usize, observed: bool) -> usize {
    let (keys, queries) = (shape.n_keys, shape.query_offset + shape.n_queries);
    let packed = 2 * keys * shape.head_width;
    // The table and its bounds.
    let bias = 3 * (queries + keys + 6 * TILE_MAX + KEY_BLOCK);
    let scratch = TILE_MAX * (2 * shape.head_width + KEY_BLOCK);
    // Scores and weights.
    let strip = if observed {
        2 * TILE_MAX * strip_stride(keys)
    } else {
        0
    };
    // A thread that waits for a packed head may hold on to the one before.
    let ends = if observed { ends_len(keys) } else { 0 };
    threads * (2 * packed + bias + scratch + strip + ends) * size_of::<f32>()
}

/// Elements of what is kept of a tile's blocks beside their pairs.
fn ends_len(n_keys: usize) -> usize {
    n_keys.div_ceil(KEY_BLOCK) * ENDS * TILE_MAX
}

/// Elements from one row of the strip to the next. The extra 16 keeps rows of a power-of-two length off the same cache set.
fn strip_stride(n_keys: usize) -> usize {
    n_keys.next_multiple_of(KEY_BLOCK) + 16
}

/// Output pointers shared by the tasks.
#[derive(Clone, Copy)]
struct Out {
    out: *mut f32,
    lse: *mut f32,
}
// SAFETY: every (head, query row) belongs to exactly one task, which alone writes its part of `out` and `lse`.
unsafe impl Send for Out {}
// SAFETY: as above.
unsafe impl Sync for Out {}

/// What a thread reuses from task to task.
struct Workspace {
    scratch: Scratch,
    bias: BiasTables,
    watching: Watching,
}

/// What an observer is shown of a tile; empty without one.
struct Watching {
    /// Raw scores.
    scores: Buffer,
    /// Weights, for an observer that takes tiles.
    weights: Buffer,
    /// Extremes and references of the blocks, likewise.
    ends: Buffer,
}

struct Call<'a> {
    isa: Isa,
    input: &'a AttentionInput<'a>,
    packs: Packs,
    skip: bool,
    /// The observer is handed tiles, not rows.
    tiles: bool,
    out: Out,
}

impl Call<'_> {
    /// Rows `first .. end` of one head.
    fn run(
        &self,
        work: &mut Workspace,
        head: usize,
        first: usize,
        end: usize,
        observer: Option<&dyn AttentionObserver>,
    ) -> AttentionStats {
        let (input, s) = (self.input, self.input.shape);
        let kv_head = s.kv_head(head);
        let packed = self.packs.take(input, kv_head);
        let bias = input.bias.head(head, s.n_heads);
        work.bias.fill(&s, bias, first, end, self.skip);
        let (scratch, watching) = (&mut work.scratch, &mut work.watching);
        // What an observer was not shown has to be the oldest part of a row.
        let task = head_task(input, head, &packed, &work.bias, observer.is_none());
        let mut stats = AttentionStats::default();
        let mut sink = observer.map(|o| o.begin(head));
        let row = s.n_heads * s.head_width;
        let step = tile_rows(self.isa);
        for at in (first..end).step_by(step) {
            let rows = step.min(end - at);
            // SAFETY: rows `at .. at + rows` of this head lie inside `out` and `lse` (lengths checked), and only this task
            // writes them.
            let mut to = unsafe {
                TileOut {
                    out: self.out.out.add(at * row + head * s.head_width),
                    out_stride: row,
                    lse: self.out.lse.add(head * s.n_queries + at),
                    max: [0.0; TILE_MAX],
                    sum: [0.0; TILE_MAX],
                    ln_sum: [0.0; TILE_MAX],
                    gap: [0.0; TILE_MAX],
                    lanes: 0,
                    stats: AttentionStats::default(),
                    from_key: 0,
                }
            };
            match &mut sink {
                None => run_tile(self.isa, &task, at, rows, scratch, Watch::Nobody, &mut to),
                Some(sink) => {
                    self.watched(
                        &task,
                        head,
                        at,
                        rows,
                        scratch,
                        watching,
                        &mut **sink,
                        &mut to,
                    );
                }
            }
            stats += to.stats;
        }
        if let Some((observer, sink)) = observer.zip(sink) {
            observer.finish(head, sink);
        }
        self.packs.release(kv_head, packed);
        stats
    }

    /// One tile, and what its observer is shown of it.
    #[allow(
        clippy::too_many_arguments,
        reason = "the arguments of the kernel and of the observer"
    )]
    fn watched(
        &self,
        task: &HeadTask<'_>,
        head: usize,
        at: usize,
        rows: usize,
        scratch: &mut Scratch,
        watching: &mut Watching,
        sink: &mut dyn HeadSink,
        to: &mut TileOut,
    ) {
        let (input, s) = (self.input, self.input.shape);
        let bias = input.bias.head(head, s.n_heads);
        let scores = watching.scores.as_mut_ptr();
        if !self.tiles {
            let stride = strip_stride(s.n_keys);
            let strip = Strip {
                ptr: scores,
                stride,
            };
            run_tile(self.isa, task, at, rows, scratch, Watch::Rows(strip), to);
            // SAFETY: just written by this task, which is the only one to touch it.
            let lse = unsafe { std::slice::from_raw_parts(to.lse, rows) };
            let raw = &watching.scores.as_slice()[..rows * stride];
            let (max, sum) = (&to.max[..rows], &to.sum[..rows]);
            let view = ScoreRows::of_tile(
                &s,
                head,
                at,
                stride,
                raw,
                max,
                sum,
                lse,
                input.key_valid,
                bias,
                to.from_key,
            );
            return sink.rows(&view);
        }
        let first_query = s.query_offset + at;
        let spare = sink.spare_scores();
        let task = HeadTask {
            bounds: task.bounds.zip(spare).map(|(bounds, spare)| Bounds {
                cut: ZERO_AT.min(-spare.gap),
                raw_max: spare.raw_max,
                ..bounds
            }),
            ..*task
        };
        let store = TileStore {
            raw: scores,
            weights: watching.weights.as_mut_ptr(),
            ends: watching.ends.as_mut_ptr(),
        };
        run_tile(self.isa, &task, at, rows, scratch, Watch::Tiles(store), to);
        // SAFETY: as above.
        let lse = unsafe { std::slice::from_raw_parts(to.lse, rows) };
        sink.tile(&ScoreTile {
            head,
            first_query,
            n_rows: rows,
            n_keys: s.n_keys,
            lanes: to.lanes,
            row_ln_sum: &to.ln_sum[..rows],
            row_gap: &to.gap[..rows],
            raw: watching.scores.as_slice(),
            weights: watching.weights.as_slice(),
            ends: watching.ends.as_slice(),
            row_max: &to.max[..rows],
            row_sum: &to.sum[..rows],
            row_lse: lse,
            proven_zero_before: to.from_key,
            bias,
            tile_bias: task.bias,
            isa: self.isa,
            task: &task,
            queries: scratch.queries(),
        });
    }
}

/// One head for the kernel. `bias` is filled for this head; `holes` as in [`Bounds`].
pub(crate) fn head_task<'a>(
    input: &'a AttentionInput<'a>,
    head: usize,
    packed: &'a HeadKeys,
    tables: &'a BiasTables,
    holes: bool,
) -> HeadTask<'a> {
    let s = input.shape;
    let (k, v) = packed.rows(input, s.kv_head(head));
    let bias = input.bias.head(head, s.n_heads);
    HeadTask {
        q: rows_of(&input.q, head),
        k,
        v,
        n_keys: s.n_keys,
        width: s.head_width,
        query_offset: s.query_offset,
        causal: s.causal,
        scale: s.scale,
        soft_cap: s.soft_cap,
        bias: tables.tile_bias(bias),
        key_valid: input.key_valid,
        bounds: packed.norms().map(|norms| Bounds {
            norms,
            bias: tables.bounds(bias),
            holes,
            cut: ZERO_AT,
            raw_max: f32::MAX,
        }),
    }
}

/// Rows of a full tile: three vectors of AVX-512, two elsewhere (see [`sized_tile`]).
pub(crate) fn tile_rows(isa: Isa) -> usize {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => 48,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => 16,
        Isa::Portable => 16,
    }
}

#[allow(clippy::too_many_arguments, reason = "the arguments of the kernel")]
fn run_tile(
    isa: Isa,
    task: &HeadTask<'_>,
    first_row: usize,
    rows: usize,
    scratch: &mut Scratch,
    watch: Watch,
    to: &mut TileOut,
) {
    dispatch!(
        isa,
        sized_tile,
        (task: &HeadTask<'_>, at: usize, n: usize, scratch: &mut Scratch, watch: Watch, to: &mut TileOut)
            = (task, first_row, rows, scratch, watch, to)
    );
}

/// Picks the register blocking: 24 accumulators of the 32 registers of AVX-512; 8 of the 16 elsewhere, just enough for the latency of
/// a multiply-add. (12 would fit with 4 registers to spare, but the compiler then keeps one in memory, at 0.4 of the speed.) A
/// single vector for few rows, as in decoding.
#[inline(always)]
fn sized_tile<S: Lanes>(
    s: S,
    task: &HeadTask<'_>,
    first_row: usize,
    rows: usize,
    scratch: &mut Scratch,
    watch: Watch,
    to: &mut TileOut,
) {
    // SAFETY: `Call::run` gives valid rows, a strip or store of `TILE_MAX` rows, and `to` for `rows` rows of this task alone.
    unsafe {
        match (S::WIDTH == 16, rows <= S::WIDTH) {
            (true, false) => tile::<S, 8, 3>(s, task, first_row, rows, scratch, watch, to),
            (true, true) => tile::<S, 8, 1>(s, task, first_row, rows, scratch, watch, to),
            (false, false) => tile::<S, 4, 2>(s, task, first_row, rows, scratch, watch, to),
            (false, true) => tile::<S, 8, 1>(s, task, first_row, rows, scratch, watch, to),
        }
    }
}

#[cfg(test)]
#[path = "forward_tests.rs"]
mod tests;
