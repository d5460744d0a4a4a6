//! The `snellen` command: arguments in, documents out. No numbers of its own.
//!
//! A run has three steps that do not mix. Arguments are parsed and merged with the file given by `--config`; the verb fills a
//! result of the `report` crate; the result is rendered and written, whole or not at all. The exit code depends on the result,
//! never on the format:
//!
//! | code | meaning |
//! |---|---|
//! | 0 | no finding at or above `--fail-on` |
//! | 1 | findings at or above `--fail-on` |
//! | 2 | the job could not be done |
//! | 3 | not applicable: not an ALiBi model |
//! | 130 | interrupted, and it can go on |
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod command_line;
mod commands;
mod config;
mod embedded;
mod fail_on;
mod failure;
mod output;
mod overwrite;
mod parse;
mod places;
mod progress;
mod suggest;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use failure::{Exit, Failure};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let exit = match run(std::env::args_os().collect()) {
        Ok(exit) => exit,
        Err(failure) => {
            // a closed stderr leaves nobody to tell
            let _ = writeln!(std::io::stderr(), "error: {}", failure.message());
            failure.exit()
        }
    };
    ExitCode::from(exit.code())
}

fn run(argv: Vec<std::ffi::OsString>) -> Result<Exit, Failure> {
    let command = admitting_negative_numbers(args::Cli::command());
    let typed = command.clone().try_get_matches_from(&argv);
    let part;
    let matches = match &typed {
        Ok(matches) => matches,
        // the file may have what was not typed
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {
            match matches_of_a_part(&command, &argv) {
                Ok(found) => part = found,
                Err(error) => return usage(&error, None),
            }
            &part
        }
        Err(error) => return usage(error, None),
    };
    let Some(merged) = config::merge(&command, matches, &argv)? else {
        return match typed {
            Ok(matches) => run_matches(&matches, &argv),
            Err(error) => usage(&error, None),
        };
    };
    match command.try_get_matches_from(&merged.argv) {
        Ok(matches) => run_matches(&matches, &merged.argv),
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => usage(&error, None),
        // what the user typed parsed by itself, so the file is at fault
        Err(error) => usage(&error, Some(&merged.file)),
    }
}

fn run_matches(matches: &clap::ArgMatches, argv: &[std::ffi::OsString]) -> Result<Exit, Failure> {
    let cli =
        args::Cli::from_arg_matches(matches).map_err(|error| Failure::error(one_line(&error)))?;
    overwrite::refuse(argv)?;
    commands::run(cli)
}

/// What was typed of a command line that lacks something.
fn matches_of_a_part(
    command: &clap::Command,
    argv: &[std::ffi::OsString],
) -> Result<clap::ArgMatches, clap::Error> {
    let lenient = command.clone().ignore_errors(true);
    lenient.try_get_matches_from(argv)
}

/// `--length -5` is a value of `--length`, whose parser says what it expected, not a flag named 5.
fn admitting_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_a_value = |arg: &clap::Arg| {
        matches!(
            arg.get_action(),
            clap::ArgAction::Set | clap::ArgAction::Append
        )
    };
    command
        .mut_args(|arg| {
            if takes_a_value(&arg) && !arg.is_positional() {
                arg.allow_negative_numbers(true)
            } else {
                arg
            }
        })
        .mut_subcommands(admitting_negative_numbers)
}

/// Help and version go to stdout; a usage error becomes one line.
fn usage(error: &clap::Error, config: Option<&std::path::Path>) -> Result<Exit, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::write_styled(&error.render().ansi().to_string())?;
            Ok(Exit::Clean)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Err(Failure::error(
            "a verb is missing; run `snellen --help` for the list",
        )),
        _ => Err(Failure::error(match config {
            Some(file) => format!("config file {}: {}", file.display(), one_line(error)),
            None => one_line(error),
        })),
    }
}

/// The message and tips of a usage error, without the usage block.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let before_usage = text.split("\nUsage:").next().unwrap_or(&text);
    let before_usage = before_usage
        .split("\nFor more information")
        .next()
        .unwrap_or(before_usage);
    let lines = before_usage
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let joined = lines.collect::<Vec<_>>().join(" ");
    report::text::escape(joined.strip_prefix("error: ").unwrap_or(&joined)).into_owned()
}
