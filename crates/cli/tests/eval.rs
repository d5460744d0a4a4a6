//! `snellen eval` from the outside, on a tiny random model, one id a byte.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use support::{Run, snellen, tiny_folder};

/// The tests' model with files beside it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tiny_folder())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, verb: &str, flag: &str, file: &Path, more: &str) -> Run {
        let mut args = vec![verb, self.0.path().to_str().unwrap()];
        args.extend([flag, file.to_str().unwrap(), "--bytes"]);
        args.extend(more.split_whitespace());
        snellen(args)
    }

    fn json(&self, verb: &str, flag: &str, file: &Path, more: &str) -> Value {
        let run = self.run(verb, flag, file, &format!("{more} --json --exit-zero"));
        assert_eq!(run.code, 0, "{run:?}");
        serde_json::from_str(&run.stdout).unwrap()
    }

    /// Sum of the losses of a text in one window, nats.
    fn nats(&self, text: &str) -> f64 {
        let file = self.file("nats.txt", text);
        let report = self.json("eval", "--text", &file, "");
        let loss = &report["perplexity"];
        loss["nats_per_token"].as_f64().unwrap() * loss["tokens"].as_f64().unwrap()
    }
}

fn text(n: usize) -> String {
    include_str!("tiny/text.txt").chars().take(n).collect()
}

#[test]
fn one_window_is_the_loss_that_measure_reports() {
    let folder = Folder::new();
    let file = folder.file("text.txt", text(300).trim());
    let eval = folder.json("eval", "--text", &file, "--length 1000");
    let measure = folder.json("measure", "--text", &file, "");
    assert_eq!(eval["perplexity"]["windows"], 1);
    for field in ["tokens", "nats_per_token", "perplexity"] {
        let (a, b) = (&eval["perplexity"][field], &measure["loss"][field]);
        // one sum is a running mean, the other is not: 300 roundings of 2^-53 at most
        let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
        assert!((a / b - 1.0).abs() < 1e-12, "{field}: {a} {b}");
    }
    assert_eq!(eval["text"]["hash"], measure["text"]["hash"]);
}

#[test]
fn windows_and_positions_add_up() {
    let folder = Folder::new();
    let file = folder.file("text.txt", text(200).trim_end());
    let n = std::fs::metadata(&file).unwrap().len();
    for (stride, unpredicted) in [(1, 1), (20, 1), (32, n.div_ceil(32))] {
        let report = folder.json(
            "eval",
            "--text",
            &file,
            &format!("--length 32 --stride {stride}"),
        );
        let loss = &report["perplexity"];
        assert_eq!(
            loss["tokens_without_context"], unpredicted,
            "stride {stride}"
        );
        let bins = loss["by_position"].as_array().unwrap();
        let sum: u64 = bins.iter().map(|bin| bin["tokens"].as_u64().unwrap()).sum();
        assert_eq!(sum, n - unpredicted);
        assert_eq!(
            bins.last().unwrap()["to"],
            31,
            "context ends with the window"
        );
    }
}

/// Prefill in pieces on a cache, as servers run it: other matrix products, the same numbers.
#[test]
fn a_window_in_pieces_gives_the_same_losses() {
    let folder = Folder::new();
    let file = folder.file("text.txt", text(260).trim());
    let whole = folder.json("eval", "--text", &file, "--length 100 --stride 60");
    for chunk in [1, 7, 33, 100, 5000] {
        let pieces = folder.json(
            "eval",
            "--text",
            &file,
            &format!("--length 100 --stride 60 --chunk {chunk}"),
        );
        assert_eq!(pieces["perplexity"]["chunk"], chunk);
        for field in ["tokens", "windows", "tokens_without_context"] {
            assert_eq!(pieces["perplexity"][field], whole["perplexity"][field]);
        }
        let bins = |report: &Value| {
            report["perplexity"]["by_position"]
                .as_array()
                .unwrap()
                .clone()
        };
        for (a, b) in bins(&pieces).iter().zip(&bins(&whole)) {
            assert_eq!((&a["from"], &a["tokens"]), (&b["from"], &b["tokens"]));
            let nats = |bin: &Value| bin["nats_per_token"].as_f64().unwrap();
            assert!((nats(a) - nats(b)).abs() < 1e-5, "{chunk}: {a} {b}");
        }
    }
    let run = folder.run("eval", "--text", &file, "--chunk 0");
    assert!(run.error(2).contains("--chunk"));
}

