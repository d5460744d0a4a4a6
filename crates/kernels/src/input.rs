//! What attention is given: shapes, strided heads, and a bias in linear memory.

pub use numerics::CapOrder;

/// Rows of several heads in one slice: element (token `t`, head `h`, channel `c`) lies at
/// `offset + t * row_stride + h * head_stride + c`.
///
/// A plain `[tokens, heads * width]` matrix has `row_stride = heads * width`, `head_stride = width`; a fused
/// projection `[tokens, 3 * heads * width]` is three of these with different offsets.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    /// The elements.
    pub data: &'a [f32],
    /// Index of element (0, 0, 0).
    pub offset: usize,
    /// Elements from one token to the next.
    pub row_stride: usize,
    /// Elements from one head to the next.
    pub head_stride: usize,
}

impl<'a> Heads<'a> {
    /// A contiguous `[tokens, n_heads * width]` matrix.
    pub fn packed(data: &'a [f32], n_heads: usize, width: usize) -> Self {
        Self {
            data,
            offset: 0,
            row_stride: n_heads * width,
            head_stride: width,
        }
    }

    /// The `width` channels of token `t`, head `h`.
    pub fn row(&self, t: usize, h: usize, width: usize) -> &'a [f32] {
        let start = self.offset + t * self.row_stride + h * self.head_stride;
        &self.data[start..start + width]
    }

    /// Panics, naming `what`, unless all `n_rows * n_heads` rows of `width` lie inside the slice.
    pub(crate) fn check(&self, what: &str, n_rows: usize, n_heads: usize, width: usize) {
        if n_rows == 0 || n_heads == 0 {
            return;
        }
        let end =
            self.offset + (n_rows - 1) * self.row_stride + (n_heads - 1) * self.head_stride + width;
        assert!(
            end <= self.data.len(),
            "{what}: {n_rows} rows of {n_heads} heads of width {width} end at element {end}, the slice has {}",
            self.data.len()
        );
    }
}

/// The bias of every (head, query, key), in nats, added after the scale. Linear memory: a bias depends on the key alone
/// or on the distance alone. Every convention of a model family lowers to one of these, with its own rounding already
/// applied to the values.
#[derive(Clone, Copy, Debug)]
pub enum BiasTable<'a> {
    /// No bias at all.
    None,
    /// Key-position form: `values[head * n_keys + key]`, shape `[heads, n_keys]`.
    ByKey {
        /// `[heads, n_keys]`
        values: &'a [f32],
    },
    /// Relative form: `values[head * (max_distance + 1) + |query - key|]`, shape `[heads, max_distance + 1]`.
    ByDistance {
        /// `[heads, max_distance + 1]`, with every distance that occurs inside the mask.
        values: &'a [f32],
    },
}

impl<'a> BiasTable<'a> {
    /// The view of one head among `n_heads`.
    pub(crate) fn head(&self, head: usize, n_heads: usize) -> HeadBias<'a> {
        let part = |values: &'a [f32]| {
            let n = values.len() / n_heads;
            &values[head * n..(head + 1) * n]
        };
        match *self {
            BiasTable::None => HeadBias::None,
            BiasTable::ByKey { values } => HeadBias::ByKey(part(values)),
            BiasTable::ByDistance { values } => HeadBias::ByDistance(part(values)),
        }
    }
}

/// [`BiasTable`] of a single head.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HeadBias<'a> {
    None,
    ByKey(&'a [f32]),
    ByDistance(&'a [f32]),
}

impl HeadBias<'_> {
    /// Bias in nats of the pair (`query`, `key`), both as key indices.
    pub(crate) fn at(&self, query: usize, key: usize) -> f32 {
        match self {
            HeadBias::None => 0.0,
            HeadBias::ByKey(values) => values[key],
            HeadBias::ByDistance(values) => values[query.abs_diff(key)],
        }
    }
}

