//! The backward pass: recomputes tiles, leaves out the same blocks, sums gradients in a fixed order.
//!
//! A task is a query head, because every tile of it adds to the same gradients of keys and values. Heads that share keys
//! sum into buffers of their own, which are added in head order at the end: the same bytes for every number of threads.
#![allow(unsafe_code, reason = "tasks write disjoint parts of the gradients")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::bias::BiasTables;
use crate::forward::{AttentionOptions, each_task, head_task, skip_pays, tile_rows};
use crate::input::AttentionInput;
use crate::lanes::{Isa, Lanes, dispatch};
use crate::pack::Packs;
use crate::skip::AttentionStats;
use crate::tile::{
    BackwardScratch, Buffer, HeadSums, HeadTask, KEY_BLOCK, LIFT, Rows, TILE_MAX, TileGradient,
    backward_tile, padded,
};

/// Where [`attention_backward`] writes. Everything is overwritten.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// Of the queries, `[n_queries, n_heads * head_width]`.
    pub dq: &'a mut [f32],
    /// Of the keys, `[n_keys, n_kv_heads * head_width]`; 0 for padding.
    pub dk: &'a mut [f32],
    /// Of the values, `[n_keys, n_kv_heads * head_width]`; 0 for padding.
    pub dv: &'a mut [f32],
    /// Of a bias by distance, if wanted, `[n_heads, n]` with `n` above [`AttentionInput::max_distance`]: entry `d` is the sum
    /// of the score gradients of all pairs `d` apart, whatever form `input.bias` has. The chain rule with the slope of a bias
    /// function's parameters gives theirs.
    pub dbias: Option<&'a mut [f32]>,
}

/// Gradients of `sum(out * d_out)` for the `out` and `lse` that [`crate::attention`] gave for the same input.
///
/// `out` and `d_out` are `[n_queries, n_heads * head_width]`, `lse` is `[n_heads, n_queries]`. A pair whose weight is exactly
/// zero has gradient exactly zero. Deterministic: neither the number of threads nor skipping changes a bit.
///
/// NaN or infinities in an input, or in `d_out`, may reach any gradient of the heads that see them.
///
/// # Panics
/// If a slice does not have the size that `input.shape` states.
pub fn attention_backward(
    input: &AttentionInput<'_>,
    out: &[f32],
    lse: &[f32],
    d_out: &[f32],
    gradients: &mut Gradients<'_>,
) -> AttentionStats {
    let options = AttentionOptions::default();
    attention_backward_with(input, &options, out, lse, d_out, gradients)
}

/// [`attention_backward`] with options.
///
/// # Panics
/// As [`attention_backward`].
pub fn attention_backward_with(
    input: &AttentionInput<'_>,
    options: &AttentionOptions,
    out: &[f32],
    lse: &[f32],
    d_out: &[f32],
    gradients: &mut Gradients<'_>,
) -> AttentionStats {
    let isa = Isa::of_lanes(options.lanes);
    backward_on(isa, input, options, out, lse, d_out, gradients)
}

/// [`attention_backward_with`] on a given instruction set.
pub(crate) fn backward_on(
    isa: Isa,
    input: &AttentionInput<'_>,
    options: &AttentionOptions,
    out: &[f32],
    lse: &[f32],
    d_out: &[f32],
    gradients: &mut Gradients<'_>,
) -> AttentionStats {
    input.check();
    let s = input.shape;
    let (queries, keys) = (
        s.n_queries * s.n_heads * s.head_width,
        s.n_keys * s.n_kv_heads * s.head_width,
    );
    for (name, len, expected) in [
        ("out", out.len(), queries),
        ("d_out", d_out.len(), queries),
        ("lse", lse.len(), s.n_heads * s.n_queries),
        ("dq", gradients.dq.len(), queries),
        ("dk", gradients.dk.len(), keys),
        ("dv", gradients.dv.len(), keys),
    ] {
        assert!(len == expected, "{name} has {len} elements, not {expected}");
    }
    let distances = gradients.dbias.as_ref().map(|dbias| {
        let n = dbias.len() / s.n_heads;
        assert!(
            dbias.len().is_multiple_of(s.n_heads) && n > input.max_distance(),
            "dbias has {} entries for {} heads of at least {} distances",
            dbias.len(),
            s.n_heads,
            input.max_distance() + 1
        );
        n
    });
    let skip = options.skip && skip_pays(&s);
    let group = s.n_heads / s.n_kv_heads;
    let call = Call {
        isa,
        input,
        packs: Packs::new(isa, input, 1, skip),
        skip,
        out,
        lse,
        d_out,
        to: Pointers {
            dq: gradients.dq.as_mut_ptr(),
            dk: gradients.dk.as_mut_ptr(),
            dv: gradients.dv.as_mut_ptr(),
            dbias: gradients.dbias.as_mut().map(|dbias| dbias.as_mut_ptr()),
        },
        distances: distances.unwrap_or(0),
        partial: (0..if group > 1 { s.n_heads } else { 0 })
            .map(|_| Mutex::default())
            .collect(),
    };
    let (blocks, blocks_skipped) = (AtomicU64::new(0), AtomicU64::new(0));
    let workspace = || Workspace {
        scratch: BackwardScratch::new(s.head_width),
        bias: BiasTables::default(),
        sums: None,
        dbias: vec![],
        dbias_total: vec![],
    };
    each_task(s.n_heads, workspace, |work, task| {
        // Slopes fall from head to head: the heads that reach furthest first.
        let stats = call.run(work, s.n_heads - 1 - task);
        blocks.fetch_add(stats.blocks, Ordering::Relaxed);
        blocks_skipped.fetch_add(stats.blocks_skipped, Ordering::Relaxed);
    });
    if group > 1 {
        each_task(s.n_kv_heads, || (), |(), kv_head| call.add_group(kv_head));
    }
    AttentionStats {
        blocks: blocks.into_inner(),
        blocks_skipped: blocks_skipped.into_inner(),
    }
}