#[test]
fn hellaswag_as_text_and_as_fields() {
    let folder = Folder::new();
    let text = "Baking: A cook mixes flour. He\n1\nruns.\nkneads the dough.\nsings.\nsleeps.\n";
    let text = folder.file("hellaswag.txt", text);
    let line = r#"{"activity_label": "Baking", "ctx_a": "A cook mixes flour.", "ctx_b": "he", "endings": ["runs.", "kneads the dough.", "sings.", "sleeps."], "label": "1"}"#;
    let fields = folder.file("hellaswag.jsonl", line);
    let (text, fields) = (
        folder.json("eval", "--task", &text, "")["task"].clone(),
        folder.json("eval", "--task", &fields, "")["task"].clone(),
    );
    assert_eq!(
        (&text["kind"], &text["items_available"]),
        (&"choices".into(), &1.into())
    );
    assert_eq!(text["chance"], 0.25);
    for field in ["acc", "acc_norm", "gold_nats"] {
        assert_eq!(text[field], fields[field]);
    }
}

#[test]
fn a_document_is_scored_as_if_it_were_alone() {
    let folder = Folder::new();
    let (first, second) = (
        "The first of two texts.",
        "And quite another one, a little longer.",
    );
    let both = folder.file("both.txt", &format!("{first}\n<|endoftext|>\n{second}\n"));
    let report = folder.json("eval", "--text", &both, "");
    let documents = report["perplexity"]["documents"].as_array().unwrap();
    assert_eq!(documents.len(), 2);
    for (document, text) in documents.iter().zip([first, second]) {
        assert_eq!(document["length"], text.len());
        let nats =
            document["nats_per_token"].as_f64().unwrap() * document["tokens"].as_f64().unwrap();
        assert!((nats / folder.nats(text) - 1.0).abs() < 1e-12);
    }
    assert!(report["perplexity"]["standard_error_nats_by_document"].is_f64());
}

#[test]
fn log_likelihoods_are_differences_of_losses() {
    let folder = Folder::new();
    let lines = [
        r#"{"query": "The sky is", "choices": ["blue", "a very long answer", "red"], "gold": 2}"#,
        r#"{"query": "Two and two are ", "choices": ["four", "five"], "gold": 0}"#,
    ];
    let task = folder.file("task.jsonl", &lines.join("\n"));
    let items = folder.0.path().join("items.jsonl");
    let more = format!("--items {}", items.display());
    let report = folder.json("eval", "--task", &task, &more);
    assert_eq!(report["task"]["items"], 2);
    assert_eq!(report["task"]["kind"], "choices");
    assert!((report["task"]["chance"].as_f64().unwrap() - (1.0 / 3.0 + 0.5) / 2.0).abs() < 1e-15);
    let records = std::fs::read_to_string(&items).unwrap();
    let records: Vec<Value> = records
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let mut right = [0, 0];
    for (record, line) in records.iter().zip(lines) {
        let item: Value = serde_json::from_str(line).unwrap();
        // white space at the end of the query belongs to the continuation, beside the delimiter
        let query = item["query"].as_str().unwrap();
        let spaces = &query[query.trim_end().len()..];
        let before = folder.nats(query.trim_end());
        let mut values = Vec::new();
        for (alternative, choice) in record["alternatives"]
            .as_array()
            .unwrap()
            .iter()
            .zip(item["choices"].as_array().unwrap())
        {
            let choice = choice.as_str().unwrap();
            let nats = folder.nats(&format!("{query} {choice}")) - before;
            let found = alternative["log_likelihood"].as_f64().unwrap();
            // f32 losses of up to 30 tokens, and a cache that splits the forward pass
            assert!((found + nats).abs() < 1e-3, "{choice}: {found} {nats}");
            assert_eq!(alternative["tokens"], choice.len() + 1 + spaces.len());
            assert_eq!(alternative["characters"], choice.len());
            values.push((found, found / choice.len() as f64));
        }
        let best = |of: fn(&(f64, f64)) -> f64| {
            (0..values.len())
                .max_by(|a, b| of(&values[*a]).total_cmp(&of(&values[*b])))
                .unwrap()
        };
        assert_eq!(record["predicted"], best(|v| v.0));
        assert_eq!(record["predicted_by_character"], best(|v| v.1));
        right[0] += u64::from(record["predicted"] == record["gold"]);
        right[1] += u64::from(record["predicted_by_character"] == record["gold"]);
    }
    for (field, right) in [("acc", right[0]), ("acc_norm", right[1])] {
        assert_eq!(
            report["task"][field]["value"],
            right as f64 / 2.0,
            "{field}"
        );
    }
}

