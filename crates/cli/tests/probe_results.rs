//! Files that `snellen probe` writes beside its document: whose they are, how they grow, how two become one.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::path::Path;
use support::{probe, probe_json as json, tiny_folder};

const SAMPLES: &str = "--samples 2 --seed 5";

/// A grid whose cells go to a file in the folder.
fn grid(folder: &Path, lengths: &str, depths: u32, file: &str) -> String {
    let file = folder.join(file);
    format!(
        "--lengths {lengths} --depths {depths} {SAMPLES} --results {}",
        file.display()
    )
}

fn lines(folder: &Path, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Writes a file of results with one value of its last line changed.
fn tampered(folder: &Path, from: &str, to: &str, change: impl FnOnce(&mut Value)) {
    let mut lines = lines(folder, from);
    let mut cell: Value = serde_json::from_str(&lines.pop().unwrap()).unwrap();
    change(&mut cell);
    lines.push(cell.to_string());
    std::fs::write(folder.join(to), lines.join("\n") + "\n").unwrap();
}

#[test]
fn two_commands_do_not_append_to_one_file() {
    let folder = tiny_folder();
    let args = grid(folder.path(), "300", 1, "cells.jsonl");
    assert_eq!(probe(folder.path(), &args).code, 0);
    let before = lines(folder.path(), "cells.jsonl");
    let held = std::fs::File::open(folder.path().join("cells.jsonl")).unwrap();
    held.lock().unwrap();
    let more = args.replace("--depths 1", "--depths 2");
    let run = probe(folder.path(), &more);
    let error = run.error(2);
    assert!(
        error.contains("cells.jsonl") && error.contains("another `snellen probe`"),
        "{error}"
    );
    assert_eq!(lines(folder.path(), "cells.jsonl"), before);
    drop(held);
    assert_eq!(probe(folder.path(), &more).code, 0);
    assert_eq!(lines(folder.path(), "cells.jsonl").len(), 1 + 3);
}

/// One run to 300 tokens and one to 320 are one run to both, whatever their depths, and a file of one grid goes on with another.
#[test]
fn runs_of_different_grids_merge_into_the_run_of_both() {
    let folder = tiny_folder();
    let whole = json(
        folder.path(),
        &format!("--lengths 300,320 --depths 3 {SAMPLES}"),
    );
    for (lengths, depths, file) in [("300", 2, "a.jsonl"), ("320", 3, "b.jsonl")] {
        let args = grid(folder.path(), lengths, depths, file);
        assert_eq!(probe(folder.path(), &args).code, 0);
    }
    let b = folder.path().join("b.jsonl");
    let before = lines(folder.path(), "b.jsonl");
    let both = grid(folder.path(), "300,320", 3, "a.jsonl");
    let merged = json(folder.path(), &format!("{both} --merge {}", b.display()));
    assert_eq!(merged, whole);
    assert_eq!(lines(folder.path(), "b.jsonl"), before, "only read");
    // the settings, two cells of a, three of b, and the one that neither had
    assert_eq!(lines(folder.path(), "a.jsonl").len(), 1 + 2 + 3 + 1);
    // the file holds everything now, a part of it too
    assert_eq!(json(folder.path(), &both), whole);
    let part = json(folder.path(), &grid(folder.path(), "320", 2, "a.jsonl"));
    assert_eq!(part["cells"][1], whole["cells"][5]);
    assert_eq!(lines(folder.path(), "a.jsonl").len(), 1 + 2 + 3 + 1);

    let run = probe(
        folder.path(),
        &format!(
            "{} --merge {}",
            both.replace("--seed 5", "--seed 6")
                .replace("a.jsonl", "c.jsonl"),
            b.display()
        ),
    );
    assert!(run.error(2).contains("seed was 5 and is 6"), "{run:?}");
    // a cell with another result: nothing is taken
    tampered(folder.path(), "b.jsonl", "other.jsonl", |cell| {
        cell["results"][0]["answer"] = "something else".into();
    });
    let before = lines(folder.path(), "a.jsonl");
    let other = folder.path().join("other.jsonl");
    let run = probe(
        folder.path(),
        &format!("{both} --merge {}", other.display()),
    );
    let error = run.error(2);
    assert!(
        error.contains("other.jsonl") && error.contains("320") && error.contains("depth 1"),
        "{error}"
    );
    assert_eq!(lines(folder.path(), "a.jsonl"), before);
    let run = probe(
        folder.path(),
        &format!("--lengths 300 {SAMPLES} --merge {}", b.display()),
    );
    assert!(run.error(2).contains("--results"), "{run:?}");
}

#[test]
fn cells_that_were_changed_are_refused() {
    let folder = tiny_folder();
    let args = grid(folder.path(), "300", 2, "cells.jsonl");
    assert_eq!(probe(folder.path(), &args).code, 0);
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 6] = [
        ("results", |cell| {
            drop(cell["results"].as_array_mut().unwrap().pop())
        }),
        ("hits", |cell| cell["hits"] = 1.into()),
        ("hits", |cell| cell["results"][0]["hit"] = true.into()),
        ("log_probability", |cell| {
            cell["results"][0]["log_probability"] = (-1.5).into();
        }),
        ("witness.by_head", |cell| {
            drop(cell["witness"][0]["by_head"].as_array_mut().unwrap().pop());
        }),
        ("witness ieee", |cell| {
            cell["witness"][0]["by_head"][3]["sight"] = "none".into()
        }),
    ];
    let args = grid(folder.path(), "300", 2, "changed.jsonl");
    for (wanted, change) in changes {
        tampered(folder.path(), "cells.jsonl", "changed.jsonl", change);
        let before = lines(folder.path(), "changed.jsonl");
        let run = probe(folder.path(), &args);
        let error = run.error(2);
        assert!(
            error.contains("changed.jsonl: line 3: ") && error.contains(wanted),
            "{wanted}: {error}"
        );
        assert_eq!(lines(folder.path(), "changed.jsonl"), before);
    }
    let mut changed = lines(folder.path(), "cells.jsonl");
    changed[0] = changed[0].replace("\"seed\":5", "\"seed\":7");
    std::fs::write(
        folder.path().join("changed.jsonl"),
        changed.join("\n") + "\n",
    )
    .unwrap();
    let run = probe(folder.path(), &args.replace("--seed 5", "--seed 7"));
    assert!(run.error(2).contains("line 1: configuration"), "{run:?}");
}

