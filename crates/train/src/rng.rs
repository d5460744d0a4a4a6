//! Random numbers as functions of where they are used: every use has its own stream, so that resuming needs no generator state
//! and adding a use moves no other.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// 64 bits that depend on every part (BLAKE3).
pub(crate) fn hash(parts: &[u64]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&part.to_le_bytes());
    }
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// 64 bits of a name.
pub(crate) fn name(text: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream of these parts.
    pub(crate) fn of(parts: &[u64]) -> Self {
        Self(ChaCha8Rng::seed_from_u64(hash(parts)))
    }

    /// Uniform in `0 .. n`, without bias. `n` is at least 1.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        // Reject the incomplete last range.
        let limit = u64::MAX - u64::MAX % n;
        loop {
            let x = self.0.next_u64();
            if x < limit {
                return x % n;
            }
        }
    }

    /// Uniform in `0 .. n`, for indices.
    pub(crate) fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// Uniform in `0 .. 1`, 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Two independent standard normal numbers (Box and Muller).
    pub(crate) fn normal_pair(&mut self) -> (f64, f64) {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * self.unit()).sin_cos();
        (radius * cos, radius * sin)
    }

    /// Shuffles in place (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }
}
