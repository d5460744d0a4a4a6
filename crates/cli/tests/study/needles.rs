//! Facts in prose and far questions only: from the run file through training and evaluation to every form of the report.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{json, run};

/// Token files of a generated text in sentences, with a vocabulary of its words.
struct Set(tempfile::TempDir);

impl Set {
    fn new() -> Self {
        let set = Self(tempfile::tempdir().unwrap());
        let names = [
            "bird",
            "friend",
            "neighbour",
            "teacher",
            "gardener",
            "miller",
        ];
        let verbs = ["sees", "likes", "follows", "hears"];
        let mut text = String::new();
        for document in 0..200 {
            for sentence in 0..8 {
                let n: usize = document * 31 + sentence * 17;
                let (a, b) = (names[n % 6], names[(n / 20) % 6]);
                let verb = verbs[(n / 5) % 4];
                text.push_str(&format!("The {a} {verb} the {b} today. "));
            }
            text.push_str("\n<|endoftext|>\n");
        }
        std::fs::write(set.path("corpus.txt"), text).unwrap();
        let at = set.0.path().display();
        let tokens = |line: &str| run(&format!("tokens {line}"));
        let made = tokens(&format!(
            "train {at}/corpus.txt --vocab 420 --to {at}/tokenizer.json"
        ));
        assert_eq!(made.code, 0, "{}", made.stderr);
        let made = tokens(&format!(
            "encode {at}/corpus.txt --tokenizer {at}/tokenizer.json --to {at} --held-permille 200"
        ));
        assert_eq!(made.code, 0, "{}", made.stderr);
        set
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The nano study, one variant and seed at 128 tokens, with `recall` in its table of that name.
    fn study(&self, name: &str, recall: &str, change: impl FnOnce(String) -> String) -> String {
        let nano = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/nano.toml");
        let text = std::fs::read_to_string(nano).unwrap();
        let first = text.find("[[variant]]").unwrap();
        let text = text[..first]
            .replace("seeds = [1, 2]", "seeds = [1]")
            .replace("32:20, 64:12", "128:4")
            .replace("keys = 8\nvalues = 8\n", "keys = 3\nvalues = 3\n")
            .replace("[base.watch]", &format!("{recall}\n[base.watch]"))
            + "[[variant]]\nname = \"linear\"\n\
               [evaluate]\nlengths = [128, 512]\nquestions = 20\nheld-tokens = 1024\nmargins = true\n";
        std::fs::write(self.path(name), change(text)).unwrap();
        self.path(name).display().to_string()
    }
}

#[test]
fn needles_are_trained_asked_by_distance_and_reported() {
    let set = Set::new();
    let file = set.study("study.toml", "needles = 2\ndistance-min = 40\n", |text| {
        text
    });
    let to = set.path("out").display().to_string();
    let ended = run(&format!("study run {file} --to {to} --threads 1"));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains(", needle "), "{}", ended.stderr);

    let trial = std::fs::read(set.path("out/trials/linear-s1/trial.json")).unwrap();
    let trial: Value = serde_json::from_slice(&trial).unwrap();
    let result = &trial["result"];
    assert_eq!(result["configuration"]["recall"]["needles"], 2);
    assert_eq!(result["configuration"]["recall"]["distance-min"], 40);
    for measured in result["measured"].as_array().unwrap() {
        let length = measured["length"].as_u64().unwrap();
        for task in ["passkey", "pair", "needle"] {
            let cells = measured["recall"].as_array().unwrap().iter();
            let own: Vec<&Value> = cells.filter(|c| c["task"] == task).collect();
            let asked = |from: u64| -> u64 {
                let here = own.iter().filter(|c| c["from"].as_u64().unwrap() >= from);
                here.map(|c| c["questions"].as_u64().unwrap()).sum()
            };
            assert!(asked(length / 2) >= 20, "{task} at {length}");
            let nearest = own.iter().map(|c| c["to"].as_u64().unwrap()).min();
            assert!(nearest.unwrap() > 40, "{task} at {length}");
        }
    }
    let margins = result["margins"].as_array().unwrap();
    assert!(margins.iter().any(|m| m["task"] == "needle"));

