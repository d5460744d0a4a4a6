//! Slope schedules: which ALiBi coefficient each head gets.

use thiserror::Error;

/// Most heads a schedule is asked for; no known model comes near.
pub const MAX_HEADS: usize = 256;

/// A rule that gives every head its slope.
#[derive(Clone, Debug, PartialEq)]
pub enum SlopeSchedule {
    /// Press et al.: with `c` the largest power of two not above the head count `H`, the first `c` heads get
    /// `2^(-8k/c)`, `k = 1..=c`; the others every second slope of the schedule of `2c`, `2^(-4(2t+1)/c)`, `t = 0..`.
    /// For head counts that are not powers of two the steepest head is therefore not head 0.
    Press,
    /// MPT (llm-foundry): with `N` the smallest power of two not below `H`, `s_k = 2^(-bias_max * k / N)`, `k = 1..=N`;
    /// if `H != N`, the slopes of even `k` followed by those of odd `k`, the first `H` of them.
    /// Equal to [`SlopeSchedule::Press`] at `bias_max` 8.
    Mpt {
        /// Exponent of the flattest slope of `N` heads; 8 in most models, 16 in MPT-7B-StoryWriter.
        bias_max: f64,
    },
    /// `2^(-8(h+1)/H)` for every `H`: a common mistake for head counts that are not powers of two, kept because models were
    /// trained and runtimes written with it.
    Naive,
    /// One slope a head, as given.
    List(Vec<f64>),
    /// Slopes that spread the horizons over a context; see [`Spacing`].
    Robust(RobustSpacing),
}

/// Parameters of robust slopes: `m_h = |tau| / delta_h`, where `delta_h` is the distance at which head `h` goes blind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RobustSpacing {
    /// How the horizons `delta_h` are placed.
    pub spacing: Spacing,
    /// Context length `C` in tokens.
    pub context: u64,
    /// Threshold in nats, negative (see [`crate::exp_zero_threshold`]).
    pub tau: f64,
}

/// How robust slopes place the horizons `delta_h` of `H` heads over a context of `C` tokens.
///
/// The spacing of the paper that proposed robust slopes is not published; these three are offered instead, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spacing {
    /// `delta_h = C (h+1) / H`: from `C/H` to `C` in equal steps, steepest head first.
    Even,
    /// `delta_h = (C/H) H^(h/(H-1))`: from `C/H` to `C` in equal ratios, steepest head first (`C` for a single head).
    Geometric,
    /// Press slopes, all multiplied by `min(1, |tau| / (C max_h m_h))`: their ratios and order stay, and no head's bias
    /// reaches `tau` within the context (the longest distance is `C - 1`).
    MaxDistance,
}

/// Why a schedule has no slopes.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SlopeError {
    /// Head count outside `1..=256`.
    #[error("head count must be between 1 and {MAX_HEADS}, found {0}")]
    HeadCount(usize),
    /// The list does not have one slope a head.
    #[error("expected one slope for each of {expected} heads, found {found}")]
    ListLength {
        /// Number of heads.
        expected: usize,
        /// Number of slopes in the list.
        found: usize,
    },
    /// A listed slope is negative, infinite or NaN.
    #[error("slope of head {head} must be a finite number, 0 or more, found {value}")]
    ListValue {
        /// Head index.
        head: usize,
        /// The offending value.
        value: f64,
    },
    /// `bias_max` is not a positive finite number.
    #[error("alibi_bias_max must be a finite number above 0, found {0}")]
    BiasMax(f64),
    /// `tau` is not a negative finite number.
    #[error("the threshold of robust slopes must be a finite number below 0 (nats), found {0}")]
    Tau(f64),
    /// The context is 0 tokens.
    #[error("robust slopes need a context of at least 1 token")]
    Context,
}

impl SlopeSchedule {
    /// The slope of every head, in head order. Length `n_heads`.
    ///
    /// # Errors
    /// Head count outside `1..=256`, or parameters that give no valid slope.
    pub fn slopes(&self, n_heads: usize) -> Result<Vec<f64>, SlopeError> {
        if !(1..=MAX_HEADS).contains(&n_heads) {
            return Err(SlopeError::HeadCount(n_heads));
        }
        match self {
            SlopeSchedule::Press => Ok(press(n_heads)),
            SlopeSchedule::Mpt { bias_max } => mpt(n_heads, *bias_max),
            SlopeSchedule::Naive => Ok((1..=n_heads)
                .map(|k| two_to_minus(8.0 * k as f64 / n_heads as f64))
                .collect()),
            SlopeSchedule::List(values) => list(n_heads, values),
            SlopeSchedule::Robust(robust) => robust.slopes(n_heads),
        }
    }

    /// [`SlopeSchedule::slopes`], each rounded once to `f32`: what every family stores that keeps its slopes in `f32`.
    ///
    /// # Errors
    /// As [`SlopeSchedule::slopes`].
    pub fn slopes_f32(&self, n_heads: usize) -> Result<Vec<f32>, SlopeError> {
        Ok(self
            .slopes(n_heads)?
            .into_iter()
            .map(|slope| slope as f32)
            .collect())
    }
}

