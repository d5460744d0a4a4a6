//! Small decoders with random weights, and their layer-0 arithmetic written out plainly: the lower rung of the ladder.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::collections::BTreeMap;

use model::{
    Activation, AlibiSpec, Arrangement, AttentionSpec, BlockSpec, EmbeddingSpec, HeadSpec,
    LayerRole, MlpSpec, ModelSpec, NormKind, NormSpec, OutputSpec, QkNormExtent, QkNormSpec,
    ResidualFrom, Weight, WeightError, WeightRole, WeightSource,
};
use numerics::{BiasFunction, Family, Format};
use snellen_audit::BoundsOptions;

/// Every head, without the exact bound of the first layer.
pub const NORM_ONLY: BoundsOptions<'static> = BoundsOptions {
    keep: &|_, _| true,
    vocabulary_flops_max: 0.0,
};

/// Deterministic random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// What varies between the toys.
#[derive(Clone, Debug)]
pub struct Toy {
    pub family: Family,
    pub kind: NormKind,
    pub norm_bias: bool,
    pub qkv_bias: bool,
    pub clip: Option<f32>,
    pub qk_norm: Option<QkNormExtent>,
    pub embedding_norm: bool,
    pub n_kv_heads: usize,
    pub width: usize,
    pub head_width: usize,
    pub vocab: usize,
    pub n_layers: usize,
    pub slopes: Vec<f64>,
    /// Standard deviation of the projection weights.
    pub weight_scale: f64,
    /// Their mean, which LayerNorm removes.
    pub weight_mean: f64,
    pub seed: u64,
}

impl Toy {
    pub fn new(seed: u64) -> Self {
        Self {
            family: Family::Custom,
            kind: NormKind::LayerNorm,
            norm_bias: true,
            qkv_bias: true,
            clip: None,
            qk_norm: None,
            embedding_norm: false,
            n_kv_heads: 2,
            width: 24,
            head_width: 4,
            vocab: 40,
            n_layers: 1,
            slopes: vec![0.5, 0.25],
            weight_scale: 0.1,
            weight_mean: 0.02,
            seed,
        }
    }

    pub fn spec(&self) -> ModelSpec {
        let norm = NormSpec {
            kind: self.kind,
            eps: 1e-5,
            has_bias: self.norm_bias,
        };
        ModelSpec {
            name: "toy".to_owned(),
            family: self.family,
            vocab_size: self.vocab,
            width: self.width,
            n_layers: self.n_layers,
            n_heads: self.slopes.len(),
            n_kv_heads: self.n_kv_heads,
            head_width: self.head_width,
            trained_length: None,
            embedding: EmbeddingSpec {
                scale: 1.0,
                norm: self.embedding_norm.then_some(norm),
            },
            block: BlockSpec {
                norm,
                attention_residual: ResidualFrom::Input,
                mlp_residual: ResidualFrom::Input,
                arrangement: Arrangement::Sequential,
                attention: AttentionSpec {
                    qkv_bias: self.qkv_bias,
                    output: Some(OutputSpec { bias: false }),
                    clip_qkv: self.clip,
                    qk_norm: self.qk_norm.map(|extent| QkNormSpec { norm, extent }),
                    scale: 1.0 / (self.head_width as f32).sqrt(),
                    inverse_layer_scale: false,
                },
                mlp: MlpSpec {
                    hidden: self.width,
                    activation: Activation::Silu,
                    gated: false,
                    bias: false,
                },
            },
            final_norm: Some(norm),
            head: HeadSpec {
                tied: true,
                logit_scale: 1.0,
                soft_cap: None,
            },
            alibi: AlibiSpec {
                slopes: self.slopes.clone(),
                bias: BiasFunction::linear(),
                convention: self.family.convention(),
            },
        }
    }

