//! Our side of `benches/peers`: answers lines `forward TOKENS`, `backward TOKENS` on standard input with milliseconds, by the wall
//! clock and of CPU time.
//!
//! `attention_peer THREADS`, Linux. 16 causal heads of width 64 with press slopes, f32; `backward` is a forward and a backward pass.
#![allow(clippy::print_stdout, reason = "the answers")]

#[path = "common/clock.rs"]
mod clock;

use std::io::BufRead;
use std::time::Instant;

use snellen_kernels::{
    AttentionInput, AttentionOptions, AttentionShape, BiasTable, Gradients, Heads,
    attention_backward_with, attention_with,
};

const HEADS: usize = 16;
const WIDTH: usize = 64;

/// Uniform numbers with the variance of a normal one times 1.5, as the other side has them.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1_u64 << 24) as f32 - 0.5) * 4.24
        })
        .collect()
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|arg| arg.parse().ok());
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.unwrap_or(1))
        .build()
        .expect("a thread pool");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let mut words = line.split_whitespace();
        let backward = words.next() == Some("backward");
        let Some(n) = words.next().and_then(|word| word.parse().ok()) else {
            continue;
        };
        let (wall, cpu) = run(&pool, n, backward);
        println!("{wall:.4} {cpu:.4}");
    }
}

/// CPU seconds of the pool's threads so far.
fn cpu_seconds() -> f64 {
    clock::cpu_seconds().values().sum()
}

/// Wall and CPU milliseconds.
fn run(pool: &rayon::ThreadPool, n: usize, backward: bool) -> (f64, f64) {
    let len = n * HEADS * WIDTH;
    let (qkv, d_out) = (numbers(3 * len, 1), numbers(len, 2));
    let bias: Vec<f32> = (0..HEADS * n)
        .map(|i| -2.0_f32.powf(-((i / n + 1) as f32) / 2.0) * (i % n) as f32)
        .collect();
    let part = |i: usize| Heads {
        data: &qkv,
        offset: i * HEADS * WIDTH,
        row_stride: 3 * HEADS * WIDTH,
        head_stride: WIDTH,
    };
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
        bias: BiasTable::ByDistance { values: &bias },
        key_valid: None,
    };
    let (mut out, mut lse) = (vec![0.0; len], vec![0.0; n * HEADS]);
    let mut gradients: [Vec<f32>; 3] = std::array::from_fn(|_| vec![0.0; len]);
    let options = AttentionOptions::default();
    let used = cpu_seconds();
    let wall = pool.install(|| {
        // All threads are awake when the clock starts, as they are inside a model, and on the other side.
        rayon::broadcast(|_| {
            let start = Instant::now();
            while start.elapsed().as_micros() < 50 {
                std::hint::spin_loop();
            }
        });
        let start = Instant::now();
        attention_with(&input, &options, &mut out, &mut lse, None);
        if backward {
            let [dq, dk, dv] = &mut gradients;
            let mut to = Gradients {
                dq,
                dk,
                dv,
                dbias: None,
            };
            attention_backward_with(&input, &options, &out, &lse, &d_out, &mut to);
        }
        start.elapsed().as_secs_f64()
    });
    let used = cpu_seconds() - used;
    (wall * 1e3, used * 1e3)
}
