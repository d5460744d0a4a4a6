//! `--config FILE`: defaults for flags, in TOML. A flag on the command line overrides the file.
//!
//! Keys are flag names without the dashes. Those at the top level serve every verb that has such a flag; those in a table named
//! after a verb serve that verb and override the top level:
//!
//! ```toml
//! threads = 4
//! plan = ["ftz", "hf-eager:bf16"]
//!
//! [measure]
//! length = 4096
//! ```
//!
//! A verb of several commands (`study run`, `tokens train`) has one table for all, `[tokens]`, of which each takes the flags that it has,
//! and one for each, `[tokens.train]`, which goes before.
//!
//! `heads` is a number for `horizon` and a selection for the other verbs, and `to` a place of its own for each command, so they are
//! refused where they would serve several: they belong in a table.
//!
//! The file is merged by writing its keys as flags behind those the user typed and parsing once more, so that a value from
//! a file means exactly what the same value means on the command line.

mod exceptions;

use crate::failure::Failure;
use crate::suggest::did_you_mean;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};
use exceptions::{AMBIGUOUS, EXCLUSIVE, REFUSED};
use std::ffi::OsString;
use std::path::PathBuf;

/// Command line and file together.
#[derive(Debug)]
pub(crate) struct Merged {
    /// Arguments to parse.
    pub(crate) argv: Vec<OsString>,
    /// The file.
    pub(crate) file: PathBuf,
}

/// The file that `--config` names.
pub(crate) fn file(matches: &ArgMatches) -> Option<&PathBuf> {
    deepest(matches).get_one::<PathBuf>("config")
}

/// The matches of the command that runs.
fn deepest(matches: &ArgMatches) -> &ArgMatches {
    matches
        .subcommand()
        .map_or(matches, |(_, inner)| deepest(inner))
}

/// Adds the keys of the file named by `--config`; `None` when there is none.
pub(crate) fn merge(
    command: &Command,
    matches: &ArgMatches,
    argv: &[OsString],
) -> Result<Option<Merged>, Failure> {
    let Some(file) = file(matches) else {
        return Ok(None);
    };
    let fail = |text: String| Failure::error(format!("config file {}: {text}", file.display()));
    let text = checkpoint::files::read_to_string(file).map_err(|error| {
        let expected = "--config expects a TOML file of flags, such as: threads = 4";
        Failure::cannot_read(file, &error, expected)
    })?;
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| fail(toml_error(&error, &text)))?;

    let mut command = command.clone();
    command.build();
    let mut keys = Keys::new(&command, matches);
    if keys.commands.len() < 2 {
        return Ok(None);
    }
    keys.table(&table, 0).map_err(fail)?;

    let mut argv = argv.to_vec();
    let end = argv
        .iter()
        .position(|word| word == "--")
        .unwrap_or(argv.len());
    let words = keys.injected.into_iter().flat_map(|(_, words)| words);
    argv.splice(end..end, words.map(OsString::from));
    Ok(Some(Merged {
        argv,
        file: file.clone(),
    }))
}

/// The keys of a file on their way to the command that runs.
struct Keys<'a> {
    /// From `snellen` to the command that runs: the verb, or a command of the verb.
    commands: Vec<&'a Command>,
    /// Matches of that command.
    matches: &'a ArgMatches,
    /// Flags found so far, by identifier, with their words.
    injected: Vec<(String, Vec<String>)>,
}

impl<'a> Keys<'a> {
    fn new(command: &'a Command, mut matches: &'a ArgMatches) -> Self {
        let mut commands = vec![command];
        let mut command = command;
        while let Some((name, inner)) = matches.subcommand()
            && let Some(found) = command.find_subcommand(name)
        {
            commands.push(found);
            (command, matches) = (found, inner);
        }
        Self {
            commands,
            matches,
            injected: Vec::new(),
        }
    }

