//! Keys of which not everything that their flags say holds.

/// Flags of which only one may be given: one of them on the command line silences the others in the file.
pub(super) const EXCLUSIVE: &[&[&str]] = &[
    &["heads_total", "like", "path"],
    &["text", "tokens"],
    &["format", "json"],
];

/// Keys that some commands refuse as flags, and those commands, some only with another flag: in a table of several, or where that
/// flag is typed, they are for the others.
pub(super) const REFUSED: &[(&[&str], &[&str])] = &[
    (
        &["fail_on"],
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
        &["max_memory"],
        &[
            "probe --build-only",
            "horizon",
            "inspect",
            "tokens",
            "export",
            "report",
            "explain",
            "completions",
            "man",
        ],
    ),
    (
        &["format", "json"],
        &[
            "train --dry-run",
            "study run",
            "tokens",
            "export",
            "completions",
            "man",
        ],
    ),
    (
        &["exit_zero"],
        &[
            "probe --build-only",
            "train",
            "study run",
            "tokens",
            "export",
            "completions",
            "man",
        ],
    ),
    (&["out"], &["study run", "tokens", "export"]),
    (
        &["plans"],
        &[
            "probe --build-only",
            "probe --no-witness",
            "probe --control",
        ],
    ),
    (
        &["keep_checkpoints", "evaluate_again", "max_minutes"],
        &["study run --dry-run"],
    ),
];

/// Keys that mean different things to those who would share them: the command whose table it is, the key, and what it means.
pub(super) const AMBIGUOUS: &[(&str, &str, &str)] = &[
    (
        "snellen",
        "heads",
        "it is a number of heads for horizon and a selection by index for audit and measure",
    ),
    (
        "snellen",
        "to",
        "every command that has this flag writes to a place of its own",
    ),
    (
        "tokens",
        "to",
        "it is a file for `tokens train` and a folder for `tokens encode`",
    ),
];
