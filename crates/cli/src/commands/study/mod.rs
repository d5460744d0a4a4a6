//! `snellen study`: many trials from one file, and what they come to.
//!
//! | file | holds |
//! |---|---|
//! | `run` | the parent: which trials are due, and their order |
//! | `state` | what a trial's folder says of it |
//! | `children` | one process a trial |
//! | `trial` | that process: train, measure, record |
//! | `measure` | what is measured of a finished run |
//! | `change` | the finished run under another bias or with zeroing |
//! | `dry` | what a study would take |
//! | `report` | means over seeds |

mod change;
mod children;
mod dry;
mod measure;
pub(super) mod report;
mod run;
mod state;
mod trial;

use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Arguments of `study`.
#[derive(Debug, Args)]
pub(crate) struct StudyArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run the trials of a study file that are not done yet
    Run(RunArgs),
    /// Means over seeds with intervals, differences to the baseline, blind shares, horizons, cost
    Report(ReportArgs),
    /// One trial; started by `study run`
    #[command(hide = true)]
    Trial(TrialArgs),
}

/// Arguments of `study run`.
#[derive(Debug, Args)]
struct RunArgs {
    /// Study file (TOML); see `docs/verbs/study.md`
    #[arg(value_name = "STUDY.toml")]
    file: PathBuf,
    /// Folder of the study; the same command continues in it
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    to: Option<PathBuf>,
    /// Trials at a time; each has its share of --threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// Trials or variants to run, comma separated; * and ? stand for any characters
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Check every configuration, list the trials, estimate time and memory from a few real steps; train nothing
    #[arg(long, conflicts_with_all = ["keep_checkpoints", "evaluate_again", "max_minutes"])]
    dry_run: bool,
    /// With --dry-run: no steps and no estimate of time
    #[arg(long, requires = "dry_run")]
    no_calibration: bool,
    /// Start no new trial after M minutes
    #[arg(long, value_name = "M")]
    max_minutes: Option<f64>,
    /// Keep the checkpoints of finished trials; the finished model stays in any case
    #[arg(long)]
    keep_checkpoints: bool,
    /// Measure finished trials again whose `[evaluate]` settings differ; their training is kept
    #[arg(long)]
    evaluate_again: bool,
}

/// Arguments of `study report`.
#[derive(Debug, Args)]
struct ReportArgs {
    /// Folder of a study: study.toml, and trials/*/trial.json or trials/*.json
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Arguments of `study trial`.
#[derive(Debug, Args)]
struct TrialArgs {
    /// Folder of the trial
    folder: PathBuf,
    /// Keep the checkpoints
    #[arg(long)]
    keep_checkpoints: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &StudyArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    match &args.what {
        What::Run(args) => {
            global.refuse_document_flags("study run", &[])?;
            run::run(args, global)
        }
        What::Report(args) => report::run(args, global),
        What::Trial(args) => trial::run(args, global),
    }
}
