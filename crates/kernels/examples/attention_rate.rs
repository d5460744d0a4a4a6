//! Prints what the attention kernels cost, beside the matrix-product rate of the same process.
//!
//! `cargo run --release -p snellen-kernels --example attention_rate -- [THREADS [LENGTH...]] [contiguous] [NAME]`, NAME a part of the name of the
//! lines wanted. Queries, keys and values lie in the rows of one product, `[tokens, 3, heads, width]`, or contiguous,
//! `[3, heads, tokens, width]`, as PyTorch's benchmarks have them.
//!
//! 16 causal heads of width 64 with press slopes. Every time is in CPU milliseconds of all threads together, the median of several
//! runs, because on a shared machine the wall clock says little; `busiest` is the share of the thread that worked most, so that
//! `1 / busiest` is the speed-up threads give where each has a core of its own. Rates count the operations of the
//! pairs inside the mask, less the share of blocks skipped; `of gemm` compares them with a 1024^3 product measured between
//! the runs.
#![allow(clippy::print_stdout, reason = "a measurement for people to read")]

#[path = "common/clock.rs"]
mod clock;

use clock::cpu_seconds;
use snellen_kernels::{
    AttentionInput, AttentionObserver, AttentionOptions, AttentionShape, BiasTable, Gradients,
    HeadSink, Heads, ScoreRows, attention_backward_with, attention_with,
};

const HEADS: usize = 16;
const WIDTH: usize = 64;

/// Looks at nothing: the price of handing scores over.
#[derive(Debug)]
struct Nothing {
    all_scores: bool,
}

