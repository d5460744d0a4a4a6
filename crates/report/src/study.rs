//! Trials summed up over seeds: means, intervals, paired differences.
//!
//! What is averaged is a trial's own number: a retrieval accuracy pools the questions of its trial, and intervals are over seeds.
//! A trial that failed or was not run is listed and is in no average.

pub(crate) mod columns;
pub(crate) mod forms;
mod quantities;

use crate::number::finite;
use crate::schema::{
    Envelope, Outcome, StudyDifference, StudyHorizonLine, StudyReport, StudyRow, StudyTable,
    StudyTrial, StudyTrialLine, TrialStatus,
};
use audit::eval::{Moments, holm, mean_interval, paired_p};
use quantities::{Compared, Value};
use std::collections::BTreeMap;

/// What a study file says a study is.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyOutline {
    /// In its words.
    pub title: Option<String>,
    /// The variant that others are compared with.
    pub baseline: Option<String>,
    /// Variants in order.
    pub variants: Vec<String>,
    /// Name, variant and seed of every trial.
    pub trials: Vec<(String, String, u64)>,
    /// Trials whose record is of another study than the file says now, and what differs: they are in no average.
    pub left_out: BTreeMap<String, String>,
}

/// What the list of trials says of those.
pub const TRIAL_LEFT_OUT: &str = "left out";

impl StudyReport {
    /// Sums up what was run. Trials that the outline does not have are named in a note and are in no average.
    #[must_use]
    pub fn of(version: &str, outline: &StudyOutline, trials: &[StudyTrial]) -> Self {
        let known = |trial: &&StudyTrial| {
            let same = |(name, variant, seed): &(String, String, u64)| {
                *name == trial.trial && *variant == trial.variant && *seed == trial.seed
            };
            outline.trials.iter().any(same)
        };
        let (mut own, foreign): (Vec<&StudyTrial>, Vec<&StudyTrial>) =
            trials.iter().partition(known);
        // by variant, then in the order of the study's seeds: rows and pairs do not depend on the order of files
        let place = |trial: &&StudyTrial| {
            let at = outline
                .trials
                .iter()
                .position(|(name, ..)| *name == trial.trial);
            let variant = outline.variants.iter().position(|v| *v == trial.variant);
            (variant, at)
        };
        own.sort_by_key(place);
        let done: Vec<&StudyTrial> = own
            .iter()
            .copied()
            .filter(|trial| trial.status == TrialStatus::Done && trial.result.is_some())
            .filter(|trial| !outline.left_out.contains_key(&trial.trial))
            .collect();
        let mut outcome = Outcome::default();
        if !foreign.is_empty() {
            let names: Vec<&str> = foreign.iter().map(|t| t.trial.as_str()).collect();
            outcome.notes.push(format!(
                "not of this study and left out: {}",
                names.join(", ")
            ));
        }
        if !outline.left_out.is_empty() {
            outcome.notes.push(format!(
                "{} otherwise than study.toml says and left out; the list of trials says what differs",
                match outline.left_out.len() {
                    1 => "1 trial was run or measured".to_owned(),
                    n => format!("{n} trials were run or measured"),
                }
            ));
        }
        notes(&done, &mut outcome);
        Self {
            envelope: Envelope::new("study", version),
            title: outline.title.clone(),
            baseline: outline.baseline.clone(),
            trials: outline
                .trials
                .iter()
                .map(|t| line(t, &own, &outline.left_out))
                .collect(),
            tables: tables(outline, &done),
            horizons: horizons(&done),
            outcome,
        }
    }
}

/// What a reader of the averages has to know.
fn notes(done: &[&StudyTrial], outcome: &mut Outcome) {
    let differ = |key: fn(&StudyTrial) -> &str| {
        let mut found: Vec<&str> = done.iter().map(|trial| key(trial)).collect();
        found.sort_unstable();
        found.dedup();
        found.len() > 1
    };
    if differ(|trial| &trial.evaluation_hash) {
        outcome.notes.push(
            "trials were measured with different [evaluate] settings: those are never paired, and a mean over both says little; \
             `snellen study run --evaluate-again` measures all alike"
                .to_owned(),
        );
    }
    if differ(|trial| &trial.tool.version) {
        outcome
            .notes
            .push("trials were made by different versions of the program".to_owned());
    }
    let mut skipped: Vec<crate::schema::Skipped> = Vec::new();
    for one in done.iter().filter_map(|trial| trial.result.as_ref()) {
        for skip in &one.skipped {
            if !skipped.contains(skip) {
                skipped.push(skip.clone());
            }
        }
    }
    outcome.skipped = skipped;
    outcome.notes.push(
        "means are over seeds and intervals are 95 % by Student's t over seeds; differences are paired by seed; corrected p values are \
         Holm's over the comparisons of a table"
            .to_owned(),
    );
}

fn line(
    (name, variant, seed): &(String, String, u64),
    own: &[&StudyTrial],
    left_out: &BTreeMap<String, String>,
) -> StudyTrialLine {
    let found = own.iter().find(|trial| trial.trial == *name);
    let differs = left_out.get(name);
    StudyTrialLine {
        trial: name.clone(),
        variant: variant.clone(),
        seed: *seed,
        status: match (differs, found) {
            (Some(_), _) => TRIAL_LEFT_OUT,
            (None, Some(trial)) => trial.status.name(),
            (None, None) => "not run",
        }
        .to_owned(),
        reason: differs
            .cloned()
            .or_else(|| found.and_then(|trial| trial.reason.clone())),
        run_hash: found.map(|trial| trial.run_hash.clone()),
    }
}

