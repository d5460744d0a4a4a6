//! The fast forward pass: packs keys and values, cuts the work into tasks, runs the kernel.
//!
//! A task is a head and a fixed run of tiles (with an observer: a whole head, so that rows arrive in order). Tasks share
//! nothing but read-only inputs, and every row is computed by one task in a fixed order of operations: hence the same bytes
//! for every number of threads.
#![allow(unsafe_code, reason = "tasks write disjoint parts of the output")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use crate::input::{AttentionInput, AttentionShape, HeadBias, Heads};
use crate::lanes::{Isa, Lanes, dispatch};
use crate::observer::{AttentionObserver, ScoreRows};
use crate::tile::{
    Buffer, HeadTask, KEY_BLOCK, Rows, Scratch, Strip, TILE_MAX, TileBias, TileOut, tile,
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
/// Runs on the current rayon pool; the result does not depend on its size, nor on the observer.
///
/// # Panics
/// If a slice does not have the size that `input.shape` states.
pub fn attention(
    input: &AttentionInput<'_>,
    out: &mut [f32],
    lse: &mut [f32],
    observer: Option<&dyn AttentionObserver>,
) {
    attention_with(Isa::detect(), input, out, lse, observer);
}

/// [`attention`] on a given instruction set.
pub(crate) fn attention_with(
    isa: Isa,
    input: &AttentionInput<'_>,
    out: &mut [f32],
    lse: &mut [f32],
    observer: Option<&dyn AttentionObserver>,
) {
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
    let call = Call {
        isa,
        input,
        packs: Packs::new(input, tasks_per_head),
        out: Out {
            out: out.as_mut_ptr(),
            lse: lse.as_mut_ptr(),
        },
    };
    (0..s.n_heads * tasks_per_head)
        .into_par_iter()
        .for_each(|task| {
            let (head, part) = (task / tasks_per_head, task % tasks_per_head);
            let first = part * rows_per_task;
            call.run(
                head,
                first,
                (first + rows_per_task).min(s.n_queries),
                observer,
            );
        });
}

/// Working memory of [`attention`] in bytes beside its inputs and outputs, for `threads` threads, with or without an
/// observer. Linear in the number of keys and queries.
pub fn attention_workspace_bytes(shape: &AttentionShape, threads: usize, observed: bool) -> usize {
    let (keys, queries) = (shape.n_keys, shape.query_offset + shape.n_queries);
    let packed = 2 * keys * shape.head_width;
    let bias = queries + keys + 4 * TILE_MAX + KEY_BLOCK;
    let scratch = TILE_MAX * (2 * shape.head_width + KEY_BLOCK);
    let strip = if observed {
        TILE_MAX * strip_stride(keys)
    } else {
        0
    };
    // A thread that waits for a packed head may hold on to the one before.
    threads * (2 * packed + bias + scratch + strip) * size_of::<f32>()
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

struct Call<'a> {
    isa: Isa,
    input: &'a AttentionInput<'a>,
    packs: Packs,
    out: Out,
}

impl Call<'_> {
    /// Rows `first .. end` of one head.
    fn run(&self, head: usize, first: usize, end: usize, observer: Option<&dyn AttentionObserver>) {
        let (input, s) = (self.input, self.input.shape);
        let kv_head = s.kv_head(head);
        let packed = self.packs.take(input, kv_head);
        let (k, v) = match &packed {
            Some(kv) => kv.rows(&s),
            None => (rows_of(&input.k, kv_head), rows_of(&input.v, kv_head)),
        };
        let bias = input.bias.head(head, s.n_heads);
        let table = difference_table(&s, bias, first, end);
        let task = HeadTask {
            q: rows_of(&input.q, head),
            k,
            v,
            n_keys: s.n_keys,
            width: s.head_width,
            query_offset: s.query_offset,
            causal: s.causal,
            scale: s.scale,
            soft_cap: s.soft_cap,
            bias: match (&table, bias) {
                (Some((table, zero)), _) => TileBias::ByDifference { table, zero: *zero },
                (None, HeadBias::ByKey(values)) => TileBias::ByKey(values),
                (None, _) => TileBias::None,
            },
            key_valid: input.key_valid,
        };
        let mut scratch = Scratch::new(s.head_width);
        let stride = strip_stride(s.n_keys);
        let mut watch = observer.map(|o| (o, o.begin(head), Buffer::new(TILE_MAX * stride)));
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
                }
            };
            let strip = watch.as_mut().map(|(_, _, buffer)| Strip {
                ptr: buffer.as_mut_ptr(),
                stride,
            });
            run_tile(self.isa, &task, at, rows, &mut scratch, strip, &mut to);
            if let Some((_, sink, buffer)) = &mut watch {
                // SAFETY: just written by this task, which is the only one to touch it.
                let lse = unsafe { std::slice::from_raw_parts(to.lse, rows) };
                let (raw, max) = (&buffer.as_slice()[..rows * stride], &to.max[..rows]);
                sink.rows(&ScoreRows::of_tile(
                    &s,
                    head,
                    at,
                    stride,
                    raw,
                    max,
                    lse,
                    input.key_valid,
                    bias,
                ));
            }
        }
        if let Some((observer, sink, _)) = watch {
            observer.finish(head, sink);
        }
        drop(packed);
        self.packs.release(kv_head);
    }
}

