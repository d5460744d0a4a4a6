//! What a check says: one defect, in one place, under one plan, with the number that shows it.

use std::fmt;

/// How loudly a finding speaks; `--fail-on` compares against it, so the order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing is wrong yet.
    Note,
    /// Part of the context, or of a head, is lost under the named plan.
    Warning,
    /// The model does not compute what its weights were trained to compute.
    Error,
}

impl Severity {
    /// Every severity, mildest first.
    pub const ALL: [Self; 3] = [Self::Note, Self::Warning, Self::Error];

    /// The word used on the command line and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// Reads [`Severity::name`] back; `None` for any other word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|severity| severity.name() == word)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One defect that a check found.
///
/// `layer`, `head` and `plan` are `None` where the defect is not particular to one of them (a trap of the configuration
/// concerns every layer; slopes are the same in every layer).
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Stable code, `SN001` and on; `snellen explain CODE` prints its documentation.
    pub code: &'static str,
    /// The same in words: `blind-head`.
    pub name: &'static str,
    /// How loudly it speaks.
    pub severity: Severity,
    /// Layer, counted from 0 in the checkpoint's own order.
    pub layer: Option<usize>,
    /// Head, counted from 0 in the checkpoint's own order.
    pub head: Option<usize>,
    /// Plan as the user wrote it, `NAME[:DTYPE]`.
    pub plan: Option<String>,
    /// What was measured, in the unit that `message` names.
    pub value: Option<f64>,
    /// What it was compared with, in the same unit.
    pub threshold: Option<f64>,
    /// What happened and the probable cause, one or two sentences.
    pub message: String,
    /// The command that shows more or repairs it.
    pub next_command: String,
}

impl Finding {
    /// A finding with neither place nor number; the `with_*` methods fill in what is known.
    #[must_use]
    pub fn new(
        doc: &crate::checks::CheckDoc,
        severity: Severity,
        message: impl Into<String>,
        next_command: impl Into<String>,
    ) -> Self {
        Self {
            code: doc.code,
            name: doc.name,
            severity,
            layer: None,
            head: None,
            plan: None,
            value: None,
            threshold: None,
            message: message.into(),
            next_command: next_command.into(),
        }
    }

    /// Places the finding at one head of one layer.
    #[must_use]
    pub fn at(mut self, layer: usize, head: usize) -> Self {
        self.layer = Some(layer);
        self.head = Some(head);
        self
    }

    /// Places the finding at one head of every layer.
    #[must_use]
    pub fn at_head(mut self, head: usize) -> Self {
        self.head = Some(head);
        self
    }

    /// Names the plan under which it holds.
    #[must_use]
    pub fn under(mut self, plan: &str) -> Self {
        self.plan = Some(plan.to_owned());
        self
    }

    /// The measured value and what it was compared with. Values that are not finite are left out: JSON has no word
    /// for them, and the message says what happened.
    #[must_use]
    pub fn measured(mut self, value: f64, threshold: f64) -> Self {
        self.value = value.is_finite().then_some(value);
        self.threshold = threshold.is_finite().then_some(threshold);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_are_ordered_and_their_words_round_trip() {
        assert!(Severity::Note < Severity::Warning && Severity::Warning < Severity::Error);
        for severity in Severity::ALL {
            assert_eq!(Severity::parse(severity.name()), Some(severity));
        }
        assert_eq!(Severity::parse("fatal"), None);
    }
}
