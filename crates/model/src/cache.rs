//! Keys and values of past tokens.

use burn::tensor::{Device, Tensor};

use crate::error::ModelError;
use crate::spec::ModelSpec;

/// Keys and values of one layer, in buffers with room to grow.
///
/// Buffers are written in place as long as nobody else holds them; the views given to attention are dropped before the
/// next write.
#[derive(Clone, Debug)]
pub(crate) struct LayerKv {
    k: Option<Tensor<2>>,
    v: Option<Tensor<2>>,
}

impl LayerKv {
    pub(crate) fn new() -> Self {
        Self { k: None, v: None }
    }

    /// Writes rows `at..` of both; the first `at` rows stay. `capacity` is the number of rows wanted in all.
    pub(crate) fn write(&mut self, at: usize, capacity: usize, k: Tensor<2>, v: Tensor<2>) {
        self.k = Some(write_rows(self.k.take(), at, capacity, k));
        self.v = Some(write_rows(self.v.take(), at, capacity, v));
    }

    /// The first `n` rows.
    pub(crate) fn read(&self, n: usize) -> (Tensor<2>, Tensor<2>) {
        let view = |buffer: &Option<Tensor<2>>| {
            let buffer = buffer.clone().expect("written before it is read");
            let width = buffer.dims()[1];
            buffer.slice([0..n, 0..width])
        };
        (view(&self.k), view(&self.v))
    }

    fn capacity(&self) -> usize {
        self.k.as_ref().map_or(0, |k| k.dims()[0])
    }
}

fn write_rows(buffer: Option<Tensor<2>>, at: usize, capacity: usize, rows: Tensor<2>) -> Tensor<2> {
    let [n, width] = rows.dims();
    let device = rows.device();
    let buffer = match buffer {
        Some(buffer) if buffer.dims()[0] >= at + n => buffer,
        old => {
            let capacity = capacity.max(at + n);
            let grown = Tensor::zeros([capacity, width], &device);
            match old {
                Some(old) if at > 0 => {
                    grown.slice_assign([0..at, 0..width], old.slice([0..at, 0..width]))
                }
                _ => grown,
            }
        }
    };
    buffer.slice_assign([at..at + n, 0..width], rows)
}

/// Key/value cache of one sequence, grown by [`crate::Model::forward`].
///
/// A clone shares the buffers until one of the two is written to: keep a prompt's cache and clone it per continuation.
#[derive(Clone, Debug)]
pub struct KvCache {
    pub(crate) layers: Vec<LayerKv>,
    kv_width: usize,
    valid: Vec<bool>,
}

impl KvCache {
    /// An empty cache for a model.
    pub fn new(spec: &ModelSpec) -> Self {
        Self {
            layers: vec![LayerKv::new(); spec.n_layers],
            kv_width: spec.kv_width(),
            valid: Vec::new(),
        }
    }

    /// Tokens cached, padding included.
    pub fn len(&self) -> usize {
        self.valid.len()
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.valid.is_empty()
    }

    /// Which cached tokens are real, one entry per token.
    pub fn valid(&self) -> &[bool] {
        &self.valid
    }

    /// Forgets everything after the first `len` tokens. No effect when fewer are cached.
    pub fn truncate(&mut self, len: usize) {
        self.valid.truncate(len);
    }

    /// Bytes of the buffers, room to grow included.
    pub fn bytes(&self) -> u64 {
        let rows: usize = self.layers.iter().map(LayerKv::capacity).sum();
        2 * 4 * rows as u64 * self.kv_width as u64
    }

    pub(crate) fn check(&self, spec: &ModelSpec) -> Result<(), ModelError> {
        if self.layers.len() == spec.n_layers && self.kv_width == spec.kv_width() {
            return Ok(());
        }
        Err(ModelError::Input(format!(
            "the cache was made for {} layers of width {}, the model has {} of {}",
            self.layers.len(),
            self.kv_width,
            spec.n_layers,
            spec.kv_width()
        )))
    }

    /// Records that every layer now holds these tokens too.
    pub(crate) fn extend(&mut self, n: usize, valid: Option<&[bool]>) {
        match valid {
            Some(valid) => self.valid.extend_from_slice(valid),
            None => self.valid.resize(self.valid.len() + n, true),
        }
    }

    /// Rows to allocate when `needed` do not fit: half as much again, so that decoding copies rarely.
    pub(crate) fn growth(&self, needed: usize) -> usize {
        let capacity = self.layers.first().map_or(0, LayerKv::capacity);
        if capacity == 0 {
            needed
        } else {
            needed.max(capacity + capacity / 2)
        }
    }
}

/// A `[rows, width]` buffer of zeros to write row chunks into.
pub(crate) fn buffer(rows: usize, width: usize, device: &Device) -> Tensor<2> {
    Tensor::zeros([rows, width], device)
}
