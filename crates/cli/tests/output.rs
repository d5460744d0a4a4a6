//! Streams, files, formats, configuration and exit codes: what scripts rely on.
#![allow(clippy::unwrap_used)]

mod support;

use support::{config_folder, json, run, snellen, tiny_folder};

#[test]
fn the_document_is_alone_on_stdout_and_the_same_every_time() {
    let first = run("horizon --heads 16 --json");
    assert_eq!(first.stderr, "");
    assert_eq!(first.stdout, run("horizon --heads 16 --json").stdout);
    assert!(first.stdout.starts_with("{\n") && first.stdout.ends_with("}\n"));
    let report = json("horizon --heads 16");
    for key in [
        "schema_version",
        "tool",
        "verb",
        "model",
        "plan",
        "length",
        "seed",
        "text",
        "findings",
        "skipped",
        "notes",
    ] {
        assert!(report.get(key).is_some(), "{key} is missing");
    }
}

#[test]
fn no_colour_in_pipes_unless_asked_for() {
    assert!(!run("horizon --heads 16").stdout.contains('\u{1b}'));
    assert!(
        run("horizon --heads 16 --color always")
            .stdout
            .contains('\u{1b}')
    );
    assert!(
        !run("horizon --heads 16 --color never")
            .stdout
            .contains('\u{1b}')
    );
    assert!(run("horizon --heads 16 --ascii").stdout.is_ascii());
}

#[test]
fn out_writes_the_whole_document_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let expected = run("horizon --heads 16 --json").stdout;
    let run = snellen([
        "horizon",
        "--heads",
        "16",
        "--json",
        "-o",
        file.to_str().unwrap(),
    ]);
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (0, "", "")
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "something was left behind"
    );
}

#[test]
fn a_run_that_fails_leaves_the_file_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    std::fs::write(&file, "old").unwrap();
    let out = file.to_str().unwrap();
    snellen(["horizon", "--heads", "0", "-o", out]).error(2);
    snellen(["horizon", "--heads", "16", "--fail-on", "SN999", "-o", out]).error(2);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
    let missing = folder.path().join("no/such/folder/report.json");
    assert!(
        snellen(["horizon", "--heads", "16", "-o", missing.to_str().unwrap()])
            .error(2)
            .contains("no/such/folder")
    );
}

#[test]
#[cfg(unix)]
fn a_closed_pipe_ends_quietly() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("snellen"))
        .args([
            "horizon",
            "--like",
            "bloom",
            "--json",
            "--plan",
            "f64,ieee,ftz",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // the document is larger than a pipe's buffer, and nobody reads it
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    for line in ["--help", "--version", "completions zsh", "man measure"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(assert_cmd::cargo::cargo_bin("snellen"))
            .args(line.split(' '))
            .stdout(writer)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
        assert_eq!(output.status.code(), Some(0), "{line}");
    }
}

/// A document that could not be written is an error for every verb, help and version included; so is half of one.
#[test]
#[cfg(target_os = "linux")]
fn a_full_device_is_an_error() {
    for line in [
        "--help",
        "--version",
        "horizon --help",
        "help measure",
        "study --help",
        "completions bash",
        "man",
        "man measure",
        "explain",
        "explain SN001 --json",
        "horizon --heads 8 --length 10",
        "horizon --heads 8 --print-slopes",
        "horizon --like bloom --format npz",
        "measure --length 3 --exit-zero",
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = std::process::Command::new(assert_cmd::cargo::cargo_bin("snellen"))
            .args(line.split(' '))
            .stdout(full.unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
        assert!(
            said.starts_with("error: stdout: cannot be written: no space"),
            "{line}: {said}"
        );
    }
}

/// The archive is made whole before the first byte is written, so a pipe gets what a file gets.
#[test]
fn arrays_through_a_pipe_are_those_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.npz");
    let line = "horizon --like bloom-560m --format npz";
    assert_eq!(run(&format!("{line} --out {}", file.display())).code, 0);
    let output = assert_cmd::Command::cargo_bin("snellen")
        .unwrap()
        .args(line.split(' '))
        .output()
        .unwrap();
    assert!(output.stdout.starts_with(b"PK"));
    assert!(output.stdout == std::fs::read(file).unwrap());
}

#[test]
fn flags_override_the_file_which_overrides_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snellen.toml");
    std::fs::write(
        &file,
        "plan = [\"ftz\"]\nformat = \"json\"\n[horizon]\nheads = 8\nlength = 512\n",
    )
    .unwrap();
    let config = file.to_str().unwrap();
    let report = |args: &[&str]| {
        let run = snellen(args.iter().copied().chain(["--config", config]));
        assert_eq!(run.code, 0, "{run:?}");
        serde_json::from_str::<serde_json::Value>(&run.stdout).unwrap()
    };
    let from_file = report(&["horizon"]);
    assert_eq!(from_file["plan"], "ftz");
    assert_eq!(from_file["length"], 512);
    assert_eq!(from_file["heads"].as_array().unwrap().len(), 8);
    let overridden = report(&[
        "horizon",
        "--length",
        "1024",
        "--like",
        "bloom-560m",
        "--plan",
        "ieee",
    ]);
    assert_eq!(overridden["plan"], "ieee");
    assert_eq!(overridden["length"], 1024);
    assert_eq!(overridden["heads"].as_array().unwrap().len(), 16);

    for (text, part) in [
        ("lenght = 3", "did you mean \"length\"?"),
        ("[horizon]\nlength = 0", "--length"),
        ("= 3", "line 1"),
        ("quiet = \"yes\"", "expected true or false"),
    ] {
        std::fs::write(&file, text).unwrap();
        let run = snellen(["horizon", "--heads", "16", "--config", config]);
        let line = run.error(2);
        assert!(
            line.contains(part) && line.contains("snellen.toml"),
            "{line}"
        );
    }
    // a result is not written over the model, wherever its place was said
    let model = tiny_folder();
    let place = model.path().join("config.json");
    std::fs::write(&file, format!("out = {place:?}\n")).unwrap();
    let run = snellen(["inspect", place.to_str().unwrap(), "--config", config]);
    assert!(run.error(2).contains("this command reads that file"));
    assert!(
        snellen(["horizon", "--heads", "16", "--config", "absent.toml"])
            .error(2)
            .contains("absent.toml")
    );
}

