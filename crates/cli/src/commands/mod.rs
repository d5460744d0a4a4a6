//! The verbs, one file each.

pub(crate) mod audit;
pub(crate) mod completions;
mod describe;
mod estimate;
pub(crate) mod eval;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod horizon;
mod ids;
pub(crate) mod inspect;
pub(crate) mod man;
pub(crate) mod measure;
pub(crate) mod probe;
pub(crate) mod report;
pub(crate) mod study;
pub(crate) mod tokens;
pub(crate) mod train;

use crate::args::{Cli, GlobalArgs, Verb};
use crate::failure::{Exit, Failure};

/// Version written into documents.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs the verb.
pub(crate) fn run(cli: Cli) -> Result<Exit, Failure> {
    let global = cli.global;
    if let Some(threads) = global.threads {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads.into())
            .build_global()
            .map_err(|error| Failure::error(format!("--threads {threads}: {error}")))?;
    }
    refuse_idle_flags(&cli.verb, &global)?;
    match cli.verb {
        Verb::Horizon(args) => horizon::run(&args, &global),
        Verb::Inspect(args) => inspect::run(&args, &global),
        Verb::Audit(args) => audit::run(&args, &global),
        Verb::Measure(args) => measure::run(&args, &global),
        Verb::Eval(args) => eval::run(&args, &global),
        Verb::Probe(args) => probe::run(&args, &global),
        Verb::Train(args) => train::run(&args, &global),
        Verb::Export(args) => export::run(&args, &global),
        Verb::Tokens(args) => tokens::run(&args, &global),
        Verb::Study(args) => study::run(&args, &global),
        Verb::Report(args) => report::run(&args, &global),
        Verb::Explain(args) => explain::run(&args, &global),
        Verb::Completions(args) => completions::run(&args, &global),
        Verb::Man(args) => man::run(&args, &global),
    }
}

/// Refuses flags that would do nothing, before any work: a flag that is ignored is a mistake that nobody notices.
fn refuse_idle_flags(verb: &Verb, global: &GlobalArgs) -> Result<(), Failure> {
    match verb {
        Verb::Eval(_) => global.refuse_judging("eval")?,
        Verb::Probe(_) => global.refuse_judging("probe")?,
        Verb::Explain(_) => global.refuse_judging("explain")?,
        Verb::Completions(_) => global.refuse_document_flags("completions", &["--out"])?,
        Verb::Man(_) => global.refuse_document_flags("man", &["--out"])?,
        _ => {}
    }
    let no_estimate = match verb {
        Verb::Horizon(_) => "horizon",
        Verb::Inspect(_) => "inspect",
        Verb::Report(_) => "report",
        Verb::Explain(_) => "explain",
        Verb::Tokens(_) => "tokens",
        Verb::Export(_) => "export",
        Verb::Completions(_) => "completions",
        Verb::Man(_) => "man",
        Verb::Audit(_)
        | Verb::Measure(_)
        | Verb::Eval(_)
        | Verb::Probe(_)
        | Verb::Train(_)
        | Verb::Study(_) => return Ok(()),
    };
    global.refuse_estimating(no_estimate)
}
