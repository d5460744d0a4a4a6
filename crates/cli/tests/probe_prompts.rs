//! What `snellen probe` puts into its prompts, and what it tells about them, on the embedded model, one id a byte.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::path::Path;
use support::{probe, probe_json as json, tiny_folder};

const GRID: &str = "--lengths 420,520 --depths 2 --samples 2 --seed 5";

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn prompts(folder: &Path, more: &str) -> Vec<Value> {
    let path = folder.join("prompts.jsonl");
    let built = json(
        folder,
        &format!("{more} --build-only --prompts {}", path.display()),
    );
    assert!(built["tokens_to_run"].as_u64().unwrap() > 0);
    lines(&path)
}

fn ids(prompt: &Value) -> Vec<u64> {
    let ids = prompt["ids"].as_array().unwrap();
    ids.iter().map(|id| id.as_u64().unwrap()).collect()
}

#[test]
fn prompts_that_were_only_built_are_those_of_a_run() {
    let folder = tiny_folder();
    let built = json(folder.path(), &format!("{GRID} --build-only"));
    assert_eq!(json(folder.path(), &format!("{GRID} --build-only")), built);
    let items = folder.path().join("items.jsonl");
    let run = json(
        folder.path(),
        &format!("{GRID} --items {}", items.display()),
    );
    let hashes = |report: &Value, samples: &str| -> Vec<Value> {
        let cells = report["cells"].as_array().unwrap();
        let samples = cells
            .iter()
            .flat_map(|cell| cell[samples].as_array().unwrap());
        samples
            .map(|sample| sample["prompt_hash"].clone())
            .collect()
    };
    let expected = hashes(&built, "prompts");
    assert_eq!(hashes(&run, "results"), expected);
    assert_eq!(expected[0].as_str().unwrap().len(), 64);
    assert_eq!(
        expected
            .iter()
            .collect::<std::collections::HashSet<_>>()
            .len(),
        8
    );
    let items = lines(&items);
    assert_eq!(items.len(), 8);
    for (item, hash) in items.iter().zip(&expected) {
        assert_eq!(&item["prompt_hash"], hash);
    }
    assert_eq!(
        (&items[3]["length"], &items[3]["sample"]),
        (&420.into(), &1.into())
    );
    let text = probe(folder.path(), &format!("{GRID} --build-only")).stdout;
    assert!(text.contains("built and not run"), "{text}");
}

/// At most one begin-of-text, at the very beginning, and every fact verbatim where it is said to be.
#[test]
fn prompts_hold_their_facts_and_one_prefix() {
    let folder = tiny_folder();
    let text = folder.path().join("text.txt");
    std::fs::write(&text, include_str!("tiny/text.txt")).unwrap();
    let text = text.display();
    for (task, n) in [
        ("--task passkey".to_owned(), 1),
        ("--task word".to_owned(), 1),
        ("--task uuid".to_owned(), 1),
        (format!("--task needle --text {text}"), 1),
        (format!("--task multi-key --text {text} --shuffle"), 4),
        ("--task multi-value --needles 3".to_owned(), 3),
        ("--task multi-query --needles 2".to_owned(), 2),
    ] {
        let prompts = prompts(
            folder.path(),
            &format!("{task} --lengths 620 --depths 3 --samples 2 --prefix-token 1"),
        );
        for prompt in &prompts {
            let ids = ids(prompt);
            assert_eq!(ids[0], 1);
            assert!(!ids[1..].contains(&1));
            let room = prompt["answer_room"].as_u64().unwrap();
            assert!(
                ids.len() as u64 + room <= 620 && ids.len() as u64 + room > 520,
                "{task}"
            );
            let bytes: Vec<u8> = ids.iter().map(|&id| id as u8).collect();
            let needles = prompt["needles"].as_array().unwrap();
            assert_eq!(needles.len(), n, "{task}");
            for needle in needles {
                let at = needle["at"].as_u64().unwrap() as usize;
                let fact = &bytes[at..at + needle["tokens"].as_u64().unwrap() as usize];
                let fact = std::str::from_utf8(fact).unwrap();
                let value = needle["value"].as_str().unwrap();
                assert!(fact.starts_with(' ') && fact.ends_with('.'), "{fact:?}");
                assert!(fact.contains(value));
                assert_eq!(prompt["text"].as_str().unwrap().matches(fact).count(), 1);
                assert_eq!(
                    needle["asked"].as_bool().unwrap(),
                    prompt["key"].as_str().unwrap().contains(value)
                );
            }
            let answer: Vec<u8> = prompt["answer_ids"]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| id.as_u64().unwrap() as u8)
                .collect();
            let answer = String::from_utf8(answer).unwrap();
            assert_eq!(answer.trim(), prompt["key"].as_str().unwrap());
        }
    }
    let without = prompts(folder.path(), GRID);
    assert!(!ids(&without[0]).contains(&1));
    let run = json(folder.path(), &format!("{GRID} --prefix-token 1"));
    assert_eq!(run["cells"][0]["first_ids"].as_array().unwrap().len(), 10);
    assert_eq!(run["cells"][0]["first_ids"][0], 1);
}

