//! `snellen study run --dry-run`: every configuration checked, every trial listed, time and memory estimated.

use super::RunArgs;
use super::run::{check_memory, choose, in_file};
use super::state::{self, State};
use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use ::report::number::bytes;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use train::run::{RunPlan, StageCost};
use train::study::{Trial, check};

/// Far questions of passkeys and pairs that a sequence gives, roughly.
const FAR_QUESTIONS_A_SEQUENCE: f64 = 0.6;
/// Far questions of one needle.
const FAR_NEEDLES_A_SEQUENCE: f64 = 0.35;

/// Runs the dry run.
pub(super) fn run(args: &RunArgs, trials: &[Trial], global: &GlobalArgs) -> Result<Exit, Failure> {
    // variants that compute the same things cost the same: one of each kind is timed
    let mut costs: BTreeMap<String, Vec<StageCost>> = BTreeMap::new();
    let mut steps: BTreeMap<String, f64> = BTreeMap::new();
    let talk = global.talk();
    let checked = check(trials, |trial, plan| {
        if args.no_calibration {
            return;
        }
        let kind = kind(trial);
        let cost = costs.entry(kind).or_insert_with(|| {
            talk.say(&format!("timing a few steps of {}", trial.variant));
            plan.calibrate(&lengths(trial))
        });
        steps.insert(trial.variant.clone(), training(plan, cost));
    })
    .map_err(|error| in_file(&args.file, error))?;
    let chosen = choose(&checked, &args.only)?;
    let mut out = String::new();
    let (mut total, mut memory, mut left) = (0.0, 0u64, 0);
    for checked in &chosen {
        let trial = &checked.trial;
        let state = match &args.to {
            Some(to) => state::of(to, checked)?,
            None => State::Open,
        };
        let estimate = &checked.estimate;
        memory = memory.max(estimate.memory_bytes);
        let seconds = steps
            .get(&trial.variant)
            .map(|training| training + measuring(trial, &costs[&kind(trial)]));
        let said = match &state {
            State::Done => "done".to_owned(),
            State::Failed(reason) => format!("failed: {reason}"),
            State::MeasuredOtherwise => "done, measured otherwise".to_owned(),
            State::Open => {
                left += 1;
                total += seconds.unwrap_or(0.0);
                seconds.map_or("to run".to_owned(), |s| {
                    format!("to run, about {}", time(s))
                })
            }
        };
        let _ = writeln!(
            out,
            "{}: {} parameters, {} steps, {} tokens, {:.2e} operations, {}; {said}",
            trial.name,
            estimate.parameters,
            estimate.steps,
            estimate.tokens,
            estimate.operations,
            bytes(estimate.memory_bytes)
        );
    }
    let jobs = u64::from(args.jobs);
    let _ = writeln!(
        out,
        "{} to run of {}; memory about {} for {} at a time",
        left,
        ::report::text::plural(chosen.len() as u64, "trial"),
        bytes(memory * jobs),
        jobs
    );
    // A study may be looked at for a larger machine.
    if global.max_memory.is_some() {
        check_memory(&chosen, args.jobs, global)?;
    }
    if !args.no_calibration {
        let _ = writeln!(
            out,
            "time about {} in all, one trial at a time on {}: from a few real steps at each stage's length in {} of configuration, and \
             forward passes for what is measured; what runs beside it makes it longer",
            time(total),
            ::report::text::plural(rayon::current_num_threads() as u64, "thread"),
            ::report::text::plural(costs.len() as u64, "kind")
        );
    }
    crate::output::write(&out, global)?;
    Ok(Exit::Clean)
}

/// What decides the cost of a step.
fn kind(trial: &Trial) -> String {
    let run = &trial.run;
    let zeroing = run.attention.zero_beyond.is_some();
    format!(
        "{:?} {:?} {zeroing} {:?} {} {} {}",
        run.model,
        run.attention.plan,
        run.position.kind,
        run.schedule.stages,
        run.schedule.tokens_per_step,
        run.recall.is_some()
    )
}

/// Every length that something is measured at.
fn lengths(trial: &Trial) -> Vec<usize> {
    let e = &trial.evaluate;
    [&e.lengths, &e.what_if_lengths, &e.plan_lengths]
        .into_iter()
        .flatten()
        .copied()
        .collect()
}

/// Seconds of all steps.
fn training(plan: &RunPlan, costs: &[StageCost]) -> f64 {
    let stages = plan.config().stages().unwrap_or_default();
    let of = |length: usize| costs.iter().find(|cost| cost.length == length);
    let steps = stages.iter().map(|stage| {
        let step = of(stage.length).map_or(0.0, |cost| cost.step_seconds);
        step * stage.steps as f64
    });
    steps.sum()
}

/// Seconds of forward passes over what is measured, roughly: counting blind pairs costs a few passes more.
fn measuring(trial: &Trial, costs: &[StageCost]) -> f64 {
    let e = &trial.evaluate;
    let asked = trial.run.recall.map_or(0.0, |recall| {
        let needles = match recall.needles {
            0 => f64::INFINITY,
            n => FAR_NEEDLES_A_SEQUENCE * n as f64,
        };
        e.questions as f64 / FAR_QUESTIONS_A_SEQUENCE.min(needles)
    });
    let token = |length: usize| {
        let found = costs.iter().find(|cost| cost.length == length);
        found.map_or(0.0, |cost| cost.token_seconds)
    };
    let pass = |length: &usize| (asked * *length as f64 + e.held_tokens as f64) * token(*length);
    let own: f64 = e.lengths.iter().map(pass).sum();
    let changed: f64 = e.what_if_lengths.iter().map(pass).sum();
    let counted = |length: &usize| 8.0 * (e.plan_sequences * length) as f64 * token(*length);
    let plans: f64 = e.plan_lengths.iter().map(counted).sum();
    own + e.what_if.len() as f64 * changed + e.plans.len() as f64 * plans
}

/// `45 s`, `12 min`, `3.4 h`.
fn time(seconds: f64) -> String {
    if seconds < 100.0 {
        format!("{seconds:.0} s")
    } else if seconds < 6000.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}
