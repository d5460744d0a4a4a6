//! A fixed study: a baseline, one variant that is always better by the same amount, one with a trial missing.

use snellen_report::Distance;
use snellen_report::schema::{
    StudyCell, StudyCost, StudyHorizon, StudyMeasured, StudyReport, StudyResult, StudyTrial, Tool,
    TrialStatus,
};
use snellen_report::study::StudyOutline;

const VARIANTS: [&str; 3] = ["linear", "clamp", "log+clamp"];

fn measured(change: Option<&str>, length: u64, right: u64, loss: f64) -> StudyMeasured {
    let cell = |from: u64, to: u64, right: u64| StudyCell {
        task: "pair".to_owned(),
        from,
        to,
        questions: 64,
        right,
        loss: Some(loss),
    };
    StudyMeasured {
        change: change.map(str::to_owned),
        length,
        loss: Some(loss),
        loss_tokens: 640,
        sequences: 8,
        recall: vec![cell(1, length / 2, 64), cell(length / 2, length - 1, right)],
    }
}

fn trial(variant: usize, seed: u64) -> StudyTrial {
    let better = 16 * variant as u64;
    let loss = 4.0 + seed as f64 / 8.0 - variant as f64 / 4.0;
    let missing = variant == 2 && seed == 3;
    let result = StudyResult {
        configuration: serde_json::Value::Null,
        evaluation: serde_json::Value::Null,
        train_hash: "00".to_owned(),
        held_hash: "11".to_owned(),
        parameters: 1000,
        vocab: 64,
        steps: 10,
        tokens: 640,
        trained_length: 64,
        slopes: vec![0.5, 0.25],
        measured: vec![
            measured(None, 64, 24 + better, loss),
            measured(None, 128, 4 * seed + better, loss + 0.5),
            measured(Some("clamp=-12"), 128, 8 * seed + better, loss + 0.625),
        ],
        blind: Vec::new(),
        margins: Vec::new(),
        horizons: vec![StudyHorizon {
            task: "pair".to_owned(),
            readers: vec!["0/1".to_owned(), "1/0".to_owned()],
            predicted: Distance::new(40.0 * (variant as f64 + 1.0)),
            predicted_unbounded: variant == 2,
            measured: (seed != 2).then_some(48),
            measured_unbounded: variant == 1,
            length: 128,
        }],
        skipped: Vec::new(),
    };
    StudyTrial {
        schema_version: 1,
        trial: format!("{}-s{seed}", VARIANTS[variant]),
        variant: VARIANTS[variant].to_owned(),
        seed,
        status: if missing {
            TrialStatus::Diverged
        } else {
            TrialStatus::Done
        },
        reason: missing.then(|| "step 7: the loss is not finite".to_owned()),
        run_hash: "22".to_owned(),
        evaluation_hash: "33".to_owned(),
        tool: Tool {
            name: "snellen".to_owned(),
            version: "0.1.0".to_owned(),
        },
        result: (!missing).then_some(result),
        cost: StudyCost {
            training_seconds: Some(2.0),
            training_cpu_seconds: Some(2.5),
            evaluation_seconds: Some(1.0),
            threads: 1,
            sittings: 1,
        },
    }
}

pub(crate) fn study() -> StudyReport {
    let places = || (1..=3).flat_map(|seed| (0..VARIANTS.len()).map(move |at| (at, seed)));
    let outline = StudyOutline {
        title: Some("slopes or zeros".to_owned()),
        baseline: Some("linear".to_owned()),
        variants: VARIANTS.map(str::to_owned).to_vec(),
        trials: places()
            .map(|(at, seed)| {
                (
                    format!("{}-s{seed}", VARIANTS[at]),
                    VARIANTS[at].to_owned(),
                    seed,
                )
            })
            .collect(),
        left_out: Default::default(),
    };
    let trials: Vec<StudyTrial> = places().map(|(at, seed)| trial(at, seed)).collect();
    StudyReport::of("0.1.0", &outline, &trials)
}
