//! Bias functions: what is added to an attention score at a distance, with every remedy and every combination of them.
//!
//! One small type that kernels, training and reports all use. The parts act in a fixed order:
//!
//! 1. `interpolation` multiplies the slope;
//! 2. `shape` turns slope and distance into a bias;
//! 3. `clamp` bounds it from below;
//! 4. `soft_cap` bends the score before that bias is added, or the sum after.

mod remedy;
mod search;
mod t5;

pub use remedy::{Remedy, RemedyError};
pub use t5::t5_bucket;

/// A bias as a function of head, slope and distance, with its remedies.
#[derive(Clone, Debug, PartialEq)]
pub struct BiasFunction {
    /// How the bias depends on the distance.
    pub shape: BiasShape,
    /// Lower bound of the bias in nats (negative): `max(bias, clamp)`.
    pub clamp: Option<f64>,
    /// Soft cap of the score, before or after the bias is added.
    pub soft_cap: Option<SoftCap>,
    /// Factor on the slope, 1 for none; `L / L'` stretches a model trained at length `L` to `L'`. Multiplies `m` of the
    /// ALiBi shapes and `p` of KERPLE; T5 buckets have no slope and ignore it.
    pub interpolation: f64,
}

/// How the bias depends on the distance `d`, in tokens. Shapes with a slope use `|d|`.
#[derive(Clone, Debug, PartialEq)]
pub enum BiasShape {
    /// No bias (NoPE).
    None,
    /// ALiBi: `-m d`.
    Linear,
    /// Log-scaled distance: `-m ln(1 + d)`, a power law `(1 + d)^-m`.
    Log,
    /// `-m sqrt(d)` (Step1).
    Sqrt,
    /// KERPLE, logarithmic variant: `-p ln(1 + a d)` with learned `p`, `a` of each head. The slope is not used.
    KerpleLog {
        /// `p` of each head, 0 or more.
        p: Vec<f64>,
        /// `a` of each head, 0 or more.
        a: Vec<f64>,
    },
    /// T5 relative position buckets; see [`t5_bucket`]. The slope is not used; the sign of the distance is.
    T5Buckets {
        /// Number of buckets, for both directions together.
        n_buckets: usize,
        /// Distance from which all keys share the last bucket.
        max_distance: usize,
        /// Whether keys after the query have buckets of their own.
        bidirectional: bool,
        /// Learned bias in nats, `[head][bucket]`.
        table: Vec<Vec<f64>>,
    },
}

/// `cap * tanh(score / cap)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoftCap {
    /// Bound of the capped value in nats, positive.
    pub cap: f64,
    /// Whether the bias is inside.
    pub order: CapOrder,
}

/// Where a soft cap sits relative to the bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CapOrder {
    /// `cap(score) + bias`: what fused kernels do. It cannot prevent underflow.
    BeforeBias,
    /// `cap(score + bias)`: bounds every gap by twice the cap.
    AfterBias,
}

impl SoftCap {
    /// `cap * tanh(score / cap)`.
    pub fn apply(&self, score: f64) -> f64 {
        self.cap * (score / self.cap).tanh()
    }
}

impl Default for BiasFunction {
    fn default() -> Self {
        BiasFunction::linear()
    }
}

impl BiasFunction {
    /// Plain ALiBi, `-m d`, with no remedy.
    pub fn linear() -> Self {
        BiasFunction::with_shape(BiasShape::Linear)
    }

    /// A shape with no clamp, no cap and no interpolation.
    pub fn with_shape(shape: BiasShape) -> Self {
        BiasFunction {
            shape,
            clamp: None,
            soft_cap: None,
            interpolation: 1.0,
        }
    }

    /// The bias in nats, without the soft cap: shape, interpolation and clamp. At most 0 for the ALiBi family.
    ///
    /// `distance` is query minus key in tokens, an `f64` because closed forms reach 4e53. Only T5 buckets tell a negative
    /// distance (a later key) from a positive one.
    ///
    /// # Panics
    /// If a per-head table (KERPLE, T5) has no entry for `head`; [`BiasFunction::validate`] finds that out beforehand.
    pub fn bias(&self, head: usize, slope: f64, distance: f64) -> f64 {
        let raw = self.unclamped(head, slope, distance);
        self.clamp.map_or(raw, |floor| raw.max(floor))
    }

    fn unclamped(&self, head: usize, slope: f64, distance: f64) -> f64 {
        let m = slope * self.interpolation;
        let d = distance.abs();
        // `0.0 - x` and not `-x`: the diagonal's bias is +0.
        match &self.shape {
            BiasShape::None => 0.0,
            BiasShape::Linear => 0.0 - m * d,
            BiasShape::Log => 0.0 - m * d.ln_1p(),
            BiasShape::Sqrt => 0.0 - m * d.sqrt(),
            BiasShape::KerpleLog { p, a } => {
                0.0 - p[head] * self.interpolation * (a[head] * d).ln_1p()
            }
            BiasShape::T5Buckets {
                n_buckets,
                max_distance,
                bidirectional,
                table,
            } => table[head][t5_bucket(distance, *n_buckets, *max_distance, *bidirectional)],
        }
    }

    /// The entry of the softmax in nats: `score` (after its own scaling) and the bias, with the soft cap where it belongs.
    ///
    /// # Panics
    /// As [`BiasFunction::bias`].
    pub fn combine(&self, head: usize, slope: f64, score: f64, distance: f64) -> f64 {
        let bias = self.bias(head, slope, distance);
        match &self.soft_cap {
            None => score + bias,
            Some(cap) if cap.order == CapOrder::BeforeBias => cap.apply(score) + bias,
            Some(cap) => cap.apply(score + bias),
        }
    }

    /// Whether the bias of every head never grows with the distance (for distances of 0 and more, slopes of 0 and more).
    pub fn is_monotone(&self) -> bool {
        match &self.shape {
            BiasShape::None => true,
            BiasShape::Linear | BiasShape::Log | BiasShape::Sqrt => self.interpolation >= 0.0,
            BiasShape::KerpleLog { p, a } => {
                a.iter().all(|a| *a >= 0.0) && p.iter().all(|p| p * self.interpolation >= 0.0)
            }
            BiasShape::T5Buckets {
                n_buckets,
                max_distance,
                bidirectional,
                table,
            } => {
                // Buckets of past keys are used in ascending order; not every bucket need be reached.
                let mut used: Vec<usize> = (0..=*max_distance)
                    .map(|d| t5_bucket(d as f64, *n_buckets, *max_distance, *bidirectional))
                    .collect();
                used.dedup();
                table
                    .iter()
                    .all(|row| used.windows(2).all(|pair| row[pair[1]] <= row[pair[0]]))
            }
        }
    }

    /// Checks parameters and per-head tables for `n_heads` heads; the message says what is wrong.
    ///
    /// # Errors
    /// A clamp of 0 or more, a cap or interpolation that is not positive, a table of the wrong size or with values that are
    /// not finite.
    pub fn validate(&self, n_heads: usize) -> Result<(), RemedyError> {
        remedy::validate(self, n_heads)
    }

    /// Reads a remedy such as `clamp=-20+log`; see [`Remedy::parse`].
    ///
    /// # Errors
    /// As [`Remedy::parse`].
    pub fn parse_remedy(s: &str) -> Result<Remedy, RemedyError> {
        Remedy::parse(s)
    }
}
