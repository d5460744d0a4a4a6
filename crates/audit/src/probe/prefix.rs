//! The beginning that prompts share, run once for all cells.
//!
//! Filler is laid out from its first unit in every cell, so the beginning of one cell is mostly the beginning of another. It is run in
//! pieces of a fixed number of tokens: where the pieces are cut depends on the cell alone, and so every key and value is the same
//! bits whether an earlier cell left it or not.

use model::{ForwardOptions, KvCache, Model};

use crate::eval::EvalError;

/// Tokens of a piece.
const PIECE: usize = 256;

/// Whole pieces that have been run, with their keys and values.
#[derive(Debug)]
pub(super) struct Prefix {
    ids: Vec<u32>,
    cache: KvCache,
}

impl Prefix {
    pub(super) fn new(model: &Model) -> Self {
        Self {
            ids: Vec::new(),
            cache: KvCache::new(model.spec()),
        }
    }

    /// A cache that holds `shared`. What is kept for later cells stays as it is: the cache is a copy from its first change on.
    pub(super) fn begin(&mut self, model: &Model, shared: &[u32]) -> Result<KvCache, EvalError> {
        let whole = shared.len() / PIECE * PIECE;
        let equal = self.ids.iter().zip(shared).take_while(|(a, b)| a == b);
        let kept = equal.count().min(whole) / PIECE * PIECE;
        if kept < whole {
            self.ids.truncate(kept);
            self.cache.truncate(kept);
            for piece in shared[kept..whole].chunks(PIECE) {
                forward(model, &mut self.cache, piece)?;
                self.ids.extend_from_slice(piece);
            }
        }
        let mut cache = self.cache.clone();
        cache.truncate(whole);
        if whole < shared.len() {
            forward(model, &mut cache, &shared[whole..])?;
        }
        Ok(cache)
    }
}

/// Runs `ids` after what the cache holds.
pub(super) fn forward(
    model: &Model,
    cache: &mut KvCache,
    ids: &[u32],
) -> Result<model::Hidden, EvalError> {
    let options = ForwardOptions {
        cache: Some(cache),
        ..ForwardOptions::default()
    };
    Ok(model.forward(ids, options)?)
}
