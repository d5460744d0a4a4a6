//! What a trial's folder says of it.
//!
//! | in `trials/NAME/` | |
//! |---|---|
//! | `run.toml`, `evaluate.toml` | what the trial is |
//! | `run/` | the training run; `snellen train --resume` knows it too |
//! | `trial.json` | the complete record, written last |
//! | `trial.before.json` | the one before, while the trial is tried or measured again |
//! | `log.txt` | what its processes said |
//! | `sittings` | a line each process that worked on it |
//! | `lock` | held by the process that works on it |

use crate::failure::Failure;
use ::report::schema::{StudyTrial, TrialStatus};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use train::config::RunConfig;
use train::run::RunRecord;
use train::study::{CheckedTrial, EvaluateConfig, Trial};

/// The record of a trial that is tried or measured again, until the new one is whole.
pub(super) const BEFORE: &str = "trial.before.json";

/// What is to be done with a trial.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// Nothing was done yet, or it was interrupted.
    Open,
    /// Done, as this study says it.
    Done,
    /// It failed and would fail again.
    Failed(String),
    /// Trained as this study says it, measured otherwise.
    MeasuredOtherwise,
}

/// The folder of a trial.
pub(super) fn folder(study: &Path, name: &str) -> PathBuf {
    study.join("trials").join(name)
}

/// Reads a trial's record; `None` where there is none.
pub(super) fn record(folder: &Path) -> Result<Option<StudyTrial>, Failure> {
    record_in(folder, "trial.json")
}

/// The record before the one that is being made; `None` where there was none.
pub(super) fn record_before(folder: &Path) -> Result<Option<StudyTrial>, Failure> {
    record_in(folder, BEFORE)
}

fn record_in(folder: &Path, name: &str) -> Result<Option<StudyTrial>, Failure> {
    let path = folder.join(name);
    if !path.exists() {
        return Ok(None);
    }
    read_record(&path).map(Some)
}

/// Reads a record.
pub(super) fn read_record(path: &Path) -> Result<StudyTrial, Failure> {
    let expected = "expected the record of a trial, as `snellen study run` writes it";
    let text = checkpoint::files::read_to_string(path)
        .map_err(|error| Failure::cannot_read(path, &error, expected))?;
    let record: StudyTrial = serde_json::from_str(&text)
        .map_err(|error| Failure::error(format!("{}: {error}; {expected}", path.display())))?;
    if record.schema_version != ::report::SCHEMA_VERSION {
        return Err(Failure::error(format!(
            "{}: expected schema_version {}, found {}",
            path.display(),
            ::report::SCHEMA_VERSION,
            record.schema_version
        )));
    }
    let damaged = |what: String| Failure::error(format!("{}: {what}", path.display()));
    record.check().map_err(damaged)?;
    decided(&record).map_err(damaged)?;
    Ok(record)
}

/// Checks what follows from other parts of a record: its hashes, and the horizons.
fn decided(record: &StudyTrial) -> Result<(), String> {
    let Some(result) = &record.result else {
        return Ok(());
    };
    let run: RunConfig = serde_json::from_value(result.configuration.clone())
        .map_err(|error| format!("configuration: {error}"))?;
    let evaluate: EvaluateConfig = serde_json::from_value(result.evaluation.clone())
        .map_err(|error| format!("evaluation: {error}"))?;
    let hashes = [
        (
            "run_hash",
            run.identity(&result.train_hash, &result.held_hash),
            &record.run_hash,
        ),
        (
            "evaluation_hash",
            evaluate.identity(),
            &record.evaluation_hash,
        ),
    ];
    for (name, expected, found) in hashes {
        if expected != *found {
            return Err(format!(
                "{name}: expected {expected}, found {found}: the record was changed, or another version of the program wrote it"
            ));
        }
    }
    if evaluate.margins
        && result.horizons != super::measure::horizons(&result.measured, &result.margins)
    {
        return Err(
            "horizons: do not follow from measured and margins: the record was changed".to_owned(),
        );
    }
    Ok(())
}

/// What a record was made with that `trial` says otherwise; `None` where nothing differs or the record holds no result.
pub(super) fn otherwise(trial: &Trial, record: &StudyTrial) -> Option<String> {
    let result = record.result.as_ref()?;
    let run: RunConfig = serde_json::from_value(result.configuration.clone()).ok()?;
    let now = trial.run.without_places();
    first_difference(&table(run.canonical()), &table(now.canonical()), "")
        .or_else(|| measured_otherwise(&trial.evaluate, record))
}

/// The same of what was measured alone.
pub(super) fn measured_otherwise(now: &EvaluateConfig, record: &StudyTrial) -> Option<String> {
    let result = record.result.as_ref()?;
    let before: EvaluateConfig = serde_json::from_value(result.evaluation.clone()).ok()?;
    let now = now.resolved(usize::try_from(result.trained_length).ok()?);
    let text = |e: &EvaluateConfig| table(toml::to_string(e).unwrap_or_default());
    first_difference(&text(&before), &text(&now), "evaluate.")
}

fn table(text: String) -> toml::Table {
    text.parse().unwrap_or_default()
}

/// What is to be done with a trial of the study in `study`.
pub(super) fn of(study: &Path, checked: &CheckedTrial) -> Result<State, Failure> {
    let trial = &checked.trial;
    let folder = folder(study, &trial.name);
    let Some(record) = record(&folder)? else {
        return match run_record(&folder)? {
            Some(run) if run.config_hash != checked.run_hash => Err(changed(&folder, trial)),
            _ => Ok(State::Open),
        };
    };
    if record.run_hash != checked.run_hash {
        return Err(changed(&folder, trial));
    }
    Ok(match record.status {
        TrialStatus::Crashed => State::Open,
        TrialStatus::Diverged => State::Failed(record.reason.unwrap_or_default()),
        TrialStatus::Done if record.evaluation_hash != trial.evaluation_hash() => {
            State::MeasuredOtherwise
        }
        TrialStatus::Done => State::Done,
    })
}

