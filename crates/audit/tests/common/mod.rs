//! Small attention calls on random heads, observed by the collector and by a recorder that keeps everything.
#![allow(clippy::unwrap_used, dead_code)]

pub(crate) mod handwritten;

use std::any::Any;
use std::sync::{Arc, Mutex};

use kernels::{
    AttentionInput, AttentionObserver, AttentionOptions, AttentionShape, HeadSink, Heads,
    ScoreRows, attention_with,
};
use model::{
    Activation, AlibiSpec, Arrangement, AttentionSpec, BlockSpec, EmbeddingSpec, HeadSpec,
    LayerObserver, LoweredBias, MlpSpec, ModelSpec, NormKind, NormSpec, OutputSpec, ResidualFrom,
};
use numerics::{BiasFunction, Family, PrecisionPlan};
use snellen_audit::evidence::{Evidence, EvidenceCollector, EvidenceOptions};

/// Channels of a head; the attention scale is `1 / sqrt(WIDTH)`, a power of two, so that raw scores are recovered exactly.
pub(crate) const WIDTH: usize = 16;

/// Everything one head saw, padding removed.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) index: usize,
    pub(crate) slope: f64,
    /// Scaled `q.k` of each row.
    pub(crate) rows: Vec<Vec<f32>>,
    /// Scores with bias of each row, as the f32 softmax saw them.
    pub(crate) scores: Vec<Vec<f64>>,
}

#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) heads: Vec<Head>,
    pub(crate) scale: f32,
    pub(crate) bias: BiasFunction,
    pub(crate) causal: bool,
}

/// A specification of which only the attention matters.
pub(crate) fn spec(family: Family, slopes: &[f64]) -> ModelSpec {
    let norm = NormSpec {
        kind: NormKind::LayerNorm,
        eps: 1e-5,
        has_bias: true,
    };
    ModelSpec {
        name: "random".into(),
        family,
        vocab_size: 16,
        width: slopes.len() * WIDTH,
        n_layers: 1,
        n_heads: slopes.len(),
        n_kv_heads: slopes.len(),
        head_width: WIDTH,
        trained_length: None,
        embedding: EmbeddingSpec::default(),
        block: BlockSpec {
            norm,
            attention_residual: ResidualFrom::Input,
            mlp_residual: ResidualFrom::Input,
            arrangement: Arrangement::Sequential,
            attention: AttentionSpec {
                qkv_bias: false,
                output: Some(OutputSpec { bias: false }),
                clip_qkv: None,
                qk_norm: None,
                scale: 1.0 / (WIDTH as f32).sqrt(),
                inverse_layer_scale: false,
            },
            mlp: MlpSpec {
                hidden: 16,
                activation: Activation::Relu,
                gated: false,
                bias: false,
            },
        },
        final_norm: None,
        head: HeadSpec {
            tied: true,
            logit_scale: 1.0,
            soft_cap: None,
        },
        alibi: AlibiSpec {
            slopes: slopes.to_vec(),
            bias: BiasFunction::linear(),
            convention: family.convention(),
        },
    }
}

/// A deterministic normal variate generator (sum of uniforms).
pub(crate) fn random(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        let mut sum = 0.0;
        for _ in 0..4 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            sum += (state >> 40) as f32 / (1_u64 << 24) as f32 - 0.5;
        }
        sum * 3.0_f32.sqrt()
    }
}

/// One call on random queries and keys whose scaled scores have the standard deviation `spread`.
pub(crate) fn record(
    family: Family,
    slopes: &[f64],
    n: usize,
    spread: f32,
    pad: Option<usize>,
    plans: &[PrecisionPlan],
    seed: u64,
) -> (Evidence, Recording) {
    let spec = spec(family, slopes);
    let valid = pad.map(|pad| (0..n).map(|key| key >= pad).collect::<Vec<_>>());
    let (q, k) = queries_and_keys(slopes.len(), n, spread, seed);
    let options = EvidenceOptions {
        length: n,
        ..EvidenceOptions::default()
    };
    let collector = EvidenceCollector::new(&spec, plans.to_vec(), options);
    let recorder = Recorder::default();
    for observer in [collector.layer(0).unwrap(), Arc::new(recorder.clone())] {
        run(&spec, &q, &k, 0, n, valid.as_deref(), &*observer);
    }
    collector.layer_done(0);
    let pad = pad.unwrap_or(0);
    let mut heads: Vec<Head> = recorder
        .heads
        .lock()
        .unwrap()
        .drain(..)
        .map(|(index, kept)| {
            let unpad = |rows: &[Vec<f64>]| -> Vec<Vec<f64>> {
                rows[pad..].iter().map(|row| row[pad..].to_vec()).collect()
            };
            let rows = kept.raw[pad..]
                .iter()
                .map(|row| row[pad..].to_vec())
                .collect();
            Head {
                index,
                slope: slopes[index],
                rows,
                scores: unpad(&kept.scores),
            }
        })
        .collect();
    heads.sort_by_key(|head| head.index);
    let recording = Recording {
        heads,
        scale: spec.score_scale(0),
        bias: spec.alibi.bias.clone(),
        causal: spec.alibi.convention.causal,
    };
    (collector.finish(), recording)
}

