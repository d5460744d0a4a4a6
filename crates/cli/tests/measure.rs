//! `snellen measure` and `snellen audit` from the outside.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use support::{json, measure_tiny, run, shared_data, snellen, tiny_folder};

fn heads(report: &Value) -> &Vec<Value> {
    report["heads"].as_array().unwrap()
}

#[test]
fn without_arguments_it_measures_the_embedded_model_and_says_so() {
    let run = run("measure");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stdout.contains("embedded") && run.stdout.contains("documentation of Python"),
        "{}",
        run.stdout
    );
    let report = json("measure --plan ieee,hf-eager:f16");
    assert_eq!(heads(&report).len(), 32);
    let length = report["length"].as_u64().unwrap();
    assert_eq!(report["text"]["tokens"], length);
    for head in heads(&report) {
        for plan in ["ieee", "hf-eager:f16"] {
            let evidence = &head["plans"][plan];
            assert_eq!(evidence["pairs"], length * (length + 1) / 2);
            for key in [
                "blind_pairs",
                "first_blind_distance",
                "last_visible_distance",
            ] {
                assert!(evidence.get(key).is_some(), "{key}");
            }
        }
        for key in [
            "layer",
            "head",
            "reach_50",
            "reach_90",
            "reach_99",
            "entropy_nats",
            "key0_mass",
            "max_score",
        ] {
            assert!(head.get(key).is_some(), "{key}");
        }
        let mass: f64 = head["mass_by_distance"]
            .as_array()
            .unwrap()
            .iter()
            .map(|bin| bin["mass"].as_f64().unwrap())
            .sum();
        assert!((mass - 1.0).abs() < 1e-6, "{mass}");
    }
    for finding in report["findings"].as_array().unwrap() {
        for key in ["code", "layer", "head", "plan", "value", "threshold"] {
            assert!(finding.get(key).is_some(), "{key}");
        }
    }
}

#[test]
fn the_steepest_head_goes_blind_and_the_flattest_does_not() {
    let report = json("measure --plan ieee");
    let first =
        |head: usize| heads(&report)[head]["plans"]["ieee"]["first_blind_distance"].as_u64();
    // slope 0.5 without content: 208 tokens; content of a few nats moves it by tens of tokens
    let steepest = first(0).unwrap();
    assert!((150..260).contains(&steepest), "{steepest}");
    assert_eq!(first(7), None);
}

#[test]
fn filters_keep_original_indices_and_numbers() {
    let all = json("measure");
    let some = json("measure --layers 1 --heads 3,5-6");
    let places: Vec<_> = heads(&some)
        .iter()
        .map(|head| (head["layer"].as_u64(), head["head"].as_u64()))
        .collect();
    assert_eq!(
        places,
        [(Some(1), Some(3)), (Some(1), Some(5)), (Some(1), Some(6))]
    );
    for head in heads(&some) {
        assert!(heads(&all).contains(head), "a filter changed a number");
    }
    assert_eq!(some["loss"], all["loss"]);
}

#[test]
fn threads_change_no_byte() {
    let one = run("measure --threads 1 --json --plan ieee,ftz,hf-eager:bf16");
    for threads in [2, 8] {
        let more = run(&format!(
            "measure --threads {threads} --json --plan ieee,ftz,hf-eager:bf16"
        ));
        assert_eq!(one.stdout, more.stdout, "{threads} threads");
    }
}

#[test]
fn odd_and_tiny_lengths_have_clear_outcomes() {
    for length in [1, 2, 7, 63, 65, 127] {
        let report = json(&format!("measure --length {length}"));
        assert_eq!(report["length"], length);
        assert_eq!(report["text"]["tokens"], length);
        assert_eq!(report["loss"]["tokens"], length - 1);
    }
    let one = json("measure --length 1");
    assert_eq!(one["loss"]["nats_per_token"], Value::Null);
}

#[test]
fn texts_are_never_cut_or_stretched_silently() {
    let cut = json("measure --length 100");
    assert!(
        cut["notes"].to_string().contains("the first 100 of"),
        "{}",
        cut["notes"]
    );
    assert!(run("measure --length 100000").error(2).contains("--repeat"));
    let repeated = json("measure --length 3000 --repeat --layers 0 --heads 0");
    assert_eq!(repeated["length"], 3000);
    assert!(repeated["notes"].to_string().contains("repeated"));
    let text = run("measure --length 3000 --repeat --layers 0 --heads 0").stdout;
    assert!(text.contains("repeated to 3000"), "{text}");
}

