//! Specification files: a user's own decoder described in TOML.
//!
//! `specs/alilama.toml` is a worked example. Every table but `[shape]` and `[alibi]` may be left out when its defaults fit; unknown keys are
//! refused, so a misspelt key cannot silently mean its default. Paths are relative to the file.
//!
//! ```toml
//! snellen_spec = 1                  # version of this format
//! name = "my-decoder"
//! weights = "model.safetensors"     # or an index (.safetensors.index.json); left out: no weights, horizons only
//!
//! [shape]
//! vocab_size = 4000
//! width = 64
//! layers = 4
//! heads = 8
//! kv_heads = 8                      # default: heads
//! head_width = 8                    # default: width / heads
//! trained_length = 128              # tokens; may be left out
//!
//! [alibi]
//! schedule = "press"                # press | mpt | naive | list
//! # bias_max = 8.0                  # mpt only
//! # slopes = [0.5, 0.25]            # list only, one a head
//! form = "relative"                 # default; or "key-position": how the model's own code stores the bias
//! # key_origin = "zero"             # key-position only: where the bias is 0: zero | length-end | one
//! bias_before_scale = false         # true: (q.k + bias) * scale, as Falcon does; what a remedy says in nats is after the scale
//! remedy = "none"                   # as on the command line: "clamp=-20", "log", "cap=30+log", ...
//!
//! [embedding]
//! scale = 1.0
//! norm = false                      # a norm after the embedding
//!
//! [norm]                            # every norm of the model
//! kind = "layer-norm"               # layer-norm | rms-norm
//! eps = 1e-5
//! bias = true
//!
//! [block]
//! arrangement = "sequential"        # sequential | parallel | parallel-shared-norm
//! attention_residual = "input"      # input: x + f(norm(x)); normed: norm(x) + f(norm(x))
//! mlp_residual = "input"
//!
//! [attention]
//! qkv_bias = false
//! output = "linear"                 # linear | linear-with-bias | none
//! # scale = 0.125                   # default: 1/sqrt(head_width)
//! # clip_qkv = 6.0
//! qk_norm = "none"                  # none | full | per-head
//!
//! [mlp]
//! # hidden = 256                    # default: 4 * width
//! activation = "gelu-tanh"          # gelu-tanh | gelu-erf | silu | relu
//! gated = false                     # down(act(gate(x)) * up(x))
//! bias = false
//!
//! [head]
//! final_norm = true
//! tied = true                       # the head is the embedding
//! logit_scale = 1.0
//! # soft_cap = 30.0
//!
//! [tensors]                         # a name, or { name = "...", transposed = true } for matrices stored [in, out]
//! embedding = "wte.weight"
//! norm1_weight = "h.{layer}.ln_1.weight"
//! norm1_bias = "h.{layer}.ln_1.bias"
//! # Query, key and value: three tensors (query_weight, key_weight, value_weight), or one:
//! qkv_weight = { name = "h.{layer}.attn.c_attn.weight", layout = "q;k;v" }   # or "per-head": [heads, 3, head_width]
//! output_weight = { name = "h.{layer}.attn.c_proj.weight", transposed = true }
//! norm2_weight = "h.{layer}.ln_2.weight"
//! norm2_bias = "h.{layer}.ln_2.bias"
//! up_weight = "h.{layer}.mlp.c_fc.weight"
//! down_weight = "h.{layer}.mlp.c_proj.weight"
//! final_norm_weight = "ln_f.weight"
//! final_norm_bias = "ln_f.bias"
//!
//! [tokenizer]
//! file = "tokenizer.json"           # or a minbpe model file
//! fold_white_space = false          # every run of white space becomes one space
//! replace = [["<|endoftext|>", " "]]  # before folding, in order
//! ```
//!
//! Names in `[tensors]`: `embedding`, `embedding_norm_weight`, `embedding_norm_bias`, `final_norm_weight`, `final_norm_bias`, `head`, and with
//! `{layer}` in the name `norm1_weight`, `norm1_bias`, `query_weight`, `query_bias`, `key_weight`, `key_bias`, `value_weight`,
//! `value_bias`, `qkv_weight`, `qkv_bias`, `query_norm_weight`, `query_norm_bias`, `key_norm_weight`, `key_norm_bias`, `output_weight`,
//! `output_bias`, `norm2_weight`, `norm2_bias`, `up_weight`, `up_bias`, `gate_weight`, `gate_bias`, `down_weight`, `down_bias`. Exactly those that
//! the model has must be given.

mod file;
mod lower;
mod names;

use std::path::{Path, PathBuf};

use model::ModelSpec;

use crate::checkpoint::{Checkpoint, TokenizerFile};
use crate::config::ModelFacts;
use crate::error::{CheckpointError, ErrorKind};
use crate::files::without_mark;
use crate::read::read_limited;
use crate::safetensors::Tensors;

/// Longest specification file that is read, in bytes (1 MiB).
const SPEC_BYTES_MAX: u64 = 1 << 20;

/// A specification file that was read and checked; no weights have been looked at.
#[derive(Debug)]
pub struct Specification {
    /// What it says about the position bias.
    pub facts: ModelFacts,
    /// The model it describes.
    pub model: ModelSpec,
    names: names::Names,
    weights: Option<PathBuf>,
    tokenizer: Option<TokenizerFile>,
}

/// Parses and checks the text of a specification file; `path` is for messages, and its folder the base of the paths inside.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Specification, CheckpointError> {
    let text = std::str::from_utf8(without_mark(bytes))
        .map_err(|e| CheckpointError::malformed(format!("is not UTF-8: {e}")).in_file(path))?;
    let file = file::parse(text).map_err(|e| e.in_file(path))?;
    lower::lower(file, path.parent().unwrap_or(Path::new(""))).map_err(|e| e.in_file(path))
}

/// Reads and checks a specification file; no weights are looked at.
pub fn read(path: &Path) -> Result<Specification, CheckpointError> {
    parse(&read_limited(path, SPEC_BYTES_MAX)?, path)
}

/// Opens a specification file and the weights that it names.
pub(crate) fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let bytes = read_limited(path, SPEC_BYTES_MAX)?;
    let Specification {
        facts,
        model,
        names,
        weights,
        tokenizer,
    } = parse(&bytes, path)?;
    let Some(weights) = weights else {
        let reason = CheckpointError::missing(
            "names no weights; add weights = \"model.safetensors\" to run the model",
        )
        .in_file(path);
        return Ok(Checkpoint::from_spec(facts, Err(reason), bytes, tokenizer));
    };
    let name = weights.to_string_lossy();
    let tensors = if name.ends_with(".safetensors.index.json") {
        Tensors::open_index(&weights)
    } else if name.ends_with(".safetensors") {
        Tensors::open_file(&weights)
    } else {
        Err(CheckpointError::unsupported(format!(
            "key weights: expected a .safetensors file or a .safetensors.index.json, found {name}; pickles and other containers are not read"
        ))
        .in_file(path))
    }?;
    match names.layout(&model, &tensors) {
        Ok(layout) => Ok(Checkpoint::from_spec(
            facts,
            Ok((model, tensors, layout)),
            bytes,
            tokenizer,
        )),
        Err(reason) if reason.kind() == ErrorKind::Unsupported => {
            Ok(Checkpoint::from_spec(facts, Err(reason), bytes, tokenizer))
        }
        Err(error) => Err(error),
    }
}