fn horizons(done: &[&StudyTrial]) -> Vec<StudyHorizonLine> {
    let of = |trial: &&StudyTrial| {
        let (name, variant) = (trial.trial.clone(), trial.variant.clone());
        let found = trial
            .result
            .iter()
            .flat_map(|result| result.horizons.clone());
        let line = move |horizon| StudyHorizonLine {
            trial: name.clone(),
            variant: variant.clone(),
            horizon,
        };
        found.map(line).collect::<Vec<_>>()
    };
    done.iter().flat_map(of).collect()
}

fn tables(outline: &StudyOutline, done: &[&StudyTrial]) -> Vec<StudyTable> {
    let values = quantities::all(done, outline.baseline.as_deref());
    quantities::TABLES
        .iter()
        .filter_map(|kind| {
            let own: Vec<&Value<'_>> = values.iter().filter(|v| v.table == kind.name).collect();
            (!own.is_empty()).then(|| {
                let mut rows = rows(&own, kind.compared, outline.baseline.as_deref());
                let comparisons = correct(&mut rows);
                StudyTable {
                    name: kind.name.to_owned(),
                    title: kind.title.to_owned(),
                    comparisons,
                    rows,
                }
            })
        })
        .collect()
}

/// Rows by quantity in the order of first sight, then variant, then change, as the values come.
fn rows(values: &[&Value<'_>], compared: Compared, baseline: Option<&str>) -> Vec<StudyRow> {
    let mut quantities: Vec<&str> = Vec::new();
    for value in values {
        if !quantities.contains(&value.quantity.as_str()) {
            quantities.push(&value.quantity);
        }
    }
    let mut rows = Vec::new();
    for quantity in quantities {
        let here: Vec<&Value<'_>> = values
            .iter()
            .copied()
            .filter(|value| value.quantity == quantity)
            .collect();
        let mut subjects: Vec<(&str, Option<&str>)> = Vec::new();
        for value in &here {
            let subject = (value.trial.variant.as_str(), value.change);
            if !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
        for subject in subjects {
            let of = |subject: (&str, Option<&str>)| {
                let is = move |value: &&&Value<'_>| {
                    (value.trial.variant.as_str(), value.change) == subject
                };
                here.iter().filter(is).copied().collect::<Vec<_>>()
            };
            let other = match compared {
                Compared::Baseline => baseline
                    .filter(|name| *name != subject.0)
                    .map(|name| (name, None)),
                Compared::Unchanged => subject.1.map(|_| (subject.0, None)),
                Compared::Nothing => None,
            };
            let mine = of(subject);
            let difference = other.and_then(|other| difference(&mine, &of(other), other, compared));
            rows.push(row(quantity, subject, &mine, difference));
        }
    }
    rows
}

fn row(
    quantity: &str,
    (variant, change): (&str, Option<&str>),
    values: &[&Value<'_>],
    difference: Option<StudyDifference>,
) -> StudyRow {
    let moments: Moments = values.iter().map(|value| value.value).collect();
    let interval = mean_interval(&moments);
    #[allow(clippy::cast_precision_loss)] // a count
    let deviation = moments
        .standard_error()
        .map(|error| error * (moments.n() as f64).sqrt());
    StudyRow {
        quantity: quantity.to_owned(),
        variant: variant.to_owned(),
        change: change.map(str::to_owned),
        n: moments.n(),
        mean: moments.mean().unwrap_or(0.0),
        deviation,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        trials: values.iter().map(|v| v.trial.trial.clone()).collect(),
        values: values.iter().map(|value| value.value).collect(),
        difference,
    }
}

/// Differences over the seeds that both have; `None` where they have none in common.
fn difference(
    mine: &[&Value<'_>],
    other: &[&Value<'_>],
    (name, _): (&str, Option<&str>),
    compared: Compared,
) -> Option<StudyDifference> {
    let pairs: Vec<(&Value<'_>, &Value<'_>)> = mine
        .iter()
        .filter_map(|value| {
            // numbers of different questions are no pair
            let same = |other: &&&Value<'_>| {
                other.trial.seed == value.trial.seed
                    && other.trial.evaluation_hash == value.trial.evaluation_hash
            };
            Some((*value, *other.iter().find(same)?))
        })
        .collect();
    let moments: Moments = pairs.iter().map(|(a, b)| a.value - b.value).collect();
    let interval = mean_interval(&moments);
    Some(StudyDifference {
        from: match compared {
            Compared::Unchanged => "unchanged".to_owned(),
            _ => name.to_owned(),
        },
        n: moments.n(),
        mean: moments.mean()?,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        p: paired_p(&moments).and_then(finite),
        p_corrected: None,
        trials: pairs.iter().map(|(_, b)| b.trial.trial.clone()).collect(),
    })
}

/// Corrects the p values of a table; how many there were.
fn correct(rows: &mut [StudyRow]) -> u64 {
    let mut differences: Vec<&mut StudyDifference> = rows
        .iter_mut()
        .filter_map(|row| row.difference.as_mut())
        .filter(|difference| difference.p.is_some())
        .collect();
    let p: Vec<f64> = differences.iter().filter_map(|d| d.p).collect();
    for (difference, p) in differences.iter_mut().zip(holm(&p)) {
        difference.p_corrected = Some(p);
    }
    p.len() as u64
}

#[cfg(test)]
mod tests;
