//! The GGUF export, read back by a parser of its own: every tensor, its name, shape and values, and the metadata.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;

use checkpoint::safetensors::StoredAs;
use half::f16;
use snellen_train::AttentionRule;
use snellen_train::data::bpe;
use snellen_train::export::write_gguf;
use snellen_train::network::Network;
use snellen_train::shape::{MlpKind, ModelShape, NormKind, PositionConfig};

const VOCAB: usize = 280;

fn shape() -> ModelShape {
    ModelShape {
        layers: 2,
        width: 24,
        heads: 6,
        hidden: 40,
        vocab: VOCAB,
        context: 32,
        norm: NormKind::LayerNorm,
        mlp: MlpKind::Gelu,
        tied: false,
        bias: true,
        dropout: 0.0,
    }
}

fn tokenizer() -> String {
    bpe::train(["one two three one two one"].into_iter(), 262).unwrap()
}

/// A reader of little-endian values.
struct Bytes<'b>(&'b [u8], usize);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self.0[self.1..self.1 + N].try_into().unwrap();
        self.1 += N;
        bytes
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
    fn text(&mut self) -> String {
        let n = self.u64() as usize;
        let text = String::from_utf8(self.0[self.1..self.1 + n].to_vec()).unwrap();
        self.1 += n;
        text
    }
    /// A value as text.
    fn value(&mut self, kind: u32) -> String {
        match kind {
            4 => self.u32().to_string(),
            5 => (self.u32() as i32).to_string(),
            6 => f32::from_le_bytes(self.take()).to_string(),
            7 => (self.take::<1>()[0] != 0).to_string(),
            8 => self.text(),
            9 => {
                let kind = self.u32();
                let n = self.u64();
                let values: Vec<String> = (0..n).map(|_| self.value(kind)).collect();
                values.join("\n")
            }
            other => panic!("type {other}"),
        }
    }
}

type Tensors = BTreeMap<String, (u32, Vec<usize>, Vec<f32>)>;

fn parse(bytes: &[u8]) -> (BTreeMap<String, String>, Tensors) {
    let mut at = Bytes(bytes, 0);
    assert_eq!((&at.take::<4>(), at.u32()), (b"GGUF", 3));
    let (n_tensors, n_values) = (at.u64(), at.u64());
    let mut metadata = BTreeMap::new();
    for _ in 0..n_values {
        let (key, kind) = (at.text(), at.u32());
        let value = at.value(kind);
        assert!(metadata.insert(key, value).is_none());
    }
    let mut heads = Vec::new();
    for _ in 0..n_tensors {
        let name = at.text();
        let n = at.u32();
        let mut shape: Vec<usize> = (0..n).map(|_| at.u64() as usize).collect();
        shape.reverse();
        heads.push((name, shape, at.u32(), at.u64() as usize));
    }
    let start = at.1.next_multiple_of(32);
    let tensors = heads
        .into_iter()
        .map(|(name, shape, kind, offset)| {
            assert_eq!(offset % 32, 0);
            let n: usize = shape.iter().product();
            let mut at = Bytes(bytes, start + offset);
            let values = (0..n)
                .map(|_| match kind {
                    0 => f32::from_le_bytes(at.take()),
                    1 => f16::from_le_bytes(at.take()).to_f32(),
                    other => panic!("type {other}"),
                })
                .collect();
            (name, (kind, shape, values))
        })
        .collect();
    (metadata, tensors)
}

fn network(shape: ModelShape, position: &PositionConfig) -> Network {
    let position = position.resolve(shape.heads, shape.context).unwrap();
    Network::new(shape, position, AttentionRule::Exact)
}

fn own_name(name: &str) -> String {
    let own = name
        .replace("token_embd.", "embedding.")
        .replace("output_norm.", "norm.")
        .replace("blk.", "layers.")
        .replace("attn_norm", "norm1")
        .replace("ffn_norm", "norm2")
        .replace("attn_qkv", "qkv")
        .replace("attn_output", "out")
        .replace("ffn_", "");
    match own.strip_prefix("output.") {
        Some(part) => format!("head.{part}"),
        None => own,
    }
}

