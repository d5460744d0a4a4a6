//! The forward pass against an independent f64 one, and against itself: lengths, chunks, cache, padding.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use common::{Random, all, assert_close, build, reference, wide};
use numerics::{BiasFunction, BiasShape, CapOrder, SoftCap};
use snellen_model::{ForwardOptions, KvCache, Model, ModelSpec, Tokens};

/// Bound of f32 logits against f64 ones, per unit of the largest logit (at least 1). Some ten steps follow one another, each
/// with sums of up to 200 products rounded to 2^-24 at random: 10 * sqrt(200) * 2^-24 = 8e-6 if all of them counted fully,
/// which norms and small weights prevent; half of it is asserted, a third of that is seen.
const LOGIT_BOUND: f64 = 4e-6;

fn reference_bound(logits: &[f64]) -> f64 {
    let largest = logits.iter().fold(0f64, |m, x| m.max(x.abs()));
    LOGIT_BOUND * largest.max(1.0)
}

/// Bound between two f32 ways to the same logits (chunks, cached steps, left padding), for logits up to 8; larger ones in
/// proportion.
fn same_bound(logits: &[f32]) -> f64 {
    let largest = logits.iter().fold(0f32, |m, x| m.max(x.abs()));
    1e-5 * f64::from(largest / 8.0).max(1.0)
}

fn logits(model: &Model, ids: &[u32], options: ForwardOptions<'_>) -> Vec<f32> {
    let hidden = model.forward(ids, options).unwrap();
    model.logits(&hidden, 0..ids.len()).unwrap()
}

fn check_against_reference(spec: &ModelSpec, lengths: &[usize]) {
    let (model, weights) = build(spec, 11);
    for &n in lengths {
        let ids = Random(n as u64).ids(n, spec.vocab_size);
        let got = logits(&model, &ids, ForwardOptions::default());
        let expected = reference::logits(spec, &weights, &ids, None);
        let spread = expected.iter().any(|z| z.abs() > 0.5);
        assert!(spread, "{}: logits too small to test anything", spec.name);
        let bound = reference_bound(&expected);
        assert_close(
            &got,
            &expected,
            bound,
            &format!("{} at length {n}", spec.name),
        );
    }
}

#[test]
fn every_family_agrees_with_the_reference() {
    for spec in all() {
        check_against_reference(&spec, &[1, 2, 7, 9, 63, 65, 127]);
    }
}

#[test]
fn falcon_past_256_keys_keeps_its_bf16_positions() {
    // bf16 has 8 significand bits: from 257 on, positions themselves are rounded.
    check_against_reference(&common::falcon(), &[300]);
}

#[test]
fn every_bias_function_agrees_with_the_reference() {
    let shapes = [
        BiasShape::None,
        BiasShape::Log,
        BiasShape::Sqrt,
        BiasShape::KerpleLog {
            p: vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            a: vec![1.0, 2.0, 0.5, 1.0, 0.1, 3.0],
        },
        BiasShape::T5Buckets {
            n_buckets: 8,
            max_distance: 32,
            bidirectional: false,
            table: (0..6)
                .map(|h| (0..8).map(|b| -0.3 * f64::from(b * (h + 1))).collect())
                .collect(),
        },
        BiasShape::Linear,
    ];
    for base in [common::bloom(), common::falcon(), common::alilama()] {
        for shape in &shapes {
            for (clamp, interpolation) in [(None, 0.5), (Some(-3.0), 1.0), (None, 1.0)] {
                let mut spec = base.clone();
                spec.alibi.bias = BiasFunction {
                    clamp,
                    interpolation,
                    ..BiasFunction::with_shape(shape.clone())
                };
                // The reference has no key-position form with interpolated slopes: round trip through the slopes.
                if interpolation != 1.0 && *shape == BiasShape::Linear {
                    spec.alibi.convention = numerics::Family::Custom.convention();
                }
                spec.name = format!("{} {shape:?} {clamp:?} {interpolation}", base.name);
                check_against_reference(&spec, &[40]);
            }
        }
        for order in [CapOrder::BeforeBias, CapOrder::AfterBias] {
            let mut spec = base.clone();
            spec.alibi.bias.soft_cap = Some(SoftCap { cap: 5.0, order });
            spec.name = format!("{} cap {order:?}", base.name);
            check_against_reference(&spec, &[40]);
        }
    }
}

