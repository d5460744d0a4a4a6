//! Counterfactuals: the same weights under another bias, to tell what a failure is due to.

use model::ModelSpec;
use numerics::{BiasShape, Remedy};

use crate::eval::EvalError;

/// A change of the position bias at inference.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    name: String,
    change: Change,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    /// Parts of a bias function that replace the model's own.
    Bias(Remedy),
    /// Every slope over this number.
    SlopesOver(f64),
    /// Slopes times trained length over length, where the length is beyond the trained one.
    Interpolate,
}

impl WhatIf {
    /// Reads `slopes/2`, `interpolate` (slopes times trained length over length), or a remedy as [`Remedy::parse`] does, without
    /// robust slopes, which need training.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(text: &str) -> Result<Self, EvalError> {
        let text = text.trim();
        let fail = |what: &str| Err(EvalError::Input(format!("what-if {text:?}: {what}")));
        let change = if let Some(divisor) = text.strip_prefix("slopes/") {
            match divisor.parse::<f64>() {
                Ok(divisor) if divisor.is_finite() && divisor > 0.0 => Change::SlopesOver(divisor),
                _ => return fail("expected a positive number after slopes/, e.g. slopes/2"),
            }
        } else if text == "interpolate" {
            Change::Interpolate
        } else {
            match Remedy::parse(text) {
                Ok(remedy) if remedy.robust.is_some() => {
                    return fail(
                        "robust slopes need training and cannot be tried on finished weights",
                    );
                }
                Ok(remedy) => Change::Bias(remedy),
                Err(error) => {
                    return fail(&format!(
                        "expected slopes/N, interpolate or a remedy; {error}"
                    ));
                }
            }
        };
        Ok(Self {
            name: text.to_owned(),
            change,
        })
    }

    /// The change as it was written.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The model with the change, for sequences of `length` tokens. Parts of the bias function that the change does not name stay.
    ///
    /// # Errors
    /// Interpolation of a model whose trained length is not known.
    pub fn apply(&self, spec: &ModelSpec, length: usize) -> Result<ModelSpec, EvalError> {
        let mut spec = spec.clone();
        let bias = &mut spec.alibi.bias;
        match &self.change {
            Change::Bias(remedy) => {
                let new = &remedy.bias;
                if new.shape != BiasShape::Linear {
                    bias.shape = new.shape.clone();
                }
                bias.clamp = new.clamp.or(bias.clamp);
                bias.soft_cap = new.soft_cap.or(bias.soft_cap);
                bias.interpolation *= new.interpolation;
            }
            Change::SlopesOver(divisor) => {
                for slope in &mut spec.alibi.slopes {
                    *slope /= divisor;
                }
            }
            Change::Interpolate => {
                let Some(trained) = spec.trained_length else {
                    return Err(EvalError::Input(
                        "what-if interpolate: the model does not say its trained length; use interpolate=FACTOR".into(),
                    ));
                };
                #[allow(clippy::cast_precision_loss)] // lengths
                let factor = trained as f64 / length.max(trained) as f64;
                bias.interpolation *= factor;
            }
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::WhatIf;

    #[test]
    fn forms_are_read_or_refused_in_one_line() {
        for good in [
            "slopes/2",
            "interpolate",
            "interpolate=0.5",
            "clamp=-12",
            "log",
            "clamp=-12+log",
        ] {
            assert_eq!(WhatIf::parse(good).unwrap().name(), good);
        }
        for bad in [
            "slopes/0",
            "slopes/x",
            "robust=even",
            "clamp=5",
            "other",
            "",
        ] {
            let error = WhatIf::parse(bad).unwrap_err().to_string();
            assert!(
                error.starts_with("what-if ") && !error.contains('\n'),
                "{error}"
            );
        }
    }
}
