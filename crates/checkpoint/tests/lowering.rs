//! Names, layouts and dtypes of the families whose weights are read.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use model::{LayerRole, WeightRole, WeightSource};
use snellen_checkpoint::{ErrorKind, Note, open, open_config};
use support::{
    BLOOM_CONFIG, FALCON_CONFIG, MPT_CONFIG, Tensor, VOCAB, WIDTH, check_error, check_text,
    f32_tensor, folder, logits, safetensors, tiny_bloom, tiny_falcon, tiny_mpt,
};

const IDS: &[u32] = &[1, 5, 9, 63, 2, 2, 7];

fn rows(tensor: &Tensor, rows: impl IntoIterator<Item = usize>) -> Vec<f32> {
    let columns: usize = tensor.shape[1..].iter().product();
    let values = tensor.values();
    rows.into_iter()
        .flat_map(|r| values[r * columns..(r + 1) * columns].to_vec())
        .collect()
}

fn named<'t>(tensors: &'t [Tensor], end: &str) -> &'t Tensor {
    tensors.iter().find(|t| t.name.ends_with(end)).unwrap()
}

/// BLOOM keeps query, key and value of a head together, so head 2 (width 8) has rows 48..72
/// (https://github.com/Lightning-AI/litgpt/pull/1013).
#[test]
fn bloom_and_falcon_fuse_per_head() {
    for (config, tensors) in [
        (BLOOM_CONFIG, tiny_bloom("transformer.")),
        (FALCON_CONFIG, tiny_falcon()),
    ] {
        let dir = folder(config, &tensors);
        let checkpoint = open(dir.path()).unwrap();
        let fused = named(&tensors, "h.1.self_attention.query_key_value.weight");
        let bias = named(&tensors, "h.1.self_attention.query_key_value.bias");
        for (part, weight, bias_role) in [
            (0, LayerRole::QueryWeight, LayerRole::QueryBias),
            (1, LayerRole::KeyWeight, LayerRole::KeyBias),
            (2, LayerRole::ValueWeight, LayerRole::ValueBias),
        ] {
            let stored: Vec<usize> = (0..4)
                .flat_map(|h| (0..8).map(move |c| h * 24 + part * 8 + c))
                .collect();
            let read = checkpoint.weight(WeightRole::Layer(1, weight)).unwrap();
            assert_eq!(read.shape, [WIDTH, WIDTH]);
            assert_eq!(read.data, rows(fused, stored.clone()));
            assert_eq!(
                checkpoint
                    .weight(WeightRole::Layer(1, bias_role))
                    .unwrap()
                    .data,
                rows(bias, stored.clone())
            );
            // Part of the rows, across the border of a head.
            let some = checkpoint
                .rows(WeightRole::Layer(1, weight), 5..19)
                .unwrap();
            assert_eq!(
                (some.shape, some.data),
                (vec![14, WIDTH], rows(fused, stored[5..19].iter().copied()))
            );
        }
    }
}

/// MPT stores three blocks, so head 2 has rows 16..24, 48..56, 80..88.
#[test]
fn mpt_fuses_in_blocks() {
    let tensors = tiny_mpt(4, false);
    let dir = folder(MPT_CONFIG, &tensors);
    let checkpoint = open(dir.path()).unwrap();
    let fused = named(&tensors, "blocks.1.attn.Wqkv.weight");
    for (first, role) in [
        (0, LayerRole::QueryWeight),
        (32, LayerRole::KeyWeight),
        (64, LayerRole::ValueWeight),
    ] {
        assert_eq!(
            checkpoint.weight(WeightRole::Layer(1, role)).unwrap().data,
            rows(fused, first..first + 32)
        );
        assert_eq!(
            checkpoint
                .rows(WeightRole::Layer(1, role), 16..24)
                .unwrap()
                .data,
            rows(fused, first + 16..first + 24)
        );
    }
    assert!(
        checkpoint
            .weight(WeightRole::Layer(1, LayerRole::QueryBias))
            .is_err()
    );
    assert!(
        checkpoint
            .weight(WeightRole::Layer(2, LayerRole::QueryWeight))
            .is_err()
    );
}

