//! Attention of a training step on packed rows of `[q, k, v]`: the fast kernel, or, where a number format is the experiment, row by
//! row under a precision plan.

mod planned;
mod zeroed;

use std::sync::{Mutex, MutexGuard, PoisonError};

use kernels::{AttentionInput, AttentionShape, BiasTable, Gradients, Heads};
use numerics::{BiasFunction, CapOrder, PrecisionPlan};
use rayon::prelude::*;

use crate::ops::each_rows;

pub(crate) use planned::{RowRule, RowWeights};

/// Which weights are exactly zero, in the forward and in the backward pass.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum AttentionRule {
    /// f32 with gradual underflow, the fast kernel: zero where `exp(score - max)` rounds to 0, below -103.97 nats.
    #[default]
    Exact,
    /// f32, and zero where the gap to the row's maximum is above this many nats.
    ZeroBeyond(f64),
    /// Every rounding of a precision plan, emulated; gradients pass through roundings as if they were not there, and a weight
    /// that is zero passes none.
    Plan(Box<PrecisionPlan>),
}

impl AttentionRule {
    /// Name in records: `exact`, `zero-beyond:17.3`, `plan:hf-eager:bf16`.
    pub fn name(&self) -> String {
        match self {
            AttentionRule::Exact => "exact".to_owned(),
            AttentionRule::ZeroBeyond(nats) => format!("zero-beyond:{nats}"),
            AttentionRule::Plan(plan) => format!("plan:{}", plan.key()),
        }
    }

    /// What a specification leaves unsaid of a decoder under this rule: roundings are the runtime's, a cut is the model's.
    pub fn unspoken(&self) -> Option<String> {
        match self {
            AttentionRule::Exact | AttentionRule::Plan(_) => None,
            AttentionRule::ZeroBeyond(nats) => Some(format!(
                "attention.zero-beyond = {nats} is no part of model.toml: eval, measure and the others see the model without it"
            )),
        }
    }
}

/// The bias of a step: a table by distance, and the function it came from.
#[derive(Clone, Debug)]
pub(crate) struct Bias {
    /// `[heads, distances]`, nats. Empty without a bias.
    pub(crate) table: Vec<f32>,
    pub(crate) distances: usize,
    pub(crate) function: BiasFunction,
    pub(crate) slopes: Vec<f64>,
}

impl Bias {
    /// The table of `function` for distances `0 .. distances`.
    pub(crate) fn new(function: BiasFunction, slopes: Vec<f64>, distances: usize) -> Self {
        let table = if function.shape == numerics::BiasShape::None {
            Vec::new()
        } else {
            (0..slopes.len())
                .flat_map(|head| {
                    let (function, slope) = (&function, slopes[head]);
                    (0..distances).map(move |d| function.bias(head, slope, d as f64) as f32)
                })
                .collect()
        };
        Self {
            table,
            distances,
            function,
            slopes,
        }
    }

    /// Soft cap as the kernel takes it.
    pub(crate) fn cap(&self) -> Option<(f32, CapOrder)> {
        self.function
            .soft_cap
            .map(|cap| (cap.cap as f32, cap.order))
    }

    fn view(&self) -> BiasTable<'_> {
        if self.table.is_empty() {
            BiasTable::None
        } else {
            BiasTable::ByDistance {
                values: &self.table,
            }
        }
    }
}

/// One attention call over many independent sequences.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention<'a> {
    pub(crate) heads: usize,
    pub(crate) head_width: usize,
    pub(crate) bias: &'a Bias,
    pub(crate) rule: &'a AttentionRule,
    /// First row and end of every sequence; they follow one another without gaps.
    pub(crate) sequences: &'a [(usize, usize)],
}

/// Scratch of the backward pass: gradients of the sequences in work, kept from call to call.
#[derive(Debug, Default)]
pub(crate) struct AttentionScratch {
    spare: Mutex<Vec<SequenceGradients>>,
}

