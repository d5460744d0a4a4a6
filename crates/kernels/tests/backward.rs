//! The backward pass: f64 formulas against finite differences, f32 tiles against f64, skipping and threads against neither.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use common::{Bias, Case, Random, bits, shape};
use snellen_kernels::{
    AttentionOptions, AttentionStats, CapOrder, Gradients, attention_backward_with, reference,
};

/// dq, dk, dv, dbias.
type Four = [Vec<f32>; 4];

fn d_out(case: &Case) -> Vec<f32> {
    let s = case.shape;
    Random::new(99).vec(s.n_queries * s.n_heads * s.head_width, 1.0)
}

fn run(case: &Case, d_out: &[f32], skip: bool) -> (Four, AttentionStats) {
    let s = case.shape;
    let input = case.input();
    let (out, lse) = case.run();
    let keys = s.n_keys * s.n_kv_heads * s.head_width;
    // Poisoned, so that an element that is never written shows.
    let mut four = [
        vec![f32::NAN; out.len()],
        vec![f32::NAN; keys],
        vec![f32::NAN; keys],
        vec![f32::NAN; s.n_heads * (input.max_distance() + 1)],
    ];
    let [dq, dk, dv, dbias] = &mut four;
    let mut gradients = Gradients {
        dq,
        dk,
        dv,
        dbias: Some(dbias),
    };
    let options = AttentionOptions {
        skip,
        ..AttentionOptions::default()
    };
    let stats = attention_backward_with(&input, &options, &out, &lse, d_out, &mut gradients);
    (four, stats)
}

fn check(name: &str, case: &Case) {
    let g = d_out(case);
    let (got, _) = run(case, &g, true);
    for ((what, exact, tolerance), got) in common::exact_gradients(case, &g).iter().zip(&got) {
        tolerance.check(&format!("{name}: {what}"), exact, got);
    }
}

/// `sum(out * d_out)` in f64.
fn loss(case: &Case, g: &[f32]) -> f64 {
    let (out, _) = reference::attention(&case.input());
    out.iter().zip(g).map(|(o, &g)| o * f64::from(g)).sum()
}

/// The f64 formulas against central differences extrapolated to order 4. Inputs are multiples of 2^-10 and the steps 2^-6 and 2^-5,
/// so every step is exact in f32; the error is some derivative of order 5 times `step^4 = 6e-8`.
#[test]
fn reference_gradients_are_finite_differences() {
    let mut cases = vec![];
    for causal in [true, false] {
        for cap in [
            None,
            Some((2.0, CapOrder::BeforeBias)),
            Some((2.0, CapOrder::AfterBias)),
        ] {
            let mut s = shape(6, 2, 3);
            (s.causal, s.soft_cap, s.n_kv_heads) = (causal, cap, 1);
            (s.n_keys, s.query_offset) = (7, 1);
            let mut case = Case::random(s, 1);
            case.key_valid = Some((0..7).map(|j| j != 2).collect());
            for x in [&mut case.q, &mut case.k, &mut case.v] {
                for x in x.iter_mut() {
                    *x = (*x * 1024.0).round() / 1024.0 / 2.0;
                }
            }
            if let Bias::ByDistance(values) = &mut case.bias {
                for b in values.iter_mut() {
                    *b = (*b * 1024.0).round() / 1024.0;
                }
            }
            cases.push(case);
        }
    }
    for case in &cases {
        let g = d_out(case);
        let exact = reference::attention_backward(&case.input(), &g);
        let Bias::ByDistance(bias) = &case.bias else {
            unreachable!()
        };
        let stride = bias.len() / 2;
        let n_bias = case.input().max_distance() + 1;
        let part = |case: &mut Case, which: usize, i: usize, by: f32| match which {
            0 => case.q[i] += by,
            1 => case.k[i] += by,
            2 => case.v[i] += by,
            _ => {
                if let Bias::ByDistance(values) = &mut case.bias {
                    values[i / n_bias * stride + i % n_bias] += by;
                }
            }
        };
        for (which, exact) in [&exact.dq, &exact.dk, &exact.dv, &exact.dbias]
            .into_iter()
            .enumerate()
        {
            for (i, &exact) in exact.iter().enumerate() {
                let slope = |step: f32| {
                    let at = |by: f32| {
                        let mut moved = case.clone();
                        part(&mut moved, which, i, by);
                        loss(&moved, &g)
                    };
                    (at(step) - at(-step)) / (2.0 * f64::from(step))
                };
                let (near, far) = (slope(1.0 / 64.0), slope(1.0 / 32.0));
                let expected = (4.0 * near - far) / 3.0;
                assert!(
                    (expected - exact).abs() <= 6e-8 * 20.0,
                    "{:?}: gradient {which}, element {i}: {exact} against {expected}",
                    case.shape
                );
            }
        }
    }
}

