//! A model that finds digits by construction: probe, horizon and kernel have to agree on it to the token.
//!
//! One layer, one head, queries and keys of zero, so that attention is the bias alone. Values carry which digit a token is and
//! nothing of other tokens; the output goes to channels of its own, which the head reads as that digit. As every other logit is zero,
//! greedy decoding says the digit exactly when its weight is not zero. After a digit the head says a space, far louder. The passkey as it
//! is shipped, with its five digits, is `copies_passkey.rs`.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::handwritten::{Handwritten, first_blind};
use model::{LayerRole, Model, ModelSpec, WeightRole};
use numerics::PrecisionPlan;
use snellen_audit::eval::TextCodec;
use snellen_audit::probe::{
    CellRunner, Haystack, ProbeTask, PromptBuilder, Sight, ValueKind, WhatIf, run_cell,
};

const VOCAB: usize = 256;
/// Channels: which digit (10), what attention found (10), constant, is a digit, unused.
const WIDTH: usize = 32;
const FOUND: usize = 10;
const CONSTANT: usize = 20;
const IS_DIGIT: usize = 21;
const HEAD_WIDTH: usize = common::WIDTH;
const TRAINED: usize = 100;

/// The model, for one slope.
fn digit_finder(slope: f64) -> (ModelSpec, Arc<Handwritten>) {
    let (mut spec, mut weights) =
        Handwritten::bias_alone(slope, VOCAB, WIDTH, HEAD_WIDTH, CONSTANT);
    spec.trained_length = Some(TRAINED);
    let mut set = |role, row, column, value| weights.set(role, row, column, value);
    for digit in 0..10 {
        let token = usize::from(b'0') + digit;
        set(WeightRole::Embedding, token, digit, 1.0);
        set(WeightRole::Embedding, token, IS_DIGIT, 1.0);
        // 2^60: the smallest f32 times it is an ordinary number, so that nothing but the weight itself can become zero
        set(
            WeightRole::Layer(0, LayerRole::ValueWeight),
            digit,
            digit,
            60f32.exp2(),
        );
        set(
            WeightRole::Layer(0, LayerRole::OutputWeight),
            FOUND + digit,
            digit,
            1.0,
        );
        set(WeightRole::Head, token, FOUND + digit, 1.0);
    }
    set(WeightRole::Head, usize::from(b' '), IS_DIGIT, 80f32.exp2());
    (spec, Arc::new(weights))
}

struct Bytes;

impl TextCodec for Bytes {
    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, ids: &[u32]) -> Result<String, String> {
        let bytes: Vec<u8> = ids.iter().map(|&id| id as u8).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// One-byte filler, so that the fact can be at every distance.
fn task() -> ProbeTask {
    ProbeTask {
        task: "digit".into(),
        version: 1,
        about: String::new(),
        introduction: "a".into(),
        filler: vec!["b".into()],
        line: None,
        needle: " {key}".into(),
        question: " ?".into(),
        answer: "{key}".into(),
        digits: 1,
        values: ValueKind::Number,
        needles: 1,
        asked: 1,
        one_name: false,
    }
}

fn builder(task: &ProbeTask) -> PromptBuilder<'_> {
    let haystack = Haystack::of_task(&Bytes, task, 300, 3).unwrap();
    PromptBuilder::new(&Bytes, task, haystack, None, 3).unwrap()
}

/// Distance from the last token of the prompt to the digit, and whether it was found, at every place of a prompt.
fn found_by_distance(model: &Model, length: usize) -> Vec<(usize, bool)> {
    let task = task();
    let builder = builder(&task);
    let n_places = length - 10;
    let mut found = Vec::new();
    for place in 0..=n_places {
        let depth = place as f64 / n_places as f64;
        let cell = builder.cell(length, depth, 1).unwrap();
        for sample in run_cell(model, &Bytes, &cell).unwrap() {
            // the digit is the second token of the fact
            let distance = sample.prompt_tokens - 1 - (sample.needle_at + 1);
            assert_eq!(
                sample.hit,
                sample.first_rank == 0 && sample.answer.contains(&sample.key)
            );
            found.push((distance, sample.hit));
        }
    }
    found
}

#[test]
fn a_model_that_copies_by_construction_does_so_up_to_its_horizon() {
    for (slope, length) in [(0.5, 260), (2.0, 120)] {
        let (spec, weights) = digit_finder(slope);
        let horizon = first_blind(&spec, length);
        let model = Model::new(spec, weights).unwrap().keep_weights(true);
        let found = found_by_distance(&model, length);
        let beyond = found.iter().filter(|(distance, _)| *distance >= horizon);
        assert!(
            beyond.count() > 10 && found.len() > horizon,
            "both sides are tried"
        );
        for (distance, hit) in found {
            assert_eq!(
                hit,
                distance < horizon,
                "slope {slope}: distance {distance}, horizon {horizon}"
            );
        }
    }
}