/// Grouped heads make shorter K and V blocks; the query/key norm spans all heads.
#[test]
fn mpt_with_grouped_heads_and_qk_norm() {
    let config = MPT_CONFIG.replace(
        r#""alibi_bias_max": 8"#,
        r#""alibi_bias_max": 16, "attn_type": "grouped_query_attention", "kv_n_heads": 2, "qk_ln": true, "clip_qkv": 0.5"#,
    );
    let tensors = tiny_mpt(2, true);
    let dir = folder(&config, &tensors);
    let checkpoint = open(dir.path()).unwrap();
    let fused = named(&tensors, "blocks.0.attn.Wqkv.weight");
    let read = |role| checkpoint.weight(WeightRole::Layer(0, role)).unwrap();
    assert_eq!(read(LayerRole::KeyWeight).data, rows(fused, 32..48));
    assert_eq!(read(LayerRole::ValueWeight).data, rows(fused, 48..64));
    assert_eq!(read(LayerRole::KeyNormWeight).shape, [16]);
    let spec = checkpoint.spec.as_ref().unwrap();
    assert_eq!(spec.block.attention.clip_qkv, Some(0.5));
    assert_eq!(spec.alibi.slopes[0], 2f64.powi(-4));
    let ids: Vec<_> = checkpoint.config.notes.iter().map(Note::id).collect();
    for id in [
        "mpt-bias-max-ignored",
        "mpt-qk-norm-ignored",
        "mpt-kv-heads-ignored",
        "mpt-length-limit",
    ] {
        assert!(ids.contains(&id), "{id} is not in {ids:?}");
    }
    assert_eq!(logits(dir.path(), IDS).len(), IDS.len() * VOCAB);
}

/// Without the head, with an equal head, with an alias in the metadata: the same; untied and without: an error
/// (https://github.com/huggingface/transformers/issues/38870).
#[test]
fn tied_heads() {
    let tensors = tiny_bloom("transformer.");
    let embedding = &tensors[0];
    let plain = folder(BLOOM_CONFIG, &tensors);
    let expected = logits(plain.path(), IDS);

    let head = Tensor {
        name: "lm_head.weight".into(),
        ..embedding.clone()
    };
    let with_head: Vec<_> = tensors.iter().cloned().chain([head]).collect();
    let stored = folder(BLOOM_CONFIG, &with_head);
    assert_eq!(logits(stored.path(), IDS), expected);
    let untied_config =
        BLOOM_CONFIG.replace("\"n_layer\"", "\"tie_word_embeddings\": false, \"n_layer\"");
    let untied = folder(&untied_config, &with_head);
    assert_eq!(logits(untied.path(), IDS), expected);

    for config in [BLOOM_CONFIG, &untied_config] {
        let alias = folder(config, &[]);
        let file = safetensors(
            &tensors,
            &[
                ("format", "pt"),
                ("lm_head.weight", "transformer.word_embeddings.weight"),
            ],
        );
        std::fs::write(alias.path().join("model.safetensors"), file).unwrap();
        assert_eq!(logits(alias.path(), IDS), expected);
    }

    check_error(
        open(folder(&untied_config, &tensors).path()),
        ErrorKind::Missing,
        &["model.safetensors", "\"lm_head.weight\"", "output head"],
    );
}

/// With and without the prefix (https://github.com/huggingface/text-generation-inference/issues/399).
#[test]
fn name_prefix() {
    let expected = logits(
        folder(BLOOM_CONFIG, &tiny_bloom("transformer.")).path(),
        IDS,
    );
    assert_eq!(
        logits(folder(BLOOM_CONFIG, &tiny_bloom("")).path(), IDS),
        expected
    );
    check_error(
        open(folder(BLOOM_CONFIG, &tiny_bloom("bogus.")).path()),
        ErrorKind::Missing,
        &["\"transformer.word_embeddings.weight\" (or \"word_embeddings.weight\")"],
    );
}

