//! Buffers of a step, reused from step to step.

use crate::attention::{AttentionScratch, Bias};
use crate::ops::loss::logit_rows;
use crate::shape::{MlpKind, ModelShape};

/// What a block keeps for its backward pass, for all rows.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// `[rows, width]`: the block's input.
    pub(crate) input: Vec<f32>,
    /// `[rows, 3 width]`
    pub(crate) qkv: Vec<f32>,
    /// `[rows, width]`
    pub(crate) attended: Vec<f32>,
    /// `[heads, rows]` of each sequence.
    pub(crate) lse: Vec<f32>,
    /// `[rows, width]`: after the attention sublayer.
    pub(crate) middle: Vec<f32>,
    /// `[rows, hidden]`: SwiGLU only.
    pub(crate) gate: Vec<f32>,
    /// `[rows, hidden]`: before the nonlinearity.
    pub(crate) up: Vec<f32>,
}

/// All buffers. Grows to the largest batch seen.
#[derive(Debug, Default)]
pub struct Workspace {
    /// Bias of the last forward pass, for its backward pass.
    pub(crate) bias: Option<Bias>,
    pub(crate) kept: Vec<Kept>,
    /// `[rows, width]`: output of the last block.
    pub(crate) last: Vec<f32>,
    /// `[rows, width]`: a norm's output.
    pub(crate) normed: Vec<f32>,
    /// `[rows, hidden]`: after the nonlinearity.
    pub(crate) active: Vec<f32>,
    /// `[rows]`
    pub(crate) losses: Vec<f32>,
    pub(crate) logits: Vec<f32>,
    pub(crate) positions: Vec<u32>,
    /// Gradient of the residual stream, `[rows, width]`.
    pub(crate) dx: Vec<f32>,
    /// `[rows, width]`
    pub(crate) d_narrow: Vec<f32>,
    /// `[rows, hidden]`
    pub(crate) d_hidden: Vec<f32>,
    /// `[rows, hidden]`: SwiGLU only.
    pub(crate) d_gate: Vec<f32>,
    /// `[rows, 3 width]`
    pub(crate) d_qkv: Vec<f32>,
    pub(crate) d_table: Vec<f32>,
    pub(crate) attention: AttentionScratch,
}

impl Workspace {
    /// An empty workspace.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn prepare(&mut self, shape: &ModelShape, rows: usize) {
        let (width, hidden) = (shape.width, shape.hidden);
        let gated = shape.mlp == MlpKind::Swiglu;
        self.kept.resize_with(shape.layers, Kept::default);
        for kept in &mut self.kept {
            kept.input.resize(rows * width, 0.0);
            kept.qkv.resize(rows * 3 * width, 0.0);
            kept.attended.resize(rows * width, 0.0);
            kept.lse.resize(rows * shape.heads, 0.0);
            kept.middle.resize(rows * width, 0.0);
            kept.up.resize(rows * hidden, 0.0);
            kept.gate.resize(if gated { rows * hidden } else { 0 }, 0.0);
        }
        self.last.resize(rows * width, 0.0);
        self.normed.resize(rows * width, 0.0);
        self.active.resize(rows * hidden, 0.0);
        self.losses.resize(rows, 0.0);
        self.positions.resize(rows, 0);
    }

    pub(crate) fn prepare_backward(&mut self, shape: &ModelShape, rows: usize) {
        let (width, hidden) = (shape.width, shape.hidden);
        self.dx.resize(rows * width, 0.0);
        self.d_narrow.resize(rows * width, 0.0);
        self.d_hidden.resize(rows * hidden, 0.0);
        self.d_qkv.resize(rows * 3 * width, 0.0);
        if shape.mlp == MlpKind::Swiglu {
            self.d_gate.resize(rows * hidden, 0.0);
        }
    }

    /// Bytes of the buffers of a training step with `rows` token rows.
    pub fn bytes(shape: &ModelShape, rows: usize) -> usize {
        let (width, hidden) = (shape.width, shape.hidden);
        let gates = if shape.mlp == MlpKind::Swiglu { 2 } else { 1 };
        let kept = 6 * width + gates * hidden + shape.heads;
        let rest = 7 * width + (1 + gates) * hidden;
        let logits = logit_rows(rows, shape.vocab) * shape.vocab;
        4 * (rows * (shape.layers * kept + rest) + logits)
    }
}
