//! `[evaluate]` of a study file.

use numerics::{Family, PrecisionPlan};
use serde::{Deserialize, Serialize};

use crate::config::RunConfig;
use crate::data::recall;
use crate::error::TrainError;

/// Longest sequence that is believed, tokens.
const LENGTH_MAX: usize = 1 << 24;

/// What is measured of every finished trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EvaluateConfig {
    /// Lengths, tokens, of recall and of held-out loss; inside and beyond the trained length. Empty: the trained length.
    pub lengths: Vec<usize>,
    /// Questions of each recall task at distances of at least half the length, at least.
    pub questions: u64,
    /// Held-out tokens of a loss.
    pub held_tokens: usize,
    /// Changes of the finished model: `clamp=-12`, `log`, `slopes/2`, `interpolate`, `zero-beyond=17.3`, or some joined by `+`.
    pub what_if: Vec<String>,
    /// Lengths they are tried at. Empty: `lengths`.
    pub what_if_lengths: Vec<usize>,
    /// Precision plans under which blind pairs are counted.
    pub plans: Vec<String>,
    /// Lengths they are counted at. Empty: `lengths`.
    pub plan_lengths: Vec<usize>,
    /// Held-out sequences they are counted on.
    pub plan_sequences: usize,
    /// Content margins of the recall questions, per head, at the trained length.
    pub margins: bool,
}

impl Default for EvaluateConfig {
    fn default() -> Self {
        Self {
            lengths: Vec::new(),
            questions: 500,
            held_tokens: 65_536,
            what_if: Vec::new(),
            what_if_lengths: Vec::new(),
            plans: Vec::new(),
            plan_lengths: Vec::new(),
            plan_sequences: 4,
            margins: false,
        }
    }
}

impl EvaluateConfig {
    /// The same with every list of lengths filled in, for a run trained up to `trained` tokens.
    #[must_use]
    pub fn resolved(&self, trained: usize) -> Self {
        let mut all = self.clone();
        let or = |list: &[usize], other: &[usize]| {
            let mut list = if list.is_empty() { other } else { list }.to_vec();
            list.sort_unstable();
            list.dedup();
            list
        };
        all.lengths = or(&self.lengths, &[trained]);
        all.what_if_lengths = or(&self.what_if_lengths, &all.lengths);
        all.plan_lengths = or(&self.plan_lengths, &all.lengths);
        all
    }

    /// Hash of all of it.
    pub fn identity(&self) -> String {
        let text = toml::to_string(self).unwrap_or_default();
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }

    /// Checks it with a run, its number of held-out tokens and the shortest sequence that holds its questions. Changes of the bias are
    /// checked by who applies them.
    ///
    /// # Errors
    /// The first thing that cannot be, with its key.
    pub fn validate(
        &self,
        run: &RunConfig,
        held_tokens: usize,
        recall_length_min: Option<usize>,
    ) -> Result<(), TrainError> {
        let fail = |what: String| Err(TrainError::config(format!("evaluate.{what}")));
        for (key, list) in [
            ("lengths", &self.lengths),
            ("what-if-lengths", &self.what_if_lengths),
            ("plan-lengths", &self.plan_lengths),
        ] {
            for &length in list {
                if !(recall::LENGTH_MIN..=LENGTH_MAX).contains(&length) {
                    return fail(format!(
                        "{key}: {length} is not between {} and {LENGTH_MAX} tokens",
                        recall::LENGTH_MIN
                    ));
                }
                if length >= held_tokens {
                    return fail(format!(
                        "{key}: {length} tokens need a held-out text of more than that; data.held has {held_tokens}"
                    ));
                }
            }
        }
        let recall = run.recall.is_some();
        let least = recall_length_min.unwrap_or(0);
        for (key, list) in [
            ("lengths", &self.lengths),
            ("what-if-lengths", &self.what_if_lengths),
        ] {
            let used = key == "lengths" || !self.what_if.is_empty();
            if let Some(length) = list.iter().find(|&&length| used && length < least) {
                return fail(format!(
                    "{key}: the questions of [recall] need sequences of at least {least} tokens, found {length}"
                ));
            }
        }
        if recall && self.questions == 0 {
            return fail("questions = 0 asks nothing; at least 1".to_owned());
        }
        if self.held_tokens == 0 || self.plan_sequences == 0 {
            return fail("held-tokens and plan-sequences are at least 1".to_owned());
        }
        if self.margins && !recall {
            return fail("margins = true needs recall tasks: add a [recall] table".to_owned());
        }
        // Results are found by these names.
        for (key, list) in [("plans", &self.plans), ("what-if", &self.what_if)] {
            let twice = (1..list.len()).find(|&i| list[..i].contains(&list[i]));
            if let Some(i) = twice {
                return fail(format!("{key}: {:?} is there twice", list[i]));
            }
        }
        for plan in &self.plans {
            if let Err(error) = PrecisionPlan::parse(plan, Family::Custom) {
                return fail(format!("plans: {plan:?}: {error}"));
            }
        }
        Ok(())
    }
}