/// 16-bit weights are widened exactly, and that is said once.
#[test]
fn half_precision_weights() {
    let tensors = tiny_bloom("transformer.");
    for dtype in ["F16", "BF16"] {
        let half: Vec<_> = tensors.iter().map(|t| t.cast(dtype)).collect();
        let widened: Vec<_> = half
            .iter()
            .map(|t| {
                let values: Vec<f32> = match dtype {
                    "F16" => t
                        .bytes
                        .as_chunks()
                        .0
                        .iter()
                        .map(|&b| half::f16::from_le_bytes(b).to_f32())
                        .collect(),
                    _ => t
                        .bytes
                        .as_chunks()
                        .0
                        .iter()
                        .map(|&b| half::bf16::from_le_bytes(b).to_f32())
                        .collect(),
                };
                f32_tensor(&t.name, &t.shape, &values)
            })
            .collect();
        let (half, widened) = (folder(BLOOM_CONFIG, &half), folder(BLOOM_CONFIG, &widened));
        assert_eq!(logits(half.path(), IDS), logits(widened.path(), IDS));
        let notes = open(half.path()).unwrap().config.notes;
        assert_eq!(
            notes.iter().filter(|n| n.id() == "weights-widened").count(),
            1
        );
        assert!(
            open(widened.path())
                .unwrap()
                .config
                .notes
                .iter()
                .all(|n| n.id() != "weights-widened")
        );
    }
}

#[test]
fn other_dtypes_are_named_and_refused() {
    let mut tensors = tiny_bloom("transformer.");
    tensors[0] = tensors[0].cast("F64");
    let dir = folder(BLOOM_CONFIG, &tensors);
    let checkpoint = open(dir.path()).unwrap();
    check_text(
        &checkpoint.runnable().unwrap_err(),
        ErrorKind::Unsupported,
        &[
            "\"transformer.word_embeddings.weight\"",
            "dtype F64",
            "F32, F16 and BF16",
        ],
    );
    tensors[0].dtype = "I64";
    let error = open(folder(BLOOM_CONFIG, &tensors).path())
        .unwrap()
        .runnable()
        .unwrap_err();
    check_text(&error, ErrorKind::Unsupported, &["dtype I64"]);
}

#[test]
fn wrong_shapes_and_missing_tensors_are_named() {
    let mut tensors = tiny_bloom("transformer.");
    let at = tensors
        .iter()
        .position(|t| t.name.ends_with("h.1.mlp.dense_h_to_4h.weight"))
        .unwrap();
    tensors[at].shape = vec![WIDTH, 4 * WIDTH];
    check_error(
        open(folder(BLOOM_CONFIG, &tensors).path()),
        ErrorKind::Malformed,
        &[
            "\"transformer.h.1.mlp.dense_h_to_4h.weight\"",
            "expected shape [128, 32]",
            "found [32, 128]",
        ],
    );
    tensors.remove(at);
    check_error(
        open(folder(BLOOM_CONFIG, &tensors).path()),
        ErrorKind::Missing,
        &["\"transformer.h.1.mlp.dense_h_to_4h.weight\" is missing"],
    );
    // Another layout of the same size is a wrong shape, not silently reordered.
    let config = BLOOM_CONFIG.replace("\"n_head\": 4", "\"n_head\": 3");
    check_error(
        open(folder(&config, &tensors).path()),
        ErrorKind::Malformed,
        &["\"n_head\"", "divisor of the width 32", "found 3"],
    );
}

/// Tensors that nothing needs are listed, not fatal, and never read.
#[test]
fn extra_tensors_are_listed() {
    let mut tensors = tiny_bloom("transformer.");
    tensors.push(f32_tensor("transformer.extra", &[1], &[f32::NAN]));
    let dir = folder(BLOOM_CONFIG, &tensors);
    let table = open(dir.path()).unwrap().tensor_table();
    let unused: Vec<_> = table
        .iter()
        .filter(|r| !r.used)
        .map(|r| r.name.as_str())
        .collect();
    assert_eq!(unused, ["transformer.extra"]);
    assert!(logits(dir.path(), IDS).iter().all(|x| x.is_finite()));
    let counts = open(dir.path()).unwrap().dtype_counts();
    assert_eq!(counts.len(), 1);
    assert_eq!(counts[0].tensors, tensors.len() as u64);
}

