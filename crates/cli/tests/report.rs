//! `snellen report` and the formats: what pipelines rely on.
#![allow(clippy::unwrap_used)]

mod support;

use support::{measure_tiny, run, snellen};

fn saved(folder: &std::path::Path, name: &str, line: &str) -> String {
    let file = folder.join(name).to_str().unwrap().to_owned();
    let args = line.split_whitespace().map(str::to_owned);
    let run = snellen(args.chain(["--json".to_owned(), "-o".to_owned(), file.clone()]));
    assert!(run.code <= 1, "{run:?}");
    file
}

#[test]
fn a_saved_result_renders_as_the_run_itself() {
    let folder = tempfile::tempdir().unwrap();
    for line in [
        "horizon --like bloom-560m --plan ieee,ftz",
        "measure --plan ieee",
    ] {
        let file = saved(folder.path(), "result.json", line);
        for format in ["text", "json", "html", "md", "sarif", "junit", "csv"] {
            let direct = run(&format!("{line} --format {format}"));
            let again = snellen(["report", &file, "--format", format, "--exit-zero"]);
            assert_eq!(again.stdout, direct.stdout, "{line} as {format}");
            assert_eq!(again.code, 0);
        }
    }
}

/// Verbs that run no checks: every form they have, and a clear word about those that they have not.
#[test]
fn a_saved_probe_or_evaluation_renders_as_the_run_itself() {
    let folder = support::tiny_folder();
    let model = folder.path().to_str().unwrap();
    let text = folder.path().join("text.txt");
    std::fs::write(&text, "One thing.<|endoftext|>And another thing.").unwrap();
    let text = text.to_str().unwrap();
    for line in [
        format!("probe {model} --bytes --lengths 300 --depths 2 --samples 1 --what-if slopes/2"),
        format!("eval {model} --bytes --text {text}"),
    ] {
        let file = saved(folder.path(), "result.json", &line);
        for format in ["text", "json", "html", "md", "csv", "svg"] {
            let direct = run(&format!("{line} --format {format}"));
            let again = snellen(["report", &file, "--format", format]);
            assert_eq!((again.code, direct.code), (0, 0), "{again:?}");
            assert_eq!(again.stdout, direct.stdout, "{line} as {format}");
        }
        for format in ["sarif", "junit"] {
            let refused = snellen(["report", &file, "--format", format]);
            assert!(refused.error(2).contains("runs no checks"), "{refused:?}");
        }
        let out = folder.path().join("out.npz");
        let args = [
            "report",
            &file,
            "--format",
            "npz",
            "-o",
            out.to_str().unwrap(),
        ];
        assert_eq!(snellen(args).code, 0);
    }
}

#[test]
fn a_run_is_reported_from_its_folder() {
    let nano = concat!(env!("CARGO_MANIFEST_DIR"), "/../../runs/nano");
    let whole = snellen(["report", nano]);
    assert_eq!(whole.code, 0, "{whole:?}");
    assert!(
        whole.stdout.contains("All 1400 steps done"),
        "{}",
        whole.stdout
    );
    let file = format!("{nano}/metrics.jsonl");
    assert_eq!(snellen(["report", &file]).stdout, whole.stdout);
    let ascii = snellen(["report", nano, "--ascii"]).stdout;
    assert!(ascii.contains("0 is") && ascii.is_ascii(), "{ascii}");
    // a run that is being written: the last line is cut short
    let folder = tempfile::tempdir().unwrap();
    for name in ["record.json", "run.toml"] {
        std::fs::copy(format!("{nano}/{name}"), folder.path().join(name)).unwrap();
    }
    let metrics = std::fs::read_to_string(&file).unwrap();
    let record = std::fs::read_to_string(folder.path().join("record.json")).unwrap();
    std::fs::write(
        folder.path().join("record.json"),
        record.replace("\"finished\": true", "\"finished\": false"),
    )
    .unwrap();
    let half: String = metrics.split_inclusive('\n').take(700).collect();
    std::fs::write(
        folder.path().join("metrics.jsonl"),
        format!("{half}{{\"kind\":\"st"),
    )
    .unwrap();
    let cut = snellen(["report", folder.path().to_str().unwrap()]);
    assert!(cut.stdout.contains("of 1400 steps done"), "{cut:?}");
    assert!(cut.stdout.contains("the run is not finished"), "{cut:?}");
    let pair = snellen(["report", nano, folder.path().to_str().unwrap()]);
    assert!(
        pair.stdout.contains("held-out text after step 200"),
        "{pair:?}"
    );
    // one step is missing, or the last ones of a run that is finished
    let without: String = metrics
        .split_inclusive('\n')
        .filter(|line| !line.contains("\"kind\":\"step\",\"step\":9,"))
        .collect();
    let short: String = metrics.split_inclusive('\n').take(700).collect();
    for (lines, is_finished, expected) in [
        (
            &without,
            false,
            "expected step 9 after step 8, found step 10",
        ),
        (&short, true, "expected 1400 steps"),
    ] {
        let text = if is_finished {
            &record
        } else {
            &record.replace("\"finished\": true", "\"finished\": false")
        };
        std::fs::write(folder.path().join("record.json"), text).unwrap();
        std::fs::write(folder.path().join("metrics.jsonl"), lines).unwrap();
        let refused = snellen(["report", folder.path().to_str().unwrap()]);
        assert!(refused.error(2).contains(expected), "{refused:?}");
    }
    let other = metrics.replacen("\"steps\":1400", "\"steps\":9", 1);
    std::fs::write(folder.path().join("metrics.jsonl"), other).unwrap();
    let refused = snellen(["report", folder.path().to_str().unwrap()]);
    assert!(
        refused.error(2).contains("of another run than record.json"),
        "{refused:?}"
    );
}

