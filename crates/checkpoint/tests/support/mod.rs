//! A tiny safetensors writer, tiny random models, and the places of the data that some tests need.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "shared by several test binaries, none of which uses all of it"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{ForwardOptions, Model};
use snellen_checkpoint::{Checkpoint, CheckpointError, ErrorKind, open};

/// One tensor to write.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

pub fn f32_tensor(name: &str, shape: &[usize], values: &[f32]) -> Tensor {
    assert_eq!(shape.iter().product::<usize>(), values.len());
    Tensor {
        name: name.to_owned(),
        dtype: "F32",
        shape: shape.to_vec(),
        bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

impl Tensor {
    pub fn values(&self) -> Vec<f32> {
        assert_eq!(self.dtype, "F32");
        self.bytes
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect()
    }

    pub fn cast(&self, dtype: &'static str) -> Tensor {
        let bytes = self.values().into_iter().flat_map(|v| match dtype {
            "F16" => half::f16::from_f32(v).to_le_bytes().to_vec(),
            "BF16" => half::bf16::from_f32(v).to_le_bytes().to_vec(),
            "F64" => f64::from(v).to_le_bytes().to_vec(),
            _ => v.to_le_bytes().to_vec(),
        });
        Tensor {
            dtype,
            bytes: bytes.collect(),
            ..self.clone()
        }
    }
}

/// A file from a literal header and data.
pub fn raw(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

/// A well-formed file.
pub fn safetensors(tensors: &[Tensor], metadata: &[(&str, &str)]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        let entries = metadata.iter().map(|&(k, v)| (k.to_owned(), v.into()));
        header.insert(
            "__metadata__".into(),
            serde_json::Value::Object(entries.collect()),
        );
    }
    let mut data = Vec::new();
    for t in tensors {
        let begin = data.len();
        data.extend(&t.bytes);
        header.insert(t.name.clone(), serde_json::json!({"dtype": t.dtype, "shape": t.shape, "data_offsets": [begin, data.len()]}));
    }
    raw(&serde_json::Value::Object(header).to_string(), &data)
}

/// Deterministic numbers around 0, about uniform in (-1, 1).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32) / ((1u64 << 23) as f32) - 1.0
    }

    pub fn many(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next()).collect()
    }
}

pub const LAYERS: usize = 2;
pub const HEADS: usize = 4;
pub const WIDTH: usize = 32;
pub const VOCAB: usize = 64;

pub const BLOOM_CONFIG: &str = r#"{"model_type": "bloom", "hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64, "layer_norm_epsilon": 1e-5}"#;

pub const FALCON_CONFIG: &str = r#"{"model_type": "falcon", "alibi": true, "bias": true, "multi_query": false, "parallel_attn": false,
 "new_decoder_architecture": false, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}"#;

pub const MPT_CONFIG: &str = r#"{"model_type": "mpt", "attn_config": {"alibi": true, "alibi_bias_max": 8}, "d_model": 32, "n_layers": 2, "n_heads": 4,
 "max_seq_len": 64, "vocab_size": 64, "no_bias": true}"#;

fn random(list: &[(String, Vec<usize>)]) -> Vec<Tensor> {
    let mut numbers = Numbers(1);
    list.iter()
        .map(|(name, shape)| f32_tensor(name, shape, &numbers.many(shape.iter().product())))
        .collect()
}

fn bloom_names(prefix: &str, embedding_norm: bool) -> Vec<(String, Vec<usize>)> {
    let (w, f) = (WIDTH, 4 * WIDTH);
    let mut list = vec![(format!("{prefix}word_embeddings.weight"), vec![VOCAB, w])];
    if embedding_norm {
        list.push((format!("{prefix}word_embeddings_layernorm.weight"), vec![w]));
        list.push((format!("{prefix}word_embeddings_layernorm.bias"), vec![w]));
    }
    for layer in 0..LAYERS {
        for (name, out, input) in [
            ("self_attention.query_key_value", 3 * w, w),
            ("self_attention.dense", w, w),
            ("mlp.dense_h_to_4h", f, w),
            ("mlp.dense_4h_to_h", w, f),
        ] {
            list.push((format!("{prefix}h.{layer}.{name}.weight"), vec![out, input]));
            list.push((format!("{prefix}h.{layer}.{name}.bias"), vec![out]));
        }
        for name in ["input_layernorm", "post_attention_layernorm"] {
            list.push((format!("{prefix}h.{layer}.{name}.weight"), vec![w]));
            list.push((format!("{prefix}h.{layer}.{name}.bias"), vec![w]));
        }
    }
    list.push((format!("{prefix}ln_f.weight"), vec![w]));
    list.push((format!("{prefix}ln_f.bias"), vec![w]));
    list
}