/// NaN weights: tensor, position in the stored tensor, how many.
#[test]
fn values_that_are_not_finite() {
    let mut tensors = tiny_bloom("transformer.");
    let at = tensors
        .iter()
        .position(|t| {
            t.name
                .ends_with("h.1.self_attention.query_key_value.weight")
        })
        .unwrap();
    // Head 2, key, channel 3: stored row 2*24 + 8 + 3.
    for (row, column, value) in [(59, 4, f32::NAN), (60, 0, f32::INFINITY)] {
        let byte = 4 * (row * WIDTH + column);
        tensors[at].bytes[byte..byte + 4].copy_from_slice(&value.to_le_bytes());
    }
    let dir = folder(BLOOM_CONFIG, &tensors);
    let checkpoint = open(dir.path()).unwrap();
    assert!(
        checkpoint
            .weight(WeightRole::Layer(1, LayerRole::QueryWeight))
            .is_ok()
    );
    let text = checkpoint
        .weight(WeightRole::Layer(1, LayerRole::KeyWeight))
        .unwrap_err()
        .to_string();
    for part in [
        "model.safetensors",
        "\"transformer.h.1.self_attention.query_key_value.weight\"",
        "2 of 1024",
        "[59, 4] is NaN",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

/// Pickles are never opened; the configuration still serves.
#[test]
fn pickle_only_folder() {
    let dir = folder(BLOOM_CONFIG, &[]);
    let file = dir.path().join("pytorch_model.bin");
    std::fs::write(&file, b"\x80\x02cos\nsystem\n").unwrap();
    let checkpoint = open(dir.path()).unwrap();
    assert_eq!(checkpoint.config.n_heads, 4);
    assert!(checkpoint.spec.is_none());
    check_text(
        &checkpoint.runnable().unwrap_err(),
        ErrorKind::Unsupported,
        &[
            "pytorch_model.bin",
            "pickle",
            "safe_serialization=True",
            "horizon",
        ],
    );
    check_error(open(&file), ErrorKind::Unsupported, &["pickle"]);
}

/// D3: every kind of target, and a path that is not there.
#[test]
fn targets() {
    let dir = folder(BLOOM_CONFIG, &tiny_bloom("transformer."));
    assert!(open(dir.path()).unwrap().runnable().is_ok());
    assert!(
        open(&dir.path().join("model.safetensors"))
            .unwrap()
            .runnable()
            .is_ok()
    );
    let config_only = open(&dir.path().join("config.json")).unwrap();
    check_text(
        &config_only.runnable().unwrap_err(),
        ErrorKind::Missing,
        &["only the configuration was named", "name the folder"],
    );
    assert_eq!(open_config(dir.path()).unwrap().n_layers, 2);
    check_error(
        open(&dir.path().join("nowhere")),
        ErrorKind::Missing,
        &["nowhere", "no such file or folder"],
    );

    let no_weights = folder(BLOOM_CONFIG, &[]);
    check_text(
        &open(no_weights.path()).unwrap().runnable().unwrap_err(),
        ErrorKind::Missing,
        &["no weights"],
    );
    std::fs::write(
        no_weights.path().join("adapter.safetensors"),
        safetensors(&[], &[]),
    )
    .unwrap();
    check_text(
        &open(no_weights.path()).unwrap().runnable().unwrap_err(),
        ErrorKind::Missing,
        &["adapter.safetensors", "name that file"],
    );

    let empty = tempfile::tempdir().unwrap();
    check_error(open(empty.path()), ErrorKind::Missing, &["no config.json"]);
    std::fs::write(
        empty.path().join("model.safetensors"),
        safetensors(&[], &[]),
    )
    .unwrap();
    check_error(
        open(&empty.path().join("model.safetensors")),
        ErrorKind::Missing,
        &["no config.json beside"],
    );
    std::fs::write(empty.path().join("x.gguf"), b"GGUF").unwrap();
    check_error(
        open(&empty.path().join("x.gguf")),
        ErrorKind::Unsupported,
        &["GGUF"],
    );
}

/// Falcon variants whose weights are not read keep their horizons.
#[test]
fn falcon_variants_are_config_only() {
    let config = FALCON_CONFIG.replace("\"multi_query\": false", "\"multi_query\": true");
    let checkpoint = open(folder(&config, &tiny_falcon()).path()).unwrap();
    assert_eq!(checkpoint.config.n_kv_heads, 1);
    check_text(
        &checkpoint.runnable().unwrap_err(),
        ErrorKind::Unsupported,
        &["\"multi_query\" is true", "not supported yet"],
    );
}
