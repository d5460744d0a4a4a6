//! Precision plans: the ordered list of formats and roundings a runtime applies to attention, as data.
//!
//! The same weights go blind at different distances in different runtimes, because each rounds the bias, the scores and the
//! probabilities in its own places. A plan says which places, in which format, with one source line a step. Everything that
//! uses a plan (closed-form counts, evidence from a forward pass, certificates) reads these fields; [`crate::emulate`]
//! executes them one scalar at a time and is what the faster paths are tested against.
//!
//! The order of the steps, for a query `i` and a key `j`, with `r(F, x)` for one rounding to format `F`:
//!
//! 1. slope: `m = r(slope, m)`;
//! 2. bias: `b = r(storage, r(product, m * r(position, p)))`, `p` the key's position or the distance;
//! 3. raw score: `s = r(raw_score, q.k)`;
//! 4. scale and sum as [`BiasPlacement`] says, the result rounded to `sum`;
//! 5. numerator: `exp(s - max - max_offset)` under [`ExpRule`];
//! 6. probability: divided by the row's sum first where `normalise_before_cast` says so, then rounded to `probability`;
//! 7. products with V gathered in `accumulator`, the output rounded to `output`.

mod error;
mod order;
mod parse;
mod path;
mod runtimes;
mod score;
mod zero;

pub use order::{BlockOrder, BlockVisits, RowOrder, RowPlace};
pub use parse::{PlanError, plan_names};
pub use path::ScorePath;
pub use score::{ScoreSpec, stored_bias, stored_biases};
pub use zero::{Criterion, GapBounds, QuotientRule, ZeroRule};

use crate::convention::{BiasForm, KeyOrigin, ScaleOrder};
use crate::format::{Format, Underflow};

/// Which runtime, or which idealisation, a plan describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PlanName {
    /// `f64`: the exact entry, `exp` in binary64.
    F64,
    /// `ieee`: the exact entry, `exp` in the dtype with gradual underflow.
    Ieee,
    /// `ftz`: the exact entry, `exp` in the dtype with results below the smallest normal flushed to zero.
    Ftz,
    /// `hf-eager`: Hugging Face transformers, `attn_implementation="eager"`, as each family's code has it.
    HfEager,
    /// `hf-sdpa`: `scaled_dot_product_attention` on the CPU with the bias as additive mask.
    HfSdpa,
    /// `flash-attn2`: FlashAttention-2 with `alibi_slopes`.
    FlashAttn2,
    /// `vllm-paged`: vLLM's paged attention v1/v2 CUDA kernels (decode).
    VllmPaged,
    /// `vllm-triton`: vLLM's unified Triton kernel.
    VllmTriton,
    /// `llama-cpp-cpu`: llama.cpp on the CPU without flash attention.
    LlamaCppCpu,
    /// `llama-cpp-cuda-fa`: llama.cpp's CUDA flash attention.
    LlamaCppCudaFa,
    /// `foundry-torch`: llm-foundry's `attn_impl: torch`.
    FoundryTorch,
    /// `flex-attention`: PyTorch FlexAttention with the bias as `score_mod`.
    FlexAttention,
    /// `megatron-deepspeed`: the code BLOOM was trained with.
    MegatronDeepspeed,
}

impl PlanName {
    /// Every plan, in the order of [`plan_names`].
    pub const ALL: [PlanName; 13] = [
        PlanName::F64,
        PlanName::Ieee,
        PlanName::Ftz,
        PlanName::HfEager,
        PlanName::HfSdpa,
        PlanName::FlashAttn2,
        PlanName::VllmPaged,
        PlanName::VllmTriton,
        PlanName::LlamaCppCpu,
        PlanName::LlamaCppCudaFa,
        PlanName::FoundryTorch,
        PlanName::FlexAttention,
        PlanName::MegatronDeepspeed,
    ];

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            PlanName::F64 => "f64",
            PlanName::Ieee => "ieee",
            PlanName::Ftz => "ftz",
            PlanName::HfEager => "hf-eager",
            PlanName::HfSdpa => "hf-sdpa",
            PlanName::FlashAttn2 => "flash-attn2",
            PlanName::VllmPaged => "vllm-paged",
            PlanName::VllmTriton => "vllm-triton",
            PlanName::LlamaCppCpu => "llama-cpp-cpu",
            PlanName::LlamaCppCudaFa => "llama-cpp-cuda-fa",
            PlanName::FoundryTorch => "foundry-torch",
            PlanName::FlexAttention => "flex-attention",
            PlanName::MegatronDeepspeed => "megatron-deepspeed",
        }
    }
}

