//! Bounds from weights against inputs that try to exceed them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod toy;

use model::{LayerRole, NormKind, QkNormExtent, WeightRole};
use numerics::Format;
use snellen_audit::{BoundMethod, BoundsOptions, static_bounds};
use toy::{NORM_ONLY, Random, Toy, dot, worst_inputs};

fn toys() -> Vec<Toy> {
    let plain = Toy::new(7);
    vec![
        plain.clone(),
        Toy {
            kind: NormKind::RmsNorm,
            norm_bias: false,
            qkv_bias: false,
            seed: 8,
            ..plain.clone()
        },
        Toy {
            slopes: vec![0.5; 4],
            n_kv_heads: 1,
            embedding_norm: true,
            seed: 9,
            ..plain.clone()
        },
        Toy {
            clip: Some(0.6),
            seed: 10,
            ..plain.clone()
        },
        Toy {
            clip: Some(60.0),
            seed: 11,
            ..plain.clone()
        },
        Toy {
            qk_norm: Some(QkNormExtent::PerHead),
            seed: 12,
            ..plain.clone()
        },
        Toy {
            qk_norm: Some(QkNormExtent::Full),
            kind: NormKind::RmsNorm,
            seed: 13,
            ..plain.clone()
        },
        Toy {
            width: 70,
            head_width: 20,
            vocab: 130,
            seed: 14,
            ..plain
        },
    ]
}

/// Every kind of head keeps its bounds for random and for the worst inputs.
#[test]
fn no_input_exceeds_the_bounds() {
    for toy in toys() {
        let (spec, weights) = (toy.spec(), toy.source());
        let bounds = static_bounds(&spec, &weights, &NORM_ONLY).unwrap();
        let mut random = Random(toy.seed);
        for head in &bounds {
            assert_eq!(head.method, BoundMethod::Norm);
            let kv = head.head / (spec.n_heads / spec.n_kv_heads);
            let (worst_query, worst_key) = worst_inputs(&weights, &spec, head.head, &mut random);
            let negative = |x: &[f64]| x.iter().map(|v| -v).collect::<Vec<_>>();
            let mut queries = vec![negative(&worst_query), worst_query];
            let mut keys = vec![negative(&worst_key), worst_key];
            for _ in 0..30 {
                let x: Vec<f64> = (0..spec.width).map(|_| random.normal()).collect();
                queries.push(toy::normalise(&x, &spec.block.norm));
                keys.push(queries.last().unwrap().clone());
            }
            let keys: Vec<_> = keys
                .iter()
                .map(|n| weights.project(&spec, kv, false, n))
                .collect();
            let (mut largest, mut widest) = (0.0f64, 0.0f64);
            for query in &queries {
                let q = weights.project(&spec, head.head, true, query);
                let scores: Vec<f64> = keys.iter().map(|k| dot(&q, k) * head.scale).collect();
                let high = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let low = scores.iter().copied().fold(f64::INFINITY, f64::min);
                largest = largest.max(high).max(-low);
                widest = widest.max(high - low);
            }
            assert!(
                largest <= head.score_bound,
                "{toy:?}: {largest} > {}",
                head.score_bound
            );
            assert!(
                widest <= head.gap_bound,
                "{toy:?}: {widest} > {}",
                head.gap_bound
            );
            // The worst inputs are the answer for affine maps without biases; elsewhere the bound may be loose.
            let affine = toy.clip.is_none() && toy.qk_norm.is_none();
            if affine && !toy.norm_bias && !toy.qkv_bias {
                assert!(
                    largest >= 0.999_99 * head.score_bound,
                    "{toy:?}: {largest} of {}",
                    head.score_bound
                );
                assert!(
                    widest >= 0.999_99 * head.gap_bound,
                    "{toy:?}: {widest} of {}",
                    head.gap_bound
                );
            } else if affine || toy.clip == Some(60.0) {
                assert!(
                    widest >= 0.5 * head.gap_bound,
                    "{toy:?}: {widest} of {}",
                    head.gap_bound
                );
            }
            assert!(head.score_deviation <= head.score_bound);
        }
    }
}

