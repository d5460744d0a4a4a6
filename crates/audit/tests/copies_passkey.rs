//! A model that answers the shipped passkey task, five digits, by construction: right up to its horizon, to the token, and never beyond.
//!
//! Text is read byte by byte, but a digit is a token of its own for each place in its number: 48213 is `4` at place 0, `8` at place 1, and so on.
//! One layer, one head, queries and keys of zero, so that attention is the bias alone. Values say which digit stands at which place; the
//! output goes to channels of its own, which the head reads as that token. What the last token is says which place is due: tokens of other
//! places are pushed far down, those of the place that is due are exactly what attention found, and every other logit is zero. So a
//! digit is said exactly when its weight is not zero. The model copies: digit by digit the row moves on with what it reads, the
//! distance is the same for all five, and the number comes whole or not at all.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::handwritten::{Handwritten, first_blind};
use model::{LayerRole, Model, ModelSpec, WeightRole};
use snellen_audit::eval::TextCodec;
use snellen_audit::probe::{Haystack, ProbeTask, PromptBuilder, SampleResult, run_cell};

/// Digits of the task's number.
const PLACES: usize = 5;
const BYTES: usize = 256;
const VOCAB: usize = BYTES + 10 * PLACES;
/// Channels: which digit at which place (50), what attention found (50), constant, which place is due (5), a space or a stop is due.
const WIDTH: usize = 128;
const FOUND: usize = 10 * PLACES;
const CONSTANT: usize = 100;
const PLACE_DUE: usize = 101;
const SPACE_DUE: usize = 106;
const STOP_DUE: usize = 107;
const HEAD_WIDTH: usize = 64;

/// The model, for one slope.
fn copier(slope: f64) -> (ModelSpec, Arc<Handwritten>) {
    let (spec, mut weights) = Handwritten::bias_alone(slope, VOCAB, WIDTH, HEAD_WIDTH, CONSTANT);
    let mut set = |role, row, column, value| weights.set(role, row, column, value);
    // far above all that attention finds
    let loud = 100f32.exp2();
    let byte = usize::from;
    // the question ends in "is"; a space and the first digit come next
    set(WeightRole::Embedding, byte(b's'), SPACE_DUE, 1.0);
    set(WeightRole::Head, byte(b' '), SPACE_DUE, loud);
    set(WeightRole::Embedding, byte(b' '), PLACE_DUE, 1.0);
    set(WeightRole::Head, byte(b'.'), STOP_DUE, loud);
    for at in 0..10 * PLACES {
        let (token, place) = (BYTES + at, at / 10);
        set(WeightRole::Embedding, token, at, 1.0);
        let next = if place + 1 < PLACES {
            PLACE_DUE + place + 1
        } else {
            STOP_DUE
        };
        set(WeightRole::Embedding, token, next, 1.0);
        // 2^60: the smallest f32 times it is an ordinary number, so that nothing but the weight itself can become zero
        let scale = 60f32.exp2();
        set(WeightRole::Layer(0, LayerRole::ValueWeight), at, at, scale);
        set(
            WeightRole::Layer(0, LayerRole::OutputWeight),
            FOUND + at,
            at,
            1.0,
        );
        set(WeightRole::Head, token, FOUND + at, 1.0);
        for other in (0..PLACES).filter(|&other| other != place) {
            set(WeightRole::Head, token, PLACE_DUE + other, -loud);
        }
    }
    (spec, Arc::new(weights))
}

/// Bytes, and digits by their place in a number of up to five.
struct Places;

impl TextCodec for Places {
    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let mut place = 0;
        let token = |byte: u8| {
            if !byte.is_ascii_digit() {
                place = 0;
                return Ok(u32::from(byte));
            }
            let token = BYTES + 10 * place + usize::from(byte - b'0');
            place += 1;
            if place > PLACES {
                return Err(format!("a number of more than {PLACES} digits in {text:?}"));
            }
            Ok(token as u32)
        };
        text.bytes().map(token).collect()
    }

    fn decode(&self, ids: &[u32]) -> Result<String, String> {
        let byte = |&id: &u32| match (id as usize).checked_sub(BYTES) {
            Some(at) => b'0' + (at % 10) as u8,
            None => id as u8,
        };
        let bytes: Vec<u8> = ids.iter().map(byte).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

const LENGTHS: [usize; 3] = [340, 440, 560];
const DEPTHS: usize = 12;
const SAMPLES: usize = 2;

fn passkey() -> ProbeTask {
    let task = ProbeTask::named("passkey").unwrap();
    assert_eq!(task.digits as usize, PLACES);
    task
}

fn builder(task: &ProbeTask) -> PromptBuilder<'_> {
    let haystack = Haystack::of_task(&Places, task, 600, 3).unwrap();
    PromptBuilder::new(&Places, task, haystack, None, 3).unwrap()
}

