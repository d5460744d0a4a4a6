//! What a run recorded, read from its folder without its data and parameters: for reports.

use std::path::{Path, PathBuf};

use super::metrics::{self, Metric};
use super::plan::RunRecord;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::files;

/// Records of a run, finished or not.
#[derive(Clone, Debug)]
pub struct History {
    /// Folder of the run.
    pub folder: PathBuf,
    /// `record.json`.
    pub record: RunRecord,
    /// `run.toml`.
    pub config: RunConfig,
    /// `metrics.jsonl`, line by line. A last line that was cut short by an interruption is left out.
    pub metrics: Vec<Metric>,
}

impl History {
    /// Whether `path` is the folder of a run or its `metrics.jsonl`.
    #[must_use]
    pub fn is_run(path: &Path) -> bool {
        if path.is_dir() {
            path.join("metrics.jsonl").is_file() || path.join("record.json").is_file()
        } else {
            path.file_name().is_some_and(|name| name == "metrics.jsonl")
        }
    }

    /// Reads `record.json`, `run.toml` and `metrics.jsonl` of the folder `path`, or beside the file `path`.
    ///
    /// # Errors
    /// A file that is missing, damaged or of another run, in one line.
    pub fn read(path: &Path) -> Result<Self, TrainError> {
        let folder = if path.is_dir() {
            path
        } else {
            match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            }
        };
        let file = folder.join("record.json");
        let text = files::read(&file).map_err(|e| TrainError::io(&file, &e))?;
        let record: RunRecord = serde_json::from_slice(&text)
            .map_err(|e| TrainError::file(&file, format!("is damaged ({e})")))?;
        let config = RunConfig::read(&folder.join("run.toml"))?;
        let file = folder.join("metrics.jsonl");
        let metrics = metrics::read_whole_lines(&file)?;
        let last = metrics::check(&file, &metrics, &record)?;
        if record.finished && last < record.steps {
            return Err(metrics::incomplete(&file, last, record.steps));
        }
        Ok(Self {
            folder: folder.to_owned(),
            record,
            config,
            metrics,
        })
    }
}