/// The head's row is observed under several plans: the fact is blind, too small or seen exactly where its weight says so.
#[test]
fn the_witness_agrees_with_the_horizon_to_the_token() {
    let (slope, length) = (2.0, 120);
    let (spec, weights) = digit_finder(slope);
    let horizon = first_blind(&spec, length);
    let plans = ["ieee", "hf-eager:bf16"].map(|p| PrecisionPlan::parse(p, spec.family).unwrap());
    let model = Model::new(spec, weights).unwrap().keep_weights(true);
    let mut runner = CellRunner::new(&model).watching(&plans);
    let task = task();
    let builder = builder(&task);
    let mut sights = std::collections::BTreeSet::new();
    for place in 0..=110 {
        let cell = builder.cell(length, f64::from(place) / 110.0, 2).unwrap();
        let result = runner.run(&Bytes, &cell).unwrap();
        assert_eq!(result.samples, run_cell(&model, &Bytes, &cell).unwrap());
        let [ieee, bf16] = result.witness.as_slice() else {
            panic!("a plan each")
        };
        let sample = &result.samples[0];
        // nearer than the digit is nothing of the fact, and nothing of it is farther than the space before it
        let distance = sample.prompt_tokens - 1 - (sample.needle_at + 1);
        let [head] = ieee.heads.as_slice() else {
            panic!("one head")
        };
        assert_eq!((head.layer, head.head, head.distance), (0, 0, distance));
        assert_eq!(
            head.sight == Sight::Blind,
            distance >= horizon,
            "{distance}"
        );
        // the row's sum is that of a geometric series; half an ulp of 1 is 2^-24
        let weight = (-slope * distance as f64).exp() * (1.0 - (-slope).exp());
        assert_eq!(head.sight == Sight::Seen, weight > 2f64.powi(-24));
        assert_eq!(
            head.samples_seen,
            if head.sight == Sight::Seen { 2 } else { 0 }
        );
        if head.sight == Sight::Seen {
            // a sum of 120 f32 terms, rounded once, and a quotient
            assert!((head.weight / weight - 1.0).abs() < 1e-6, "{distance}");
        }
        assert!(bf16.heads[0].sight <= head.sight, "bf16 sees no farther");
        sights.insert(head.sight);
    }
    assert_eq!(sights.len(), 3, "every kind of sight occurs");
}

/// What an earlier cell left in the cache changes nothing, whichever cell it was.
#[test]
fn a_shared_beginning_that_was_run_before_gives_the_same_bits() {
    let (spec, weights) = digit_finder(0.01);
    let model = Model::new(spec, weights).unwrap().keep_weights(true);
    let task = task();
    let haystack = Haystack::of_task(&Bytes, &task, 3000, 3).unwrap();
    let builder = PromptBuilder::new(&Bytes, &task, haystack, None, 3).unwrap();
    let mut runner = CellRunner::new(&model);
    for (length, depth) in [(900, 1.0), (700, 0.5), (1500, 0.9), (600, 0.0), (1500, 1.0)] {
        let cell = builder.cell(length, depth, 2).unwrap();
        let result = runner.run(&Bytes, &cell).unwrap();
        assert_eq!(result.samples, run_cell(&model, &Bytes, &cell).unwrap());
        assert!(result.samples.iter().all(|sample| sample.hit));
    }
}

#[test]
fn a_clamp_above_the_threshold_finds_everything() {
    let (spec, weights) = digit_finder(2.0);
    let clamped = WhatIf::parse("clamp=-100")
        .unwrap()
        .apply(&spec, 120)
        .unwrap();
    let model = Model::new(clamped, weights.clone()).unwrap();
    assert!(
        found_by_distance(&model, 120)
            .into_iter()
            .all(|(_, hit)| hit)
    );
    // half the slope doubles the horizon, and so does interpolation to twice the trained length
    let doubled = 2 * first_blind(&spec, 120);
    for change in ["slopes/2", "interpolate", "interpolate=0.5"] {
        let changed = WhatIf::parse(change)
            .unwrap()
            .apply(&spec, 2 * TRAINED)
            .unwrap();
        let horizon = first_blind(&changed, 200);
        assert!(
            (doubled - 1..=doubled).contains(&horizon),
            "{change}: {horizon}"
        );
        let model = Model::new(changed, weights.clone())
            .unwrap()
            .keep_weights(true);
        for (distance, hit) in found_by_distance(&model, 130) {
            assert_eq!(hit, distance < horizon, "{change}: {distance}");
        }
    }
}

#[test]
fn without_the_fact_nothing_is_found() {
    let (spec, weights) = digit_finder(0.5);
    let model = Model::new(spec, weights).unwrap().keep_weights(true);
    let task = task();
    let builder = builder(&task);
    let hits = |builder: &PromptBuilder<'_>| {
        let cell = builder.cell(100, 0.5, 20).unwrap();
        let samples = run_cell(&model, &Bytes, &cell).unwrap();
        samples.iter().filter(|sample| sample.hit).count()
    };
    assert_eq!(hits(&builder), 20);
    assert_eq!(hits(&builder.control(true)), 0);
}

/// The cache, and which sample comes first, change no answer.
#[test]
fn answers_do_not_depend_on_the_cache_or_on_the_other_samples() {
    let (spec, weights) = digit_finder(0.5);
    let model = Model::new(spec, weights).unwrap().keep_weights(true);
    let task = task();
    let builder = builder(&task);
    let mut cell = builder.cell(150, 0.3, 6).unwrap();
    let together = run_cell(&model, &Bytes, &cell).unwrap();
    for (sample, prompt) in together.iter().zip(&cell.prompts) {
        let ids = [cell.shared.as_slice(), &prompt.rest].concat();
        let said = model.generate(&ids, prompt.answer.len() + 1, &[]).unwrap();
        assert_eq!(Bytes.decode(&said).unwrap(), sample.answer);
    }
    cell.prompts.reverse();
    let mut reversed = run_cell(&model, &Bytes, &cell).unwrap();
    reversed.reverse();
    assert_eq!(reversed, together);
}
