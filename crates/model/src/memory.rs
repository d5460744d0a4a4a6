//! How much memory a forward pass will take, before it is started.

use kernels::{AttentionShape, attention_workspace_bytes};

use crate::bias::LoweredBias;
use crate::head;
use crate::layer;
use crate::spec::ModelSpec;
use crate::weights::WeightRole;

/// What will be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRequest {
    /// Tokens of one sequence, cached ones included.
    pub length: usize,
    /// Threads of the pool.
    pub threads: usize,
    /// Whether [`crate::Model::keep_weights`] is on.
    pub keep_weights: bool,
    /// Whether [`crate::WeightSource::has_cheap_rows`] holds; otherwise whole vocabulary tables are read.
    pub cheap_rows: bool,
    /// Whether a key/value cache is filled.
    pub cache: bool,
    /// Whether attention is observed.
    pub observed: bool,
    /// Whether the loss (or [`crate::Model::score`]) follows.
    pub loss: bool,
    /// Bytes the observer itself keeps.
    pub evidence: u64,
}

impl MemoryRequest {
    /// A plain forward pass with loss, on all processors, weights read one layer at a time.
    pub fn new(length: usize) -> Self {
        Self {
            length,
            threads: rayon::current_num_threads(),
            keep_weights: false,
            cheap_rows: true,
            cache: false,
            observed: false,
            loss: true,
            evidence: 0,
        }
    }
}

/// Bytes by purpose. Memory-mapped files are not counted: their pages are the system's to drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// f32 weights alive at once while blocks run: a layer, or all.
    pub weights: u64,
    /// Residual stream, queries, attention output, and the temporaries of a row chunk.
    pub activations: u64,
    /// Keys and values.
    pub keys_values: u64,
    /// Bias table.
    pub bias: u64,
    /// Working memory of the attention kernel, with the score strips of observed heads.
    pub attention: u64,
    /// Output head: a block of the table and of logits; after the blocks, so not on top of all of the above.
    pub head: u64,
    /// What the observer keeps.
    pub evidence: u64,
    /// Largest sum of those that are alive together.
    pub peak: u64,
}

/// Memory of a forward pass. Linear in the length.
///
/// Measured by `tests/memory.rs` against the peak resident size of a process. The reader's own buffers (a tensor in its
/// stored format while it is widened) are not known here.
pub fn memory_estimate(spec: &ModelSpec, request: &MemoryRequest) -> MemoryEstimate {
    let n = request.length as u64;
    let floats = |rows: u64, width: usize| 4 * rows * width as u64;
    let bytes = |role| -> u64 {
        let shape = spec.weight_shape(role).unwrap_or_default();
        4 * shape.iter().map(|&s| s as u64).product::<u64>() * u64::from(!shape.is_empty())
    };
    let roles = spec.weight_roles();
    let one_layer = |role: &&WeightRole| matches!(role, WeightRole::Layer(0, _));
    let layer: u64 = roles
        .iter()
        .filter(one_layer)
        .map(|&role| bytes(role))
        .sum();
    let table = bytes(WeightRole::Embedding);
    let head_role = if spec.head.tied {
        WeightRole::Embedding
    } else {
        WeightRole::Head
    };
    let all: u64 = roles.iter().map(|&role| bytes(role)).sum();
    // A weight is transposed when read: once more for a moment.
    let largest = spec.width * spec.block.mlp.hidden.max(spec.query_width());
    let weights = if request.keep_weights { all } else { layer };

    let (stream, query) = (floats(n, spec.width), floats(n, spec.query_width()));
    let chunk = layer::chunk_rows(spec).min(request.length) as u64;
    // Norm, residual and result of a chunk, and its widest product, which burn allocates twice for a moment.
    let hidden = spec.block.mlp.hidden;
    let widest = floats(chunk, hidden.max(spec.query_width()).max(spec.width));
    let gated = u64::from(spec.block.mlp.gated);
    let temporaries = 4 * floats(chunk, spec.width) + (2 + gated) * widest;
    let log_sums = floats(n, spec.n_heads);
    let activations = stream + 2 * query + log_sums + temporaries;

    let layers_cached = if request.cache {
        spec.n_layers as u64
    } else {
        1
    };
    let keys_values = 2 * layers_cached * floats(n, spec.kv_width());
    let bias = LoweredBias::bytes(spec.n_heads, request.length);
    let shape = AttentionShape {
        n_queries: request.length,
        n_keys: request.length,
        n_heads: spec.n_heads,
        n_kv_heads: spec.n_kv_heads,
        head_width: spec.head_width,
        query_offset: 0,
        causal: spec.alibi.convention.causal,
        scale: spec.block.attention.scale,
        soft_cap: None,
    };
    let attention = attention_workspace_bytes(&shape, request.threads, request.observed) as u64;

    let vocab_block = head::block_rows(spec.width).min(spec.vocab_size);
    let logit_rows = head::ROWS.min(request.length) as u64;
    let whole_table = !request.keep_weights && !request.cheap_rows;
    let table_block = match (request.keep_weights, whole_table) {
        (true, _) => 0,
        (_, true) => bytes(head_role),
        _ => floats(vocab_block as u64, spec.width),
    };
    // Logits twice for a moment, as is the block when it is transposed; rows of the targets; the state of a row is 32 bytes.
    let scores = (2 * floats(logit_rows, vocab_block)).max(floats(vocab_block as u64, spec.width))
        + 2 * floats(logit_rows, spec.width)
        + 32 * n;
    let head = if request.loss {
        table_block + scores
    } else {
        0
    };

    let kept = if request.keep_weights { all } else { 0 };
    let caches = if request.cache { keys_values } else { 0 };
    let embedding = if whole_table { table } else { 0 } + 2 * stream + kept + request.evidence;
    // Attention's workspace and a chunk's temporaries are not alive together, but the allocator seldom gives either back.
    let blocks = weights
        + 4 * largest as u64
        + activations
        + keys_values
        + bias
        + attention
        + request.evidence;
    let output = head + stream + kept + caches + request.evidence;
    MemoryEstimate {
        weights,
        activations,
        keys_values,
        bias,
        attention,
        head,
        evidence: request.evidence,
        peak: embedding.max(blocks).max(output),
    }
}
