//! `metrics.jsonl`: one JSON object a line, with a field `kind`.
//!
//! Only what seed, data and configuration decide is in it, so that two runs can be compared byte by byte.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::evaluate::RecallCell;
use super::plan::RunRecord;
use super::watch::HeadWatch;
use crate::error::TrainError;
use crate::files;

/// Version of the schema, in the first line of the file.
pub const SCHEMA_VERSION: u64 = 1;

/// A line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Metric {
    /// First line.
    Begin {
        /// [`SCHEMA_VERSION`].
        schema_version: u64,
        /// Number of parameters.
        parameters: u64,
        /// Steps of the whole run.
        steps: u64,
    },
    /// A step of training.
    Step {
        /// From 1.
        step: u64,
        /// Tokens of a sequence.
        length: u64,
        /// Tokens trained on up to here.
        tokens: u64,
        /// What was minimised: the sum of the mean losses below, nats.
        loss: f64,
        /// Mean loss of the text's tokens.
        text: f64,
        /// Mean loss of passkey answers.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        passkey: Option<f64>,
        /// Mean loss of pair answers.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pair: Option<f64>,
        /// Mean loss of needle answers.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        needle: Option<f64>,
        /// Learning rate.
        lr: f64,
        /// Global norm of the gradient before clipping.
        gradient_norm: f64,
    },
    /// Loss on held-out text.
    Eval {
        /// Step after which it was taken.
        step: u64,
        /// Tokens of a sequence.
        length: u64,
        /// Tokens predicted.
        tokens: u64,
        /// Mean loss, nats per token.
        loss: f64,
    },
    /// Recall on held-out text, by distance.
    Recall {
        /// Step after which it was taken.
        step: u64,
        /// Tokens of a sequence.
        length: u64,
        /// Cells.
        cells: Vec<RecallCell>,
    },
    /// A look at every head.
    Heads {
        /// Step after which it was taken.
        step: u64,
        /// Tokens of the sequence looked at.
        length: u64,
        /// Upper edges of the distance bins, tokens, exclusive.
        edges: Vec<u64>,
        /// Heads, layer by layer.
        heads: Vec<HeadWatch>,
    },
    /// The run stopped because something was not finite.
    Stopped {
        /// Step that failed.
        step: u64,
        /// What was not finite.
        reason: String,
    },
}

impl Metric {
    /// Step of the line; 0 for the first.
    pub fn step(&self) -> u64 {
        match self {
            Metric::Begin { .. } => 0,
            Metric::Step { step, .. }
            | Metric::Eval { step, .. }
            | Metric::Recall { step, .. }
            | Metric::Heads { step, .. }
            | Metric::Stopped { step, .. } => *step,
        }
    }
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    file: std::fs::File,
}

impl Writer {
    /// Opens `path` for appending, after dropping every line beyond `step` and a last line that was cut short.
    pub(crate) fn open(path: &Path, step: u64) -> Result<Self, TrainError> {
        if path.exists() {
            let text = files::read_to_string(path).map_err(|e| TrainError::io(path, &e))?;
            let mut kept = String::new();
            for line in text.lines() {
                match serde_json::from_str::<serde_json::Value>(line) {
                    Ok(value)
                        if value["step"].as_u64().unwrap_or(0) <= step
                            && value["kind"] != "stopped" =>
                    {
                        kept.push_str(line);
                        kept.push('\n');
                    }
                    _ => {}
                }
            }
            if kept != text {
                files::write_whole(path, |out| out.write_all(kept.as_bytes()))?;
            }
        }
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|e| TrainError::io(path, &e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Waits until all lines are on disk: a checkpoint must not outlive the lines of its steps.
    pub(crate) fn sync(&self) -> Result<(), TrainError> {
        let synced = self.file.sync_data();
        synced.map_err(|e| TrainError::io(&self.path, &e))
    }

    /// Appends a line.
    pub(crate) fn line(&mut self, value: &impl Serialize) -> Result<(), TrainError> {
        let mut text = serde_json::to_string(value).map_err(|e| TrainError::file(&self.path, e))?;
        text.push('\n');
        self.file
            .write_all(text.as_bytes())
            .map_err(|e| TrainError::io(&self.path, &e))
    }
}

/// All lines of a metrics file.
///
/// # Errors
/// A file that cannot be read, a line that is not of this schema.
pub fn read(path: &Path) -> Result<Vec<Metric>, TrainError> {
    let text = files::read_to_string(path).map_err(|e| TrainError::io(path, &e))?;
    lines(path, &text)
}

/// The lines of a metrics file that end in a line break: the last one may have been cut short.
///
/// # Errors
/// As [`read`].
pub(super) fn read_whole_lines(path: &Path) -> Result<Vec<Metric>, TrainError> {
    let text = files::read_to_string(path).map_err(|e| TrainError::io(path, &e))?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    lines(path, &text[..whole])
}

/// Checks that the lines are those of the run of `record`, and that no step is missing between; the last step.
///
/// # Errors
/// Lines of another run or schema, or a step that does not follow the one before.
pub(super) fn check(
    path: &Path,
    metrics: &[Metric],
    record: &RunRecord,
) -> Result<u64, TrainError> {
    let fail = |what: String| Err(TrainError::file(path, what));
    match metrics.first() {
        Some(Metric::Begin { schema_version, .. }) if *schema_version != SCHEMA_VERSION => {
            return fail(format!(
                "line 1: expected schema_version {SCHEMA_VERSION}, found {schema_version}"
            ));
        }
        Some(Metric::Begin {
            parameters, steps, ..
        }) if (*parameters, *steps) != (record.parameters, record.steps) => {
            return fail(format!(
                "is of another run than record.json: {parameters} parameters and {steps} steps, expected {} and {}",
                record.parameters, record.steps
            ));
        }
        Some(Metric::Begin { .. }) => {}
        _ => {
            return fail(
                "line 1: expected the line of kind \"begin\" that every run writes first"
                    .to_owned(),
            );
        }
    }
    let mut last = 0;
    for metric in metrics {
        if let Metric::Step { step, .. } = metric {
            if *step != last + 1 {
                return fail(format!(
                    "expected step {} after step {last}, found step {step}: lines were removed or added",
                    last + 1
                ));
            }
            last = *step;
        }
    }
    Ok(last)
}

/// Of a file that ends before a step that the run has done.
pub(super) fn incomplete(path: &Path, last: u64, done: u64) -> TrainError {
    TrainError::file(
        path,
        format!(
            "ends after step {last}, expected {done} steps: lines were removed; put them back, or begin a new run"
        ),
    )
}

fn lines(path: &Path, text: &str) -> Result<Vec<Metric>, TrainError> {
    text.lines()
        .enumerate()
        .map(|(i, line)| {
            serde_json::from_str(line)
                .map_err(|e| TrainError::file(path, format!("line {}: {e}", i + 1)))
        })
        .collect()
}