#[test]
fn a_control_has_everything_but_the_facts() {
    let folder = tiny_folder();
    let with = prompts(folder.path(), "--lengths 400 --depths 1 --samples 1");
    let without = prompts(
        folder.path(),
        "--lengths 400 --depths 1 --samples 1 --control",
    );
    let needle = &with[0]["needles"][0];
    let (at, n) = (
        needle["at"].as_u64().unwrap(),
        needle["tokens"].as_u64().unwrap(),
    );
    let mut expected = ids(&with[0]);
    expected.drain(at as usize..(at + n) as usize);
    assert_eq!(ids(&without[0]), expected);
    assert_eq!(without[0]["key"], with[0]["key"]);
    let run = json(
        folder.path(),
        "--lengths 400 --depths 1 --samples 1 --control",
    );
    assert_eq!(run["settings"]["control"], true);
    assert_eq!(run["cells"][0]["witness"], Value::Array(vec![]));
    let text = probe(
        folder.path(),
        "--lengths 400 --depths 1 --samples 1 --control",
    )
    .stdout;
    assert!(text.contains("A control"), "{text}");
}

#[test]
fn every_head_is_a_witness_under_every_plan() {
    let folder = tiny_folder();
    let grid = "--lengths 420 --depths 2 --samples 2";
    let report = json(folder.path(), &format!("{grid} --plan ieee,hf-eager:f16"));
    for cell in report["cells"].as_array().unwrap() {
        let witness = cell["witness"].as_array().unwrap();
        assert_eq!(witness.len(), 2);
        for plan in witness {
            let heads = plan["by_head"].as_array().unwrap();
            let model = &report["model"];
            let n = model["n_layers"].as_u64().unwrap() * model["n_heads"].as_u64().unwrap();
            assert_eq!((heads.len() as u64, &plan["heads"]), (n, &n.into()));
            let count = |kind: &str| plan[kind].as_u64().unwrap();
            assert_eq!(count("seen") + count("sub_ulp") + count("blind"), n);
            for head in heads {
                let weight = head["weight"].as_f64().unwrap();
                assert!((0.0..=1.0).contains(&weight));
                assert_eq!(head["sight"] == "blind", weight == 0.0);
                let prompt = cell["results"][0]["prompt_tokens"].as_u64().unwrap();
                assert!(head["distance"].as_u64().unwrap() < prompt);
            }
        }
        // 2^-24 is the smallest that half precision holds, and this model's steepest head is blind there
        let (f32, f16) = (&witness[0], &witness[1]);
        assert!(f16["blind"].as_u64() >= f32["blind"].as_u64());
    }
    let (first, last) = (
        &report["cells"][0]["witness"][0],
        &report["cells"][1]["witness"][0],
    );
    assert!(
        first["blind"].as_u64() > last["blind"].as_u64(),
        "the farther fact is seen by fewer"
    );
    let text = probe(folder.path(), grid).stdout;
    assert!(text.contains("Heads that saw the fact"), "{text}");
    let none = json(folder.path(), &format!("{grid} --no-witness"));
    assert_eq!(none["cells"][0]["witness"], Value::Array(vec![]));
    assert_eq!(
        none["cells"][0]["results"], report["cells"][0]["results"],
        "watching changes nothing"
    );
}

#[test]
fn misses_are_listed_on_request() {
    let folder = tiny_folder();
    let plain = probe(folder.path(), GRID).stdout;
    let listed = probe(folder.path(), &format!("{GRID} --show-failures")).stdout;
    assert!(!plain.contains("Misses"));
    assert!(listed.contains("Misses (8 of 8)"), "{listed}");
}

#[test]
fn precision_is_a_counterfactual_too() {
    let folder = tiny_folder();
    let report = json(
        folder.path(),
        "--lengths 300 --depths 1 --samples 1 --what-if f64,relative-f32,hf-eager:bf16",
    );
    let cell = &report["cells"][0];
    let tried = cell["what_if"].as_array().unwrap();
    let own = cell["log_probability"].as_f64().unwrap();
    let of = |index: usize| tried[index]["log_probability"].as_f64().unwrap();
    assert_eq!(tried[0]["change"], "f64");
    // six tokens, each off by the rounding of f32 attention in a few layers
    assert!((of(0) - own).abs() < 1e-3, "{} {own}", of(0));
    assert!((of(1) - own).abs() < 1e-3, "{} {own}", of(1));
    assert_ne!(of(2), of(0), "bf16 rounds");
}

#[test]
fn what_cannot_be_built_is_one_line() {
    let folder = tiny_folder();
    for (args, expect) in [
        ("--lengths 400 --task passkey --needles 3", "one fact"),
        ("--lengths 400 --task multi-key --needles 0", "1 to 1000"),
        ("--lengths 400 --shuffle", "--text"),
        ("--lengths 400 --what-if hf-eager:f12", "--what-if"),
        ("--lengths 400 --build-only --results x.jsonl", "--results"),
        ("--lengths 400 --task multi-key --needles 100", "too short"),
    ] {
        let run = probe(folder.path(), args);
        let error = run.error(2);
        assert!(error.contains(expect), "{args}: {error}");
    }
}
