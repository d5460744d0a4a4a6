//! The attention operation of burn: the kernel bit for bit on the CPU; the tensor operations, which other devices run, against the
//! f64 reference, in f64 here and in f32 on whatever device is there.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failed unwrap is a failed test; a skipped test says so"
)]

mod common;
mod op;

use burn::tensor::{Device, FloatDType, Tensor};
use op::{Case, cases, near, values};
use snellen_model::{DeviceKind, attention};

fn run(case: &Case, device: &Device, dtype: FloatDType) -> (Vec<f64>, Vec<f64>) {
    let ([q, k, v], table) = case.tensors(device, dtype);
    let (out, lse) = attention(q, k, v, &case.call(table));
    (values(out), values(lse))
}

#[test]
fn on_the_cpu_it_is_the_kernel() {
    for case in cases().iter().filter(|case| case.documents.is_none()) {
        let s = case.shape;
        let mut out = vec![f32::NAN; s.n_queries * s.n_heads * s.head_width];
        let mut lse = vec![f32::NAN; s.n_heads * s.n_queries];
        kernels::attention(&case.input(), &mut out, &mut lse, None);
        let (got, got_lse) = run(case, &Device::flex(), FloatDType::F32);
        let wide = |values: &[f32]| values.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        assert_eq!(wide(&out), got, "{}", case.name);
        assert_eq!(wide(&lse), got_lse, "{}", case.name);
    }
}

/// Queries, keys and values as views into a fused projection, as a permuted tensor, and documents in f32.
#[test]
fn layouts_and_documents_change_nothing() {
    let device = Device::flex();
    let case = cases().into_iter().find(|c| c.name == "length 65").unwrap();
    let (expected, _) = run(&case, &device, FloatDType::F32);
    let ([q, k, v], table) = case.tensors(&device, FloatDType::F32);
    let fused = Tensor::cat(vec![q, k, v], 1);
    let part = |i: usize| fused.clone().slice([0..65, i * 32..(i + 1) * 32]);
    let call = case.call(table);
    let (out, _) = attention(part(0), part(1), part(2), &call);
    assert_eq!(values(out), expected);
    let turned = |x: Tensor<2>| x.transpose().mul_scalar(1.0).transpose();
    let (out, _) = attention(turned(part(0)), turned(part(1)), turned(part(2)), &call);
    assert_eq!(values(out), expected);
    for case in cases().iter().filter(|case| case.documents.is_some()) {
        let (out, lse) = case.truth();
        let (got, got_lse) = run(case, &device, FloatDType::F32);
        near(&case.name, &out, &got, 3e-6);
        near(&case.name, &lse, &got_lse, 3e-5);
    }
}

/// f64 has no kernel, so the CPU runs the tensor operations. Scores reach 100 nats, an ulp of which is 1.4e-14; sums of 300 such.
#[test]
fn tensor_operations_are_the_reference() {
    for case in cases() {
        let (out, lse) = case.truth();
        let (got, got_lse) = run(&case, &Device::flex(), FloatDType::F64);
        near(&format!("{}, out", case.name), &out, &got, 1e-12);
        near(&format!("{}, lse", case.name), &lse, &got_lse, 1e-12);
    }
}

/// The same in f32 on every device of this machine that this build has a runtime for.
#[test]
fn devices_agree_with_the_reference() {
    for kind in DeviceKind::ALL.into_iter().skip(1) {
        let Some(device) = op::device(kind) else {
            eprintln!("SKIPPED: {} (not built, or no device)", kind.name());
            continue;
        };
        let (mut worst_out, mut worst_lse) = (0.0f64, 0.0f64);
        for case in cases() {
            let (out, lse) = case.truth();
            let (got, got_lse) = run(&case, &device, FloatDType::F32);
            worst_out = worst_out.max(op::worst(&out, &got));
            worst_lse = worst_lse.max(op::worst(&lse, &got_lse));
            // Scores up to 100 nats rounded to f32 (8e-6), and a device's exponential, which WGSL allows to be off by
            // 3 + 2 |x| ulp. Seen on a software Vulkan driver: 2.0e-6 and 6.6e-6.
            near(&format!("{}, out", case.name), &out, &got, 5e-5);
            near(&format!("{}, lse", case.name), &lse, &got_lse, 5e-5);
        }
        eprintln!(
            "{}: largest error {worst_out:.1e}, lse {worst_lse:.1e}",
            kind.name()
        );
    }
}
