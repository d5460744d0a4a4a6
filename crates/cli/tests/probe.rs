//! `snellen probe` from the outside, on a tiny random model, one id a byte.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};
use support::{probe, probe_json as json, tiny_folder};

/// A small grid: four cells of two samples.
const GRID: &str = "--lengths 320,300 --depths 2 --samples 2 --seed 5";

fn results(folder: &Path, name: &str) -> (PathBuf, String) {
    let path = folder.join(name);
    (path.clone(), format!("{GRID} --results {}", path.display()))
}

#[test]
fn every_prompt_fits_and_says_where_its_fact_is() {
    let folder = tiny_folder();
    let report = json(folder.path(), GRID);
    let cells = report["cells"].as_array().unwrap();
    let grid: Vec<_> = cells
        .iter()
        .map(|cell| {
            (
                cell["length"].as_u64().unwrap(),
                cell["depth"].as_f64().unwrap(),
            )
        })
        .collect();
    assert_eq!(grid, [(300, 0.0), (300, 1.0), (320, 0.0), (320, 1.0)]);
    for cell in cells {
        for sample in cell["results"].as_array().unwrap() {
            let tokens = sample["prompt_tokens"].as_u64().unwrap();
            let answer = sample["answer_tokens"].as_u64().unwrap();
            assert_eq!(sample["key"].as_str().unwrap().len(), 5);
            // a space and five digits, a byte each
            assert_eq!(answer, 6);
            assert!(tokens + answer <= cell["length"].as_u64().unwrap());
            let end =
                sample["needle_at"].as_u64().unwrap() + sample["needle_tokens"].as_u64().unwrap();
            assert!(end < tokens);
            assert!(
                sample["answer"].is_string() && sample["log_probability"].as_f64().unwrap() < 0.0
            );
        }
        assert_eq!(cell["depth"], cell["true_depth"]);
        assert!(cell["accuracy_high"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(
        (&report["all"]["cells"], &report["all"]["samples"]),
        (&4.into(), &8.into())
    );
    let text = probe(folder.path(), GRID).stdout;
    assert!(text.contains("By length and depth"), "{text}");
}

#[test]
fn an_interrupted_run_continues_to_the_same_bytes() {
    let folder = tiny_folder();
    let (whole, args) = results(folder.path(), "whole.jsonl");
    let report = probe(folder.path(), &format!("{args} --json")).stdout;
    let whole = std::fs::read(whole).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    assert_eq!(text.lines().count(), 5, "settings and four cells");
    // without a file, and with one that is done already
    assert_eq!(
        probe(folder.path(), &format!("{GRID} --json")).stdout,
        report
    );
    assert_eq!(
        probe(folder.path(), &format!("{args} --json")).stdout,
        report
    );
    // cut anywhere: inside the settings, at a line's end, inside a cell
    let first = text.find('\n').unwrap() + 1;
    for cut in [
        0,
        1,
        first - 1,
        first,
        first + 40,
        whole.len() / 2,
        whole.len() - 1,
    ] {
        let (path, args) = results(folder.path(), "cut.jsonl");
        std::fs::write(&path, &whole[..cut]).unwrap();
        let again = probe(folder.path(), &format!("{args} --json --threads 1"));
        assert_eq!(again.stdout, report, "cut at {cut}");
        assert_eq!(std::fs::read(&path).unwrap(), whole, "cut at {cut}");
    }
}

#[test]
fn results_of_other_settings_are_refused_and_kept() {
    let folder = tiny_folder();
    let (path, args) = results(folder.path(), "results.jsonl");
    assert_eq!(probe(folder.path(), &args).code, 0);
    let before = std::fs::read(&path).unwrap();
    for (more, name) in [
        ("--seed 6", "seed"),
        ("--samples 3", "samples"),
        ("--prefix-token 1", "prefix_token"),
    ] {
        let other = args
            .replace(if name == "seed" { "--seed 5" } else { "\0" }, "")
            .replace(
                if name == "samples" {
                    "--samples 2"
                } else {
                    "\0"
                },
                "",
            );
        let run = probe(folder.path(), &format!("{other} {more}"));
        let error = run.error(2);
        assert!(
            error.contains("other settings") && error.contains(name),
            "{error}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
    let foreign = folder.path().join("notes.txt");
    std::fs::write(&foreign, "my notes").unwrap();
    let run = probe(
        folder.path(),
        &format!("{GRID} --results {}", foreign.display()),
    );
    run.error(2);
    assert_eq!(std::fs::read(&foreign).unwrap(), b"my notes");
}

#[test]
fn a_cell_does_not_depend_on_the_rest_of_the_grid_or_on_threads() {
    let folder = tiny_folder();
    let grid = json(folder.path(), GRID);
    let alone = json(
        folder.path(),
        "--lengths 320 --depths 2 --samples 2 --seed 5 --threads 1",
    );
    assert_eq!(grid["cells"][2], alone["cells"][0]);
    assert_eq!(grid["cells"][3], alone["cells"][1]);
}

#[test]
fn counterfactuals_change_the_bias_and_nothing_else() {
    let folder = tiny_folder();
    let report = json(
        folder.path(),
        "--lengths 300 --depths 1 --samples 2 --what-if slopes/1,slopes/4,clamp=-1",
    );
    let cell = &report["cells"][0];
    assert_eq!(cell["hits"], 0, "random weights find nothing");
    let tried = cell["what_if"].as_array().unwrap();
    let names: Vec<_> = tried
        .iter()
        .map(|one| one["change"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["slopes/1", "slopes/4", "clamp=-1"]);
    // no change gives the same bits, a change does not
    assert_eq!(tried[0]["log_probability"], cell["log_probability"]);
    assert_ne!(tried[1]["log_probability"], cell["log_probability"]);
    assert_ne!(tried[2]["log_probability"], cell["log_probability"]);
}

#[test]
fn what_cannot_be_probed_is_one_line() {
    let folder = tiny_folder();
    for (args, expect) in [
        ("--lengths 64", "too short"),
        ("--lengths 0", "at least 1"),
        ("--lengths 32M", "longest prompt"),
        ("--lengths 300 --samples 0", "--samples"),
        ("--lengths 300 --depths 0", "--depths"),
        ("--lengths 300 --task passkeys", "passkey"),
        ("--lengths 300 --what-if robust=even", "--what-if"),
        ("--lengths 300 --what-if slopes/0", "slopes/"),
        ("--lengths 300 --prefix-token 999", "999"),
        ("", "--lengths"),
    ] {
        let run = probe(folder.path(), args);
        let error = run.error(2);
        assert!(error.contains(expect), "{args}: {error}");
    }
}

#[test]
fn a_needle_is_hidden_in_the_prose_of_a_text() {
    let folder = tiny_folder();
    let text = folder.path().join("prose.txt");
    std::fs::write(&text, include_str!("tiny/text.txt")).unwrap();
    let grid = "--task needle --lengths 400 --depths 3 --samples 1";
    let report = json(folder.path(), &format!("{grid} --text {}", text.display()));
    assert_eq!(report["settings"]["task"], "needle");
    assert!(report["settings"]["haystack_hash"].is_string());
    for cell in report["cells"].as_array().unwrap() {
        assert_eq!(cell["results"][0]["key"].as_str().unwrap().len(), 7);
    }
    let empty = folder.path().join("empty.txt");
    std::fs::write(&empty, "\n").unwrap();
    for (more, expect) in [
        (grid.to_owned(), "--text"),
        (format!("{grid} --text {}", empty.display()), "empty"),
        (
            format!("--task needle --lengths 9000 --text {}", text.display()),
            "longer text",
        ),
        (
            format!("--task key-value --lengths 300 --text {}", text.display()),
            "own filler",
        ),
    ] {
        let run = probe(folder.path(), &more);
        let error = run.error(2);
        assert!(error.contains(expect), "{error}");
    }
}

#[test]
fn lists_of_names_and_numbers_are_made_up_by_the_seed() {
    let folder = tiny_folder();
    let grid = "--task key-value --lengths 300,400 --depths 2 --samples 2";
    let report = json(folder.path(), &format!("{grid} --seed 5"));
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for sample in cells
        .iter()
        .flat_map(|cell| cell["results"].as_array().unwrap())
    {
        let key: u64 = sample["key"].as_str().unwrap().parse().unwrap();
        assert_eq!(key % 2, 1, "numbers of other lines are even");
    }
    let alone = json(
        folder.path(),
        "--task key-value --lengths 300 --depths 2 --samples 2 --seed 5",
    );
    assert_eq!(alone["cells"][0], report["cells"][0]);
    let other = json(folder.path(), &format!("{grid} --seed 6"));
    assert_ne!(other["cells"][0], report["cells"][0]);
}
