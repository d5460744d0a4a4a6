//! The record of a trial: lists that lost or gained entries, and counts that cannot be.

use super::{broken, once};
use crate::schema::{StudyBlind, StudyCell, StudyMeasured, StudyResult, StudyTrial, TrialStatus};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Of `evaluation`: what decides which entries there are.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Wanted {
    lengths: Vec<u64>,
    what_if: Vec<String>,
    what_if_lengths: Vec<u64>,
    plans: Vec<String>,
    plan_lengths: Vec<u64>,
    margins: bool,
}

impl StudyTrial {
    /// Whether the record is whole: every measurement that its `evaluation` names is there once, and no count exceeds what it
    /// is a part of.
    ///
    /// # Errors
    /// One line: the first that is not, what was expected and what was found.
    pub fn check(&self) -> Result<(), String> {
        let name = format!("{}-s{}", self.variant, self.seed);
        if self.trial != name {
            return Err(broken("trial", name, &self.trial));
        }
        match (self.status, &self.result) {
            (TrialStatus::Done, Some(result)) => result.check(self.seed),
            (TrialStatus::Done, None) => {
                Err(broken("result", "that of a trial that is done", "null"))
            }
            (_, Some(_)) => Err(broken("result", "null of a trial that failed", "one")),
            (_, None) => Ok(()),
        }
    }
}

impl StudyResult {
    fn check(&self, seed: u64) -> Result<(), String> {
        if self.configuration["seed"] != seed {
            return Err(broken(
                "configuration.seed",
                seed,
                &self.configuration["seed"],
            ));
        }
        let wanted: Wanted = serde_json::from_value(self.evaluation.clone())
            .map_err(|error| format!("evaluation: {error}"))?;
        self.measured(&wanted)?;
        self.blind(&wanted)?;
        let asked = wanted.margins
            && !self
                .skipped
                .iter()
                .any(|skip| skip.what.ends_with(": margins"));
        if asked == self.margins.is_empty() {
            let expected = if asked { "some" } else { "none" };
            return Err(broken("margins", expected, self.margins.len()));
        }
        let margin = |m: &crate::schema::StudyMargin| (m.task.clone(), m.layer, m.head);
        once("margins", self.margins.iter().map(margin))?;
        once(
            "horizons",
            self.horizons.iter().map(|horizon| &horizon.task),
        )
    }

    fn measured(&self, wanted: &Wanted) -> Result<(), String> {
        let key = |m: &StudyMeasured| (m.change.clone(), m.length);
        once("measured", self.measured.iter().map(key))?;
        let own = wanted.lengths.iter().map(|&length| (None, length));
        let skipped = |change: &str| {
            let what = format!("what-if {change}");
            self.skipped.iter().any(|skip| skip.what.ends_with(&what))
        };
        let changed = wanted.what_if.iter().filter(|change| !skipped(change));
        let changed = changed.flat_map(|change| {
            let lengths = wanted.what_if_lengths.iter();
            lengths.map(|&length| (Some(change.trim().to_owned()), length))
        });
        let mut expected: Vec<(Option<String>, u64)> = own.chain(changed).collect();
        expected.sort();
        expected.dedup();
        for wanted in &expected {
            if !self.measured.iter().any(|m| key(m) == *wanted) {
                let (change, length) = wanted;
                let change = change.as_deref().unwrap_or("the model as trained");
                return Err(format!(
                    "measured: {change} at {length} tokens is not there: the document was cut"
                ));
            }
        }
        if self.measured.len() != expected.len() {
            return Err(broken(
                "measured",
                format!("{} entries", expected.len()),
                self.measured.len(),
            ));
        }
        self.measured.iter().try_for_each(measured)
    }

    fn blind(&self, wanted: &Wanted) -> Result<(), String> {
        let key = |b: &StudyBlind| (b.plan.clone(), b.length, b.layer, b.head);
        once("blind", self.blind.iter().map(key))?;
        let mut heads: BTreeMap<(&str, u64), u64> = BTreeMap::new();
        for one in &self.blind {
            *heads.entry((&one.plan, one.length)).or_default() += 1;
            if one.blind_pairs > one.pairs
                || one.first_blind_distance.is_some() != (one.blind_pairs > 0)
            {
                return Err(broken(
                    format!(
                        "blind, {} at {} tokens, layer {} head {}",
                        one.plan, one.length, one.layer, one.head
                    ),
                    format!(
                        "at most {} blind pairs, and a first distance if there are any",
                        one.pairs
                    ),
                    one.blind_pairs,
                ));
            }
        }
        let all = heads.values().max().copied().unwrap_or(0);
        if let Some(((plan, length), found)) = heads.iter().find(|(_, n)| **n != all) {
            return Err(broken(
                format!("blind, {plan} at {length} tokens"),
                format!("{all} heads"),
                found,
            ));
        }
        let skipped = self
            .skipped
            .iter()
            .any(|skip| skip.what.ends_with("blind pairs"));
        let places = if skipped {
            0
        } else {
            wanted.plans.len() * wanted.plan_lengths.len()
        };
        if heads.len() != places {
            return Err(broken(
                "blind",
                format!("{places} plans and lengths"),
                heads.len(),
            ));
        }
        Ok(())
    }
}

fn measured(measured: &StudyMeasured) -> Result<(), String> {
    let at = format!(
        "measured, {} at {} tokens",
        measured.change.as_deref().unwrap_or("as trained"),
        measured.length
    );
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    for StudyCell {
        task,
        from,
        to,
        questions,
        right,
        ..
    } in &measured.recall
    {
        let end = ends.insert(task, *to).unwrap_or(0);
        if from < &end || to <= from || right > questions {
            return Err(broken(
                format!("{at}, {task} from {from} to {to}"),
                format!("distances from {end} on and at most {questions} right"),
                right,
            ));
        }
    }
    if measured
        .loss
        .is_some_and(|loss| loss < 0.0 || measured.loss_tokens == 0)
    {
        return Err(broken(
            format!("{at}, loss"),
            "nats per token of some tokens",
            measured.loss.unwrap_or(0.0),
        ));
    }
    Ok(())
}
