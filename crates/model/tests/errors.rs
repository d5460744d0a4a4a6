//! Mistakes in specifications, weights and inputs are named precisely.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::sync::Arc;

use common::{RandomWeights, bloom, build, mpt};
use snellen_model::{
    Arrangement, ForwardOptions, KvCache, LayerRole, LoweredBias, Model, ModelSpec, ResidualFrom,
    Weight, WeightRole, WeightSource,
};

fn refused(change: impl FnOnce(&mut ModelSpec)) -> String {
    let mut spec = bloom();
    change(&mut spec);
    spec.validate().unwrap_err().to_string()
}

#[test]
fn a_bad_specification_is_refused_by_field() {
    type Change = fn(&mut ModelSpec);
    let cases: [(Change, &str); 13] = [
        (|s| s.n_layers = 0, "n_layers is 0"),
        (
            |s| s.n_kv_heads = 4,
            "n_kv_heads is 4, expected a divisor of n_heads 6",
        ),
        (
            |s| s.alibi.slopes.truncate(2),
            "alibi.slopes has 2 entries, expected one for each of 6 heads",
        ),
        (|s| s.alibi.slopes[3] = f64::NAN, "alibi.slopes[3] is NaN"),
        (
            |s| s.block.attention.scale = 0.0,
            "block.attention.scale is 0, expected a positive number",
        ),
        (
            |s| s.block.attention.clip_qkv = Some(-1.0),
            "block.attention.clip_qkv is -1",
        ),
        (
            |s| s.head.soft_cap = Some(f32::INFINITY),
            "head.soft_cap is inf",
        ),
        (
            |s| s.block.norm.eps = -1e-5,
            "block.norm.eps is -0.00001, expected 0 or more",
        ),
        (|s| s.alibi.convention.causal = false, "key-position bias"),
        (|s| s.alibi.bias.clamp = Some(1.0), "alibi.bias: "),
        (|s| s.width = usize::MAX / 8, "vocab_size * width"),
        (|s| s.vocab_size = 1 << 40, "token ids are 32 bits"),
        (
            |s| {
                s.block.arrangement = Arrangement::Parallel { shared_norm: true };
                s.block.mlp_residual = ResidualFrom::Norm;
            },
            "block.mlp_residual is Norm in a parallel block",
        ),
    ];
    for (change, expected) in cases {
        let message = refused(change);
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        assert!(message.starts_with("model specification: ") && !message.contains('\n'));
    }
    let message = refused(|s| {
        s.block.attention.output = None;
        s.head_width = 7;
    });
    assert!(
        message.contains("n_heads * head_width is 42, width is 48"),
        "{message}"
    );
}

fn run_with(change: impl FnOnce(&mut RandomWeights)) -> String {
    let spec = bloom();
    let mut weights = RandomWeights::new(&spec, 1);
    change(&mut weights);
    let model = Model::new(spec, Arc::new(weights)).unwrap();
    model
        .forward(&[1, 2, 3], ForwardOptions::default())
        .unwrap_err()
        .to_string()
}

#[test]
fn bad_weights_are_named_by_layer_and_role() {
    let role = WeightRole::Layer(1, LayerRole::UpWeight);
    let message = run_with(|w| w.weights.get_mut(&role).unwrap().data[48 * 5 + 7] = f32::NAN);
    assert_eq!(
        message,
        "layer 1 up weight: element [5, 7] is NaN, 1 values in all are not finite"
    );
    let message = run_with(|w| w.weights.get_mut(&role).unwrap().data[3] = f32::NEG_INFINITY);
    assert!(message.contains("element [0, 3] is -inf"), "{message}");
    let message = run_with(|w| {
        w.weights.get_mut(&WeightRole::Embedding).unwrap().data[2 * 48 + 1] = f32::NAN
    });
    assert!(
        message.starts_with("embedding: element [2, 1] is NaN"),
        "{message}"
    );
    let message = run_with(|w| drop(w.weights.remove(&role)));
    assert_eq!(message, "layer 1 up weight: missing");
    let message = run_with(|w| {
        drop(
            w.weights
                .insert(role, Weight::new(vec![48, 192], vec![0.0; 48 * 192])),
        )
    });
    assert_eq!(
        message,
        "layer 1 up weight: shape [48, 192], expected [192, 48]"
    );
}

