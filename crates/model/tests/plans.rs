//! Attention under a precision plan in place of the kernel.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::sync::Arc;

use common::{Random, all, assert_close, bloom, build, reference, wide};
use kernels::AttentionObserver;
use numerics::PrecisionPlan;
use snellen_model::{ForwardOptions, KvCache, LayerObserver, Model};

const LENGTH: usize = 40;

fn logits(model: &Model, ids: &[u32]) -> Vec<f32> {
    let hidden = model.forward(ids, ForwardOptions::default()).unwrap();
    model.logits(&hidden, 0..ids.len()).unwrap()
}

/// Bound of logits with exact attention against an f64 model, per unit of the largest logit (at least 1): 4e-6 for what is f32
/// around attention (see `forward.rs`), and as much again for the bias, which the model's own convention rounds by up to
/// 40 * 2^-24 = 2.4e-6 nats and the plan does not.
fn bound(logits: &[f64]) -> f64 {
    8e-6 * logits.iter().fold(1f64, |m, x| m.max(x.abs()))
}

#[test]
fn exact_attention_agrees_with_the_reference() {
    // a bias that the family stores in 16 bits is another bias
    let exact = |spec: &snellen_model::ModelSpec| spec.alibi.convention.storage.is_none();
    for spec in all().into_iter().filter(exact) {
        let (model, weights) = build(&spec, 11);
        let plan = PrecisionPlan::parse("f64", spec.family).unwrap();
        let plan = plan.with_model_convention(spec.family, &spec.alibi.convention);
        let model = model.under_plan(plan);
        let ids = Random(3).ids(LENGTH, spec.vocab_size);
        let expected = reference::logits(&spec, &weights, &ids, None);
        assert_close(
            &logits(&model, &ids),
            &expected,
            bound(&expected),
            &spec.name,
        );
    }
}

#[test]
fn a_cache_works_under_a_plan_and_16_bits_are_seen() {
    let spec = bloom();
    let of = |plan: &str| {
        let plan = PrecisionPlan::parse(plan, spec.family).unwrap();
        build(&spec, 11).0.under_plan(plan)
    };
    let ids = Random(4).ids(LENGTH, spec.vocab_size);
    let exact = of("f64");
    let whole = logits(&exact, &ids);
    let (mut cache, mut parts) = (KvCache::new(&spec), Vec::new());
    for piece in ids.chunks(7) {
        let options = ForwardOptions {
            cache: Some(&mut cache),
            ..ForwardOptions::default()
        };
        let hidden = exact.forward(piece, options).unwrap();
        parts.extend(exact.logits(&hidden, 0..piece.len()).unwrap());
    }
    let expected = wide(&whole);
    assert_close(&parts, &expected, bound(&expected), "in pieces of 7");
    let rounded = logits(&of("hf-eager:bf16"), &ids);
    let differs = |(a, b): (&f32, &f32)| f64::from((a - b).abs()) > 10.0 * bound(&expected);
    assert!(
        rounded.iter().zip(&whole).any(differs),
        "bf16 changes nothing"
    );
}

#[derive(Debug)]
struct Nobody;

impl LayerObserver for Nobody {
    fn layer(&self, _: usize) -> Option<Arc<dyn AttentionObserver>> {
        None
    }
}

#[test]
fn observers_and_padding_are_refused() {
    let spec = bloom();
    let plan = PrecisionPlan::parse("f64", spec.family).unwrap();
    let model = build(&spec, 11).0.under_plan(plan);
    let watched = ForwardOptions {
        observer: Some(Arc::new(Nobody)),
        ..ForwardOptions::default()
    };
    let padded = ForwardOptions {
        key_valid: Some(&[false, true]),
        ..ForwardOptions::default()
    };
    for options in [watched, padded] {
        let error = model.forward(&[1, 2], options).unwrap_err().to_string();
        assert!(error.contains("precision plan"), "{error}");
    }
}