#[test]
fn mistakes_are_one_line_and_exit_2() {
    for line in [
        "",
        "horizont",
        "horizon --heads x",
        "horizon --heads 16 --plan ftzz",
        "horizon --heads 16 --plan ftz:f33",
        "horizon --heads 16 --remedy clmp=-3",
        "horizon --heads 16 --bias-dtype f33",
        "horizon --heads 16 --slopes 0.5,x",
        "horizon --heads 16 --like bloom",
        "horizon --heads 16 --format yaml",
        "horizon --heads 16 --fail-on nonsense",
        "horizon --heads 16 --threads 0",
        "horizon --heads 16 --max-memory lots",
        "horizon no/such/path",
        "inspect no/such/path",
        "audit no/such/path",
        "measure no/such/path --tokens none",
        "measure --text no/such/file",
        "measure --length 0",
        "measure --heads 5-3",
        "measure --layers 4",
        "explain SN999",
        "man nothing",
    ] {
        run(line).error(2);
    }
    assert!(
        run("horizon --heads 16 --plan ftzz")
            .error(2)
            .contains("did you mean \"ftz\"?")
    );
    assert!(
        run("explain blind-hed")
            .error(2)
            .contains("did you mean \"blind-head\"?")
    );
}

/// docs/FAMILIES.md, Detection: a model without ALiBi is not applicable, one of unknown convention is an error.
#[test]
fn not_alibi_is_3_and_cannot_tell_is_2() {
    let rotary = config_folder(
        r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}"#,
    );
    let off = config_folder(
        r#"{"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 1, "attn_config": {"alibi": false}}"#,
    );
    let unknown =
        config_folder(r#"{"model_type": "mystery", "hidden_size": 64, "num_attention_heads": 4}"#);
    for verb in ["horizon", "inspect", "audit"] {
        let of = |folder: &tempfile::TempDir| snellen([verb, folder.path().to_str().unwrap()]);
        of(&off).error(3);
        assert!([2, 3].contains(&of(&rotary).code));
        of(&unknown).error(2);
    }
}

