//! Which configurations have linear biases, under which convention, and what broken ones say (docs/FAMILIES.md,
//! Detection).
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::path::Path;

use numerics::{BiasForm, Family, KeyOrigin};
use snellen_checkpoint::config::parse_config;
use snellen_checkpoint::{DescribedModel, ErrorKind, ModelFacts, Note, open};
use support::{BLOOM_CONFIG, FALCON_CONFIG, MPT_CONFIG, check_error, check_text, folder};

fn facts(config: &str) -> ModelFacts {
    parse_config(config.as_bytes(), Path::new("config.json")).unwrap()
}

fn refused(config: &str, kind: ErrorKind, expect: &[&str]) {
    let error = parse_config(config.as_bytes(), Path::new("dir/config.json")).expect_err(config);
    check_text(&error, kind, &["dir/config.json: "]);
    check_text(&error, kind, expect);
}

fn ids(facts: &ModelFacts) -> Vec<&'static str> {
    facts.notes.iter().map(Note::id).collect()
}

const JAIS: &str = r#"{"model_type": "jais", "position_embedding_type": "alibi", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 2048,
 "mup_scale_qk_dot_by_d": true}"#;
const BTLM: &str = r#"{"model_type": "btlm", "position_embedding_type": "alibi", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 8192,
 "alibi_scaling": {"type": "linear", "train_seq_len": 8192}, "scale_qk_dot_by_d": true}"#;
const REFACT: &str = r#"{"model_type": "gpt_refact", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 4096, "vocab_size": 49216}"#;
const JINA: &str = r#"{"model_type": "bert", "position_embedding_type": "alibi", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
 "max_position_embeddings": 8192}"#;
const DNABERT: &str = r#"{"model_type": "bert", "position_embedding_type": "absolute", "alibi_starting_size": 512, "hidden_size": 768,
 "num_hidden_layers": 12, "num_attention_heads": 12}"#;
const REPLIT: &str = r#"{"model_type": "replit_lm", "alibi": true, "alibi_bias_max": 8, "d_model": 60, "n_heads": 12, "n_layers": 2, "max_seq_len": 2048}"#;

fn baichuan(layers: usize) -> String {
    format!(
        r#"{{"model_type": "baichuan", "hidden_size": 5120, "num_hidden_layers": {layers}, "num_attention_heads": 40, "model_max_length": 4096}}"#
    )
}