pub fn tiny_bloom(prefix: &str) -> Vec<Tensor> {
    random(&bloom_names(prefix, true))
}

pub fn tiny_falcon() -> Vec<Tensor> {
    random(&bloom_names("transformer.", false))
}

/// `kv` key/value heads; a query/key norm over all heads where asked for.
pub fn tiny_mpt(kv: usize, qk_ln: bool) -> Vec<Tensor> {
    let (w, f) = (WIDTH, 4 * WIDTH);
    let kv_width = kv * (WIDTH / HEADS);
    let mut list = vec![("transformer.wte.weight".to_owned(), vec![VOCAB, w])];
    for layer in 0..LAYERS {
        let at = |name: &str| format!("transformer.blocks.{layer}.{name}.weight");
        list.push((at("attn.Wqkv"), vec![w + 2 * kv_width, w]));
        list.push((at("attn.out_proj"), vec![w, w]));
        if qk_ln {
            list.push((at("attn.q_ln"), vec![w]));
            list.push((at("attn.k_ln"), vec![kv_width]));
        }
        list.push((at("ffn.up_proj"), vec![f, w]));
        list.push((at("ffn.down_proj"), vec![w, f]));
        list.push((at("norm_1"), vec![w]));
        list.push((at("norm_2"), vec![w]));
    }
    list.push(("transformer.norm_f.weight".to_owned(), vec![w]));
    random(&list)
}

/// A folder with a configuration and, unless empty, `model.safetensors`.
pub fn folder(config: &str, tensors: &[Tensor]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    if !tensors.is_empty() {
        std::fs::write(
            dir.path().join("model.safetensors"),
            safetensors(tensors, &[]),
        )
        .unwrap();
    }
    dir
}

/// The tensors over three shards `model-0000N-of-00003.safetensors` and an index.
pub fn sharded(config: &str, tensors: &[Tensor]) -> tempfile::TempDir {
    let dir = folder(config, &[]);
    let mut map = serde_json::Map::new();
    let third = tensors.len().div_ceil(3);
    for (i, part) in tensors.chunks(third).enumerate() {
        let name = format!("model-{:05}-of-00003.safetensors", i + 1);
        std::fs::write(
            dir.path().join(&name),
            safetensors(part, &[("format", "pt")]),
        )
        .unwrap();
        map.extend(part.iter().map(|t| (t.name.clone(), name.clone().into())));
    }
    let index = serde_json::json!({"metadata": {"total_size": 0}, "weight_map": map});
    std::fs::write(
        dir.path().join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
    dir
}

/// Opens what must not open, and checks kind and text of the error.
pub fn check_error(result: Result<Checkpoint, CheckpointError>, kind: ErrorKind, expect: &[&str]) {
    let error = result.expect_err("this must be refused");
    check_text(&error, kind, expect);
}

pub fn check_text(error: &CheckpointError, kind: ErrorKind, expect: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in expect {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert!(!text.contains('\n'), "{text}");
}

/// Logits of every row, `[ids, vocabulary]`.
pub fn logits(path: &Path, ids: &[u32]) -> Vec<f32> {
    let checkpoint = open(path).unwrap();
    let spec = checkpoint.runnable().unwrap().clone();
    let model = Model::new(spec, Arc::new(checkpoint)).unwrap();
    let hidden = model.forward(ids, ForwardOptions::default()).unwrap();
    model.logits(&hidden, 0..ids.len()).unwrap()
}

/// Compares with an absolute tolerance, and reports the worst place. The largest difference.
pub fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) -> f32 {
    assert_eq!(found.len(), expected.len(), "{what}");
    let worst = found
        .iter()
        .zip(expected)
        .enumerate()
        .map(|(i, (f, e))| (i, (f - e).abs()))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let (index, distance) = worst.expect("not empty");
    assert!(
        distance <= tolerance,
        "{what}: at {index} expected {}, found {}, distance {distance:e} > {tolerance:e}",
        expected[index],
        found[index]
    );
    distance
}

/// A path in the shared data, or `None` and a visible line.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("SNELLEN_SHARED_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let full = root.join(path);
    if full.exists() {
        return Some(full);
    }
    eprintln!("SKIPPED: {} not found", full.display());
    None
}

/// A folder of the committed goldens.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../goldens")
        .join(name)
}
