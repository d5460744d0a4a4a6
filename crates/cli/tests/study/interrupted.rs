//! Studies that are killed, interrupted or out of time, and continued.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;

use crate::set::{Set, TRIALS, kill_children, ok, processes_in};

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