/// Sizes and rules of one attention call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Query rows.
    pub n_queries: usize,
    /// Key and value rows, cached ones included.
    pub n_keys: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`. Query head `h` reads key head `h / (n_heads / n_kv_heads)`.
    pub n_kv_heads: usize,
    /// Channels of a head, at least 1.
    pub head_width: usize,
    /// Key index of query 0: the number of cached keys when decoding.
    pub query_offset: usize,
    /// Key `j` is visible to query `i` only if `j <= query_offset + i`.
    pub causal: bool,
    /// Factor on `q . k`, usually `1 / sqrt(head_width)`.
    pub scale: f32,
    /// `cap * tanh(x / cap)` in nats, before or after the bias.
    pub soft_cap: Option<(f32, CapOrder)>,
}

impl AttentionShape {
    /// Number of keys, from key 0 on, that the causal rule lets query row `row` see.
    pub fn visible_keys(&self, row: usize) -> usize {
        if self.causal {
            (self.query_offset + row + 1).min(self.n_keys)
        } else {
            self.n_keys
        }
    }

    /// Key head that query head `head` reads.
    pub fn kv_head(&self, head: usize) -> usize {
        head / (self.n_heads / self.n_kv_heads)
    }
}

/// Everything attention reads.
#[derive(Clone, Copy, Debug)]
pub struct AttentionInput<'a> {
    /// Sizes and rules.
    pub shape: AttentionShape,
    /// Queries: `n_queries` rows of `n_heads` heads.
    pub q: Heads<'a>,
    /// Keys: `n_keys` rows of `n_kv_heads` heads.
    pub k: Heads<'a>,
    /// Values: `n_keys` rows of `n_kv_heads` heads.
    pub v: Heads<'a>,
    /// Bias in nats.
    pub bias: BiasTable<'a>,
    /// `[n_keys]`, false for padding, which no query sees. `None`: all keys are real.
    pub key_valid: Option<&'a [bool]>,
}

impl AttentionInput<'_> {
    /// Panics with the name of the wrong field unless every size agrees. A mismatch is a mistake of the caller's
    /// program, never of a user's file.
    pub fn check(&self) {
        let s = &self.shape;
        assert!(s.head_width > 0, "head_width is 0");
        assert!(s.n_heads > 0, "n_heads is 0");
        assert!(
            s.n_kv_heads > 0 && s.n_heads.is_multiple_of(s.n_kv_heads),
            "n_kv_heads {} does not divide n_heads {}",
            s.n_kv_heads,
            s.n_heads
        );
        self.q.check("q", s.n_queries, s.n_heads, s.head_width);
        self.k.check("k", s.n_keys, s.n_kv_heads, s.head_width);
        self.v.check("v", s.n_keys, s.n_kv_heads, s.head_width);
        if let Some(valid) = self.key_valid {
            assert!(
                valid.len() == s.n_keys,
                "key_valid has {} entries for {} keys",
                valid.len(),
                s.n_keys
            );
        }
        match self.bias {
            BiasTable::None => {}
            BiasTable::ByKey { values } => assert!(
                values.len() == s.n_heads * s.n_keys,
                "bias by key has {} entries for {} heads of {} keys",
                values.len(),
                s.n_heads,
                s.n_keys
            ),
            BiasTable::ByDistance { values } => {
                let empty = s.n_queries == 0 || s.n_keys == 0;
                let needed = if empty { 0 } else { self.max_distance() + 1 };
                assert!(
                    values.len().is_multiple_of(s.n_heads) && values.len() / s.n_heads >= needed,
                    "bias by distance has {} entries for {} heads of at least {needed} distances",
                    values.len(),
                    s.n_heads
                );
            }
        }
        if let Some((cap, _)) = s.soft_cap {
            assert!(cap > 0.0, "soft cap {cap} is not positive");
        }
    }

    /// Largest `|query - key|` inside the mask, in tokens (0 for an empty call).
    pub fn max_distance(&self) -> usize {
        let s = &self.shape;
        if s.n_queries == 0 || s.n_keys == 0 {
            return 0;
        }
        let back = s.query_offset + s.n_queries - 1;
        if s.causal {
            back
        } else {
            back.max((s.n_keys - 1).saturating_sub(s.query_offset))
        }
    }
}
