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
        .write_stdin(document)
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
            .contains("expected the result of")
    );
    let result = saved(folder.path(), "h.json", "horizon --heads 4");
    assert!(
        snellen(["report", &result, &result, "--format", "npz"])
            .error(2)
            .contains("forms text, json, html")
    );
}
