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
//! `heads` is a number for `horizon` and a selection for the other verbs, so it is refused at the top level: it belongs in a
//! table.
//!
//! The file is merged by writing its keys as flags behind those the user typed and parsing once more, so that a value from
//! a file means exactly what the same value means on the command line.

use crate::failure::Failure;
use crate::suggest::did_you_mean;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};
use std::ffi::OsString;
use std::path::PathBuf;

/// Flags of which only one may be given: one of them on the command line silences the others in the file.
const EXCLUSIVE: &[&[&str]] = &[
    &["heads_total", "like", "path"],
    &["text", "tokens"],
    &["format", "json"],
];

/// Keys that some verbs refuse as flags, and those verbs: at the top level of the file they are for the others.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "fail_on",
        &[
            "eval",
            "probe",
            "train",
            "study",
            "tokens",
            "export",
            "explain",
            "completions",
            "man",
        ],
    ),
    (
        "max_memory",
        &[
            "horizon",
            "inspect",
            "study",
            "tokens",
            "export",
            "report",
            "explain",
            "completions",
            "man",
        ],
    ),
];

/// Keys that mean different things to different verbs.
const AMBIGUOUS: &[&str] = &["heads"];

/// Command line and file together.
#[derive(Debug)]
pub(crate) struct Merged {
    /// Arguments to parse.
    pub(crate) argv: Vec<OsString>,
    /// The file.
    pub(crate) file: PathBuf,
}

/// Adds the keys of the file named by `--config`; `None` when there is none.
pub(crate) fn merge(
    command: &Command,
    matches: &ArgMatches,
    argv: &[OsString],
) -> Result<Option<Merged>, Failure> {
    let Some((verb, verb_matches)) = matches.subcommand() else {
        return Ok(None);
    };
    let Some(file) = verb_matches.get_one::<PathBuf>("config") else {
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
    let verbs: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    let Some(verb_command) = command.find_subcommand(verb) else {
        return Ok(None);
    };
    let mut injected: Vec<(String, Vec<String>)> = Vec::new();
    let mut set = |key: &str, value: &toml::Value, in_verb: bool| -> Result<(), Failure> {
        if !in_verb && AMBIGUOUS.contains(&key) {
            return Err(fail(format!(
                "key {key:?} at the top level: it is a number of heads for horizon and a selection by index for audit and \
                 measure; put it in a table, such as [{verb}]"
            )));
        }
        let known = |c: &Command| flag_id(c, key).is_some();
        let Some(id) = flag_id(verb_command, key) else {
            if !in_verb && command.get_subcommands().any(known) {
                return Ok(()); // another verb's flag at the top level
            }
            let owner = if in_verb { verb_command } else { &command };
            let flags = owner
                .get_arguments()
                .chain(verb_command.get_arguments())
                .filter_map(clap::Arg::get_long);
            return Err(fail(format!(
                "unknown key {key:?}{}",
                did_you_mean(key, flags)
            )));
        };
        let refused = |(key, verbs): &(&str, &[&str])| *key == id && verbs.contains(&verb);
        if given(verb_matches, &id) || (!in_verb && REFUSED.iter().any(refused)) {
            return Ok(());
        }
        let arg = verb_command
            .get_arguments()
            .find(|arg| arg.get_id().as_str() == id);
        let is_switch = arg.is_some_and(|arg| matches!(arg.get_action(), ArgAction::SetTrue));
        let words = words(key, value, is_switch).map_err(&fail)?;
        injected.retain(|(earlier, _)| *earlier != id);
        injected.push((id, words));
        Ok(())
    };
    for (key, value) in table.iter().filter(|(_, value)| !value.is_table()) {
        set(key, value, false)?;
    }
    for (name, value) in &table {
        let Some(inner) = value.as_table() else {
            continue;
        };
        if !verbs.contains(&name.as_str()) {
            return Err(fail(format!(
                "unknown table [{name}]{}",
                did_you_mean(name, verbs.iter().copied())
            )));
        }
        if name == verb {
            for (key, value) in inner {
                set(key, value, true)?;
            }
        }
    }

    let mut argv = argv.to_vec();
    let end = argv
        .iter()
        .position(|word| word == "--")
        .unwrap_or(argv.len());
    let words = injected
        .into_iter()
        .flat_map(|(_, words)| words)
        .map(OsString::from);
    argv.splice(end..end, words);
    Ok(Some(Merged {
        argv,
        file: file.clone(),
    }))
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
    (!["config", "help", "version"].contains(&id)).then(|| id.to_owned())
}

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
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn merged(file: &str, argv: &[&str]) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snellen.toml");
        std::fs::write(&path, file).unwrap();
        let mut words: Vec<OsString> = argv.iter().map(OsString::from).collect();
        words.push("--config".into());
        words.push(path.clone().into());
        let n_typed = words.len();
        let command = crate::args::Cli::command();
        let matches = command.clone().try_get_matches_from(&words).unwrap();
        match merge(&command, &matches, &words) {
            Ok(merged) => {
                let argv = merged.unwrap().argv;
                Ok(argv[n_typed..]
                    .iter()
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect())
            }
            Err(failure) => Err(failure
                .message()
                .replace(&path.display().to_string(), "FILE")),
        }
    }

    #[test]
    fn keys_become_flags_and_typed_flags_win() {
        let file = "threads = 2\nplan = [\"ftz\", \"ieee\"]\nquiet = true\n[horizon]\nlength = 512\n[measure]\nlength = 9\n";
        let found = merged(file, &["snellen", "horizon", "--heads", "16"]).unwrap();
        assert_eq!(
            found,
            [
                "--plan=ftz",
                "--plan=ieee",
                "--quiet",
                "--threads=2",
                "--length=512"
            ]
        );
        let found = merged(
            file,
            &[
                "snellen",
                "horizon",
                "--heads=16",
                "--plan=f64",
                "--length",
                "7",
            ],
        )
        .unwrap();
        assert_eq!(found, ["--quiet", "--threads=2"]);
    }

    #[test]
    fn a_typed_source_silences_the_files_rival() {
        let file = "[horizon]\nheads = 8\n";
        assert_eq!(
            merged(file, &["snellen", "horizon", "--like", "bloom-560m"]).unwrap(),
            [""; 0]
        );
        assert_eq!(
            merged(file, &["snellen", "horizon"]).unwrap(),
            ["--heads=8"]
        );
    }

    #[test]
    fn mistakes_name_the_key() {
        let horizon = ["snellen", "horizon", "--heads", "16"];
        let error = |file: &str| merged(file, &horizon).unwrap_err();
        assert_eq!(
            error("lenght = 3"),
            "config file FILE: unknown key \"lenght\"; did you mean \"length\"?"
        );
        assert_eq!(
            error("[horizont]"),
            "config file FILE: unknown table [horizont]; did you mean \"horizon\"?"
        );
        assert_eq!(
            error("quiet = 3"),
            "config file FILE: key \"quiet\": expected true or false, found integer"
        );
        assert!(error("a = \n").starts_with("config file FILE: line 1: "));
        assert!(error("config = \"x\"").contains("unknown key"));
    }
}