/// How the bias is formed and rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BiasPath {
    /// Key position or distance. Holds for the plain linear bias under a causal mask; every other bias is a function of the
    /// distance and takes the relative form, see [`PrecisionPlan::bias_form`].
    pub form: BiasForm,
    /// Where a key-position bias is 0.
    pub origin: KeyOrigin,
    /// Format the position or distance is rounded to.
    pub position: Format,
    /// Format the product slope times position is rounded to.
    pub product: Format,
    /// Format the product is then stored in.
    pub storage: Format,
}

/// Where the bias meets the score. `s` is the rounded `q.k`, `c` the attention scale, `b` the stored bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BiasPlacement {
    /// `r(sum, r(scaled, s c) + b)`: one addition, in f32, then the rounding to `sum`.
    AfterScale,
    /// The family scales the bias with the score; this runtime multiplies the slope by `c` (f32) and adds after the scale.
    SlopeTimesScale,
    /// The stored bias is multiplied by `c`, rounded to `storage`, and is an additive mask after the scale (Falcon, SDPA).
    StoredTimesScale,
    /// `(s + b) c` in f32 (Falcon, eager).
    BeforeScale,
    /// The slope is divided by `c` (f32) and the bias added to the unscaled score: `(s + b) c` (FlashAttention-2).
    SlopeOverScale,
}

impl BiasPlacement {
    /// Whether the stored bias is added to the unscaled score.
    pub const fn is_before_scale(self) -> bool {
        matches!(
            self,
            BiasPlacement::BeforeScale | BiasPlacement::SlopeOverScale
        )
    }
}

/// The maximum that is subtracted before the exponential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaxReference {
    /// The row's own maximum.
    Final,
    /// The maximum over the key blocks visited so far; earlier blocks are scaled down when it rises.
    Running {
        /// Keys in a block; blocks start at multiples of this.
        key_block: usize,
        /// Order of the visit.
        order: BlockOrder,
    },
}

/// How an exponential is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpRule {
    /// Format of the numerator.
    pub format: Format,
    /// What happens to numerators too small to be normal.
    pub underflow: Underflow,
    /// Exponent in nats below which the numerator is exactly 0: derived from format and underflow, or measured.
    pub zero_below: f64,
    /// Where `zero_below` comes from.
    pub source: &'static str,
}

/// One step of a plan, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    /// What is computed.
    pub what: &'static str,
    /// The format it is rounded to.
    pub format: Format,
    /// Where this was read or measured.
    pub source: &'static str,
}

/// What a runtime makes of a configured slope `m`: `factor * m^power`. Both are 1 where it does as it is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlopeRule {
    /// Heads of a model whose slopes of Press et al. are powers of one f32 number, see [`crate::slopes::power_chain`]. Other slopes
    /// than those stay as they are.
    pub chain_of: Option<usize>,
    /// Exponent. A schedule `2^(-b x)` evaluated with another bias maximum `b'` is raised to `b' / b`.
    pub power: f64,
    /// Factor, after the exponent.
    pub factor: f64,
}

impl SlopeRule {
    /// Slopes as configured.
    pub const CONFIGURED: SlopeRule = SlopeRule {
        chain_of: None,
        power: 1.0,
        factor: 1.0,
    };

    /// Whether slopes differ from the configured ones by more than roundings of f32.
    pub fn is_another_schedule(self) -> bool {
        (self.power, self.factor) != (1.0, 1.0)
    }

    fn apply(self, slope: f64) -> f64 {
        let slope = match self.chain_of {
            Some(n_heads) => crate::slopes::power_chain(n_heads, slope),
            None => slope,
        };
        if self.is_another_schedule() {
            self.factor * slope.powf(self.power)
        } else {
            slope
        }
    }
}

