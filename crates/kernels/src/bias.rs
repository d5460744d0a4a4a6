//! The bias of one head as the kernel reads it, and upper bounds on it.

use crate::input::{AttentionShape, HeadBias};
use crate::skip::running_max;
use crate::tile::{KEY_BLOCK, TILE_MAX, TileBias};

/// Tables of one head for a run of rows, reused from task to task.
#[derive(Debug, Default)]
pub(crate) struct BiasTables {
    /// Index of difference 0.
    zero: usize,
    /// Bias by signed difference query - key, so that the kernel reads one vector per key whatever the sign. Covers the
    /// rows, rounded up to whole tiles, against all keys they can touch. Entries that only hidden pairs and lanes without a
    /// row read are 0.
    table: Vec<f32>,
    behind: Vec<f32>,
    ahead: Vec<f32>,
    own: Vec<f32>,
    older: Vec<f32>,
}

/// Upper bounds on the bias of one head.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BiasBounds<'a> {
    None,
    /// Largest bias of a block of keys, and of that block and all older ones.
    ByKey {
        own: &'a [f32],
        older: &'a [f32],
    },
    /// Indexed like the difference table: the largest bias at this difference query - key or a larger one (`behind`, for
    /// differences >= 0), or at this difference or a smaller one (`ahead`, for those < 0; empty in causal calls).
    ByDifference {
        behind: &'a [f32],
        ahead: &'a [f32],
    },
}

impl BiasTables {
    /// Tables for rows `first .. end`; with bounds if `skip`.
    pub(crate) fn fill(
        &mut self,
        s: &AttentionShape,
        bias: HeadBias<'_>,
        first: usize,
        end: usize,
        skip: bool,
    ) {
        let back = s.query_offset + end.max(first + 1) - 1;
        match bias {
            HeadBias::None => {}
            HeadBias::ByKey(values) if skip => {
                self.own.clear();
                self.own.extend(
                    values
                        .chunks(KEY_BLOCK)
                        .filter_map(|block| running_max(block.iter()).last()),
                );
                self.older.clear();
                self.older.extend(running_max(self.own.iter()));
            }
            HeadBias::ByKey(_) => {}
            HeadBias::ByDistance(values) => {
                // Queries reach `n_keys` or one tile ahead of themselves, and back to key 0.
                self.zero = if s.causal {
                    2 * TILE_MAX + KEY_BLOCK
                } else {
                    s.n_keys + TILE_MAX
                };
                let past = &values[..values.len().min(back + 1)];
                let future = if s.causal {
                    &[]
                } else {
                    values
                        .get(1..values.len().min(s.n_keys))
                        .unwrap_or_default()
                };
                self.fill_differences(past, future, back);
                if skip {
                    self.bound_differences(past, future);
                }
            }
        }
    }

    fn fill_differences(&mut self, past: &[f32], future: &[f32], back: usize) {
        let zero = self.zero;
        self.table.clear();
        self.table.resize(zero + back + 1 + 2 * TILE_MAX, 0.0);
        self.table[zero..zero + past.len()].copy_from_slice(past);
        for (to, &b) in self.table[..zero].iter_mut().rev().zip(future) {
            *to = b;
        }
    }

    /// Outside the differences that occur there are only lanes without a row, hence minus infinity.
    fn bound_differences(&mut self, past: &[f32], future: &[f32]) {
        let zero = self.zero;
        self.behind.clear();
        self.behind
            .resize(self.table.len() + 2 * TILE_MAX, f32::NEG_INFINITY);
        let to = self.behind[zero..zero + past.len()].iter_mut().rev();
        for (to, max) in to.zip(running_max(past.iter().rev())) {
            *to = max;
        }
        self.ahead.clear();
        if !future.is_empty() {
            self.ahead.resize(zero + TILE_MAX, f32::NEG_INFINITY);
            let to = &mut self.ahead[zero - future.len()..zero];
            for (to, max) in to.iter_mut().zip(running_max(future.iter().rev())) {
                *to = max;
            }
        }
    }

    /// The bias for the kernel. `bias` is what the tables were filled from.
    pub(crate) fn tile_bias<'a>(&'a self, bias: HeadBias<'a>) -> TileBias<'a> {
        match bias {
            HeadBias::None => TileBias::None,
            HeadBias::ByKey(values) => TileBias::ByKey(values),
            HeadBias::ByDistance(_) => TileBias::ByDifference {
                table: &self.table,
                zero: self.zero,
            },
        }
    }

    /// The bounds, if filled with them.
    pub(crate) fn bounds(&self, bias: HeadBias<'_>) -> BiasBounds<'_> {
        match bias {
            HeadBias::None => BiasBounds::None,
            HeadBias::ByKey(_) => BiasBounds::ByKey {
                own: &self.own,
                older: &self.older,
            },
            HeadBias::ByDistance(_) => BiasBounds::ByDifference {
                behind: &self.behind,
                ahead: &self.ahead,
            },
        }
    }
}
