//! Random tiny models, and a forward pass in f64 that shares no code with the crate's.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(unreachable_pub, reason = "a module of test binaries")]

pub mod reference;

use std::collections::BTreeMap;
use std::sync::Arc;

use numerics::{BiasFunction, Family, SlopeSchedule};
use snellen_model::{
    Activation, AlibiSpec, Arrangement, AttentionSpec, BlockSpec, EmbeddingSpec, HeadSpec, MlpSpec,
    Model, ModelSpec, NormKind, NormSpec, OutputSpec, QkNormExtent, QkNormSpec, ResidualFrom,
    Weight, WeightError, WeightRole, WeightSource,
};

/// SplitMix64 (Steele, Lea, Flood 2014): small, seedable, the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [-1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn ids(&mut self, n: usize, vocab: usize) -> Vec<u32> {
        (0..n)
            .map(|_| (self.next() % vocab as u64) as u32)
            .collect()
    }
}

/// Every weight of a model, random; counts reads.
#[derive(Debug)]
pub struct RandomWeights {
    pub weights: BTreeMap<WeightRole, Weight>,
    pub cheap_rows: bool,
}

impl RandomWeights {
    /// Norm weights around 1, biases around 0, matrices with enough spread for attention to be far from uniform.
    pub fn new(spec: &ModelSpec, seed: u64) -> Self {
        let mut random = Random(seed);
        let weights = spec.weight_roles().into_iter().map(|role| {
            let shape = spec.weight_shape(role).unwrap();
            let name = role.to_string();
            let fan_in = *shape.last().unwrap() as f32;
            let (centre, spread) = match shape.len() {
                1 if name.contains("norm weight") => (1.0, 0.5),
                1 => (0.0, 0.4),
                _ if role == WeightRole::Embedding => (0.0, 1.0),
                _ => (0.0, 2.5 / fan_in.sqrt()),
            };
            let n: usize = shape.iter().product();
            let data = (0..n).map(|_| centre + spread * random.unit()).collect();
            (role, Weight::new(shape, data))
        });
        Self {
            weights: weights.collect(),
            cheap_rows: true,
        }
    }
}

impl WeightSource for RandomWeights {
    fn weight(&self, role: WeightRole) -> Result<Weight, WeightError> {
        self.weights
            .get(&role)
            .cloned()
            .ok_or(WeightError::Missing {
                role,
                detail: String::new(),
            })
    }

    fn has_cheap_rows(&self) -> bool {
        self.cheap_rows
    }
}

/// A model and its weights.
pub fn build(spec: &ModelSpec, seed: u64) -> (Model, Arc<RandomWeights>) {
    let weights = Arc::new(RandomWeights::new(spec, seed));
    let model = Model::new(spec.clone(), weights.clone()).unwrap();
    (model, weights)
}

const LAYER_NORM: NormSpec = NormSpec {
    kind: NormKind::LayerNorm,
    eps: 1e-5,
    has_bias: true,
};

/// BLOOM: embedding norm, biases, tanh GELU.
pub fn bloom() -> ModelSpec {
    let (n_heads, head_width) = (6, 8);
    ModelSpec {
        name: "tiny bloom".into(),
        family: Family::Bloom,
        vocab_size: 97,
        width: n_heads * head_width,
        n_layers: 2,
        n_heads,
        n_kv_heads: n_heads,
        head_width,
        trained_length: None,
        embedding: EmbeddingSpec {
            scale: 1.0,
            norm: Some(LAYER_NORM),
        },
        block: BlockSpec {
            norm: LAYER_NORM,
            attention_residual: ResidualFrom::Input,
            mlp_residual: ResidualFrom::Input,
            arrangement: Arrangement::Sequential,
            attention: AttentionSpec {
                qkv_bias: true,
                output: Some(OutputSpec { bias: true }),
                clip_qkv: None,
                qk_norm: None,
                scale: 1.0 / (head_width as f32).sqrt(),
                inverse_layer_scale: false,
            },
            mlp: MlpSpec {
                hidden: 4 * n_heads * head_width,
                activation: Activation::GeluTanh,
                gated: false,
                bias: true,
            },
        },
        final_norm: Some(LAYER_NORM),
        head: HeadSpec {
            tied: true,
            logit_scale: 1.0,
            soft_cap: None,
        },
        alibi: AlibiSpec {
            slopes: SlopeSchedule::Press.slopes(n_heads).unwrap(),
            bias: BiasFunction::linear(),
            convention: Family::Bloom.convention(),
        },
    }
}

/// BLOOM's `apply_residual_connection_post_layernorm`.
pub fn bloom_post_norm() -> ModelSpec {
    let mut spec = bloom();
    spec.block.attention_residual = ResidualFrom::Norm;
    spec.block.mlp_residual = ResidualFrom::Norm;
    spec
}

