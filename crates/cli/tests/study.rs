//! Studies end to end, through the binary: run, killed, continued, refused, summed up.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;
use serde_json::Value;

fn snellen(args: &[&str]) -> Output {
    Command::new(cargo_bin("snellen"))
        .args(args)
        .output()
        .unwrap()
}

#[track_caller]
fn ok(args: &[&str]) -> String {
    ended(args, 0)
}

/// Standard output and error of a command that ends with `code`.
#[track_caller]
fn ended(args: &[&str], code: i32) -> String {
    let output = snellen(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    stderr + &String::from_utf8(output.stdout).unwrap()
}

/// Exit 2 with one line that holds every one of `wanted`.
#[track_caller]
fn refused(args: &[&str], wanted: &[&str]) {
    let said = ended(args, 2);
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: "), "{said}");
    for part in wanted {
        assert!(last.contains(part), "{args:?}: expected {part:?} in {last}");
    }
}

/// A folder with token files of a generated text and `studies/nano.toml`.
struct Set(tempfile::TempDir);

impl Set {
    fn new() -> Self {
        Self::of(150)
    }

    fn of(documents: usize) -> Self {
        let set = Self(tempfile::tempdir().unwrap());
        let words = ["the cat", "a dog", "my friend", "the old man", "that bird"];
        let mut text = String::new();
        for document in 0..documents {
            for sentence in 0..6 {
                let n = document * 31 + sentence * 17;
                let (a, b) = (words[n % 5], words[(n / 20) % 5]);
                text.push_str(&format!("{a} sees {b} on day {document}. "));
            }
            text.push_str("\n<|endoftext|>\n");
        }
        std::fs::write(set.path("corpus.txt"), text).unwrap();
        let at = |name: &str| set.at(name);
        let (corpus, tokenizer) = (at("corpus.txt"), at("tokenizer.json"));
        ok(&[
            "tokens", "train", &corpus, "--vocab", "290", "--to", &tokenizer,
        ]);
        let encode = [
            "tokens",
            "encode",
            &corpus,
            "--tokenizer",
            &tokenizer,
            "--to",
            &at(""),
        ];
        ok(&[&encode[..], &["--held-permille", "200"]].concat());
        let nano = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/nano.toml");
        std::fs::copy(nano, set.path("nano.toml")).unwrap();
        set
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The nano study with something else in it.
    fn study(&self, name: &str, change: impl FnOnce(String) -> String) -> String {
        let text = std::fs::read_to_string(self.path("nano.toml")).unwrap();
        std::fs::write(self.path(name), change(text)).unwrap();
        self.at(name)
    }

    fn record(&self, study: &str, trial: &str) -> Value {
        let path = self.path(&format!("{study}/trials/{trial}/trial.json"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    /// A record without what depends on the machine.
    fn decided(&self, study: &str, trial: &str) -> Value {
        let mut record = self.record(study, trial);
        let cost = record.as_object_mut().unwrap().remove("cost").unwrap();
        assert!(cost["threads"].as_u64().unwrap() > 0);
        record
    }

    fn report(&self, study: &str) -> Value {
        let text = ok(&["study", "report", &self.at(study), "--json"]);
        serde_json::from_str(&text).unwrap()
    }
}

const TRIALS: [&str; 6] = [
    "linear-s1",
    "linear-zeroed-s1",
    "log-s1",
    "linear-s2",
    "linear-zeroed-s2",
    "log-s2",
];

/// Processes whose command line names `folder`: the children of a study in it.
#[cfg(target_os = "linux")]
fn processes_in(folder: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_string_lossy().parse::<u32>();
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if let Ok(pid) = pid
            && line.contains("trial")
            && line.contains(folder)
        {
            found.push(pid);
        }
    }
    found
}

/// Kills with signal 9 what this test started: children of a study in a temporary folder of its own.
#[cfg(target_os = "linux")]
fn kill_children(folder: &str) -> usize {
    let children = processes_in(folder);
    for pid in &children {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
    children.len()
}

#[test]
#[cfg(target_os = "linux")]
fn a_study_killed_and_continued_is_one_never_interrupted() {
    let set = Set::new();
    let file = set.at("nano.toml");
    ok(&[
        "study",
        "run",
        &file,
        "--to",
        &set.at("whole"),
        "--jobs",
        "2",
    ]);
    for trial in TRIALS {
        let record = set.decided("whole", trial);
        assert_eq!(record["status"], "done", "{trial}");
        let folder = set.path(&format!("whole/trials/{trial}/run"));
        assert!(folder.join("final/model.toml").exists());
        assert!(!folder.join("checkpoints").exists(), "checkpoints go");
    }
    // Done trials are skipped.
    let said = ok(&["study", "run", &file, "--to", &set.at("whole")]);
    assert!(said.contains("0 trials to run, 6 done before"), "{said}");

    // Parent and child killed at whatever they were doing, until everything is done.
    let cut = set.at("cut");
    let mut killed = 0;
    for round in 0..40 {
        let mut parent = Command::new(cargo_bin("snellen"))
            .args([
                "study",
                "run",
                &file,
                "--to",
                &cut,
                "--quiet",
                "--threads",
                "1",
            ])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pause = if round < 6 { 150 + 130 * round } else { 60_000 };
        let until = Instant::now() + Duration::from_millis(pause);
        while parent.try_wait().unwrap().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Some(status) = parent.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            break;
        }
        parent.kill().unwrap();
        parent.wait().unwrap();
        killed += kill_children(&cut);
    }
    assert!(killed > 0, "nothing was ever interrupted");
    for trial in TRIALS {
        let (whole, cut) = (set.decided("whole", trial), set.decided("cut", trial));
        assert_eq!(whole, cut, "{trial}");
    }
}

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

#[test]
fn bad_studies_are_refused_before_anything_runs() {
    let set = Set::new();
    let dry =
        |file: &str| ["study", "run", file, "--dry-run", "--no-calibration"].map(str::to_owned);
    let cases: [(&str, &str, &[&str]); 6] = [
        (
            "position.remedy = \"log\"",
            "position.remedy = \"logg\"",
            &["variant \"log\"", "position.remedy"],
        ),
        (
            "position.remedy = \"log\"",
            "position.remedi = \"log\"",
            &["variant \"log\"", "remedi"],
        ),
        ("\"clamp=-12\", ", "\"clamp\", ", &["what-if", "clamp"]),
        ("\"ieee\"", "\"iee\"", &["evaluate.plans", "iee"]),
        (
            "lengths = [64, 128]",
            "lengths = [64, 1000000]",
            &["evaluate.lengths", "1000000"],
        ),
        (
            "train = \"train.tok\"",
            "train = \"gone.tok\"",
            &["variant \"linear\"", "gone.tok"],
        ),
    ];
    for (from, to, wanted) in cases {
        let file = set.study("case.toml", |text| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        let args = dry(&file);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        refused(&args, wanted);
    }
    let nano = set.at("nano.toml");
    let said = ok(&[
        "study",
        "run",
        &nano,
        "--dry-run",
        "--only",
        "log*,linear-s2",
    ]);
    assert!(
        said.contains("log-s1: ") && said.contains("linear-s2: "),
        "{said}"
    );
    assert!(
        !said.contains("linear-s1: ") && said.contains("about "),
        "{said}"
    );
    refused(
        &["study", "run", &nano, "--dry-run", "--only", "logg"],
        &["--only logg", "log"],
    );
    assert!(!set.path("trials").exists(), "a dry run writes nothing");
    let to = set.at("small");
    for more in [&["--dry-run", "--no-calibration"][..], &["--to", &to]] {
        let args = [&["study", "run", &nano, "--max-memory", "1KiB"][..], more].concat();
        refused(&args, &["--max-memory", "linear-s1", "1 trial at a time"]);
    }
    assert!(!set.path("small").exists(), "nothing is begun");
    ok(&[
        "study",
        "run",
        &nano,
        "--max-memory",
        "1GiB",
        "--dry-run",
        "--no-calibration",
    ]);
}

/// Flags of `study run`, `tokens train` and `tokens encode`, those that the commands cannot do without among them, from `--config`.
#[test]
fn a_file_of_flags_serves_the_commands_of_a_verb() {
    let set = Set::new();
    let config = set.at("snellen.toml");
    let write = |text: &str| std::fs::write(&config, text).unwrap();
    let nano = set.at("nano.toml");
    let dry = ["study", "run", &nano, "--config", &config];

    write("format = \"json\"\n[study]\njobs = 3\ndry_run = true\nno_calibration = true\n");
    assert!(ok(&dry).contains("for 3 at a time"));
    let typed = [&dry[..], &["--jobs", "2"]].concat();
    assert!(ok(&typed).contains("for 2 at a time"));
    write("max_memory = \"1KiB\"\n[study]\ndry_run = true\nno_calibration = true\n");
    refused(&dry, &["--max-memory", "1 trial at a time"]);
    write("[study]\njobs = 0\ndry_run = true\n");
    refused(&dry, &["config file", "snellen.toml", "--jobs"]);
    write("[study]\njobs = 3\n");
    refused(&dry, &["required", "--to"]);

    let (corpus, made) = (set.at("corpus.txt"), set.at("made.json"));
    let train = ["tokens", "train", &corpus, "--config", &config];
    write(&format!(
        "[tokens]\nvocab = 300\n[tokens.train]\nto = {made:?}\n"
    ));
    ok(&train);
    let tokenizer: Value = serde_json::from_slice(&std::fs::read(&made).unwrap()).unwrap();
    let entries = tokenizer["model"]["vocab"].as_object().unwrap().len();
    assert_eq!(entries, 300);
    write(&format!(
        "[tokens]\nvocab = 300\nheld_permille = 0\n[tokens.encode]\ntokenizer = {made:?}\nto = {:?}\n",
        set.at("encoded")
    ));
    ok(&["tokens", "encode", &corpus, "--config", &config]);
    assert!(set.path("encoded/train.tok").exists());
    write("[tokens]\nto = \"x\"\nvocab = 300\n");
    refused(&train, &["\"to\" in [tokens]", "[tokens.train]"]);
    write("");
    refused(&train, &["required", "--vocab"]);
}

/// A trial whose process is killed is recorded with the reason, the others run, and the next command tries it again.
#[test]
#[cfg(target_os = "linux")]
fn a_killed_trial_does_not_stop_the_others() {
    let set = Set::new();
    let file = set.study("long.toml", |text| {
        text.replace("32:20, 64:12", "32:20, 64:400")
            .replace("seeds = [1, 2]", "seeds = [1]")
    });
    let to = set.at("long");
    let parent = Command::new(cargo_bin("snellen"))
        .args([
            "study",
            "run",
            &file,
            "--to",
            &to,
            "--only",
            "linear,log",
            "--threads",
            "1",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let first = format!("{to}/trials/linear-s1");
    while processes_in(&first).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(kill_children(&first), 1);
    let output = parent.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("linear-s1: crashed: its process was ended by signal 9"),
        "{said}"
    );
    assert_eq!(set.record("long", "log-s1")["status"], "done");
    let again = ["study", "run", &file, "--to", &to, "--only", "linear,log"];
    let said = ok(&again);
    assert!(said.contains("1 trial to run, 1 done before"), "{said}");
    assert_eq!(set.record("long", "linear-s1")["status"], "done");
}

/// Ctrl-C reaches the parent alone: the child stops with a checkpoint, and the same command goes on from it.
#[test]
#[cfg(target_os = "linux")]
fn an_interrupt_is_passed_on_and_a_budget_ends_a_sitting() {
    let set = Set::new();
    let file = set.study("long.toml", |text| {
        text.replace("32:20, 64:12", "32:20, 64:4000")
            .replace("seeds = [1, 2]", "seeds = [1]")
    });
    let to = set.at("long");
    let run = [
        "study",
        "run",
        &file,
        "--to",
        &to,
        "--threads",
        "1",
        "--only",
        "lin*,log",
        "--keep-checkpoints",
    ];
    let said = ok(&[&run[..], &["--max-minutes", "1e-9"]].concat());
    assert!(said.contains("0 done, 0 failed, 3 not done"), "{said}");

    let parent = Command::new(cargo_bin("snellen"))
        .args(run)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = set.path("long/trials/linear-s1/run/checkpoints/step-00000008");
    let until = Instant::now() + Duration::from_secs(60);
    while !begun.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let interrupt = ["-INT", &parent.id().to_string()].map(str::to_owned);
    assert!(
        Command::new("kill")
            .args(interrupt)
            .status()
            .unwrap()
            .success()
    );
    let output = parent.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("linear-s1: stopped"), "{said}");
    let again = format!(
        "go on with `snellen study run {file} --to {to} --only 'lin*,log' --keep-checkpoints --threads 1`"
    );
    assert!(said.contains(&again), "{said}");
    assert!(!set.path("long/trials/linear-s1/trial.json").exists());
    assert!(processes_in(&to).is_empty(), "no child outlives its parent");
    let log = std::fs::read_to_string(set.path("long/trials/linear-s1/log.txt")).unwrap();
    assert!(log.contains("stopped after step "), "{log}");
}

/// The study for a GPU is whole: everything in it is checked, with token files of a generated text.
#[test]
fn the_large_study_is_valid() {
    let set = Set::of(1500);
    let large = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/148m.toml");
    std::fs::copy(large, set.path("148m.toml")).unwrap();
    let args = [
        "study",
        "run",
        &set.at("148m.toml"),
        "--dry-run",
        "--no-calibration",
    ];
    let said = ok(&args);
    assert!(said.contains("27 to run of 27 trials"), "{said}");
    assert!(
        said.contains("linear-s1: 1") && said.contains(" 10000 steps, "),
        "{said}"
    );
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