fn rows_of(heads: &Heads<'_>, head: usize) -> Rows {
    // An empty slice where there are no rows at all; `AttentionInput::check` has seen to all others.
    let from = heads
        .data
        .get(heads.offset + head * heads.head_stride..)
        .unwrap_or_default();
    Rows {
        ptr: from.as_ptr(),
        stride: heads.row_stride,
    }
}

/// Rows of a full tile: three vectors.
fn tile_rows(isa: Isa) -> usize {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => 48,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => 24,
        Isa::Portable => 24,
    }
}

#[allow(clippy::too_many_arguments, reason = "the arguments of the kernel")]
fn run_tile(
    isa: Isa,
    task: &HeadTask<'_>,
    first_row: usize,
    rows: usize,
    scratch: &mut Scratch,
    strip: Option<Strip>,
    to: &mut TileOut,
) {
    dispatch!(
        isa,
        sized_tile,
        (task: &HeadTask<'_>, at: usize, n: usize, scratch: &mut Scratch, strip: Option<Strip>, to: &mut TileOut)
            = (task, first_row, rows, scratch, strip, to)
    );
}

/// Picks the register blocking: 24 accumulators of the 32 registers of AVX-512, 12 of the 16 elsewhere; a single vector for
/// few rows, as in decoding.
#[inline(always)]
fn sized_tile<S: Lanes>(
    s: S,
    task: &HeadTask<'_>,
    first_row: usize,
    rows: usize,
    scratch: &mut Scratch,
    strip: Option<Strip>,
    to: &mut TileOut,
) {
    // SAFETY: `Call::run` gives valid rows, a strip of `TILE_MAX` rows, and `to` for `rows` rows of this task alone.
    unsafe {
        match (S::WIDTH == 16, rows <= S::WIDTH) {
            (true, false) => tile::<S, 8, 3>(s, task, first_row, rows, scratch, strip, to),
            (true, true) => tile::<S, 8, 1>(s, task, first_row, rows, scratch, strip, to),
            (false, false) => tile::<S, 4, 3>(s, task, first_row, rows, scratch, strip, to),
            (false, true) => tile::<S, 8, 1>(s, task, first_row, rows, scratch, strip, to),
        }
    }
}

/// Bias by distance unrolled to a table by signed difference query - key, so that the kernel reads one vector per key
/// whatever the sign. Covers rows `first .. end`, rounded up to whole tiles, against all keys they can touch. Entries that
/// only hidden pairs and lanes without a row read are 0.
fn difference_table(
    s: &AttentionShape,
    bias: HeadBias<'_>,
    first: usize,
    end: usize,
) -> Option<(Vec<f32>, usize)> {
    let HeadBias::ByDistance(values) = bias else {
        return None;
    };
    // Queries reach `n_keys` or one tile ahead of themselves, and back to key 0.
    let zero = if s.causal {
        2 * TILE_MAX + KEY_BLOCK
    } else {
        s.n_keys + TILE_MAX
    };
    let back = s.query_offset + end.max(first + 1) - 1;
    let mut table = vec![0.0; zero + back + 1 + 2 * TILE_MAX];
    for (distance, &b) in values.iter().enumerate().take(back + 1) {
        table[zero + distance] = b;
    }
    if !s.causal {
        for (distance, &b) in values.iter().enumerate().take(s.n_keys).skip(1) {
            table[zero - distance] = b;
        }
    }
    Some((table, zero))
}

/// Keys and values of one head in contiguous rows, padding zeroed.
///
/// Contiguous, because rows a power of two apart fall into the same few cache sets; zeroed, because 0 times a NaN in
/// padding would be NaN.
struct Packed {
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Packed {
    fn new(input: &AttentionInput<'_>, kv_head: usize) -> Self {
        let (n, width) = (input.shape.n_keys, input.shape.head_width);
        let pack = |heads: &Heads<'_>| {
            let mut to = Vec::with_capacity(n * width);
            for key in 0..n {
                if input.key_valid.is_none_or(|valid| valid[key]) {
                    to.extend_from_slice(heads.row(key, kv_head, width));
                } else {
                    to.resize(to.len() + width, 0.0);
                }
            }
            to
        };
        Self {
            k: pack(&input.k),
            v: pack(&input.v),
        }
    }

    fn rows(&self, s: &AttentionShape) -> (Rows, Rows) {
        let rows = |data: &[f32]| Rows {
            ptr: data.as_ptr(),
            stride: s.head_width,
        };
        (rows(&self.k), rows(&self.v))
    }
}

/// The packed heads in use: made by the first task that needs one, dropped after the last, so that only about one head a
/// thread is held.
struct Packs {
    cells: Vec<Mutex<Option<Arc<Packed>>>>,
    tasks_left: Vec<AtomicUsize>,
}

impl Packs {
    fn new(input: &AttentionInput<'_>, tasks_per_head: usize) -> Self {
        let s = &input.shape;
        let contiguous = |heads: &Heads<'_>| heads.row_stride == s.head_width;
        let padding = input.key_valid.is_some_and(|valid| valid.contains(&false));
        // A few queries read each key only once: copying would cost more than it saves.
        let needed =
            padding || (s.n_queries > TILE_MAX && !(contiguous(&input.k) && contiguous(&input.v)));
        let n = if needed { s.n_kv_heads } else { 0 };
        let tasks = tasks_per_head * (s.n_heads / s.n_kv_heads);
        Self {
            cells: (0..n).map(|_| Mutex::new(None)).collect(),
            tasks_left: (0..n).map(|_| AtomicUsize::new(tasks)).collect(),
        }
    }

    fn take(&self, input: &AttentionInput<'_>, kv_head: usize) -> Option<Arc<Packed>> {
        let mut cell = self
            .cells
            .get(kv_head)?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Some(
            cell.get_or_insert_with(|| Arc::new(Packed::new(input, kv_head)))
                .clone(),
        )
    }

    fn release(&self, kv_head: usize) {
        if let Some(left) = self.tasks_left.get(kv_head)
            && left.fetch_sub(1, Ordering::AcqRel) == 1
        {
            *self.cells[kv_head]
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{Case, bits, shape};
    use crate::{CapOrder, reference};

    fn cases() -> Vec<Case> {
        let mut capped = shape(100, 2, 24);
        capped.soft_cap = Some((4.0, CapOrder::BeforeBias));
        let mut both = shape(131, 2, 64);
        both.causal = false;
        let mut padded = Case::random(shape(200, 2, 20), 4).by_key();
        padded.key_valid = Some((0..200).map(|j| j > 90 && j % 7 != 0).collect());
        let mut bad = Case::random(shape(150, 1, 18), 5);
        bad.v[18 * 100] = f32::NAN;
        vec![
            Case::random(shape(1, 1, 1), 1),
            Case::random(shape(7, 3, 33), 1),
            Case::random(shape(300, 2, 64), 2),
            Case::random(capped, 3),
            Case::random(both, 3),
            padded,
            bad,
        ]
    }

    fn run(isa: Isa, case: &Case) -> (Vec<f32>, Vec<f32>) {
        let s = case.shape;
        let mut out = vec![0.0; s.n_queries * s.n_heads * s.head_width];
        let mut lse = vec![0.0; s.n_queries * s.n_heads];
        attention_with(isa, &case.input(), &mut out, &mut lse, None);
        (out, lse)
    }

    #[test]
    fn every_instruction_set_equals_the_reference() {
        for &isa in Isa::available() {
            for (i, case) in cases().iter().enumerate() {
                let (out, lse) = run(isa, case);
                let (expected, expected_lse) = reference::attention(&case.input());
                let (mut t_out, mut t_lse) = case.tolerances();
                if isa == Isa::Portable {
                    // Unfused: two roundings where the bound counts one.
                    (t_out, t_lse) = (t_out.times(2.0), t_lse.times(2.0));
                }
                t_out.check(&format!("{isa:?}, case {i}"), &expected, &out);
                t_lse.check(&format!("{isa:?}, case {i}, lse"), &expected_lse, &lse);
            }
        }
    }

    /// A row meets no other row, so neither the tile nor the number of lanes can change it.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn vector_width_does_not_change_a_bit() {
        if !Isa::available().contains(&Isa::Avx512) {
            eprintln!("SKIPPED: this processor has no AVX-512 to compare");
            return;
        }
        for (i, case) in cases().iter().enumerate() {
            let (wide, narrow) = (run(Isa::Avx512, case), run(Isa::Avx2, case));
            assert_eq!(bits(&wide.0), bits(&narrow.0), "case {i}");
            assert_eq!(bits(&wide.1), bits(&narrow.1), "case {i}");
        }
    }
}
