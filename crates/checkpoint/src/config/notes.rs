//! Traps and remarks that a configuration or checkpoint gives rise to, as data, so that checks can turn them into findings.
//!
//! Sources are the reference implementations and runtimes as read or run; docs/FAMILIES.md names the versions.

/// Something about this model that a careful user should know. [`Note::is_trap`] tells what can silently change results in a
/// runtime from what is only information.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// transformers' eager attention adds Falcon's bias twice (4.45 and later).
    FalconEagerDoubling,
    /// Falcon's bias is rounded to bf16 twice in every dtype.
    FalconBf16Bias,
    /// llama.cpp, candle and text-generation-inference refuse Falcon with ALiBi.
    FalconRuntimesRefuse,
    /// transformers' own MPT ignores `alibi_bias_max`.
    MptBiasMaxIgnored {
        /// The configured value, not 8.
        bias_max: f64,
    },
    /// transformers' own MPT ignores `qk_ln` and `qk_gn`.
    MptQkNormIgnored,
    /// transformers' own MPT ignores `kv_n_heads`.
    MptKvHeadsIgnored {
        /// The configured number of key/value heads.
        n_kv_heads: usize,
    },
    /// transformers' own MPT ignores `logit_scale`: loss and probabilities of tokens differ, attention does not.
    MptLogitScaleIgnored,
    /// transformers' own MPT ignores `attn_logit_softcapping`.
    MptSoftCapIgnored {
        /// The configured cap of the scores.
        cap: f64,
    },
    /// transformers' own MPT does not read a setting beside attention: its hidden states are others.
    MptSettingIgnored {
        /// The key and its value.
        setting: String,
        /// What is done instead.
        instead: &'static str,
    },
    /// transformers' own MPT fails beyond `max_seq_len`.
    MptLengthLimit {
        /// The configured limit in tokens.
        max_seq_len: u64,
    },
    /// llm-foundry with flash attention forms the bias by key position in prefill and by distance in decoding.
    MptFlashDecodeForm,
    /// vLLM ignores MPT's `softmax_scale`; GGUF conversion drops it.
    MptSoftmaxScaleDropped {
        /// The configured factor of `q.k`.
        softmax_scale: f64,
    },
    /// vLLM runs BLOOM with the erf GELU; the reference uses the tanh form.
    BloomVllmActivation,
    /// llama.cpp evaluates the tanh GELU where the reference uses the erf form.
    LlamaCppTanhGelu,
    /// In half precision the bias by key position is rounded in the model's dtype: neighbouring keys tie.
    HalfPrecisionCollapse,
    /// The slopes are a checkpoint parameter and are cast to the model's dtype on load.
    SlopesInModelDtype,
    /// `alibi_scaling` is configured: slopes shrink, by a fixed factor or with the length; vLLM ignores it.
    AlibiScaling {
        /// Fixed factor that divides the slopes.
        factor: Option<f64>,
        /// Training length from which on the slopes are divided by `length / train_seq_len`.
        train_seq_len: Option<u64>,
    },
    /// Baichuan2 normalises the rows of its output head on load.
    BaichuanNormHead,
    /// Baichuan's softmax runs in the model's dtype.
    SoftmaxInModelDtype,
    /// llama.cpp runs Refact with RMSNorm where the reference has LayerNorm.
    RefactLlamaCppRmsNorm,
    /// A Refact whose attention is configured to stay in the model's dtype.
    RefactHalfPrecision {
        /// The key that is false.
        key: &'static str,
    },
    /// First replit-code model: slope rule without the power-of-two step, slopes and positions in the model's dtype.
    ReplitNaiveSlopes,
    /// The encoder's bias table starts at this length and grows; it is no limit.
    AlibiStartingSize {
        /// Configured `alibi_starting_size`, tokens.
        size: u64,
    },
    /// 16-bit weights are widened to f32 as they are read; the values do not change.
    WeightsWidened {
        /// Tensors stored as F16.
        f16: usize,
        /// Tensors stored as BF16.
        bf16: usize,
    },
    /// The configuration ties the head to the embedding, and the file holds a head as well, which is not used.
    StoredHeadUnused {
        /// Name of the unused tensor.
        tensor: String,
    },
}