    /// The command that runs.
    fn command(&self) -> &'a Command {
        self.commands[self.commands.len() - 1]
    }

    /// Names from below `snellen` to the command at `depth`.
    fn path(&self, depth: usize, between: &str) -> String {
        let names = self.commands[1..=depth].iter().map(|c| c.get_name());
        names.collect::<Vec<_>>().join(between)
    }

    /// Takes the table of the command at `depth`, and of those below it the one that runs.
    fn table(&mut self, table: &toml::Table, depth: usize) -> Result<(), String> {
        for (key, value) in table.iter().filter(|(_, value)| !value.is_table()) {
            self.key(key, value, depth)?;
        }
        for (name, value) in table {
            let Some(inner) = value.as_table() else {
                continue;
            };
            let below = self.commands[depth].get_subcommands();
            let names: Vec<&str> = below.map(Command::get_name).collect();
            if !names.contains(&name.as_str()) {
                let above = self.commands[1..=depth].iter();
                let above: String = above.map(|c| format!("{}.", c.get_name())).collect();
                let hint = did_you_mean(name, names.iter().copied());
                return Err(format!("unknown table [{above}{name}]{hint}"));
            }
            let next = self.commands.get(depth + 1);
            if next.is_some_and(|next| next.get_name() == name) {
                self.table(inner, depth + 1)?;
            }
        }
        Ok(())
    }

    fn key(&mut self, key: &str, value: &toml::Value, depth: usize) -> Result<(), String> {
        let (owner, last) = (self.commands[depth], self.commands.len() - 1);
        let ambiguous = AMBIGUOUS
            .iter()
            .find(|(table, name, _)| depth < last && *table == owner.get_name() && *name == key);
        if let Some((_, _, why)) = ambiguous {
            let place = match depth {
                0 => "at the top level".to_owned(),
                _ => format!("in [{}]", self.path(depth, ".")),
            };
            let table = self.path(last, ".");
            return Err(format!(
                "key {key:?} {place}: {why}; put it in a table, such as [{table}]"
            ));
        }
        let Some(id) = flag_id(self.command(), key) else {
            if below(owner).iter().any(|c| flag_id(c, key).is_some()) {
                return Ok(()); // another command's flag
            }
            let commands = below(owner).into_iter();
            let flags = commands.flat_map(|c| c.get_arguments().filter_map(clap::Arg::get_long));
            let flags = flags.filter(|flag| !NOT_IN_A_FILE.contains(flag));
            let hint = did_you_mean(key, flags);
            return Err(format!("unknown key {key:?}{hint}"));
        };
        if given(self.matches, &id) || self.is_for_others(&id, depth) {
            return Ok(());
        }
        let mut arguments = self.command().get_arguments();
        let arg = arguments.find(|arg| arg.get_id().as_str() == id);
        let is_switch = arg.is_some_and(|arg| matches!(arg.get_action(), ArgAction::SetTrue));
        let words = words(key, value, is_switch)?;
        self.injected.retain(|(earlier, _)| *earlier != id);
        self.injected.push((id, words));
        Ok(())
    }

    /// Flags of the command that were typed.
    fn typed_flags(&self) -> impl Iterator<Item = &'a str> {
        let arguments = self.command().get_arguments();
        let typed = arguments.filter(|arg| given(self.matches, arg.get_id().as_str()));
        typed.filter_map(clap::Arg::get_long)
    }

    /// Whether the flag in the table of the command at `depth` is refused by the command that runs and taken by others below the same.
    fn is_for_others(&self, id: &str, depth: usize) -> bool {
        let last = self.commands.len() - 1;
        let mut refused: Vec<String> = (depth + 1..=last).map(|at| self.path(at, " ")).collect();
        for flag in self.typed_flags() {
            refused.push(format!("{} --{flag}", self.path(last, " ")));
        }
        let refuses = |(ids, commands): &(&[&str], &[&str])| {
            ids.contains(&id) && refused.iter().any(|name| commands.contains(&name.as_str()))
        };
        REFUSED.iter().any(refuses)
    }
}

/// A command and all below it.
fn below(command: &Command) -> Vec<&Command> {
    let inner = command.get_subcommands().flat_map(below);
    std::iter::once(command).chain(inner).collect()
}

/// Identifier of the flag that the key names, by long name or alias. `config` itself cannot be set from a file.
fn flag_id(command: &Command, key: &str) -> Option<String> {
    let key = key.replace('_', "-");
    let named = |arg: &&clap::Arg| {
        arg.get_long() == Some(key.as_str())
            || arg
                .get_all_aliases()
                .is_some_and(|names| names.contains(&key.as_str()))
    };
    let arg = command.get_arguments().find(named)?;
    let id = arg.get_id().as_str();
    (!NOT_IN_A_FILE.contains(&id)).then(|| id.to_owned())
}

/// Flags that a file cannot set.
const NOT_IN_A_FILE: [&str; 3] = ["config", "help", "version"];

/// Whether the flag, or one that excludes it, was typed.
fn given(matches: &ArgMatches, id: &str) -> bool {
    let typed = |id: &str| {
        matches.try_contains_id(id).unwrap_or(false)
            && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let rivals = EXCLUSIVE
        .iter()
        .filter(|group| group.contains(&id))
        .flat_map(|group| group.iter().copied());
    typed(id) || rivals.into_iter().any(typed)
}

/// The words that a key stands for on the command line.
fn words(key: &str, value: &toml::Value, is_switch: bool) -> Result<Vec<String>, String> {
    let flag = format!("--{}", key.replace('_', "-"));
    match value {
        toml::Value::Boolean(on) if is_switch => Ok(if *on { vec![flag] } else { Vec::new() }),
        _ if is_switch => Err(format!(
            "key {key:?}: expected true or false, found {}",
            value.type_str()
        )),
        toml::Value::String(text) => Ok(vec![format!("{flag}={text}")]),
        toml::Value::Integer(number) => Ok(vec![format!("{flag}={number}")]),
        toml::Value::Float(number) => Ok(vec![format!("{flag}={number}")]),
        toml::Value::Array(items) => items
            .iter()
            .map(|item| words(key, item, false))
            .collect::<Result<Vec<_>, _>>()
            .map(|w| w.concat()),
        other => Err(format!(
            "key {key:?}: expected a string, a number or an array, found {}",
            other.type_str()
        )),
    }
}

/// The parser's message with its line number, in one line.
fn toml_error(error: &toml::de::Error, text: &str) -> String {
    let line = error
        .span()
        .map(|span| text[..span.start.min(text.len())].lines().count().max(1));
    match line {
        Some(line) => format!("line {line}: {}", error.message()),
        None => error.message().to_owned(),
    }
}

#[cfg(test)]
mod tests;
