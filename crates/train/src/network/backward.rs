//! The backward pass: block by block from the last, norms and nonlinearities computed again.

use kernels::matrix::{Matrix, Store, multiply};

use super::{Batch, Network, Workspace, longest, part};
use crate::attention::Attention;
use crate::ops::activation;
use crate::ops::columns;
use crate::ops::loss;
use crate::ops::norm::Norm;
use crate::ops::rotary;
use crate::params::Affine;
use crate::shape::Position;

impl Network {
    /// Adds the gradients of everything below the head. `work` is as [`Network::head`] left it. `watch` receives the gradient of
    /// each layer's attention output, last layer first.
    pub(crate) fn backward(
        &self,
        params: &[f32],
        batch: &Batch<'_>,
        dropout: Option<u64>,
        gradient: &mut [f32],
        work: &mut Workspace,
        mut watch: Option<&mut Vec<Vec<f32>>>,
    ) {
        let shape = &self.shape;
        let (width, hidden) = (shape.width, shape.hidden);
        let bias = work
            .bias
            .take()
            .unwrap_or_else(|| self.bias(params, longest(batch.sequences)));
        let attention = Attention {
            heads: shape.heads,
            head_width: shape.head_width(),
            bias: &bias,
            rule: &self.rule,
            sequences: batch.sequences,
        };
        let learned = self.layout.position.is_some();
        work.d_table.clear();
        work.d_table
            .resize(if learned { bias.table.len() } else { 0 }, 0.0);
        let Workspace {
            kept,
            last,
            normed,
            active,
            positions,
            dx,
            d_narrow,
            d_hidden,
            d_gate,
            d_qkv,
            d_table,
            attention: scratch,
            ..
        } = work;
        dx.fill(0.0);
        norm_backward(
            self.norm_of(params, &self.layout.norm),
            &self.layout.norm,
            last,
            d_narrow,
            dx,
            gradient,
        );
        for (l, layer) in self.layout.layers.iter().enumerate().rev() {
            let here = &mut kept[l];

            // Feed-forward layer: middle -> next input.
            let d_out = self.masked(dx, dropout, 2 * l as u64 + 2, d_narrow);
            linear_input(params, &layer.down, d_out, width, d_hidden, Store::Set);
            match &layer.gate {
                Some(_) => {
                    activation::swiglu_backward(&here.gate, &here.up, active, d_hidden, d_gate)
                }
                None => activation::gelu_backward(&here.up, active, d_hidden),
            }
            linear_weight(gradient, &layer.down, d_out, width, active);
            let norm2 = self.norm_of(params, &layer.norm2);
            norm2.forward(&here.middle, normed);
            linear_weight(gradient, &layer.up, d_hidden, hidden, normed);
            linear_input(params, &layer.up, d_hidden, hidden, d_narrow, Store::Set);
            if let Some(gate) = &layer.gate {
                linear_weight(gradient, gate, d_gate, hidden, normed);
                linear_input(params, gate, d_gate, hidden, d_narrow, Store::Add);
            }
            norm_backward(norm2, &layer.norm2, &here.middle, d_narrow, dx, gradient);

            // Attention: input -> middle.
            let d_out = self.masked(dx, dropout, 2 * l as u64 + 1, normed);
            linear_weight(gradient, &layer.out, d_out, width, &here.attended);
            linear_input(params, &layer.out, d_out, width, d_narrow, Store::Set);
            if let Some(watch) = &mut watch {
                watch.push(d_narrow.clone());
            }
            attention.backward(
                &here.qkv,
                &here.attended,
                &here.lse,
                d_narrow,
                d_qkv,
                learned.then_some(&mut d_table[..]),
                scratch,
            );
            if let Position::Rope { base } = self.position {
                let (heads, head_width) = (shape.heads, shape.head_width());
                rotary::rotate(d_qkv, positions, heads, head_width, base, -1.0);
            }
            let norm1 = self.norm_of(params, &layer.norm1);
            norm1.forward(&here.input, normed);
            linear_weight(gradient, &layer.qkv, d_qkv, 3 * width, normed);
            linear_input(params, &layer.qkv, d_qkv, 3 * width, d_narrow, Store::Set);
            norm_backward(norm1, &layer.norm1, &here.input, d_narrow, dx, gradient);
        }
        if let Some(mask) = self.mask(dropout, 0) {
            mask.apply(dx);
        }
        loss::embed_backward(
            &mut gradient[self.layout.embedding.clone()],
            width,
            batch.ids,
            dx,
        );
        if let Some(range) = &self.layout.position {
            self.position_gradient(params, &bias, d_table, &mut gradient[range.clone()]);
        }
    }

    /// A step without dropout that also returns the gradient of every layer's attention output, `[rows, width]`, first layer first.
    pub(crate) fn attention_gradients(
        &self,
        params: &[f32],
        batch: &Batch<'_>,
        gradient: &mut [f32],
        work: &mut Workspace,
    ) -> Vec<Vec<f32>> {
        let mut watched = Vec::new();
        self.forward(params, batch, None, work);
        self.head(params, batch, Some(gradient), work);
        self.backward(params, batch, None, gradient, work, Some(&mut watched));
        watched.reverse();
        watched
    }

    /// The gradient of a sublayer's output: that of the residual stream, through the dropout mask where there is one.
    fn masked<'b>(
        &self,
        dx: &'b [f32],
        dropout: Option<u64>,
        site: u64,
        buffer: &'b mut [f32],
    ) -> &'b [f32] {
        match self.mask(dropout, site) {
            None => dx,
            Some(mask) => {
                buffer.copy_from_slice(dx);
                mask.apply(buffer);
                buffer
            }
        }
    }
}

/// `d_weight += dy^T x`, `d_bias += sum of rows of dy`.
fn linear_weight(gradient: &mut [f32], at: &Affine, dy: &[f32], outer: usize, x: &[f32]) {
    let rows = dy.len() / outer;
    let inner = at.weight.len() / outer;
    multiply(
        &mut gradient[at.weight.clone()],
        Matrix::new(dy, rows, outer).t(),
        Matrix::new(x, rows, inner),
        Store::Add,
    );
    if let Some(bias) = &at.bias {
        columns::add_column_sums(&mut gradient[bias.clone()], dy);
    }
}

/// `dx = dy W` or `dx += dy W`.
fn linear_input(
    params: &[f32],
    at: &Affine,
    dy: &[f32],
    outer: usize,
    dx: &mut [f32],
    store: Store,
) {
    let rows = dy.len() / outer;
    let inner = at.weight.len() / outer;
    multiply(
        dx,
        Matrix::new(dy, rows, outer),
        Matrix::new(part(params, &at.weight), outer, inner),
        store,
    );
}

fn norm_backward(
    norm: Norm<'_>,
    at: &Affine,
    x: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    gradient: &mut [f32],
) {
    // Weight and bias lie side by side.
    let width = at.weight.len();
    let end = at.bias.as_ref().map_or(at.weight.end, |bias| bias.end);
    let (d_weight, d_bias) = gradient[at.weight.start..end].split_at_mut(width);
    let d_bias = at.bias.is_some().then_some(d_bias);
    norm.backward(x, dy, dx, d_weight, d_bias);
}