#[test]
fn what_is_written_is_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let network = network(shape(), &PositionConfig::default());
    let params = network.layout.initial(
        &network.shape,
        &network.position,
        snellen_train::params::Init::Gpt2,
        3,
    );
    let json = tokenizer();
    for (stored, matrix, round) in [
        (StoredAs::F32, 0, (|x| x) as fn(f32) -> f32),
        (StoredAs::F16, 1, |x| f16::from_f32(x).to_f32()),
    ] {
        let json = Some(json.as_bytes());
        write_gguf(&path, "tiny", &network, &params, json, stored).unwrap();
        let (metadata, tensors) = parse(&std::fs::read(&path).unwrap());
        assert_eq!(tensors.len(), network.layout.params.len());
        for (name, (kind, shape, values)) in &tensors {
            let own = own_name(name);
            let param = network.layout.params.iter().find(|p| p.name == own);
            let param = param.unwrap_or_else(|| panic!("{name}"));
            let is_matrix = param.shape.len() > 1;
            assert_eq!(*kind, if is_matrix { matrix } else { 0 }, "{name}");
            assert_eq!(*shape, param.shape, "{name}");
            let wanted = params[param.range.clone()].iter();
            let wanted: Vec<f32> = wanted
                .map(|v| if is_matrix { round(*v) } else { *v })
                .collect();
            assert_eq!(*values, wanted, "{name}");
        }
        for (key, wanted) in [
            ("general.architecture", "mpt"),
            ("mpt.context_length", "32"),
            ("mpt.embedding_length", "24"),
            ("mpt.block_count", "2"),
            ("mpt.feed_forward_length", "40"),
            ("mpt.attention.head_count", "6"),
            ("mpt.attention.max_alibi_bias", "8"),
            ("mpt.attention.layer_norm_epsilon", "0.00001"),
            ("tokenizer.ggml.pre", "gpt-2"),
            ("tokenizer.ggml.eos_token_id", "0"),
        ] {
            assert_eq!(metadata[key], wanted, "{key}");
        }
        let rows = metadata["tokenizer.ggml.tokens"].split('\n').count();
        assert_eq!(rows, VOCAB);
    }
}

#[test]
fn what_llama_cpp_cannot_express_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let json = tokenizer();
    let refused = |shape: ModelShape, position: &str, json: Option<&str>, wanted: &str| {
        let position: PositionConfig = toml::from_str(position).unwrap();
        let network = network(shape, &position);
        let mut params = network.layout.initial(
            &network.shape,
            &network.position,
            snellen_train::params::Init::Gpt2,
            3,
        );
        params[5] = 1e5;
        let json = json.map(str::as_bytes);
        let error = write_gguf(&path, "t", &network, &params, json, StoredAs::F16).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(wanted), "expected {wanted:?} in {error}");
        assert!(!path.exists());
    };
    let rms = ModelShape {
        norm: NormKind::RmsNorm,
        ..shape()
    };
    let gated = ModelShape {
        mlp: MlpKind::Swiglu,
        ..shape()
    };
    let json = Some(json.as_str());
    refused(shape(), "remedy = \"clamp=-12\"", json, "clamp");
    refused(shape(), "remedy = \"log\"", json, "log");
    refused(shape(), "slope-factor = 3.0", json, "alibi_bias_max");
    refused(shape(), "kind = \"rope\"", json, "rotary");
    refused(shape(), "kind = \"nope\"", json, "function nope");
    refused(rms, "", json, "RMSNorm");
    refused(gated, "", json, "SwiGLU");
    refused(shape(), "", None, "without a tokenizer");
    refused(shape(), "", json, "f16 makes infinite");
}
