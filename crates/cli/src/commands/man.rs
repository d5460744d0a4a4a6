//! `snellen man [VERB]`.

use crate::args::{Cli, GlobalArgs};
use crate::failure::{Exit, Failure};
use crate::suggest::did_you_mean;
use clap::{Args, Command, CommandFactory};

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Print the page of one verb
    #[arg(value_name = "VERB")]
    verb: Option<String>,
}

/// Prints the page as roff.
pub(crate) fn run(args: &ManArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let mut command = Cli::command();
    command.build();
    let page = match &args.verb {
        None => command,
        Some(verb) => match command.find_subcommand(verb) {
            Some(found) => found
                .clone()
                .name(format!("snellen-{verb}"))
                .display_name(format!("snellen-{verb}")),
            None => {
                let verbs = command.get_subcommands().map(Command::get_name);
                return Err(Failure::error(format!(
                    "unknown verb {verb:?}{}",
                    did_you_mean(verb, verbs)
                )));
            }
        },
    };
    let mut roff = Vec::new();
    clap_mangen::Man::new(page)
        .render(&mut roff)
        .map_err(|error| Failure::error(format!("manual page: {error}")))?;
    crate::output::write(&String::from_utf8_lossy(&roff), global)?;
    Ok(Exit::Clean)
}
