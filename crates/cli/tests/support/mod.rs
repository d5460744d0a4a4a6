//! Running the binary, and model folders to run it on.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The one line on stderr of a run that failed with `code`; nothing may be on stdout.
    pub(crate) fn error(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "", "a failed run wrote a document");
        let line = self.stderr.trim_end();
        assert!(
            line.starts_with("error: ") && !line.contains('\n'),
            "not one line: {:?}",
            self.stderr
        );
        line
    }
}

/// Runs `snellen` with these arguments and neither colour nor configuration from the environment.
pub(crate) fn snellen<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    let output = assert_cmd::Command::cargo_bin("snellen")
        .unwrap()
        .args(args)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .output()
        .unwrap();
    Run {
        code: output.status.code().expect("ended by itself"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8 on stdout"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8 on stderr"),
    }
}

/// Splits a command line at blanks and runs it.
pub(crate) fn run(line: &str) -> Run {
    snellen(line.split_whitespace())
}

/// Runs a command line and parses its stdout strictly; the exit code must be 0 or 1.
pub(crate) fn json(line: &str) -> serde_json::Value {
    let run = run(&format!("{line} --format json"));
    assert!(run.code <= 1, "{run:?}");
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error} in {}", run.stdout))
}

/// Runs `probe` on a model with one id a byte.
pub(crate) fn probe(folder: &Path, more: &str) -> Run {
    let mut args = vec!["probe", folder.to_str().unwrap(), "--bytes"];
    args.extend(more.split_whitespace());
    snellen(args)
}

/// The same as JSON, parsed; it must succeed.
pub(crate) fn probe_json(folder: &Path, more: &str) -> serde_json::Value {
    let run = probe(folder, &format!("{more} --json"));
    assert_eq!(run.code, 0, "{run:?}");
    serde_json::from_str(&run.stdout).unwrap()
}

/// A folder with a `config.json`.
pub(crate) fn config_folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    folder
}

/// The tests' own checkpoint with weights, as a folder: BLOOM's layout, 2 layers of 8 heads, one token a byte, random.
pub(crate) fn tiny_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny");
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(source.join(name), folder.path().join(name)).unwrap();
    }
    folder
}

/// Arguments that measure the tests' own checkpoint on its text, 2371 tokens, one a byte.
pub(crate) fn measure_tiny() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny");
    let folder = folder.display();
    format!("measure {folder} --bytes --text {folder}/text.txt")
}

/// Data that is not part of the project, or `None` after saying so.
#[allow(clippy::print_stderr, reason = "a skipped test is visible")]
pub(crate) fn shared_data(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("SNELLEN_SHARED_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = root.join(path);
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {} not found", path.display());
    None
}
