//! The decoder's forward and backward pass on plain slices.
//!
//! Below the tensor library on purpose: a step is a fixed list of matrix products, attention calls and row loops over buffers
//! that are allocated once. What is kept for the backward pass is, per token and layer, the two residual states, q, k and v,
//! the attention output and the feed-forward layer before its nonlinearity; norms and the nonlinearity are computed again, logits
//! exist a few rows at a time.

mod backward;
mod buffers;
mod forward;
mod position;

use crate::attention::AttentionRule;
use crate::params::Layout;
use crate::rng;
use crate::shape::{ModelShape, Position};

pub use buffers::Workspace;

/// A decoder without its parameters' values.
#[derive(Clone, Debug)]
pub struct Network {
    /// Sizes and choices.
    pub shape: ModelShape,
    /// Position scheme.
    pub position: Position,
    /// Which weights are zero.
    pub rule: AttentionRule,
    /// Where parameters lie.
    pub layout: Layout,
}

/// Token rows of one call.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// `[rows]`: all sequences, one after the other.
    pub ids: &'a [u32],
    /// `[rows]`: what each row should predict.
    pub targets: &'a [u32],
    /// `[rows]`: weight of each row's loss in the sum that is differentiated; 0: not counted.
    pub weights: &'a [f32],
    /// First row and end of every sequence, without gaps. Attention stays inside a sequence and positions start at 0.
    pub sequences: &'a [(usize, usize)],
}

impl Network {
    /// A network.
    pub fn new(shape: ModelShape, position: Position, rule: AttentionRule) -> Self {
        let layout = Layout::new(&shape, &position);
        Self {
            shape,
            position,
            rule,
            layout,
        }
    }

    /// Loss of every row in nats (0 where its weight is 0), without gradients.
    pub fn losses<'w>(
        &self,
        params: &[f32],
        batch: &Batch<'_>,
        work: &'w mut Workspace,
    ) -> &'w [f32] {
        self.forward(params, batch, None, work);
        self.head(params, batch, None, work);
        &work.losses
    }

    /// Loss of every row, and the gradient of `sum(weight * loss)` added to `gradient`. `dropout_key` identifies seed, step and
    /// micro-batch.
    pub fn step<'w>(
        &self,
        params: &[f32],
        batch: &Batch<'_>,
        dropout_key: u64,
        gradient: &mut [f32],
        work: &'w mut Workspace,
    ) -> &'w [f32] {
        assert_eq!(
            gradient.len(),
            self.layout.len(),
            "one gradient a parameter"
        );
        let key = (self.shape.dropout > 0.0).then_some(dropout_key);
        self.forward(params, batch, key, work);
        self.head(params, batch, Some(gradient), work);
        self.backward(params, batch, key, gradient, work, None);
        &work.losses
    }

    /// Logits of the given rows, `[rows.len(), vocab]`, without gradients.
    pub fn logits(
        &self,
        params: &[f32],
        batch: &Batch<'_>,
        rows: &[usize],
        work: &mut Workspace,
    ) -> Vec<f32> {
        self.forward(params, batch, None, work);
        self.final_norm(params, work);
        let width = self.shape.width;
        let picked: Vec<f32> = rows
            .iter()
            .flat_map(|&r| work.normed[r * width..(r + 1) * width].iter().copied())
            .collect();
        let mut logits = vec![0.0; rows.len() * self.shape.vocab];
        kernels::matrix::multiply(
            &mut logits,
            kernels::matrix::Matrix::new(&picked, rows.len(), width),
            kernels::matrix::Matrix::new(&params[self.head_range()], self.shape.vocab, width).t(),
            kernels::matrix::Store::Set,
        );
        logits
    }

    pub(crate) fn head_range(&self) -> std::ops::Range<usize> {
        self.layout
            .head
            .clone()
            .unwrap_or_else(|| self.layout.embedding.clone())
    }

    fn mask(&self, key: Option<u64>, site: u64) -> Option<crate::ops::dropout::Mask> {
        key.map(|key| crate::ops::dropout::Mask {
            key: rng::hash(&[key, site]),
            rate: self.shape.dropout,
        })
    }
}

/// A parameter's values.
pub(crate) fn part<'a>(params: &'a [f32], range: &std::ops::Range<usize>) -> &'a [f32] {
    &params[range.clone()]
}

/// Longest sequence of a batch.
pub(crate) fn longest(sequences: &[(usize, usize)]) -> usize {
    sequences.iter().map(|(a, b)| b - a).max().unwrap_or(0)
}