/// Tokens from a row that says a digit back to the same digit where the fact says it last: the number is given twice.
fn distance(task: &ProbeTask, sample: &SampleResult) -> usize {
    let before_last = task.needle.rfind("{key}").unwrap() - "{key}".len() + PLACES;
    // the first digit is said by the space that comes after the prompt
    sample.prompt_tokens - (sample.needle_at + before_last)
}

fn model(slope: f64) -> (ModelSpec, Model) {
    let (spec, weights) = copier(slope);
    let model = Model::new(spec.clone(), weights).unwrap();
    (spec, model.keep_weights(true))
}

#[test]
fn the_shipped_passkey_is_copied_up_to_the_horizon_and_never_beyond() {
    let task = passkey();
    let builder = builder(&task);
    for slope in [0.35, 0.5, 1.0] {
        let (spec, model) = model(slope);
        let horizon = first_blind(&spec, 2000);
        let (mut inside, mut beyond) = (0, 0);
        for length in LENGTHS {
            for depth in 0..DEPTHS {
                let depth = depth as f64 / (DEPTHS - 1) as f64;
                let cell = builder.cell(length, depth, SAMPLES).unwrap();
                for sample in run_cell(&model, &Places, &cell).unwrap() {
                    let distance = distance(&task, &sample);
                    let is_inside = distance < horizon;
                    assert_eq!(
                        sample.hit, is_inside,
                        "slope {slope}: distance {distance}, horizon {horizon}: {sample:?}"
                    );
                    let whole = format!(" {}", sample.key);
                    assert_eq!(sample.answer.starts_with(&whole), is_inside);
                    // beyond it not one digit is said
                    let says_digits = sample.answer.bytes().any(|b| b.is_ascii_digit());
                    assert_eq!(says_digits, is_inside, "{sample:?}");
                    *(if is_inside { &mut inside } else { &mut beyond }) += 1;
                }
            }
        }
        assert!(inside > 5 && beyond > 5, "{slope}: {inside} {beyond}");
    }
}

/// For every distance of the grid, the slope at which the horizon lies at it, and the one at which it lies a token further.
#[test]
fn the_horizon_is_that_of_the_arithmetic_to_the_token() {
    let task = passkey();
    let builder = builder(&task);
    let (_, unbiased) = model(0.01);
    let mut tried = BTreeSet::new();
    for length in LENGTHS {
        for depth in 0..DEPTHS {
            let depth = depth as f64 / (DEPTHS - 1) as f64;
            let cell = builder.cell(length, depth, 1).unwrap();
            let own = &run_cell(&unbiased, &Places, &cell).unwrap()[0];
            assert!(own.hit, "{own:?}");
            let distance = distance(&task, own);
            if !tried.insert(distance) {
                continue;
            }
            for (wanted, hit) in [(distance, false), (distance + 1, true)] {
                // weights are zero from 150 ln 2 nats on
                let slope = 150.0 * 2f64.ln() / (wanted as f64 - 0.5);
                let (spec, model) = model(slope);
                assert_eq!(first_blind(&spec, 2000), wanted);
                let sample = &run_cell(&model, &Places, &cell).unwrap()[0];
                assert_eq!(sample.hit, hit, "horizon {wanted}: {sample:?}");
            }
        }
    }
    assert!(tried.len() > 12, "{tried:?}");
}

#[test]
fn without_the_fact_no_passkey_is_said() {
    let task = passkey();
    let builder = builder(&task);
    let (_, model) = model(0.1);
    let hits = |builder: &PromptBuilder<'_>| {
        let cell = builder.cell(400, 0.5, 10).unwrap();
        let samples = run_cell(&model, &Places, &cell).unwrap();
        samples.iter().filter(|sample| sample.hit).count()
    };
    assert_eq!(hits(&builder), 10);
    assert_eq!(hits(&builder.control(true)), 0);
}
