//! The gradient of burn's attention operation: against the f64 reference, against finite differences of the operation itself, and
//! against burn's own autodiff of the plain formula, learned bias parameters included.
#![cfg(feature = "autodiff")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failed unwrap is a failed test; a skipped test says so"
)]

mod common;
mod op;

use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use numerics::{BiasFunction, BiasShape};
use op::{Bias, Case, cases, near, shape, values};
use snellen_model::{AttentionBias, AttentionCall, DeviceKind, attention, kerple_log_bias};

const NAMES: [&str; 4] = ["dq", "dk", "dv", "dbias"];

/// Gradients of `sum(out * g)`; that of the bias is empty unless it is by distance.
fn gradients(case: &Case, device: &Device, dtype: FloatDType) -> [Vec<f64>; 4] {
    let device = &device.clone().autodiff();
    let (inputs, table) = case.tensors(device, dtype);
    let inputs = inputs.map(Tensor::require_grad);
    let table = match case.bias {
        Bias::ByDistance(_) => table.map(Tensor::require_grad),
        _ => table,
    };
    let [q, k, v] = inputs.clone();
    let (out, _) = attention(q, k, v, &case.call(table.clone()));
    let width = case.shape.n_heads * case.shape.head_width;
    let g = TensorData::new(case.g.clone(), [case.shape.n_queries, width]);
    let g = Tensor::<2>::from_data(g, device).cast(dtype);
    let all = out.mul(g).sum().backward();
    let of = |x: &Tensor<2>| values(x.grad(&all).unwrap());
    let [q, k, v] = &inputs;
    let table = table.filter(|_| matches!(case.bias, Bias::ByDistance(_)));
    [of(q), of(k), of(v), table.as_ref().map_or(vec![], of)]
}

/// The gradients of the reference, the bias's as long as the table of the case. What padding holds has none.
fn truth(case: &Case) -> [Vec<f64>; 4] {
    let mut case = case.clone();
    for values in [&mut case.k, &mut case.v] {
        values
            .iter_mut()
            .filter(|x| x.is_nan())
            .for_each(|x| *x = 0.0);
    }
    let exact = case.true_gradients();
    let heads = case.shape.n_heads;
    let table = match &case.bias {
        Bias::ByDistance(values) => values.len() / heads,
        _ => 0,
    };
    let rows = exact.dbias.chunks_exact(exact.dbias.len() / heads);
    let dbias = rows.flat_map(|row| {
        let mut row = row.to_vec();
        row.resize(table, 0.0);
        row
    });
    [exact.dq, exact.dk, exact.dv, dbias.collect()]
}

fn check(case: &Case, got: &[Vec<f64>; 4], tolerance: f64) -> f64 {
    let truth = truth(case);
    for ((name, truth), got) in NAMES.iter().zip(&truth).zip(got) {
        near(&format!("{}, {name}", case.name), truth, got, tolerance);
    }
    let errors = truth.iter().zip(got).map(|(t, g)| op::worst(t, g));
    errors.fold(0.0, f64::max)
}

/// The kernel's backward pass through burn. Gradients reach 60, of which f32 rounds off 4e-6; the largest error seen is 1.4e-5.
#[test]
fn the_cpu_kernel_gives_the_gradients_of_the_reference() {
    let worst = cases().into_iter().map(|case| {
        check(
            &case,
            &gradients(&case, &Device::flex(), FloatDType::F32),
            5e-5,
        )
    });
    eprintln!("largest error {:.1e}", worst.fold(0.0, f64::max));
}

/// f64 has no kernel, so the CPU runs the tensor operations that other devices run; 2.4e-14 seen.
#[test]
fn tensor_operations_give_the_gradients_of_the_reference() {
    let worst = cases().into_iter().map(|case| {
        check(
            &case,
            &gradients(&case, &Device::flex(), FloatDType::F64),
            1e-12,
        )
    });
    eprintln!("largest error {:.1e}", worst.fold(0.0, f64::max));
}

/// The same on every device that is there; 2.1e-5 seen on a software Vulkan driver, a device's exponential may be worse.
#[test]
fn devices_give_the_gradients_of_the_reference() {
    for kind in DeviceKind::ALL.into_iter().skip(1) {
        let Some(device) = op::device(kind) else {
            eprintln!("SKIPPED: {} (not built, or no device)", kind.name());
            continue;
        };
        let worst = cases()
            .iter()
            .map(|case| check(case, &gradients(case, &device, FloatDType::F32), 2e-4))
            .fold(0.0, f64::max);
        eprintln!("{}: largest error {worst:.1e}", kind.name());
    }
}