/// A clamp that never acts changes nothing; one that does gives `clip^2 * head_width` at the most.
#[test]
fn clamps_tighten_the_bounds() {
    let loose = static_bounds(&Toy::new(3).spec(), &Toy::new(3).source(), &NORM_ONLY).unwrap();
    let never = Toy {
        clip: Some(1e4),
        ..Toy::new(3)
    };
    let never = static_bounds(&never.spec(), &never.source(), &NORM_ONLY).unwrap();
    let tight = Toy {
        clip: Some(0.25),
        ..Toy::new(3)
    };
    let tight = static_bounds(&tight.spec(), &tight.source(), &NORM_ONLY).unwrap();
    for ((loose, never), tight) in loose.iter().zip(&never).zip(&tight) {
        assert_eq!(
            (loose.score_bound, loose.gap_bound),
            (never.score_bound, never.gap_bound)
        );
        let most = 0.25 * 0.25 * 4.0 * tight.scale;
        assert!(
            tight.score_bound <= most * (1.0 + 1e-12) && tight.gap_bound <= 2.0 * tight.score_bound
        );
    }
}

/// The deviation of isotropic inputs, by sampling.
#[test]
fn deviation_is_that_of_random_directions() {
    let toy = Toy {
        width: 64,
        head_width: 8,
        ..Toy::new(21)
    };
    let (spec, weights) = (toy.spec(), toy.source());
    let head = &static_bounds(&spec, &weights, &NORM_ONLY).unwrap()[1];
    let mut random = Random(5);
    let mut sphere = || {
        let x: Vec<f64> = (0..spec.width).map(|_| random.normal()).collect();
        toy::normalise(&x, &spec.block.norm)
    };
    let (n_queries, n_keys) = (300, 100);
    let mut variance = 0.0;
    for _ in 0..n_queries {
        let q = weights.project(&spec, 1, true, &sphere());
        let scores: Vec<f64> = (0..n_keys)
            .map(|_| dot(&q, &weights.project(&spec, 1, false, &sphere())) * head.scale)
            .collect();
        let mean = scores.iter().sum::<f64>() / n_keys as f64;
        variance += scores.iter().map(|s| (s - mean).powi(2)).sum::<f64>()
            / ((n_keys - 1) * n_queries) as f64;
    }
    // 300 queries: the variance is good to about 4 standard errors of 5 %, the width correction w / (w - 1) is 2 %.
    let ratio = variance.sqrt() / head.score_deviation;
    assert!((ratio - 1.0).abs() < 0.1, "{ratio}");
}

/// Layer 0 by its vocabulary: equal to the maximum over all pairs of tokens, definition by definition.
#[test]
fn vocabulary_bound_is_the_maximum_over_tokens() {
    for toy in toys() {
        let (spec, weights) = (toy.spec(), toy.source());
        let exact = static_bounds(&spec, &weights, &BoundsOptions::default()).unwrap();
        let norm = static_bounds(&spec, &weights, &NORM_ONLY).unwrap();
        for (exact, norm) in exact.iter().zip(&norm) {
            assert_eq!(exact.method, BoundMethod::Vocabulary);
            assert_eq!(
                (exact.norm_score_bound, exact.norm_gap_bound),
                (norm.score_bound, norm.gap_bound)
            );
            let kv = exact.head / (spec.n_heads / spec.n_kv_heads);
            let tokens: Vec<_> = (0..spec.vocab_size)
                .map(|t| weights.token(&spec, t))
                .collect();
            let keys: Vec<_> = tokens
                .iter()
                .map(|n| weights.project(&spec, kv, false, n))
                .collect();
            let (mut largest, mut widest) = (0.0f64, 0.0f64);
            for n in &tokens {
                let q = weights.project(&spec, exact.head, true, n);
                let scores = keys.iter().map(|k| dot(&q, k) * exact.scale);
                let (low, high) = scores
                    .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), s| {
                        (low.min(s), high.max(s))
                    });
                largest = largest.max(high).max(-low);
                widest = widest.max(high - low);
            }
            let close =
                |bound: f64, truth: f64| bound >= truth && bound - truth <= 1e-8 * (1.0 + truth);
            assert!(
                close(exact.score_bound, largest),
                "{toy:?}: {} {largest}",
                exact.score_bound
            );
            assert!(
                close(exact.gap_bound, widest),
                "{toy:?}: {} {widest}",
                exact.gap_bound
            );
            assert!(largest <= norm.score_bound && widest <= norm.gap_bound);
        }
    }
}