#[test]
fn the_other_two_shapes_and_a_limit() {
    let folder = Folder::new();
    let line = r#"{"context": "a b c", "continuation": "d"}"#;
    let words = folder.file("words.jsonl", &format!("{line}\n{line}\n{line}\n"));
    let task = folder.json("eval", "--task", &words, "--limit 2")["task"].clone();
    assert_eq!(
        (&task["kind"], &task["items"], &task["items_available"]),
        (&"last-word".into(), &2.into(), &3.into())
    );
    assert_eq!(task["acc_norm"]["value"], Value::Null);
    assert!(task["perplexity"].as_f64().unwrap() > 1.0);
    let line = r#"{"context_options": ["Ann saw Bob so Ann", "Ann saw Bob so Bob"], "continuation": "left.", "gold": 1}"#;
    let options = folder.file("options.jsonl", line);
    let task = folder.json("eval", "--task", &options, "")["task"].clone();
    assert_eq!(
        (&task["kind"], &task["chance"]),
        (&"context-options".into(), &0.5.into())
    );
    let text = folder.run("eval", "--task", &options, "").stdout;
    assert!(
        text.contains("accuracy") && text.contains("chance"),
        "{text}"
    );
}

#[test]
fn the_result_does_not_depend_on_threads() {
    let folder = Folder::new();
    let file = folder.file("text.txt", &text(150));
    let with = |n| {
        folder
            .run(
                "eval",
                "--text",
                &file,
                &format!("--length 40 --threads {n} --json"),
            )
            .stdout
    };
    assert_eq!(with(1), with(2));
}

#[test]
fn what_cannot_be_evaluated_is_one_line() {
    let folder = Folder::new();
    let (file, empty) = (
        folder.file("text.txt", "some text"),
        folder.file("empty.txt", ""),
    );
    let task = folder.file("task.jsonl", "{\"context\": \"a\"}");
    let alone = folder.file("alone.jsonl", r#"{"context": " ", "continuation": "b"}"#);
    for (flag, file, more, expect) in [
        ("--text", &file, "--length 4 --stride 5", "stride 5"),
        ("--text", &file, "--length 1", "at least 2"),
        ("--text", &file, "--limit 3", "--limit"),
        ("--text", &empty, "", "holds no tokens"),
        ("--task", &empty, "", "holds no items"),
        ("--task", &task, "", "line 1"),
        ("--task", &alone, "", "context is empty"),
        ("--task", &file, "--limit 0", "--limit"),
    ] {
        let run = folder.run("eval", flag, file, more);
        let error = run.error(2);
        assert!(error.contains(expect), "{error}");
    }
}

/// A device that this build has no runtime for is refused in one line before anything is read; with the runtime, the losses of the
/// device are those of the cpu up to rounding.
#[test]
fn a_device_is_refused_or_agrees_with_the_cpu() {
    let folder = Folder::new();
    let file = folder.file("text.txt", text(300).trim());
    let run = folder.run("eval", "--text", &file, "--device abacus");
    assert!(run.error(2).contains("expected one of cpu, cuda"));
    let cpu = folder.json("eval", "--text", &file, "--length 100 --device cpu");
    assert_eq!(cpu, folder.json("eval", "--text", &file, "--length 100"));
    for (device, built) in [
        ("cuda", cfg!(feature = "cuda")),
        ("metal", cfg!(feature = "metal")),
        ("rocm", cfg!(feature = "rocm")),
        ("wgpu", cfg!(feature = "wgpu")),
    ] {
        let run = folder.run(
            "eval",
            "--text",
            &file,
            &format!("--length 100 --json --device {device}"),
        );
        if !built {
            let line = run.error(2);
            assert!(
                line.contains(&format!("built without feature {device}")),
                "{line}"
            );
            continue;
        }
        if run.code == 2 {
            assert!(run.error(2).contains("none found"));
            eprintln!("SKIPPED: {device} (no device)");
            continue;
        }
        let there: Value = serde_json::from_str(&run.stdout).unwrap();
        let loss = |report: &Value| report["perplexity"]["nats_per_token"].as_f64().unwrap();
        let distance = (loss(&there) - loss(&cpu)).abs();
        assert!(distance < 1e-5, "{device}: off by {distance:e}");
    }
}
