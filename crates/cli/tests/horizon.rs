//! `snellen horizon` from the outside: the golden numbers, through arguments and JSON.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::path::Path;
use support::{config_folder, json, run, snellen};

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("a number, not {value}"))
}

/// docs/NUMERICS.md, Published table.
#[test]
fn sixteen_heads_flushed_at_2048() {
    let report = json("horizon --heads 16 --length 2048 --plan ftz");
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["length"], 2048);
    assert_eq!(report["plan"], "ftz");
    assert_eq!(report["heads"][0]["head"], 0);
    assert_eq!(report["heads"][0]["first_blind_distance"], 124);
    // 36.55 % counting keys, 36.57 % by the continuous formula that gives the published 36.6 %
    assert!((number(&report["summary"]["blind_share_last_row"]) - 0.3655).abs() < 5e-5);
    assert!((number(&report["summary"]["blind_share_last_row_continuous"]) - 0.3657).abs() < 5e-5);
    let pairs: u64 = 2048 * 2049 / 2;
    for head in report["heads"].as_array().unwrap() {
        assert_eq!(head["pairs"], pairs);
        for key in [
            "slope",
            "blind_pairs",
            "blind_share_last_row",
            "distinct_bias_last_20",
        ] {
            assert!(head[key].is_number(), "{key} in {head}");
        }
    }
}

/// As above: the log remedy moves the first blind distance to 4.373e53.
#[test]
fn the_log_remedy_is_never_blind_within_any_length() {
    let report = json("horizon --heads 16 --length 2048 --plan ftz --remedy log");
    let first = number(&report["heads"][0]["first_blind_distance"]);
    assert!((first / 4.373e53 - 1.0).abs() < 1e-3, "{first}");
    assert_eq!(report["remedy"], "log");
    assert_eq!(report["summary"]["heads_touched"], 0);
    for head in report["heads"].as_array().unwrap() {
        assert_eq!(head["blind_pairs"], 0);
    }
}

/// docs/NUMERICS.md, Shares of blind pairs: causal pairs below -103.97, bias alone.
#[test]
fn golden_counts_of_head_counts() {
    for (heads, length, share, touched) in [
        (12, 2048, 0.343, 8),
        (16, 2048, 0.257, 8),
        (32, 2048, 0.271, 17),
        (12, 8192, 0.597, 10),
        (16, 8192, 0.491, 12),
        (32, 8192, 0.506, 25),
    ] {
        let report = json(&format!(
            "horizon --heads {heads} --length {length} --plan ieee --criterion exp"
        ));
        assert!(
            (number(&report["summary"]["blind_share"]) - share).abs() < 5e-4,
            "{heads} heads at {length}"
        );
        assert_eq!(
            report["summary"]["heads_touched"], touched,
            "{heads} heads at {length}"
        );
    }
}

/// docs/NUMERICS.md, Falcon (https://github.com/NVIDIA/TensorRT-Model-Connect/pull/32): Falcon adds the bias before the scale, so the same slope reaches eight times as far.
#[test]
fn falcon_scales_its_bias() {
    let report = json("horizon --like falcon-rw-1b --criterion exp --plan ieee");
    assert_eq!(report["heads"][0]["first_blind_distance"], 990);
    assert!((number(&report["heads"][0]["effective_slope"]) - 0.105_112).abs() < 1e-6);
    let bloom = json("horizon --like bloom-7b1 --criterion exp --plan ieee");
    assert_eq!(bloom["heads"][0]["first_blind_distance"], 124);
    let run = run("horizon --family falcon --heads 32 --plan ieee");
    assert!(run.error(2).contains("--head-width"));
}

