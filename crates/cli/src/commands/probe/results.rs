//! The file that `--results` appends to: a line for the settings, then a line a cell, so that an interrupted run continues, one grid
//! grows into another, and two runs merge.

use crate::failure::Failure;
use report::schema::{ProbeCell, ProbeHeader, ProbeSettings, SCHEMA_VERSION};
use serde::Serialize;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Cells by their place in the grid, and where new ones go.
#[derive(Debug)]
pub(super) struct Results {
    cells: Vec<ProbeCell>,
    file: Option<(PathBuf, File)>,
}

/// Hash of the settings.
pub(super) fn configuration(settings: &ProbeSettings) -> Result<String, Failure> {
    Ok(blake3::hash(line(settings)?.trim_end().as_bytes())
        .to_hex()
        .to_string())
}

/// Compact JSON and a line break.
pub(super) fn line(value: &impl Serialize) -> Result<String, Failure> {
    let mut line =
        serde_json::to_string(value).map_err(|error| Failure::error(format!("JSON: {error}")))?;
    line.push('\n');
    Ok(line)
}

/// What is expected of a file, for those who gave something else.
const EXPECTED: &str = "expected the results of an earlier probe";

/// What such a file holds.
struct Read {
    header: Option<ProbeHeader>,
    cells: Vec<ProbeCell>,
    /// Bytes of whole lines: what is behind them was cut by an interruption.
    whole: u64,
}

impl Results {
    /// Opens the file, or makes it, and keeps it locked; without a path the cells are only kept.
    ///
    /// A last line without its line break was cut by an interruption and is dropped. Cells of another grid are fine, as a cell
    /// depends on nothing but the settings; a file of other settings is refused, and one that another command appends to.
    pub(super) fn open(path: Option<&Path>, settings: &ProbeSettings) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self {
                cells: Vec::new(),
                file: None,
            });
        };
        let io = |error: std::io::Error| Failure::cannot_write(&path.display().to_string(), &error);
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            && !folder.is_dir()
        {
            return Err(Failure::error(format!(
                "{}: the folder {} does not exist; --results expects a file of an earlier run, or none, in a folder that is there",
                path.display(),
                folder.display()
            )));
        }
        // looked at before it is opened for writing: what is no file of results is not touched
        if path.exists() {
            read(path, settings)?;
        }
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(io)?;
        lock(&file, path)?;
        // read again: until the lock was taken, another command may have appended
        let old = read(path, settings)?;
        if old.whole < file.metadata().map_err(io)?.len() {
            file.set_len(old.whole).map_err(io)?;
        }
        if old.header.is_none() {
            let header = ProbeHeader {
                schema_version: SCHEMA_VERSION,
                configuration: configuration(settings)?,
                settings: settings.clone(),
            };
            file.write_all(line(&header)?.as_bytes()).map_err(io)?;
        }
        Ok(Self {
            cells: old.cells,
            file: Some((path.to_owned(), file)),
        })
    }

    /// Takes the cells of other files of the same settings, whatever their grids, and appends those that are missing here, once all
    /// files are found to agree. The other files are only read.
    pub(super) fn merge(
        &mut self,
        files: &[PathBuf],
        settings: &ProbeSettings,
    ) -> Result<(), Failure> {
        let mut missing: Vec<ProbeCell> = Vec::new();
        for path in files {
            let other = read(path, settings)?;
            if other.header.is_none() {
                return Err(Failure::error(format!(
                    "{}: is empty; {EXPECTED}",
                    path.display()
                )));
            }
            self.compare(path, other.cells, &mut missing)?;
        }
        missing.iter().try_for_each(|cell| self.add(cell).map(drop))
    }

    /// Adds the cells that neither the file nor `missing` holds to the latter.
    fn compare(
        &self,
        path: &Path,
        cells: Vec<ProbeCell>,
        missing: &mut Vec<ProbeCell>,
    ) -> Result<(), Failure> {
        for cell in cells {
            let same =
                |other: &&ProbeCell| other.length == cell.length && other.depth == cell.depth;
            match self.cells.iter().chain(missing.iter()).find(same) {
                None => missing.push(cell),
                Some(own) if *own == cell => {}
                Some(_) => {
                    return Err(Failure::error(format!(
                        "{}: its cell of length {} at depth {} is another than the one that is there already, with the same \
                         settings; one of the two files was changed, or another version of the program wrote it",
                        path.display(),
                        cell.length,
                        cell.depth
                    )));
                }
            }
        }
        Ok(())
    }

    /// The cell of an earlier run.
    pub(super) fn find(&self, length: u64, depth: f64) -> Option<&ProbeCell> {
        self.cells
            .iter()
            .find(|cell| cell.length == length && cell.depth == depth)
    }

    /// Appends a cell, and gives it as the file holds it: a report is the same whether its cells were just run or read.
    pub(super) fn add(&mut self, cell: &ProbeCell) -> Result<ProbeCell, Failure> {
        let line = line(cell)?;
        if let Some((path, file)) = &mut self.file {
            file.write_all(line.as_bytes())
                .and_then(|()| file.sync_data())
                .map_err(|error| Failure::cannot_write(&path.display().to_string(), &error))?;
        }
        let cell: ProbeCell = serde_json::from_str(&line)
            .map_err(|error| Failure::error(format!("JSON: {error}")))?;
        self.cells.push(cell.clone());
        Ok(cell)
    }
}

