//! The step against the same decoder written in f64 without any cleverness: losses directly, gradients by central differences of
//! the f64 loss in every parameter.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use numerics::bias::t5_bucket;
use numerics::{BiasFunction, BiasShape, CapOrder, PrecisionPlan};
use snellen_train::AttentionRule;
use snellen_train::network::{Batch, Network, Workspace};
use snellen_train::params::Init;
use snellen_train::shape::{MlpKind, ModelShape, NormKind, Position, PositionConfig, PositionKind};

const IDS: [u32; 11] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5];
const TARGETS: [u32; 11] = [1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8];
const WEIGHTS: [f32; 11] = [0.1, 0.1, 0.3, 0.0, 0.1, 0.05, 0.05, 0.2, 0.1, 0.1, 0.4];
const SEQUENCES: [(usize, usize); 2] = [(0, 7), (7, 11)];

fn shape() -> ModelShape {
    ModelShape {
        layers: 2,
        width: 16,
        heads: 2,
        hidden: 20,
        vocab: 11,
        context: 8,
        norm: NormKind::LayerNorm,
        mlp: MlpKind::Gelu,
        tied: true,
        bias: true,
        dropout: 0.0,
    }
}

/// The decoder in f64. `zero_beyond`: weights with a larger gap are zero.
struct Reference<'a> {
    network: &'a Network,
    params: &'a [f64],
    zero_beyond: f64,
}

type Rows = Vec<Vec<f64>>;

impl Reference<'_> {
    fn get(&self, name: &str) -> Option<&[f64]> {
        let param = self.network.layout.params.iter().find(|p| p.name == name)?;
        Some(&self.params[param.range.clone()])
    }

    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.get(&format!("{name}.weight")).unwrap();
        let bias = self.get(&format!("{name}.bias"));
        weight
            .chunks(x.len())
            .enumerate()
            .map(|(o, row)| {
                row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>() + bias.map_or(0.0, |b| b[o])
            })
            .collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let n = x.len() as f64;
        let mean = match self.network.shape.norm {
            NormKind::LayerNorm => x.iter().sum::<f64>() / n,
            NormKind::RmsNorm => 0.0,
        };
        let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        let inverse = 1.0 / (variance + 1e-5).sqrt();
        let weight = self.get(&format!("{name}.weight")).unwrap();
        let bias = self.get(&format!("{name}.bias"));
        (0..x.len())
            .map(|c| (x[c] - mean) * inverse * weight[c] + bias.map_or(0.0, |b| b[c]))
            .collect()
    }

    fn bias_at(&self, head: usize, distance: usize) -> f64 {
        let heads = self.network.shape.heads;
        match &self.network.position {
            Position::Fixed { bias, slopes } => bias.bias(head, slopes[head], distance as f64),
            Position::KerpleLog { .. } => {
                let ln = self.get("position.kerple_ln").unwrap();
                -ln[head].exp() * (ln[heads + head].exp() * distance as f64).ln_1p()
            }
            Position::T5 {
                buckets,
                max_distance,
            } => {
                let bucket = t5_bucket(distance as f64, *buckets, *max_distance, false);
                self.get("position.t5").unwrap()[head * buckets + bucket]
            }
            Position::Rope { .. } => 0.0,
        }
    }

    fn attention(&self, qkv: &Rows) -> Rows {
        let (width, heads) = (self.network.shape.width, self.network.shape.heads);
        let w = width / heads;
        let turned = |row: usize, part: usize, head: usize| -> Vec<f64> {
            let x = &qkv[row][part * width + head * w..][..w];
            let Position::Rope { base } = self.network.position else {
                return x.to_vec();
            };
            if part == 2 {
                return x.to_vec();
            }
            let mut out = x.to_vec();
            for c in 0..w / 2 {
                let angle = row as f64 * f64::from(base).powf(-2.0 * c as f64 / w as f64);
                let (a, b) = (x[c], x[c + w / 2]);
                out[c] = a * angle.cos() - b * angle.sin();
                out[c + w / 2] = a * angle.sin() + b * angle.cos();
            }
            out
        };
        let cap = match &self.network.position {
            Position::Fixed { bias, .. } => bias.soft_cap,
            _ => None,
        };
        let mut out = vec![vec![0.0; width]; qkv.len()];
        for head in 0..heads {
            for (i, out) in out.iter_mut().enumerate() {
                let q = turned(i, 0, head);
                let entries: Vec<f64> = (0..=i)
                    .map(|j| {
                        let k = turned(j, 1, head);
                        let dot: f64 = q.iter().zip(&k).map(|(a, b)| a * b).sum();
                        let score = dot / (w as f64).sqrt();
                        let bias = self.bias_at(head, i - j);
                        match cap {
                            None => score + bias,
                            Some(cap) if cap.order == CapOrder::BeforeBias => {
                                cap.apply(score) + bias
                            }
                            Some(cap) => cap.apply(score + bias),
                        }
                    })
                    .collect();
                let max = entries.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let numerators: Vec<f64> = entries
                    .iter()
                    .map(|s| {
                        if max - s > self.zero_beyond {
                            0.0
                        } else {
                            (s - max).exp()
                        }
                    })
                    .collect();
                let sum: f64 = numerators.iter().sum();
                for (j, numerator) in numerators.iter().enumerate() {
                    let v = turned(j, 2, head);
                    for c in 0..w {
                        out[head * w + c] += numerator / sum * v[c];
                    }
                }
            }
        }
        out
    }

    /// Weighted loss.
    fn loss(&self) -> f64 {
        let shape = &self.network.shape;
        let table = self.get("embedding.weight").unwrap();
        let add =
            |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a + b).collect() };
        let mut total = 0.0;
        for (first, end) in SEQUENCES {
            let mut x: Rows = IDS[first..end]
                .iter()
                .map(|&id| table[id as usize * shape.width..][..shape.width].to_vec())
                .collect();
            for l in 0..shape.layers {
                let at = |part: &str| format!("layers.{l}.{part}");
                let qkv = x
                    .iter()
                    .map(|x| self.linear(&at("qkv"), &self.norm(&at("norm1"), x)));
                let attended = self.attention(&qkv.collect());
                for (x, attended) in x.iter_mut().zip(&attended) {
                    *x = add(x, &self.linear(&at("out"), attended));
                    let h = self.norm(&at("norm2"), x);
                    let up = self.linear(&at("up"), &h);
                    let active: Vec<f64> = match shape.mlp {
                        MlpKind::Gelu => up.iter().map(|&u| u * normal_below(u)).collect(),
                        MlpKind::Swiglu => {
                            let gate = self.linear(&at("gate"), &h);
                            up.iter()
                                .zip(gate)
                                .map(|(u, g)| g / (1.0 + (-g).exp()) * u)
                                .collect()
                        }
                    };
                    *x = add(x, &self.linear(&at("down"), &active));
                }
            }
            let head = self.get("head.weight").unwrap_or(table);
            for (r, x) in x.iter().enumerate() {
                let h = self.norm("norm", x);
                let logits: Vec<f64> = head
                    .chunks(shape.width)
                    .map(|row| row.iter().zip(&h).map(|(a, b)| a * b).sum())
                    .collect();
                let sum: f64 = logits.iter().map(|z| z.exp()).sum();
                total += f64::from(WEIGHTS[first + r])
                    * (sum.ln() - logits[TARGETS[first + r] as usize]);
            }
        }
        total
    }
}

