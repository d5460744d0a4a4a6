use super::*;
use crate::schema::{StudyCell, StudyCost, StudyMeasured, StudyResult, Tool};

fn measured(change: Option<&str>, right: u64, loss: f64) -> StudyMeasured {
    let cell = |from, to, questions, right| StudyCell {
        task: "pair".to_owned(),
        from,
        to,
        questions,
        right,
        loss: None,
    };
    StudyMeasured {
        change: change.map(str::to_owned),
        length: 64,
        loss: Some(loss),
        loss_tokens: 100,
        sequences: 10,
        // two far cells are pooled by questions, not averaged; the near one is left out
        recall: vec![
            cell(1, 32, 50, 50),
            cell(32, 48, 90, right),
            cell(48, 64, 10, 0),
        ],
    }
}

fn trial(variant: &str, seed: u64, right: u64, loss: f64) -> StudyTrial {
    StudyTrial {
        schema_version: 1,
        trial: format!("{variant}-s{seed}"),
        variant: variant.to_owned(),
        seed,
        status: TrialStatus::Done,
        reason: None,
        run_hash: "r".to_owned(),
        evaluation_hash: "e".to_owned(),
        tool: Tool {
            name: "snellen".to_owned(),
            version: "0".to_owned(),
        },
        result: Some(StudyResult {
            configuration: serde_json::Value::Null,
            evaluation: serde_json::Value::Null,
            train_hash: String::new(),
            held_hash: String::new(),
            parameters: 1,
            vocab: 1,
            steps: 10,
            tokens: 1,
            trained_length: 64,
            slopes: Vec::new(),
            measured: vec![
                measured(None, right, loss),
                measured(Some("log"), right + 9, loss),
            ],
            blind: Vec::new(),
            margins: Vec::new(),
            horizons: Vec::new(),
            skipped: Vec::new(),
        }),
        cost: StudyCost {
            training_seconds: Some(if variant == "a" { 2.0 } else { 3.0 }),
            ..StudyCost::default()
        },
    }
}

fn outline() -> StudyOutline {
    let mut trials = Vec::new();
    for seed in 1..=3u64 {
        for variant in ["a", "b"] {
            trials.push((format!("{variant}-s{seed}"), variant.to_owned(), seed));
        }
    }
    StudyOutline {
        title: None,
        baseline: Some("a".to_owned()),
        variants: vec!["a".to_owned(), "b".to_owned()],
        trials,
        left_out: BTreeMap::new(),
    }
}

fn find<'r>(report: &'r StudyReport, table: &str, quantity: &str, variant: &str) -> &'r StudyRow {
    let table = report.tables.iter().find(|t| t.name == table).unwrap();
    let row = |row: &&StudyRow| row.quantity == quantity && row.variant == variant;
    table.rows.iter().find(row).unwrap()
}

#[test]
fn questions_are_pooled_in_a_trial_and_seeds_are_averaged() {
    let mut trials = vec![
        trial("b", 2, 63, 1.5),
        trial("a", 1, 9, 1.0),
        trial("b", 1, 54, 1.25),
        trial("a", 2, 27, 2.0),
        trial("a", 3, 90, 9.0),
    ];
    let mut failed = trial("b", 3, 90, 1.0);
    failed.status = TrialStatus::Diverged;
    failed.result = None;
    trials.push(failed);
    trials.push(trial("c", 1, 90, 1.0));
    let report = StudyReport::of("0", &outline(), &trials);

    let base = find(&report, "recall", "pair, length 64", "a");
    assert_eq!(base.trials, ["a-s1", "a-s2", "a-s3"]);
    assert_eq!(base.values, [0.09, 0.27, 0.9]);
    assert!(base.difference.is_none());

    let other = find(&report, "recall", "pair, length 64", "b");
    assert_eq!(
        (other.n, other.mean),
        (2, 0.585),
        "the failed seed is in no average"
    );
    let difference = other.difference.as_ref().unwrap();
    assert_eq!((difference.n, difference.from.as_str()), (2, "a"));
    assert_eq!(
        difference.trials,
        ["a-s1", "a-s2"],
        "only seeds that both have"
    );
    assert!((difference.mean - (0.45 + 0.36) / 2.0).abs() < 1e-12);
    // t = 0.405 / 0.045 = 9 with one degree: 1 - 2 atan(9) / pi
    let p = 1.0 - 2.0 * f64::atan(9.0) / std::f64::consts::PI;
    assert!((difference.p.unwrap() - p).abs() < 1e-9);
    assert_eq!(difference.p_corrected, difference.p, "one comparison");

    // what a change does is compared with the same trials unchanged; equal differences have no spread and no p value
    let table = report.tables.iter().find(|t| t.name == "what-if").unwrap();
    let row = |r: &&StudyRow| r.change.is_some() && r.variant == "a" && r.quantity.contains("pair");
    let changed = table
        .rows
        .iter()
        .find(row)
        .unwrap()
        .difference
        .as_ref()
        .unwrap();
    assert_eq!((changed.from.as_str(), changed.n), ("unchanged", 3));
    assert!((changed.mean - 0.09).abs() < 1e-12);

    let cost = find(&report, "cost", "time per step over the baseline's", "b");
    // 3 s against 2 s for ten steps each, by two divisions
    let off = |value: &f64| (value - 1.5).abs() < 4.0 * f64::EPSILON;
    assert!(
        cost.n == 2 && cost.values.iter().all(off),
        "{:?}",
        cost.values
    );

    let status: Vec<&str> = report.trials.iter().map(|t| t.status.as_str()).collect();
    assert_eq!(status, ["done", "done", "done", "done", "done", "diverged"]);
    assert!(
        report.outcome.notes[0].contains("c-s1"),
        "{:?}",
        report.outcome.notes
    );
}