impl AttentionScratch {
    fn lock(&self) -> MutexGuard<'_, Vec<SequenceGradients>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gradients of one sequence, `[rows, width]` each.
#[derive(Debug, Default)]
struct SequenceGradients {
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
}

impl Attention<'_> {
    fn width(&self) -> usize {
        self.heads * self.head_width
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head_width as f32).sqrt()
    }

    fn input<'q>(&'q self, qkv: &'q [f32], first: usize, end: usize) -> AttentionInput<'q> {
        let width = self.width();
        let part = |index: usize| Heads {
            data: qkv,
            offset: first * 3 * width + index * width,
            row_stride: 3 * width,
            head_stride: self.head_width,
        };
        AttentionInput {
            shape: AttentionShape {
                n_queries: end - first,
                n_keys: end - first,
                n_heads: self.heads,
                n_kv_heads: self.heads,
                head_width: self.head_width,
                query_offset: 0,
                causal: true,
                scale: self.scale(),
                soft_cap: self.bias.cap(),
            },
            q: part(0),
            k: part(1),
            v: part(2),
            bias: self.bias.view(),
            key_valid: None,
        }
    }

    /// The rule of one head for row-by-row work.
    pub(crate) fn row_rule(&self, head: usize) -> RowRule<'_> {
        RowRule::new(self, head)
    }

    /// `qkv` is `[rows, 3 * width]`, `out` `[rows, width]`; `lse` has `heads * rows` values, those of a sequence together.
    pub(crate) fn forward(&self, qkv: &[f32], out: &mut [f32], lse: &mut [f32]) {
        if *self.rule != AttentionRule::Exact {
            return self.forward_planned(qkv, out, lse);
        }
        let width = self.width();
        // Sequence by sequence on each thread: what it packed stays in its cache, and it waits for the others once.
        let (mut out, mut lse) = (out, lse);
        let mut parts = Vec::with_capacity(self.sequences.len());
        for &(first, end) in self.sequences {
            let (part, rest) = out.split_at_mut((end - first) * width);
            let (part_lse, rest_lse) = lse.split_at_mut((end - first) * self.heads);
            parts.push((first, end, part, part_lse));
            (out, lse) = (rest, rest_lse);
        }
        parts
            .into_par_iter()
            .with_max_len(1)
            .for_each(|(first, end, out, lse)| {
                kernels::attention(&self.input(qkv, first, end), out, lse, None);
            });
    }

    /// Overwrites `d_qkv`; adds to `d_table` (`[heads, distances]`) if given.
    #[allow(clippy::too_many_arguments, reason = "one call site")]
    pub(crate) fn backward(
        &self,
        qkv: &[f32],
        out: &[f32],
        lse: &[f32],
        d_out: &[f32],
        mut d_qkv: &mut [f32],
        d_table: Option<&mut [f32]>,
        scratch: &AttentionScratch,
    ) {
        if *self.rule != AttentionRule::Exact {
            return self.backward_planned(qkv, d_out, d_qkv, d_table);
        }
        let width = self.width();
        let mut parts = Vec::with_capacity(self.sequences.len());
        for &(first, end) in self.sequences {
            let (part, rest) = d_qkv.split_at_mut((end - first) * 3 * width);
            parts.push((first, end, part));
            d_qkv = rest;
        }
        let tables: Vec<Vec<f32>> = parts
            .into_par_iter()
            .with_max_len(1)
            .map(|(first, end, d_qkv)| {
                let rows = first * width..end * width;
                let mut table = match &d_table {
                    Some(_) => vec![0.0; self.heads * self.bias.distances],
                    None => Vec::new(),
                };
                let mut own = scratch.lock().pop().unwrap_or_default();
                for buffer in [&mut own.dq, &mut own.dk, &mut own.dv] {
                    buffer.resize((end - first) * width, 0.0);
                }
                kernels::attention_backward(
                    &self.input(qkv, first, end),
                    &out[rows.clone()],
                    &lse[first * self.heads..end * self.heads],
                    &d_out[rows],
                    &mut Gradients {
                        dq: &mut own.dq,
                        dk: &mut own.dk,
                        dv: &mut own.dv,
                        dbias: d_table.is_some().then_some(&mut table[..]),
                    },
                );
                own.write(d_qkv, width);
                scratch.lock().push(own);
                table
            })
            .collect();
        if let Some(d_table) = d_table {
            for table in &tables {
                for (to, &d) in d_table.iter_mut().zip(table) {
                    *to += d;
                }
            }
        }
    }
}

impl SequenceGradients {
    /// Side by side into rows of `[q, k, v]`.
    fn write(&self, d_qkv: &mut [f32], width: usize) {
        let parts = [&self.dq[..], &self.dk, &self.dv];
        each_rows(d_qkv, 3 * width, |first, rows| {
            for (r, row) in rows.chunks_exact_mut(3 * width).enumerate() {
                let at = (first + r) * width..(first + r + 1) * width;
                for (to, from) in row.chunks_exact_mut(width).zip(parts) {
                    to.copy_from_slice(&from[at.clone()]);
                }
            }
        });
    }
}
