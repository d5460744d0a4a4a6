//! What a configuration says about a model's position bias, weights or no weights.

use numerics::{
    BiasConvention, BiasFunction, Family, PlanName, PrecisionPlan, ScaleOrder, SlopeError,
    SlopeRule, SlopeSchedule,
};

use super::notes::Note;
use crate::families::default_notes;

/// Facts of a model that its configuration (or specification file) settles; enough for horizons without any weight.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFacts {
    /// Name for reports: the folder's name, or the name in the specification file.
    pub name: String,
    /// Whose conventions the model follows.
    pub family: Family,
    /// `model_type` of the configuration, or `spec` for a specification file.
    pub model_type: String,
    /// What said that the model has linear biases, for example `attn_config.alibi = true`.
    pub evidence: String,
    /// Number of layers.
    pub n_layers: usize,
    /// Attention (query) heads a layer.
    pub n_heads: usize,
    /// Key/value heads a layer.
    pub n_kv_heads: usize,
    /// Channels of one head.
    pub head_width: usize,
    /// Channels of the residual stream.
    pub width: usize,
    /// Rows of the embedding, when the configuration says so.
    pub vocab_size: Option<usize>,
    /// Rule of the slopes.
    pub slopes: SlopeSchedule,
    /// Exponent of the flattest slope, for families that have such a setting or a fixed one; `None` for lists.
    pub bias_max: Option<f64>,
    /// Bias as a function of distance; linear but for specification files and a static `alibi_scaling`.
    pub bias: BiasFunction,
    /// How the family forms the bias.
    pub convention: BiasConvention,
    /// Factor of `q.k` (of layer 0 where it depends on the layer), usually `1/sqrt(head_width)`.
    pub score_scale: f64,
    /// Longest training sequence in tokens, when the configuration says so. Starting sizes of encoder tables are no such limit.
    pub trained_length: Option<u64>,
    /// Whether keys after the query are masked.
    pub causal: bool,
    /// Traps and remarks, in a fixed order.
    pub notes: Vec<Note>,
}

/// Shape of a model that is known without any file: from the literature, or as a user types it.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedModel {
    /// Name for reports.
    pub name: String,
    /// Whose conventions it follows.
    pub family: Family,
    /// Attention heads a layer.
    pub n_heads: usize,
    /// Channels of one head, where known.
    pub head_width: Option<usize>,
    /// Layers, where known.
    pub n_layers: Option<usize>,
    /// Longest training sequence in tokens, where known.
    pub trained_length: Option<u64>,
    /// Bias maximum of the slope rule, for families that have one; 8 where not given.
    pub bias_max: Option<f64>,
    /// Who says so.
    pub evidence: String,
}

impl ModelFacts {
    /// Facts of a described model whose settings are its family's defaults, traps included. What is not known is 0
    /// (layers, widths) or, for the factor of `q.k`, 1. A custom family has no slope rule: it gets the standard one.
    #[must_use]
    pub fn described(model: DescribedModel) -> Self {
        let family = model.family;
        let head_width = model.head_width.unwrap_or(0);
        let notes = default_notes(family, model.bias_max, model.trained_length);
        Self {
            name: model.name,
            family,
            model_type: family.name().to_owned(),
            evidence: model.evidence,
            n_layers: model.n_layers.unwrap_or(0),
            n_heads: model.n_heads,
            n_kv_heads: model.n_heads,
            head_width,
            width: head_width * model.n_heads,
            vocab_size: None,
            slopes: family
                .slope_schedule(model.bias_max)
                .unwrap_or(SlopeSchedule::Press),
            bias_max: Some(model.bias_max.unwrap_or(8.0)),
            bias: BiasFunction::linear(),
            convention: family.convention(),
            score_scale: model
                .head_width
                .map_or(1.0, |width| 1.0 / (width as f64).sqrt()),
            trained_length: model.trained_length,
            causal: family.convention().causal,
            notes,
        }
    }

    /// Factor between slope and effective slope: `score_scale` where the bias is added before the scaling (Falcon), else 1,
    /// times the interpolation of the bias.
    pub fn bias_scale(&self) -> f64 {
        let scale = match self.convention.scale_order {
            ScaleOrder::BiasBeforeScale => self.score_scale,
            ScaleOrder::BiasAfterScale => 1.0,
        };
        scale * self.bias.interpolation
    }

    /// A plan for this very model: with the bias as it is described, if it is; where a runtime is known not to read a setting of
    /// the slopes, its plan has the slopes that it uses instead (the notes say so; docs/FAMILIES.md has the sources).
    #[must_use]
    pub fn as_run_by(&self, plan: PrecisionPlan) -> PrecisionPlan {
        use PlanName::{HfEager, HfSdpa, VllmPaged, VllmTriton};
        let plan = plan.with_model_convention(self.family, &self.convention);
        for note in &self.notes {
            match (note, &self.slopes) {
                (Note::MptBiasMaxIgnored { .. }, SlopeSchedule::Mpt { bias_max })
                    if matches!(plan.name, HfEager | HfSdpa) =>
                {
                    let rule = SlopeRule {
                        power: 8.0 / bias_max,
                        ..SlopeRule::CONFIGURED
                    };
                    return plan.with_slope_rule(
                        rule,
                        "transformers modeling_mpt.py, build_mpt_alibi_tensor: called without alibi_bias_max, so 8",
                    );
                }
                (
                    Note::AlibiScaling {
                        factor: Some(factor),
                        ..
                    },
                    _,
                ) if matches!(plan.name, VllmPaged | VllmTriton) => {
                    let rule = SlopeRule {
                        factor: *factor,
                        ..SlopeRule::CONFIGURED
                    };
                    return plan.with_slope_rule(rule, "vLLM jais.py: alibi_scaling is not read");
                }
                _ => {}
            }
        }
        let source = match self.family {
            Family::Bloom => "transformers modeling_bloom.py, build_alibi_tensor: torch.pow in f32",
            Family::Refact => "smallcloudai modeling_gpt_refact.py, _get_slopes: torch.pow in f32",
            _ => return plan,
        };
        if plan.name != HfEager {
            return plan;
        }
        let rule = SlopeRule {
            chain_of: Some(self.n_heads),
            ..SlopeRule::CONFIGURED
        };
        plan.with_slope_rule(rule, source)
    }

    /// Slope of every head, in head order, before [`ModelFacts::bias_scale`].
    pub fn slope_values(&self) -> Result<Vec<f64>, SlopeError> {
        self.slopes.slopes(self.n_heads)
    }
}
