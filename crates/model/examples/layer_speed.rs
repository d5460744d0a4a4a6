//! Times one BLOOM-560m-shaped layer (width 1024, 16 heads, MLP 4096) and the output head, and prints the share of the
//! machine's matrix-product rate that the layer reaches.
//!
//! `cargo run --release -p snellen-model --example layer_speed -- [length] [threads]`
#![allow(clippy::print_stdout, reason = "an example")]

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{Device, Distribution, Tensor};
use numerics::{BiasFunction, Family, SlopeSchedule};
use snellen_model::{
    Activation, AlibiSpec, Arrangement, AttentionSpec, BlockSpec, EmbeddingSpec, ForwardOptions,
    HeadSpec, MlpSpec, Model, ModelSpec, NormKind, NormSpec, OutputSpec, ResidualFrom, Weight,
    WeightError, WeightRole, WeightSource,
};

/// Small deterministic weights, made anew at each request as a file would be read anew.
struct Made(ModelSpec);

impl WeightSource for Made {
    fn weight(&self, role: WeightRole) -> Result<Weight, WeightError> {
        let shape = self.0.weight_shape(role).unwrap_or_default();
        let n: usize = shape.iter().product();
        let value = |i: usize| ((i.wrapping_mul(2_654_435_761) >> 7) % 2048) as f32 / 2048.0 - 0.5;
        let data = (0..n).map(|i| 0.05 * value(i)).collect();
        Ok(Weight { shape, data })
    }
}

fn spec() -> ModelSpec {
    let norm = NormSpec {
        kind: NormKind::LayerNorm,
        eps: 1e-5,
        has_bias: true,
    };
    ModelSpec {
        name: "bloom-560m, one layer".into(),
        family: Family::Bloom,
        vocab_size: 32_768,
        width: 1024,
        n_layers: 1,
        n_heads: 16,
        n_kv_heads: 16,
        head_width: 64,
        trained_length: Some(2048),
        embedding: EmbeddingSpec {
            scale: 1.0,
            norm: Some(norm),
        },
        block: BlockSpec {
            norm,
            attention_residual: ResidualFrom::Input,
            mlp_residual: ResidualFrom::Input,
            arrangement: Arrangement::Sequential,
            attention: AttentionSpec {
                qkv_bias: true,
                output: Some(OutputSpec { bias: true }),
                clip_qkv: None,
                qk_norm: None,
                scale: 0.125,
                inverse_layer_scale: false,
            },
            mlp: MlpSpec {
                hidden: 4096,
                activation: Activation::GeluTanh,
                gated: false,
                bias: true,
            },
        },
        final_norm: None,
        head: HeadSpec {
            tied: true,
            logit_scale: 1.0,
            soft_cap: None,
        },
        alibi: AlibiSpec {
            slopes: SlopeSchedule::Press.slopes(16).unwrap_or_default(),
            bias: BiasFunction::linear(),
            convention: Family::Bloom.convention(),
        },
    }
}

/// CPU seconds of this process so far, all threads; on a machine that is shared, wall time says little. Linux only.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// (fastest wall seconds, mean CPU seconds) of a few runs.
fn time(mut f: impl FnMut()) -> (f64, f64) {
    f();
    let (mut wall, mut runs) = (f64::INFINITY, 0);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    while runs < 3 || start.elapsed().as_secs_f64() < 1.5 {
        let start = Instant::now();
        f();
        wall = wall.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    (wall, (cpu_seconds() - cpu) / f64::from(runs))
}

fn report(what: &str, gflop: f64, f: impl FnMut()) {
    let (wall, cpu) = time(f);
    println!(
        "{what}: {:.1} ms, {:.0} GFLOP/s; {:.1} CPU ms, {:.0} GFLOP per CPU second",
        wall * 1e3,
        gflop / wall,
        cpu * 1e3,
        gflop / cpu
    );
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let n = arguments.first().copied().unwrap_or(2048);
    if let Some(&threads) = arguments.get(1) {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build_global()?;
    }
    let device = Device::flex();
    let random =
        |rows, columns| Tensor::<2>::random([rows, columns], Distribution::Default, &device);
    let (a, b) = (random(512, 1024), random(4096, 1024));
    let square = random(1024, 1024);
    let gflop = |m: usize, k: usize, n: usize| 2.0 * (m * k * n) as f64 / 1e9;
    report("matmul 1024^3", gflop(1024, 1024, 1024), || {
        drop(square.clone().matmul(square.clone()));
    });
    report(
        "matmul 512x1024x4096, transposed",
        gflop(512, 1024, 4096),
        || {
            drop(a.clone().matmul(b.clone().transpose()));
        },
    );
    let c = Tensor::<2>::from_data(b.clone().transpose().into_data(), &device);
    report(
        "matmul 512x1024x4096, contiguous",
        gflop(512, 1024, 4096),
        || {
            drop(a.clone().matmul(c.clone()));
        },
    );
    let spec = spec();
    let source: Arc<dyn WeightSource> = Arc::new(Made(spec.clone()));
    let model = Model::new(spec.clone(), source)?.keep_weights(true);
    let ids: Vec<u32> = (0..n as u32)
        .map(|i| i.wrapping_mul(7919) % 32_768)
        .collect();
    let run = || model.forward(&ids, ForwardOptions::default());
    let hidden = run()?;
    let linear = gflop(n, 1024, 4 * 1024 + 2 * 4096);
    // Half of the pairs, twice (scores and values).
    let attention = gflop(n, n, 1024);
    println!("{linear:.1} GFLOP in linear layers, {attention:.1} in attention");
    report(&format!("layer at {n}"), linear + attention, || drop(run()));
    let head = gflop(n, 1024, 32_768);
    report("head and loss over 32768 ids", head, || {
        drop(model.loss(&hidden, &ids))
    });
    Ok(())
}