#[test]
fn bad_inputs_are_refused_and_leave_the_cache_alone() {
    let spec = bloom();
    let (model, _) = build(&spec, 1);
    let text = |ids: &[u32], options: ForwardOptions<'_>| {
        model.forward(ids, options).unwrap_err().to_string()
    };
    assert_eq!(text(&[], ForwardOptions::default()), "no tokens to run");
    let message = text(&[5, 97], ForwardOptions::default());
    assert_eq!(message, "token 1 is id 97, the vocabulary has 97");
    let options = ForwardOptions {
        key_valid: Some(&[true]),
        ..ForwardOptions::default()
    };
    assert_eq!(
        text(&[1, 2], options),
        "the padding mask has 1 entries for 2 tokens"
    );
    let mut cache = KvCache::new(&mpt());
    let options = ForwardOptions {
        cache: Some(&mut cache),
        ..ForwardOptions::default()
    };
    assert!(text(&[1], options).contains("the cache was made for 2 layers of width 16"));
    let mut cache = KvCache::new(&spec);
    let options = ForwardOptions {
        cache: Some(&mut cache),
        ..ForwardOptions::default()
    };
    let hidden = model.forward(&[1, 2, 3], options).unwrap();
    let options = ForwardOptions {
        cache: Some(&mut cache),
        ..ForwardOptions::default()
    };
    model.forward(&[1, 1000], options).unwrap_err();
    assert_eq!(cache.len(), 3);
    assert!(
        model
            .logits(&hidden, 2..4)
            .unwrap_err()
            .to_string()
            .contains("rows 2..4 of a stream of 3")
    );
    assert!(model.loss(&hidden, &[1]).is_err());
    assert!(model.score(&hidden, 0..2, &[1]).is_err());
    assert!(
        model
            .loss(&hidden.slice(0..1), &[1])
            .unwrap()
            .mean()
            .is_none()
    );
}

#[test]
fn the_default_rows_cut_the_whole_weight() {
    let spec = bloom();
    let weights = RandomWeights::new(&spec, 1);
    let whole = weights.weight(WeightRole::Embedding).unwrap();
    let part = weights.rows(WeightRole::Embedding, 3..5).unwrap();
    assert_eq!(part.shape, [2, 48]);
    assert_eq!(part.data, whole.data[3 * 48..5 * 48]);
    assert!(weights.rows(WeightRole::Embedding, 96..98).is_err());
}

#[test]
fn every_role_has_a_shape_and_only_those() {
    for spec in common::all() {
        let roles = spec.weight_roles();
        assert!(roles.iter().all(|&role| spec.weight_shape(role).is_some()));
        assert_eq!(
            spec.weight_shape(WeightRole::Layer(2, LayerRole::UpWeight)),
            None
        );
    }
    // BLOOM: embedding with norm, two layers of 16 weights, final norm, tied head.
    assert_eq!(bloom().weight_roles().len(), 3 + 2 * 16 + 2);
}

/// Golden: by hand, from the definitions in docs/FAMILIES.md. 8 heads would have slope 1/2 first; here one head with slope 1/2.
#[test]
fn tables_follow_the_family() {
    let mut alibi = bloom().alibi;
    alibi.slopes = vec![0.5];
    let by_key =
        |alibi: &_, n, valid: Option<&[bool]>| match LoweredBias::lower(alibi, 0.125, n, valid) {
            LoweredBias::ByKey(values) => values,
            other => panic!("{other:?}"),
        };
    assert_eq!(by_key(&alibi, 4, None), [0.0, 0.5, 1.0, 1.5]);
    let padded = [false, false, true, true];
    assert_eq!(by_key(&alibi, 4, Some(&padded)), [0.0, 0.0, 0.0, 0.5]);
    alibi.convention = numerics::Family::Mpt.convention();
    assert_eq!(by_key(&alibi, 4, None), [-1.5, -1.0, -0.5, 0.0]);
    alibi.convention = numerics::Family::Refact.convention();
    assert_eq!(by_key(&alibi, 4, None), [0.5, 1.0, 1.5, 2.0]);
    // 257 is not a bf16 number: it rounds to 256, and the bias is an eighth because the scale comes after.
    alibi.convention = numerics::Family::Falcon.convention();
    let table = by_key(&alibi, 260, None);
    assert_eq!(table[256..], [16.0, 16.0, 16.125, 16.25]);
    alibi.convention = numerics::Family::Jais.convention();
    let table = LoweredBias::lower(&alibi, 0.125, 3, None);
    assert_eq!(table, LoweredBias::ByDistance(vec![0.0, -0.5, -1.0]));
    alibi.bias.clamp = Some(-0.75);
    alibi.convention = numerics::Family::Bloom.convention();
    let table = LoweredBias::lower(&alibi, 0.125, 4, None);
    assert_eq!(
        table,
        LoweredBias::ByDistance(vec![0.0, -0.5, -0.75, -0.75])
    );
}
