//! Greedy continuation, and batches of unequal length.

use std::sync::Arc;

use crate::cache::KvCache;
use crate::error::ModelError;
use crate::forward::{ForwardOptions, Hidden, Model};
use crate::observer::LayerObserver;

/// Several sequences of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// `[sequences][tokens]`
    pub ids: Vec<Vec<u32>>,
    /// Which tokens are real, same shape; `None`: all.
    pub mask: Option<Vec<Vec<bool>>>,
}

impl Tokens {
    /// Brings sequences to the length of the longest by `pad` ids in front.
    pub fn left_padded(sequences: &[Vec<u32>], pad: u32) -> Self {
        let longest = sequences.iter().map(Vec::len).max().unwrap_or(0);
        let row = |ids: &Vec<u32>| {
            let n_pad = longest - ids.len();
            let padded = std::iter::repeat_n(pad, n_pad).chain(ids.iter().copied());
            let mask = (0..longest).map(|t| t >= n_pad);
            (padded.collect(), mask.collect())
        };
        let (ids, mask) = sequences.iter().map(row).unzip();
        Self {
            ids,
            mask: Some(mask),
        }
    }
}

impl Model {
    /// Runs sequences one after another; a sequence's result does not depend on the others.
    ///
    /// # Errors
    /// As [`Model::forward`], and a mask with another number of sequences.
    pub fn forward_batch(
        &self,
        tokens: &Tokens,
        observer: Option<Arc<dyn LayerObserver>>,
    ) -> Result<Vec<Hidden>, ModelError> {
        if let Some(mask) = &tokens.mask
            && mask.len() != tokens.ids.len()
        {
            return Err(ModelError::Input(format!(
                "the padding mask has {} sequences, the batch {}",
                mask.len(),
                tokens.ids.len()
            )));
        }
        let mut all = Vec::with_capacity(tokens.ids.len());
        for (i, ids) in tokens.ids.iter().enumerate() {
            let options = ForwardOptions {
                observer: observer.clone(),
                key_valid: tokens.mask.as_ref().map(|mask| mask[i].as_slice()),
                ..ForwardOptions::default()
            };
            all.push(self.forward(ids, options)?);
        }
        Ok(all)
    }

    /// Greedy continuation of a prompt: at most `n_new` ids, fewer when one of `stop` comes up, which is not returned.
    ///
    /// Each token needs all weights, so keep them ([`Model::keep_weights`]) where they fit.
    ///
    /// # Errors
    /// As [`Model::forward`].
    pub fn generate(
        &self,
        prompt: &[u32],
        n_new: usize,
        stop: &[u32],
    ) -> Result<Vec<u32>, ModelError> {
        let mut cache = KvCache::new(&self.spec);
        self.generate_from(&mut cache, prompt, n_new, stop)
    }

    /// As [`Model::generate`], after what a cache already holds. The cache ends up holding everything but the last new id.
    ///
    /// # Errors
    /// As [`Model::forward`].
    pub fn generate_from(
        &self,
        cache: &mut KvCache,
        prompt: &[u32],
        n_new: usize,
        stop: &[u32],
    ) -> Result<Vec<u32>, ModelError> {
        let mut new: Vec<u32> = Vec::with_capacity(n_new);
        while new.len() < n_new {
            let options = ForwardOptions {
                cache: Some(cache),
                ..ForwardOptions::default()
            };
            let input = new.last().map_or(prompt, std::slice::from_ref);
            let hidden = self.forward(input, options)?;
            let last = hidden.n_tokens() - 1;
            // The target does not matter: only the largest logit is wanted.
            let next = self.score(&hidden, last..last + 1, &[0])?[0].argmax;
            if stop.contains(&next) {
                break;
            }
            new.push(next);
        }
        Ok(new)
    }
}