/// What the training run in a trial's folder says of itself.
pub(super) fn run_record(folder: &Path) -> Result<Option<RunRecord>, Failure> {
    let path = folder.join("run").join("record.json");
    if !path.exists() {
        return Ok(None);
    }
    let fail = |text: String| Failure::error(format!("{}: {text}", path.display()));
    let text = checkpoint::files::read(&path).map_err(|error| fail(error.to_string()))?;
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| fail(format!("is damaged ({error})")))
}

/// Names what is another than it was, where the folder still says so.
fn changed(folder: &Path, trial: &Trial) -> Failure {
    let before = RunConfig::read(&folder.join("run.toml"));
    let differs = before.ok().and_then(|before| {
        let table = |run: &RunConfig| run.without_places().canonical().parse::<toml::Table>().ok();
        first_difference(&table(&before)?, &table(&trial.run)?, "")
    });
    let what = differs.unwrap_or_else(|| "its data or configuration differs".to_owned());
    Failure::error(format!(
        "trial {}: {what}; {} holds the other one: use another --to, or remove that folder to run the trial anew",
        trial.name,
        folder.display()
    ))
}

/// `schedule.lr was 0.003 and is 0.001`.
fn first_difference(before: &toml::Table, now: &toml::Table, path: &str) -> Option<String> {
    let keys = before.keys().chain(now.keys());
    for key in keys {
        let name = format!("{path}{key}");
        match (before.get(key), now.get(key)) {
            (Some(toml::Value::Table(a)), Some(toml::Value::Table(b))) => {
                if let Some(found) = first_difference(a, b, &format!("{name}.")) {
                    return Some(found);
                }
            }
            (a, b) if a == b => {}
            (a, b) => {
                let shown = |v: Option<&toml::Value>| match v {
                    Some(value) => value.to_string().replace('\n', " "),
                    None => "not set".to_owned(),
                };
                return Some(format!("{name} was {} and is {}", shown(a), shown(b)));
            }
        }
    }
    None
}

/// How often a lock that is held is asked for, and how long in between: a process that was told to stop ends its step first.
const LOCK_TRIES: usize = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(40);

/// Takes the lock of a trial; `None` where another process has it and keeps it for two seconds.
pub(super) fn lock(folder: &Path) -> Result<Option<File>, Failure> {
    for _ in 1..LOCK_TRIES {
        if let Some(file) = try_lock(folder)? {
            return Ok(Some(file));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    try_lock(folder)
}

fn try_lock(folder: &Path) -> Result<Option<File>, Failure> {
    let path = folder.join("lock");
    let fail = |error: std::io::Error| Failure::error(format!("{}: {error}", path.display()));
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(fail)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(fail(error)),
    }
}

/// Writes what a trial is into its folder.
pub(super) fn describe(folder: &Path, trial: &Trial) -> Result<(), Failure> {
    let fail =
        |path: &Path, error: std::io::Error| Failure::error(format!("{}: {error}", path.display()));
    std::fs::create_dir_all(folder).map_err(|error| fail(folder, error))?;
    let mut run = trial.run.clone();
    let data = &mut run.data;
    let paths = [&mut data.train, &mut data.held].into_iter();
    for path in paths.chain(data.tokenizer.as_mut()) {
        *path = std::path::absolute(&*path).map_err(|error| fail(path, error))?;
    }
    let evaluate = toml::to_string(&trial.evaluate)
        .map_err(|error| Failure::error(format!("evaluate.toml: {error}")))?;
    for (name, text) in [("run.toml", run.canonical()), ("evaluate.toml", evaluate)] {
        let path = folder.join(name);
        crate::output::write_file(&path, text.as_bytes()).map_err(|error| fail(&path, error))?;
    }
    Ok(())
}

/// Reads what [`describe`] wrote.
pub(super) fn described(folder: &Path) -> Result<Trial, Failure> {
    let path = folder.join("evaluate.toml");
    let expected = "a trial's folder is written by `snellen study run`";
    let text = checkpoint::files::read_to_string(&path)
        .map_err(|error| Failure::cannot_read(&path, &error, expected))?;
    let evaluate: EvaluateConfig = toml::from_str(&text)
        .map_err(|error| Failure::error(format!("{}: {}", path.display(), error.message())))?;
    let run = RunConfig::read(&folder.join("run.toml"))?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let suffix = format!("-s{}", run.seed);
    let Some(variant) = name.strip_suffix(&suffix) else {
        return Err(Failure::error(format!(
            "{}: run.toml has seed {}, so the folder's name should end in {suffix}",
            folder.display(),
            run.seed
        )));
    };
    Ok(Trial {
        variant: variant.to_owned(),
        name: name.into_owned(),
        run,
        evaluate,
    })
}

/// Writes a trial's record, whole or not at all.
pub(super) fn write(folder: &Path, record: &StudyTrial) -> Result<(), Failure> {
    let path = folder.join("trial.json");
    let text =
        ::report::json::render(record).map_err(|error| Failure::error(format!("JSON: {error}")))?;
    crate::output::write_file(&path, text.as_bytes())
        .map_err(|error| Failure::error(format!("{}: {error}", path.display())))
}
