//! The decoder that is trained: a pre-LN transformer as data.

use numerics::{BiasFunction, BiasShape, Remedy, RemedyError, SlopeSchedule};
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// Which normalisation. Both have a weight; LayerNorm has a bias where the model has biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// `(x - mean) / sqrt(var + eps) * weight + bias`, biased variance.
    LayerNorm,
    /// `x / sqrt(mean(x^2) + eps) * weight`.
    RmsNorm,
}

/// The feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MlpKind {
    /// `down(gelu(up(x)))` with the error-function GELU.
    Gelu,
    /// `down(silu(gate(x)) * up(x))`.
    Swiglu,
}

/// Largest size that is believed: with [`LAYERS_MAX`] layers the bytes of a run still fit 64 bits.
pub const SIZE_MAX: usize = 1 << 20;

/// Most layers that are believed.
pub const LAYERS_MAX: usize = 4096;

/// Epsilon of every norm.
pub const NORM_EPS: f32 = 1e-5;

/// Sizes and choices of the decoder. Block: `x += out(attention(norm1(x))); x += down(act(up(norm2(x))))`; a norm before the head.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ModelShape {
    /// Number of blocks.
    pub layers: usize,
    /// Channels of the residual stream.
    pub width: usize,
    /// Attention heads; divides the width.
    pub heads: usize,
    /// Channels of the feed-forward layer.
    pub hidden: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Longest training sequence, tokens.
    pub context: usize,
    /// Norms.
    pub norm: NormKind,
    /// Feed-forward layer.
    pub mlp: MlpKind,
    /// Whether the output head is the embedding.
    pub tied: bool,
    /// Whether linear layers and norms have biases.
    pub bias: bool,
    /// Share of values dropped after the embedding and after each sublayer.
    pub dropout: f32,
}

impl ModelShape {
    /// Channels of one head.
    pub fn head_width(&self) -> usize {
        self.width / self.heads
    }

    /// Checks that the sizes agree.
    ///
    /// # Errors
    /// A size of 0, heads that do not divide the width, a dropout outside 0 to 1.
    pub fn validate(&self) -> Result<(), TrainError> {
        let fail = |what: String| Err(TrainError::config(what));
        for (name, value) in [
            ("layers", self.layers),
            ("width", self.width),
            ("heads", self.heads),
            ("hidden", self.hidden),
            ("vocab", self.vocab),
            ("context", self.context),
        ] {
            if value == 0 {
                return fail(format!("model.{name} is 0"));
            }
            if value > SIZE_MAX {
                return fail(format!("model.{name} = {value} is above {SIZE_MAX}"));
            }
        }
        if self.layers > LAYERS_MAX {
            return fail(format!(
                "model.layers = {} is above {LAYERS_MAX}",
                self.layers
            ));
        }
        if !self.width.is_multiple_of(self.heads) {
            return fail(format!(
                "model.heads = {} does not divide model.width = {}",
                self.heads, self.width
            ));
        }
        if self.heads > numerics::slopes::MAX_HEADS {
            return fail(format!(
                "model.heads = {} is above {}",
                self.heads,
                numerics::slopes::MAX_HEADS
            ));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return fail(format!(
                "model.dropout = {} is not at least 0 and below 1",
                self.dropout
            ));
        }
        Ok(())
    }
}

/// How a decoder knows positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Position {
    /// A fixed bias by distance with the slopes of every head; every remedy and combination, and no bias at all (NoPE).
    Fixed {
        /// The bias.
        bias: BiasFunction,
        /// Slope of each head.
        slopes: Vec<f64>,
    },
    /// `-p ln(1 + a d)` with learned `p`, `a > 0` of each head, shared by all layers. Stored as logarithms, which keeps them
    /// positive. Starts at `p` = the head's ALiBi slope, `a` = 1, which is the log remedy.
    KerpleLog {
        /// `p` of each head at the start.
        slopes: Vec<f64>,
    },
    /// Learned bias of each head and distance bucket, shared by all layers, starting at 0 (Raffel et al. 2020).
    T5 {
        /// Number of buckets.
        buckets: usize,
        /// Distance from which all keys share the last one.
        max_distance: usize,
    },
    /// Rotary embedding of queries and keys; no bias.
    Rope {
        /// Base of the frequencies, usually 10000.
        base: f32,
    },
}

