//! Bias tables as differentiable functions of learned parameters.

use burn::tensor::{Int, Tensor};

/// KERPLE's bias by distance, `-p ln(1 + a d)` nats for `d` in `0..distances` tokens, as `[n_heads, distances]`.
///
/// `ln_p` and `ln_a` are `[n_heads]`, the logarithms of `p` and `a`, which keeps both above 0 (the form training uses). Made of
/// burn's operations: on an autodiff device the gradient of the table reaches both. Source of the formula: KERPLE,
/// logarithmic variant, as [`numerics::BiasShape::KerpleLog`].
pub fn kerple_log_bias(ln_p: Tensor<1>, ln_a: Tensor<1>, distances: usize) -> Tensor<2> {
    let device = ln_p.device();
    let n = i64::try_from(distances).unwrap_or(i64::MAX);
    let d = Tensor::<1, Int>::arange(0..n, &device)
        .float()
        .cast(ln_p.dtype())
        .unsqueeze_dim::<2>(0);
    let (p, a) = (
        ln_p.exp().unsqueeze_dim::<2>(1),
        ln_a.exp().unsqueeze_dim::<2>(1),
    );
    -(a.mul(d).log1p().mul(p))
}
