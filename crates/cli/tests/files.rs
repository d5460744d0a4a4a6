//! What files may do to a run: hostile and damaged weights are refused by name, equal ones give equal reports, texts are what was written.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::{Map, Value, json};
use std::path::Path;
use support::{snellen, tiny_folder};

/// A safetensors file from its header, as text or JSON, and its data.
fn file(header: &[u8], data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend(data);
    file
}

fn of_tensors(tensors: &[(&str, &str, u64, u64)], n_data: usize) -> Vec<u8> {
    let entries = tensors.iter().map(|(name, dtype, begin, end)| {
        let entry = json!({"dtype": dtype, "shape": [2], "data_offsets": [begin, end]});
        ((*name).to_owned(), entry)
    });
    let header = Value::Object(entries.collect::<Map<_, _>>()).to_string();
    file(header.as_bytes(), &vec![0; n_data])
}

/// https://github.com/safetensors/safetensors/issues/668 and 401, https://github.com/ml-explore/mlx/pull/3364: lengths that
/// lie, overlaps, holes, wrong sizes, unknown formats and repeated names are refused by name, before anything is written.
#[test]
fn hostile_headers_are_refused_by_name() {
    let twice = br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}"#;
    let stated = |length: u64, size: usize| {
        let mut file = length.to_le_bytes().to_vec();
        file.resize(size, b' ');
        file
    };
    let rows: &[(Vec<u8>, &[&str])] = &[
        (
            stated(1 << 63, 20),
            &["9223372036854775808", "20 bytes", "limit"],
        ),
        (stated(150_000_000, 1024), &["150000000", "1024", "limit"]),
        (
            of_tensors(&[("a", "F32", 0, 8), ("b", "F32", 4, 12)], 12),
            &["\"b\"", "overlap"],
        ),
        (
            of_tensors(&[("a", "F32", 0, 8), ("b", "F32", 12, 20)], 20),
            &["\"b\"", "hole"],
        ),
        (
            of_tensors(&[("a", "F32", 0, 8), ("b", "F32", 8, 16)], 12),
            &["\"b\"", "past the end"],
        ),
        (
            of_tensors(&[("a", "F32", 0, 12)], 12),
            &["\"a\"", "takes 8 bytes"],
        ),
        (of_tensors(&[("a", "Q7", 0, 8)], 8), &["\"a\"", "Q7"]),
        (file(twice, &[0; 16]), &["\"a\"", "twice"]),
    ];
    let model = tiny_folder();
    let weights = model.path().join("model.safetensors");
    for (bytes, parts) in rows {
        std::fs::write(&weights, bytes).unwrap();
        for verb in ["inspect", "audit"] {
            let run = snellen([verb, model.path().to_str().unwrap()]);
            let line = run.error(2);
            for part in parts.iter().chain(&["model.safetensors"]) {
                assert!(line.contains(part), "{part}: {line}");
            }
            assert!(!line.contains(" at line "), "{line}");
        }
    }
}

/// https://github.com/sgl-project/sglang/pull/32279, https://github.com/huggingface/transformers/issues/47176: a shard that is
/// missing, or named outside the folder, is named; a pickle is never opened, and the configuration alone still gives horizons.
#[test]
fn shards_and_pickles() {
    let model = tiny_folder();
    let path = model.path().to_str().unwrap();
    std::fs::remove_file(model.path().join("model.safetensors")).unwrap();
    for shard in [
        "model-00002-of-00003.safetensors",
        "../other/x.safetensors",
        "/etc/hostname",
    ] {
        let index = json!({"metadata": {}, "weight_map": {"x": shard}});
        std::fs::write(
            model.path().join("model.safetensors.index.json"),
            index.to_string(),
        )
        .unwrap();
        assert!(snellen(["audit", path]).error(2).contains(shard));
    }
    std::fs::remove_file(model.path().join("model.safetensors.index.json")).unwrap();
    std::fs::write(model.path().join("pytorch_model.bin"), b"PK").unwrap();
    let run = snellen(["audit", path]);
    let line = run.error(2);
    assert!(
        line.contains("pytorch_model.bin") && line.contains("safe_serialization"),
        "{line}"
    );
    assert_eq!(snellen(["horizon", path]).code, 0);
}

/// The tiny model's weights, which are BF16, with other names or widened to F32.
fn rewritten(folder: &Path, prefix: &str, widen: bool) {
    let path = folder.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let (mut out, mut data) = (Map::new(), Vec::new());
    for (name, entry) in header
        .into_iter()
        .filter(|(name, _)| name != "__metadata__")
    {
        let at = |i: usize| 8 + length + entry["data_offsets"][i].as_u64().unwrap() as usize;
        let begin = data.len();
        for value in bytes[at(0)..at(1)].chunks(2) {
            // a BF16 is the upper half of an F32
            data.extend(if widen { &[0, 0][..] } else { &[] });
            data.extend(value);
        }
        let entry = json!({
            "dtype": if widen { "F32" } else { "BF16" },
            "shape": entry["shape"],
            "data_offsets": [begin, data.len()],
        });
        out.insert(format!("{prefix}{name}"), entry);
    }
    std::fs::write(path, file(Value::Object(out).to_string().as_bytes(), &data)).unwrap();
}