/// docs/NUMERICS.md, Both directions: bidirectional and causal pairs of one head of slope 0.5 at 1024.
/// A specification whose bias is scaled with the score has the blind pairs of one whose slopes are that much flatter, under every plan.
#[test]
fn a_specification_that_scales_its_bias_has_flatter_slopes() {
    let folder = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/alilama.toml");
    let example = std::fs::read_to_string(example).unwrap();
    let example = example.replace("[attention]\n", "[attention]\nscale = 0.125\n");
    let described = |name: &str, slopes: [f64; 8], more: &str| {
        let (before, rest) = example.split_once("[alibi]").unwrap();
        let rest = &rest[rest.find("\n[").unwrap()..];
        let alibi = format!("[alibi]\nschedule = \"list\"\nslopes = {slopes:?}\n{more}");
        let path = folder.path().join(name);
        std::fs::write(&path, format!("{before}{alibi}{rest}")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let slopes = [4.0, 2.0, 1.0, 0.75, 0.5, 0.25, 0.125, 0.0625];
    let steep = described("steep.toml", slopes, "bias_before_scale = true\n");
    let flat = described("flat.toml", slopes.map(|slope| slope / 8.0), "");
    let mut blind = 0;
    for plan in [
        "ieee",
        "ftz:f16",
        "hf-eager:bf16",
        "hf-sdpa",
        "flash-attn2:f16",
        "vllm-triton",
        "llama-cpp-cpu",
        "flex-attention",
    ] {
        let counts = |path: &str| -> Vec<(Value, Value)> {
            let report = json(&format!("horizon {path} --length 1500 --plan {plan}"));
            let heads = report["heads"].as_array().unwrap().iter();
            let of = |head: &Value| (head["blind_pairs"].clone(), head["effective_slope"].clone());
            heads.map(of).collect()
        };
        let steep = counts(&steep);
        assert_eq!(steep, counts(&flat), "{plan}");
        blind += steep[0].0.as_u64().unwrap();
    }
    assert!(blind > 0);
}

#[test]
fn both_sides_of_an_encoder() {
    let report =
        json("horizon --slopes 0.5 --length 1024 --bidirectional --criterion exp --plan ieee");
    assert_eq!(report["heads"][0]["blind_pairs"], 666_672);
    assert_eq!(report["heads"][0]["pairs"], 1_048_576);
    let causal = json("horizon --slopes 0.5 --length 1024 --criterion exp --plan ieee");
    assert_eq!(causal["heads"][0]["blind_pairs"], 333_336);
    assert_eq!(causal["heads"][0]["pairs"], 524_800);
}

/// docs/NUMERICS.md, Position collapse: position collapse by format and by form.
#[test]
fn collapse_depends_on_format_and_form() {
    let distinct = |flags: &str| {
        let report = json(&format!(
            "horizon --heads 32 --length 8192 --plan ieee {flags}"
        ));
        let head = &report["heads"][0];
        let of = |key: &str| head[key].as_u64().unwrap();
        (
            of("distinct_bias_last_20"),
            of("distinct_bias_first_20"),
            of("longest_equal_run"),
        )
    };
    assert_eq!(distinct("--convention absolute --bias-dtype f32").0, 20);
    assert_eq!(
        distinct("--convention absolute --bias-dtype f16"),
        (5, 20, 5)
    );
    let (last, _, run) = distinct("--convention absolute --bias-dtype bf16");
    assert_eq!((last, run), (1, 39));
    let (last, first, _) = distinct("--convention relative --bias-dtype bf16");
    assert_eq!((last, first), (20, 1));
}

/// docs/NUMERICS.md, Slopes (https://github.com/paiml/aprender/pull/2143, https://github.com/ml-explore/mlx/pull/3071).
#[test]
fn slopes_in_order() {
    let of = |heads: u64| {
        let report = json(&format!("horizon --heads {heads}"));
        report["heads"]
            .as_array()
            .unwrap()
            .iter()
            .map(|head| number(&head["slope"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of(8),
        [
            0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625
        ]
    );
    assert_eq!(of(6), [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]);
    assert_eq!(of(3), [0.0625, 0.00390625, 0.25]);
    let sorted = json("horizon --heads 3 --sort slope");
    let order: Vec<_> = sorted["heads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|head| head["head"].as_u64().unwrap())
        .collect();
    assert_eq!(order, [2, 0, 1]);
    let printed = run("horizon --print-slopes --heads-total 8").stdout;
    assert_eq!(printed.lines().count(), 9);
    assert!(printed.lines().nth(1).unwrap().contains("0.5"));
}

/// transformers forms BLOOM's slopes as powers of an f32 number: with 16 heads 1/2 is 0.49999997, and biases that would be ties of bf16
/// round the other way. Blind pairs and first blind distances by transformers 5.24 and torch 2.15 (`build_alibi_tensor` in bf16, the causal
/// mask added, softmax in f32 and the cast back), 2048 tokens.
#[test]
fn bloom_has_the_slopes_of_transformers() {
    let report = json("horizon --like bloom-560m --length 2048 --plan hf-eager:bf16");
    for (head, blind, first) in [(1, 1_739_477, 179), (3, 1_415_742, 362), (7, 184_098, 1440)] {
        let head = &report["heads"][head];
        assert_eq!(head["blind_pairs"], blind, "{head}");
        assert_eq!(head["first_blind_distance"], first, "{head}");
    }
}

#[test]
fn several_plans_keep_their_own_results_and_the_first_leads() {
    let report = json("horizon --heads 16 --plan ieee,ftz --plan hf-eager:bf16,ftz");
    let keys: Vec<_> = report["plans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|plan| plan["plan"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["ieee", "ftz", "hf-eager:bf16"]);
    assert_eq!(report["plan"], "ieee");
    assert_eq!(report["heads"], report["plans"][0]["heads"]);
    assert_ne!(report["heads"], report["plans"][1]["heads"]);
    for step in report["plans"][2]["steps"].as_array().unwrap() {
        assert!(!step["source"].as_str().unwrap().is_empty());
    }
}

#[test]
fn known_models_need_no_file_and_unknown_ones_are_answered() {
    for model in [
        "bloom-560m",
        "mpt-7b-storywriter",
        "jina-v2-base",
        "bigscience/bloom-7b1",
    ] {
        assert_eq!(snellen(["horizon", "--like", model]).code, 0, "{model}");
    }
    let run = run("horizon --like blom-560m");
    assert!(run.error(2).contains("did you mean \"bloom-560m\"?"));
}

#[test]
fn a_configuration_alone_is_enough() {
    let folder = config_folder(
        r#"{"model_type": "bloom", "n_head": 32, "hidden_size": 4096, "n_layer": 2}"#,
    );
    let folder_path = folder.path().to_str().unwrap();
    for path in [folder_path.to_owned(), format!("{folder_path}/config.json")] {
        let report = json(&format!("horizon {path} --plan ieee --criterion exp"));
        assert_eq!(report["model"]["family"], "bloom");
        assert_eq!(report["heads"][0]["first_blind_distance"], 124);
    }
}

#[test]
fn lengths_at_the_edges() {
    let one = json("horizon --heads 16 --length 1");
    assert_eq!(one["heads"][0]["pairs"], 1);
    assert_eq!(one["heads"][0]["blind_pairs"], 0);
    json("horizon --heads 112 --length 1000003");
    assert!(
        run("horizon --heads 16 --length 0")
            .error(2)
            .contains("--length")
    );
    assert!(run("horizon --heads 0").error(2).contains("head count"));
    assert!(run("horizon").error(2).contains("--like"));
}

#[test]
fn the_chart_of_many_heads_wraps() {
    let run = run("horizon --like bloom --plan ieee");
    assert_eq!(run.code, 0);
    let too_wide: Vec<_> = run
        .stdout
        .lines()
        .filter(|line| line.chars().count() > 100)
        .collect();
    assert!(too_wide.is_empty(), "{too_wide:#?}");
}

/// docs/FAMILIES.md, Traps: a trap is a finding with its code wherever the model is described, a file or none.
#[test]
fn traps_are_findings_that_fail_on_can_name() {
    let line = "horizon --like falcon-rw-1b --plan hf-eager";
    let report = json(line);
    let trap = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["code"] == "SN008")
        .unwrap();
    assert_eq!(
        (&trap["severity"], &trap["plan"]),
        (&Value::from("error"), &Value::from("hf-eager"))
    );
    assert_eq!(run(line).code, 1);
    assert_eq!(run(&format!("{line} --fail-on SN009")).code, 0);
    assert_eq!(run(&format!("{line} --exit-zero")).code, 0);
    // under another plan it is a note, which --fail-on can still name
    let other = "horizon --like falcon-rw-1b --plan ftz";
    assert_eq!(run(other).code, 0);
    assert_eq!(run(&format!("{other} --fail-on SN008")).code, 1);
    let storywriter = "horizon --like mpt-7b-storywriter --plan hf-sdpa --fail-on SN009";
    assert_eq!(run(storywriter).code, 1);
    // every check is accounted for, and what needs a text says so
    assert!(report["checks"].as_array().unwrap().len() >= 15);
    assert!(report["skipped"].to_string().contains("snellen measure"));
    // what horizon says to run next, it can run
    for finding in report["findings"].as_array().unwrap() {
        let next = finding["next_command"].as_str().unwrap();
        let next = next.strip_prefix("snellen ").unwrap();
        assert!(run(next).code <= 1, "{next}");
    }
}

/// Every next command of a description names the whole description.
#[test]
fn next_commands_repeat_what_describes_the_model() {
    let mut tried = 0;
    for line in [
        "--heads 12 --family falcon --head-width 64 --plan hf-eager --length 4096",
        "--heads 8 --slopes mpt --bias-max 16 --plan hf-eager:bf16",
        "--heads 3 --slopes 0.5,0.1,0.01 --family bloom --plan hf-eager:bf16 --length 8192",
        "--like mpt-7b-storywriter --plan hf-eager:f16",
    ] {
        let report = json(&format!("horizon {line}"));
        for finding in report["findings"].as_array().unwrap() {
            let next = finding["next_command"].as_str().unwrap();
            let Some(next) = next.strip_prefix("snellen horizon ") else {
                continue;
            };
            let answer = json(&format!("horizon {next}"));
            assert_eq!(
                answer["model"]["family"], report["model"]["family"],
                "{next}"
            );
            assert_eq!(
                answer["heads"][0]["slope"], report["heads"][0]["slope"],
                "{next}"
            );
            if !next.contains("--length 2048") {
                assert_eq!(answer["length"], report["length"], "{next}");
            }
            tried += 1;
        }
    }
    assert!(tried > 5, "{tried}");
}

#[test]
fn flags_that_describe_are_refused_where_they_would_be_ignored() {
    for line in [
        "--like bloom-560m --family mpt",
        "--like falcon-rw-1b --head-width 4",
    ] {
        run(&format!("horizon {line}")).error(2);
    }
    let both = json("horizon --like bloom-560m --bidirectional");
    assert_eq!(both["model"]["causal"], false);
    assert!(both["notes"].to_string().contains("--bidirectional"));
    // The threshold that is shown is the one that decides: of weights, where they are cast to f16.
    let page = run("horizon --like bloom-560m --plan hf-eager:f16 --format md").stdout;
    assert!(page.contains("| 17.3") && !page.contains("104.0"), "{page}");
}

/// Rows that are NaN have no weights: shares are of the others.
#[test]
fn shares_leave_rows_that_are_nan_out() {
    let report = json("horizon --like bloom-560m --plan hf-eager:f16 --length 131072");
    let head = &report["heads"][0];
    let number = |key: &str| head[key].as_f64().unwrap();
    let share = number("blind_pairs") / (number("pairs") - number("nan_pairs"));
    assert!(number("nan_rows") > 0.0 && share > 0.999, "{head}");
    assert_eq!(number("blind_share"), share);
    assert!(head["blind_share_last_row_continuous"].is_null());
    let summary = report["summary"]["blind_share"].as_f64().unwrap();
    assert!(summary > 0.98, "{summary}");
}

#[test]
fn inspect_reports_the_traps_of_a_configuration() {
    let folder = config_folder(
        r#"{"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 1, "max_seq_len": 64, "vocab_size": 64,
            "attn_config": {"alibi": true, "alibi_bias_max": 16}}"#,
    );
    let path = folder.path().to_str().unwrap();
    let report = json(&format!("inspect {path}"));
    let codes: Vec<_> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["code"].as_str().unwrap())
        .collect();
    assert!(codes.contains(&"SN009"), "{codes:?}");
    assert!(report["checks"].as_array().unwrap().len() >= 15);
    assert_eq!(run(&format!("inspect {path}")).code, 0);
    assert_eq!(run(&format!("inspect {path} --fail-on SN009")).code, 1);
    // What transformers runs has the slopes of a maximum of 8: 2^-2 where the configuration says 2^-4.
    let slopes = |plan: &str| {
        let report = json(&format!("horizon {path} --length 2048 --plan {plan}"));
        let head = &report["heads"][0];
        assert_eq!(head["slope"], 0.0625);
        (
            head["effective_slope"].as_f64().unwrap(),
            head["first_blind_distance"].as_f64().unwrap(),
        )
    };
    let (configured, far) = slopes("foundry-torch");
    let (used, near) = slopes("hf-eager");
    assert_eq!((configured, used), (0.0625, 0.25));
    let report = json("horizon --slopes 0.25 --family mpt --length 2048 --plan hf-eager");
    let quarter = report["heads"][0]["first_blind_distance"].as_f64().unwrap();
    assert_eq!(near, quarter);
    assert!(near < 0.3 * far);
}

/// https://github.com/mosaicml/llm-foundry/issues/186: where precision is lost depends on the form, so an idealised plan counts
/// collapse in the family's own, and the report says which.
#[test]
fn idealised_plans_store_the_bias_as_the_family_does() {
    for (model, convention, origin, nearest_apart) in [
        ("bloom-7b1", "absolute", "first key", false),
        ("mpt-7b", "absolute", "last key", true),
        ("btlm-3b", "relative", "query", true),
        ("jina-v2-base", "relative", "query", true),
    ] {
        let report = json(&format!(
            "horizon --like {model} --length 8192 --plan ieee --bias-dtype bf16"
        ));
        assert_eq!(report["convention"], convention, "{model}");
        assert_eq!(report["key_origin"], origin, "{model}");
        let steepest = &report["heads"][0];
        let apart = |key: &str| steepest[key] == 20;
        assert_eq!(apart("distinct_bias_last_20"), nearest_apart, "{model}");
        assert_eq!(apart("distinct_bias_first_20"), !nearest_apart, "{model}");
    }
}

#[test]
fn a_head_without_slope_is_not_the_steepest() {
    let text = run("horizon --slopes 0,0 --length 1").stdout;
    assert!(
        text.contains("1 token\n") && !text.contains("1 tokens"),
        "{text}"
    );
    assert!(!text.contains("steepest"), "{text}");
}