/// Tokens that hardly differ, far from zero after the embedding norm: half of their channels lie next to 257, which is a tie of bf16.
/// Rounded there, the first layer's norm makes them differ by more than any rounding behind it. Bounds of the exact tokens hold for
/// them with that rounding counted only.
#[test]
fn tokens_rounded_before_the_first_norm_keep_the_bounds() {
    let toy = Toy {
        embedding_norm: true,
        qkv_bias: false,
        ..Toy::new(11)
    };
    let (spec, mut weights) = (toy.spec(), toy.source());
    let mut random = Random(12);
    let embedding = weights.0.get_mut(&WeightRole::Embedding).unwrap();
    for (i, x) in embedding.data.iter_mut().enumerate() {
        let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
        *x = sign + 0.02 * random.normal() as f32;
    }
    let gain = weights.0.get_mut(&WeightRole::EmbeddingNormWeight).unwrap();
    gain.data.fill(1.0);
    let mut exceeded = 0;
    for shift in [0.0, 4.0, 16.0, 64.0, 256.0] {
        let bias = weights.0.get_mut(&WeightRole::EmbeddingNormBias).unwrap();
        bias.data.fill(shift);
        let bounds = static_bounds(&spec, &weights, &BoundsOptions::default()).unwrap();
        for format in [Format::F32, Format::F16, Format::Bf16] {
            let tokens: Vec<_> = (0..spec.vocab_size)
                .map(|token| weights.token_in(&spec, token, format))
                .collect();
            for head in &bounds {
                assert_eq!(head.method, BoundMethod::Vocabulary);
                let project = |is_query| -> Vec<Vec<f64>> {
                    let of = |n: &Vec<f64>| weights.project(&spec, head.head, is_query, n);
                    tokens.iter().map(of).collect()
                };
                let (queries, keys) = (project(true), project(false));
                let widest = queries.iter().fold(0.0f64, |widest, q| {
                    let scores = keys.iter().map(|k| dot(q, k) * head.scale);
                    let ends = (f64::INFINITY, f64::NEG_INFINITY);
                    let (low, high) = scores.fold(ends, |(a, b), s| (a.min(s), b.max(s)));
                    widest.max(high - low)
                });
                let (_, gap) = head.in_format(format);
                assert!(
                    widest <= gap,
                    "{format} {shift} {}: {widest} {gap}",
                    head.head
                );
                let without = head.gap_bound + 2.0 * head.rounding.nats(format);
                exceeded += usize::from(widest > without);
                // Next to zero its price is small.
                let near = format == Format::F32 && shift == 0.0;
                assert!(!near || gap < 1.01 * without, "{gap} {without}");
            }
        }
    }
    assert!(exceeded > 0, "the rounding before the norm was never seen");
}

#[test]
fn bounds_do_not_depend_on_threads_and_keep_indices() {
    let toy = Toy {
        n_layers: 3,
        slopes: vec![0.5, 0.25, 0.125, 0.0625],
        vocab: 150,
        ..Toy::new(31)
    };
    let (spec, weights) = (toy.spec(), toy.source());
    let with = |threads: usize, options: &BoundsOptions<'_>| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| static_bounds(&spec, &weights, options).unwrap())
    };
    let all = with(1, &BoundsOptions::default());
    assert_eq!(all, with(2, &BoundsOptions::default()));
    assert_eq!(all, with(8, &BoundsOptions::default()));
    assert_eq!(all.len(), 12);
    let some = with(
        2,
        &BoundsOptions {
            keep: &|layer, head| layer == 2 && head % 2 == 1,
            ..BoundsOptions::default()
        },
    );
    let places: Vec<_> = some.iter().map(|b| (b.layer, b.head)).collect();
    assert_eq!(places, [(2, 1), (2, 3)]);
    assert_eq!(some[1], all[11]);
}

#[test]
fn weights_that_are_not_finite_or_missing_are_named() {
    let toy = Toy::new(1);
    let mut weights = toy.source();
    let role = WeightRole::Layer(0, LayerRole::KeyWeight);
    weights.0.get_mut(&role).unwrap().data[30] = f32::NAN;
    let error = static_bounds(&toy.spec(), &weights, &NORM_ONLY).unwrap_err();
    assert_eq!(
        error.to_string(),
        "layer 0 key weight: element [1, 6] is NaN, 1 values in all are not finite"
    );
    weights.0.remove(&role);
    let error = static_bounds(&toy.spec(), &weights, &NORM_ONLY).unwrap_err();
    assert!(
        error.to_string().starts_with("layer 0 key weight: missing"),
        "{error}"
    );
}