#[test]
fn tiled_equals_reference() {
    for n in [1, 2, 9, 48, 49, 64, 65, 130, 200] {
        check(
            &format!("length {n}"),
            &Case::random(shape(n, 2, 64), n as u64),
        );
        check(
            &format!("length {n} by key"),
            &Case::random(shape(n, 2, 20), n as u64).by_key(),
        );
    }
    for width in [1, 3, 8, 16, 17, 33, 48, 80, 100, 128] {
        check(
            &format!("width {width}"),
            &Case::random(shape(70, 3, width), 2),
        );
    }
    for causal in [true, false] {
        for n_kv_heads in [1, 2, 4] {
            let mut s = shape(100, 4, 16);
            (s.causal, s.n_kv_heads) = (causal, n_kv_heads);
            let mut case = Case::random(s, 3);
            check(&format!("4 heads on {n_kv_heads}, causal {causal}"), &case);
            case.key_valid = Some((0..100).map(|j| j > 20 && j % 7 != 0).collect());
            check(&format!("padded, causal {causal}"), &case);
            case.bias = Bias::None;
            check("without bias", &case);
        }
        for (n_queries, n_keys, query_offset) in
            [(1, 100, 99), (70, 100, 30), (10, 50, 0), (60, 20, 5)]
        {
            let mut s = shape(n_queries, 2, 16);
            (s.n_keys, s.query_offset, s.causal) = (n_keys, query_offset, causal);
            check(
                &format!("{n_queries} at {query_offset} of {n_keys}"),
                &Case::random(s, 4),
            );
        }
        for order in [CapOrder::BeforeBias, CapOrder::AfterBias] {
            for cap in [0.5, 5.0, 50.0] {
                let mut s = shape(150, 2, 16);
                (s.soft_cap, s.causal) = (Some((cap, order)), causal);
                check(&format!("cap {cap} {order:?}"), &Case::random(s, 5));
            }
        }
    }
}

fn steep(mut case: Case, slope: f32) -> Case {
    let s = case.shape;
    let n = s.n_keys.max(s.query_offset + s.n_queries);
    let one = (0..n).map(|d| -slope * d as f32);
    case.bias = Bias::ByDistance((0..s.n_heads).flat_map(|_| one.clone()).collect());
    case
}

#[test]
fn skipping_changes_no_bit() {
    let mut cases = vec![];
    for causal in [true, false] {
        for cap in [
            None,
            Some((50.0, CapOrder::BeforeBias)),
            Some((200.0, CapOrder::AfterBias)),
        ] {
            let mut s = shape(600, 2, 24);
            (s.causal, s.soft_cap, s.n_kv_heads) = (causal, cap, 1);
            let mut case = steep(Case::random(s, 6), 1.0);
            cases.push(case.clone());
            // A sink, one huge key, values that underflow.
            for t in 0..600 {
                case.q[t * 48] = 4.0;
            }
            case.k[0] = 60.0;
            case.k[300 * 24] = 300.0;
            case.v[..24 * 100].fill(-1e-45);
            cases.push(case.clone());
            case.key_valid = Some((0..600).map(|j| j > 100 && j % 5 != 0).collect());
            cases.push(case);
        }
    }
    for (i, case) in cases.iter().enumerate() {
        let g = d_out(case);
        let (with, stats) = run(case, &g, true);
        let (without, all) = run(case, &g, false);
        assert!(
            stats.skipped_share() > 0.1 && all.blocks_skipped == 0,
            "case {i}: {stats:?}"
        );
        for (a, b) in with.iter().zip(&without) {
            assert_eq!(bits(a), bits(b), "case {i}");
        }
    }
}

/// What is not finite is never skipped.
#[test]
fn non_finite_numbers_are_not_skipped() {
    let nan = |x: &[f32]| -> Vec<u32> {
        bits(x)
            .into_iter()
            .map(|x| if f32::from_bits(x).is_nan() { 1 } else { x })
            .collect()
    };
    for bad in [f32::NAN, f32::INFINITY, 3e38] {
        for which in 0..4 {
            for at in [0, 100, 399] {
                let mut case = steep(Case::random(shape(400, 1, 16), 7), 1.0);
                let mut g = d_out(&case);
                [&mut case.q, &mut case.k, &mut case.v, &mut g][which][at * 16 + 3] = bad;
                let (with, _) = run(&case, &g, true);
                let (without, _) = run(&case, &g, false);
                for (a, b) in with.iter().zip(&without) {
                    assert_eq!(nan(a), nan(b), "{bad} in {which} at {at}");
                }
            }
        }
    }
}

#[test]
fn rows_that_see_nothing_have_no_gradient() {
    for causal in [true, false] {
        let mut case = Case::random(shape(100, 2, 16), 8);
        case.shape.causal = causal;
        case.key_valid = Some(vec![false; 100]);
        let g = d_out(&case);
        for x in run(&case, &g, true).0 {
            assert!(x.iter().all(|x| x.to_bits() == 0));
        }
    }
    let mut case = Case::random(shape(100, 2, 16), 8);
    case.key_valid = Some((0..100).map(|j| j >= 30).collect());
    check("first rows blind", &case);
    case.k[..30 * 32].fill(f32::NAN);
    case.v[..30 * 32].fill(f32::NAN);
    let g = d_out(&case);
    for x in run(&case, &g, true).0 {
        assert!(x.iter().all(|x| x.is_finite()), "garbage in padding leaks");
    }
}

#[test]
fn thread_counts_give_the_same_bytes() {
    let mut s = shape(300, 6, 24);
    s.n_kv_heads = 2;
    let case = Case::random(s, 9);
    let g = d_out(&case);
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| run(&case, &g, true).0.map(|x| bits(&x)))
    };
    let one = on(1);
    for threads in [2, 7] {
        for _ in 0..3 {
            assert!(one == on(threads), "{threads} threads differ from one");
        }
    }
}
