//! Records of trials: changed ones are refused, short ones are whole, the committed ones are those of their studies.

use std::path::Path;

use serde_json::Value;

use crate::set::{Set, ok, refused};

/// A record whose lists or numbers were changed is not averaged.
#[test]
fn records_that_were_changed_are_refused() {
    let set = Set::new();
    let file = set.at("nano.toml");
    let to = set.at("one");
    let run = ["study", "run", &file, "--to", &to, "--only", "linear-s1"];
    ok(&run);
    let path = set.path("one/trials/linear-s1/trial.json");
    let whole: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 9] = [
        ("measured", |r| {
            drop(r["measured"].as_array_mut().unwrap().remove(1))
        }),
        ("measured", |r| {
            let first = r["measured"][0].clone();
            r["measured"].as_array_mut().unwrap().push(first);
        }),
        ("pair from", |r| {
            r["measured"][0]["recall"]
                .as_array_mut()
                .unwrap()
                .last_mut()
                .unwrap()["right"] = 99_999.into()
        }),
        ("blind", |r| drop(r["blind"].as_array_mut().unwrap().pop())),
        ("blind", |r| {
            r["blind"][0]["blind_pairs"] = 99_999_999.into()
        }),
        ("margins", |r| r["margins"] = serde_json::json!([])),
        ("horizons", |r| r["horizons"][0]["measured"] = 12_345.into()),
        ("run_hash", |r| {
            r["configuration"]["schedule"]["lr"] = 1.into()
        }),
        ("evaluation_hash", |r| {
            r["evaluation"]["questions"] = 21.into()
        }),
    ];
    for (wanted, change) in changes {
        let mut record = whole.clone();
        change(&mut record["result"]);
        std::fs::write(&path, record.to_string()).unwrap();
        refused(
            &["study", "report", &to],
            &["linear-s1", "trial.json", wanted],
        );
        refused(&run, &["trial.json", wanted]);
    }
    std::fs::write(&path, whole.to_string()).unwrap();
    ok(&["study", "report", &to]);
}

/// Margins are over the last 20 keys; a trial whose sequences are too short for that says so in its record, and the record is read.
#[test]
fn a_trial_too_short_for_margins_is_done() {
    let set = Set::new();
    let short = |text: String| text.replace("stages = \"32:20, 64:12\"", "stages = \"16:8\"");
    let file = set.study("short.toml", short);
    let to = set.at("short");
    let run = ["study", "run", &file, "--to", &to, "--only", "linear-s1"];
    ok(&run);
    let record = &set.record("short", "linear-s1")["result"];
    assert_eq!(record["margins"], serde_json::json!([]));
    assert_eq!(record["skipped"][0]["what"], "linear: margins");
    ok(&run);
    assert!(ok(&["study", "report", &to]).contains("linear: margins"));
}

/// The records in the repository are whole, and of the studies beside them.
#[test]
fn the_committed_records_are_whole_and_of_their_studies() {
    for name in ["small", "underflow", "far", "needle"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../studies/{name}"));
        let text = ok(&["study", "report", folder.to_str().unwrap(), "--json"]);
        let report: Value = serde_json::from_str(&text).unwrap();
        let trials = report["trials"].as_array().unwrap();
        let of = |status: &str| trials.iter().filter(|t| t["status"] == status).count();
        assert_eq!(of("left out"), 0, "{name}");
        let records = std::fs::read_dir(folder.join("trials")).unwrap().count();
        assert_eq!(of("done"), records, "{name}");
        assert!(records > 0, "{name}");
    }
}