/// One line without the system's own numbers, that says what to do.
#[test]
fn places_that_cannot_be_read_or_written_are_named() {
    let folder = support::tiny_folder();
    let model = folder.path().to_str().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path().to_str().unwrap();
    let probe = [
        "probe",
        model,
        "--bytes",
        "--lengths",
        "300",
        "--results",
        "/nosuch/x",
    ];
    for (args, part) in [
        (
            vec!["report", "nosuch.json"],
            "no such file; report expects",
        ),
        (vec!["report", empty], "is a folder without record.json"),
        (probe.to_vec(), "the folder /nosuch does not exist"),
        (
            vec!["horizon", "--heads", "4", "--length", "-5"],
            "expected a whole number of tokens",
        ),
        (
            vec!["measure", "--length", "-5"],
            "expected a whole number of tokens",
        ),
        (
            vec!["tokens", "train", "x", "--vocab", "300", "--format", "json"],
            "--format: `tokens` writes no document",
        ),
        (
            vec!["tokens", "encode", "x", "--fail-on", "error"],
            "--fail-on: `tokens` has no findings",
        ),
        (
            vec!["train", "run.toml", "--to", "x", "--fail-on", "error"],
            "--fail-on: `train` has no findings",
        ),
        (
            vec!["train", "run.toml", "--dry-run", "--json"],
            "--format: `train --dry-run` writes no document",
        ),
        (
            vec!["export", "x", "--as", "spec", "--to", "y", "--json"],
            "--format: `export` writes no document",
        ),
    ] {
        let run = snellen(&args);
        let error = run.error(2);
        assert!(
            error.contains(part) && !error.contains("os error"),
            "{args:?}: {error}"
        );
    }
    #[cfg(target_os = "linux")]
    {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = std::process::Command::new(assert_cmd::cargo::cargo_bin("snellen"))
            .args(["horizon", "--heads", "4"])
            .stdout(full)
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(
            error.contains("stdout: cannot be written: no space is left")
                && !error.contains("os error"),
            "{error}"
        );
    }
}

#[test]
fn the_exit_code_is_that_of_the_findings_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{} --plan ieee", measure_tiny());
    let file = saved(folder.path(), "measure.json", &line);
    let out = folder.path().join("out").to_str().unwrap().to_owned();
    for format in ["text", "json", "html", "md", "sarif", "junit", "csv", "npz"] {
        for (rule, code) in [("warning", 1), ("SN001:2", 0), ("error", 0)] {
            let args = [
                "report",
                &file,
                "--format",
                format,
                "--fail-on",
                rule,
                "-o",
                &out,
            ];
            assert_eq!(snellen(args).code, code, "{format} {rule}");
        }
    }
    let junit = snellen([
        "report",
        &file,
        "--format",
        "junit",
        "--fail-on",
        "SN001:0.5",
    ]);
    assert!(junit.stdout.contains("<failure") && junit.stdout.matches("<failure").count() == 1);
}

#[test]
fn only_new_findings_fail_a_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{} --plan ieee", measure_tiny());
    let short = saved(folder.path(), "short.json", &format!("{line} --length 64"));
    let long = saved(folder.path(), "long.json", &line);
    assert_eq!(
        snellen(["report", &long, &long, "--fail-on", "note"]).code,
        0
    );
    let worse = snellen(["report", &short, &long]);
    assert_eq!(worse.code, 1, "{worse:?}");
    assert!(
        worse.stdout.contains("length: 64 in A, 2371 in B"),
        "{}",
        worse.stdout
    );
}

#[test]
fn stdin_is_a_result_too() {
    let document = run("horizon --heads 8 --json").stdout;
    let output = assert_cmd::Command::cargo_bin("snellen")
        .unwrap()
        .args(["report", "-", "--format", "csv"])
        .write_stdin(format!("\u{feff}{document}"))
        .output()
        .unwrap();
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .starts_with("layer,head,plan,slope,")
    );
}

#[test]
fn mistakes_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.json").to_str().unwrap().to_owned();
    std::fs::write(&file, "{\"a\": 1}").unwrap();
    for args in [
        vec!["report"],
        vec!["report", "absent.json"],
        vec!["report", &file],
        vec!["explain", "--format", "html"],
        vec!["explain", "--format", "npz"],
    ] {
        snellen(args).error(2);
    }
    let page = saved(folder.path(), "explain.json", "explain SN001");
    assert!(
        snellen(["report", &page, &page])
            .error(2)
            .contains("expected the result of a run")
    );
    let result = saved(folder.path(), "h.json", "horizon --heads 4");
    assert!(
        snellen(["report", &result, &result, "--format", "npz"])
            .error(2)
            .contains("forms text, json, html")
    );
}

/// A share that was changed by hand is an error that names the file, and nothing is written.
#[test]
fn a_result_whose_shares_do_not_follow_from_their_counts_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = saved(folder.path(), "result.json", "measure --plan ieee");
    let mut doc: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    doc["heads"][0]["plans"]["ieee"]["blind_share"] = 0.125.into();
    std::fs::write(&file, doc.to_string()).unwrap();
    let out = folder.path().join("page.html");
    let args = ["report", &file, "-o", out.to_str().unwrap()];
    let refused = snellen(args);
    let error = refused.error(2);
    for part in [
        file.as_str(),
        "heads (layer 0, head 0).plans.ieee.blind_share: expected ",
        " give, found 0.125: ",
        "run the verb again",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!out.exists());
}
