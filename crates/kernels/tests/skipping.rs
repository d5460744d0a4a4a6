//! Leaving out blocks of zero weight changes no bit, whatever the input; and does leave out blocks.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::sync::Mutex;

use common::{Bias, Case, Random, bits, shape};
use snellen_kernels::{
    AttentionObserver, AttentionOptions, AttentionStats, CapOrder, HeadSink, ScoreRows,
    attention_with,
};

fn run(
    case: &Case,
    skip: bool,
    observer: Option<&dyn AttentionObserver>,
) -> (Vec<u32>, Vec<u32>, AttentionStats) {
    let s = case.shape;
    let mut out = vec![f32::NAN; s.n_queries * s.n_heads * s.head_width];
    let mut lse = vec![f32::NAN; s.n_queries * s.n_heads];
    let options = AttentionOptions {
        skip,
        ..AttentionOptions::default()
    };
    let stats = attention_with(&case.input(), &options, &mut out, &mut lse, observer);
    (bits(&out), bits(&lse), stats)
}

/// The bits with and without skipping are equal; returns the share skipped.
fn check(name: &str, case: &Case) -> f64 {
    let (out, lse, stats) = run(case, true, None);
    let (all_out, all_lse, all) = run(case, false, None);
    assert_eq!(all.blocks_skipped, 0, "{name}");
    assert_eq!(all.blocks, stats.blocks, "{name}");
    let width = case.shape.head_width * case.shape.n_heads;
    for (t, (got, expected)) in out.chunks(width).zip(all_out.chunks(width)).enumerate() {
        assert_eq!(expected, got, "{name}: row {t}, {stats:?}");
    }
    assert_eq!(all_lse, lse, "{name}: lse");
    stats.skipped_share()
}

/// Every head with the same slope, in either form.
fn slope(mut case: Case, slope: f32, by_key: bool) -> Case {
    let s = case.shape;
    let n = s.n_keys.max(s.query_offset + s.n_queries);
    case.bias = if by_key {
        let one = (0..s.n_keys).map(|j| slope * j as f32);
        Bias::ByKey((0..s.n_heads).flat_map(|_| one.clone()).collect())
    } else {
        let one = (0..n).map(|d| -slope * d as f32);
        Bias::ByDistance((0..s.n_heads).flat_map(|_| one.clone()).collect())
    };
    case
}

