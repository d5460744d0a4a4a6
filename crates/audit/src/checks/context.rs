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

/// Length in tokens of the verbs that take one without a text, where neither the user nor the model says another.
pub const LENGTH_DEFAULT: u64 = 2048;

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
    /// By nothing: the embedded model, on which `measure` runs without a path.
    Unnamed,
}

/// A word of a command line, quoted where a shell needs it.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl Target<'_> {
    /// The words behind `snellen VERB`, quoted where a shell needs it.
    fn words(self, verb: &str) -> String {
        match self {
            Self::Path(path) => shell_word(path),
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
    /// Flags by which `measure` was given its text, such as `--text 'a b.txt' --bytes`; `None` where there was none or it is the
    /// embedded one.
    pub text: Option<&'a str>,
    /// What the weights prove, if that was computed.
    pub certificates: Option<&'a [CertifiedHead]>,
    /// What a text showed, if there was one.
    pub evidence: Option<&'a Evidence>,
}

impl<'a> AuditContext<'a> {
    /// `snellen VERB TARGET REST`, the target quoted where a shell needs it, for the text and the length that this verdict is about
    /// where `REST` does not name others. `measure` of a model for which no text is known gets the placeholder `--text FILE`. The
    /// embedded model cannot be named, so `measure`, which needs no name for it, stands for `audit`.
    #[must_use]
    pub fn command(&self, verb: &str, rest: &str) -> String {
        let unnamed = self.target == Target::Unnamed;
        let verb = if unnamed && verb == "audit" {
            "measure"
        } else {
            verb
        };
        let mut words = vec!["snellen".to_owned(), verb.to_owned()];
        let slopes = || {
            Some(
                self.slopes()?
                    .iter()
                    .map(f64::to_string)
                    .collect::<Vec<_>>(),
            )
        };
        match verb {
            "measure" if unnamed => {}
            "horizon" if unnamed && let Some(slopes) = slopes() => {
                words.push(format!("--slopes {}", slopes.join(",")));
            }
            _ => words.push(self.target.words(verb)),
        }
        if verb == "measure" {
            let text = self.text.or((!unnamed).then_some("--text FILE"));
            words.extend(text.map(str::to_owned));
        }
        words.extend(Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty()));
        // What the verb takes where no length is said.
        let default = match verb {
            "measure" if self.evidence.is_some() => None,
            "audit" | "horizon" => self.facts.trained_length.or(Some(LENGTH_DEFAULT)),
            _ => Some(self.length),
        };
        if default != Some(self.length) && !rest.contains("--length") {
            words.push(format!("--length {}", self.length));
        }
        words.join(" ")
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
    use crate::checks::testing::{context, evidence, facts};

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
            (Target::Path("a"), "measure", "a --text FILE"),
        ] {
            assert_eq!(
                command(target, verb),
                format!("snellen {verb} {expected} --length 9")
            );
        }
        assert_eq!(
            command(Target::Unnamed, "audit"),
            "snellen measure --length 9"
        );
        assert!(command(Target::Unnamed, "horizon").starts_with("snellen horizon --slopes "));
    }

    #[test]
    fn next_commands_are_about_the_same_text_and_length() {
        let facts = facts(numerics::Family::Bloom);
        let evidence = evidence(Vec::new());
        let context = super::AuditContext {
            length: 700,
            text: Some("--text 'a b' --bytes"),
            evidence: Some(&evidence),
            ..context(&facts, &[])
        };
        assert_eq!(
            context.command("measure", "--layers 1"),
            "snellen measure model --text 'a b' --bytes --layers 1 --length 700"
        );
        assert_eq!(
            context.command("audit", "--plan ftz"),
            "snellen audit model --plan ftz --length 700"
        );
        assert_eq!(context.command("inspect", ""), "snellen inspect model");
    }
}