impl AttentionObserver for Nothing {
    fn begin(&self, _head: usize) -> Box<dyn HeadSink> {
        Box::new(Self { all_scores: true })
    }
    fn finish(&self, _head: usize, _sink: Box<dyn HeadSink>) {}
    fn needs_all_scores(&self) -> bool {
        self.all_scores
    }
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

/// CPU seconds of `f` in all threads of a pool that it hands all its work to, and the share of the busiest.
fn time(f: &mut dyn FnMut()) -> (f64, f64) {
    let before = cpu_seconds();
    f();
    let used: Vec<f64> = cpu_seconds()
        .iter()
        .map(|(task, after)| after - before.get(task).unwrap_or(&0.0))
        .collect();
    let all: f64 = used.iter().sum();
    (all, used.iter().copied().fold(0.0, f64::max) / all)
}

fn median(mut x: Vec<f64>) -> f64 {
    x.sort_by(f64::total_cmp);
    x[x.len() / 2]
}

/// One 1024^3 product on one thread.
struct Product {
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Product {
    const N: usize = 1024;

    fn new() -> Self {
        let n = Self::N * Self::N;
        Self {
            a: numbers(n, 5),
            b: numbers(n, 6),
            c: vec![0.0; n],
        }
    }

    fn run(&mut self) {
        let n = Self::N;
        let (a, b, c) = (self.a.as_ptr(), self.b.as_ptr(), self.c.as_mut_ptr());
        #[allow(unsafe_code, reason = "the interface of `gemm`")]
        // SAFETY: three row-major matrices of `n * n`.
        unsafe {
            let s = n as isize;
            let (one, none) = (1.0_f32, gemm::Parallelism::None);
            gemm::gemm(
                n, n, n, c, 1, s, false, a, 1, s, b, 1, s, 0.0, one, false, false, false, none,
            );
        }
    }

    /// GFLOP per CPU second, on one thread of `pool`.
    fn rate(&mut self, pool: &rayon::ThreadPool) -> f64 {
        let n = Self::N;
        let (seconds, _) = time(&mut || pool.install(|| self.run()));
        2.0 * (n as f64).powi(3) / seconds / 1e9
    }
}

struct Line {
    name: &'static str,
    skip: bool,
    observer: Option<Nothing>,
    backward: bool,
}

impl Line {
    /// Of the pairs inside the mask: two products forward, five backward.
    fn operations(&self, n: usize) -> f64 {
        let products = if self.backward { 5 } else { 2 };
        (HEADS * n * (n + 1) / 2 * 2 * WIDTH * products) as f64
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let contiguous = args.iter().any(|a| a == "contiguous");
    let filter = args
        .iter()
        .find(|a| a.parse::<usize>().is_err() && *a != "contiguous");
    let args: Vec<usize> = args.iter().filter_map(|a| a.parse().ok()).collect();
    let threads = args.first().copied().unwrap_or(1);
    let lengths = if args.len() > 1 {
        args[1..].to_vec()
    } else {
        vec![2048, 8192, 32768]
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("a thread pool");
    let mut product = Product::new();
    for n in lengths {
        let x = numbers(3 * n * HEADS * WIDTH, 1);
        let part = |i: usize| {
            let (offset, row_stride, head_stride) = if contiguous {
                (i * HEADS * WIDTH * n, WIDTH, WIDTH * n)
            } else {
                (i * HEADS * WIDTH, 3 * HEADS * WIDTH, WIDTH)
            };
            Heads {
                data: &x,
                offset,
                row_stride,
                head_stride,
            }
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
        let mut gradients = std::array::from_fn(|_| vec![0.0; n * HEADS * WIDTH]);
        let d_out = numbers(n * HEADS * WIDTH, 2);
        pool.install(|| {
            attention_with(
                &input,
                &AttentionOptions::default(),
                &mut out,
                &mut lse,
                None,
            )
        });
        let watch = |all_scores| Some(Nothing { all_scores });
        let mut lines = vec![
            Line {
                name: "forward, no skipping",
                skip: false,
                observer: None,
                backward: false,
            },
            Line {
                name: "forward",
                skip: true,
                observer: None,
                backward: false,
            },
            Line {
                name: "observed, all scores",
                skip: true,
                observer: watch(true),
                backward: false,
            },
            Line {
                name: "observed",
                skip: true,
                observer: watch(false),
                backward: false,
            },
            Line {
                name: "backward, no skipping",
                skip: false,
                observer: None,
                backward: true,
            },
            Line {
                name: "backward",
                skip: true,
                observer: None,
                backward: true,
            },
        ];
        lines.retain(|line| filter.is_none_or(|f| line.name.contains(f.as_str())));
        let runs = if n > 16384 {
            1
        } else if n > 4096 {
            5
        } else {
            15
        };
        // Interleaved, so that all meet the same neighbours.
        let mut results = vec![(vec![], vec![], vec![], 0.0); lines.len()];
        for _ in 0..runs {
            for (line, result) in lines.iter().zip(&mut results) {
                let options = AttentionOptions {
                    skip: line.skip,
                    ..AttentionOptions::default()
                };
                let observer = line.observer.as_ref().map(|o| o as &dyn AttentionObserver);
                let (seconds, busiest) = time(&mut || {
                    let stats = pool.install(|| {
                        if line.backward {
                            let [dq, dk, dv] = &mut gradients;
                            let mut to = Gradients {
                                dq,
                                dk,
                                dv,
                                dbias: None,
                            };
                            attention_backward_with(&input, &options, &out, &lse, &d_out, &mut to)
                        } else {
                            attention_with(&input, &options, &mut out, &mut lse, observer)
                        }
                    });
                    result.3 = stats.skipped_share();
                });
                let rate = line.operations(n) * (1.0 - result.3) / seconds / 1e9;
                result.0.push(seconds);
                result.1.push(rate / product.rate(&pool));
                result.2.push(busiest);
            }
        }
        for (line, (seconds, share, busiest, skipped)) in lines.iter().zip(results) {
            let seconds = median(seconds);
            println!(
                "length {n:6}  threads {threads}  {:22} {:9.1} CPU ms  skipped {:4.1} %  {:6.1} GFLOP/s  {:5.3} of gemm  busiest {:.3}",
                line.name,
                seconds * 1e3,
                100.0 * skipped,
                line.operations(n) * (1.0 - skipped) / seconds / 1e9,
                median(share),
                median(busiest),
            );
        }
    }
    let rates = (0..9).map(|_| product.rate(&pool)).collect();
    println!("gemm 1024^3: {:.1} GFLOP per CPU second", median(rates));
}