/// The formats and roundings of one runtime, resolved for one family and dtype. See the module's text for the order.
#[derive(Clone, Debug, PartialEq)]
pub struct PrecisionPlan {
    /// Which runtime.
    pub name: PlanName,
    /// The dtype argument: the model's dtype (llama.cpp: of the key/value cache).
    pub dtype: Format,
    /// Format of the slope.
    pub slope: Format,
    /// Formation of the bias.
    pub bias: BiasPath,
    /// Plans `f64`, `ieee`, `ftz`: the entry `q.k * scale + bias` is exact, so that exponent failure is seen apart from
    /// significand failure; `bias` then feeds the collapse counts only.
    pub idealised: bool,
    /// Rounding of `q.k`.
    pub raw_score: Format,
    /// Rounding of `q.k * scale` where the bias is added after the scale.
    pub scaled: Format,
    /// The family's order: whether the effective slope contains the attention scale.
    pub scale_order: ScaleOrder,
    /// How this runtime realises that order.
    pub placement: BiasPlacement,
    /// How often the bias is added: 2 for Falcon under Hugging Face eager, else 1.
    pub bias_multiplicity: u32,
    /// The slopes this runtime uses, where they are not those of the configuration.
    pub slope_rule: SlopeRule,
    /// Rounding of score plus bias.
    pub sum: Format,
    /// The maximum subtracted.
    pub max_reference: MaxReference,
    /// Added to that maximum, nats (3 ln 2 in llama.cpp's CUDA flash attention).
    pub max_offset: f64,
    /// The exponential.
    pub exp: ExpRule,
    /// The exponential of a rise of the running maximum, which scales down what was gathered; `None` if it is that of the numerators.
    pub rescale: Option<ExpRule>,
    /// Format of the quotient numerator / sum where it is formed before the cast; `None` where the division comes at the end.
    pub normalise_before_cast: Option<Format>,
    /// Format of the weights that multiply V.
    pub probability: Format,
    /// Underflow of that cast.
    pub probability_underflow: Underflow,
    /// Format of the row's sum, of the rescaling, and of the accumulator of `P V`.
    pub accumulator: Format,
    /// Format of the attention output.
    pub output: Format,
    /// One line a step, in order.
    pub steps: Vec<PlanStep>,
    pub(crate) key: String,
}

impl PrecisionPlan {
    /// `NAME` or `NAME:DTYPE` as the user wrote it: the key of this plan in reports.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// This plan with the bias stored in another format (`--bias-dtype`). An idealised plan's exponents do not change, only
    /// its collapse counts; any other plan's scores do.
    #[must_use]
    pub fn with_bias_storage(mut self, storage: Format) -> Self {
        self.bias.storage = storage;
        // A wide storage asks for the bias not to be rounded on the way either.
        if storage == Format::F64 {
            self.bias.product = Format::F64;
        }
        self
    }

    /// This plan with the bias in another form (`--convention absolute|relative`). As for
    /// [`PrecisionPlan::with_bias_storage`], an idealised plan's exponents do not change.
    #[must_use]
    pub fn with_bias_form(mut self, form: BiasForm) -> Self {
        self.bias.form = form;
        self
    }

    /// This plan for a configuration of which the runtime uses other slopes. `source` is where that was read or measured.
    #[must_use]
    pub fn with_slope_rule(mut self, rule: SlopeRule, source: &'static str) -> Self {
        self.slope_rule = rule;
        let what = if rule.is_another_schedule() {
            "slopes other than the configuration's"
        } else {
            "slopes: powers of one f32 number"
        };
        self.steps.insert(
            0,
            PlanStep {
                what,
                format: self.slope,
                source,
            },
        );
        self
    }

    /// The slope that this runtime uses for a configured one, before any rounding.
    pub fn runtime_slope(&self, slope: f64) -> f64 {
        self.slope_rule.apply(slope)
    }

    /// The slope whose product with the distance reaches the softmax: [`PrecisionPlan::runtime_slope`] of the configured `slope`,
    /// times the attention scale where the family scales its bias with the score, times [`PrecisionPlan::bias_multiplicity`].
    pub fn effective_slope(&self, slope: f64, attention_scale: f64) -> f64 {
        let scale = match self.scale_order {
            ScaleOrder::BiasAfterScale => 1.0,
            ScaleOrder::BiasBeforeScale => attention_scale,
        };
        self.runtime_slope(slope) * scale * f64::from(self.bias_multiplicity)
    }

    /// Whether both plans compute the same entries for every input, so that one pass of maxima and sums serves both.
    pub fn shares_scores_with(&self, other: &PrecisionPlan) -> bool {
        if self.idealised && other.idealised {
            return self.scale_order == other.scale_order
                && self.slope_rule == other.slope_rule
                && self.bias_multiplicity == other.bias_multiplicity;
        }
        self.idealised == other.idealised
            && self.slope == other.slope
            && self.slope_rule == other.slope_rule
            && self.bias == other.bias
            && self.raw_score == other.raw_score
            && self.scaled == other.scaled
            && self.scale_order == other.scale_order
            && self.placement == other.placement
            && self.bias_multiplicity == other.bias_multiplicity
            && self.sum == other.sum
    }
}
