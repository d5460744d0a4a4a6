//! The file that `--results` appends to: a line for the settings, then a line a cell, so that an interrupted run continues.

use crate::failure::Failure;
use report::schema::{ProbeCell, ProbeHeader, ProbeSettings, SCHEMA_VERSION};
use serde::Serialize;
use std::fs::{File, OpenOptions};
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

impl Results {
    /// Opens the file, or makes it; without a path the cells are only kept.
    ///
    /// A last line without its line break was cut by an interruption and is dropped. A file of other settings is refused.
    pub(super) fn open(path: Option<&Path>, settings: &ProbeSettings) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self {
                cells: Vec::new(),
                file: None,
            });
        };
        let fail = |what: String| Failure::error(format!("{}: {what}", path.display()));
        let io = |error: std::io::Error| Failure::cannot_write(&path.display().to_string(), &error);
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            && !folder.is_dir()
        {
            return Err(fail(format!(
                "the folder {} does not exist; --results expects a file of an earlier run, or none, in a folder that is there",
                folder.display()
            )));
        }
        let old = match checkpoint::files::read_to_string(path) {
            Ok(old) => old,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(Failure::cannot_read(
                    path,
                    &error,
                    "--results expects a file of an earlier run, or none",
                ));
            }
        };
        let whole = old.rfind('\n').map_or(0, |end| end + 1);
        // what is dropped must be the beginning of something this verb writes
        if whole < old.len() && !old[whole..].starts_with('{') {
            return Err(fail(
                "is not a file of probe results; name another file".to_owned(),
            ));
        }
        let mut lines = old[..whole].lines().enumerate();
        let header = lines.next();
        if let Some((_, header)) = header {
            let header: ProbeHeader = serde_json::from_str(header).map_err(|error| {
                fail(format!(
                    "line 1: expected the settings of a probe run: {error}"
                ))
            })?;
            check(&header, settings).map_err(&fail)?;
        }
        let mut cells = Vec::new();
        for (index, text) in lines {
            let cell: ProbeCell = serde_json::from_str(text)
                .map_err(|error| fail(format!("line {}: expected a cell: {error}", index + 1)))?;
            cells.push(cell);
        }
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(io)?;
        if whole < old.len() {
            file.set_len(whole as u64).map_err(io)?;
        }
        if header.is_none() {
            let header = ProbeHeader {
                schema_version: SCHEMA_VERSION,
                configuration: configuration(settings)?,
                settings: settings.clone(),
            };
            file.write_all(line(&header)?.as_bytes()).map_err(io)?;
        }
        Ok(Self {
            cells,
            file: Some((path.to_owned(), file)),
        })
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
        serde_json::from_str(&line).map_err(|error| Failure::error(format!("JSON: {error}")))
    }
}

/// Names the first setting that differs.
fn check(header: &ProbeHeader, settings: &ProbeSettings) -> Result<(), String> {
    let value =
        |settings: &ProbeSettings| serde_json::to_value(settings).map_err(|e| e.to_string());
    let (old, new) = (value(&header.settings)?, value(settings)?);
    let fields = old.as_object().into_iter().flatten();
    for (name, old) in fields {
        let new = &new[name];
        if old != new {
            return Err(format!(
                "holds results of other settings: {name} was {old} and is {new}; name another file or repeat the settings"
            ));
        }
    }
    Ok(())
}
