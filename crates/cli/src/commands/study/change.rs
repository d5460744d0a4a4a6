//! A finished run changed: another bias, or weights made zero.

use crate::failure::Failure;
use ::audit::probe::WhatIf;
use model::ModelSpec;
use train::AttentionRule;
use train::shape::Position;

/// What zeroing is called in a list of changes.
const ZERO: &str = "zero-beyond=";

/// One entry of `what-if`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    name: String,
    bias: Option<WhatIf>,
    zero_beyond: Option<f64>,
}

impl Change {
    /// Reads a change as `probe --what-if` does, `zero-beyond=NATS`, or both joined by `+`.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let fail = |what: String| Failure::error(format!("evaluate.what-if: {what}"));
        let name = text.trim();
        let (zero, bias): (Vec<&str>, Vec<&str>) = name
            .split('+')
            .partition(|part| part.trim().starts_with(ZERO));
        let zero_beyond = match zero.as_slice() {
            [] => None,
            [one] => {
                let nats = one.trim()[ZERO.len()..].parse::<f64>();
                match nats {
                    Ok(nats) if nats.is_finite() && nats > 0.0 => Some(nats),
                    _ => {
                        return Err(fail(format!(
                            "{name:?}: expected a gap above 0 nats, such as {ZERO}17.3"
                        )));
                    }
                }
            }
            _ => return Err(fail(format!("{name:?}: {ZERO} stands twice"))),
        };
        let bias = if bias.is_empty() {
            None
        } else {
            let read = WhatIf::parse(&bias.join("+"));
            Some(read.map_err(|error| fail(format!("{error}, or {ZERO}NATS")))?)
        };
        Ok(Self {
            name: name.to_owned(),
            bias,
            zero_beyond,
        })
    }

    /// The change as it was written.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the model's specification is needed.
    pub(super) fn needs_spec(&self) -> bool {
        self.bias.is_some()
    }

    /// Position scheme and rule of a network with the change at `length`; `None` leaves the run's own.
    pub(super) fn apply(
        &self,
        spec: Option<&ModelSpec>,
        length: usize,
    ) -> Result<(Option<Position>, Option<AttentionRule>), Failure> {
        let position = match (&self.bias, spec) {
            (Some(bias), Some(spec)) => {
                let changed = bias
                    .apply(spec, length)
                    .map_err(|error| Failure::error(error.to_string()))?;
                changed.validate().map_err(|error| {
                    Failure::error(format!("evaluate.what-if: {:?}: {error}", self.name))
                })?;
                Some(Position::Fixed {
                    bias: changed.alibi.bias,
                    slopes: changed.alibi.slopes,
                })
            }
            _ => None,
        };
        Ok((position, self.zero_beyond.map(AttentionRule::ZeroBeyond)))
    }
}

#[cfg(test)]
mod tests {
    use super::Change;

    #[test]
    fn zeroing_joins_with_a_bias() {
        let both = Change::parse("clamp=-12+zero-beyond=6.93").unwrap();
        assert_eq!(both.zero_beyond, Some(6.93));
        assert!(both.needs_spec() && both.name() == "clamp=-12+zero-beyond=6.93");
        assert!(!Change::parse("zero-beyond=17.3").unwrap().needs_spec());
        for bad in [
            "zero-beyond=0",
            "zero-beyond=x",
            "zero-beyond=1+zero-beyond=2",
            "clam=3",
            "",
        ] {
            let error = Change::parse(bad).unwrap_err();
            assert!(error.message().starts_with("evaluate.what-if: "), "{bad}");
        }
    }
}
