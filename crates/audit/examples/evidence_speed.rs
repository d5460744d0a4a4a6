//! Cost of evidence in nanoseconds a pair: `cargo run --release -p snellen-audit --example evidence_speed [TOKENS]`.
//!
//! One thread, the 16 slopes of BLOOM-560m, random queries and keys (scores with a deviation of 2 nats): attention alone,
//! attention with an observer that looks at nothing, and with the collector under a growing list of plans.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use kernels::{
    AttentionInput, AttentionObserver, AttentionShape, HeadSink, Heads, ScoreRows, attention,
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

/// CPU time of this process, so that other work on the machine does not count. Linux only; hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |n: usize| {
        after_name
            .split_whitespace()
            .nth(n)
            .and_then(|ticks| ticks.parse::<f64>().ok())
    };
    (field(11).unwrap_or(f64::NAN) + field(12).unwrap_or(f64::NAN)) / 100.0
}

fn main() {
    let n: usize = std::env::args()
        .nth(1)
        .and_then(|arg| arg.parse().ok())
        .unwrap_or(4096);
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
        let start = cpu_seconds();
        pool.install(|| attention(&input, &mut out, &mut lse, observer));
        (cpu_seconds() - start) * 1e9 / pairs
    };
    let (alone, idle) = (time(None), time(Some(&Idle)));
    println!(
        "{n} tokens, {heads} heads, ns a pair: attention {alone:.2}, with an idle observer {idle:.2}"
    );
    for specs in [
        &[][..],
        &["ieee"],
        &["f64", "ieee", "ftz", "hf-eager"],
        &["ieee", "hf-eager", "foundry-torch", "vllm-paged"],
        &["ieee", "hf-eager:bf16", "hf-eager:f16", "llama-cpp-cpu"],
        &[
            "flash-attn2:bf16",
            "vllm-triton",
            "hf-sdpa",
            "flex-attention",
        ],
    ] {
        let plans: Vec<_> = specs
            .iter()
            .map(|spec| PrecisionPlan::parse(spec, Family::Bloom).expect("a known plan"))
            .collect();
        let options = EvidenceOptions {
            length: n,
            ..EvidenceOptions::default()
        };
        let collector = EvidenceCollector::new(&spec, plans, options);
        let observed = time(Some(&*collector.layer(0).expect("every layer is observed")));
        collector.layer_done(0);
        let blind: u64 = collector
            .finish()
            .heads
            .iter()
            .flat_map(|head| &head.plans)
            .map(|plan| plan.blind_pairs)
            .sum();
        println!(
            "  evidence {:.2} under {specs:?} ({blind} blind)",
            observed - idle
        );
    }
}
