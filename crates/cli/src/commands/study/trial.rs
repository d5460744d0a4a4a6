//! `snellen study trial`: one trial in a process of its own.
//!
//! It stops, with a checkpoint, on Ctrl-C and when its standard input ends: that is how the parent passes a stop on, and how a
//! parent's end is noticed.

use super::{TrialArgs, measure, state};
use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use ::report::SCHEMA_VERSION;
use ::report::schema::{StudyCost, StudyTrial, Tool, TrialStatus};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use train::run::metrics::Metric;
use train::run::{Ending, Observer, RunPlan, Trainer};
use train::study::Trial;

/// Runs the verb.
pub(super) fn run(args: &TrialArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let folder = args.folder.as_path();
    let trial = state::described(folder)?;
    let Some(_lock) = state::lock(folder)? else {
        return Err(Failure::error(format!(
            "{}: another process is working on this trial",
            folder.display()
        )));
    };
    let stop = Arc::new(AtomicBool::new(false));
    crate::commands::train::catch_interrupt(&stop);
    stop_with_the_parent(&stop);
    let sittings = count_sitting(folder)?;
    let mut log = Log {
        talk: global.talk(),
        stop: Arc::clone(&stop),
    };
    let run_folder = folder.join("run");
    let mut cost = StudyCost {
        threads: rayon::current_num_threads() as u64,
        sittings,
        ..StudyCost::default()
    };
    let finished = state::run_record(folder)?.is_some_and(|record| record.finished);
    let run_hash = if finished {
        state::run_record(folder)?.map(|record| record.config_hash)
    } else {
        let mut trainer = if run_folder.join("run.toml").exists() {
            Trainer::resume(RunPlan::of_folder(&run_folder)?, &run_folder, &mut log)?
        } else {
            Trainer::begin(RunPlan::new(trial.run.clone())?, &run_folder)?
        };
        let (fresh, cpu) = (trainer.step() == 0, cpu_seconds());
        let hash = trainer.record().config_hash.clone();
        match trainer.run(None, &mut log)? {
            Ending::Finished => {}
            Ending::Stopped { step } => {
                log.note(&format!("stopped after step {step}"));
                return Ok(Exit::Clean);
            }
            Ending::Diverged { step, reason, .. } => {
                let reason = format!("step {step}: {reason}");
                let record = record_of(&trial, &hash, TrialStatus::Diverged, Some(&reason), cost);
                state::write(folder, &record)?;
                return Err(Failure::error(format!("{}: {reason}", trial.name)));
            }
        }
        if fresh && sittings == 1 {
            cost.training_cpu_seconds = cpu_seconds().zip(cpu).map(|(end, begin)| end - begin);
        }
        Some(hash)
    };
    cost.training_seconds = training_seconds(&run_folder, trial.run.schedule.tokens_per_step);
    if finished && let Some(before) = state::record_before(folder)? {
        // measured again: what training took is known from the first time
        cost.training_cpu_seconds = before.cost.training_cpu_seconds;
        cost.training_seconds = before.cost.training_seconds.or(cost.training_seconds);
    }
    let began = Instant::now();
    let stopped = || stop.load(Ordering::Relaxed);
    let Some(result) = measure::measure(&run_folder, &trial, &stopped)? else {
        log.note("stopped while measuring; the trained model is kept");
        return Ok(Exit::Clean);
    };
    cost.evaluation_seconds = Some(began.elapsed().as_secs_f64());
    let hash = run_hash.unwrap_or_default();
    let mut record = record_of(&trial, &hash, TrialStatus::Done, None, cost);
    record.result = Some(result);
    state::write(folder, &record)?;
    if !args.keep_checkpoints {
        drop_checkpoints(folder);
    }
    Ok(Exit::Clean)
}

/// A record without a result.
pub(super) fn record_of(
    trial: &Trial,
    run_hash: &str,
    status: TrialStatus,
    reason: Option<&str>,
    cost: StudyCost,
) -> StudyTrial {
    StudyTrial {
        schema_version: SCHEMA_VERSION,
        trial: trial.name.clone(),
        variant: trial.variant.clone(),
        seed: trial.run.seed,
        status,
        reason: reason.map(str::to_owned),
        run_hash: run_hash.to_owned(),
        evaluation_hash: trial.evaluation_hash(),
        tool: Tool {
            name: "snellen".to_owned(),
            version: crate::commands::VERSION.to_owned(),
        },
        result: None,
        cost,
    }
}

/// Removes what only continuing would need. Left behind where it cannot be removed: the record is whole.
pub(super) fn drop_checkpoints(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder.join("run").join("checkpoints"));
}

/// Sets `stop` when standard input ends.
fn stop_with_the_parent(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut nothing = [0u8; 64];
        let mut stdin = std::io::stdin();
        while stdin.read(&mut nothing).is_ok_and(|n| n > 0) {}
        stop.store(true, Ordering::Relaxed);
    });
}

/// Adds a line to `sittings`; how many there are now.
fn count_sitting(folder: &Path) -> Result<u64, Failure> {
    let path = folder.join("sittings");
    let attempt = || -> std::io::Result<u64> {
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)?;
        file.write_all(b"begun\n")?;
        Ok(std::fs::read_to_string(&path)?.lines().count() as u64)
    };
    attempt().map_err(|error| Failure::error(format!("{}: {error}", path.display())))
}

/// Seconds of all steps, whichever sitting they were done in, from the rates that the run kept.
fn training_seconds(run: &Path, tokens_per_step: usize) -> Option<f64> {
    let text = std::fs::read_to_string(run.join("timing.jsonl")).ok()?;
    let seconds = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(tokens_per_step as f64 / value["tokens_per_second"].as_f64()?)
    };
    text.lines().map(seconds).sum()
}

/// CPU seconds of this process so far, where the system says so in hundredths, as Linux does.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // the second field is a name in parentheses that may hold blanks; the 14th and 15th are user and system time
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

/// What training says, line by line.
struct Log {
    talk: crate::progress::Talk,
    stop: Arc<AtomicBool>,
}

impl Observer for Log {
    fn metric(&mut self, metric: &Metric, _rate: Option<f64>) {
        if let Metric::Eval { step, loss, .. } = metric {
            self.talk.say(&format!(
                "step {step}: held-out loss {loss:.4} nats per token"
            ));
        }
    }

    fn note(&mut self, text: &str) {
        self.talk.say(text);
    }

    fn stop(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
