//! Study files, and flags from a file: mistakes are told before anything runs.

use std::path::Path;

use serde_json::Value;

use crate::set::{Set, ok, refused};

#[test]
fn bad_studies_are_refused_before_anything_runs() {
    let set = Set::new();
    let dry =
        |file: &str| ["study", "run", file, "--dry-run", "--no-calibration"].map(str::to_owned);
    let cases: [(&str, &str, &[&str]); 7] = [
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
            "\"ieee\"",
            "\"ieee\", \"ieee\"",
            &["evaluate.plans", "there twice"],
        ),
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