/// Five ways to spell the switch (https://github.com/antonellof/ferrox/pull/243), each with its own convention and score scale.
#[test]
fn families_with_linear_biases() {
    let bloom = facts(BLOOM_CONFIG);
    assert_eq!(
        (bloom.family, bloom.bias_max, bloom.causal),
        (Family::Bloom, Some(8.0), true)
    );
    assert_eq!(
        (bloom.convention.form, bloom.convention.key_origin),
        (BiasForm::KeyPosition, KeyOrigin::Zero)
    );
    assert_eq!(bloom.score_scale, 1.0 / 8f64.sqrt());
    assert!(bloom.evidence.contains("always"));

    let mpt = facts(MPT_CONFIG);
    assert_eq!(
        (mpt.family, mpt.trained_length, mpt.bias_max),
        (Family::Mpt, Some(64), Some(8.0))
    );
    assert_eq!(mpt.evidence, "attn_config.alibi = true");

    let falcon = facts(FALCON_CONFIG);
    assert_eq!((falcon.family, falcon.n_kv_heads), (Family::Falcon, 4));
    assert_eq!(
        ids(&falcon),
        [
            "falcon-double-bias",
            "falcon-bf16-bias",
            "falcon-runtimes-refuse"
        ]
    );

    let jais = facts(JAIS);
    assert_eq!(
        (jais.family, jais.score_scale, jais.convention.form),
        (Family::Jais, 1.0 / 16.0, BiasForm::Relative)
    );
    let btlm = facts(BTLM);
    assert_eq!(
        (btlm.family, btlm.score_scale, btlm.bias_scale()),
        (Family::Jais, 1.0 / 16.0, 1.0)
    );
    assert!(btlm.notes.contains(&Note::AlibiScaling {
        factor: None,
        train_seq_len: Some(8192)
    }));
    let scaled = facts(&BTLM.replace(r#""train_seq_len": 8192"#, r#""factor": 2.0"#));
    assert_eq!(scaled.bias_scale(), 0.5);

    let refact = facts(REFACT);
    assert_eq!(
        (
            refact.family,
            refact.convention.key_origin,
            refact.n_kv_heads
        ),
        (Family::Refact, KeyOrigin::One, 1)
    );

    let jina = facts(JINA);
    assert_eq!(
        (jina.family, jina.causal, jina.trained_length),
        (Family::JinaBert, false, None)
    );

    // The starting size is reported, and is no limit (https://github.com/MAGICS-LAB/DNABERT_2/issues/57).
    let dnabert = facts(DNABERT);
    assert_eq!(
        (dnabert.family, dnabert.causal, dnabert.trained_length),
        (Family::MosaicBert, false, None)
    );
    assert_eq!(dnabert.notes, [Note::AlibiStartingSize { size: 512 }]);

    assert_eq!(facts(&baichuan(40)).family, Family::Baichuan);
    let replit = facts(REPLIT);
    assert_eq!(replit.family, Family::Replit);
    assert_eq!(replit.slope_values().unwrap()[0], 2f64.powf(-8.0 / 12.0));
}

/// The negative of each family that has one.
#[test]
fn families_without_linear_biases() {
    for (config, seen) in [
        (
            MPT_CONFIG.replace("\"alibi\": true", "\"alibi\": false"),
            "attn_config.alibi = false",
        ),
        (
            FALCON_CONFIG.replace("\"alibi\": true", "\"alibi\": false"),
            "alibi = false",
        ),
        (
            FALCON_CONFIG.replace("\"alibi\": true", "\"alibi\": null"),
            "no key \"alibi\"",
        ),
        (
            JAIS.replace("\"alibi\"", "\"learned\""),
            "position_embedding_type = \"learned\"",
        ),
        (
            JINA.replace("\"alibi\"", "\"absolute\""),
            "position_embedding_type = \"absolute\"",
        ),
        (r#"{"model_type": "bert"}"#.to_owned(), "learned positions"),
        (baichuan(32), "rotary"),
        (
            r#"{"model_type": "llama"}"#.to_owned(),
            "\"llama\", which has rotary position embeddings",
        ),
        (
            r#"{"model_type": "gpt2"}"#.to_owned(),
            "\"gpt2\", which has learned",
        ),
        (
            r#"{"model_type": "t5"}"#.to_owned(),
            "relative position buckets",
        ),
        (
            r#"{"architectures": ["LlamaForCausalLM"]}"#.to_owned(),
            "\"llama\"",
        ),
        (
            r#"{"model_type": "newthing", "alibi": false}"#.to_owned(),
            "alibi = false",
        ),
        (
            r#"{"model_type": "newthing", "position_embedding_type": "rotary"}"#.to_owned(),
            "rotary",
        ),
    ] {
        refused(&config, ErrorKind::NotAlibi, &[seen]);
    }
}

/// What cannot be told is an error, never a guess.
#[test]
fn families_that_cannot_be_told() {
    for (config, seen) in [
        (r#"{"model_type": "newthing"}"#.to_owned(), "cannot tell"),
        ("{}".to_owned(), "no model_type and no architectures"),
        (
            r#"{"model_type": "newthing", "alibi": true}"#.to_owned(),
            "alibi = true, but the family is not known",
        ),
        (
            r#"{"model_type": "newthing", "position_embedding_type": "alibi"}"#.to_owned(),
            "spec file",
        ),
        (
            r#"{"model_type": "gpt2", "position_embedding_type": "alibi"}"#.to_owned(),
            "family is not known",
        ),
        (
            MPT_CONFIG.replace("\"alibi\": true, ", ""),
            "attn_config.alibi",
        ),
        (
            JAIS.replace("\"position_embedding_type\": \"alibi\", ", ""),
            "cannot tell",
        ),
        (baichuan(36), "num_hidden_layers = 36"),
        (
            REPLIT.replace("\"alibi_bias_max\": 8", "\"alibi_bias_max\": 16"),
            "12 heads",
        ),
        (
            MPT_CONFIG.replace(
                "\"alibi\": true",
                "\"alibi\": true, \"attn_type\": \"novel\"",
            ),
            "attn_type",
        ),
    ] {
        refused(&config, ErrorKind::UnknownFamily, &[seen]);
    }
}

#[test]
fn broken_configurations_say_key_expected_and_found() {
    let bloom = |from: &str, to: &str| BLOOM_CONFIG.replace(from, to);
    for (config, kind, expect) in [
        (
            bloom("\"n_head\": 4", "\"n_head\": \"four\""),
            ErrorKind::Malformed,
            vec!["\"n_head\"", "whole number", "the text \"four\""],
        ),
        (
            bloom("\"n_head\": 4", "\"n_head\": 4.5"),
            ErrorKind::Malformed,
            vec!["\"n_head\"", "found 4.5"],
        ),
        (
            bloom("\"n_head\": 4", "\"n_head\": 0"),
            ErrorKind::Malformed,
            vec!["\"n_head\"", "found 0"],
        ),
        (
            bloom("\"n_head\": 4", "\"n_head\": 99999999999"),
            ErrorKind::Malformed,
            vec!["\"n_head\"", "from 1 to 16777216"],
        ),
        (
            bloom("\"n_head\": 4", "\"n_head\": 512").replace("32", "512"),
            ErrorKind::Malformed,
            vec!["\"n_head\"", "256", "found 512"],
        ),
        (
            bloom("\"n_layer\": 2", "\"n_layer\": 1000000"),
            ErrorKind::Malformed,
            vec!["\"n_layer\"", "10000"],
        ),
        (
            bloom("\"n_head\": 4, ", ""),
            ErrorKind::Missing,
            vec![
                "\"n_head\" (or \"num_attention_heads\") is missing",
                "add it",
            ],
        ),
        (
            bloom("\"n_head\": 4", "\"n_head\": 4, \"num_attention_heads\": 8"),
            ErrorKind::Malformed,
            vec!["mean the same and differ"],
        ),
        (
            bloom("\"n_head\": 4", "\"n_head\": 4, \"n_head\": 8"),
            ErrorKind::Malformed,
            vec!["\"n_head\" appears twice"],
        ),
        (
            MPT_CONFIG.replace("{\"alibi\": true, \"alibi_bias_max\": 8}", "[1]"),
            ErrorKind::Malformed,
            vec!["\"attn_config\"", "an object", "a list of 1 items"],
        ),
        (
            MPT_CONFIG.replace("\"alibi\": true", "\"alibi\": \"yes\""),
            ErrorKind::Malformed,
            vec!["\"attn_config.alibi\"", "true or false", "\"yes\""],
        ),
        (
            MPT_CONFIG.replace("_max\": 8", "_max\": -1"),
            ErrorKind::Malformed,
            vec!["\"attn_config.alibi_bias_max\"", "above 0", "-1"],
        ),
        (
            "[]".to_owned(),
            ErrorKind::Malformed,
            vec!["expected an object"],
        ),
        (
            BLOOM_CONFIG[..40].to_owned(),
            ErrorKind::Malformed,
            vec!["cut off"],
        ),
        (
            String::new(),
            ErrorKind::Malformed,
            vec!["cut off or empty"],
        ),
        (
            "{\"model_type\": NaN}".to_owned(),
            ErrorKind::Malformed,
            vec!["not JSON"],
        ),
    ] {
        refused(&config, kind, &expect);
    }
}

/// Falcon's bias is scaled with the score, so its effective slope is 1/8 of BLOOM's at head width 64
/// (https://github.com/NVIDIA/TensorRT-Model-Connect/pull/32).
#[test]
fn falcon_effective_slope() {
    let config = FALCON_CONFIG
        .replace("\"hidden_size\": 32", "\"hidden_size\": 2048")
        .replace("_heads\": 4", "_heads\": 32");
    let facts = facts(&config);
    let effective = facts.slope_values().unwrap()[0] * facts.bias_scale();
    assert!((effective - 0.105_112).abs() < 1e-6, "{effective}");
    let bloom = parse_config(BLOOM_CONFIG.as_bytes(), Path::new("c")).unwrap();
    assert_eq!(bloom.bias_scale(), 1.0);
}

#[test]
fn mpt_settings() {
    let config = MPT_CONFIG.replace(
        "_max\": 8",
        "_max\": 16, \"softmax_scale\": 0.25, \"attn_logit_softcapping\": 30.0",
    );
    let facts = facts(&config);
    assert_eq!((facts.score_scale, facts.bias_max), (0.25, Some(16.0)));
    assert_eq!(facts.slope_values().unwrap()[0], 2f64.powi(-4));
    assert_eq!(facts.bias.soft_cap.unwrap().cap, 30.0);
    assert!(
        facts
            .notes
            .contains(&Note::MptBiasMaxIgnored { bias_max: 16.0 })
    );
    assert!(facts.notes.contains(&Note::MptSoftmaxScaleDropped {
        softmax_scale: 0.25
    }));
    // Configurations before attn_config existed keep the switch at the top.
    let old = MPT_CONFIG.replace(
        r#""attn_config": {"alibi": true, "alibi_bias_max": 8}"#,
        r#""alibi": true"#,
    );
    assert_eq!(
        parse_config(old.as_bytes(), Path::new("c"))
            .unwrap()
            .evidence,
        "alibi = true"
    );
}

#[test]
fn a_refact_that_stays_in_its_dtype_is_noted() {
    let key = "attention_softmax_in_fp32";
    let with =
        |value: &str| facts(&REFACT.replacen('{', &format!("{{\"{key}\": {value}, "), 1)).notes;
    let note = Note::RefactHalfPrecision { key };
    assert!(with("false").contains(&note) && !with("true").contains(&note));
}

/// Settings that transformers' own MPT code does not read, beside those of attention, and the GELU that llama.cpp has.
#[test]
fn mpt_settings_of_the_block() {
    let with = |more: &str| {
        let config = MPT_CONFIG.replacen('{', &format!("{{{more}, "), 1);
        facts(&config).notes
    };
    let ignored = |notes: &[Note]| -> Vec<String> {
        let settings = notes.iter().filter_map(|note| match note {
            Note::MptSettingIgnored { setting, .. } => Some(setting.clone()),
            _ => None,
        });
        settings.collect()
    };
    for (more, setting, gelu) in [
        (r#""tie_word_embeddings": true"#, None, true),
        (r#""norm_type": "low_precision_layernorm""#, None, true),
        (
            r#""norm_type": "rmsnorm""#,
            Some("norm_type is rmsnorm"),
            true,
        ),
        (r#""expansion_ratio": 4"#, None, true),
        (
            r#""expansion_ratio": 2"#,
            Some("expansion_ratio is 2"),
            true,
        ),
        (
            r#""final_logit_softcapping": 5"#,
            Some("final_logit_softcapping is 5"),
            true,
        ),
        (
            r#""ffn_config": {"ffn_act_fn": {"name": "gelu", "approximate": "none"}}"#,
            None,
            true,
        ),
        (
            r#""ffn_config": {"ffn_act_fn": {"name": "gelu", "approximate": "tanh"}}"#,
            Some("ffn_config.ffn_act_fn is not the erf GELU"),
            false,
        ),
        (
            r#""ffn_config": {"ffn_act_fn": {"name": "relu"}}"#,
            Some("ffn_config.ffn_act_fn is not the erf GELU"),
            false,
        ),
    ] {
        let notes = with(more);
        let expected: Vec<&str> = setting.into_iter().collect();
        assert_eq!(ignored(&notes), expected, "{more}");
        assert_eq!(notes.contains(&Note::LlamaCppTanhGelu), gelu, "{more}");
    }
}

/// Families without a reader of weights open as configurations, with a clear reason, whatever lies beside them.
#[test]
fn config_only_families() {
    for config in [JAIS, REFACT, JINA, DNABERT, REPLIT] {
        let dir = folder(config, &[]);
        std::fs::write(dir.path().join("model.safetensors"), b"never looked at").unwrap();
        let checkpoint = open(dir.path()).unwrap();
        check_text(
            &checkpoint.runnable().unwrap_err(),
            ErrorKind::Unsupported,
            &["not supported yet", "horizon"],
        );
        assert!(checkpoint.tensor_table().is_empty());
    }
    check_error(
        open(folder(r#"{"model_type": "llama"}"#, &[]).path()),
        ErrorKind::NotAlibi,
        &["config.json", "nothing to measure"],
    );
}

#[test]
fn names_come_from_the_folder() {
    let dir = folder(BLOOM_CONFIG, &[]);
    let expected = dir.path().file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(open(dir.path()).unwrap().config.name, expected);
    let hub = dir
        .path()
        .join("models--bigscience--bloom-560m/snapshots/0123");
    std::fs::create_dir_all(&hub).unwrap();
    std::fs::write(hub.join("config.json"), BLOOM_CONFIG).unwrap();
    assert_eq!(open(&hub).unwrap().config.name, "bigscience/bloom-560m");
}

/// Every note has its own identifier and a one-line text.
#[test]
fn notes_are_distinct() {
    let mut all = Vec::new();
    for config in [
        BLOOM_CONFIG,
        FALCON_CONFIG,
        MPT_CONFIG,
        JAIS,
        BTLM,
        REFACT,
        JINA,
        DNABERT,
        REPLIT,
        &baichuan(40),
    ] {
        all.extend(facts(config).notes);
    }
    for note in &all {
        assert!(
            !note.text().contains('\n') && note.text().len() > 40,
            "{note:?}"
        );
        assert!(
            !note.is_trap()
                || note.runtime().is_some()
                || [
                    "half-precision-collapse",
                    "slopes-in-model-dtype",
                    "softmax-in-model-dtype",
                    "replit-naive-slopes"
                ]
                .contains(&note.id())
        );
    }
}

/// A model that is known without a file carries the notes of a configuration with the same settings.
#[test]
fn described_models_have_the_traps_of_their_family() {
    for config in [BLOOM_CONFIG, FALCON_CONFIG, MPT_CONFIG, REFACT] {
        let read = facts(config);
        let described = ModelFacts::described(DescribedModel {
            name: read.name.clone(),
            family: read.family,
            n_heads: read.n_heads,
            head_width: Some(read.head_width),
            n_layers: Some(read.n_layers),
            trained_length: read.trained_length,
            bias_max: read.bias_max,
            evidence: "a test".to_owned(),
        });
        assert_eq!(described.notes, read.notes, "{}", read.family);
        assert_eq!(described.slope_values(), read.slope_values());
        assert_eq!(described.bias_scale(), read.bias_scale());
        assert_eq!(described.convention, read.convention);
    }
}
