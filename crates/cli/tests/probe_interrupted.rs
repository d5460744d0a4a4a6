//! `snellen probe --results`, killed over and over.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::tiny_folder;

const GRID: [&str; 8] = [
    "--lengths",
    "300,310",
    "--depths",
    "6",
    "--samples",
    "2",
    "--seed",
    "5",
];
const INTERRUPTIONS: u64 = 20;

/// Starts the run; no shell between us and the process that is to be killed.
fn start(folder: &Path, results: &Path) -> std::process::Child {
    Command::new(assert_cmd::cargo::cargo_bin("snellen"))
        .arg("probe")
        .arg(folder)
        .args(["--bytes", "--json", "--quiet", "--results"])
        .arg(results)
        .args(GRID)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn finish(folder: &Path, results: &Path) -> Vec<u8> {
    assert!(start(folder, results).wait().unwrap().success());
    std::fs::read(results).unwrap()
}

/// The next of a fixed sequence of numbers below `n`.
fn random(state: &mut u64, n: u64) -> u64 {
    // Knuth's MMIX generator; its high bits are good enough to choose a moment
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % n
}

/// Each run is killed (`SIGKILL` on Unix) a random moment after its file has grown to a random size, so that the interruptions
/// are spread over the whole run: between cells, inside a cell, and inside a line where the file system lets that be seen.
#[test]
fn twenty_interruptions_leave_the_file_of_an_undisturbed_run() {
    let folder = tiny_folder();
    let whole = finish(folder.path(), &folder.path().join("whole.jsonl"));
    let results = folder.path().join("interrupted.jsonl");
    let (mut state, mut killed) = (2026, 0);
    for interruption in 0..INTERRUPTIONS {
        let share = whole.len() as u64 / INTERRUPTIONS;
        let size = interruption * share + random(&mut state, share);
        let later = Duration::from_micros(random(&mut state, 4000));
        let mut child = start(folder.path(), &results);
        let begun = Instant::now();
        let grown = || std::fs::metadata(&results).is_ok_and(|file| file.len() >= size);
        while !grown() && child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(120), "stuck");
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(later);
        killed += u64::from(child.try_wait().unwrap().is_none());
        // an error says that it has ended already
        let _ = child.kill();
        child.wait().unwrap();
        let left = std::fs::read(&results).unwrap_or_default();
        assert!(whole.starts_with(&left), "interruption {interruption}");
    }
    assert!(
        killed > INTERRUPTIONS / 2,
        "only {killed} runs were still going"
    );
    assert!(finish(folder.path(), &results) == whole);
    // once more, with nothing left to do
    assert!(finish(folder.path(), &results) == whole);
}