    pub fn source(&self) -> Weights {
        let spec = self.spec();
        let mut random = Random(self.seed);
        let mut weights = BTreeMap::new();
        for role in spec.weight_roles() {
            let shape = spec.weight_shape(role).unwrap();
            let (mean, deviation) = match role {
                WeightRole::Embedding => (0.3, 1.0),
                WeightRole::Layer(_, LayerRole::QueryWeight | LayerRole::KeyWeight) => {
                    (self.weight_mean, self.weight_scale)
                }
                WeightRole::Layer(_, LayerRole::QueryBias | LayerRole::KeyBias) => {
                    (0.0, 2.0 * self.weight_scale)
                }
                WeightRole::Layer(_, LayerRole::QueryNormWeight | LayerRole::KeyNormWeight) => {
                    (0.4, 0.2)
                }
                WeightRole::Layer(_, LayerRole::Norm1Weight) | WeightRole::EmbeddingNormWeight => {
                    (1.0, 0.3)
                }
                _ => (0.0, 0.1),
            };
            let n = shape.iter().product();
            let data = (0..n)
                .map(|_| (mean + deviation * random.normal()) as f32)
                .collect();
            weights.insert(role, Weight::new(shape, data));
        }
        Weights(weights)
    }
}

/// Weights in memory.
pub struct Weights(pub BTreeMap<WeightRole, Weight>);

impl WeightSource for Weights {
    fn weight(&self, role: WeightRole) -> Result<Weight, WeightError> {
        let found = self.0.get(&role).cloned();
        found.ok_or_else(|| WeightError::Missing {
            role,
            detail: String::new(),
        })
    }
}

impl Weights {
    pub fn layer(&self, role: LayerRole) -> Option<Vec<f64>> {
        let weight = self.0.get(&WeightRole::Layer(0, role))?;
        Some(weight.data.iter().map(|x| f64::from(*x)).collect())
    }

    fn embedding_norm(&self, x: &[f64], spec: &ModelSpec) -> Vec<f64> {
        let Some(norm) = &spec.embedding.norm else {
            return x.to_vec();
        };
        let get = |role| -> Vec<f64> {
            self.0.get(&role).map_or(vec![0.0; x.len()], |w: &Weight| {
                w.data.iter().map(|v| f64::from(*v)).collect()
            })
        };
        let n = normalise(x, norm);
        let (gain, shift) = (
            get(WeightRole::EmbeddingNormWeight),
            get(WeightRole::EmbeddingNormBias),
        );
        (0..x.len()).map(|j| gain[j] * n[j] + shift[j]).collect()
    }

    /// Normalised embedding of a token: the n of layer 0.
    pub fn token(&self, spec: &ModelSpec, token: usize) -> Vec<f64> {
        self.token_in(spec, token, Format::F64)
    }

    /// [`Weights::token`] where the embedding norm's output is rounded to a format.
    pub fn token_in(&self, spec: &ModelSpec, token: usize, format: Format) -> Vec<f64> {
        let table = &self.0[&WeightRole::Embedding].data;
        let row: Vec<f64> = table[token * spec.width..][..spec.width]
            .iter()
            .map(|x| f64::from(*x))
            .collect();
        let read = self.embedding_norm(&row, spec);
        let rounded: Vec<f64> = read.into_iter().map(|x| format.round(x)).collect();
        normalise(&rounded, &spec.block.norm)
    }