#[test]
fn outputs_do_not_overwrite_each_other() {
    let folder = tiny_folder();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let grid = format!("--lengths 300 --depths 1 {SAMPLES}");
    std::fs::write(at("text.txt"), "A text. ".repeat(80)).unwrap();
    for (flags, wanted) in [
        (
            format!("--items {0} --prompts {0}", at("x")),
            "--items and --prompts",
        ),
        (
            format!("--items {0} --out {0}", at("x")),
            "--items and --out",
        ),
        (
            format!("--results {0} --prompts {0}", at("x")),
            "--results and --prompts",
        ),
        (
            format!("--text {0} --prompts {0}", at("text.txt")),
            "this command reads that file",
        ),
        ("--items -".to_owned(), "--items -"),
        ("--results -".to_owned(), "--results -"),
    ] {
        let run = probe(folder.path(), &format!("{grid} {flags}"));
        assert!(run.error(2).contains(wanted), "{run:?}");
        assert!(!Path::new(&at("x")).exists(), "nothing is written");
    }
    assert!(!Path::new("-").exists());
    let run = probe(
        folder.path(),
        &format!("{grid} --items {} --out -", at("items.jsonl")),
    );
    assert_eq!(run.code, 0, "{run:?}");
    // eval has such files too
    let task = at("task.jsonl");
    let item = r#"{"query": "one", "choices": [" a", " b"], "gold": 0}"#;
    std::fs::write(&task, item).unwrap();
    for (items, wanted) in [
        (task.as_str(), "this command reads that file"),
        ("-", "--items -"),
    ] {
        let model = folder.path().to_str().unwrap();
        let run = support::snellen(["eval", model, "--bytes", "--task", &task, "--items", items]);
        assert!(run.error(2).contains(wanted), "{run:?}");
    }
    assert_eq!(std::fs::read_to_string(&task).unwrap(), item);
}

#[test]
fn a_plan_without_a_witness_is_a_mistake() {
    let folder = tiny_folder();
    let grid = format!("--lengths 300 --depths 1 {SAMPLES}");
    for flag in ["--no-witness", "--control"] {
        let run = probe(folder.path(), &format!("{grid} {flag} --plan ftz"));
        let error = run.error(2);
        assert!(error.contains(flag) && error.contains("--plan"), "{error}");
        assert_eq!(probe(folder.path(), &format!("{grid} {flag}")).code, 0);
    }
}