#[test]
fn one_seed_has_no_interval_and_what_was_not_run_is_said() {
    let report = StudyReport::of(
        "0",
        &outline(),
        &[trial("a", 1, 9, 1.0), trial("b", 1, 9, 1.0)],
    );
    let row = find(&report, "loss", "loss, length 64", "b");
    assert_eq!(
        (row.n, row.low, row.high, row.deviation),
        (1, None, None, None)
    );
    assert_eq!(row.difference.as_ref().unwrap().p, None);
    let count = report
        .trials
        .iter()
        .filter(|t| t.status == "not run")
        .count();
    assert_eq!(count, 4);
}

/// What was asked other questions, or trained otherwise, is in no average and in no pair.
#[test]
fn trials_of_another_study_are_left_out_and_other_measurements_are_no_pairs() {
    let trials = [
        trial("a", 1, 9, 1.0),
        trial("b", 1, 54, 1.25),
        trial("a", 2, 27, 2.0),
        trial("b", 2, 63, 1.5),
    ];
    let mut outline = outline();
    outline
        .left_out
        .insert("b-s2".to_owned(), "schedule.lr was 1 and is 2".to_owned());
    let report = StudyReport::of("0", &outline, &trials);
    let row = find(&report, "loss", "loss, length 64", "b");
    assert_eq!((row.n, row.values.as_slice()), (1, &[1.25][..]));
    let line = report.trials.iter().find(|t| t.trial == "b-s2").unwrap();
    assert_eq!(
        (line.status.as_str(), line.reason.as_deref()),
        ("left out", Some("schedule.lr was 1 and is 2"))
    );
    assert!(report.outcome.notes[0].starts_with("1 trial was run or measured otherwise"));

    outline.left_out.clear();
    let mut trials = trials;
    trials[3].evaluation_hash = "f".to_owned();
    let report = StudyReport::of("0", &outline, &trials);
    let difference = find(&report, "loss", "loss, length 64", "b")
        .difference
        .as_ref();
    assert_eq!(difference.unwrap().trials, ["a-s1"]);
    assert!(report.outcome.notes[0].contains("never paired"));
}

#[test]
fn a_report_whose_rows_were_changed_is_refused() {
    let trials = [
        trial("a", 1, 9, 1.0),
        trial("b", 1, 54, 1.25),
        trial("a", 2, 27, 2.0),
        trial("b", 2, 63, 1.5),
    ];
    let report = StudyReport::of("0", &outline(), &trials);
    let whole = serde_json::to_value(crate::Document::from(report)).unwrap();
    crate::Document::from_json(&whole.to_string()).unwrap();
    type Change = fn(&mut serde_json::Value);
    let changes: [(&str, Change); 6] = [
        ("values", |row| {
            drop(row["values"].as_array_mut().unwrap().pop())
        }),
        ("trials", |row| {
            drop(row["trials"].as_array_mut().unwrap().pop())
        }),
        ("mean", |row| row["values"][0] = 0.5.into()),
        ("low", |row| row["low"] = 0.0.into()),
        ("a-s3, which is not done", |row| {
            row["trials"][1] = "a-s3".into()
        }),
        ("trials", |row| row["trials"][1] = "a-s1".into()),
    ];
    for (wanted, change) in changes {
        let mut changed = whole.clone();
        change(&mut changed["tables"][0]["rows"][0]);
        let error = crate::Document::from_json(&changed.to_string()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("recall") && error.contains(wanted),
            "{wanted}: {error}"
        );
    }
    let mut changed = whole.clone();
    let rows = changed["tables"][0]["rows"].as_array_mut().unwrap();
    rows.push(rows[0].clone());
    assert!(crate::Document::from_json(&changed.to_string()).is_err());
}