/// The same sequence read `chunk` tokens at a time.
pub(crate) fn record_in_chunks(
    family: Family,
    slopes: &[f64],
    n: usize,
    spread: f32,
    plans: &[PrecisionPlan],
    seed: u64,
    chunk: usize,
) -> Evidence {
    let spec = spec(family, slopes);
    let (q, k) = queries_and_keys(slopes.len(), n, spread, seed);
    let options = EvidenceOptions {
        length: n,
        several_calls: true,
        ..EvidenceOptions::default()
    };
    let collector = EvidenceCollector::new(&spec, plans.to_vec(), options);
    for start in (0..n).step_by(chunk) {
        run(
            &spec,
            &q,
            &k,
            start,
            (start + chunk).min(n),
            None,
            &*collector.layer(0).unwrap(),
        );
        collector.layer_done(0);
    }
    collector.finish()
}

pub(crate) fn queries_and_keys(
    n_heads: usize,
    n: usize,
    spread: f32,
    seed: u64,
) -> (Vec<f32>, Vec<f32>) {
    let mut random = random(seed);
    let count = n * n_heads * WIDTH;
    // Scores q.k / sqrt(width) of independent standard normals have deviation 1.
    let q = (0..count).map(|_| random() * spread).collect();
    let k = (0..count).map(|_| random()).collect();
    (q, k)
}

/// Attention of queries `start..end` over keys `0..end`.
pub(crate) fn run(
    spec: &ModelSpec,
    q: &[f32],
    k: &[f32],
    start: usize,
    end: usize,
    valid: Option<&[bool]>,
    observer: &dyn AttentionObserver,
) {
    run_with(spec, q, k, start, end, valid, observer, 16);
}

/// [`run`] with vectors of at most `lanes` lanes.
#[allow(clippy::too_many_arguments, reason = "one call and how to run it")]
pub(crate) fn run_with(
    spec: &ModelSpec,
    q: &[f32],
    k: &[f32],
    start: usize,
    end: usize,
    valid: Option<&[bool]>,
    observer: &dyn AttentionObserver,
    lanes: usize,
) {
    let n_heads = spec.n_heads;
    let row = n_heads * WIDTH;
    let bias = LoweredBias::lower(&spec.alibi, spec.score_scale(0), end, valid);
    let shape = AttentionShape {
        n_queries: end - start,
        n_keys: end,
        n_heads,
        n_kv_heads: n_heads,
        head_width: WIDTH,
        query_offset: start,
        causal: spec.alibi.convention.causal,
        scale: spec.score_scale(0),
        soft_cap: None,
    };
    let input = AttentionInput {
        shape,
        q: Heads::packed(&q[start * row..end * row], n_heads, WIDTH),
        k: Heads::packed(&k[..end * row], n_heads, WIDTH),
        v: Heads::packed(&k[..end * row], n_heads, WIDTH),
        bias: bias.table(),
        key_valid: valid,
    };
    let mut out = vec![0.0; (end - start) * row];
    let mut lse = vec![0.0; (end - start) * n_heads];
    let options = AttentionOptions {
        lanes,
        ..AttentionOptions::default()
    };
    attention_with(&input, &options, &mut out, &mut lse, Some(observer));
}

#[derive(Clone, Debug, Default)]
struct Recorder {
    heads: Arc<Mutex<Vec<(usize, Kept)>>>,
}

#[derive(Debug, Default)]
struct Kept {
    raw: Vec<Vec<f32>>,
    scores: Vec<Vec<f64>>,
}

impl AttentionObserver for Recorder {
    fn begin(&self, _head: usize) -> Box<dyn HeadSink> {
        Box::new(Kept::default())
    }

    fn finish(&self, head: usize, sink: Box<dyn HeadSink>) {
        let sink: Box<dyn Any> = sink;
        self.heads
            .lock()
            .unwrap()
            .push((head, *sink.downcast::<Kept>().unwrap()));
    }
}

impl HeadSink for Kept {
    fn rows(&mut self, rows: &ScoreRows<'_>) {
        for row in rows.iter() {
            self.raw.push(row.raw.to_vec());
            let mut scores = vec![0.0; row.keys.len()];
            row.scores_into(&mut scores);
            self.scores
                .push(scores.into_iter().map(f64::from).collect());
        }
    }
}