    /// Query (or key) of one head for a normalised input n, definition by definition.
    pub fn project(&self, spec: &ModelSpec, head: usize, is_query: bool, n: &[f64]) -> Vec<f64> {
        let roles = if is_query {
            [
                LayerRole::QueryWeight,
                LayerRole::QueryBias,
                LayerRole::QueryNormWeight,
                LayerRole::QueryNormBias,
            ]
        } else {
            [
                LayerRole::KeyWeight,
                LayerRole::KeyBias,
                LayerRole::KeyNormWeight,
                LayerRole::KeyNormBias,
            ]
        };
        let (width, d) = (spec.width, spec.head_width);
        let gain = self.layer(LayerRole::Norm1Weight).unwrap();
        let shift = self.layer(LayerRole::Norm1Bias).unwrap_or(vec![0.0; width]);
        let x: Vec<f64> = (0..width).map(|j| gain[j] * n[j] + shift[j]).collect();
        let weight = self.layer(roles[0]).unwrap();
        let channels = weight.len() / width;
        let bias = self.layer(roles[1]).unwrap_or(vec![0.0; channels]);
        let clip = spec
            .block
            .attention
            .clip_qkv
            .map_or(f64::INFINITY, f64::from);
        let mut all: Vec<f64> = (0..channels)
            .map(|c| {
                ((0..width)
                    .map(|j| weight[c * width + j] * x[j])
                    .sum::<f64>()
                    + bias[c])
                    .clamp(-clip, clip)
            })
            .collect();
        if let Some(norm) = &spec.block.attention.qk_norm {
            let gain = self.layer(roles[2]).unwrap();
            let shift = self.layer(roles[3]).unwrap_or(vec![0.0; gain.len()]);
            let extent = if norm.extent == QkNormExtent::Full {
                channels
            } else {
                d
            };
            for part in all.chunks_mut(extent) {
                let normed = normalise(part, &norm.norm);
                (0..part.len()).for_each(|c| part[c] = gain[c] * normed[c] + shift[c]);
            }
        }
        all[head * d..(head + 1) * d].to_vec()
    }
}

/// The norm without gain and shift.
pub fn normalise(x: &[f64], norm: &NormSpec) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = if norm.kind == NormKind::LayerNorm {
        x.iter().sum::<f64>() / n
    } else {
        0.0
    };
    let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    x.iter()
        .map(|v| (v - mean) / (variance + f64::from(norm.eps)).sqrt())
        .collect()
}

pub fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(a, b)| a * b).sum()
}

/// Inputs that drive a head's score to its largest value: power iteration on the bilinear part. Returns the normalised inputs of
/// the query and of the key, of norm sqrt(width), mean free under LayerNorm.
pub fn worst_inputs(
    weights: &Weights,
    spec: &ModelSpec,
    head: usize,
    random: &mut Random,
) -> (Vec<f64>, Vec<f64>) {
    let width = spec.width;
    let group = spec.n_heads / spec.n_kv_heads;
    let gain = weights.layer(LayerRole::Norm1Weight).unwrap();
    let rows = |role, head: usize| -> Vec<Vec<f64>> {
        let all = weights.layer(role).unwrap();
        let d = spec.head_width;
        (0..d)
            .map(|c| {
                (0..width)
                    .map(|j| all[(head * d + c) * width + j] * gain[j])
                    .collect()
            })
            .collect()
    };
    let (q, k) = (
        rows(LayerRole::QueryWeight, head),
        rows(LayerRole::KeyWeight, head / group),
    );
    let onto_sphere = |mut x: Vec<f64>| {
        if spec.block.norm.kind == NormKind::LayerNorm {
            let mean = x.iter().sum::<f64>() / width as f64;
            x.iter_mut().for_each(|v| *v -= mean);
        }
        let length = dot(&x, &x).sqrt();
        let radius = (width as f64).sqrt();
        x.iter_mut().for_each(|v| *v *= radius / length);
        x
    };
    // Transpose of one map applied to the other's image: W_q^T (W_k y).
    let through = |from: &[Vec<f64>], to: &[Vec<f64>], y: &[f64]| -> Vec<f64> {
        let image: Vec<f64> = from.iter().map(|row| dot(row, y)).collect();
        (0..width)
            .map(|j| to.iter().zip(&image).map(|(row, v)| row[j] * v).sum())
            .collect()
    };
    let mut key = onto_sphere((0..width).map(|_| random.normal()).collect());
    let mut query = key.clone();
    for _ in 0..2000 {
        query = onto_sphere(through(&k, &q, &key));
        key = onto_sphere(through(&q, &k, &query));
    }
    (query, key)
}
