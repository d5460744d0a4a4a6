//! Keys and values of one head, laid out for the kernel.
#![allow(
    unsafe_code,
    reason = "vector loads and stores; each block states why it is sound"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::input::{AttentionInput, Heads};
use crate::lanes::{Isa, Lanes, dispatch};
use crate::skip::{KeyNorms, block_norm};
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

/// What the tasks of one key head share: contiguous keys and values where the input's are not (or are padded), and the
/// norms of the keys where blocks may be skipped.
///
/// Contiguous, because rows a power of two apart fall into the same few cache sets; padding zeroed, because 0 times a NaN in
/// padding would be NaN.
pub(crate) struct HeadKeys {
    /// Empty if not copied.
    k: Vec<f32>,
    v: Vec<f32>,
    norms: Option<KeyNorms>,
}

impl HeadKeys {
    /// Keys and values.
    pub(crate) fn rows(&self, input: &AttentionInput<'_>, kv_head: usize) -> (Rows, Rows) {
        if self.k.is_empty() {
            return (rows_of(&input.k, kv_head), rows_of(&input.v, kv_head));
        }
        let rows = |data: &[f32]| Rows {
            ptr: data.as_ptr(),
            stride: input.shape.head_width,
        };
        (rows(&self.k), rows(&self.v))
    }

    /// Norms of the keys, where blocks may be skipped.
    pub(crate) fn norms(&self) -> Option<&KeyNorms> {
        self.norms.as_ref()
    }
}

/// Where one head is copied from and to.
struct Copy<'a> {
    from: [Rows; 2],
    to: [*mut f32; 2],
    n_keys: usize,
    width: usize,
    key_valid: Option<&'a [bool]>,
    /// Norms of the blocks, if wanted.
    norms: &'a mut [f32],
}

/// Rows asked for ahead of the copy: their distance in memory is too large for the processor to guess.
const AHEAD: usize = 16;

/// Copies the head block by block, and takes the norms of a block while it is in the cache.
#[inline(always)]
fn prepare<S: Lanes>(s: S, copy: &mut Copy<'_>) {
    let (w, width) = (S::WIDTH, copy.width);
    for block in 0..copy.n_keys.div_ceil(KEY_BLOCK) {
        let keys = block * KEY_BLOCK..((block + 1) * KEY_BLOCK).min(copy.n_keys);
        let mut source = copy.from;
        if !copy.to[0].is_null() {
            for (x, source) in source.iter_mut().enumerate() {
                for key in keys.clone() {
                    let visible = copy.key_valid.is_none_or(|valid| valid[key]);
                    // SAFETY: row `key` exists in both; a prefetch never faults.
                    unsafe {
                        let from = copy.from[x].ptr.add(key * copy.from[x].stride);
                        let to = copy.to[x].add(key * width);
                        let ahead = from.wrapping_add(AHEAD * copy.from[x].stride);
                        let mut c = 0;
                        while visible && c + w <= width {
                            s.prefetch(ahead.wrapping_add(c));
                            s.store(to.add(c), s.load(from.add(c)));
                            c += w;
                        }
                        while c < width {
                            *to.add(c) = if visible { *from.add(c) } else { 0.0 };
                            c += 1;
                        }
                    }
                }
                *source = Rows {
                    ptr: copy.to[x],
                    stride: width,
                };
            }
        }
        if let Some(norm) = copy.norms.get_mut(block) {
            // SAFETY: the block's rows exist.
            *norm = unsafe { block_norm(s, source[0], source[1], keys, width) };
        }
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
    /// Buffers of finished heads: fresh memory from the system would cost as much as the copy.
    spare: Mutex<Vec<[Vec<f32>; 2]>>,
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
            spare: Mutex::default(),
        }
    }

    pub(crate) fn take(&self, input: &AttentionInput<'_>, kv_head: usize) -> Arc<HeadKeys> {
        let mut cell = lock(&self.cells[kv_head]);
        cell.get_or_insert_with(|| Arc::new(self.prepare(input, kv_head)))
            .clone()
    }

    fn prepare(&self, input: &AttentionInput<'_>, kv_head: usize) -> HeadKeys {
        let s = &input.shape;
        let [mut k, mut v] = lock(&self.spare).pop().unwrap_or_default();
        let mut norms = vec![
            0.0;
            if self.norms {
                s.n_keys.div_ceil(KEY_BLOCK)
            } else {
                0
            }
        ];
        if self.copy {
            k.resize(s.n_keys * s.head_width, 0.0);
            v.resize(s.n_keys * s.head_width, 0.0);
        }
        let to = if self.copy {
            [k.as_mut_ptr(), v.as_mut_ptr()]
        } else {
            [std::ptr::null_mut(); 2]
        };
        let copy = &mut Copy {
            from: [rows_of(&input.k, kv_head), rows_of(&input.v, kv_head)],
            to,
            n_keys: s.n_keys,
            width: s.head_width,
            key_valid: input.key_valid,
            norms: &mut norms,
        };
        if self.copy || self.norms {
            dispatch!(self.isa, prepare, (copy: &mut Copy<'_>) = (copy));
        }
        let norms = self.norms.then(|| KeyNorms::new(norms));
        HeadKeys { k, v, norms }
    }

    /// Called by each task after its last use.
    pub(crate) fn release(&self, kv_head: usize, keys: Arc<HeadKeys>) {
        drop(keys);
        if self.tasks_left[kv_head].fetch_sub(1, Ordering::AcqRel) == 1 {
            let last = lock(&self.cells[kv_head]).take();
            if let Some(HeadKeys { k, v, .. }) = last.and_then(Arc::into_inner) {
                lock(&self.spare).push([k, v]);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
