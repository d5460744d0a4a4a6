//! The tensor operations that other devices run hold one tile of scores: memory linear in the length. Measured on the CPU, where f64 takes
//! them. Alone in its binary, for the peak is the process's.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failed unwrap is a failed test; the figures are the point"
)]

mod common;
mod op;

use burn::tensor::{Device, FloatDType};
use op::{Case, shape};
use snellen_model::attention;

fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    1024 * line
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
}

#[test]
fn no_tensor_is_quadratic_in_the_length() {
    let run = |n: usize| {
        let case = Case::new("long", shape(n, 8, 4), 1);
        let ([q, k, v], table) = case.tensors(&Device::flex(), FloatDType::F64);
        let (out, _) = attention(q, k, v, &case.call(table));
        assert!(op::values(out).iter().all(|x| x.is_finite()));
    };
    run(64);
    let before = peak();
    run(2048);
    let short = peak() - before;
    run(4096);
    let long = peak() - before;
    let whole = 8 * 8 * 4096 * 4096u64;
    eprintln!("2048: {short}, 4096: {long} bytes; all scores of 4096 would be {whole}");
    // A tile of f64 scores is 32 MiB and has a handful of companions: as many at either length.
    assert!(long < whole / 3, "{long} of {whole}");
    assert!(long < short + short / 2, "{short} at 2048, {long} at 4096");
}
