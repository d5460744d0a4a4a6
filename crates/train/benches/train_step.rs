//! Time and memory of a training step: `cargo bench -p snellen-train --bench train_step -- A|B|S [threads] [steps] [--remedy R]`.
//!
//! Configurations A and B are those of `benches/peers/train_torch.py`, which runs the same decoder in PyTorch from the same
//! initial weights and batches if given the folder that `--dump FOLDER` writes.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use checkpoint::safetensors::{StoredAs, TensorData, write_safetensors};
use snellen_train::AttentionRule;
use snellen_train::network::{Batch, Network, Workspace};
use snellen_train::optimiser::{AdamW, Moments};
use snellen_train::params::Init;
use snellen_train::shape::{MlpKind, ModelShape, NormKind, PositionConfig};

struct Configuration {
    width: usize,
    layers: usize,
    heads: usize,
    length: usize,
    batch: usize,
    vocab: usize,
}

fn configuration(name: &str) -> Configuration {
    let [width, layers, heads, length, batch, vocab] = match name {
        "A" => [256, 6, 8, 512, 8, 4096],
        "B" => [768, 12, 12, 1024, 1, 32_000],
        "S" => [64, 2, 4, 64, 2, 256],
        other => panic!("configuration {other}: expected A, B or S"),
    };
    Configuration {
        width,
        layers,
        heads,
        length,
        batch,
        vocab,
    }
}

fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|l| {
            l.strip_prefix("VmHWM:")?
                .split_whitespace()
                .next()?
                .parse::<f64>()
                .ok()
        })
        .unwrap_or(0.0)
        / 1024.0
}

/// CPU seconds of this process, in hundredths (Linux).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name in brackets, utime and stime are fields 12 and 13.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |i: usize| {
        fields
            .get(i)
            .and_then(|f| f.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

fn main() {
    let mut args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let mut option = |name: &str| {
        let at = args.iter().position(|a| a == name)?;
        args.remove(at);
        Some(args.remove(at))
    };
    let dump = option("--dump");
    let remedy = option("--remedy").unwrap_or_else(|| "none".to_owned());
    let name = args.first().map_or("A", String::as_str);
    let threads: usize = args.get(1).map_or(1, |a| a.parse().unwrap());
    let steps: usize = args.get(2).map_or(5, |a| a.parse().unwrap());
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .unwrap();

    let c = configuration(name);
    let shape = ModelShape {
        layers: c.layers,
        width: c.width,
        heads: c.heads,
        hidden: 4 * c.width,
        vocab: c.vocab,
        context: c.length,
        norm: NormKind::LayerNorm,
        mlp: MlpKind::Gelu,
        tied: true,
        bias: true,
        dropout: 0.0,
    };
    let position = PositionConfig {
        remedy: remedy.clone(),
        ..PositionConfig::default()
    };
    let position = position.resolve(c.heads, c.length).unwrap();
    let network = Network::new(shape, position, AttentionRule::Exact);
    let mut params = network
        .layout
        .initial(&network.shape, &network.position, Init::Gpt2, 1);
    let rows = c.batch * c.length;
    // A multiplicative generator: any tokens do.
    let mut state = 12_345u64;
    let mut token = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % c.vocab as u64) as u32
    };
    let ids: Vec<u32> = (0..rows).map(|_| token()).collect();
    let targets: Vec<u32> = (0..rows).map(|_| token()).collect();
    if let Some(folder) = &dump {
        let folder = Path::new(folder);
        let tensors: Vec<TensorData<'_>> = network
            .layout
            .params
            .iter()
            .map(|p| TensorData {
                name: p.name.clone(),
                shape: p.shape.clone(),
                values: &params[p.range.clone()],
            })
            .collect();
        write_safetensors(
            &folder.join("initial.safetensors"),
            &tensors,
            &BTreeMap::new(),
            StoredAs::F32,
        )
        .unwrap();
        let text = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        std::fs::write(folder.join("ids.txt"), text(&ids)).unwrap();
        std::fs::write(folder.join("targets.txt"), text(&targets)).unwrap();
    }
    let weights = vec![1.0 / rows as f32; rows];
    let sequences: Vec<(usize, usize)> = (0..c.batch)
        .map(|b| (b * c.length, (b + 1) * c.length))
        .collect();
    let mut moments = Moments::new(params.len());
    let mut gradient = vec![0.0; params.len()];
    let mut work = Workspace::new();
    let optimiser = AdamW {
        beta2: 0.999,
        weight_decay: 0.01,
        clip: 0.0,
        ..AdamW::default()
    };
    let (mut walls, mut cpus, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    for step in 1..=steps + 2 {
        let (began, cpu) = (Instant::now(), cpu_seconds());
        gradient.fill(0.0);
        let batch = Batch {
            ids: &ids,
            targets: &targets,
            weights: &weights,
            sequences: &sequences,
        };
        let row_losses = network.step(&params, &batch, 0, &mut gradient, &mut work);
        let loss: f64 = row_losses.iter().map(|l| f64::from(*l)).sum::<f64>() / rows as f64;
        optimiser.update(
            &mut params,
            &gradient,
            &mut moments,
            &network.layout.params,
            step as u64,
            3e-4,
            1.0,
        );
        losses.push(loss);
        if step > 2 {
            walls.push(began.elapsed().as_secs_f64());
            cpus.push(cpu_seconds() - cpu);
        }
    }
    walls.sort_by(f64::total_cmp);
    cpus.sort_by(f64::total_cmp);
    let median = walls[walls.len() / 2];
    println!(
        "RESULT snellen cfg={name} remedy={remedy} threads={threads} params={:.1}M step_med={median:.3}s cpu_med={:.3}s min={:.3} tok/s={:.0} peakMiB={:.0} losses={}",
        network.layout.len() as f64 / 1e6,
        cpus[cpus.len() / 2],
        walls[0],
        rows as f64 / median,
        peak_mib(),
        losses
            .iter()
            .map(|l| format!("{l:.7}"))
            .collect::<Vec<_>>()
            .join(",")
    );
}
