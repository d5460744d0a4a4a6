//! A decoder learns one batch by heart, and learns nothing where there is nothing to learn.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use snellen_train::AttentionRule;
use snellen_train::network::{Batch, Network, Workspace};
use snellen_train::optimiser::{AdamW, Moments, global_norm};
use snellen_train::params::Init;
use snellen_train::shape::{MlpKind, ModelShape, NormKind, PositionConfig};

const VOCAB: u32 = 50;
const LENGTH: usize = 16;
const SEQUENCES: [(usize, usize); 4] = [(0, 16), (16, 32), (32, 48), (48, 64)];

/// A multiplicative generator: any tokens do.
fn tokens(seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % VOCAB
    };
    std::iter::repeat_with(next).take(4 * LENGTH).collect()
}

/// Mean losses of 300 steps; `targets` gives those of each step.
fn train(targets: impl Fn(u64) -> Vec<u32>) -> Vec<f64> {
    let shape = ModelShape {
        layers: 2,
        width: 32,
        heads: 4,
        hidden: 64,
        vocab: VOCAB as usize,
        context: LENGTH,
        norm: NormKind::LayerNorm,
        mlp: MlpKind::Gelu,
        tied: false,
        bias: false,
        dropout: 0.0,
    };
    let position = PositionConfig::default().resolve(4, LENGTH).unwrap();
    let network = Network::new(shape, position, AttentionRule::Exact);
    let mut params = network
        .layout
        .initial(&network.shape, &network.position, Init::Gpt2, 1);
    let mut moments = Moments::new(params.len());
    let (mut gradient, mut work) = (vec![0.0; params.len()], Workspace::new());
    let ids = tokens(1);
    let weights = [1.0 / 64.0; 64];
    let optimiser = AdamW {
        weight_decay: 0.0,
        ..AdamW::default()
    };
    (1..=300)
        .map(|step| {
            gradient.fill(0.0);
            let targets = targets(step);
            let batch = Batch {
                ids: &ids,
                targets: &targets,
                weights: &weights,
                sequences: &SEQUENCES,
            };
            let losses = network.step(&params, &batch, 0, &mut gradient, &mut work);
            let loss = losses.iter().map(|l| f64::from(*l)).sum::<f64>() / 64.0;
            let scale = 1.0 / global_norm(&gradient).max(1.0);
            let table = &network.layout.params;
            optimiser.update(
                &mut params,
                &gradient,
                &mut moments,
                table,
                step,
                5e-3,
                scale,
            );
            loss
        })
        .collect()
}

#[test]
fn one_batch_is_learned_by_heart_and_noise_is_not() {
    let uniform = f64::from(VOCAB).ln();
    let learned = train(|_| tokens(2));
    assert!(
        (learned[0] / uniform - 1.0).abs() < 0.05,
        "starts near ln 50: {}",
        learned[0]
    );
    assert!(learned[299] < 0.02, "{}", learned[299]);
    // Other targets at every step: nothing connects inputs and targets, so no step can be foreseen.
    let noise = train(|step| tokens(1000 + step));
    let late = noise[200..].iter().sum::<f64>() / 100.0;
    assert!(late > 0.9 * uniform, "{late}");
}
