//! A decoder as data: every choice the forward pass makes, and nothing about files.
//!
//! Families differ in a dozen small ways (where the residual branches off, whether a clamp comes before the query/key
//! norm, which GELU). Each of those ways is a field here, so that the forward pass has no family names in it and the
//! loader of a family is a table.

use numerics::{BiasConvention, BiasFunction, Family};

/// A whole decoder. Construct it, then [`ModelSpec::validate`] it (done by [`crate::Model::new`]).
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Name for messages and reports, e.g. `bloom-560m`.
    pub name: String,
    /// Family the model came from. Informative: the forward pass does not read it.
    pub family: Family,
    /// Rows of the embedding and of the output head, tokens.
    pub vocab_size: usize,
    /// Width of the residual stream, channels.
    pub width: usize,
    /// Number of blocks.
    pub n_layers: usize,
    /// Number of query heads.
    pub n_heads: usize,
    /// Number of key/value heads; divides `n_heads`. Query head `h` reads key/value head `h / (n_heads / n_kv_heads)`.
    pub n_kv_heads: usize,
    /// Channels of one head.
    pub head_width: usize,
    /// Longest training sequence in tokens, when the checkpoint says so. Informative: longer inputs run.
    pub trained_length: Option<usize>,
    /// Token embedding.
    pub embedding: EmbeddingSpec,
    /// Every block has this form.
    pub block: BlockSpec,
    /// Norm between the last block and the output head; `None` where the model has none.
    pub final_norm: Option<NormSpec>,
    /// Output head.
    pub head: HeadSpec,
    /// Position bias.
    pub alibi: AlibiSpec,
}

/// `x = norm(scale * table[id])`.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingSpec {
    /// Factor of the embedding (muP models); 1 for most.
    pub scale: f32,
    /// Norm after the embedding (BLOOM).
    pub norm: Option<NormSpec>,
}

impl Default for EmbeddingSpec {
    fn default() -> Self {
        Self {
            scale: 1.0,
            norm: None,
        }
    }
}

/// Which normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// `(x - mean) / sqrt(var + eps) * weight + bias`, biased variance.
    LayerNorm,
    /// `x / sqrt(mean(x^2) + eps) * weight + bias`.
    RmsNorm,
}

/// A normalisation over the channels of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormSpec {
    /// LayerNorm or RMSNorm.
    pub kind: NormKind,
    /// Added to the variance, in the variance's unit.
    pub eps: f32,
    /// Whether a bias vector exists. The weight vector always does.
    pub has_bias: bool,
}

/// What the residual connection of a sublayer adds the sublayer's output to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResidualFrom {
    /// The sublayer's input (pre-LN, the usual).
    Input,
    /// The normed input (BLOOM's `apply_residual_connection_post_layernorm`, Alilama's attention).
    Norm,
}

/// How the two sublayers of a block are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// Attention, then the MLP on its result, each with its own norm.
    Sequential,
    /// Both from the block's input: `x + attention(norm1(x)) + mlp(norm(x))`.
    Parallel {
        /// `true`: the MLP reads `norm1(x)` and the block has no second norm; `false`: it reads `norm2(x)`.
        shared_norm: bool,
    },
}

/// One block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockSpec {
    /// Both norms of the block.
    pub norm: NormSpec,
    /// Residual of the attention sublayer.
    pub attention_residual: ResidualFrom,
    /// Residual of the MLP sublayer. Must be `Input` in a parallel block.
    pub mlp_residual: ResidualFrom,
    /// Sequential or parallel.
    pub arrangement: Arrangement,
    /// Attention sublayer.
    pub attention: AttentionSpec,
    /// MLP sublayer.
    pub mlp: MlpSpec,
}

/// Attention sublayer. Order: projection, bias, clamp, query/key norm, attention, output projection.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Whether the query, key and value projections have biases.
    pub qkv_bias: bool,
    /// Output projection; `None`: the heads are concatenated and that is all (Alilama), needs `n_heads * head_width == width`.
    pub output: Option<OutputSpec>,
    /// Clamp q, k and v to `[-c, c]` right after the projection (MPT `clip_qkv`).
    pub clip_qkv: Option<f32>,
    /// Norm of queries and keys, after the clamp (MPT `qk_ln`, `qk_gn`).
    pub qk_norm: Option<QkNormSpec>,
    /// Factor of `q.k`, usually `1/sqrt(head_width)`.
    pub scale: f32,
    /// Divide the scale by `layer + 1` (Jais/GPT-2 `scale_attn_by_inverse_layer_idx`).
    pub inverse_layer_scale: bool,
}

/// Output projection of the attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSpec {
    /// Whether it has a bias.
    pub bias: bool,
}

/// Norm of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QkNormSpec {
    /// Kind, epsilon, bias.
    pub norm: NormSpec,
    /// Over what.
    pub extent: QkNormExtent,
}

/// Channels over which the query/key norm runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QkNormExtent {
    /// All heads at once: weights have `heads * head_width` entries.
    Full,
    /// Each head by itself, sharing weights of `head_width` entries.
    PerHead,
}

/// Nonlinearity of the MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))` (BLOOM).
    GeluTanh,
    /// `x/2 * (1 + erf(x/sqrt(2)))` (MPT, Falcon).
    GeluErf,
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `max(x, 0)`.
    Relu,
}

/// MLP sublayer: `down(act(up(x)))`, or `down(act(gate(x)) * up(x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct MlpSpec {
    /// Hidden channels.
    pub hidden: usize,
    /// Nonlinearity.
    pub activation: Activation,
    /// Whether there is a gate.
    pub gated: bool,
    /// Whether the projections have biases.
    pub bias: bool,
}

/// Output head: `logits = cap(logit_scale * W x)`, `cap(z) = c tanh(z/c)`.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadSpec {
    /// Whether the head is the embedding table.
    pub tied: bool,
    /// Factor of the logits; 1 for most.
    pub logit_scale: f32,
    /// Final soft cap, logits (MPT `final_logit_softcapping`).
    pub soft_cap: Option<f32>,
}

/// Position bias.
#[derive(Clone, Debug, PartialEq)]
pub struct AlibiSpec {
    /// Slope of every query head.
    pub slopes: Vec<f64>,
    /// Bias as a function of distance; linear in a plain ALiBi model.
    pub bias: BiasFunction,
    /// How the family's own implementation forms it.
    pub convention: BiasConvention,
}

impl ModelSpec {
    /// Channels of all query heads together.
    pub fn query_width(&self) -> usize {
        self.n_heads * self.head_width
    }

    /// Channels of all key (or value) heads together.
    pub fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_width
    }

    /// Factor of `q.k` in a layer.
    pub fn score_scale(&self, layer: usize) -> f32 {
        let attention = &self.block.attention;
        if attention.inverse_layer_scale {
            attention.scale / (layer as f32 + 1.0)
        } else {
            attention.scale
        }
    }

    /// Whether a block has a second norm.
    pub fn has_second_norm(&self) -> bool {
        self.block.arrangement != Arrangement::Parallel { shared_norm: true }
    }
}
