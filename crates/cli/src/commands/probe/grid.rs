//! The grid of lengths and depths.

use super::{LENGTH_MAX, ProbeArgs};
use crate::failure::Failure;

/// Cells in the order in which they are run and reported.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    /// Each once, ascending, at least one.
    pub(super) lengths: Vec<usize>,
    /// From 0 to 1.
    pub(super) depths: Vec<f64>,
    /// Of each cell.
    pub(super) samples: usize,
}

impl Grid {
    pub(super) fn new(args: &ProbeArgs) -> Result<Self, Failure> {
        let tokens = |&length: &u64| usize::try_from(length).unwrap_or(usize::MAX);
        let mut lengths: Vec<usize> = args.lengths.iter().map(tokens).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let grid = Self {
            lengths,
            depths: depths(args.depths),
            samples: args.samples as usize,
        };
        let longest = grid.longest();
        if longest > LENGTH_MAX {
            return Err(Failure::error(format!(
                "--lengths: {longest} tokens are more than the longest prompt that is built, {LENGTH_MAX}"
            )));
        }
        Ok(grid)
    }

    pub(super) fn longest(&self) -> usize {
        self.lengths.last().copied().unwrap_or(0)
    }

    /// (length, depth) of every cell.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, f64)> {
        let lengths = self.lengths.iter();
        lengths.flat_map(|&length| self.depths.iter().map(move |&depth| (length, depth)))
    }
}

/// `n` depths from 0 to 1.
fn depths(n: u16) -> Vec<f64> {
    match n {
        1 => vec![0.5],
        n => (0..n).map(|at| f64::from(at) / f64::from(n - 1)).collect(),
    }
}