/// Numbers that scores of thousands of nats leave no room for are missing, and a note says which.
#[test]
fn numbers_that_cannot_be_given_are_explained() {
    let folder = support::tiny_folder();
    let file = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let start = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..start]).unwrap();
    let tensors = header.as_object().unwrap().iter();
    for (_, tensor) in tensors.filter(|(name, _)| name.ends_with("query_key_value.weight")) {
        assert_eq!(tensor["dtype"], "BF16");
        let at = |i: usize| start + tensor["data_offsets"][i].as_u64().unwrap() as usize;
        for value in bytes[at(0)..at(1)].as_chunks_mut::<2>().0 {
            let wide = f32::from_bits(u32::from(u16::from_le_bytes(*value)) << 16);
            // exact, a power of two
            *value = (((wide * 256.0).to_bits() >> 16) as u16).to_le_bytes();
        }
    }
    std::fs::write(&file, bytes).unwrap();
    let tokens = folder.path().join("ids.txt");
    let ids: Vec<String> = (0..300).map(|i| (i * 37 % 251).to_string()).collect();
    std::fs::write(&tokens, ids.join(" ")).unwrap();
    let (model, tokens) = (folder.path().display(), tokens.display());
    let report = json(&format!("measure {model} --tokens {tokens}"));
    let missing = |head: &Value| {
        head["advantage_diagonal_max"].is_number() && head["advantage_diagonal_p99"].is_null()
    };
    assert!(report["heads"].as_array().unwrap().iter().any(missing));
    let notes = report["notes"].as_array().unwrap().iter();
    let said = notes.filter(|note| note.as_str().unwrap().contains("256 nats"));
    assert_eq!(said.count(), 1, "{}", report["notes"]);
}

/// Ids from another program, as `--text` takes text.
#[test]
#[cfg(target_os = "linux")]
fn token_ids_may_come_through_a_pipe() {
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("snellen"))
        .args(["measure", "--tokens", "/dev/stdin", "--json"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"1 2 3 4 5 6 7").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["text"]["tokens"], 7);
    snellen(["measure", "--tokens", "/dev/zero"]).error(2);
}

#[test]
fn bad_texts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    assert!(
        snellen(["measure", "--text", &file("empty.txt", b"")])
            .error(2)
            .contains("no tokens")
    );
    assert!(
        snellen(["measure", "--tokens", &file("large.txt", b"1 2 2048")])
            .error(2)
            .contains("large.txt")
    );
    snellen(["measure", "--tokens", &file("words.txt", b"one two")]).error(2);
    // also beyond the length that is used: such ids were made with another tokenizer
    let run = snellen([
        "measure",
        "--length",
        "1",
        "--tokens",
        &file("far.txt", b"1 2 2048"),
    ]);
    assert!(run.error(2).contains("used or not"));
    let ids = json(&format!(
        "measure --tokens {}",
        file("ids.txt", b"1 2 255\n0 7")
    ));
    assert_eq!(ids["length"], 5);
    assert_eq!(ids["text"]["tokenizer"], "ids");
    let model = tiny_folder();
    let model = model.path().to_str().unwrap();
    assert!(snellen(["measure", model]).error(2).contains("--text"));
    let text = file("text.txt", b"some text");
    assert!(
        snellen(["measure", model, "--text", &text])
            .error(2)
            .contains("tokenizer")
    );
    assert_eq!(
        json(&format!("measure {model} --bytes --text {text}"))["length"],
        9
    );
    let latin = file("latin.txt", b"caf\xe9");
    assert_eq!(
        json(&format!("measure {model} --bytes --text {latin}"))["length"],
        4
    );
}

#[test]
fn memory_is_estimated_and_the_limit_obeyed() {
    let line = run("measure --max-memory 1kB");
    let line = line.error(2);
    assert!(
        line.contains("estimate") && line.contains("--max-memory"),
        "{line}"
    );
    // refused before anything of that size is laid out
    run("measure --length 900000M --repeat --max-memory 8GiB").error(2);
    if cfg!(target_os = "linux") {
        // Without a limit it is what the machine has.
        let line = run("measure --length 900000M --repeat");
        assert!(line.error(2).contains("of this machine"), "{line:?}");
    }
    let model = tiny_folder();
    let line = snellen([
        "audit",
        "--max-memory",
        "1kB",
        model.path().to_str().unwrap(),
    ]);
    assert!(line.error(2).contains("estimate"), "{line:?}");
}

#[test]
fn audit_certifies_what_measure_observes() {
    let model = tiny_folder();
    let model = model.path().to_str().unwrap();
    let audit = json(&format!(
        "audit {model} --length 2371 --plan ieee,hf-eager:f16"
    ));
    let measure = json(&format!("{} --plan ieee,hf-eager:f16", measure_tiny()));
    assert_eq!(heads(&audit).len(), 16);
    let covers = |report: &Value| report["model"]["hash_covers"].as_str().unwrap().to_owned();
    assert!(covers(&audit).contains("that were read"));
    assert!(covers(&measure).contains("every byte"));
    for (proved, seen) in heads(&audit).iter().zip(heads(&measure)) {
        for key in ["slope", "effective_slope", "score_bound", "gap_bound"] {
            assert!(proved[key].is_number(), "{key} in {proved}");
        }
        assert!(seen["max_score"].as_f64().unwrap() <= proved["score_bound"].as_f64().unwrap());
        for plan in ["ieee", "hf-eager:f16"] {
            let (proved, seen) = (&proved["plans"][plan], &seen["plans"][plan]);
            if let (Some(first), Some(visible)) = (
                seen["first_blind_distance"].as_u64(),
                proved["guaranteed_visible"].as_u64(),
            ) {
                assert!(first > visible, "blind at {first}, guaranteed to {visible}");
            }
            if let (Some(last), Some(certified)) = (
                seen["last_visible_distance"].as_u64(),
                proved["certified_horizon"].as_u64(),
            ) {
                assert!(
                    last <= certified,
                    "seen at {last}, certified blind past {certified}"
                );
            }
        }
    }
    let some = json(&format!("audit {model} --layers 1 --heads 6"));
    assert_eq!(heads(&some).len(), 1);
    assert_eq!(heads(&some)[0]["head"], 6);
}

