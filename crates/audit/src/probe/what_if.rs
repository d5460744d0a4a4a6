//! Counterfactuals: the same weights under another bias or plan, to tell what a failure is due to.

use model::ModelSpec;
use numerics::{BiasForm, BiasShape, Family, PrecisionPlan, Remedy};

use crate::eval::EvalError;

/// A change of the position bias at inference, or of the plan that attention is computed under.
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
    /// The bias by distance, rounded once to f32.
    RelativeF32,
    /// The model as it is, its attention rounded as this plan does.
    Plan(Box<PrecisionPlan>),
}

impl WhatIf {
    /// Reads what [`WhatIf::parse`] does, or a precision plan of `family`, `NAME[:DTYPE]`, which `of_model` makes one of the very model.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse_for(
        text: &str,
        family: Family,
        of_model: impl Fn(PrecisionPlan) -> PrecisionPlan,
    ) -> Result<Self, EvalError> {
        let name = text.trim().split(':').next().unwrap_or_default();
        if !numerics::plan_names().contains(&name) {
            return Self::parse(text);
        }
        match PrecisionPlan::parse(text.trim(), family) {
            Ok(plan) => Ok(Self {
                name: text.trim().to_owned(),
                change: Change::Plan(Box::new(of_model(plan))),
            }),
            Err(error) => Err(EvalError::Input(format!("what-if {text:?}: {error}"))),
        }
    }

    /// Reads `slopes/2`, `interpolate` (slopes times trained length over length), `relative-f32` (the bias by distance, rounded once
    /// to f32), or a remedy as [`Remedy::parse`] does, without robust slopes, which need training.
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
        } else if text == "relative-f32" {
            Change::RelativeF32
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
                        "expected slopes/N, interpolate, relative-f32 or a remedy (probe takes a plan too); {error}"
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

    /// The cause of misses that it tests: what is found under it and not without it was hidden by that.
    #[must_use]
    pub fn tests(&self) -> &'static str {
        match &self.change {
            Change::Plan(_) => "precision",
            Change::RelativeF32 => "bias form",
            Change::SlopesOver(_) => "slope",
            Change::Interpolate => "trained length",
            Change::Bias(_) => "bias",
        }
    }

    /// The plan that attention is to be computed under, where that is the change: [`model::Model::under_plan`].
    #[must_use]
    pub fn plan(&self) -> Option<&PrecisionPlan> {
        match &self.change {
            Change::Plan(plan) => Some(plan),
            _ => None,
        }
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
            Change::RelativeF32 => {
                spec.alibi.convention.form = BiasForm::Relative;
                spec.alibi.convention.storage = None;
            }
            Change::Plan(_) => {}
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::WhatIf;

    #[test]
    fn plans_are_read_for_a_family() {
        let family = numerics::Family::Bloom;
        for good in ["f64", "hf-eager:bf16", "clamp=-12"] {
            let what_if = WhatIf::parse_for(good, family, |plan| plan).unwrap();
            assert_eq!(what_if.name(), good);
            assert_eq!(what_if.plan().is_some(), !good.contains('='));
        }
        let error = WhatIf::parse_for("hf-eager:f12", family, |plan| plan).unwrap_err();
        assert!(error.to_string().starts_with("what-if "), "{error}");
    }

    #[test]
    fn forms_are_read_or_refused_in_one_line() {
        for good in [
            "slopes/2",
            "interpolate",
            "interpolate=0.5",
            "clamp=-12",
            "log",
            "clamp=-12+log",
            "relative-f32",
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
