//! Cost of evidence as a ratio to attention without an observer:
//! `cargo run --release -p snellen-audit --example evidence_speed -- [narrow] [TOKENS...] [PLAN,PLAN...]`, the plans (or `none`) instead of those of the
//! list; `narrow` with vectors of 8 lanes, as on a processor without AVX-512.
//!
//! One thread, 16 heads of width 64 with the slopes of BLOOM-560m, random queries and keys (scores with a deviation of 2 nats):
//! attention alone, with an observer that looks at nothing, and with the collector under several lists of plans. CPU time, medians
//! of runs that alternate.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use kernels::{
    AttentionInput, AttentionObserver, AttentionOptions, AttentionShape, HeadSink, Heads,
    ScoreRows, ScoreTile, SpareScores, attention_with,
};
use model::{LayerObserver, LoweredBias};
use numerics::{Family, PrecisionPlan, SlopeSchedule};
use snellen_audit::evidence::{EvidenceCollector, EvidenceOptions};

#[path = "../tests/common/mod.rs"]
mod common;

const WIDTH: usize = 64;

#[derive(Debug)]
struct Idle;

impl AttentionObserver for Idle {
    fn begin(&self, _head: usize) -> Box<dyn HeadSink> {
        Box::new(Idle)
    }

    fn finish(&self, _head: usize, _sink: Box<dyn HeadSink>) {}
}

impl HeadSink for Idle {
    fn rows(&mut self, _rows: &ScoreRows<'_>) {}
}

/// Is handed tiles and looks at nothing: the kernel's own part of watching.
#[derive(Debug)]
struct IdleTiles;

impl AttentionObserver for IdleTiles {
    fn begin(&self, _head: usize) -> Box<dyn HeadSink> {
        Box::new(IdleTiles)
    }

    fn finish(&self, _head: usize, _sink: Box<dyn HeadSink>) {}

    fn takes_tiles(&self) -> bool {
        true
    }
}

impl HeadSink for IdleTiles {
    fn rows(&mut self, _rows: &ScoreRows<'_>) {}

    fn tile(&mut self, _tile: &ScoreTile<'_>) {}

    fn spare_scores(&self) -> Option<SpareScores> {
        Some(SpareScores {
            gap: 104.0,
            raw_max: f32::MAX,
        })
    }
}

/// CPU time of this thread, so that other work on the machine does not count. Linux only.
fn cpu_seconds() -> f64 {
    // The number of a running thread is brought up to date every 4 ms, and when it gives way.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("procfs");
    let nanoseconds = stat.split_whitespace().next().map(str::parse::<f64>);
    nanoseconds.and_then(Result::ok).unwrap_or(f64::NAN) / 1e9
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

const PLANS: [&[&str]; 6] = [
    &[],
    &["ieee"],
    &["ieee", "ftz", "hf-sdpa", "flash-attn2:f16"],
    &["ieee", "ftz", "hf-eager", "llama-cpp-cpu"],
    &["ieee", "ftz", "hf-eager:f16", "hf-eager:bf16"],
    &[
        "flash-attn2:bf16",
        "vllm-triton",
        "hf-sdpa",
        "flex-attention",
    ],
];

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let all = args.len();
    args.retain(|arg| arg != "narrow");
    let options = AttentionOptions {
        lanes: if args.len() < all { 8 } else { 16 },
        ..AttentionOptions::default()
    };
    let lengths: Vec<usize> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let chosen: Vec<Vec<&str>> = args
        .iter()
        .filter(|arg| arg.parse::<usize>().is_err())
        .map(|arg| arg.split(',').filter(|spec| *spec != "none").collect())
        .collect();
    let listed = || PLANS.iter().map(|specs| specs.to_vec()).collect();
    let plans = if chosen.is_empty() { listed() } else { chosen };
    for &n in if lengths.is_empty() {
        &[2048, 8192][..]
    } else {
        &lengths
    } {
        measure(n, &plans, &options);
    }
}

fn measure(n: usize, specs_of: &[Vec<&str>], options: &AttentionOptions) {
    let slopes = SlopeSchedule::Press
        .slopes(16)
        .expect("16 heads have slopes");
    let mut spec = common::spec(Family::Bloom, &slopes);
    spec.head_width = WIDTH;
    spec.block.attention.scale = 0.125;
    let heads = slopes.len();
    let mut random = common::random(1);
    let count = n * heads * WIDTH;
    let q: Vec<f32> = (0..count).map(|_| 2.0 * random()).collect();
    let k: Vec<f32> = (0..count).map(|_| random()).collect();
    let bias = LoweredBias::lower(&spec.alibi, 0.125, n, None);
    let shape = AttentionShape {
        n_queries: n,
        n_keys: n,
        n_heads: heads,
        n_kv_heads: heads,
        head_width: WIDTH,
        query_offset: 0,
        causal: true,
        scale: 0.125,
        soft_cap: None,
    };
    let input = AttentionInput {
        shape,
        q: Heads::packed(&q, heads, WIDTH),
        k: Heads::packed(&k, heads, WIDTH),
        v: Heads::packed(&k, heads, WIDTH),
        bias: bias.table(),
        key_valid: None,
    };
    let mut out = vec![0.0; count];
    let mut lse = vec![0.0; n * heads];
    let pairs = (heads * n * (n + 1) / 2) as f64;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .expect("one thread");
    let mut time = |observer: Option<&dyn AttentionObserver>| {
        pool.install(|| {
            let start = cpu_seconds();
            attention_with(&input, options, &mut out, &mut lse, observer);
            cpu_seconds() - start
        })
    };
    let plans: Vec<Vec<PrecisionPlan>> = specs_of
        .iter()
        .map(|specs| {
            let parse = |spec: &&str| PrecisionPlan::parse(spec, Family::Bloom);
            specs.iter().map(parse).collect::<Result<_, _>>()
        })
        .collect::<Result<_, _>>()
        .expect("known plans");
    let mut times = vec![Vec::new(); 3 + plans.len()];
    let mut blind = vec![0; plans.len()];
    for _ in 0..7 {
        times[0].push(time(None));
        times[1].push(time(Some(&Idle)));
        times[2].push(time(Some(&IdleTiles)));
        for (index, plans) in plans.iter().enumerate() {
            let options = EvidenceOptions {
                length: n,
                ..EvidenceOptions::default()
            };
            let collector = EvidenceCollector::new(&spec, plans.clone(), options);
            // The second layer, as all but the first of a model: the collector has its memory by then.
            let mut layer = |layer: usize| {
                let observer = collector.layer(layer).expect("every layer is observed");
                let seconds = time(Some(&*observer));
                collector.layer_done(layer);
                seconds
            };
            layer(0);
            times[3 + index].push(layer(1));
            let heads = collector.finish().heads;
            let second = heads.iter().filter(|head| head.layer == 1);
            let plans = second.flat_map(|head| &head.plans);
            blind[index] = plans.map(|plan| plan.blind_pairs).sum::<u64>();
        }
    }
    let times: Vec<f64> = times.into_iter().map(median).collect();
    println!(
        "{n} tokens, {heads} heads: attention {:.1} CPU ms ({:.2} ns a pair), idle observer of rows x {:.3}, of tiles x {:.3}",
        times[0] * 1e3,
        times[0] * 1e9 / pairs,
        times[1] / times[0],
        times[2] / times[0]
    );
    for ((specs, time), blind) in specs_of.iter().zip(&times[3..]).zip(blind) {
        println!("  x {:.3} under {specs:?} ({blind} blind)", time / times[0]);
    }
}