    for form in ["text", "md", "csv", "json", "html", "svg"] {
        let said = run(&format!("study report {to} --format {form}"));
        assert_eq!(said.code, 0, "{form}: {}", said.stderr);
        assert!(said.stdout.contains("needle, length 512"), "{form}");
    }
    // the training run itself
    let own = set.path("out/trials/linear-s1/run");
    let metrics = std::fs::read_to_string(own.join("metrics.jsonl")).unwrap();
    let step: Value = serde_json::from_str(metrics.lines().nth(1).unwrap()).unwrap();
    let part = |name: &str| step[name].as_f64().unwrap();
    let sum = part("text") + part("passkey") + part("pair") + part("needle");
    assert!((part("loss") - sum).abs() < 1e-9, "{step}");
    let report = json(&format!("report {}", own.display()));
    assert_eq!(report["steps"][0]["needle"], step["needle"]);
    let csv = run(&format!("report {} --format csv", own.display())).stdout;
    assert!(csv.lines().next().unwrap().contains(",needle"), "{csv}");
    // the same run again, without the folder: the bytes are decided
    let again = set.path("again").display().to_string();
    let ended = run(&format!("study run {file} --to {again} --threads 1"));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let second = std::fs::read_to_string(set.path("again/trials/linear-s1/run/metrics.jsonl"));
    assert_eq!(second.unwrap(), metrics);
}

#[test]
fn without_needles_nothing_says_the_word() {
    let set = Set::new();
    let file = set.study("study.toml", "", |text| text);
    let to = set.path("out").display().to_string();
    let ended = run(&format!("study run {file} --to {to} --threads 1"));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let own = set.path("out/trials/linear-s1/run");
    for args in [
        format!("study report {to} --format json"),
        format!("study report {to} --format csv"),
        format!("report {} --json", own.display()),
        format!("report {} --format csv", own.display()),
    ] {
        let said = run(&args).stdout;
        assert!(!said.is_empty() && !said.contains("needle"), "{args}");
    }
    let kept = std::fs::read_to_string(own.join("run.toml")).unwrap();
    assert!(
        !kept.contains("needles") && !kept.contains("distance-min"),
        "{kept}"
    );
}

#[test]
fn what_cannot_be_asked_is_one_line() {
    let set = Set::new();
    let refused = |recall: &str, change: &dyn Fn(String) -> String, wanted: &[&str]| {
        let file = set.study("bad.toml", recall, change);
        let to = set.path("none").display().to_string();
        let ended = run(&format!("study run {file} --to {to}"));
        let error = ended.error(2);
        for part in wanted {
            assert!(
                error.contains(part),
                "{recall}: expected {part:?} in {error}"
            );
        }
        assert!(!Path::new(&to).exists(), "nothing is left behind");
    };
    let same = |text: String| text;
    refused(
        "needles = 2",
        &|text| text.replace("tokenizer = \"tokenizer.json\"", ""),
        &["variant \"linear\"", "recall.needles", "data.tokenizer"],
    );
    refused(
        "needles = 2",
        &|text| text.replace("[base.model]", "document-mask = true\n[base.model]"),
        &["recall.needles", "document-mask"],
    );
    refused("needles = 4", &same, &["3 keys for 4 needles"]);
    refused(
        "needles = 1",
        &|text| text.replace("keys = 3", "keys = 100"),
        &["recall.needles", "tokenizer.json", "100 keys"],
    );
    refused(
        "distance-min = 125",
        &same,
        &["at least 133 tokens", "schedule.stages is 128"],
    );
    refused(
        "distance-min = 60",
        &|text| text.replace("lengths = [128, 512]", "lengths = [32, 128]"),
        &["evaluate.lengths", "at least 68 tokens", "found 32"],
    );
    refused("distance-min = -1", &same, &["recall"]);
    refused("needle = 1", &same, &["unknown field `needle`"]);
}
