//! The ladder of truth: f64, then emulated f32, then tiled f32; each rung against the one above.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use common::{Bias, Case, bits, shape, slopes};
use numerics::{BiasFunction, Family, PrecisionPlan, ScoreSpec, stored_bias};
use snellen_kernels::{CapOrder, Heads, emulated, reference};

#[test]
fn tiled_equals_reference_at_odd_lengths() {
    for n in [1, 2, 7, 9, 47, 48, 49, 63, 64, 65, 127, 128, 129, 200] {
        Case::random(shape(n, 2, 64), n as u64).check(&format!("length {n}"));
        Case::random(shape(n, 2, 64), n as u64)
            .by_key()
            .check(&format!("length {n} by key"));
    }
}

#[test]
fn tiled_equals_reference_at_any_width() {
    for width in [1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 80, 112, 128] {
        Case::random(shape(67, 3, width), width as u64).check(&format!("width {width}"));
    }
}

#[test]
fn tiled_equals_reference_without_a_causal_rule() {
    for n in [1, 2, 7, 63, 64, 65, 130] {
        let mut case = Case::random(shape(n, 4, 16), 3);
        case.shape.causal = false;
        case.check(&format!("bidirectional, length {n}"));
        case.by_key()
            .check(&format!("bidirectional by key, length {n}"));
    }
}

#[test]
fn tiled_equals_reference_with_fewer_or_more_queries_than_keys() {
    for (n_queries, n_keys, query_offset) in [
        (1, 1, 0),
        (1, 100, 99),
        (3, 130, 127),
        (70, 100, 30),
        (10, 50, 0),
        (60, 20, 5),
    ] {
        for causal in [true, false] {
            let mut s = shape(n_queries, 2, 32);
            (s.n_keys, s.query_offset, s.causal) = (n_keys, query_offset, causal);
            let case = Case::random(s, 5);
            case.check(&format!(
                "{n_queries} queries at {query_offset}, {n_keys} keys, causal {causal}"
            ));
        }
    }
}

#[test]
fn tiled_equals_reference_with_shared_key_heads() {
    for n_kv_heads in [1, 2, 3, 6] {
        let mut s = shape(150, 6, 24);
        s.n_kv_heads = n_kv_heads;
        Case::random(s, 11).check(&format!("6 heads on {n_kv_heads}"));
    }
}

#[test]
fn tiled_equals_reference_with_a_soft_cap() {
    for order in [CapOrder::BeforeBias, CapOrder::AfterBias] {
        for cap in [0.5, 5.0, 50.0] {
            let mut s = shape(100, 3, 16);
            s.soft_cap = Some((cap, order));
            Case::random(s, 13).check(&format!("cap {cap} {order:?}"));
        }
    }
}

#[test]
fn tiled_equals_reference_with_padding() {
    let n = 200;
    for causal in [true, false] {
        for (name, hidden) in [
            (
                "left",
                Box::new(|j: usize| j < 70) as Box<dyn Fn(usize) -> bool>,
            ),
            ("right", Box::new(|j| j > 120)),
            ("scattered", Box::new(|j| j % 3 == 1)),
        ] {
            let mut s = shape(n, 2, 16);
            s.causal = causal;
            let mut case = Case::random(s, 17);
            case.key_valid = Some((0..n).map(|j| !hidden(j)).collect());
            case.check(&format!("{name} padding, causal {causal}"));
        }
    }
}

#[test]
fn strided_heads_give_the_bits_of_packed_ones() {
    let (n, n_heads, width) = (100, 3, 20);
    let case = Case::random(shape(n, n_heads, width), 19);
    // A fused projection: per token, per head, q then k then v (BLOOM's layout), after 7 unrelated values.
    let mut fused = vec![f32::NAN; 7 + n * n_heads * 3 * width];
    for t in 0..n {
        for h in 0..n_heads {
            for (part, x) in [&case.q, &case.k, &case.v].into_iter().enumerate() {
                let from = (t * n_heads + h) * width;
                let to = 7 + ((t * n_heads + h) * 3 + part) * width;
                fused[to..to + width].copy_from_slice(&x[from..from + width]);
            }
        }
    }
    let part = |i: usize| Heads {
        data: &fused,
        offset: 7 + i * width,
        row_stride: n_heads * 3 * width,
        head_stride: 3 * width,
    };
    let mut input = case.input();
    (input.q, input.k, input.v) = (part(0), part(1), part(2));
    let (out, lse) = common::run(&input, None);
    let (expected, expected_lse) = case.run();
    assert_eq!(bits(&expected), bits(&out));
    assert_eq!(bits(&expected_lse), bits(&lse));
}