impl Note {
    /// Stable identifier.
    pub fn id(&self) -> &'static str {
        match self {
            Note::FalconEagerDoubling => "falcon-double-bias",
            Note::FalconBf16Bias => "falcon-bf16-bias",
            Note::FalconRuntimesRefuse => "falcon-runtimes-refuse",
            Note::MptBiasMaxIgnored { .. } => "mpt-bias-max-ignored",
            Note::MptQkNormIgnored => "mpt-qk-norm-ignored",
            Note::MptKvHeadsIgnored { .. } => "mpt-kv-heads-ignored",
            Note::MptLogitScaleIgnored => "mpt-logit-scale-ignored",
            Note::MptSoftCapIgnored { .. } => "mpt-soft-cap-ignored",
            Note::MptSettingIgnored { .. } => "mpt-setting-ignored",
            Note::MptLengthLimit { .. } => "mpt-length-limit",
            Note::MptFlashDecodeForm => "mpt-flash-decode-form",
            Note::MptSoftmaxScaleDropped { .. } => "mpt-softmax-scale-dropped",
            Note::BloomVllmActivation => "bloom-vllm-activation",
            Note::LlamaCppTanhGelu => "llama-cpp-tanh-gelu",
            Note::HalfPrecisionCollapse => "half-precision-collapse",
            Note::SlopesInModelDtype => "slopes-in-model-dtype",
            Note::AlibiScaling { .. } => "alibi-scaling",
            Note::BaichuanNormHead => "baichuan-norm-head",
            Note::SoftmaxInModelDtype => "softmax-in-model-dtype",
            Note::RefactLlamaCppRmsNorm => "refact-llama-cpp-rms-norm",
            Note::RefactHalfPrecision { .. } => "refact-half-precision",
            Note::ReplitNaiveSlopes => "replit-naive-slopes",
            Note::AlibiStartingSize { .. } => "alibi-starting-size",
            Note::WeightsWidened { .. } => "weights-widened",
            Note::StoredHeadUnused { .. } => "stored-head-unused",
        }
    }

    /// The runtime that misbehaves; `None` where the note is about the model itself.
    pub fn runtime(&self) -> Option<&'static str> {
        match self {
            Note::FalconEagerDoubling
            | Note::MptBiasMaxIgnored { .. }
            | Note::MptQkNormIgnored
            | Note::MptKvHeadsIgnored { .. }
            | Note::MptLogitScaleIgnored
            | Note::MptSoftCapIgnored { .. }
            | Note::MptSettingIgnored { .. }
            | Note::MptLengthLimit { .. } => Some("transformers"),
            Note::FalconRuntimesRefuse => Some("llama.cpp, candle, text-generation-inference"),
            Note::MptFlashDecodeForm => Some("llm-foundry with flash attention"),
            Note::MptSoftmaxScaleDropped { .. } => Some("vLLM, llama.cpp"),
            Note::BloomVllmActivation | Note::AlibiScaling { .. } => Some("vLLM"),
            Note::LlamaCppTanhGelu | Note::RefactLlamaCppRmsNorm => Some("llama.cpp"),
            _ => None,
        }
    }

    /// Whether a runtime or dtype silently computes something else than the model was trained with.
    pub fn is_trap(&self) -> bool {
        !matches!(
            self,
            Note::FalconBf16Bias
                | Note::FalconRuntimesRefuse
                | Note::BaichuanNormHead
                | Note::AlibiStartingSize { .. }
                | Note::WeightsWidened { .. }
                | Note::StoredHeadUnused { .. }
        )
    }

    /// What happens and why, in one line.
    pub fn text(&self) -> String {
        match self {
            Note::FalconEagerDoubling => "transformers' eager attention (4.45 and later, and sdpa with output_attentions) adds the bias twice: effective slopes double and every horizon halves; use sdpa without output_attentions".to_owned(),
            Note::FalconBf16Bias => "the reference rounds slope, position and their product to bf16 even in f32 models, so keys from 257 on come in tied groups; this tool does the same".to_owned(),
            Note::FalconRuntimesRefuse => "llama.cpp, candle and text-generation-inference do not run Falcon with ALiBi".to_owned(),
            Note::MptBiasMaxIgnored { bias_max } => format!("alibi_bias_max is {bias_max}; transformers' own MPT code ignores it and uses 8, so its slopes are wrong (hf-eager and hf-sdpa are computed with them); use the model's own code (trust_remote_code) or llm-foundry"),
            Note::MptQkNormIgnored => "qk_ln or qk_gn is set; transformers' own MPT code has no query/key norm and drops it".to_owned(),
            Note::MptKvHeadsIgnored { n_kv_heads } => format!("kv_n_heads is {n_kv_heads}; transformers' own MPT code knows no grouped key/value heads"),
            Note::MptLogitScaleIgnored => "logit_scale is set; transformers' own MPT code does not read it, so loss and token probabilities differ from those here; attention does not".to_owned(),
            Note::MptSoftCapIgnored { cap } => format!("attn_logit_softcapping is {cap}; transformers' own MPT code does not read it and caps nothing: scores and horizons here are with the cap"),
            Note::MptSettingIgnored { setting, instead } => format!("{setting}; transformers' own MPT code does not read it and {instead}: loss and scores there are not those here"),
            Note::MptLengthLimit { max_seq_len } => format!("transformers' own MPT code fails with a shape error beyond max_seq_len = {max_seq_len} tokens; raise max_seq_len in the configuration there; this tool has no such limit"),
            Note::MptFlashDecodeForm => "llm-foundry with flash attention forms the bias by key position in prefill and by distance in decoding; in half precision the two round differently".to_owned(),
            Note::MptSoftmaxScaleDropped { softmax_scale } => format!("softmax_scale is {softmax_scale}; vLLM ignores it and GGUF conversion drops it: both use 1/sqrt(head width)"),
            Note::BloomVllmActivation => "vLLM evaluates BLOOM's activation with the erf GELU; the model was trained with the tanh form".to_owned(),
            Note::LlamaCppTanhGelu => "llama.cpp evaluates the GELU by the tanh form (an f16 table); the model was trained with the erf form".to_owned(),
            Note::HalfPrecisionCollapse => "the bias grows with the key's position and is added in the model's dtype: in bf16 or f16 neighbouring recent keys get equal biases (position collapse)".to_owned(),
            Note::SlopesInModelDtype => "the slopes are a checkpoint parameter that is cast to the model's dtype: in bf16 they are off by up to 0.4 %".to_owned(),
            Note::AlibiScaling { factor, train_seq_len } => {
                let how = match (factor, train_seq_len) {
                    (Some(factor), _) => format!("slopes are divided by {factor}"),
                    (None, Some(length)) => format!("slopes are divided by length/{length} beyond {length} tokens, so prefill and decoding must agree on the length; horizons here are those of the undivided slopes"),
                    (None, None) => "its form is not known and not applied here".to_owned(),
                };
                let ignored = if factor.is_some() {
                    "vLLM ignores it (its plans are computed without)"
                } else {
                    "vLLM ignores it"
                };
                format!("alibi_scaling is configured: {how}; {ignored}")
            }
            Note::BaichuanNormHead => "if this is Baichuan2, the rows of lm_head are scaled to length 1 on load".to_owned(),
            Note::SoftmaxInModelDtype => "the reference runs the softmax in the model's dtype: in f16 a weight is zero 17.3 nats below the maximum".to_owned(),
            Note::RefactLlamaCppRmsNorm => "llama.cpp runs this model with RMSNorm; the reference uses LayerNorm".to_owned(),
            Note::RefactHalfPrecision { key } => format!("{key} is false: the model's own code then rounds to its dtype where hf-eager is computed in f32"),
            Note::ReplitNaiveSlopes => "this model's code uses 2^(-8(h+1)/H) for every head count, and keeps slopes and positions in the model's dtype".to_owned(),
            Note::AlibiStartingSize { size } => format!("the bias table starts at alibi_starting_size = {size} tokens and grows; it is not a limit"),
            Note::WeightsWidened { f16, bf16 } => format!("16-bit weights are widened to f32 as they are read, values unchanged (tensors: {f16} F16, {bf16} BF16)"),
            Note::StoredHeadUnused { tensor } => format!("the configuration ties the output head to the embedding, so the stored tensor {tensor} is not used"),
        }
    }
}