/// Working memory of [`attention_backward`] in bytes beside its inputs and results, for `threads` threads. Linear in the
/// number of keys and queries.
pub fn attention_backward_workspace_bytes(
    shape: &crate::AttentionShape,
    threads: usize,
    bias_gradient: bool,
) -> usize {
    let wide = padded(shape.head_width);
    let sums = 2 * shape.n_keys * wide;
    let differences =
        shape.query_offset + shape.n_queries + shape.n_keys + 6 * TILE_MAX + KEY_BLOCK;
    // f32 and f64 sums by difference.
    let dbias = if bias_gradient { 3 * differences } else { 0 };
    let scratch = TILE_MAX * (5 * wide + 3 * KEY_BLOCK);
    let shared = if shape.n_heads > shape.n_kv_heads {
        shape.n_heads * sums
    } else {
        0
    };
    let packed = 4 * shape.n_keys * shape.head_width;
    (threads * (sums + packed + 3 * differences + dbias + scratch) + shared) * size_of::<f32>()
}

/// Gradients shared by the tasks.
#[derive(Clone, Copy)]
struct Pointers {
    dq: *mut f32,
    dk: *mut f32,
    dv: *mut f32,
    dbias: Option<*mut f32>,
}
// SAFETY: the part of a query head in `dq` and `dbias`, and of a key head in `dk` and `dv`, is written by one task alone.
unsafe impl Send for Pointers {}
// SAFETY: as above.
unsafe impl Sync for Pointers {}

/// Sums of the key and value gradients of one query head, `[n_keys, padded width]`, times [`LIFT`].
struct KeySums {
    dk: Buffer,
    dv: Buffer,
}

/// What a thread reuses from head to head.
struct Workspace {
    scratch: BackwardScratch,
    bias: BiasTables,
    sums: Option<KeySums>,
    /// Bias gradient of one tile by difference, and of the head by distance; times [`LIFT`].
    dbias: Vec<f32>,
    dbias_total: Vec<f64>,
}

struct Call<'a> {
    isa: Isa,
    input: &'a AttentionInput<'a>,
    packs: Packs,
    skip: bool,
    out: &'a [f32],
    lse: &'a [f32],
    d_out: &'a [f32],
    to: Pointers,
    /// Entries of a head in `dbias`.
    distances: usize,
    /// By query head, where heads share keys.
    partial: Vec<Mutex<Option<KeySums>>>,
}

