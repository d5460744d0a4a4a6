//! The operations of [`crate::ops`] in tensor operations that every backend has. f32 throughout, sums included.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::Shape;

use crate::ops::{FinishParams, NormParams};
use crate::spec::{Activation, NormKind};

/// A tensor of no elements stands for a missing one.
fn present<B: Backend>(tensor: FloatTensor<B>) -> Option<FloatTensor<B>> {
    (tensor.shape().num_elements() > 0).then_some(tensor)
}

/// A vector as the row of a matrix.
fn row<B: Backend>(vector: FloatTensor<B>) -> FloatTensor<B> {
    let n = vector.shape()[0];
    B::float_reshape(vector, Shape::from([1, n]))
}

/// Norm of every `params.group` channels of every row.
pub(crate) fn normalise<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: FloatTensor<B>,
    params: NormParams,
) -> FloatTensor<B> {
    let shape = x.shape();
    let groups = shape.num_elements() / params.group;
    let mut x = B::float_reshape(x, Shape::from([groups, params.group]));
    if params.kind == NormKind::LayerNorm {
        let mean = B::float_mean_dim(x.clone(), 1);
        x = B::float_sub(x, mean);
    }
    let variance = B::float_mean_dim(B::float_mul(x.clone(), x.clone()), 1);
    let deviation = B::float_sqrt(B::float_add_scalar(variance, params.eps.into()));
    let mut y = B::float_mul(B::float_div(x, deviation), row::<B>(weight));
    if let Some(bias) = present::<B>(bias) {
        y = B::float_add(y, row::<B>(bias));
    }
    B::float_reshape(y, shape)
}

/// `activation(clamp(y + bias)) * factor + residual`.
pub(crate) fn finish<B: Backend>(
    mut y: FloatTensor<B>,
    [bias, factor, residual]: [FloatTensor<B>; 3],
    params: FinishParams,
) -> FloatTensor<B> {
    if let Some(bias) = present::<B>(bias) {
        y = B::float_add(y, row::<B>(bias));
    }
    if let Some(c) = params.clamp {
        y = B::float_clamp(y, (-c).into(), c.into());
    }
    if let Some(activation) = params.activation {
        y = activate::<B>(y, activation);
    }
    if let Some(factor) = present::<B>(factor) {
        y = B::float_mul(y, factor);
    }
    match present::<B>(residual) {
        Some(residual) => B::float_add(y, residual),
        None => y,
    }
}

fn activate<B: Backend>(x: FloatTensor<B>, activation: Activation) -> FloatTensor<B> {
    let half_times_one_plus = |x: FloatTensor<B>, t: FloatTensor<B>| {
        B::float_mul(
            B::float_mul_scalar(x, 0.5.into()),
            B::float_add_scalar(t, 1.0.into()),
        )
    };
    match activation {
        // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
        Activation::GeluTanh => {
            let square = B::float_mul(x.clone(), x.clone());
            let factor =
                B::float_add_scalar(B::float_mul_scalar(square, 0.044_715.into()), 1.0.into());
            let u = B::float_mul_scalar(B::float_mul(x.clone(), factor), 0.797_884_6.into());
            half_times_one_plus(x, B::float_tanh(u))
        }
        Activation::GeluErf => {
            let scaled = B::float_mul_scalar(x.clone(), std::f64::consts::FRAC_1_SQRT_2.into());
            half_times_one_plus(x, B::float_erf(scaled))
        }
        Activation::Silu => {
            let e = B::float_exp(B::float_neg(x.clone()));
            B::float_div(x, B::float_add_scalar(e, 1.0.into()))
        }
        Activation::Relu => B::float_clamp_min(x, 0.0.into()),
    }
}

#[cfg(test)]
mod tests {
    use burn::backend::Flex;
    use burn::backend::flex::FlexTensor;

    use super::*;
    use crate::flex::tensor_from;
    use crate::ops::ModelOps;

    fn tensor<const D: usize>(shape: [usize; D], seed: usize) -> FlexTensor {
        let n: usize = shape.iter().product();
        let value = |i: usize| ((i * 37 + seed * 101) % 211) as f32 / 40.0 - 2.6;
        tensor_from((0..n).map(value).collect(), Shape::from(shape))
    }

    fn close(a: &FlexTensor, b: &FlexTensor, tolerance: f32) {
        assert_eq!(a.shape(), b.shape());
        let (a, b) = (a.to_contiguous(), b.to_contiguous());
        let (a, b) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() <= tolerance, "{a} against {b}");
        }
    }

    /// Eight roundings of values up to 8 (2^-21 each).
    const TOLERANCE: f32 = 3.9e-6;

    #[test]
    fn norms_agree_with_the_loops_of_the_cpu() {
        for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
            for (group, with_bias) in [(24, true), (8, false)] {
                let params = NormParams {
                    kind,
                    eps: 1e-5,
                    group,
                };
                let bias = tensor([if with_bias { group } else { 0 }], 3);
                let (x, w) = (tensor([5, 24], 1), tensor([group], 2));
                let plain = normalise::<Flex>(x.clone(), w.clone(), bias.clone(), params);
                close(&plain, &Flex::normalise(x, w, bias, params), TOLERANCE);
            }
        }
    }

    #[test]
    fn what_follows_a_product_agrees_with_the_loops_of_the_cpu() {
        use Activation::{GeluErf, GeluTanh, Relu, Silu};
        for activation in [None, Some(GeluErf), Some(GeluTanh), Some(Relu), Some(Silu)] {
            for (n, clamp) in [(24, Some(1.5)), (0, None)] {
                let params = FinishParams { clamp, activation };
                let rows = usize::from(n > 0) * 5;
                let others = [tensor([n], 4), tensor([rows, n], 5), tensor([rows, n], 6)];
                let y = tensor([5, 24], 1);
                let [bias, factor, residual] = others.clone();
                let loops = Flex::finish(y.clone(), bias, factor, residual, params);
                close(&finish::<Flex>(y, others, params), &loops, 8.0 * TOLERANCE);
            }
        }
    }
}