/// Learned KERPLE parameters: burn's gradients in f64 against central differences of the loss, extrapolated to order 4.
#[test]
fn learned_parameters_have_the_gradients_of_finite_differences() {
    let case = Case::new("kerple", shape(40, 3, 8), 21);
    let (p, a) = ([-0.4f64, 0.1, 0.6], [-1.5f64, -0.8, 0.2]);
    let device = Device::flex().autodiff();
    let vector = |values: [f64; 3]| {
        let data = TensorData::new(values.to_vec(), [3]);
        Tensor::<1>::from_data(data, (&device, burn::tensor::DType::F64))
    };
    let loss = |p: Tensor<1>, a: Tensor<1>, dtype: FloatDType| {
        let ([q, k, v], _) = case.tensors(&device, dtype);
        let table = kerple_log_bias(p.cast(dtype), a.cast(dtype), 40);
        let call = AttentionCall {
            bias: AttentionBias::ByDistance(table),
            ..case.call(None)
        };
        let (out, _) = attention(q, k, v, &call);
        let g = TensorData::new(case.g.clone(), [40, 24]);
        out.mul(Tensor::<2>::from_data(g, &device).cast(dtype))
            .sum()
    };
    let number = |loss: Tensor<1>| {
        loss.into_data()
            .convert::<f64>()
            .try_into_vec::<f64>()
            .unwrap()[0]
    };
    let mut expected = vec![];
    for which in 0..6 {
        let at = |by: f64| {
            let (mut p, mut a) = (p, a);
            *p.iter_mut().chain(a.iter_mut()).nth(which).unwrap() += by;
            number(loss(vector(p), vector(a), FloatDType::F64))
        };
        let slope = |h: f64| (at(h) - at(-h)) / (2.0 * h);
        expected.push((4.0 * slope(1e-3) - slope(2e-3)) / 3.0);
    }
    // Truncation h^4 = 1e-12 and rounding 1e-15 / h in f64; f32's own roundings of gradients up to 10.
    for (dtype, tolerance) in [(FloatDType::F64, 1e-9), (FloatDType::F32, 5e-5)] {
        let (ln_p, ln_a) = (vector(p).require_grad(), vector(a).require_grad());
        let all = loss(ln_p.clone(), ln_a.clone(), dtype).backward();
        let got: Vec<f64> = [ln_p, ln_a]
            .iter()
            .flat_map(|x| {
                let data = x.grad(&all).unwrap().into_data().convert::<f64>();
                data.try_into_vec::<f64>().unwrap()
            })
            .collect();
        near(&format!("kerple, {dtype:?}"), &expected, &got, tolerance);
    }
    // The table is the bias function's.
    let function = BiasFunction::with_shape(BiasShape::KerpleLog {
        p: p.map(f64::exp).to_vec(),
        a: a.map(f64::exp).to_vec(),
    });
    let table = values(kerple_log_bias(vector(p), vector(a), 40).inner());
    let exact: Vec<f64> = (0..3)
        .flat_map(|head| (0..40).map(move |d| (head, d)))
        .map(|(head, d)| function.bias(head, 0.0, f64::from(d)))
        .collect();
    near("kerple table", &exact, &table, 1e-14);
}

/// The plain formula in burn's operations, whole score matrices and all, differentiated by burn.
fn plain(q: Tensor<2>, k: Tensor<2>, v: Tensor<2>, table: Tensor<2>, case: &Case) -> Tensor<2> {
    let s = case.shape;
    let heads = |x: Tensor<2>, n: usize| x.reshape([n, s.n_heads, s.head_width]).swap_dims(0, 1);
    let (q, k, v) = (
        heads(q, s.n_queries),
        heads(k, s.n_keys),
        heads(v, s.n_keys),
    );
    let device = q.device();
    let count = |n: usize| Tensor::<1, Int>::arange(0..n as i64, &device);
    let back = count(s.n_queries).unsqueeze_dim::<2>(1) - count(s.n_keys).unsqueeze_dim::<2>(0);
    let distance = back.clone().abs().reshape([s.n_queries * s.n_keys]);
    let bias = table
        .select(1, distance)
        .reshape([s.n_heads, s.n_queries, s.n_keys]);
    let scores = q.matmul(k.swap_dims(1, 2)).mul_scalar(s.scale) + bias;
    let future =
        back.lower_elem(0)
            .unsqueeze_dim::<3>(0)
            .expand([s.n_heads, s.n_queries, s.n_keys]);
    let weights = burn::tensor::activation::softmax(scores.mask_fill(future, -1e30), 2);
    let out: Tensor<3> = weights.matmul(v);
    out.swap_dims(0, 1)
        .reshape([s.n_queries, s.n_heads * s.head_width])
}

/// In a larger graph, where inputs come from other operations, one of them is used twice, and the gradient that arrives is expanded.
#[test]
fn it_agrees_with_burns_own_autodiff_of_the_plain_formula() {
    let case = Case::new("graph", shape(33, 2, 8), 31);
    let device = Device::flex().autodiff();
    let run = |ours: bool| {
        let (inputs, table) = case.tensors(&device, FloatDType::F32);
        let inputs = inputs.map(Tensor::require_grad);
        let table = table.unwrap().require_grad();
        let [q, k, v] = inputs.clone();
        // Keys are also values, queries are scaled, the table is halved.
        let (q, v, half) = (
            q.mul_scalar(0.7),
            v + k.clone(),
            table.clone().mul_scalar(0.5),
        );
        let out = if ours {
            attention(q, k, v, &case.call(Some(half))).0
        } else {
            plain(q, k, v, half, &case)
        };
        let all = out.sum_dim(1).sum().backward();
        let [q, k, v] = &inputs;
        [q, k, v, &table].map(|x| values(x.grad(&all).unwrap()))
    };
    let (own, ours) = (run(false), run(true));
    for ((name, own), ours) in NAMES.iter().zip(&own).zip(&ours) {
        near(name, own, ours, 2e-5);
        assert!(own.iter().any(|x| x.abs() > 0.1), "{name} is not near 0");
    }
}

#[test]
fn inputs_that_need_no_gradient_are_constants() {
    let case = Case::new("constants", shape(20, 2, 8), 41);
    let device = Device::flex().autodiff();
    let ([q, k, v], table) = case.tensors(&device, FloatDType::F32);
    let k = k.require_grad();
    let (out, lse) = attention(q.clone(), k.clone(), v.clone(), &case.call(table.clone()));
    assert!(!lse.is_require_grad());
    let all = out.sum().backward();
    assert!(k.grad(&all).is_some());
    for constant in [q, v, table.unwrap()] {
        assert!(constant.grad(&all).is_none());
    }
}
