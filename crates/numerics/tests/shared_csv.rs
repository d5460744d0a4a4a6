//! Shares of exact zeros by head count, convention, dtype and length, brute-forced elsewhere and checked against torch:
//! `alibi_underflow_models.csv` of the shared data (see its README). Skipped, visibly, where the file is absent.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use snellen_numerics::{
    BiasFunction, Criterion, Family, HorizonInput, PrecisionPlan, SlopeSchedule, horizon,
};
use std::path::PathBuf;

fn shared_data() -> PathBuf {
    std::env::var_os("SNELLEN_SHARED_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    )
}

/// BLOOM's own slopes: an f32 base raised to whole powers in f32 (transformers, `build_alibi_tensor`). They differ from the
/// exact rule by a few f32 ulps, which decides ties when the bias is rounded to 16 bits.
fn bloom_slopes(n_heads: usize) -> Vec<f64> {
    let powers = |c: usize, exponents: Vec<i32>| -> Vec<f64> {
        let base = f64::from(2.0_f64.powf(-(2.0_f64.powf(3.0 - (c as f64).log2()))) as f32);
        exponents
            .iter()
            .map(|k| f64::from(base.powi(*k) as f32))
            .collect()
    };
    let c = 1_usize << n_heads.ilog2();
    let mut slopes = powers(c, (1..=c as i32).collect());
    let rest = (n_heads - c) as i32;
    slopes.extend(powers(2 * c, (0..rest).map(|t| 2 * t + 1).collect()));
    slopes
}

#[test]
fn shares_of_exact_zeros() {
    let path = shared_data().join("alibi_underflow_models.csv");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("SKIPPED: {} not found", path.display());
        return;
    };
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|h| *h == name).unwrap();
    let mut compared = 0;
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let n_heads: usize = cells[column("n_heads")].parse().unwrap();
        let (convention, dtype) = (cells[column("convention")], cells[column("dtype")]);
        let (spec, family) = match convention {
            "ideal" => (format!("ieee:{dtype}"), Family::Custom),
            "ideal_ftz" => (format!("ftz:{dtype}"), Family::Custom),
            // The softmax of these is f32 in an f64 model too, a dtype the plan does not have.
            "hf_bloom" if dtype != "float64" => (format!("hf-eager:{dtype}"), Family::Bloom),
            "hf_mpt" if dtype != "float64" => (format!("hf-eager:{dtype}"), Family::Mpt),
            // "native" computes slope, distance and product in the dtype: no plan's convention.
            _ => continue,
        };
        let plan = PrecisionPlan::parse(&spec, family).unwrap();
        let slopes = if family == Family::Bloom {
            bloom_slopes(n_heads)
        } else {
            SlopeSchedule::Press.slopes(n_heads).unwrap()
        };
        let lengths: &[u64] = if n_heads <= 16 {
            &[2048, 8192, 32768, 131_072]
        } else {
            &[2048, 8192]
        };
        for length in lengths.iter().copied() {
            let heads = horizon(&HorizonInput {
                slopes: &slopes,
                scale_before: 1.0,
                bias: &BiasFunction::linear(),
                plan: &plan,
                criterion: Criterion::Plan,
                length,
                causal: true,
            })
            .unwrap();
            let context = format!("{n_heads} heads, {convention}, {dtype}, length {length}");
            let cell = |name: &str| cells[column(&format!("{name}_T{length}"))];
            let pairs = heads[0].pairs as f64 * n_heads as f64;
            let blind: f64 = heads.iter().map(|h| h.blind_pairs as f64).sum();
            let expected: f64 = cell("zero_frac").parse().unwrap();
            let n_nan = heads.iter().filter(|h| h.nan_rows > 0).count();
            assert_eq!(
                n_nan,
                cell("nan_heads").parse::<usize>().unwrap(),
                "{context}"
            );
            let touched = heads.iter().filter(|h| h.blind_pairs > 0).count();
            assert_eq!(
                touched,
                cell("heads_with_zeros").parse::<usize>().unwrap(),
                "{context}"
            );
            if n_nan > 0 {
                // The file counts a NaN row's finite keys as zeros, the horizon counts none of the row.
                let nan_pairs: f64 = heads
                    .iter()
                    .map(|h| {
                        let finite = (length - h.nan_rows) as f64;
                        h.pairs as f64 - finite * (finite + 1.0) / 2.0
                    })
                    .sum();
                let (low, high) = (blind / pairs, (blind + nan_pairs) / pairs);
                assert!(low <= expected && expected <= high + 1e-7, "{context}");
            } else {
                // Rounded BLOOM: torch's f32 power is off by an ulp of the slope here and there, a tie each now and then.
                let tolerance = if family == Family::Bloom { 1e-7 } else { 1e-12 };
                let got = blind / pairs;
                assert!(
                    (got - expected).abs() <= tolerance,
                    "{context}: got {got}, expected {expected}"
                );
            }
            compared += 1;
        }
    }
    assert!(
        compared > 200,
        "only {compared} rows of the file were understood"
    );
}