/// f64 -> a runtime's plan in f32 -> tiled f32, the bias lowered to a table with the plan's own rounding.
#[test]
fn tiled_equals_emulated_f32() {
    for (family, plan, causal, by_key) in [
        (Family::Bloom, "hf-eager", true, true),
        (Family::JinaBert, "hf-eager", false, false),
        (Family::Custom, "vllm-paged", true, false),
    ] {
        let (n, n_heads) = (140, 4);
        let mut s = shape(n, n_heads, 16);
        s.causal = causal;
        let mut case = Case::random(s, 23);
        let plan = PrecisionPlan::parse(plan, family).unwrap();
        let bias = BiasFunction::linear();
        let slopes = slopes(n_heads);
        let table = |by_key: bool| -> Vec<f32> {
            let mut values = vec![];
            for (head, &slope) in slopes.iter().enumerate() {
                let scale = f64::from(s.scale);
                let spec = ScoreSpec {
                    bias: &bias,
                    head,
                    slope,
                    scale,
                    causal,
                    length: n as u64,
                };
                for i in 0..n as u64 {
                    let (query, key) = if by_key {
                        (n as u64 - 1, i)
                    } else {
                        (n as u64 - 1, n as u64 - 1 - i)
                    };
                    values.push(stored_bias(&plan, &spec, query, key) as f32);
                }
            }
            values
        };
        case.bias = if by_key {
            Bias::ByKey(table(true))
        } else {
            Bias::ByDistance(table(false))
        };
        let (exact, exact_lse) = reference::attention(&case.input());
        let (emulated, emulated_lse) = emulated::attention(&case.input(), &plan, &slopes, &bias);
        let (out, lse) = case.run();
        let (t_out, t_lse) = case.tolerances();
        let single = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<_>>();
        t_out.check("emulated against f64", &exact, &single(&emulated));
        t_lse.check(
            "emulated lse against f64",
            &exact_lse,
            &single(&emulated_lse),
        );
        // Both rungs may err, in opposite directions.
        t_out
            .times(2.0)
            .check("tiled against emulated", &emulated, &out);
        t_lse
            .times(2.0)
            .check("tiled lse against emulated", &emulated_lse, &lse);
    }
}

/// Regression of https://github.com/ggml-org/llama.cpp/issues/5571: with the bias off, a model without ALiBi is untouched, at every length.
#[test]
fn zero_bias_is_plain_causal_softmax() {
    for n in [1, 64, 4096] {
        let mut case = Case::random(shape(n, 1, 16), 29);
        case.bias = Bias::None;
        let (plain, plain_lse) = case.run();
        if n <= 64 {
            case.check("no bias");
        } else {
            // The whole reference would take minutes; the last rows are the longest.
            let mut tail = case.clone();
            tail.shape.n_queries = 8;
            tail.shape.query_offset = n - 8;
            tail.q = case.q[(n - 8) * 16..].to_vec();
            tail.check("no bias, last rows");
        }
        for bias in [
            Bias::ByKey(vec![0.0; n]),
            Bias::ByDistance(vec![0.0; n]),
            Bias::ByDistance(vec![-0.0; n]),
        ] {
            case.bias = bias;
            let (out, lse) = case.run();
            assert_eq!(bits(&plain), bits(&out), "length {n}");
            assert_eq!(bits(&plain_lse), bits(&lse), "length {n}");
        }
    }
}

/// https://github.com/vllm-project/vllm/issues/795 (odd lengths); a row does not depend on its tile, so it is every bit.
#[test]
fn chunks_of_queries_give_the_bits_of_the_whole() {
    let (n, n_heads, width) = (100, 2, 40);
    for by_key in [false, true] {
        let mut case = Case::random(shape(n, n_heads, width), 31);
        if by_key {
            case = case.by_key();
        }
        let (whole, _) = case.run();
        let row = n_heads * width;
        for chunk in [1, 7, 48, 50, 99] {
            for from in (0..n).step_by(chunk) {
                let to = (from + chunk).min(n);
                let mut input = case.input();
                input.shape.n_queries = to - from;
                input.shape.query_offset = from;
                // With a cache the later keys do not exist yet.
                if !by_key {
                    input.shape.n_keys = to;
                }
                input.q.offset = from * row;
                let (out, _) = common::run(&input, None);
                assert_eq!(
                    bits(&whole[from * row..to * row]),
                    bits(&out),
                    "rows {from}..{to}"
                );
            }
        }
    }
}

#[test]
fn thread_counts_give_the_same_bytes() {
    let mut s = shape(500, 6, 32);
    s.n_kv_heads = 2;
    let case = Case::random(s, 37);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let (out, lse) = pool.install(|| case.run());
        (bits(&out), bits(&lse))
    };
    let one = run(1);
    for threads in [2, 8] {
        for _ in 0..3 {
            assert!(one == run(threads), "{threads} threads differ from one");
        }
    }
}
