//! The nonlinearity of the feed-forward layer, forward and derivative.

use kernels::erf::{erf_from, erfc_exponent};
use kernels::exp::exp_in_place;
use rayon::prelude::*;

use super::{TASK_VALUES, simd};

/// Values handled at a time: their exponentials live on the stack.
const CHUNK: usize = 512;

/// `1 / sqrt(2 pi)`.
const INV_SQRT_TWO_PI: f32 = 0.398_942_3;

/// `out = gelu(x)`, `x/2 (1 + erf(x / sqrt 2))`.
pub(crate) fn gelu(x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "one output a value");
    out.par_chunks_mut(TASK_VALUES)
        .zip(x.par_chunks(TASK_VALUES))
        .for_each(|(out, x)| {
            for (out, x) in out.chunks_mut(CHUNK).zip(x.chunks(CHUNK)) {
                let mut e = [0f32; CHUNK];
                let e = &mut e[..x.len()];
                simd(
                    #[inline(always)]
                    || {
                        for (e, &x) in e.iter_mut().zip(x) {
                            *e = erfc_exponent(x * std::f32::consts::FRAC_1_SQRT_2);
                        }
                    },
                );
                exp_in_place(e);
                simd(
                    #[inline(always)]
                    || {
                        for ((out, &x), &e) in out.iter_mut().zip(x).zip(&*e) {
                            *out =
                                0.5 * x * (1.0 + erf_from(x * std::f32::consts::FRAC_1_SQRT_2, e));
                        }
                    },
                );
            }
        });
}

/// `act = gelu(x)` again, and `d *= gelu'(x)`, with `gelu'(x) = Phi(x) + x phi(x)`.
pub(crate) fn gelu_backward(x: &[f32], act: &mut [f32], d: &mut [f32]) {
    assert!(
        x.len() == d.len() && x.len() == act.len(),
        "one gradient a value"
    );
    d.par_chunks_mut(TASK_VALUES)
        .zip(act.par_chunks_mut(TASK_VALUES))
        .zip(x.par_chunks(TASK_VALUES))
        .for_each(|((d, act), x)| {
            for ((d, act), x) in d
                .chunks_mut(CHUNK)
                .zip(act.chunks_mut(CHUNK))
                .zip(x.chunks(CHUNK))
            {
                let mut e = [0f32; 2 * CHUNK];
                let (tail, density) = e.split_at_mut(CHUNK);
                let (tail, density) = (&mut tail[..x.len()], &mut density[..x.len()]);
                simd(
                    #[inline(always)]
                    || {
                        for ((tail, density), &x) in tail.iter_mut().zip(&mut *density).zip(x) {
                            *tail = erfc_exponent(x * std::f32::consts::FRAC_1_SQRT_2);
                            *density = -0.5 * x * x;
                        }
                    },
                );
                exp_in_place(tail);
                exp_in_place(density);
                simd(
                    #[inline(always)]
                    || {
                        for ((((d, act), &x), &tail), &density) in
                            d.iter_mut().zip(act).zip(x).zip(&*tail).zip(&*density)
                        {
                            let below =
                                0.5 + 0.5 * erf_from(x * std::f32::consts::FRAC_1_SQRT_2, tail);
                            *act = x * below;
                            *d *= below + x * density * INV_SQRT_TWO_PI;
                        }
                    },
                );
            }
        });
}

/// `out = silu(gate) * up`.
pub(crate) fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    out.par_chunks_mut(TASK_VALUES)
        .zip(gate.par_chunks(TASK_VALUES))
        .zip(up.par_chunks(TASK_VALUES))
        .for_each(|((out, gate), up)| {
            for ((out, gate), up) in out
                .chunks_mut(CHUNK)
                .zip(gate.chunks(CHUNK))
                .zip(up.chunks(CHUNK))
            {
                let mut e = [0f32; CHUNK];
                let e = &mut e[..gate.len()];
                for (e, &g) in e.iter_mut().zip(gate) {
                    *e = -g;
                }
                exp_in_place(e);
                for (((out, &g), &u), &e) in out.iter_mut().zip(gate).zip(up).zip(&*e) {
                    *out = g / (1.0 + e) * u;
                }
            }
        });
}

