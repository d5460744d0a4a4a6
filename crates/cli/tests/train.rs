//! Training end to end, through the binary: text to tokens to a run, interrupted and continued, and what comes out of it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::ffi::OsStr;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::cargo::cargo_bin;

fn snellen<S: AsRef<OsStr>>(args: &[S]) -> Output {
    std::process::Command::new(cargo_bin("snellen"))
        .args(args)
        .output()
        .unwrap()
}

#[track_caller]
fn ok<S: AsRef<OsStr> + Debug>(args: &[S]) -> String {
    let output = snellen(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{args:?}: {stderr}");
    stderr + &String::from_utf8(output.stdout).unwrap()
}

/// Exit 2, one line on stderr that holds every one of `wanted`.
#[track_caller]
fn refused<S: AsRef<OsStr> + Debug>(args: &[S], wanted: &[&str]) -> String {
    let output = snellen(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: "), "{args:?}: {stderr}");
    for part in wanted {
        assert!(last.contains(part), "{args:?}: expected {part:?} in {last}");
    }
    stderr
}

/// A corpus with something to learn: the same few sentences in changing order.
fn corpus(folder: &Path) -> PathBuf {
    let subjects = ["the cat", "a dog", "my friend", "the old man", "that bird"];
    let verbs = ["sees", "likes", "follows", "hears"];
    let mut text = String::new();
    for document in 0..120u32 {
        for sentence in 0..6 {
            let n = document * 31 + sentence * 17;
            let subject = subjects[n as usize % 5];
            let verb = verbs[(n / 5) as usize % 4];
            let object = subjects[(n / 20) as usize % 5];
            text.push_str(&format!("{subject} {verb} {object} on day {document}. "));
        }
        text.push_str("\n<|endoftext|>\n");
    }
    let path = folder.join("corpus.txt");
    std::fs::write(&path, text).unwrap();
    path
}

fn list(args: &[&str]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).collect()
}

struct Set {
    folder: tempfile::TempDir,
}

impl Set {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let set = Self { folder };
        let text = corpus(set.folder.path());
        let text = text.to_str().unwrap();
        ok(&set.tokenizing(text, "tokenizer.json"));
        ok(&set.encoding(text, "", "150"));
        set
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Arguments that make a tokenizer of `text`.
    fn tokenizing(&self, text: &str, to: &str) -> Vec<String> {
        let to = self.at(to);
        list(&["tokens", "train", text, "--vocab", "300", "--to", &to])
    }

    /// Arguments that encode `text` into a folder, holding out so many documents of a thousand.
    fn encoding(&self, text: &str, to: &str, held: &str) -> Vec<String> {
        let (tokenizer, to) = (self.at("tokenizer.json"), self.at(to));
        let mut args = list(&["tokens", "encode", text, "--tokenizer", &tokenizer]);
        args.extend(list(&["--to", &to, "--held-permille", held]));
        args
    }

    /// Arguments that train `file` into a folder, and more flags.
    fn training(&self, file: &str, to: &str, flags: &str) -> Vec<String> {
        let mut args = list(&["train", file, "--to", &self.at(to)]);
        args.extend(flags.split_whitespace().map(str::to_owned));
        args
    }

    /// Arguments that export a run as `layout` into a folder, and more flags.
    fn exporting(&self, run: &str, layout: &str, to: &str, flags: &str) -> Vec<String> {
        let mut args = list(&[
            "export",
            &self.at(run),
            "--as",
            layout,
            "--to",
            &self.at(to),
        ]);
        args.extend(flags.split_whitespace().map(str::to_owned));
        args
    }

    /// A run file of a tiny model.
    fn run_file(&self, name: &str, more: &str) -> String {
        let text = format!(
            "snellen-run = 1\nseed = 5\n\
             [data]\ntrain = \"train.tok\"\nheld = \"held.tok\"\ntokenizer = \"tokenizer.json\"\n\
             [model]\nlayers = 2\nwidth = 32\nheads = 4\ndropout = 0.1\n\
             [schedule]\nstages = \"16:20, 32:20\"\ntokens-per-step = 128\nlr = 3e-3\nwarmup = 4\n\
             [watch]\neval-every = 8\neval-tokens = 512\nheads-every = 8\nsave-every = 8\n{more}"
        );
        let path = self.at(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(name)).unwrap()
    }
}

/// What a run leaves that must not depend on how it got there.
fn results(set: &Set, run: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<String> = [
        "metrics.jsonl",
        "record.json",
        "final/model.safetensors",
        "run.toml",
        "tokenizer.json",
    ]
    .iter()
    .map(|f| format!("{run}/{f}"))
    .collect();
    files.push(format!(
        "{run}/checkpoints/step-00000040/second.safetensors"
    ));
    files.iter().map(|f| set.read(f)).collect()
}

#[test]
fn a_run_continued_is_a_run_never_interrupted() {
    let set = Set::new();
    let file = set.run_file("run.toml", "");
    ok(&set.training(&file, "whole", ""));
    let whole = results(&set, "whole");

    // Stopped at 20, which is also the border of two stages.
    ok(&set.training(&file, "two", "--until 20 --tensorboard"));
    let said = ok(&["train", "--resume", &set.at("two")]);
    assert!(said.contains("resuming after step 20"), "{said}");
    assert!(results(&set, "two") == whole, "20 + 20 steps");
    // The curves kept while training, brought up to date after the resumption, are those made from the whole run.
    ok(&["train", "--resume", &set.at("two"), "--tensorboard"]);
    ok(&set.exporting("whole", "tensorboard", "curves", ""));
    let events = "events.out.tfevents.0000000000.snellen";
    assert!(
        set.read(&format!("two/tensorboard/{events}")) == set.read(&format!("curves/{events}"))
    );

    // One, two and eight threads.
    ok(&set.training(&file, "one", "--threads 1"));
    assert!(results(&set, "one") == whole, "one thread");
    ok(&set.training(&file, "eight", "--threads 8"));
    assert!(results(&set, "eight") == whole, "eight threads");

    // Killed without warning, several times, at whatever it was doing.
    let mut child = std::process::Command::new(cargo_bin("snellen"))
        .args(["train", &file, "--to", &set.at("killed"), "--quiet"])
        .spawn()
        .unwrap();
    for _ in 0..6 {
        std::thread::sleep(std::time::Duration::from_millis(60));
        let _ = child.kill();
        let _ = child.wait();
        // A run killed before it had begun is begun again, in the same folder.
        let begun = Path::new(&set.at("killed/run.toml")).exists();
        let killed = set.at("killed");
        let again = if begun {
            vec!["train", "--resume", &killed, "--quiet"]
        } else {
            vec!["train", &file, "--to", &killed, "--quiet"]
        };
        child = std::process::Command::new(cargo_bin("snellen"))
            .args(again)
            .spawn()
            .unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    let _ = child.kill();
    let _ = child.wait();
    ok(&["train", "--resume", &set.at("killed")]);
    assert!(results(&set, "killed") == whole, "killed six times");
}

/// Held-out text is looked at 4096 rows at a time: a step of 128 tokens needs no less memory than one of 4096.
#[test]
fn the_estimate_of_memory_counts_looks_at_held_out_text() {
    let set = Set::new();
    let memory = |tokens: &str| {
        let file = set.run_file("run.toml", "");
        let text = String::from_utf8(set.read("run.toml")).unwrap();
        let step = format!("tokens-per-step = {tokens}");
        std::fs::write(&file, text.replace("tokens-per-step = 128", &step)).unwrap();
        let said = ok(&["train", &file, "--dry-run"]);
        let (before, _) = said.split_once(" MiB").unwrap();
        before.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let small = memory("128");
    assert!(small > 4, "{small} MiB");
    assert_eq!(small, memory("4096"));
    assert!(memory("8192") > small);
}

/// Ctrl-C: a checkpoint, exit code 130, and the command that goes on.
#[test]
#[cfg(unix)]
fn an_interrupt_keeps_a_checkpoint_and_says_how_to_go_on() {
    let set = Set::new();
    let file = set
        .run_file("run.toml", "")
        .replace("run.toml", "long.toml");
    let text = String::from_utf8(set.read("run.toml")).unwrap();
    std::fs::write(&file, text.replace("32:20", "32:20000")).unwrap();
    let child = std::process::Command::new(cargo_bin("snellen"))
        .args([
            "train",
            &file,
            "--to",
            &set.at("long"),
            "--threads",
            "1",
            "--tensorboard",
        ])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let begun = set.at("long/checkpoints/step-00000008");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !Path::new(&begun).exists() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let interrupt = ["-INT".to_owned(), child.id().to_string()];
    let sent = std::process::Command::new("kill").args(interrupt).status();
    assert!(sent.unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    let again = format!(
        "with a checkpoint; go on with `snellen train --resume {} --tensorboard --threads 1`",
        set.at("long")
    );
    assert!(said.contains(&again), "{said}");
    // what was asked for is no interruption
    let next = std::fs::read_dir(set.at("long/checkpoints")).unwrap();
    let last = next
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .max();
    let step: u64 = last.unwrap()["step-".len()..].parse().unwrap();
    let until = (step + 1).to_string();
    let said = ok(&["train", "--resume", &set.at("long"), "--until", &until]);
    assert!(
        said.contains(&format!("stopped after step {until}")),
        "{said}"
    );
}

#[test]
fn a_damaged_checkpoint_is_said_and_the_one_before_is_used() {
    let set = Set::new();
    let file = set.run_file("run.toml", "");
    ok(&set.training(&file, "whole", ""));
    ok(&set.training(&file, "cut", "--until 24"));
    let newest = set.at("cut/checkpoints/step-00000024/first.safetensors");
    let bytes = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &bytes[..bytes.len() / 2]).unwrap();
    let said = ok(&["train", "--resume", &set.at("cut")]);
    assert!(said.contains("step-00000024/first.safetensors"), "{said}");
    assert!(said.contains("falling back to step 16"), "{said}");
    assert!(results(&set, "cut") == results(&set, "whole"));

    // All of them damaged: an error, never a silent restart.
    ok(&set.training(&file, "bad", "--until 16"));
    for entry in std::fs::read_dir(set.at("bad/checkpoints")).unwrap() {
        std::fs::write(entry.unwrap().path().join("model.safetensors"), b"x").unwrap();
    }
    refused(
        &["train", "--resume", &set.at("bad")],
        &["none of the", "is whole"],
    );
}

/// A run whose lines do not hold every step up to its checkpoint would end with a report that cannot be.
#[test]
fn removed_lines_of_the_metrics_are_noticed_before_a_run_goes_on() {
    let set = Set::new();
    let file = set.run_file("run.toml", "");
    ok(&set.training(&file, "run", "--until 16"));
    let path = set.at("run/metrics.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let third = lines
        .iter()
        .position(|line| line.contains("\"step\":3,"))
        .unwrap();
    let resume = ["train", "--resume", &set.at("run")];
    for (left, expected) in [
        (
            lines[..third].concat(),
            "ends after step 2, expected 16 steps",
        ),
        (
            [&lines[..third], &lines[third + 1..]].concat().concat(),
            "expected step 3 after step 2",
        ),
        (String::new(), "kind \"begin\""),
    ] {
        std::fs::write(&path, left).unwrap();
        refused(&resume, &["metrics.jsonl", expected]);
    }
    std::fs::write(&path, whole).unwrap();
    ok(&resume);
}

#[test]
fn another_tokenizer_is_refused_before_and_during_a_run() {
    let set = Set::new();
    let file = set.run_file("run.toml", "");
    ok(&set.training(&file, "run", "--until 8"));
    let (mine, run) = (set.at("tokenizer.json"), set.at("run/tokenizer.json"));
    for path in [&mine, &run] {
        let mut text = std::fs::read(path).unwrap();
        text.push(b'\n');
        std::fs::write(path, text).unwrap();
    }
    let wanted = ["tokenizer.json", "its hash differs"];
    refused(&["train", "--resume", &set.at("run")], &wanted);
    refused(&set.training(&file, "other", ""), &wanted);
    assert!(!Path::new(&set.at("other")).exists(), "nothing is left");
}

#[test]
fn held_out_text_that_tells_nothing_is_remarked_on() {
    let set = Set::new();
    let file = set.run_file("run.toml", "");
    let text = std::fs::read_to_string(&file).unwrap();
    let remarks = |change: (&str, &str)| {
        std::fs::write(set.at("changed.toml"), text.replace(change.0, change.1)).unwrap();
        ok(&["train", &set.at("changed.toml"), "--dry-run"])
    };
    assert!(!remarks(("", "")).contains("note:"));
    assert!(remarks(("held.tok", "train.tok")).contains("note: data.held"));
    let many = remarks(("eval-tokens = 512", "eval-tokens = 999999999"));
    assert!(many.contains("note: watch.eval-tokens"), "{many}");
    ok(&set.encoding(&set.at("corpus.txt"), "none", "1"));
    let none = remarks(("held.tok", "none/held.tok"));
    assert!(none.contains("nothing is evaluated"), "{none}");
}

#[test]
fn what_is_trained_can_be_measured() {
    let set = Set::new();
    let file = set.run_file("run.toml", "");
    ok(&set.training(&file, "run", ""));
    let metrics = String::from_utf8(set.read("run/metrics.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = metrics
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let losses: Vec<f64> = lines
        .iter()
        .filter(|l| l["kind"] == "step")
        .map(|l| l["loss"].as_f64().unwrap())
        .collect();
    assert_eq!(losses.len(), 40);
    assert!(losses[39] < losses[0] - 0.5, "{losses:?}");
    let heads = lines.iter().rfind(|l| l["kind"] == "heads").unwrap();
    assert_eq!(heads["heads"].as_array().unwrap().len(), 8);
    for head in heads["heads"].as_array().unwrap() {
        assert_eq!(head["blind_gradient"], 0.0);
        let share: f64 = head["gradient_share"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s.as_f64().unwrap())
            .sum();
        assert!((share - 1.0).abs() < 1e-9);
    }
    // The forward pass of the rest of the program agrees: the same 32 held-out tokens.
    let report = ok(&[
        "measure",
        &set.at("run/final/model.toml"),
        "--text",
        &set.at("corpus.txt"),
        "--length",
        "32",
        "--format",
        "json",
        "--quiet",
        "--exit-zero",
    ]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let loss = report["loss"]["nats_per_token"].as_f64();
    assert!(
        loss.is_some_and(|l| l.is_finite() && l < losses[0]),
        "{:?}",
        report["loss"]
    );
    assert_eq!(report["heads"].as_array().unwrap().len(), 8);
    // A token file is read as it is: its ids by `measure`, its documents by `eval`.
    let file = set.at("held.tok");
    let json = |args: &[&str]| -> serde_json::Value {
        let all = [
            args,
            &["--tokens", &file, "--json", "--quiet", "--exit-zero"],
        ]
        .concat();
        serde_json::from_str(&ok(&all)).unwrap()
    };
    let model = set.at("run/final/model.toml");
    let held = json(&["measure", &model, "--length", "32"]);
    let eval = json(&["eval", &model]);
    let ids = held["text"]["tokens_available"].as_u64().unwrap();
    assert_eq!(eval["text"]["tokens"].as_u64(), Some(ids));
    let documents = eval["perplexity"]["documents"].as_array().unwrap().len();
    assert!(documents > 1, "{documents}");
}

/// The two readers agree: our own specification and MPT's layout, which `goldens/` holds to `transformers`.
#[test]
fn exports_are_the_model_or_a_refusal() {
    let set = Set::new();
    let file = set.run_file("run.toml", "");
    ok(&set.training(&file, "run", "--until 16"));
    let loss = |path: &str| -> f64 {
        let text = set.at("corpus.txt");
        let report = ok(&[
            "measure",
            path,
            "--text",
            &text,
            "--length",
            "64",
            "--json",
            "--quiet",
            "--exit-zero",
        ]);
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        report["loss"]["nats_per_token"].as_f64().unwrap()
    };
    ok(&set.exporting("run", "spec", "spec", ""));
    ok(&set.exporting("run", "mpt", "mpt", ""));
    let own = loss(&set.at("spec/model.toml"));
    let mpt = loss(&set.at("mpt"));
    // The same weights through the same forward pass; only the order of the bias's rounding differs.
    assert!((own - mpt).abs() < 1e-5, "{own} {mpt}");
    ok(&set.exporting("run", "mpt", "half", "--dtype bf16"));
    // Rounding weights to 8 bits of significand.
    assert!((loss(&set.at("half")) - own).abs() < 0.02 * own);

    // GGUF: one file, whole; tests/gguf.rs of the train crate reads it.
    ok(&set.exporting("run", "gguf", "gguf", "--dtype f16"));
    let names: Vec<_> = std::fs::read_dir(set.at("gguf")).unwrap().collect();
    assert!(names.len() == 1 && set.read("gguf/model.gguf").starts_with(b"GGUF"));
    refused(&set.exporting("run", "mpt", "mpt", ""), &["is not empty"]);
    refused(&set.exporting("none", "mpt", "y", ""), &["holds no run"]);
    ok(&set.training(&file, "log", "--until 1 --remedy log"));
    for layout in ["mpt", "gguf"] {
        refused(
            &set.exporting("log", layout, "y", ""),
            &["cannot express the bias function log"],
        );
    }
    // What transformers does not read, and what no layout holds.
    let slopes = set.run_file("slopes.toml", "[position]\nbias-max = 2\n");
    ok(&set.training(&slopes, "slopes", "--until 1"));
    refused(
        &set.exporting("slopes", "mpt", "y", ""),
        &["alibi_bias_max 2", "transformers"],
    );
    ok(&set.exporting("slopes", "gguf", "steep", ""));
    let cut = set.run_file("cut.toml", "[attention]\nzero-beyond = 0.5\n");
    ok(&set.training(&cut, "cut", "--until 1"));
    for layout in ["mpt", "gguf"] {
        refused(
            &set.exporting("cut", layout, "y", ""),
            &["cannot express attention.zero-beyond"],
        );
    }
    let said = ok(&set.exporting("cut", "spec", "uncut", ""));
    assert!(said.contains("zero-beyond = 0.5 is no part"), "{said}");
    assert!(!Path::new(&set.at("y")).exists(), "nothing is left");
    ok(&set.exporting("log", "spec", "z", ""));
    refused(
        &set.exporting("log", "tensorboard", "t", "--step 1"),
        &["--step and --dtype say nothing"],
    );
}

#[test]
fn impossible_runs_are_refused_in_one_line() {
    let set = Set::new();
    let file = set.run_file("run.toml", "");
    // Divergence: exit 2, the reason, the checkpoint that is kept, and no final model.
    let said = refused(
        &set.training(&file, "wild", "--lr 1e30"),
        &["step", "schedule.lr"],
    );
    assert!(!Path::new(&set.at("wild/final")).exists(), "{said}");
    let metrics = String::from_utf8(set.read("wild/metrics.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
    assert_eq!(last["kind"], "stopped");
    for folder in std::fs::read_dir(set.at("wild/checkpoints")).unwrap() {
        let state = std::fs::read_to_string(folder.unwrap().path().join("state.json")).unwrap();
        assert!(state.contains("\"step\""));
    }

    refused(
        &set.training(&file, "x", "--stages 64"),
        &["schedule.stages"],
    );
    refused(
        &set.training(&file, "x", "--stages 100000:1"),
        &["tokens-per-step"],
    );
    refused(
        &set.training(&file, "x", "--remedy clamp=3"),
        &["position.remedy", "below 0"],
    );
    refused(&set.training(&file, "wild", ""), &["is not empty"]);
    refused(
        &["train", "--resume", &set.at("nothing")],
        &["run.toml is missing"],
    );
    refused(
        &set.training(&set.at("none.toml"), "x", ""),
        &["none.toml", "does not exist"],
    );
    assert!(!Path::new(&set.at("x")).exists(), "nothing was written");

    // Another corpus under the same name is noticed.
    ok(&set.training(&file, "moved", "--until 8"));
    let tokens = set.read("train.tok");
    std::fs::write(set.at("train.tok"), &tokens[..tokens.len() - 1]).unwrap();
    refused(
        &["train", "--resume", &set.at("moved")],
        &["train.tok", "cut short"],
    );
    let text = set.at("corpus.txt");
    ok(&set.encoding(&text, "", "300"));
    refused(
        &["train", "--resume", &set.at("moved")],
        &["is not the file the run began with"],
    );
}

#[test]
fn the_edges_of_a_corpus() {
    let set = Set::new();
    let file = set.run_file("run.toml", "");
    std::fs::write(set.at("empty.txt"), "\n").unwrap();
    refused(
        &set.encoding(&set.at("empty.txt"), "e", "50"),
        &["holds no text"],
    );
    assert!(!Path::new(&set.at("e")).exists());
    std::fs::write(set.at("bytes.txt"), [b'a', 0xfe]).unwrap();
    refused(
        &set.tokenizing(&set.at("bytes.txt"), "t"),
        &["bytes.txt", "not UTF-8"],
    );
    refused(
        &set.tokenizing(&set.at("missing"), "t"),
        &["missing", "does not exist"],
    );
    // What of a folder is not read is said.
    std::fs::create_dir(set.at("folder")).unwrap();
    std::fs::write(set.at("folder/a.txt"), "a text\n").unwrap();
    std::fs::write(set.at("folder/b.pdf"), "no text").unwrap();
    let args = set.encoding(&set.at("folder"), "f", "0");
    let said = String::from_utf8(snellen(&args).stderr).unwrap();
    assert!(said.contains("1 file in the folders is no text"), "{said}");
    // A tokenizer is not written over the text it is made from, nor is text held out before trained on afterwards.
    let text = set.at("corpus.txt");
    refused(
        &["tokens", "train", &text, "--vocab", "300", "--to", &text],
        &["corpus.txt", "is a file of the corpus"],
    );
    refused(
        &set.encoding(&text, "", "0"),
        &["held.tok", "remove it first"],
    );
    // Sizes beyond any machine are refused before anything is made.
    for (from, to, wanted) in [
        ("width = 32", "width = 100000000", "model.width"),
        ("layers = 2", "layers = 100000000", "model.layers"),
        ("16:20, 32:20", "32:18446744073709551615", "schedule.stages"),
        ("width = 32", "width = 200000", "of this machine"),
    ] {
        let changed = std::fs::read_to_string(&file).unwrap().replace(from, to);
        std::fs::write(set.at("huge.toml"), changed).unwrap();
        refused(&set.training(&set.at("huge.toml"), "x", ""), &[wanted]);
    }
    refused(
        &set.training(&file, "x", "--dry-run --max-memory 1KiB"),
        &["--max-memory"],
    );
    assert!(!Path::new(&set.at("x")).exists(), "nothing was made");
    // What a specification cannot express leaves its parameters and says so.
    let rope = std::fs::read_to_string(&file).unwrap() + "[position]\nkind = \"rope\"\n";
    std::fs::write(set.at("rope.toml"), rope).unwrap();
    let said = ok(&set.training(&set.at("rope.toml"), "rope", "--stages 16:2"));
    assert!(said.contains("no model.toml"), "{said}");
    assert!(Path::new(&set.at("rope/final/model.safetensors")).exists());
    refused(
        &["train", "--resume", &set.at("rope"), "--max-memory", "1KiB"],
        &["--max-memory"],
    );

    // A run needs a token beyond the last input.
    std::fs::write(set.at("short.txt"), "the cat").unwrap();
    ok(&set.encoding(&set.at("short.txt"), "s", "0"));
    std::fs::copy(set.at("s/train.tok"), set.at("train.tok")).unwrap();
    refused(
        &set.training(&file, "x", ""),
        &["train.tok", "holds", "needs 17"],
    );
}

/// A step in one part and in four: the same gradient but for the order of its sums.
#[test]
fn accumulation_is_normalised_by_the_tokens_of_the_step() {
    let set = Set::new();
    let recall = "[recall]\npairs = 2\nasks = 2\n";
    let one = set.run_file("one.toml", recall);
    std::fs::write(
        set.at("four.toml"),
        std::fs::read_to_string(&one)
            .unwrap()
            .replace("lr = 3e-3", "lr = 3e-3\nmicro-batches = 4")
            .replace("dropout = 0.1", "dropout = 0.0"),
    )
    .unwrap();
    std::fs::write(
        &one,
        std::fs::read_to_string(&one)
            .unwrap()
            .replace("dropout = 0.1", "dropout = 0.0"),
    )
    .unwrap();
    let first = |run: &str| -> (f64, f64) {
        let metrics = String::from_utf8(set.read(&format!("{run}/metrics.jsonl"))).unwrap();
        let line: serde_json::Value =
            serde_json::from_str(metrics.lines().nth(1).unwrap()).unwrap();
        assert!(
            line["passkey"].is_number() && line["pair"].is_number(),
            "{line}"
        );
        (
            line["loss"].as_f64().unwrap(),
            line["gradient_norm"].as_f64().unwrap(),
        )
    };
    for stages in ["16:1", "32:1"] {
        ok(&set.training(&one, "a", &format!("--stages {stages}")));
        ok(&set.training(&set.at("four.toml"), "b", &format!("--stages {stages}")));
        let ((loss_a, norm_a), (loss_b, norm_b)) = (first("a"), first("b"));
        assert!((loss_a - loss_b).abs() < 1e-6 * loss_a, "{loss_a} {loss_b}");
        assert!((norm_a - norm_b).abs() < 1e-6 * norm_a, "{norm_a} {norm_b}");
        std::fs::remove_dir_all(set.at("a")).unwrap();
        std::fs::remove_dir_all(set.at("b")).unwrap();
    }
}