impl Call<'_> {
    /// All rows of one query head.
    fn run(&self, work: &mut Workspace, head: usize) -> AttentionStats {
        let (input, s) = (self.input, self.input.shape);
        let kv_head = s.kv_head(head);
        let (wide, row) = (padded(s.head_width), s.n_heads * s.head_width);
        let packed = self.packs.take(input, kv_head);
        let bias = input.bias.head(head, s.n_heads);
        work.bias.fill(&s, bias, 0, s.n_queries, self.skip);
        let task = head_task(input, head, &packed, &work.bias, true);
        let mut sums = work.sums.take().unwrap_or_else(|| KeySums {
            dk: Buffer::new(s.n_keys * wide),
            dv: Buffer::new(s.n_keys * wide),
        });
        sums.dk.as_mut_slice().fill(0.0);
        sums.dv.as_mut_slice().fill(0.0);
        let zero = s.n_keys + 2 * TILE_MAX + KEY_BLOCK;
        if self.to.dbias.is_some() {
            work.dbias.clear();
            work.dbias
                .resize(zero + s.query_offset + s.n_queries + 2 * TILE_MAX, 0.0);
            work.dbias_total.clear();
            work.dbias_total.resize(self.distances, 0.0);
        }
        let mut stats = AttentionStats::default();
        let step = tile_rows(self.isa);
        for at in (0..s.n_queries).step_by(step) {
            let rows = step.min(s.n_queries - at);
            let (lse, delta) = self.row_values(head, at, rows);
            let grad = TileGradient {
                g: Rows {
                    ptr: self.d_out[head * s.head_width..].as_ptr(),
                    stride: row,
                },
                lse: &lse,
                delta: &delta,
                // SAFETY: rows `at .. at + rows` of this head lie inside `dq` (length checked), and only this task writes them.
                dq: unsafe { self.to.dq.add(at * row + head * s.head_width) },
                dq_stride: row,
            };
            let mut to = HeadSums {
                dk: &mut sums.dk,
                dv: &mut sums.dv,
                dbias: self.to.dbias.map(|_| (work.dbias.as_mut_slice(), zero)),
            };
            stats += run_tile(self.isa, &task, at, rows, &grad, &mut work.scratch, &mut to);
            if self.to.dbias.is_some() {
                flush(&mut work.dbias, zero, &mut work.dbias_total);
            }
        }
        if let Some(dbias) = self.to.dbias {
            for (d, &x) in work.dbias_total.iter().enumerate() {
                // SAFETY: the head's part of `dbias` (length checked), written by this task alone.
                unsafe { *dbias.add(head * self.distances + d) = (x / f64::from(LIFT)) as f32 };
            }
        }
        self.packs.release(kv_head, packed);
        if let Some(partial) = self.partial.get(head) {
            *partial.lock().unwrap_or_else(PoisonError::into_inner) = Some(sums);
        } else {
            self.write(kv_head, &sums);
            work.sums = Some(sums);
        }
        stats
    }

    /// Log-sum-exp of each row, infinite for rows that see nothing, so that their weights are 0; and `sum_c out * d_out`.
    fn row_values(
        &self,
        head: usize,
        first: usize,
        rows: usize,
    ) -> ([f32; TILE_MAX], [f32; TILE_MAX]) {
        let s = self.input.shape;
        let (mut lse, mut delta) = ([f32::INFINITY; TILE_MAX], [0.0; TILE_MAX]);
        for r in 0..rows {
            let l = self.lse[head * s.n_queries + first + r];
            if l != f32::NEG_INFINITY {
                lse[r] = l;
            }
            let at = ((first + r) * s.n_heads + head) * s.head_width;
            let (o, g) = (
                &self.out[at..at + s.head_width],
                &self.d_out[at..at + s.head_width],
            );
            // Four sums, so that no addition waits for the one before it.
            let mut sums = [0.0f64; 4];
            for (o, g) in o.chunks(4).zip(g.chunks(4)) {
                for ((sum, &o), &g) in sums.iter_mut().zip(o).zip(g) {
                    *sum += f64::from(o) * f64::from(g);
                }
            }
            let sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
            delta[r] = sum as f32;
        }
        (lse, delta)
    }

    /// Adds the heads of a group in order.
    fn add_group(&self, kv_head: usize) {
        let s = self.input.shape;
        let group = s.n_heads / s.n_kv_heads;
        let mut total: Option<KeySums> = None;
        for partial in &self.partial[kv_head * group..(kv_head + 1) * group] {
            let sums = partial
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            match (&mut total, sums) {
                (Some(total), Some(sums)) => {
                    for (to, from) in [(&mut total.dk, &sums.dk), (&mut total.dv, &sums.dv)] {
                        for (to, from) in to.as_mut_slice().iter_mut().zip(from.as_slice()) {
                            *to += from;
                        }
                    }
                }
                (total, sums) => *total = sums,
            }
        }
        if let Some(total) = total {
            self.write(kv_head, &total);
        }
    }

    /// The sums of a key head into `dk` and `dv`.
    fn write(&self, kv_head: usize, sums: &KeySums) {
        let s = self.input.shape;
        let (width, wide) = (s.head_width, padded(s.head_width));
        for (to, from) in [(self.to.dk, &sums.dk), (self.to.dv, &sums.dv)] {
            for (key, from) in from
                .as_slice()
                .chunks_exact(wide)
                .take(s.n_keys)
                .enumerate()
            {
                // Padding was 0 in the products, but not in the weights' gradients.
                let visible = self.input.key_valid.is_none_or(|valid| valid[key]);
                // SAFETY: row `key` of this head lies inside (length checked), and only this task writes it.
                let to = unsafe {
                    std::slice::from_raw_parts_mut(
                        to.add((key * s.n_kv_heads + kv_head) * width),
                        width,
                    )
                };
                for (to, from) in to.iter_mut().zip(from) {
                    // Adding 0 turns -0 into 0, as in the forward pass.
                    *to = if visible { from / LIFT + 0.0 } else { 0.0 };
                }
            }
        }
    }
}

