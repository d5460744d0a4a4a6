//! What a file of flags becomes, for each command.

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
    let matches = crate::matches_of_a_part(&command, &words).unwrap();
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

#[test]
fn tables_of_a_verb_serve_its_commands() {
    let file = "threads = 2\nformat = \"json\"\n[study]\njobs = 3\nquiet = true\n[study.run]\nto = \"place\"\n\
                [tokens]\ncolumn = \"body\"\nvocab = 512\nheld_permille = 7\n[tokens.encode]\ncolumn = \"words\"\n";
    let found = |line: &str| merged(file, &line.split(' ').collect::<Vec<_>>()).unwrap();
    assert_eq!(
        found("snellen study run s.toml"),
        ["--threads=2", "--jobs=3", "--quiet", "--to=place"]
    );
    assert_eq!(
        found("snellen study run s.toml --to here --jobs=1"),
        ["--threads=2", "--quiet"]
    );
    assert_eq!(
        found("snellen study report place"),
        ["--format=json", "--threads=2", "--quiet"]
    );
    assert_eq!(
        found("snellen tokens train text"),
        ["--threads=2", "--column=body", "--vocab=512"]
    );
    assert_eq!(
        found("snellen tokens encode text"),
        ["--threads=2", "--held-permille=7", "--column=words"]
    );
    assert_eq!(
        merged(
            "max_memory = \"1GiB\"",
            &["snellen", "study", "run", "s.toml"]
        )
        .unwrap(),
        ["--max-memory=1GiB"]
    );
}

#[test]
fn flags_that_another_flag_makes_useless_are_for_the_others() {
    let file = "format = \"json\"\nexit_zero = true\nthreads = 2";
    let found = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        merged(file, &words).unwrap()
    };
    assert_eq!(
        found("snellen train run.toml --to here"),
        ["--format=json", "--threads=2"]
    );
    assert_eq!(found("snellen train run.toml --dry-run"), ["--threads=2"]);
    assert_eq!(
        found("snellen probe model"),
        ["--exit-zero", "--format=json", "--threads=2"]
    );
    assert_eq!(
        found("snellen probe model --build-only --lengths 9"),
        ["--format=json", "--threads=2"]
    );
    let words = ["snellen", "probe", "model", "--build-only"];
    assert!(merged("plan = \"ftz\"", &words).unwrap().is_empty());
}

#[test]
fn mistakes_in_tables_of_commands_name_the_key() {
    let error = |file: &str| {
        let words = ["snellen", "tokens", "encode", "text"];
        merged(file, &words).unwrap_err()
    };
    assert_eq!(
        error("[tokens]\nto = \"x\""),
        "config file FILE: key \"to\" in [tokens]: it is a file for `tokens train` and a folder for `tokens encode`; put it in \
         a table, such as [tokens.encode]"
    );
    assert!(error("to = \"x\"").contains("\"to\" at the top level: "));
    assert_eq!(
        error("config = \"x\""),
        "config file FILE: unknown key \"config\""
    );
    assert_eq!(
        error("[tokens.encod]"),
        "config file FILE: unknown table [tokens.encod]; did you mean \"encode\"?"
    );
    // what only the other command has, in its own table or in the verb's
    assert_eq!(
        error("[tokens.encode]\nvocab = 3"),
        "config file FILE: unknown key \"vocab\""
    );
    assert_eq!(
        error("[tokens]\nvocap = 3"),
        "config file FILE: unknown key \"vocap\"; did you mean \"vocab\"?"
    );
}
