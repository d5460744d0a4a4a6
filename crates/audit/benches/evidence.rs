//! Attention of 16 heads of width 64 with evidence under four plans: `cargo bench -p snellen-audit`.
//!
//! One thread, 2048 tokens, the slopes of BLOOM-560m. For ratios from one run see the example `evidence_speed`.

use divan::Bencher;
use kernels::{AttentionInput, AttentionShape, Heads, attention};
use model::{LayerObserver, LoweredBias, ModelSpec};
use numerics::{Family, PrecisionPlan, SlopeSchedule};
use snellen_audit::evidence::{EvidenceCollector, EvidenceOptions};

#[path = "../tests/common/mod.rs"]
mod common;

const TOKENS: usize = 2048;
const WIDTH: usize = 64;

fn main() {
    divan::main();
}

fn spec() -> ModelSpec {
    let slopes = SlopeSchedule::Press
        .slopes(16)
        .expect("16 heads have slopes");
    let mut spec = common::spec(Family::Bloom, &slopes);
    spec.head_width = WIDTH;
    spec.block.attention.scale = 0.125;
    spec
}

/// `None`: nobody watches.
fn bench(bencher: Bencher<'_, '_>, plans: Option<&[&str]>) {
    let spec = spec();
    let row = spec.n_heads * WIDTH;
    let mut random = common::random(1);
    let q: Vec<f32> = (0..TOKENS * row).map(|_| 2.0 * random()).collect();
    let k: Vec<f32> = (0..TOKENS * row).map(|_| random()).collect();
    let bias = LoweredBias::lower(&spec.alibi, 0.125, TOKENS, None);
    let input = AttentionInput {
        shape: AttentionShape {
            n_queries: TOKENS,
            n_keys: TOKENS,
            n_heads: spec.n_heads,
            n_kv_heads: spec.n_heads,
            head_width: WIDTH,
            query_offset: 0,
            causal: true,
            scale: 0.125,
            soft_cap: None,
        },
        q: Heads::packed(&q, spec.n_heads, WIDTH),
        k: Heads::packed(&k, spec.n_heads, WIDTH),
        v: Heads::packed(&k, spec.n_heads, WIDTH),
        bias: bias.table(),
        key_valid: None,
    };
    let (mut out, mut lse) = (vec![0.0; TOKENS * row], vec![0.0; TOKENS * spec.n_heads]);
    let plans: Option<Vec<PrecisionPlan>> = plans.map(|plans| {
        let parse = |plan: &&str| PrecisionPlan::parse(plan, Family::Bloom);
        plans
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .expect("known plans")
    });
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let pool = pool.expect("a pool of one thread");
    bencher.bench_local(|| {
        pool.install(|| {
            let Some(plans) = &plans else {
                attention(&input, &mut out, &mut lse, None);
                return;
            };
            let options = EvidenceOptions {
                length: TOKENS,
                ..EvidenceOptions::default()
            };
            let collector = EvidenceCollector::new(&spec, plans.clone(), options);
            let observer = collector.layer(0).expect("every layer is observed");
            attention(&input, &mut out, &mut lse, Some(&*observer));
            collector.layer_done(0);
            divan::black_box(collector.finish());
        });
    });
}

#[divan::bench(sample_count = 9)]
fn unobserved(bencher: Bencher<'_, '_>) {
    bench(bencher, None);
}

#[divan::bench(sample_count = 9)]
fn plans_in_f32(bencher: Bencher<'_, '_>) {
    bench(bencher, Some(&["ieee", "ftz", "hf-eager", "llama-cpp-cpu"]));
}

#[divan::bench(sample_count = 9)]
fn streaming_plans(bencher: Bencher<'_, '_>) {
    bench(
        bencher,
        Some(&["ieee", "ftz", "hf-sdpa", "flash-attn2:f16"]),
    );
}

#[divan::bench(sample_count = 9)]
fn plans_that_round_scores(bencher: Bencher<'_, '_>) {
    bench(
        bencher,
        Some(&["ieee", "ftz", "hf-eager:f16", "hf-eager:bf16"]),
    );
}