/// `(1 + erf(x / sqrt 2)) / 2` by the Taylor series of erf, for the small arguments of this test.
fn normal_below(x: f64) -> f64 {
    let u = x / std::f64::consts::SQRT_2;
    let (mut term, mut sum) = (u, u);
    for n in 1..200 {
        term *= -u * u / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    0.5 + sum / std::f64::consts::PI.sqrt()
}

/// Parameters large enough that every part of the network matters.
fn parameters(network: &Network) -> Vec<f32> {
    let mut values = network
        .layout
        .initial(&network.shape, &network.position, Init::Gpt2, 11);
    for param in &network.layout.params {
        for (i, v) in values[param.range.clone()].iter_mut().enumerate() {
            let wiggle = ((i * 37 + param.name.len() * 11) % 23) as f32 / 23.0 - 0.5;
            if param.shape.len() == 2 && param.decay {
                *v *= 12.0;
            } else {
                *v += 0.4 * wiggle;
            }
        }
    }
    values
}

fn check_with(shape: ModelShape, position: &PositionConfig, rule: AttentionRule, zero_beyond: f64) {
    let resolved = position.resolve(shape.heads, shape.context).unwrap();
    let network = Network::new(shape, resolved, rule);
    let params = parameters(&network);
    let batch = Batch {
        ids: &IDS,
        targets: &TARGETS,
        weights: &WEIGHTS,
        sequences: &SEQUENCES,
    };
    let mut work = Workspace::new();
    let mut gradient = vec![0.0f32; params.len()];
    let losses = network
        .step(&params, &batch, 0, &mut gradient, &mut work)
        .to_vec();
    let total: f64 = losses
        .iter()
        .zip(WEIGHTS)
        .map(|(l, w)| f64::from(*l) * f64::from(w))
        .sum();

    let mut exact: Vec<f64> = params.iter().map(|p| f64::from(*p)).collect();
    let loss = |params: &[f64]| {
        Reference {
            network: &network,
            params,
            zero_beyond,
        }
        .loss()
    };
    let name = format!("{:?} {}", network.position, network.rule.name());
    let truth = loss(&exact);
    // About 1000 roundings of numbers below 10, relative to f32.
    assert!(
        (total - truth).abs() < 2e-5,
        "{name}: loss {total}, in f64 {truth}"
    );
    let largest = gradient.iter().fold(0.0f32, |a, g| a.max(g.abs()));
    for param in &network.layout.params {
        // Every 29th value: all kinds of places, in little time.
        for i in param
            .range
            .clone()
            .step_by(if param.range.len() > 40 { 29 } else { 1 })
        {
            let (here, h) = (exact[i], 1e-5);
            exact[i] = here + h;
            let above = loss(&exact);
            exact[i] = here - h;
            let below = loss(&exact);
            exact[i] = here;
            let slope = (above - below) / (2.0 * h);
            let got = f64::from(gradient[i]);
            // f32 sums over two layers, relative to the largest gradient.
            assert!(
                (got - slope).abs() < 2e-5 * f64::from(largest).max(1.0),
                "{name}: {} [{}]: {got}, by differences {slope}",
                param.name,
                i - param.range.start
            );
        }
    }
    let again: Vec<f32> = network.losses(&params, &batch, &mut work).to_vec();
    assert_eq!(
        again, losses,
        "{name}: a loss without gradients is the same"
    );
}

fn check(shape: ModelShape, position: &PositionConfig) {
    // The gaps of these tiny sequences never reach 100 nats, so nothing is zero.
    check_with(shape, position, AttentionRule::Exact, f64::INFINITY);
}

fn alibi(remedy: &str) -> PositionConfig {
    PositionConfig {
        remedy: remedy.to_owned(),
        ..PositionConfig::default()
    }
}

#[test]
fn every_remedy_and_combination_has_the_right_gradient() {
    let shapes = ["", "log", "sqrt"];
    let clamps = ["", "clamp=-0.3"];
    let caps = ["", "cap=2", "cap-after=2"];
    let robust = ["", "robust=even"];
    for distance in shapes {
        for clamp in clamps {
            for cap in caps {
                for slopes in robust {
                    let parts: Vec<&str> = [distance, clamp, cap, slopes]
                        .into_iter()
                        .filter(|p| !p.is_empty())
                        .collect();
                    let remedy = if parts.is_empty() {
                        "none".to_owned()
                    } else {
                        parts.join("+")
                    };
                    let one = ModelShape {
                        layers: 1,
                        ..shape()
                    };
                    check(
                        one,
                        &PositionConfig {
                            robust_tau: -8.0,
                            ..alibi(&remedy)
                        },
                    );
                }
            }
        }
    }
    check(shape(), &alibi("interpolate=0.5+log"));
}

#[test]
fn every_form_of_the_decoder_has_the_right_gradient() {
    let plain = alibi("none");
    check(shape(), &plain);
    check(
        ModelShape {
            norm: NormKind::RmsNorm,
            ..shape()
        },
        &plain,
    );
    check(
        ModelShape {
            mlp: MlpKind::Swiglu,
            ..shape()
        },
        &plain,
    );
    check(
        ModelShape {
            tied: false,
            ..shape()
        },
        &plain,
    );
    check(
        ModelShape {
            bias: false,
            ..shape()
        },
        &plain,
    );
    check(
        ModelShape {
            heads: 4,
            ..shape()
        },
        &plain,
    );
}

#[test]
fn every_baseline_has_the_right_gradient() {
    for kind in [
        PositionKind::Nope,
        PositionKind::KerpleLog,
        PositionKind::T5,
        PositionKind::Rope,
    ] {
        let position = PositionConfig {
            kind,
            buckets: 4,
            max_distance: 6,
            ..PositionConfig::default()
        };
        check(shape(), &position);
    }
}

/// The rule decides which weights are zero; they pass no gradient. The f64 reference zeroes the same pairs.
#[test]
fn a_rule_that_zeroes_weights_has_the_gradient_of_what_is_left() {
    for remedy in ["none", "log", "cap=2", "cap-after=2+clamp=-3"] {
        for nats in [1.0, 0.5, 1e9] {
            let rule = AttentionRule::ZeroBeyond(nats);
            check_with(shape(), &alibi(remedy), rule, nats);
        }
    }
    let kerple = PositionConfig {
        kind: PositionKind::KerpleLog,
        ..PositionConfig::default()
    };
    check_with(shape(), &kerple, AttentionRule::ZeroBeyond(0.7), 0.7);
}

/// An f32 plan rounds what f32 rounds, and so agrees with the plain formula as the kernel does.
#[test]
fn a_wide_plan_agrees_with_the_plain_formula() {
    for plan in ["f64", "ieee", "ftz"] {
        let plan = PrecisionPlan::parse(plan, numerics::Family::Custom).unwrap();
        check_with(
            shape(),
            &alibi("none"),
            AttentionRule::Plan(Box::new(plan)),
            f64::INFINITY,
        );
    }
}

/// Under a 16-bit plan the pairs that the plan makes zero get exactly no gradient: a key that only blind pairs see does not move.
#[test]
fn a_blind_pair_gets_exactly_no_gradient() {
    let position = PositionConfig {
        slopes: Some(vec![8.0, 8.0]),
        ..PositionConfig::default()
    };
    let plan = PrecisionPlan::parse("foundry-torch:f16", numerics::Family::Mpt).unwrap();
    for (rule, blind) in [
        (AttentionRule::Plan(Box::new(plan)), true),
        (AttentionRule::Exact, false),
    ] {
        let one = ModelShape {
            layers: 1,
            ..shape()
        };
        let network = Network::new(one, position.resolve(2, 8).unwrap(), rule);
        let params = network
            .layout
            .initial(&network.shape, &network.position, Init::Gpt2, 3);
        // Only the last row counts; the first token, seven away, is beyond 17.3 nats at 8 nats a token.
        let ids = [7, 1, 4, 1, 5, 9, 2, 6];
        let weights = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let batch = Batch {
            ids: &ids,
            targets: &ids,
            weights: &weights,
            sequences: &[(0, 8)],
        };
        let mut gradient = vec![0.0; params.len()];
        // The head is tied to the embedding, so look at an untied one.
        let untied = Network::new(
            ModelShape {
                tied: false,
                ..network.shape
            },
            network.position.clone(),
            network.rule.clone(),
        );
        let params = untied
            .layout
            .initial(&untied.shape, &untied.position, Init::Gpt2, 3);
        gradient.resize(params.len(), 0.0);
        untied.step(&params, &batch, 0, &mut gradient, &mut Workspace::new());
        let width = network.shape.width;
        let first_token = &gradient[7 * width..8 * width];
        assert_eq!(
            first_token.iter().all(|g| *g == 0.0),
            blind,
            "{first_token:?}"
        );
    }
}

#[test]
fn threads_change_no_bit() {
    let position = alibi("none").resolve(2, 8).unwrap();
    let wide = ModelShape {
        width: 96,
        hidden: 200,
        vocab: 301,
        heads: 2,
        ..shape()
    };
    for rule in [AttentionRule::Exact, AttentionRule::ZeroBeyond(3.0)] {
        let network = Network::new(
            ModelShape {
                dropout: 0.1,
                ..wide
            },
            position.clone(),
            rule,
        );
        let params = network
            .layout
            .initial(&network.shape, &network.position, Init::Gpt2, 5);
        let ids: Vec<u32> = (0..600).map(|i| (i * i % 301) as u32).collect();
        let weights = vec![1.0 / 600.0; 600];
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| {
                let mut gradient = vec![0.0; params.len()];
                let batch = Batch {
                    ids: &ids,
                    targets: &ids,
                    weights: &weights,
                    sequences: &[(0, 200), (200, 390), (390, 600)],
                };
                let mut work = Workspace::new();
                let losses = network
                    .step(&params, &batch, 9, &mut gradient, &mut work)
                    .to_vec();
                (losses, gradient)
            })
        };
        let one = run(1);
        assert!(run(2) == one && run(8) == one);
    }
}

/// The closed bias types are reachable from here: no bias function is left out of the checks above by a new variant.
#[test]
fn the_checks_know_every_shape() {
    match BiasFunction::linear().shape {
        BiasShape::None
        | BiasShape::Linear
        | BiasShape::Log
        | BiasShape::Sqrt
        | BiasShape::KerpleLog { .. }
        | BiasShape::T5Buckets { .. } => {}
    }
}