/// Two commands that append to one file would run every cell twice.
fn lock(file: &File, path: &Path) -> Result<(), Failure> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Failure::error(format!(
            "{}: another `snellen probe` is appending to it; wait for it, or name another file and join the two afterwards with --merge",
            path.display()
        ))),
        Err(TryLockError::Error(error)) => {
            Err(Failure::cannot_write(&path.display().to_string(), &error))
        }
    }
}

/// Reads and checks a file of results; an empty one is one that was just made.
fn read(path: &Path, settings: &ProbeSettings) -> Result<Read, Failure> {
    let fail = |what: String| Failure::error(format!("{}: {what}", path.display()));
    let old = checkpoint::files::read_to_string(path)
        .map_err(|error| Failure::cannot_read(path, &error, EXPECTED))?;
    let whole = old.rfind('\n').map_or(0, |end| end + 1);
    // what is dropped must be the beginning of something this verb writes
    if whole < old.len() && !old[whole..].starts_with('{') {
        return Err(fail(
            "is not a file of probe results; name another file".to_owned(),
        ));
    }
    let mut lines = old[..whole].lines().enumerate();
    let header = lines
        .next()
        .map(|(_, text)| header(text, settings).map_err(&fail))
        .transpose()?;
    let mut cells: Vec<ProbeCell> = Vec::new();
    for (index, text) in lines {
        let at = |what: String| fail(format!("line {}: {what}", index + 1));
        let cell: ProbeCell =
            serde_json::from_str(text).map_err(|error| at(format!("expected a cell: {error}")))?;
        cell.check().map_err(at)?;
        if cell.score.samples != settings.samples {
            return Err(at(format!(
                "expected a cell of {} samples, found {}",
                settings.samples, cell.score.samples
            )));
        }
        let same = |other: &&ProbeCell| other.length == cell.length && other.depth == cell.depth;
        match cells.iter().find(same) {
            None => cells.push(cell),
            // two commands of an older version may have appended the same
            Some(other) if *other == cell => {}
            Some(_) => {
                return Err(at(format!(
                    "a second cell of length {} at depth {}, and another result; remove one of them",
                    cell.length, cell.depth
                )));
            }
        }
    }
    Ok(Read {
        header,
        cells,
        whole: whole as u64,
    })
}

/// Reads the first line; the error is without the file.
fn header(text: &str, settings: &ProbeSettings) -> Result<ProbeHeader, String> {
    let header: ProbeHeader = serde_json::from_str(text)
        .map_err(|error| format!("line 1: expected the settings of a probe run: {error}"))?;
    let expected = configuration(&header.settings).map_err(|error| error.message().to_owned())?;
    if header.configuration != expected {
        return Err(format!(
            "line 1: configuration: expected {expected}, the hash of the settings, found {}: the line was changed",
            header.configuration
        ));
    }
    check(&header, settings)?;
    Ok(header)
}

/// The settings that say which cells there are, and nothing about any of them.
const GRID: [&str; 2] = ["lengths", "depths"];

/// Names the first setting that differs.
fn check(header: &ProbeHeader, settings: &ProbeSettings) -> Result<(), String> {
    let value =
        |settings: &ProbeSettings| serde_json::to_value(settings).map_err(|e| e.to_string());
    let (old, new) = (value(&header.settings)?, value(settings)?);
    let fields = old.as_object().into_iter().flatten();
    for (name, old) in fields.filter(|(name, _)| !GRID.contains(&name.as_str())) {
        let new = &new[name];
        if old != new {
            return Err(format!(
                "holds results of other settings: {name} was {old} and is {new}; name another file or repeat the settings"
            ));
        }
    }
    Ok(())
}
