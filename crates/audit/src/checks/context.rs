//! What a check may look at.

use checkpoint::ModelFacts;
use numerics::PrecisionPlan;

use crate::bounds::HeadBounds;
use crate::certificate::HeadCertificate;
use crate::evidence::{Evidence, HeadEvidence};

/// Largest uniform-attention baseline of the key-0 mass at which a sink verdict is given. With a larger one even a head with
/// all of its mass on key 0 would stay below the 0.95 of a dead head after the baseline is taken off, so the prompt is too
/// short to tell. `(H(T) - 1)/(T - 1) <= 0.05` from 81 tokens on.
pub const SINK_BASELINE_MAX: f64 = 0.05;

/// What weights alone prove about one head under one plan. Distances in tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct CertifiedHead {
    /// Layer in the checkpoint's own order.
    pub layer: usize,
    /// Head in the checkpoint's own order.
    pub head: usize,
    /// Plan as the user wrote it.
    pub plan: String,
    /// Largest distance at which no pair can be blind, for any input.
    pub guaranteed_visible: Option<u64>,
    /// Horizon of isotropic inputs.
    pub expected_horizon: Option<u64>,
    /// Distance past which every pair is blind, for any input.
    pub certified_horizon: Option<u64>,
}

impl CertifiedHead {
    /// Joins a certificate with the head and plan it is about.
    #[must_use]
    pub fn new(bounds: &HeadBounds, plan: &PrecisionPlan, certificate: &HeadCertificate) -> Self {
        Self {
            layer: bounds.layer,
            head: bounds.head,
            plan: plan.key().to_owned(),
            guaranteed_visible: certificate.guaranteed_visible,
            expected_horizon: certificate.expected_horizon,
            certified_horizon: certificate.certified_horizon,
        }
    }
}

/// How the model is named on a command line; next commands repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// By a path.
    Path(&'a str),
    /// By arguments of `horizon` that need no file, such as `--like bloom-560m`. Verbs that do need one get the placeholder
    /// `PATH`.
    Described(&'a str),
    /// By nothing that could be repeated (the embedded model): `PATH` stands for the reader's own.
    Unnamed,
}

impl Target<'_> {
    /// The words behind `snellen VERB`, quoted where a shell needs it.
    fn words(self, verb: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
        match self {
            Self::Path(path) if !path.is_empty() && path.chars().all(plain) => path.to_owned(),
            Self::Path(path) => format!("'{}'", path.replace('\'', r"'\''")),
            Self::Described(arguments) if verb == "horizon" => arguments.to_owned(),
            Self::Described(_) | Self::Unnamed => "PATH".to_owned(),
        }
    }
}

/// Everything the checks may use; what is `None` was not asked for or could not be had.
#[derive(Clone, Copy, Debug)]
pub struct AuditContext<'a> {
    /// The model as the user named it.
    pub target: Target<'a>,
    /// What the configuration says.
    pub facts: &'a ModelFacts,
    /// Plans asked for. Never empty in practice; with none, checks over plans say that nothing was measured.
    pub plans: &'a [PrecisionPlan],
    /// Length the verdict is about: of the text, or as asked for, tokens.
    pub length: u64,
    /// What the weights prove, if that was computed.
    pub certificates: Option<&'a [CertifiedHead]>,
    /// What a text showed, if there was one.
    pub evidence: Option<&'a Evidence>,
}

impl<'a> AuditContext<'a> {
    /// `snellen VERB TARGET REST`, the target quoted where a shell needs it.
    #[must_use]
    pub fn command(&self, verb: &str, rest: &str) -> String {
        let target = self.target.words(verb);
        let rest = rest.trim();
        if rest.is_empty() {
            format!("snellen {verb} {target}")
        } else {
            format!("snellen {verb} {target} {rest}")
        }
    }

    /// Observed heads, or none.
    pub(crate) fn heads(&self) -> &'a [HeadEvidence] {
        self.evidence.map_or(&[], |evidence| &evidence.heads)
    }

    /// Slopes of the model in head order, `None` if the schedule does not give any.
    pub(crate) fn slopes(&self) -> Option<Vec<f64>> {
        self.facts.slope_values().ok()
    }

    /// Why the sink checks cannot judge, or `None` if they can.
    pub(crate) fn sink_refusal(&self) -> Option<SinkRefusal> {
        if !self.facts.causal {
            return Some(SinkRefusal::Encoder);
        }
        if self.heads().is_empty() {
            return Some(SinkRefusal::NoEvidence);
        }
        // The baseline depends on length and mask alone, so the heads agree.
        match self.heads().iter().find_map(|head| head.key0_baseline) {
            Some(baseline) if baseline <= SINK_BASELINE_MAX => None,
            baseline => Some(SinkRefusal::TooShort(baseline)),
        }
    }
}

/// Why no sink verdict is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SinkRefusal {
    /// Key 0 has no special role in an encoder.
    Encoder,
    /// No text was run.
    NoEvidence,
    /// Uniform attention alone would put this much on key 0.
    TooShort(Option<f64>),
}

impl SinkRefusal {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Encoder => "an encoder has no first key to sink into",
            Self::NoEvidence => "needs a text; run `snellen measure`",
            Self::TooShort(_) => {
                "the text is too short to tell a sink from the first rows; run `snellen measure` on at least 81 tokens"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Target;
    use crate::checks::testing::{context, facts};

    #[test]
    fn next_commands_can_be_pasted_and_name_what_the_verb_accepts() {
        let facts = facts(numerics::Family::Bloom);
        let command = |target, verb| {
            let context = super::AuditContext {
                target,
                ..context(&facts, &[])
            };
            context.command(verb, "--length 9")
        };
        for (target, verb, expected) in [
            (Target::Path("a/b"), "audit", "a/b"),
            (Target::Path("it's"), "audit", r"'it'\''s'"),
            (Target::Described("--like x"), "horizon", "--like x"),
            (Target::Described("--like x"), "audit", "PATH"),
            (Target::Unnamed, "measure", "PATH"),
        ] {
            assert_eq!(
                command(target, verb),
                format!("snellen {verb} {expected} --length 9")
            );
        }
    }
}