#[test]
fn a_model_that_is_not_causal_agrees_with_the_reference() {
    let mut spec = common::alilama();
    spec.alibi.convention.causal = false;
    check_against_reference(&spec, &[1, 33]);
    let (model, _) = build(&spec, 1);
    let mut cache = KvCache::new(&spec);
    let options = ForwardOptions {
        cache: Some(&mut cache),
        ..ForwardOptions::default()
    };
    let error = model.forward(&[1], options).unwrap_err();
    assert!(error.to_string().contains("not causal"), "{error}");
}

/// A prefill in chunks of 7 equals one in a piece (https://github.com/Dao-AILab/flash-attention/issues/907); a cached step
/// equals recomputation (https://github.com/vllm-project/vllm/pull/945).
#[test]
fn chunks_and_cached_steps_equal_the_whole() {
    for spec in all() {
        let (model, _) = build(&spec, 5);
        let ids = Random(9).ids(100, spec.vocab_size);
        let whole = logits(&model, &ids, ForwardOptions::default());
        for step in [7, 1, 33] {
            let mut cache = KvCache::new(&spec);
            let mut parts = Vec::new();
            for chunk in ids.chunks(step) {
                let options = ForwardOptions {
                    cache: Some(&mut cache),
                    ..ForwardOptions::default()
                };
                parts.extend(logits(&model, chunk, options));
            }
            assert_eq!(cache.len(), 100);
            let what = format!("{} in steps of {step}", spec.name);
            assert_close(&parts, &wide(&whole), same_bound(&whole), &what);
        }
    }
}

#[test]
fn a_cloned_or_truncated_cache_continues_on_its_own() {
    let spec = common::bloom();
    let (model, _) = build(&spec, 5);
    let ids = Random(1).ids(20, spec.vocab_size);
    let mut cache = KvCache::new(&spec);
    let with = |cache: &mut KvCache, ids: &[u32]| {
        let options = ForwardOptions {
            cache: Some(cache),
            ..ForwardOptions::default()
        };
        logits(&model, ids, options)
    };
    with(&mut cache, &ids[..12]);
    let mut fork = cache.clone();
    let a = with(&mut cache, &ids[12..20]);
    let b = with(&mut fork, &ids[12..20]);
    assert_eq!(a, b, "a fork is not disturbed by the original");
    cache.truncate(12);
    assert_eq!(with(&mut cache, &ids[12..20]), a);
    assert!(cache.bytes() >= 2 * 2 * 20 * 48 * 4);
}

/// Left-padded rows equal the row alone (https://github.com/huggingface/transformers/pull/17866).
#[test]
fn left_padding_changes_nothing() {
    for spec in all() {
        let (model, weights) = build(&spec, 5);
        let sequences = [
            Random(1).ids(5, spec.vocab_size),
            Random(2).ids(12, spec.vocab_size),
        ];
        let tokens = Tokens::left_padded(&sequences, 3);
        let padded = model.forward_batch(&tokens, None).unwrap();
        for (i, ids) in sequences.iter().enumerate() {
            let alone = logits(&model, ids, ForwardOptions::default());
            let got = model.logits(&padded[i], 12 - ids.len()..12).unwrap();
            assert_close(&got, &wide(&alone), same_bound(&alone), &spec.name);
            let mask = &tokens.mask.as_ref().unwrap()[i];
            let expected = reference::logits(&spec, &weights, &tokens.ids[i], Some(mask));
            let from = (12 - ids.len()) * spec.vocab_size;
            assert_close(
                &got,
                &expected[from..],
                reference_bound(&expected),
                &spec.name,
            );
        }
        // And with a cache: padding stays masked in later calls.
        let mut cache = KvCache::new(&spec);
        let (ids, mask) = (&tokens.ids[0], &tokens.mask.as_ref().unwrap()[0]);
        let mut last = Vec::new();
        for (ids, mask) in ids.chunks(5).zip(mask.chunks(5)) {
            let options = ForwardOptions {
                cache: Some(&mut cache),
                key_valid: Some(mask),
                ..ForwardOptions::default()
            };
            last = logits(&model, ids, options);
        }
        let alone = logits(&model, &sequences[0], ForwardOptions::default());
        let n = last.len();
        assert_close(
            &last,
            &wide(&alone[alone.len() - n..]),
            same_bound(&alone),
            &spec.name,
        );
    }
}