#[test]
fn the_format_never_changes_the_exit_code() {
    for flags in [
        "",
        "--fail-on note",
        "--fail-on error",
        "--fail-on SN001",
        "--fail-on SN001:2",
        "--exit-zero --fail-on note",
    ] {
        let text = run(&format!("measure {flags} --format text"));
        let json = run(&format!("measure {flags} --format json"));
        assert_eq!(text.code, json.code, "{flags}");
        assert!(text.code <= 1, "{text:?}");
    }
    assert_eq!(
        run("measure").code,
        0,
        "the embedded model is a demonstration"
    );
    assert_eq!(run("measure --fail-on warning").code, 0, "notes only");
    assert_eq!(run("measure --plan hf-eager:f16 --fail-on warning").code, 1);
    assert_eq!(run("measure --fail-on note").code, 1);
    assert_eq!(run("measure --fail-on note --exit-zero").code, 0);
    assert_eq!(
        run("measure --fail-on SN001:2").code,
        0,
        "a share is never 2"
    );
}

#[test]
fn help_version_completions_and_manual() {
    assert_eq!(
        run("--version").stdout.trim(),
        concat!("snellen ", env!("CARGO_PKG_VERSION"))
    );
    for line in ["--help", "horizon --help", "measure -h"] {
        let run = run(line);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{line}");
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(
            run(&format!("completions {shell}"))
                .stdout
                .contains("measure"),
            "{shell}"
        );
    }
    assert!(run("man").stdout.contains(".TH snellen"));
    assert!(run("man measure").stdout.contains("max\\-memory"));
}

#[test]
fn explain_knows_every_check() {
    let list = json("explain");
    let checks = list["checks"].as_array().unwrap();
    assert!(!checks.is_empty());
    for check in checks {
        let by_code = json(&format!("explain {}", check["code"].as_str().unwrap()));
        let by_name = json(&format!("explain {}", check["name"].as_str().unwrap()));
        assert_eq!(by_code, by_name);
        assert_eq!(by_code["checks"][0], *check);
    }
    let page = run("explain SN001").stdout;
    for heading in [
        "Measures",
        "Why it matters",
        "Threshold",
        "False alarms",
        "Remedy",
        "References",
    ] {
        assert!(page.contains(heading), "{heading}");
    }
}

#[test]
fn inspect_reads_headers_and_folds_layers() {
    let folder = tiny_folder();
    let path = folder.path().to_str().unwrap();
    let report = json(&format!("inspect {path}"));
    assert_eq!(report["alibi"]["form"], "key-position");
    assert_eq!(report["dtypes"][0]["dtype"], "BF16");
    let folded = report["tensors_folded"].as_array().unwrap();
    let pattern = folded
        .iter()
        .find(|t| t["pattern"] == "h.N.self_attention.query_key_value.weight")
        .unwrap();
    assert_eq!(pattern["count"], 2);
    assert!(report["tensors"].as_array().unwrap().len() > folded.len());
    for check in report["self_check"].as_array().unwrap() {
        assert_eq!(check["holds"], true, "{check}");
    }
    // a single weight file is a target too
    json(&format!("inspect {path}/model.safetensors"));
}

/// What is not there is named, with what was expected: no bare message of the operating system.
#[test]
fn missing_files_are_named_with_what_was_expected() {
    for (line, parts) in [
        (
            "measure --text nofile",
            ["nofile: no such file", "--text expects"],
        ),
        (
            "horizon --heads 3 --config nofile.toml",
            ["nofile.toml: no such file", "TOML"],
        ),
        (
            "horizon --heads 4 --length 99999999999999999999",
            ["--length", "longer than"],
        ),
    ] {
        let run = run(line);
        let error = run.error(2);
        for part in parts {
            assert!(error.contains(part), "{error}");
        }
        assert!(!error.contains("os error"), "{error}");
    }
}

#[test]
fn the_last_of_format_and_json_counts() {
    let is_json = |line: &str| run(line).stdout.starts_with('{');
    assert!(!is_json("horizon --heads 2 --json --format text"));
    assert!(is_json("horizon --heads 2 --format text --json"));
}

/// `heads` is a number for horizon and a selection elsewhere: no key of a file means both.
#[test]
fn an_ambiguous_key_belongs_in_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snellen.toml");
    let config = file.to_str().unwrap();
    std::fs::write(&file, "heads = 4").unwrap();
    assert!(
        snellen(["horizon", "--config", config])
            .error(2)
            .contains("[horizon]")
    );
    std::fs::write(&file, "[horizon]\nheads = 4\n[measure]\nheads = \"1-2\"\n").unwrap();
    assert_eq!(snellen(["horizon", "--config", config]).code, 0);
    let chart = snellen(["measure", "--length", "100", "--config", config]).stdout;
    assert!(chart.contains("layer  head 1"), "{chart}");
}