/// https://github.com/huggingface/candle/pull/594, https://github.com/huggingface/text-generation-inference/issues/399: neither
/// the format that weights are stored in nor the prefix of their names changes a number.
#[test]
fn storage_format_and_prefix_change_no_number() {
    let report = |folder: &tempfile::TempDir| {
        let text = folder.path().join("text.txt");
        std::fs::write(&text, "a text of some length, twice: a text of some length").unwrap();
        let path = folder.path().to_str().unwrap();
        let text = text.to_str().unwrap();
        ["audit", "measure"].map(|verb| {
            let mut words = vec![verb, path, "--json", "--plan", "ieee,hf-eager:bf16"];
            if verb == "measure" {
                words.extend(["--bytes", "--text", text]);
            }
            let run = snellen(words);
            assert!(run.code <= 1, "{run:?}");
            let report: Value = serde_json::from_str(&run.stdout).unwrap();
            (report["heads"].clone(), report["loss"].clone())
        })
    };
    let stored = report(&tiny_folder());
    for (prefix, widen) in [("transformer.", false), ("", true), ("transformer.", true)] {
        let folder = tiny_folder();
        rewritten(folder.path(), prefix, widen);
        assert_eq!(
            report(&folder),
            stored,
            "prefix {prefix:?}, widened {widen}"
        );
    }
}

/// A weight that is not finite ends `audit` as it ends `measure`, in whatever tensor it is and whatever is looked at: nothing is certified
/// about a model that computes NaN.
#[test]
fn a_weight_that_is_not_finite_is_named() {
    let model = tiny_folder();
    let weights = model.path().join("model.safetensors");
    let good = std::fs::read(&weights).unwrap();
    let length = u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
    let header: Map<String, Value> = serde_json::from_slice(&good[8..8 + length]).unwrap();
    let tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
    let text = model.path().join("text.txt");
    std::fs::write(&text, "abc").unwrap();
    let path = model.path().to_str().unwrap();
    let measure = ["--bytes", "--text", text.to_str().unwrap()];
    for (name, entry) in tensors {
        let mut bad = good.clone();
        let end = 8 + length + entry["data_offsets"][1].as_u64().unwrap() as usize;
        bad[end - 2..end].copy_from_slice(&0xff80_u16.to_le_bytes());
        std::fs::write(&weights, &bad).unwrap();
        let last = entry["shape"].as_array().unwrap().iter();
        let last: Vec<u64> = last.map(|n| n.as_u64().unwrap() - 1).collect();
        for (verb, more) in [
            ("audit", &[][..]),
            ("audit", &["--layers", "0", "--heads", "2"]),
            ("measure", &measure),
        ] {
            let run = snellen([verb, path].iter().chain(more));
            let line = run.error(2);
            for part in [
                "model.safetensors: tensor",
                &format!("{name:?}"),
                &format!("the first at {last:?} is -inf"),
                "fetch it again",
            ] {
                assert!(line.contains(part), "{verb}: {part}: {line}");
            }
        }
    }
}

/// A byte order mark is no token: it is left out of texts, with a note in the same words, and of lists of ids, which would not begin with a
/// number.
#[test]
fn a_byte_order_mark_is_not_measured() {
    let model = tiny_folder();
    let at = |name: &str, text: &str| {
        std::fs::write(model.path().join(name), text).unwrap();
        model.path().join(name).display().to_string()
    };
    let folder = model.path().display();
    let (plain, marked) = (at("a.txt", "some text"), at("b.txt", "\u{feff}some text"));
    let note = format!(
        "{marked} begins with a byte order mark, which is no part of the text and was left out"
    );
    let said = |report: &Value| {
        let notes = report["notes"].as_array().unwrap();
        notes.iter().any(|line| *line == note)
    };
    for verb in ["measure", "eval"] {
        let report = |text: &str| support::json(&format!("{verb} {folder} --bytes --text {text}"));
        let (plain, marked) = (report(&plain), report(&marked));
        assert_eq!(plain["text"]["hash"], marked["text"]["hash"], "{verb}");
        assert!(said(&marked) && !said(&plain), "{verb}");
    }
    let long = "Some text. ".repeat(80);
    at("a.txt", &long);
    at("b.txt", &format!("\u{feff}{long}"));
    for more in ["", "--build-only"] {
        let grid = "--lengths 300 --depths 1 --samples 1";
        let report = |text: &str| {
            support::json(&format!(
                "probe {folder} --bytes {grid} --text {text} {more}"
            ))
        };
        let (plain, marked) = (report(&plain), report(&marked));
        let hash = |report: &Value| report["settings"]["haystack_hash"].clone();
        assert_eq!(hash(&plain), hash(&marked));
        assert!(said(&marked) && !said(&plain), "probe {more}");
    }
    for mark in ["", "\u{feff}"] {
        let item = r#"{"query": "one", "choices": [" a", " b"], "gold": 0}"#;
        std::fs::write(&marked, format!("{mark}{item}")).unwrap();
        let report = support::json(&format!("eval {folder} --bytes --task {marked}"));
        assert_eq!(said(&report), !mark.is_empty(), "eval --task");
    }
    let (plain, marked) = (at("a.ids", "1 2 3"), at("b.ids", "\u{feff}1 2 3"));
    let report = |ids: &str| support::json(&format!("measure {folder} --tokens {ids}"));
    assert_eq!(
        report(&plain)["text"]["hash"],
        report(&marked)["text"]["hash"]
    );
    std::fs::write(model.path().join("c.txt"), b"\xff\xfea\0").unwrap();
    for flags in ["--tokenizer tokenizer.json --text", "--tokens"] {
        let line = format!("measure {folder} {flags} {folder}/c.txt");
        let run = support::run(&line);
        assert!(
            run.error(2)
                .contains("c.txt: is text in UTF-16; save it as UTF-8"),
            "{run:?}"
        );
    }
}
