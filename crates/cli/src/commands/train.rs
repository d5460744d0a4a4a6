//! `snellen train`: a decoder from a run file, or a run continued.

use crate::args::{Format, GlobalArgs};
use crate::command_line::CommandLine;
use crate::failure::{Exit, Failure};
use clap::Args;
use indicatif::ProgressBar;
use report::schema::TrainReport;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use train::config::RunConfig;
use train::run::metrics::Metric;
use train::run::tensorboard::write_events;
use train::run::{Ending, Estimate, History, Observer, RunPlan, Trainer};

/// Arguments of `train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// Run file (TOML); see `docs/TRAINING.md`
    #[arg(
        value_name = "RUN.toml",
        required_unless_present = "resume",
        conflicts_with = "resume"
    )]
    run_file: Option<PathBuf>,
    /// Folder of the run, empty or absent
    #[arg(long, value_name = "FOLDER", required_unless_present_any = ["resume", "dry_run"])]
    to: Option<PathBuf>,
    /// Continue the run in FOLDER from its newest whole checkpoint
    #[arg(long, value_name = "FOLDER")]
    resume: Option<PathBuf>,
    /// Stop after this step, with a checkpoint
    #[arg(long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(1..))]
    until: Option<u64>,
    /// Seed, instead of the file's
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    seed: Option<u64>,
    /// Largest learning rate, instead of the file's
    #[arg(
        long,
        value_name = "RATE",
        conflicts_with = "resume",
        allow_negative_numbers = true
    )]
    lr: Option<f64>,
    /// Stages LENGTH:STEPS, instead of the file's
    #[arg(long, value_name = "LIST", conflicts_with = "resume")]
    stages: Option<String>,
    /// Remedy of ALiBi, instead of the file's
    #[arg(long, value_name = "REMEDY", conflicts_with = "resume")]
    remedy: Option<String>,
    /// Keep an event file for TensorBoard in the run's folder, in tensorboard/, brought up to date at every evaluation
    #[arg(long)]
    tensorboard: bool,
    /// Check configuration and data, print sizes and estimates, train nothing
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
}

/// Refuses a run that needs too much memory.
fn check_memory(estimate: &Estimate, global: &GlobalArgs) -> Result<(), Failure> {
    super::estimate::refuse_too_large(
        estimate.memory_bytes,
        "this run",
        "raise schedule.micro-batches or take a smaller model",
        global,
    )
}

/// Runs the verb.
pub(crate) fn run(args: &TrainArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let allowed: &[&str] = if args.dry_run {
        &["--out"]
    } else {
        &["--format", "--out"]
    };
    let verb = if args.dry_run {
        "train --dry-run"
    } else {
        "train"
    };
    global.refuse_document_flags(verb, allowed)?;
    crate::output::refuse_binary_on_a_terminal(global)?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut live = Live {
        bar: ProgressBar::hidden(),
        talk: global.talk(),
        stop: Arc::clone(&stop),
        held: None,
        blind: None,
        curves: None,
    };
    let (mut trainer, folder) = match (&args.resume, &args.run_file) {
        (Some(folder), _) => {
            let plan = RunPlan::of_folder(folder)?;
            check_memory(&plan.estimate(), global)?;
            (Trainer::resume(plan, folder, &mut live)?, folder.clone())
        }
        (None, Some(file)) => {
            let mut config = RunConfig::read(file)?;
            if let Some(seed) = args.seed {
                config.seed = seed;
            }
            if let Some(lr) = args.lr {
                config.schedule.lr = lr;
            }
            if let Some(stages) = &args.stages {
                config.schedule.stages.clone_from(stages);
            }
            if let Some(remedy) = &args.remedy {
                config.position.remedy.clone_from(remedy);
            }
            let plan = RunPlan::new(config)?;
            for remark in plan.remarks() {
                global.talk().say(&format!("note: {remark}"));
            }
            let estimate = plan.estimate();
            let text = format!(
                "{} parameters, {} steps, {} tokens, {:.3e} operations, about {} MiB",
                estimate.parameters,
                estimate.steps,
                estimate.tokens,
                estimate.operations,
                estimate.memory_bytes >> 20
            );
            if args.dry_run {
                crate::output::write(&format!("{text}\n"), global)?;
            } else {
                global.talk().say(&text);
            }
            // A run may be looked at for a larger machine.
            if !args.dry_run || global.max_memory.is_some() {
                check_memory(&estimate, global)?;
            }
            if args.dry_run {
                return Ok(Exit::Clean);
            }
            let Some(folder) = &args.to else {
                return Err(Failure::error("--to FOLDER is missing"));
            };
            (Trainer::begin(plan, folder)?, folder.clone())
        }
        (None, None) => return Err(Failure::error("a run file is missing")),
    };
    catch_interrupt(&stop);
    live.begin(trainer.record().steps, trainer.step());
    live.curves = args.tensorboard.then(|| folder.clone());
    let ending = trainer.run(args.until, &mut live);
    live.bar.finish_and_clear();
    live.draw();
    let name = folder.display();
    match ending? {
        Ending::Finished => {
            let record = trainer.record();
            let best = record.best.map_or_else(String::new, |(loss, step)| {
                format!("; best held-out loss {loss:.4} nats per token at step {step}")
            });
            global
                .talk()
                .say(&format!("{name}: {} steps done{best}", record.steps));
            document(&folder, global)
        }
        Ending::Stopped { step } => {
            global.talk().say(&format!(
                "{name}: stopped after step {step} with a checkpoint; go on with `{}`",
                again(&folder, args, global)
            ));
            let exit = document(&folder, global)?;
            // `--until` was asked for; a signal was not
            Ok(match stop.load(Ordering::Relaxed) {
                true => Exit::Interrupted,
                false => exit,
            })
        }
        Ending::Diverged {
            step,
            reason,
            last_checkpoint,
        } => Err(Failure::error(format!(
            "{name}: step {step}: {reason}; {}. A smaller schedule.lr or a longer schedule.warmup usually helps",
            match last_checkpoint {
                Some(step) => format!("the checkpoint of step {step} is kept and finite"),
                None => "no checkpoint had been written".to_owned(),
            }
        ))),
    }
}

