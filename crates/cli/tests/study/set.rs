//! The binary, a folder to study in, and the processes of a study.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use assert_cmd::cargo::cargo_bin;
use serde_json::Value;

fn snellen(args: &[&str]) -> Output {
    Command::new(cargo_bin("snellen"))
        .args(args)
        .output()
        .unwrap()
}

#[track_caller]
pub(crate) fn ok(args: &[&str]) -> String {
    ended(args, 0)
}

/// Standard output and error of a command that ends with `code`.
#[track_caller]
pub(crate) fn ended(args: &[&str], code: i32) -> String {
    let output = snellen(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    stderr + &String::from_utf8(output.stdout).unwrap()
}

/// Exit 2 with one line that holds every one of `wanted`.
#[track_caller]
pub(crate) fn refused(args: &[&str], wanted: &[&str]) {
    let said = ended(args, 2);
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: "), "{said}");
    for part in wanted {
        assert!(last.contains(part), "{args:?}: expected {part:?} in {last}");
    }
}

/// A folder with token files of a generated text and `studies/nano.toml`.
pub(crate) struct Set(tempfile::TempDir);

impl Set {
    pub(crate) fn new() -> Self {
        Self::of(150)
    }

    pub(crate) fn of(documents: usize) -> Self {
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

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The nano study with something else in it.
    pub(crate) fn study(&self, name: &str, change: impl FnOnce(String) -> String) -> String {
        let text = std::fs::read_to_string(self.path("nano.toml")).unwrap();
        std::fs::write(self.path(name), change(text)).unwrap();
        self.at(name)
    }

    pub(crate) fn record(&self, study: &str, trial: &str) -> Value {
        let path = self.path(&format!("{study}/trials/{trial}/trial.json"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    /// A record without what depends on the machine.
    pub(crate) fn decided(&self, study: &str, trial: &str) -> Value {
        let mut record = self.record(study, trial);
        let cost = record.as_object_mut().unwrap().remove("cost").unwrap();
        assert!(cost["threads"].as_u64().unwrap() > 0);
        record
    }

    pub(crate) fn report(&self, study: &str) -> Value {
        let text = ok(&["study", "report", &self.at(study), "--json"]);
        serde_json::from_str(&text).unwrap()
    }
}

pub(crate) const TRIALS: [&str; 6] = [
    "linear-s1",
    "linear-zeroed-s1",
    "log-s1",
    "linear-s2",
    "linear-zeroed-s2",
    "log-s2",
];

/// Processes whose command line names `folder`: the children of a study in it.
#[cfg(target_os = "linux")]
pub(crate) fn processes_in(folder: &str) -> Vec<u32> {
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
pub(crate) fn kill_children(folder: &str) -> usize {
    let children = processes_in(folder);
    for pid in &children {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
    children.len()
}