fn press(n_heads: usize) -> Vec<f64> {
    let base = floor_power_of_two(n_heads);
    let first = (1..=base).map(|k| two_to_minus(8.0 * k as f64 / base as f64));
    let rest = (0..n_heads - base).map(|t| two_to_minus(4.0 * (2 * t + 1) as f64 / base as f64));
    first.chain(rest).collect()
}

/// A slope of Press et al. as code gives it that raises an f32 number to whole powers: `b^k` with `b = 2^(-8/c)` rounded to f32,
/// `c` the largest power of two up to `n_heads`, and `2^(-4/c)` for the heads beyond `c`; the result rounded to f32. The rounding of
/// `b` is multiplied by the power, so that with 16 heads the slope 1/2 is 0.49999997: products with positions that would be ties of a
/// 16-bit format are none.
///
/// Any other slope than those of `n_heads` heads is returned as it is. Source: transformers 5.24 modeling_bloom.py,
/// build_alibi_tensor; PyTorch's vectorised power is within one f32 ulp of this, and the biases of all head counts up to 128 are the
/// same in bf16 and f16 up to 8192 tokens.
pub fn power_chain(n_heads: usize, slope: f64) -> f64 {
    if !(1..=MAX_HEADS).contains(&n_heads) {
        return slope;
    }
    let same = |m: &f64| *m as f32 == slope as f32;
    let Some(head) = press(n_heads).iter().position(same) else {
        return slope;
    };
    let c = floor_power_of_two(n_heads);
    let (exponent, power) = if head < c {
        (8.0, head + 1)
    } else {
        (4.0, 2 * (head - c) + 1)
    };
    let base = two_to_minus(exponent / c as f64) as f32;
    f64::from(f64::from(base).powi(power as i32) as f32)
}

fn mpt(n_heads: usize, bias_max: f64) -> Result<Vec<f64>, SlopeError> {
    if !(bias_max.is_finite() && bias_max > 0.0) {
        return Err(SlopeError::BiasMax(bias_max));
    }
    let n = n_heads.next_power_of_two();
    let slope = |k: usize| two_to_minus(bias_max * (k as f64 / n as f64));
    Ok(if n == n_heads {
        (1..=n).map(slope).collect()
    } else {
        let even_then_odd = (1..=n / 2)
            .map(|i| 2 * i)
            .chain((0..n / 2).map(|i| 2 * i + 1));
        even_then_odd.take(n_heads).map(slope).collect()
    })
}

fn list(n_heads: usize, values: &[f64]) -> Result<Vec<f64>, SlopeError> {
    if values.len() != n_heads {
        return Err(SlopeError::ListLength {
            expected: n_heads,
            found: values.len(),
        });
    }
    match values.iter().position(|v| !(v.is_finite() && *v >= 0.0)) {
        Some(head) => Err(SlopeError::ListValue {
            head,
            value: values[head],
        }),
        None => Ok(values.to_vec()),
    }
}

impl RobustSpacing {
    fn slopes(&self, n_heads: usize) -> Result<Vec<f64>, SlopeError> {
        if !(self.tau.is_finite() && self.tau < 0.0) {
            return Err(SlopeError::Tau(self.tau));
        }
        if self.context == 0 {
            return Err(SlopeError::Context);
        }
        let context = self.context as f64;
        let heads = n_heads as f64;
        let from_horizon = |delta: f64| -self.tau / delta;
        Ok(match self.spacing {
            Spacing::Even => (1..=n_heads)
                .map(|k| from_horizon(context * k as f64 / heads))
                .collect(),
            Spacing::Geometric if n_heads == 1 => vec![from_horizon(context)],
            Spacing::Geometric => (0..n_heads)
                .map(|h| from_horizon(context / heads * heads.powf(h as f64 / (heads - 1.0))))
                .collect(),
            Spacing::MaxDistance => {
                let slopes = press(n_heads);
                let steepest = slopes.iter().copied().fold(0.0, f64::max);
                let factor = (-self.tau / (context * steepest)).min(1.0);
                slopes.into_iter().map(|slope| slope * factor).collect()
            }
        })
    }
}

impl Spacing {
    /// Every spacing.
    pub const ALL: [Spacing; 3] = [Spacing::Even, Spacing::Geometric, Spacing::MaxDistance];

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Spacing::Even => "even",
            Spacing::Geometric => "geometric",
            Spacing::MaxDistance => "max-distance",
        }
    }

    /// Reads a [`Spacing::name`].
    pub fn parse(s: &str) -> Option<Spacing> {
        Spacing::ALL.into_iter().find(|spacing| spacing.name() == s)
    }
}

/// `2^-x`. One function for all rules, so that equal exponents give equal slopes.
fn two_to_minus(x: f64) -> f64 {
    (-x).exp2()
}

fn floor_power_of_two(n: usize) -> usize {
    1 << n.ilog2()
}
