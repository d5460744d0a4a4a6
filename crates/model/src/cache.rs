//! Keys and values of past tokens.

use crate::spec::ModelSpec;

/// Key/value cache of one sequence, grown by [`crate::Model::forward`].
#[derive(Debug, Clone)]
pub struct KvCache {
    len: usize,
}

impl KvCache {
    /// An empty cache.
    pub fn new(spec: &ModelSpec) -> Self {
        let _ = spec;
        Self { len: 0 }
    }

    /// Tokens cached.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