/// `[position]` of a run file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PositionConfig {
    /// `alibi`, `nope`, `kerple-log`, `t5` or `rope`.
    pub kind: PositionKind,
    /// Remedy of `alibi`, such as `log+clamp=-12`; `none` for plain ALiBi.
    pub remedy: String,
    /// Slopes of each head instead of the schedule of Press et al.
    pub slopes: Option<Vec<f64>>,
    /// Exponent of the flattest slope (MPT's `alibi_bias_max`); 8 is the schedule of Press et al.
    pub bias_max: f64,
    /// Factor on all slopes: 8 makes a context of 256 look like one of 2048.
    pub slope_factor: f64,
    /// Threshold of robust slopes, nats.
    pub robust_tau: f64,
    /// T5: buckets.
    pub buckets: usize,
    /// T5: distance from which all keys share the last bucket.
    pub max_distance: usize,
    /// RoPE: base of the frequencies.
    pub base: f32,
}

/// See [`PositionConfig::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PositionKind {
    /// Bias by distance with slopes.
    Alibi,
    /// Nothing.
    Nope,
    /// Learned logarithmic bias.
    KerpleLog,
    /// Learned buckets.
    T5,
    /// Rotary embedding.
    Rope,
}

impl Default for PositionConfig {
    fn default() -> Self {
        Self {
            kind: PositionKind::Alibi,
            remedy: "none".to_owned(),
            slopes: None,
            bias_max: 8.0,
            slope_factor: 1.0,
            // ln(2^-126): flushed f32, the rule of the paper that proposed robust slopes.
            robust_tau: numerics::Format::F32.min_normal().ln(),
            buckets: 32,
            max_distance: 128,
            base: 10_000.0,
        }
    }
}

impl PositionConfig {
    /// The position scheme for `heads` heads and a context of `context` tokens.
    ///
    /// # Errors
    /// A remedy that does not parse, slopes of the wrong number, parameters out of range.
    pub fn resolve(&self, heads: usize, context: usize) -> Result<Position, TrainError> {
        let remedy = Remedy::parse(&self.remedy)
            .map_err(|e: RemedyError| TrainError::config(format!("position.remedy: {e}")))?;
        let own = match &self.slopes {
            Some(list) => SlopeSchedule::List(list.clone()),
            None => SlopeSchedule::Mpt {
                bias_max: self.bias_max,
            },
        };
        let schedule = remedy.schedule(&own, context as u64, self.robust_tau);
        let slopes = schedule
            .slopes(heads)
            .map_err(|e| TrainError::config(format!("position.slopes: {e}")))?;
        if !(self.slope_factor.is_finite() && self.slope_factor >= 0.0) {
            return Err(TrainError::config(format!(
                "position.slope-factor = {} is not a number of 0 or more",
                self.slope_factor
            )));
        }
        let slopes: Vec<f64> = slopes.iter().map(|m| m * self.slope_factor).collect();
        let plain = remedy == Remedy::none();
        if self.kind != PositionKind::Alibi && !plain {
            return Err(TrainError::config(format!(
                "position.remedy = {:?} needs position.kind = \"alibi\"",
                self.remedy
            )));
        }
        match self.kind {
            PositionKind::Alibi => {
                remedy
                    .bias
                    .validate(heads)
                    .map_err(|e| TrainError::config(format!("position.remedy: {e}")))?;
                Ok(Position::Fixed {
                    bias: remedy.bias,
                    slopes,
                })
            }
            PositionKind::Nope => Ok(Position::Fixed {
                bias: BiasFunction::with_shape(BiasShape::None),
                slopes,
            }),
            PositionKind::KerpleLog => {
                if slopes.iter().any(|m| *m <= 0.0) {
                    return Err(TrainError::config(
                        "position.kind = \"kerple-log\" starts from slopes above 0".to_owned(),
                    ));
                }
                Ok(Position::KerpleLog { slopes })
            }
            PositionKind::T5 => {
                if self.buckets < 2 || self.max_distance <= self.buckets / 2 {
                    return Err(TrainError::config(format!(
                        "position.buckets = {} and position.max-distance = {}: at least 2 buckets, and a distance above half of them",
                        self.buckets, self.max_distance
                    )));
                }
                Ok(Position::T5 {
                    buckets: self.buckets,
                    max_distance: self.max_distance,
                })
            }
            PositionKind::Rope => {
                if !(self.base > 1.0 && self.base.is_finite()) {
                    return Err(TrainError::config(format!(
                        "position.base = {} is not above 1",
                        self.base
                    )));
                }
                Ok(Position::Rope { base: self.base })
            }
        }
    }
}
