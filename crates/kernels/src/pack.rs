//! Keys, values and bias of one head, laid out for the kernel.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::input::{AttentionInput, AttentionShape, HeadBias, Heads};
use crate::lanes::Isa;
use crate::skip::KeyNorms;
use crate::tile::{KEY_BLOCK, Rows, TILE_MAX};

/// Where the rows of one head are.
pub(crate) fn rows_of(heads: &Heads<'_>, head: usize) -> Rows {
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

/// Bias by distance unrolled to a table by signed difference query - key, so that the kernel reads one vector per key
/// whatever the sign. Covers rows `first .. end`, rounded up to whole tiles, against all keys they can touch. Entries that
/// only hidden pairs and lanes without a row read are 0.
pub(crate) fn difference_table(
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

/// What the tasks of one key head share.
pub(crate) struct HeadKeys {
    packed: Option<Packed>,
    norms: Option<KeyNorms>,
}

impl HeadKeys {
    /// Keys and values.
    pub(crate) fn rows(&self, input: &AttentionInput<'_>, kv_head: usize) -> (Rows, Rows) {
        match &self.packed {
            Some(packed) => packed.rows(input.shape.head_width),
            None => (rows_of(&input.k, kv_head), rows_of(&input.v, kv_head)),
        }
    }

    /// Norms of the keys, where blocks may be skipped.
    pub(crate) fn norms(&self) -> Option<&KeyNorms> {
        self.norms.as_ref()
    }
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

    fn rows(&self, width: usize) -> (Rows, Rows) {
        let rows = |data: &[f32]| Rows {
            ptr: data.as_ptr(),
            stride: width,
        };
        (rows(&self.k), rows(&self.v))
    }
}

/// The key heads in use: each prepared by the first task that needs it, dropped after the last, so that only about one head
/// a thread is held.
pub(crate) struct Packs {
    isa: Isa,
    /// Keys and values are copied.
    copy: bool,
    norms: bool,
    cells: Vec<Mutex<Option<Arc<HeadKeys>>>>,
    tasks_left: Vec<AtomicUsize>,
}

impl Packs {
    pub(crate) fn new(
        isa: Isa,
        input: &AttentionInput<'_>,
        tasks_per_head: usize,
        norms: bool,
    ) -> Self {
        let s = &input.shape;
        let contiguous = |heads: &Heads<'_>| heads.row_stride == s.head_width;
        let padding = input.key_valid.is_some_and(|valid| valid.contains(&false));
        // A few queries read each key only once: copying would cost more than it saves.
        let copy =
            padding || (s.n_queries > TILE_MAX && !(contiguous(&input.k) && contiguous(&input.v)));
        let tasks = tasks_per_head * (s.n_heads / s.n_kv_heads);
        Self {
            isa,
            copy,
            norms,
            cells: (0..s.n_kv_heads).map(|_| Mutex::new(None)).collect(),
            tasks_left: (0..s.n_kv_heads).map(|_| AtomicUsize::new(tasks)).collect(),
        }
    }

    pub(crate) fn take(&self, input: &AttentionInput<'_>, kv_head: usize) -> Arc<HeadKeys> {
        let mut cell = self.cells[kv_head]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cell.get_or_insert_with(|| {
            let s = &input.shape;
            let mut keys = HeadKeys {
                packed: self.copy.then(|| Packed::new(input, kv_head)),
                norms: None,
            };
            if self.norms {
                let (k, v) = keys.rows(input, kv_head);
                keys.norms = Some(KeyNorms::new(self.isa, k, v, s.n_keys, s.head_width));
            }
            Arc::new(keys)
        })
        .clone()
    }

    /// Called by each task after its last use.
    pub(crate) fn release(&self, kv_head: usize) {
        if self.tasks_left[kv_head].fetch_sub(1, Ordering::AcqRel) == 1 {
            *self.cells[kv_head]
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}
