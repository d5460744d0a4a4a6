//! The forward pass.

use kernels::matrix::{Matrix, Store, multiply};

use super::{Batch, Network, Workspace, part};
use crate::attention::Attention;
use crate::ops::activation;
use crate::ops::columns;
use crate::ops::loss::{self, HeadGradient, HeadInput};
use crate::ops::norm::Norm;
use crate::ops::rotary;
use crate::params::Affine;
use crate::shape::{NORM_EPS, Position};

impl Network {
    pub(crate) fn norm_of<'p>(&self, params: &'p [f32], at: &Affine) -> Norm<'p> {
        Norm {
            kind: self.shape.norm,
            eps: NORM_EPS,
            weight: part(params, &at.weight),
            bias: at.bias.as_ref().map(|range| part(params, range)),
        }
    }

    /// Runs all blocks; their kept states and the last output end up in `work`.
    pub(crate) fn forward(
        &self,
        params: &[f32],
        batch: &Batch<'_>,
        dropout: Option<u64>,
        work: &mut Workspace,
    ) {
        let shape = &self.shape;
        let (rows, width, hidden) = (batch.ids.len(), shape.width, shape.hidden);
        work.prepare(shape, rows);
        let bias = self.bias(params, super::longest(batch.sequences));
        let attention = Attention {
            heads: shape.heads,
            head_width: shape.head_width(),
            bias: &bias,
            rule: &self.rule,
            sequences: batch.sequences,
        };
        for &(first, end) in batch.sequences {
            for (position, to) in work.positions[first..end].iter_mut().enumerate() {
                *to = position as u32;
            }
        }
        let Workspace {
            kept,
            last,
            normed,
            active,
            positions,
            ..
        } = work;
        let table = part(params, &self.layout.embedding);
        loss::embed(table, width, batch.ids, &mut kept[0].input);
        if let Some(mask) = self.mask(dropout, 0) {
            mask.apply(&mut kept[0].input);
        }
        for (l, layer) in self.layout.layers.iter().enumerate() {
            let (here, after) = kept.split_at_mut(l + 1);
            let here = &mut here[l];
            let next = after.first_mut().map_or(&mut *last, |kept| &mut kept.input);

            self.norm_of(params, &layer.norm1)
                .forward(&here.input, normed);
            linear(params, &layer.qkv, normed, width, &mut here.qkv);
            if let Position::Rope { base } = self.position {
                let (heads, head_width) = (shape.heads, shape.head_width());
                rotary::rotate(&mut here.qkv, positions, heads, head_width, base, 1.0);
            }
            attention.forward(&here.qkv, &mut here.attended, &mut here.lse);
            self.residual(
                params,
                &layer.out,
                (&here.attended, width),
                &here.input,
                &mut here.middle,
                self.mask(dropout, 2 * l as u64 + 1),
            );

            self.norm_of(params, &layer.norm2)
                .forward(&here.middle, normed);
            linear(params, &layer.up, normed, width, &mut here.up);
            match &layer.gate {
                Some(gate) => {
                    linear(params, gate, normed, width, &mut here.gate);
                    activation::swiglu(&here.gate, &here.up, active);
                }
                None => activation::gelu(&here.up, active),
            }
            self.residual(
                params,
                &layer.down,
                (active, hidden),
                &here.middle,
                next,
                self.mask(dropout, 2 * l as u64 + 2),
            );
        }
        work.bias = Some(bias);
    }

    /// `out = residual + dropout(W x + b)`.
    fn residual(
        &self,
        params: &[f32],
        at: &Affine,
        (x, inner): (&[f32], usize),
        residual: &[f32],
        out: &mut [f32],
        mask: Option<crate::ops::dropout::Mask>,
    ) {
        let width = self.shape.width;
        let bias = at.bias.as_ref().map(|range| part(params, range));
        let rows = out.len() / width;
        let (x, weight) = (
            Matrix::new(x, rows, inner),
            Matrix::new(part(params, &at.weight), width, inner).t(),
        );
        match mask {
            // The product is added to what is there already.
            None => {
                columns::copy_plus(out, residual, width, bias);
                multiply(out, x, weight, Store::Add);
            }
            Some(mask) => {
                columns::fill_rows(out, width, bias);
                multiply(out, x, weight, Store::Add);
                mask.apply(out);
                crate::ops::add_assign(out, residual);
            }
        }
    }

    /// `work.normed = norm(last)`.
    pub(crate) fn final_norm(&self, params: &[f32], work: &mut Workspace) {
        self.norm_of(params, &self.layout.norm)
            .forward(&work.last, &mut work.normed);
    }

    /// Losses, and with a gradient: that of the head, and that of the last norm's output in `work.d_narrow`.
    pub(crate) fn head(
        &self,
        params: &[f32],
        batch: &Batch<'_>,
        gradient: Option<&mut [f32]>,
        work: &mut Workspace,
    ) {
        self.final_norm(params, work);
        if gradient.is_some() {
            work.prepare_backward(&self.shape, batch.ids.len());
        }
        let range = self.head_range();
        let input = HeadInput {
            x: &work.normed,
            weight: part(params, &range),
            targets: batch.targets,
            weights: batch.weights,
            width: self.shape.width,
            vocab: self.shape.vocab,
        };
        let gradient = gradient.map(|gradient| HeadGradient {
            dx: &mut work.d_narrow,
            d_weight: &mut gradient[range],
        });
        loss::head_loss(&input, gradient, &mut work.losses, &mut work.logits);
    }
}

/// `out = W x + b`.
fn linear(params: &[f32], at: &Affine, x: &[f32], inner: usize, out: &mut [f32]) {
    let rows = x.len() / inner;
    let outer = at.weight.len() / inner;
    let store = match &at.bias {
        Some(bias) => {
            columns::fill_rows(out, outer, Some(part(params, bias)));
            Store::Add
        }
        None => Store::Set,
    };
    multiply(
        out,
        Matrix::new(x, rows, inner),
        Matrix::new(part(params, &at.weight), outer, inner).t(),
        store,
    );
}
