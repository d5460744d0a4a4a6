//! Prints the rate of the attention kernel, bare and with an observer that does nothing.
//!
//! `cargo run --release -p snellen-kernels --example attention_rate -- [THREADS [LENGTH...]]`
//!
//! "per CPU second" is the rate of one thread that has a core to itself: on a shared machine the wall clock says little.
//!
//! 16 causal heads of width 64 with press slopes. The rate counts 4 * width operations for each pair inside the mask.
#![allow(clippy::print_stdout, reason = "a measurement for people to read")]

use std::time::Instant;

use snellen_kernels::{
    AttentionInput, AttentionObserver, AttentionShape, BiasTable, HeadSink, Heads, ScoreRows,
    attention,
};

const HEADS: usize = 16;
const WIDTH: usize = 64;

#[derive(Debug)]
struct Nothing;

impl AttentionObserver for Nothing {
    fn begin(&self, _head: usize) -> Box<dyn HeadSink> {
        Box::new(Self)
    }
    fn finish(&self, _head: usize, _sink: Box<dyn HeadSink>) {}
}

impl HeadSink for Nothing {
    fn rows(&mut self, rows: &ScoreRows<'_>) {
        std::hint::black_box(rows);
    }
}

/// Sums of uniform numbers, standard deviation about 1.2: scores of about 1.5 nats.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u64 << 24) as f32
    };
    (0..n)
        .map(|_| (uniform() + uniform() + uniform() + uniform() - 2.0) * 2.1)
        .collect()
}

/// CPU seconds of this process so far (Linux: fields 14 and 15 of `/proc/self/stat`, hundredths); NaN elsewhere.
fn cpu_seconds() -> f64 {
    let ticks = || {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
    };
    ticks().map_or(f64::NAN, |t| t / 100.0)
}

fn main() {
    let args: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let threads = args.first().copied().unwrap_or(1);
    let lengths = if args.len() > 1 {
        args[1..].to_vec()
    } else {
        vec![2048, 8192]
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("a thread pool");
    for n in lengths {
        let x = numbers(3 * n * HEADS * WIDTH, 1);
        let part = |i: usize| Heads {
            data: &x,
            offset: i * HEADS * WIDTH,
            row_stride: 3 * HEADS * WIDTH,
            head_stride: WIDTH,
        };
        let mut table = vec![0.0; HEADS * n];
        for (i, b) in table.iter_mut().enumerate() {
            let slope = 2.0_f64.powf(-((i / n + 1) as f64) / 2.0);
            *b = (-slope * (i % n) as f64) as f32;
        }
        let input = AttentionInput {
            shape: AttentionShape {
                n_queries: n,
                n_keys: n,
                n_heads: HEADS,
                n_kv_heads: HEADS,
                head_width: WIDTH,
                query_offset: 0,
                causal: true,
                scale: 0.125,
                soft_cap: None,
            },
            q: part(0),
            k: part(1),
            v: part(2),
            bias: BiasTable::ByDistance { values: &table },
            key_valid: None,
        };
        let mut out = vec![0.0; n * HEADS * WIDTH];
        let mut lse = vec![0.0; n * HEADS];
        let operations = (HEADS * n * (n + 1) / 2 * 4 * WIDTH) as f64;
        for observed in [false, true] {
            let observer: Option<&dyn AttentionObserver> =
                if observed { Some(&Nothing) } else { None };
            let runs = if n > 4096 { 3 } else { 9 };
            let cpu = cpu_seconds();
            let mut times: Vec<f64> = (0..runs)
                .map(|_| {
                    let start = Instant::now();
                    pool.install(|| attention(&input, &mut out, &mut lse, observer));
                    start.elapsed().as_secs_f64()
                })
                .collect();
            let cpu = (cpu_seconds() - cpu) / f64::from(runs);
            times.sort_by(f64::total_cmp);
            let (best, median) = (times[0], times[times.len() / 2]);
            let rate = |seconds: f64| operations / seconds / 1e9;
            println!(
                "length {n:6}  threads {threads}  observer {observed:5}  median {:8.1} ms {:6.1} GFLOP/s  best {:8.1} ms {:6.1} GFLOP/s  {:6.1} per CPU second",
                median * 1e3,
                rate(median),
                best * 1e3,
                rate(best),
                rate(cpu)
            );
        }
    }
}
