//! What a study's report says is what its trials did.

use serde_json::Value;

use crate::set::{Set, ended, ok, refused};

#[test]
fn what_is_reported_is_what_was_run() {
    let set = Set::new();
    // A learning rate that blows up, in one of three variants.
    let file = set.study("bad.toml", |text| {
        text + "\n[[variant]]\nname = \"wild\"\nschedule.lr = 1e6\noptimiser.clip = 0.0\nschedule.warmup = 0\n"
    });
    let run = ["study", "run", &file, "--to", &set.at("bad"), "--jobs", "2"];
    let only = [&run[..], &["--only", "linear*,wild"]].concat();
    let said = ended(&only, 1);
    assert!(said.contains("wild-s1: diverged: step "), "{said}");

    let report = set.report("bad");
    let status = |name: &str| {
        let trials = report["trials"].as_array().unwrap();
        let line = trials.iter().find(|t| t["trial"] == name).unwrap();
        line["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status("linear-s1"), "done");
    assert_eq!(status("wild-s1"), "diverged");
    assert_eq!(status("log-s2"), "not run");
    let tables = report["tables"].as_array().unwrap();
    for name in ["recall", "loss", "what-if", "blind", "blind-heads", "cost"] {
        let table = tables.iter().find(|t| t["name"] == name);
        let rows = table.unwrap_or_else(|| panic!("{name}"))["rows"]
            .as_array()
            .unwrap();
        assert!(!rows.is_empty());
        for row in rows {
            assert!(row["variant"] != "wild" && row["variant"] != "log", "{row}");
            let trials = row["trials"].as_array().unwrap();
            assert_eq!(trials.len() as u64, row["n"].as_u64().unwrap());
        }
    }
    // A number of the report is that of the records it names.
    let loss = tables.iter().find(|t| t["name"] == "loss").unwrap();
    let row = &loss["rows"][0];
    for (trial, value) in row["trials"]
        .as_array()
        .unwrap()
        .iter()
        .zip(row["values"].as_array().unwrap())
    {
        let record = set.record("bad", trial.as_str().unwrap());
        assert_eq!(record["result"]["measured"][0]["loss"], *value);
    }
    // Questions asked are recorded, and at least as many as wanted lie far.
    let record = set.record("bad", "linear-s1");
    for measured in record["result"]["measured"].as_array().unwrap() {
        let length = measured["length"].as_u64().unwrap();
        for task in ["passkey", "pair"] {
            let cells = measured["recall"].as_array().unwrap().iter();
            let far =
                cells.filter(|c| c["task"] == task && 2 * c["from"].as_u64().unwrap() >= length);
            let asked: u64 = far.map(|c| c["questions"].as_u64().unwrap()).sum();
            assert!(asked >= 20, "{task} at {length}: {asked}");
        }
    }

    // Only records and study.toml: the same report.
    std::fs::create_dir_all(set.path("kept/trials")).unwrap();
    std::fs::copy(set.path("bad/study.toml"), set.path("kept/study.toml")).unwrap();
    for entry in std::fs::read_dir(set.path("bad/trials")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let to = set.path(&format!("kept/trials/{name}.json"));
        std::fs::copy(folder.join("trial.json"), to).unwrap();
    }
    assert_eq!(set.report("kept"), report);
    for (format, wanted) in [
        ("text", "linear-zeroed"),
        ("md", "| variant |"),
        ("svg", "<svg xmlns="),
        ("csv", "table,quantity,"),
        ("html", "Trials that are in no average"),
    ] {
        let text = ok(&["study", "report", &set.at("kept"), "--format", format]);
        assert!(text.contains(wanted), "{text}");
    }
    refused(
        &["study", "report", &set.at("kept"), "--format", "npz"],
        &["text, json, html, md, csv, svg and png"],
    );
    let saved = set.at("saved.json");
    ok(&[
        "study",
        "report",
        &set.at("kept"),
        "--json",
        "--out",
        &saved,
    ]);
    let direct = ok(&["study", "report", &set.at("kept"), "--format", "html"]);
    assert_eq!(ok(&["report", &saved, "--format", "html"]), direct);

    // Another configuration in the same folder is refused, and the key is named.
    let other = set.study("other.toml", |text| text.replace("lr = 3e-3", "lr = 2e-3"));
    let to = set.at("bad");
    refused(
        &["study", "run", &other, "--to", &to],
        &["linear-s1", "schedule.lr was 0.003 and is 0.002", "--to"],
    );
    // Other measurements are refused too, and made when asked for; training is kept.
    let other = set.study("measured.toml", |text| {
        text.replace("questions = 20", "questions = 21")
    });
    let run = ["study", "run", &other, "--to", &to, "--only", "linear-s1"];
    refused(&run, &["linear-s1", "--evaluate-again"]);
    let cost = |key: &str| set.record("bad", "linear-s1")["cost"][key].clone();
    let costs = ["training_cpu_seconds", "training_seconds"].map(cost);
    assert!(costs.iter().all(Value::is_number), "{costs:?}");
    let before =
        std::fs::read(set.path("bad/trials/linear-s1/run/final/model.safetensors")).unwrap();
    ok(&[&run[..], &["--evaluate-again"]].concat());
    let after =
        std::fs::read(set.path("bad/trials/linear-s1/run/final/model.safetensors")).unwrap();
    assert!(before == after);
    assert_eq!(
        set.record("bad", "linear-s1")["result"]["evaluation"]["questions"],
        21
    );
    assert_eq!(
        costs,
        ["training_cpu_seconds", "training_seconds"].map(cost)
    );
    // The file says 21 questions now: what was asked 20 is in no average and in no pair.
    let report = set.report("bad");
    let trials = report["trials"].as_array().unwrap();
    let line = trials.iter().find(|t| t["trial"] == "linear-s2").unwrap();
    assert_eq!(
        (&line["status"], &line["reason"]),
        (
            &"left out".into(),
            &"evaluate.questions was 20 and is 21".into()
        )
    );
    for table in report["tables"].as_array().unwrap() {
        for row in table["rows"].as_array().unwrap() {
            assert_eq!(row["trials"], serde_json::json!(["linear-s1"]), "{row}");
        }
    }
    let text = ok(&["study", "report", &to]);
    assert!(
        text.contains("1 of 8 trials done") || text.contains("left out"),
        "{text}"
    );
    // Neither is a trial of another configuration.
    let kept = set.path("kept/study.toml");
    let study = std::fs::read_to_string(&kept).unwrap();
    std::fs::write(
        &kept,
        study
            .replace(
                "position.remedy = \"log\"",
                "position.remedy = \"clamp=-9\"",
            )
            .replacen(
                "attention.zero-beyond = 17.3",
                "attention.zero-beyond = 9.0",
                1,
            ),
    )
    .unwrap();
    let report = set.report("kept");
    let line = report["trials"]
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["trial"] == "linear-zeroed-s1");
    assert_eq!(
        line.unwrap()["reason"],
        "attention.zero-beyond was 17.3 and is 9.0"
    );
    // Where the runs' own file is not beside the copy of the study file, what was measured is compared.
    let (head, tables) = study.split_once("[base.data]").unwrap();
    let (_, variants) = tables.split_once("[[variant]]").unwrap();
    let apart = format!("base = \"gone.toml\"\n{head}[[variant]]{variants}");
    std::fs::write(&kept, &apart).unwrap();
    let report = set.report("kept");
    let of = |report: &Value, status: &str| {
        let trials = report["trials"].as_array().unwrap();
        trials.iter().filter(|t| t["status"] == status).count()
    };
    assert_eq!((of(&report, "done"), of(&report, "left out")), (4, 0));
    assert!(
        report["notes"]
            .to_string()
            .contains("gone.toml is not there")
    );
    std::fs::write(
        &kept,
        apart.replace("held-tokens = 1024", "held-tokens = 2048"),
    )
    .unwrap();
    assert_eq!(of(&set.report("kept"), "left out"), 4);
    // What diverged stays as it is.
    let said = ended(
        &["study", "run", &file, "--to", &to, "--only", "wild-s1"],
        1,
    );
    assert!(said.contains("wild-s1: failed before: step "), "{said}");
}