#[test]
fn steep_heads_skip_and_change_nothing() {
    for width in [1, 5, 16, 64, 80] {
        for n in [1, 64, 65, 129, 700] {
            for by_key in [false, true] {
                for m in [0.05, 0.5, 5.0] {
                    let case = slope(Case::random(shape(n, 2, width), 1), m, by_key);
                    let share = check(&format!("width {width} n {n} slope {m} {by_key}"), &case);
                    // Beyond (104 + two score bounds) / slope tokens, and a tile and a block of slack, nothing is computed.
                    let worst_scores = 2.0 * 2.5 * 2.5 * (width as f32).sqrt();
                    let reach = (104.0 + worst_scores) / m + 48.0 + 128.0;
                    let expected = (1.0 - 2.0 * reach / n as f32).max(0.0);
                    assert!(
                        share >= f64::from(expected),
                        "width {width} n {n} slope {m}: {share} < {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn both_sides_are_skipped_without_a_causal_rule() {
    for by_key in [false, true] {
        let mut s = shape(700, 2, 16);
        s.causal = false;
        let case = slope(Case::random(s, 2), 2.0, by_key);
        let share = check("bidirectional", &case);
        // By key the newest keys win in every row: all older ones are skipped.
        assert!(share > 0.5, "{share} {by_key}");
    }
    for (n_queries, n_keys, query_offset) in
        [(70, 700, 0), (70, 700, 300), (100, 700, 680), (60, 20, 5)]
    {
        let mut s = shape(n_queries, 2, 16);
        (s.n_keys, s.query_offset, s.causal) = (n_keys, query_offset, false);
        check(
            "bidirectional, offset",
            &slope(Case::random(s, 3), 1.0, false),
        );
    }
}

#[test]
fn caps_padding_offsets_and_shared_heads() {
    for order in [CapOrder::BeforeBias, CapOrder::AfterBias] {
        for cap in [0.5, 40.0, 60.0, 500.0] {
            for causal in [true, false] {
                let mut s = shape(500, 2, 16);
                (s.soft_cap, s.causal) = (Some((cap, order)), causal);
                let share = check(
                    &format!("cap {cap} {order:?}"),
                    &slope(Case::random(s, 4), 2.0, false),
                );
                // Capped after the bias, nothing is further than the cap below these maxima of a few nats.
                let none = order == CapOrder::AfterBias && cap < 100.0;
                assert_eq!(share == 0.0, none, "cap {cap} {order:?}: {share}");
            }
        }
    }
    for causal in [true, false] {
        let mut s = shape(600, 4, 16);
        (s.n_kv_heads, s.causal) = (2, causal);
        let mut case = slope(Case::random(s, 5), 1.0, false);
        check("shared", &case);
        for hidden in [
            |j: usize| j < 200,
            |j: usize| j > 300,
            |j: usize| j % 3 == 1,
            |_| true,
        ] {
            case.key_valid = Some((0..600).map(|j| !hidden(j)).collect());
            check("padded", &case);
            for j in (0..600).filter(|&j| hidden(j)) {
                case.k[j * 32..(j + 1) * 32].fill(f32::NAN);
                case.v[j * 32..(j + 1) * 32].fill(f32::INFINITY);
            }
            check("padded with garbage", &case);
            case = slope(Case::random(s, 5), 1.0, false);
        }
        let mut s = shape(100, 2, 16);
        (s.n_keys, s.query_offset, s.causal) = (800, 700, causal);
        assert!(check("offset", &slope(Case::random(s, 6), 1.0, false)) > 0.3);
        assert!(check("offset by key", &slope(Case::random(s, 6), 1.0, true)) > 0.3);
    }
}

/// A sink far back, or anywhere, keeps its own block and takes the others' weight.
#[test]
fn sinks_are_never_skipped() {
    for at in [0, 3, 100, 400] {
        for height in [5.0, 30.0, 200.0, 3e4] {
            for by_key in [false, true] {
                let mut case = slope(Case::random(shape(800, 1, 16), 7), 0.25, by_key);
                for t in 0..800 {
                    case.q[t * 16] = 4.0;
                }
                case.k[at * 16] = height;
                check(&format!("sink of {height} at {at}"), &case);
                case.shape.causal = false;
                check(&format!("bidirectional sink of {height} at {at}"), &case);
            }
        }
    }
}

#[test]
fn equal_and_extreme_scores() {
    let base = Case::random(shape(500, 1, 16), 8);
    let mut zero = slope(base.clone(), 1.0, false);
    zero.q.fill(0.0);
    assert!(check("equal scores", &zero) > 0.3);
    zero.bias = Bias::None;
    assert_eq!(check("equal scores without bias", &zero), 0.0);
    for (q, k) in [
        (1e-25, 1e25),
        (1e25, 1e-25),
        (1e19, 1e19),
        (1e-30, 1.0),
        (1e-45, 1e38),
    ] {
        let mut case = slope(base.clone(), 1.0, false);
        for (x, size) in [(&mut case.q, q), (&mut case.k, k)] {
            for x in x.iter_mut() {
                *x *= size;
            }
        }
        check(&format!("q of {q:e}, k of {k:e}"), &case);
    }
    // Every score negative and large: the first key may be the best.
    let mut negative = slope(base.clone(), 0.5, false);
    for t in 0..500 {
        negative.q[t * 16..(t + 1) * 16].fill(1.0);
        negative.k[t * 16..(t + 1) * 16].fill(-(1.0 + t as f32));
    }
    check("all-negative rows", &negative);
    // Values whose products underflow leave -0 behind.
    let mut tiny = slope(base, 1.0, false);
    for v in &mut tiny.v {
        *v = -1e-45;
    }
    check("subnormal values", &tiny);
}

/// Weights that are zero by a hair, and not zero by a hair: scores put at multiples of one ulp around the threshold.
#[test]
fn the_threshold_itself() {
    let n = 256;
    for ulps in -3_i32..=3 {
        let bias = f32::from_bits((103.972_084_f32.to_bits() as i32 + ulps) as u32);
        let mut case = Case::random(shape(n, 1, 1), 9);
        case.q.fill(0.0);
        case.bias = Bias::ByDistance((0..n).map(|d| if d < 64 { 0.0 } else { -bias }).collect());
        let share = check(&format!("{ulps} ulp"), &case);
        assert_eq!(share > 0.0, ulps >= 0, "{ulps} ulp: {share}");
    }
}

/// Nothing is assumed about the bias.
#[test]
fn any_bias_function() {
    let n = 600;
    let mut random = Random::new(10);
    let noise: Vec<f32> = random.vec(n, 300.0);
    type BiasFn<'a> = Box<dyn Fn(usize) -> f32 + 'a>;
    let shapes: [(&str, BiasFn<'_>); 7] = [
        ("noise", Box::new(|d| noise[d])),
        ("rising", Box::new(|d| d as f32)),
        ("pit", Box::new(|d| -((d as f32) - 300.0).abs())),
        (
            "peak far back",
            Box::new(|d| if d == 450 { 50.0 } else { -(d as f32) }),
        ),
        ("clamped", Box::new(|d| -(d as f32).min(200.0))),
        (
            "minus infinity",
            Box::new(|d| if d > 100 { f32::NEG_INFINITY } else { 0.0 }),
        ),
        (
            "NaN far back",
            Box::new(|d| if d == 500 { f32::NAN } else { -2.0 * d as f32 }),
        ),
    ];
    for (name, bias) in &shapes {
        for causal in [true, false] {
            let mut case = Case::random(shape(n, 1, 16), 11);
            case.shape.causal = causal;
            case.bias = Bias::ByDistance((0..n).map(bias).collect());
            check(name, &case);
            case.bias = Bias::ByKey((0..n).map(bias).collect());
            check(&format!("{name} by key"), &case);
        }
    }
}

#[test]
fn non_finite_numbers_anywhere() {
    let n = 500;
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38] {
        for at in [0, 5, 63, 64, 200, 499] {
            for which in 0..3 {
                for causal in [true, false] {
                    for cap in [
                        None,
                        Some((60.0, CapOrder::BeforeBias)),
                        Some((60.0, CapOrder::AfterBias)),
                    ] {
                        let mut case = slope(Case::random(shape(n, 1, 16), 12), 1.0, false);
                        (case.shape.causal, case.shape.soft_cap) = (causal, cap);
                        [&mut case.q, &mut case.k, &mut case.v][which][at * 16 + 3] = bad;
                        let name = format!(
                            "{bad} in {} at {at}, causal {causal}, cap {cap:?}",
                            ["q", "k", "v"][which]
                        );
                        check_but_for_nan_payloads(&name, &case);
                    }
                }
            }
        }
    }
}

/// NaN compares as NaN: which of two NaN operands survives is the compiler's choice.
fn check_but_for_nan_payloads(name: &str, case: &Case) {
    let plain = |x: Vec<u32>| -> Vec<u32> {
        let nan = f32::NAN.to_bits();
        x.into_iter()
            .map(|x| if f32::from_bits(x).is_nan() { nan } else { x })
            .collect()
    };
    let (out, lse, _) = run(case, true, None);
    let (all_out, all_lse, _) = run(case, false, None);
    assert_eq!(plain(all_out), plain(out), "{name}");
    assert_eq!(plain(all_lse), plain(lse), "{name}, lse");
}

/// Random shapes, slopes and sizes.
#[test]
fn random_cases() {
    for seed in 0..150 {
        let mut random = Random::new(1000 + seed);
        let mut below = |n: usize| ((random.uniform() + 1.0) / 2.0 * n as f32) as usize;
        let (n_keys, n_kv_heads) = (1 + below(500), 1 + below(2));
        let mut s = shape(1 + below(300), n_kv_heads * (1 + below(2)), 1 + below(40));
        (s.n_keys, s.n_kv_heads, s.query_offset) = (n_keys, n_kv_heads, below(400));
        s.causal = below(3) > 0;
        s.soft_cap = [
            None,
            Some((55.0, CapOrder::BeforeBias)),
            Some((55.0, CapOrder::AfterBias)),
        ][below(3)];
        let (m, size) = ([0.1, 1.0, 10.0][below(3)], [0.1, 1.0, 10.0][below(3)]);
        let padded = below(2) == 0;
        let mut case = slope(Case::random(s, seed), m, below(2) == 0);
        for q in &mut case.q {
            *q *= size;
        }
        if padded {
            case.key_valid = Some((0..n_keys).map(|_| below(4) > 0).collect());
        }
        check(&format!("seed {seed}: {s:?}"), &case);
    }
}

/// For each row: where it is complete from, and its scores.
type Seen = Vec<(usize, usize, Vec<u32>)>;

#[derive(Debug)]
struct Recorder {
    all: bool,
    rows: Mutex<Vec<(usize, Seen)>>,
}

struct Sink(Seen);

impl AttentionObserver for Recorder {
    fn begin(&self, _head: usize) -> Box<dyn HeadSink> {
        Box::new(Sink(vec![]))
    }
    fn finish(&self, head: usize, sink: Box<dyn HeadSink>) {
        let any: Box<dyn std::any::Any> = sink;
        let rows = any.downcast::<Sink>().unwrap().0;
        self.rows.lock().unwrap().push((head, rows));
    }
    fn needs_all_scores(&self) -> bool {
        self.all
    }
}

impl HeadSink for Sink {
    fn rows(&mut self, rows: &ScoreRows<'_>) {
        for row in rows.iter() {
            let mut scores = vec![0.0; row.keys.len()];
            row.scores_into(&mut scores);
            self.0
                .push((row.query, row.proven_zero_before, bits(&scores)));
        }
    }
}

fn observe(case: &Case, all: bool) -> (Vec<(usize, Seen)>, AttentionStats) {
    let recorder = Recorder {
        all,
        rows: Mutex::default(),
    };
    let (out, lse, stats) = run(case, true, Some(&recorder));
    let (plain_out, plain_lse, _) = run(case, true, None);
    assert_eq!(
        (plain_out, plain_lse),
        (out, lse),
        "observing changed the output"
    );
    let mut rows = recorder.rows.into_inner().unwrap();
    rows.sort_by_key(|(head, _)| *head);
    (rows, stats)
}

/// An observer sees everything unless it waives; then it misses only keys whose weights are exactly zero.
#[test]
fn observers_miss_nothing_but_zeros() {
    let causal = shape(600, 2, 16);
    let mut wide = causal;
    wide.causal = false;
    for (name, case) in [
        ("causal", slope(Case::random(causal, 13), 1.0, false)),
        ("by key", slope(Case::random(causal, 13), 1.0, true)),
        ("bidirectional", slope(Case::random(wide, 13), 1.0, false)),
    ] {
        let (complete, stats) = observe(&case, true);
        assert_eq!(stats.blocks_skipped, 0, "{name}");
        let (partial, stats) = observe(&case, false);
        assert!(stats.skipped_share() > 0.1, "{name}: {stats:?}");
        for ((_, complete), (_, partial)) in complete.iter().zip(&partial) {
            for ((query, from, scores), (q, skipped, rest)) in complete.iter().zip(partial) {
                assert_eq!((query, *from), (q, 0), "{name}");
                let max = scores
                    .iter()
                    .map(|&x| f32::from_bits(x))
                    .fold(f32::NEG_INFINITY, f32::max);
                for (key, (&s, &r)) in scores.iter().zip(rest).enumerate() {
                    if key < *skipped {
                        assert_eq!(f32::from_bits(r), f32::NEG_INFINITY, "{name}");
                        let mut weight = [f32::from_bits(s) - max];
                        snellen_kernels::exp::exp_in_place(&mut weight);
                        assert_eq!(weight, [0.0], "{name}: query {query} key {key}");
                    } else {
                        assert_eq!(s, r, "{name}: query {query} key {key}");
                    }
                }
            }
        }
    }
}

#[test]
fn thread_counts_skip_the_same() {
    let case = slope(Case::random(shape(1000, 4, 16), 14), 0.5, false);
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| run(&case, true, None))
    };
    let one = on(1);
    for threads in [2, 7] {
        assert!(one == on(threads), "{threads} threads differ from one");
    }
}