/// The command that continues the run, with the options that hold for a continued run too.
fn again(folder: &Path, args: &TrainArgs, global: &GlobalArgs) -> String {
    let mut line = CommandLine::new("snellen train --resume");
    line.word(&folder.display().to_string());
    line.flag("--tensorboard", args.tensorboard);
    line.option("--threads", global.threads);
    line.text()
}

/// The curves of the run as a document, where one was asked for; `snellen report FOLDER` makes it at any time.
fn document(folder: &Path, global: &GlobalArgs) -> Result<Exit, Failure> {
    if global.out.is_none() && global.format() == Format::Text {
        return Ok(Exit::Clean);
    }
    let report = TrainReport::new(super::VERSION, &History::read(folder)?)?;
    crate::output::emit(report, global)
}

/// Ctrl-C asks the loop to save and stop; a second one ends the process at once.
pub(super) fn catch_interrupt(stop: &Arc<AtomicBool>) {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Without a handler the default holds, which loses at most the steps since the last checkpoint.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(stop));
        let _ = signal_hook::flag::register(signal, Arc::clone(stop));
    }
}

/// The live line.
struct Live {
    bar: ProgressBar,
    talk: crate::progress::Talk,
    stop: Arc<AtomicBool>,
    held: Option<f64>,
    blind: Option<f64>,
    /// The run whose curves are kept for TensorBoard.
    curves: Option<PathBuf>,
}

impl Live {
    fn begin(&mut self, steps: u64, done: u64) {
        self.bar = self.talk.bar("training", steps);
        self.bar.set_position(done);
    }

    /// Brings the curves up to date. They are made from the metrics, so that one that failed is made good by the next.
    fn draw(&mut self) {
        let Some(run) = &self.curves else { return };
        if let Err(error) = write_events(run, &run.join("tensorboard")) {
            self.talk.say(&format!("warning: {error}"));
        }
    }
}

impl Observer for Live {
    fn metric(&mut self, metric: &Metric, rate: Option<f64>) {
        match metric {
            Metric::Step { step, loss, .. } => {
                let rate = rate.map_or_else(String::new, |r| format!("  {r:.0} tokens/s"));
                let held = self
                    .held
                    .map_or_else(String::new, |h| format!("  held {h:.3}"));
                let blind = self
                    .blind
                    .map_or_else(String::new, |b| format!("  blind {:.1} %", 100.0 * b));
                self.bar
                    .set_message(format!("loss {loss:.3}{held}{rate}{blind}"));
                self.bar.set_position(*step);
            }
            Metric::Eval { step, loss, .. } => {
                self.held = Some(*loss);
                self.draw();
                if !std::io::stderr().is_terminal() {
                    self.talk.say(&format!(
                        "step {step}: held-out loss {loss:.4} nats per token"
                    ));
                }
            }
            Metric::Heads { heads, .. } => {
                let sum =
                    |f: fn(&train::run::HeadWatch) -> u64| heads.iter().map(f).sum::<u64>() as f64;
                self.blind = Some(sum(|h| h.blind_pairs) / sum(|h| h.pairs).max(1.0));
            }
            Metric::Begin { .. } | Metric::Recall { .. } | Metric::Stopped { .. } => {}
        }
    }

    fn note(&mut self, text: &str) {
        self.talk.say(text);
    }

    fn stop(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