#[test]
fn loss_scores_and_greedy_choices_follow_from_the_logits() {
    for spec in [common::bloom(), common::mpt(), common::baichuan()] {
        let (model, _) = build(&spec, 21);
        let ids = Random(3).ids(50, spec.vocab_size);
        let hidden = model.forward(&ids, ForwardOptions::default()).unwrap();
        let rows = model.logits(&hidden, 0..50).unwrap();
        let scores = model.score(&hidden, 0..49, &ids[1..]).unwrap();
        let loss = model.loss(&hidden, &ids).unwrap();
        assert_eq!(loss.nats_per_token.len(), 49);
        for (t, score) in scores.iter().enumerate() {
            let row = wide(&rows[t * spec.vocab_size..(t + 1) * spec.vocab_size]);
            let target = row[ids[t + 1] as usize];
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let lse = max + row.iter().map(|z| (z - max).exp()).sum::<f64>().ln();
            let rank = row.iter().filter(|z| **z > target).count();
            let argmax = row.iter().position(|z| *z == max).unwrap();
            assert!((f64::from(score.nats) - (lse - target)).abs() < 2e-6);
            assert_eq!(score.nats, loss.nats_per_token[t]);
            assert_eq!((score.rank as usize, score.argmax as usize), (rank, argmax));
        }
        let mean = loss.mean().unwrap();
        assert!(
            (mean - scores.iter().map(|s| f64::from(s.nats)).sum::<f64>() / 49.0).abs() < 1e-12
        );
    }
}

#[test]
fn greedy_generation_equals_recomputation() {
    let spec = common::falcon();
    let (model, _) = build(&spec, 8);
    let model = model.keep_weights(true);
    let prompt = Random(4).ids(9, spec.vocab_size);
    let new = model.generate(&prompt, 12, &[]).unwrap();
    let mut ids = prompt.clone();
    for &next in &new {
        let row = logits(&model, &ids, ForwardOptions::default());
        let row = &row[(ids.len() - 1) * spec.vocab_size..];
        let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(row.iter().position(|z| *z == best).unwrap(), next as usize);
        ids.push(next);
    }
    let stopped = model.generate(&prompt, 12, &[new[5]]).unwrap();
    let first = new.iter().position(|id| *id == new[5]).unwrap();
    assert_eq!(stopped, new[..first], "ends before the stop token");
}

#[test]
fn keeping_weights_and_whole_tables_change_no_bit() {
    for spec in [common::bloom(), common::baichuan()] {
        let (model, _) = build(&spec, 2);
        let ids = Random(6).ids(30, spec.vocab_size);
        let lazy = logits(&model, &ids, ForwardOptions::default());
        let kept = model.keep_weights(true);
        assert_eq!(logits(&kept, &ids, ForwardOptions::default()), lazy);
        assert_eq!(
            logits(&kept, &ids, ForwardOptions::default()),
            lazy,
            "second use"
        );
        let mut weights = common::RandomWeights::new(&spec, 2);
        weights.cheap_rows = false;
        let whole = Model::new(spec.clone(), std::sync::Arc::new(weights)).unwrap();
        assert_eq!(logits(&whole, &ids, ForwardOptions::default()), lazy);
    }
}
