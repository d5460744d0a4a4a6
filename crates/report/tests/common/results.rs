//! Fixed results that are not about heads.

use snellen_report::schema::{
    Accuracy, DocumentLoss, Envelope, EvalReport, MeanLoss, ModelInfo, Outcome, PerplexityReport,
    PositionLoss, ProbeArea, ProbeCell, ProbeHeadSight, ProbeNeedle, ProbeReport, ProbeSample,
    ProbeScore, ProbeSettings, ProbeWhatIf, ProbeWitness, Skipped, TaskOutcome, TaskReport,
    TextInfo, TrainBest, TrainHead, TrainHeld, TrainLook, TrainRecall, TrainRecallCell,
    TrainReport, TrainRun, TrainStep,
};

fn envelope(verb: &str) -> Envelope {
    let mut envelope = Envelope::new(verb, "0.1.0");
    envelope.model = Some(ModelInfo {
        name: "tiny".to_owned(),
        family: "custom".to_owned(),
        path: Some("models/tiny".to_owned()),
        hash: Some("00ff".to_owned()),
        n_layers: Some(2),
        n_heads: Some(2),
        head_width: Some(8),
        trained_length: Some(512),
        causal: true,
        ..ModelInfo::default()
    });
    envelope
}

fn outcome() -> Outcome {
    Outcome {
        notes: vec!["a remark".to_owned()],
        ..Outcome::default()
    }
}

/// A cell whose first `hits` of four samples are right.
fn cell(length: u64, depth: f64, hits: u64, better: Option<u64>) -> ProbeCell {
    let samples = |hits: u64| {
        let sample = |index: u64| ProbeSample {
            key: (48_213 + index).to_string(),
            hit: index < hits,
            answer: if index < hits {
                format!(" {}.", 48_213 + index)
            } else {
                ["\u{1b}[2J 4 8 2", "", "`|</td>", "=1+1"][index as usize].to_owned()
            },
            log_probability: Some(-0.5 - index as f64),
            answer_tokens: 6,
            first_rank: index,
            largest_rank: 2 * index,
            prompt_tokens: length - 6,
            needle_at: (depth * (length - 100) as f64) as u64,
            needle_tokens: 20,
            values_right: u64::from(index < hits),
            values_asked: 1,
            needles: vec![ProbeNeedle {
                value: (48_213 + index).to_string(),
                at: (depth * (length - 100) as f64) as u64,
                tokens: 20,
                asked: true,
            }],
            prompt_hash: format!("{index:02x}"),
        };
        (0..4).map(sample).collect::<Vec<_>>()
    };
    let results = samples(hits);
    ProbeCell {
        length,
        depth,
        true_depth: Some(depth),
        score: ProbeScore::of(&results),
        what_if: better
            .map(|hits| ProbeWhatIf {
                change: "slopes/2".to_owned(),
                tests: "slope".to_owned(),
                score: ProbeScore::of(&samples(hits)),
            })
            .into_iter()
            .collect(),
        causes: better
            .filter(|hits| *hits > 0)
            .map(|_| "slope".to_owned())
            .into_iter()
            .collect(),
        first_ids: vec![72, 101],
        witness: vec![witness(length)],
        results,
    }
}

/// Two heads of which one sees the fact, at short lengths.
fn witness(length: u64) -> ProbeWitness {
    let near = length < 512;
    let head = |head: u64, seen: bool| ProbeHeadSight {
        layer: 0,
        head,
        weight: Some(if seen { 0.25 } else { 0.0 }),
        distance: length / 2,
        sight: if seen { "seen" } else { "blind" }.to_owned(),
        samples_seen: if seen { 4 } else { 0 },
    };
    ProbeWitness {
        plan: "ieee".to_owned(),
        heads: 2,
        seen: u64::from(near),
        sub_ulp: 0,
        blind: 2 - u64::from(near),
        by_head: vec![head(0, false), head(1, near)],
    }
}

pub(crate) fn probe() -> ProbeReport {
    let cells = vec![
        cell(256, 0.0, 4, None),
        cell(256, 1.0, 3, None),
        cell(1024, 0.0, 0, Some(0)),
        cell(1024, 1.0, 1, Some(3)),
    ];
    let mut envelope = envelope("probe");
    envelope.seed = Some(5);
    ProbeReport {
        envelope,
        settings: ProbeSettings {
            task: "passkey".to_owned(),
            task_version: 1,
            model_hash: "00ff".to_owned(),
            tokenizer: "bytes".to_owned(),
            tokenizer_hash: None,
            haystack_hash: None,
            prefix_token: None,
            lengths: vec![256, 1024],
            depths: vec![0.0, 1.0],
            samples: 4,
            seed: 5,
            what_if: vec!["slopes/2".to_owned()],
            plans: vec!["ieee".to_owned()],
            needles: 1,
            shuffled: false,
            control: false,
        },
        configuration: "c0de".to_owned(),
        all: ProbeArea::of(&cells, |_| true).unwrap(),
        inside_trained_length: ProbeArea::of(&cells, |cell| cell.length <= 512),
        beyond_trained_length: ProbeArea::of(&cells, |cell| cell.length > 512),
        cells,
        show_failures: false,
        outcome: outcome(),
    }
}

fn loss(tokens: u64, nats: f64) -> MeanLoss {
    MeanLoss {
        tokens,
        nats_per_token: Some(nats),
        standard_error_nats: Some(nats / 50.0),
        perplexity: Some(nats.exp()),
        standard_error_perplexity: Some(nats.exp() * nats / 50.0),
    }
}