/// `act = silu(gate) * up` again; `d` (the gradient of `act`) becomes that of `up`, and `d_gate` that of `gate`.
pub(crate) fn swiglu_backward(
    gate: &[f32],
    up: &[f32],
    act: &mut [f32],
    d: &mut [f32],
    d_gate: &mut [f32],
) {
    d.par_chunks_mut(TASK_VALUES)
        .zip(d_gate.par_chunks_mut(TASK_VALUES))
        .zip(act.par_chunks_mut(TASK_VALUES))
        .zip(gate.par_chunks(TASK_VALUES))
        .zip(up.par_chunks(TASK_VALUES))
        .for_each(|((((d, d_gate), act), gate), up)| {
            let parts = d
                .chunks_mut(CHUNK)
                .zip(d_gate.chunks_mut(CHUNK))
                .zip(act.chunks_mut(CHUNK))
                .zip(gate.chunks(CHUNK))
                .zip(up.chunks(CHUNK));
            for ((((d, d_gate), act), gate), up) in parts {
                let mut e = [0f32; CHUNK];
                let e = &mut e[..gate.len()];
                for (e, &g) in e.iter_mut().zip(gate) {
                    *e = -g;
                }
                exp_in_place(e);
                for i in 0..d.len() {
                    let sigmoid = 1.0 / (1.0 + e[i]);
                    let silu = gate[i] * sigmoid;
                    act[i] = silu * up[i];
                    d_gate[i] = d[i] * up[i] * (sigmoid + silu * (1.0 - sigmoid));
                    d[i] *= silu;
                }
            }
        });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Central differences of the f64 function, step `h`: truncation below 1e-9 here.
    fn slope(f: impl Fn(f64) -> f64, x: f64) -> f64 {
        let h = 1e-4;
        (f(x + h) - f(x - h)) / (2.0 * h)
    }

    /// `erf` by its series and continued fraction is long; the midpoint rule over the density is enough for 1e-7.
    fn normal_below(x: f64) -> f64 {
        let n = 20_000;
        let step = x / n as f64;
        let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
        0.5 + (0..n)
            .map(|i| density((i as f64 + 0.5) * step))
            .sum::<f64>()
            * step
    }

    #[test]
    fn gelu_and_its_derivative_follow_the_normal_distribution() {
        for x in [-9.0f32, -3.0, -1.4, -0.3, 0.0, 0.2, 1.0, 2.5, 6.0] {
            let truth = |x: f64| x * normal_below(x);
            let (mut act, mut d, mut out) = ([0.0], [1.0], [0.0]);
            gelu(&[x], &mut out);
            gelu_backward(&[x], &mut act, &mut d);
            assert_eq!(act, out, "x {x}: the recomputed value");
            assert!((f64::from(out[0]) - truth(x.into())).abs() < 2e-6, "x {x}");
            assert!(
                (f64::from(d[0]) - slope(truth, x.into())).abs() < 2e-6,
                "x {x}"
            );
        }
    }

    #[test]
    fn swiglu_derivatives_are_those_of_differences() {
        let f = |g: f64, u: f64| g / (1.0 + (-g).exp()) * u;
        for (g, u) in [
            (-4.0f32, 2.0f32),
            (-0.5, -1.0),
            (0.0, 3.0),
            (1.5, 0.25),
            (7.0, -2.0),
        ] {
            let (mut act, mut d, mut d_gate, mut out) = ([0.0], [1.0], [0.0], [0.0]);
            swiglu(&[g], &[u], &mut out);
            swiglu_backward(&[g], &[u], &mut act, &mut d, &mut d_gate);
            assert_eq!(act, out);
            let (g, u) = (f64::from(g), f64::from(u));
            assert!(
                (f64::from(d_gate[0]) - slope(|g| f(g, u), g)).abs() < 4e-6,
                "gate {g} {u}"
            );
            assert!(
                (f64::from(d[0]) - slope(|u| f(g, u), u)).abs() < 4e-6,
                "up {g} {u}"
            );
        }
    }
}
