//! `snellen study report`: a folder of records, summed up over seeds.

use super::{ReportArgs, state};
use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use ::report::schema::{StudyReport, StudyTrial};
use ::report::study::StudyOutline;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use train::study::Study;

/// Runs the verb.
pub(super) fn run(args: &ReportArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    crate::output::emit(of(&args.folder)?, global)
}

/// The records of a folder summed up.
pub(in crate::commands) fn of(folder: &Path) -> Result<StudyReport, Failure> {
    let file = folder.join("study.toml");
    let study = Study::read(&file)?;
    let records = records(&folder.join("trials"))?;
    let outline = StudyOutline {
        title: study.title.clone(),
        baseline: study.baseline.clone(),
        variants: study.variants.iter().map(|v| v.name.clone()).collect(),
        trials: study.trial_names(),
        left_out: left_out(&file, &study, &records)?,
    };
    let mut report = StudyReport::of(crate::commands::VERSION, &outline, &records);
    if let Some(base) = study.missing_base() {
        report.outcome.notes.push(format!(
            "{} is not there: trials were compared with [evaluate] of study.toml, and not with its runs",
            base.display()
        ));
    }
    Ok(report)
}

/// Records of another configuration or measurement than the study says now, and what differs.
fn left_out(
    file: &Path,
    study: &Study,
    records: &[StudyTrial],
) -> Result<BTreeMap<String, String>, Failure> {
    let trials = match study.missing_base() {
        Some(_) => None,
        None => Some(
            study
                .trials()
                .map_err(|error| Failure::error(format!("{}: {error}", file.display())))?,
        ),
    };
    let differs = |record: &StudyTrial| {
        let what = match &trials {
            Some(trials) => {
                let trial = trials.iter().find(|trial| trial.name == record.trial)?;
                state::otherwise(trial, record)?
            }
            None => state::measured_otherwise(&study.evaluate, record)?,
        };
        Some((record.trial.clone(), what))
    };
    Ok(records.iter().filter_map(differs).collect())
}

/// Every record in `trials`: `NAME/trial.json` or `NAME.json`, by name.
fn records(folder: &Path) -> Result<Vec<StudyTrial>, Failure> {
    let fail = |error: std::io::Error| {
        Failure::cannot_read(
            folder,
            &error,
            "expected the folder of trials that `snellen study run --to` fills",
        )
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.is_dir() {
            let record = path.join("trial.json");
            files.extend(record.exists().then_some(record));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            files.push(path);
        }
    }
    files.sort();
    let mut records: Vec<StudyTrial> = Vec::new();
    for path in files {
        let record = state::read_record(&path)?;
        if let Some(earlier) = records.iter().find(|r| r.trial == record.trial) {
            return Err(Failure::error(format!(
                "{}: a second record of trial {}; keep one of them",
                path.display(),
                earlier.trial
            )));
        }
        records.push(record);
    }
    Ok(records)
}