pub(crate) fn eval() -> EvalReport {
    let bins = [
        (1, 1, 5.5),
        (2, 3, 4.25),
        (4, 7, 3.5),
        (8, 15, 2.75),
        (16, 33, 4.0),
    ];
    let document = |(index, nats): (u64, f64)| DocumentLoss {
        document: index,
        length: 33 + index,
        loss: loss(32 + index, nats),
    };
    let mut envelope = envelope("eval");
    envelope.length = Some(32);
    envelope.text = Some(TextInfo {
        source: "held.txt".to_owned(),
        tokens: 102,
        tokens_available: 102,
        hash: "abcd".to_owned(),
        tokenizer: "bytes".to_owned(),
        tokenizer_hash: None,
    });
    EvalReport {
        envelope,
        perplexity: Some(PerplexityReport {
            length: 32,
            stride: 16,
            chunk: None,
            windows: 6,
            tokens_without_context: 3,
            all: loss(99, 3.5),
            standard_error_nats_by_document: Some(0.25),
            by_position: bins
                .iter()
                .map(|(from, to, nats)| PositionLoss {
                    from: *from,
                    to: *to,
                    loss: loss(3 * (to - from + 1), *nats),
                })
                .collect(),
            documents: [(0, 3.25), (1, 3.5), (2, 3.75)]
                .into_iter()
                .map(document)
                .collect(),
        }),
        task: None,
        outcome: outcome(),
    }
}

pub(crate) fn task() -> EvalReport {
    let outcomes: Vec<TaskOutcome> = (0..8)
        .map(|item| TaskOutcome {
            correct: item % 2 == 0,
            correct_by_character: Some(item % 4 == 0),
            correct_by_byte: Some(item % 4 == 0),
            gold_nats: Some(1.5 + f64::from(item)),
        })
        .collect();
    let score = |value, error| Accuracy {
        value: Some(value),
        standard_error: Some(error),
    };
    EvalReport {
        envelope: envelope("eval"),
        perplexity: None,
        task: Some(TaskReport {
            source: "questions.jsonl".to_owned(),
            hash: "f1le".to_owned(),
            tokenizer: "bytes".to_owned(),
            tokenizer_hash: None,
            kind: "choices".to_owned(),
            delimiter: " ".to_owned(),
            prefix_token: None,
            items: 8,
            items_available: 8,
            chance: Some(0.25),
            acc: score(0.5, 0.189),
            acc_norm: score(0.25, 0.164),
            acc_bytes: score(0.25, 0.164),
            gold_nats: Some(5.0),
            gold_nats_standard_error: Some(0.866),
            perplexity: None,
            merged_boundaries: 0,
            longest_tokens: 40,
            outcomes,
        }),
        outcome: outcome(),
    }
}

pub(crate) fn train() -> TrainReport {
    let step = |step: u64| TrainStep {
        step,
        length: 64,
        tokens: 128 * step,
        loss: 8.0 / step as f64 + 1.0,
        text: 6.0 / step as f64 + 1.0,
        passkey: Some(2.0 / step as f64),
        pair: None,
        needle: None,
        learning_rate: 0.001 * step as f64,
        gradient_norm: 1.25,
    };
    let head = |step: u64, index: u64| TrainHead {
        layer: index / 2,
        head: index % 2,
        pairs: 100,
        blind_pairs: 10 * step * (index % 2),
        blind_share: Some(0.1 * step as f64 * (index % 2) as f64),
        reach_90: 20 - index,
        key0_mass: 0.125,
        gradient_share: vec![0.75, 0.25],
        blind_gradient: 0.0,
    };
    let look = |step: u64| TrainLook {
        step,
        length: 64,
        edges: vec![1, 64],
        pairs: 400,
        blind_pairs: 20 * step,
        blind_share: Some(0.05 * step as f64),
        heads: (0..4).map(|index| head(step, index)).collect(),
    };
    let recall = |from: u64, right: u64| TrainRecallCell {
        task: "passkey".to_owned(),
        from,
        to: 2 * from - 1,
        questions: 20,
        right,
        accuracy: Some(right as f64 / 20.0),
        accuracy_low: Some(0.5 * right as f64 / 20.0),
        accuracy_high: Some(0.5 + 0.5 * right as f64 / 20.0),
        nats: 2.5,
    };
    let held = |step: u64, nats: f64| TrainHeld {
        step,
        length: 64,
        tokens: 640,
        nats_per_token: nats,
    };
    let mut envelope = envelope("train");
    envelope.seed = Some(1);
    TrainReport {
        envelope,
        run: TrainRun {
            configuration: "c0de".to_owned(),
            train_hash: "aa".to_owned(),
            held_hash: "bb".to_owned(),
            tokenizer_hash: "cc".to_owned(),
            parameters: 12_345,
            steps: 6,
            steps_done: 4,
            tokens: 768,
            position: "alibi, remedy log".to_owned(),
            stages: "64:6".to_owned(),
            attention: "exact".to_owned(),
            slopes: vec![0.25, 0.0625],
            document_mask: false,
            best: Some(TrainBest {
                step: 4,
                nats_per_token: 2.5,
            }),
            finished: false,
            stopped: None,
        },
        steps: (1..=4).map(step).collect(),
        held: vec![held(2, 4.5), held(4, 2.5)],
        recall: vec![TrainRecall {
            step: 4,
            length: 64,
            cells: vec![recall(1, 19), recall(16, 12), recall(32, 3)],
        }],
        looks: vec![look(2), look(4)],
        outcome: Outcome {
            skipped: vec![Skipped {
                what: "timing".to_owned(),
                reason: "not in the record".to_owned(),
            }],
            ..outcome()
        },
    }
}
