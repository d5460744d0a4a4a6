//! Which tokens a sample is: a function of seed, stage and number, so that resuming needs no state.

use crate::error::TrainError;
use crate::rng;

/// Windows of `length` inputs and their successors from a stream of `tokens` ids.
///
/// An epoch visits `(tokens - 1) / length` windows that do not overlap, in a random order; the windows of an epoch start at a
/// random offset, so that all ids are seen over several epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// Ids of the stream.
    tokens: u64,
    /// Inputs of a window.
    length: u64,
    seed: u64,
}

impl Sampler {
    /// A sampler; `what` names the file for messages.
    ///
    /// # Errors
    /// A stream that holds not even one window and its last target.
    pub fn new(tokens: usize, length: usize, seed: u64, what: &str) -> Result<Self, TrainError> {
        if tokens <= length {
            return Err(TrainError::config(format!(
                "{what}: holds {tokens} tokens; a sequence of {length} needs {} (its last token is a target): use more text or a shorter length",
                length + 1
            )));
        }
        Ok(Self {
            tokens: tokens as u64,
            length: length as u64,
            seed,
        })
    }

    /// Windows of an epoch.
    pub fn windows(&self) -> u64 {
        (self.tokens - 1) / self.length
    }

    /// First id of sample `number`; its inputs are `start .. start + length`, its targets one further.
    pub fn start(&self, number: u64) -> usize {
        let windows = self.windows();
        let (epoch, index) = (number / windows, number % windows);
        let slack = self.tokens - 1 - windows * self.length;
        let offset = rng::hash(&[self.seed, epoch, 1]) % (slack + 1);
        let window = permute(index, windows, rng::hash(&[self.seed, epoch, 2]));
        (offset + window * self.length) as usize
    }
}

/// A permutation of `0 .. n`, applied to `index`: a Feistel network over the next even number of bits, walked until inside.
fn permute(index: u64, n: u64, key: u64) -> u64 {
    let bits = (64 - (n - 1).max(1).leading_zeros())
        .next_multiple_of(2)
        .max(2);
    let half = bits / 2;
    let mask = (1u64 << half) - 1;
    let mut x = index;
    loop {
        let (mut left, mut right) = (x >> half, x & mask);
        for round in 0..4u64 {
            let mut f = right
                .wrapping_add(round)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ key.rotate_left(16 * round as u32);
            f = (f ^ (f >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (left, right) = (right, left ^ ((f >> 32) & mask));
        }
        x = (left << half) | right;
        if x < n {
            return x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_visits_every_window_once() {
        for (tokens, length) in [
            (65usize, 64usize),
            (66, 64),
            (1000, 7),
            (4097, 16),
            (3, 1),
            (2, 1),
        ] {
            let sampler = Sampler::new(tokens, length, 42, "t").unwrap();
            let windows = sampler.windows();
            for epoch in 0..3 {
                let mut starts: Vec<usize> = (0..windows)
                    .map(|i| sampler.start(epoch * windows + i))
                    .collect();
                starts.sort_unstable();
                for pair in starts.windows(2) {
                    assert_eq!(pair[1] - pair[0], length);
                }
                assert!(starts[starts.len() - 1] + length < tokens);
            }
        }
    }

    #[test]
    fn the_edges_of_a_short_corpus() {
        for tokens in [0, 1, 64] {
            let error = Sampler::new(tokens, 64, 1, "corpus.tok")
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("corpus.tok") && error.contains("needs 65"),
                "{error}"
            );
        }
        let starts = |tokens: usize| {
            let sampler = Sampler::new(tokens, 64, 1, "t").unwrap();
            let mut starts: Vec<usize> = (0..200).map(|i| sampler.start(i)).collect();
            starts.sort_unstable();
            starts.dedup();
            starts
        };
        assert_eq!(starts(65), [0]);
        assert_eq!(starts(66), [0, 1]);
    }

    #[test]
    fn epochs_differ_and_seeds_differ() {
        let order = |seed: u64, epoch: u64| -> Vec<usize> {
            let sampler = Sampler::new(10_001, 10, seed, "t").unwrap();
            (0..1000).map(|i| sampler.start(epoch * 1000 + i)).collect()
        };
        assert!(order(1, 0) != order(1, 1) && order(1, 0) != order(2, 0));
        // A random order leaves about one window in its place.
        let fixed = order(1, 0)
            .iter()
            .enumerate()
            .filter(|(i, s)| **s == 10 * i)
            .count();
        assert!(fixed < 8, "{fixed}");
    }
}