/// Moves the sums of a tile, by difference, to the sums of the head, by distance.
fn flush(tile: &mut [f32], zero: usize, total: &mut [f64]) {
    let (ahead, behind) = tile.split_at_mut(zero);
    for (from, to) in behind.iter_mut().zip(total.iter_mut()) {
        *to += f64::from(*from);
        *from = 0.0;
    }
    for (from, to) in ahead.iter_mut().rev().zip(total.iter_mut().skip(1)) {
        *to += f64::from(*from);
        *from = 0.0;
    }
}

fn run_tile(
    isa: Isa,
    task: &HeadTask<'_>,
    first_row: usize,
    rows: usize,
    grad: &TileGradient<'_>,
    scratch: &mut BackwardScratch,
    sums: &mut HeadSums<'_>,
) -> AttentionStats {
    dispatch!(
        isa,
        sized_tile,
        (task: &HeadTask<'_>, at: usize, n: usize, grad: &TileGradient<'_>, scratch: &mut BackwardScratch, sums: &mut HeadSums<'_>)
            -> AttentionStats = (task, first_row, rows, grad, scratch, sums)
    )
}

/// Picks the register blocking, as in the forward pass.
#[inline(always)]
fn sized_tile<S: Lanes>(
    s: S,
    task: &HeadTask<'_>,
    first_row: usize,
    rows: usize,
    grad: &TileGradient<'_>,
    scratch: &mut BackwardScratch,
    sums: &mut HeadSums<'_>,
) -> AttentionStats {
    // SAFETY: `Call::run` gives valid rows, sums for all keys, and a place in `dq` for this task alone.
    unsafe {
        if S::WIDTH == 16 {
            backward_tile::<S, 8, 3>(s, task, first_row, rows, grad, scratch, sums)
        } else {
            backward_tile::<S, 4, 2>(s, task, first_row, rows, grad, scratch, sums)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CapOrder;
    use crate::common::{Case, Random, exact_gradients, shape};

    #[test]
    fn every_instruction_set_equals_the_reference() {
        let mut capped = shape(130, 2, 24);
        (capped.soft_cap, capped.causal) = (Some((4.0, CapOrder::BeforeBias)), false);
        for &isa in Isa::available() {
            for s in [shape(150, 2, 64), shape(100, 1, 19), capped] {
                let case = Case::random(s, 1);
                let g = Random::new(2).vec(s.n_queries * s.n_heads * s.head_width, 1.0);
                let (out, lse) = case.run();
                let keys = vec![0.0; s.n_keys * s.n_kv_heads * s.head_width];
                let input = case.input();
                let mut got = [
                    out.clone(),
                    keys.clone(),
                    keys,
                    vec![0.0; s.n_heads * (input.max_distance() + 1)],
                ];
                let [dq, dk, dv, dbias] = &mut got;
                let mut gradients = Gradients {
                    dq,
                    dk,
                    dv,
                    dbias: Some(dbias),
                };
                let options = AttentionOptions::default();
                backward_on(isa, &input, &options, &out, &lse, &g, &mut gradients);
                for ((what, exact, tolerance), got) in exact_gradients(&case, &g).iter().zip(&got) {
                    // Unfused: two roundings where the bound counts one.
                    let room = if isa == Isa::Portable { 2.0 } else { 1.0 };
                    tolerance
                        .times(room)
                        .check(&format!("{isa:?} {s:?} {what}"), exact, got);
                }
            }
        }
    }

    #[test]
    fn distances_fold_both_sides() {
        let mut tile = vec![0.0, 3.0, 2.0, 1.0, 10.0, 20.0, 30.0];
        let mut total = vec![0.0; 4];
        flush(&mut tile, 4, &mut total);
        assert_eq!(total, [10.0, 21.0, 32.0, 3.0]);
        assert!(tile.iter().all(|&x| x == 0.0));
    }
}
