//! Remedies as a user writes them: `clamp=-20+log`, `cap-after=30`, `robust=even+interpolate=0.5`.

use super::{BiasFunction, BiasShape, CapOrder, SoftCap};
use crate::slopes::{RobustSpacing, SlopeSchedule, Spacing};
use std::fmt;
use thiserror::Error;

/// A remedy: a bias function, and whether the slopes are replaced by robust ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// Shape, clamp, cap and interpolation.
    pub bias: BiasFunction,
    /// Robust slopes instead of the model's own; context and threshold come from the caller, see [`Remedy::schedule`].
    pub robust: Option<Spacing>,
}

/// Why a remedy or a bias function is not usable; one line for the user.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RemedyError(String);

impl Remedy {
    /// No remedy: plain ALiBi.
    pub fn none() -> Self {
        Remedy {
            bias: BiasFunction::linear(),
            robust: None,
        }
    }

    /// Reads parts joined with `+`, in any order, each at most once:
    ///
    /// | part | short | meaning |
    /// |---|---|---|
    /// | `none` | | plain ALiBi (alone) |
    /// | `clamp=-20` | `C=-20` | bias not below this, nats |
    /// | `log` | `L` | `-m ln(1+d)` |
    /// | `sqrt` | | `-m sqrt(d)` |
    /// | `nope` | | no bias |
    /// | `cap=30`, `cap-after=30` | `S=30` (before) | soft cap before or after the bias, nats |
    /// | `interpolate=0.5`, `interpolate=2048/4096` | `I=...` | factor on the slopes, above 0 and at most 1 |
    /// | `robust=even`, `=geometric`, `=max-distance` | `E=...` | robust slopes |
    ///
    /// # Errors
    /// An unknown part, a missing or impossible parameter, two parts that contradict each other. Parameters have no
    /// defaults: the value decides the outcome, so it is never guessed.
    pub fn parse(s: &str) -> Result<Self, RemedyError> {
        let mut remedy = Remedy::none();
        let text = s.trim();
        if text.eq_ignore_ascii_case("none") {
            return Ok(remedy);
        }
        let mut seen: Vec<Kind> = Vec::new();
        for part in text.split('+') {
            let kind = remedy.add(part.trim(), text)?;
            if seen.contains(&kind) {
                return Err(RemedyError(format!(
                    "remedy {text:?}: {} given twice",
                    kind.describe()
                )));
            }
            seen.push(kind);
        }
        Ok(remedy)
    }

    /// The schedule to use: robust slopes for `context` tokens and threshold `tau` (nats, negative) if this remedy asks for
    /// them, else a copy of `own`.
    pub fn schedule(&self, own: &SlopeSchedule, context: u64, tau: f64) -> SlopeSchedule {
        match self.robust {
            Some(spacing) => SlopeSchedule::Robust(RobustSpacing {
                spacing,
                context,
                tau,
            }),
            None => own.clone(),
        }
    }

    fn add(&mut self, part: &str, whole: &str) -> Result<Kind, RemedyError> {
        let fail = |what: String| Err(RemedyError(format!("remedy {whole:?}: {what}")));
        let (key, value) = match part.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim())),
            None => (part, None),
        };
        let name = match key {
            "C" => "clamp",
            "L" => "log",
            "S" => "cap",
            "E" => "robust",
            "I" => "interpolate",
            other => other,
        };
        let shape = match name {
            "log" => Some(BiasShape::Log),
            "sqrt" => Some(BiasShape::Sqrt),
            "nope" => Some(BiasShape::None),
            _ => None,
        };
        if let Some(shape) = shape {
            if value.is_some() {
                return fail(format!("{name} takes no value"));
            }
            self.bias.shape = shape;
            return Ok(Kind::Shape);
        }
        match name {
            "clamp" => match value.and_then(number) {
                Some(floor) if floor < 0.0 => {
                    self.bias.clamp = Some(floor);
                    Ok(Kind::Clamp)
                }
                _ => fail("clamp needs a floor below 0 in nats, e.g. clamp=-12".into()),
            },
            "cap" | "cap-before" | "cap-after" => match value.and_then(number) {
                Some(cap) if cap > 0.0 => {
                    let order = if name == "cap-after" { CapOrder::AfterBias } else { CapOrder::BeforeBias };
                    self.bias.soft_cap = Some(SoftCap { cap, order });
                    Ok(Kind::Cap)
                }
                _ => fail(format!("{name} needs a value above 0 in nats, e.g. {name}=30")),
            },
            "interpolate" => match value.and_then(ratio) {
                Some(factor) if factor > 0.0 && factor <= 1.0 => {
                    self.bias.interpolation = factor;
                    Ok(Kind::Interpolation)
                }
                _ => fail(
                    "interpolate needs a slope factor above 0 and at most 1, e.g. interpolate=0.5 or interpolate=2048/4096"
                        .into(),
                ),
            },
            "robust" => match value.and_then(Spacing::parse) {
                Some(spacing) => {
                    self.robust = Some(spacing);
                    Ok(Kind::Robust)
                }
                None => fail("robust needs a spacing: robust=even, robust=geometric or robust=max-distance".into()),
            },
            "P" => fail("a precision cast is not part of the bias: choose a precision plan instead".into()),
            "" => fail("empty part; join parts with +, e.g. clamp=-20+log".into()),
            _ => fail(format!(
                "unknown part {key:?}; known: none, clamp=, log, sqrt, nope, cap=, cap-after=, interpolate=, robust="
            )),
        }
    }
}

