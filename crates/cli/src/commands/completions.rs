//! `snellen completions SHELL`.

use crate::args::{Cli, GlobalArgs};
use crate::failure::{Exit, Failure};
use clap::{Args, CommandFactory};

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "snellen", &mut script);
    crate::output::write(&String::from_utf8_lossy(&script), global)?;
    Ok(Exit::Clean)
}