/// MPT with everything llm-foundry offers: clip, full-width query/key norm, grouped heads, scales, final cap.
pub fn mpt() -> ModelSpec {
    let mut spec = bloom();
    let norm = NormSpec {
        has_bias: false,
        ..LAYER_NORM
    };
    spec.name = "tiny mpt".into();
    spec.family = Family::Mpt;
    spec.n_kv_heads = 2;
    spec.embedding.norm = None;
    spec.final_norm = Some(norm);
    spec.block.norm = norm;
    spec.block.attention = AttentionSpec {
        qkv_bias: false,
        output: Some(OutputSpec { bias: false }),
        clip_qkv: Some(0.75),
        qk_norm: Some(QkNormSpec {
            norm,
            extent: QkNormExtent::Full,
        }),
        scale: 0.4,
        inverse_layer_scale: false,
    };
    spec.block.mlp.activation = Activation::GeluErf;
    spec.block.mlp.bias = false;
    spec.head.logit_scale = 0.3;
    spec.head.soft_cap = Some(4.0);
    spec.alibi.convention = Family::Mpt.convention();
    spec
}

/// Falcon-RW: the bias is added before the scale and rounded twice to bf16.
pub fn falcon() -> ModelSpec {
    let mut spec = bloom();
    spec.name = "tiny falcon".into();
    spec.family = Family::Falcon;
    spec.embedding.norm = None;
    spec.block.mlp.activation = Activation::GeluErf;
    spec.alibi.convention = Family::Falcon.convention();
    spec
}

/// Alilama: residual from the first norm, no output projection, no final norm, SiLU.
pub fn alilama() -> ModelSpec {
    let mut spec = bloom();
    spec.name = "tiny alilama".into();
    spec.family = Family::Custom;
    spec.embedding.norm = None;
    spec.block.attention_residual = ResidualFrom::Norm;
    spec.block.attention.output = None;
    spec.block.attention.qkv_bias = false;
    spec.block.mlp.activation = Activation::Silu;
    spec.block.mlp.bias = false;
    spec.final_norm = None;
    spec.alibi.convention = Family::Custom.convention();
    spec
}

/// Baichuan: RMSNorm, gated SiLU, untied head.
pub fn baichuan() -> ModelSpec {
    let mut spec = alilama();
    spec.name = "tiny baichuan".into();
    spec.family = Family::Baichuan;
    let norm = NormSpec {
        kind: NormKind::RmsNorm,
        eps: 1e-6,
        has_bias: false,
    };
    spec.block.norm = norm;
    spec.final_norm = Some(norm);
    spec.block.attention_residual = ResidualFrom::Input;
    spec.block.attention.output = Some(OutputSpec { bias: false });
    spec.block.mlp.gated = true;
    spec.block.mlp.hidden = 100;
    spec.head.tied = false;
    spec.alibi.convention = Family::Baichuan.convention();
    spec
}

/// Jais and Refact features in one: embedding and logit scales, 1/d, layer scale, one key head, per-head norm, gate with biases.
pub fn jais() -> ModelSpec {
    let mut spec = baichuan();
    spec.name = "tiny jais".into();
    spec.family = Family::Jais;
    spec.n_kv_heads = 1;
    spec.embedding.scale = 3.0;
    spec.head.logit_scale = 0.25;
    spec.block.norm = LAYER_NORM;
    spec.block.mlp.bias = true;
    spec.block.attention.scale = 1.0 / spec.head_width as f32;
    spec.block.attention.inverse_layer_scale = true;
    spec.block.attention.qk_norm = Some(QkNormSpec {
        norm: LAYER_NORM,
        extent: QkNormExtent::PerHead,
    });
    spec.alibi.convention = Family::Jais.convention();
    spec
}

/// Refact: positions from one, one key head.
pub fn refact() -> ModelSpec {
    let mut spec = baichuan();
    spec.name = "tiny refact".into();
    spec.family = Family::Refact;
    spec.n_kv_heads = 1;
    spec.alibi.convention = Family::Refact.convention();
    spec
}

/// Parallel blocks, one norm or two; ReLU, head width that is no multiple of a vector.
pub fn parallel(shared_norm: bool) -> ModelSpec {
    let mut spec = bloom();
    spec.name = format!("parallel, shared norm {shared_norm}");
    spec.block.arrangement = Arrangement::Parallel { shared_norm };
    spec.block.mlp.activation = Activation::Relu;
    spec.n_heads = 3;
    spec.n_kv_heads = 3;
    spec.head_width = 5;
    spec.alibi.slopes = SlopeSchedule::Press.slopes(3).unwrap();
    spec
}

/// Every spec above.
pub fn all() -> Vec<ModelSpec> {
    vec![
        bloom(),
        bloom_post_norm(),
        mpt(),
        falcon(),
        alilama(),
        baichuan(),
        jais(),
        refact(),
        parallel(true),
        parallel(false),
    ]
}

/// Worst absolute difference, with the place, checked against a bound.
pub fn assert_close(got: &[f32], expected: &[f64], bound: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: lengths");
    let mut worst = (0.0, 0);
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        let d = (f64::from(*g) - e).abs();
        assert!(!d.is_nan(), "{what}: [{i}] got {g}, expected {e}");
        if d > worst.0 {
            worst = (d, i);
        }
    }
    let (distance, i) = worst;
    assert!(
        distance <= bound,
        "{what}: worst at [{i}]: got {}, expected {}, distance {distance:e} > {bound:e}",
        got[i],
        expected[i]
    );
}

pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}