/// The five things a part can set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Shape,
    Clamp,
    Cap,
    Interpolation,
    Robust,
}

impl Kind {
    fn describe(self) -> &'static str {
        match self {
            Kind::Shape => "a distance shape (log, sqrt, nope)",
            Kind::Clamp => "clamp",
            Kind::Cap => "a soft cap",
            Kind::Interpolation => "interpolate",
            Kind::Robust => "robust",
        }
    }
}

fn number(s: &str) -> Option<f64> {
    s.parse().ok().filter(|value: &f64| value.is_finite())
}

/// A number, or two whose quotient is meant.
fn ratio(s: &str) -> Option<f64> {
    match s.split_once('/') {
        Some((from, to)) => {
            Some(number(from.trim())? / number(to.trim())?).filter(|value| value.is_finite())
        }
        None => number(s),
    }
}

/// The canonical form: parts in a fixed order, long names. [`Remedy::parse`] reads it back, except for learned tables
/// (KERPLE, T5), which text cannot hold.
impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(spacing) = self.robust {
            parts.push(format!("robust={}", spacing.name()));
        }
        parts.extend(self.bias.parts());
        if parts.is_empty() {
            f.write_str("none")
        } else {
            f.write_str(&parts.join("+"))
        }
    }
}

/// As [`Remedy`], without robust slopes: `none` for plain ALiBi.
impl fmt::Display for BiasFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts();
        if parts.is_empty() {
            f.write_str("none")
        } else {
            f.write_str(&parts.join("+"))
        }
    }
}

impl BiasFunction {
    fn parts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        if self.interpolation != 1.0 {
            parts.push(format!("interpolate={}", self.interpolation));
        }
        if let Some(floor) = self.clamp {
            parts.push(format!("clamp={floor}"));
        }
        match self.shape {
            BiasShape::Linear => {}
            BiasShape::None => parts.push("nope".into()),
            BiasShape::Log => parts.push("log".into()),
            BiasShape::Sqrt => parts.push("sqrt".into()),
            BiasShape::KerpleLog { .. } => parts.push("kerple-log".into()),
            BiasShape::T5Buckets { .. } => parts.push("t5-buckets".into()),
        }
        if let Some(SoftCap { cap, order }) = self.soft_cap {
            let name = if order == CapOrder::AfterBias {
                "cap-after"
            } else {
                "cap"
            };
            parts.push(format!("{name}={cap}"));
        }
        parts
    }
}

/// See [`BiasFunction::validate`].
pub(super) fn validate(bias: &BiasFunction, n_heads: usize) -> Result<(), RemedyError> {
    let fail = |what: String| Err(RemedyError(what));
    if let Some(floor) = bias.clamp
        && !(floor.is_finite() && floor < 0.0)
    {
        return fail(format!(
            "clamp must be a finite number below 0 (nats), found {floor}"
        ));
    }
    if let Some(SoftCap { cap, .. }) = bias.soft_cap
        && !(cap.is_finite() && cap > 0.0)
    {
        return fail(format!(
            "soft cap must be a finite number above 0 (nats), found {cap}"
        ));
    }
    if !(bias.interpolation.is_finite() && bias.interpolation > 0.0) {
        return fail(format!(
            "interpolation must be a finite factor above 0, found {}",
            bias.interpolation
        ));
    }
    match &bias.shape {
        BiasShape::None | BiasShape::Linear | BiasShape::Log | BiasShape::Sqrt => Ok(()),
        BiasShape::KerpleLog { p, a } => {
            for (name, values) in [("p", p), ("a", a)] {
                if values.len() != n_heads {
                    return fail(format!(
                        "KERPLE {name}: expected {n_heads} values, one a head, found {}",
                        values.len()
                    ));
                }
                if let Some(value) = values.iter().find(|v| !(v.is_finite() && **v >= 0.0)) {
                    return fail(format!(
                        "KERPLE {name} must be finite and 0 or more, found {value}"
                    ));
                }
            }
            Ok(())
        }
        BiasShape::T5Buckets {
            n_buckets,
            max_distance,
            bidirectional,
            table,
        } => {
            let n_side = if *bidirectional {
                n_buckets / 2
            } else {
                *n_buckets
            };
            if n_side < 2 || *max_distance <= n_side / 2 {
                return fail(format!(
                    "T5 buckets: {n_buckets} buckets and largest distance {max_distance} leave no logarithmic buckets"
                ));
            }
            if table.len() != n_heads || table.iter().any(|row| row.len() != *n_buckets) {
                return fail(format!(
                    "T5 buckets: expected a table of {n_heads} heads by {n_buckets} buckets"
                ));
            }
            if table.iter().flatten().any(|value| !value.is_finite()) {
                return fail("T5 buckets: the table holds a value that is not finite".into());
            }
            Ok(())
        }
    }
}