#[test]
fn damaged_weights_write_nothing() {
    let model = tiny_folder();
    let weights = model.path().join("model.safetensors");
    let whole = std::fs::read(&weights).unwrap();
    for cut in [whole.len() - 1, whole.len() / 2, 4] {
        std::fs::write(&weights, &whole[..cut]).unwrap();
        for verb in ["inspect", "audit"] {
            let run = snellen([verb, model.path().to_str().unwrap()]);
            assert!(
                run.error(2).contains("model.safetensors"),
                "{verb} cut to {cut}"
            );
        }
    }
    // a NaN among the query weights
    let mut poisoned = whole;
    let end = poisoned.len();
    poisoned[end - 2..].copy_from_slice(&0x7fc0_u16.to_le_bytes());
    std::fs::write(&weights, &poisoned).unwrap();
    let text = model.path().join("text.txt");
    std::fs::write(&text, "abc").unwrap();
    let run = snellen([
        "measure",
        model.path().to_str().unwrap(),
        "--bytes",
        "--text",
        text.to_str().unwrap(),
    ]);
    let line = run.error(2);
    let start = format!("error: {}", model.path().display());
    assert!(line.starts_with(&start), "{line}");
    // a header whose numbers do not fit says so as a sentence
    let header = br#"{"t":{"dtype":"F32","shape":[4],"data_offsets":[0,8]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend([0; 8]);
    std::fs::write(&weights, file).unwrap();
    let run = snellen(["inspect", model.path().to_str().unwrap()]);
    let line = run.error(2);
    assert!(
        line.contains("hold 8 (line 1") && !line.contains("at line"),
        "{line}"
    );
}

/// Audit and measure of Alilama at 4096 finish, and the observed first blind distance of
/// every head lies between its guaranteed-visible and certified distances.
#[test]
fn alilama_is_blind_where_its_weights_say() {
    if shared_data("models/alilama/tokenizer.model").is_none() {
        return;
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let spec = format!("{root}/specs/alilama.toml");
    let text = format!("{root}/crates/cli/tests/tiny/text.txt");
    let plans = ["ieee", "ftz", "hf-eager:f16"];
    let audit = json(&format!(
        "audit {spec} --length 4096 --plan {}",
        plans.join(",")
    ));
    let measure = json(&format!(
        "measure {spec} --text {text} --length 4096 --repeat --plan {}",
        plans.join(",")
    ));
    assert_eq!(heads(&measure).len(), 32);
    let mut blind = 0;
    for (proved, seen) in heads(&audit).iter().zip(heads(&measure)) {
        for plan in plans {
            let (proved, seen) = (&proved["plans"][plan], &seen["plans"][plan]);
            // without a guarantee not even the query's own key is certain
            let visible = proved["guaranteed_visible"].as_i64().unwrap_or(-1);
            let certified = proved["certified_horizon"].as_i64().unwrap();
            match seen["first_blind_distance"].as_i64() {
                Some(first) => {
                    blind += 1;
                    assert!(
                        visible < first && first <= certified + 1,
                        "{visible} {first} {certified}"
                    );
                }
                None => assert!(
                    certified >= 4095,
                    "nothing blind though certified blind past {certified}"
                ),
            }
        }
    }
    assert!(blind > 32, "{blind} observations test little");
}

/// The checkpoints that transformers saved run through the command as they are.
#[test]
fn checkpoints_of_every_family_run() {
    let folder = tempfile::tempdir().unwrap();
    let ids = folder.path().join("ids.txt");
    let text: Vec<String> = (0..200).map(|i| (i * 7 % 500).to_string()).collect();
    std::fs::write(&ids, text.join(" ")).unwrap();
    for family in ["bloom", "mpt", "falcon"] {
        let Some(path) = shared_data(&format!("fixtures/tiny_{family}")) else {
            return;
        };
        let path = path.display();
        assert_eq!(json(&format!("inspect {path}"))["model"]["family"], family);
        let report = json(&format!(
            "measure {path} --tokens {} --length 200 --plan ieee,hf-eager",
            ids.display()
        ));
        assert_eq!(report["length"], 200);
        let audit = json(&format!("audit {path}"));
        assert_eq!(heads(&audit).len(), heads(&report).len());
    }
}
