//! Checkpoints of a run: a folder each, complete or absent, with a hash of every file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use checkpoint::safetensors::{StoredAs, TensorData, Tensors, write_safetensors};
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::files;
use crate::optimiser::Moments;
use crate::params::Layout;

/// `state.json` of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Version of this format, 1.
    pub version: u64,
    /// Steps done.
    pub step: u64,
    /// Hash of the configuration that was running.
    pub config_hash: String,
    /// Best held-out loss so far, nats, and its step.
    pub best: Option<(f64, u64)>,
    /// BLAKE3 of each file beside this one.
    pub files: BTreeMap<String, String>,
}

/// Everything a step changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Parameters.
    pub params: Vec<f32>,
    /// Moments of the optimiser.
    pub moments: Moments,
    /// The rest.
    pub state: State,
}

const FILES: [&str; 3] = [
    "model.safetensors",
    "first.safetensors",
    "second.safetensors",
];

/// The tensors of a flat slice.
pub(crate) fn tensors<'a>(layout: &Layout, values: &'a [f32]) -> Vec<TensorData<'a>> {
    layout
        .params
        .iter()
        .map(|param| TensorData {
            name: param.name.clone(),
            shape: param.shape.clone(),
            values: &values[param.range.clone()],
        })
        .collect()
}

/// Name of the checkpoint of a step.
pub fn folder_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// Steps of the checkpoints in `folder`, ascending.
///
/// # Errors
/// A folder that cannot be listed.
pub fn list(folder: &Path) -> Result<Vec<u64>, TrainError> {
    let mut steps = Vec::new();
    let entries = std::fs::read_dir(folder).map_err(|e| TrainError::io(folder, &e))?;
    for entry in entries {
        let entry = entry.map_err(|e| TrainError::io(folder, &e))?;
        let name = entry.file_name();
        let step: Option<u64> = name
            .to_str()
            .and_then(|n| n.strip_prefix("step-")?.parse().ok());
        steps.extend(step);
    }
    steps.sort_unstable();
    Ok(steps)
}

/// Writes the checkpoint of `state.step` into `folder`: aside, synced, renamed. On an error nothing new is left and nothing old is
/// touched.
///
/// # Errors
/// What the system says, with the file.
pub fn save(
    folder: &Path,
    layout: &Layout,
    params: &[f32],
    moments: &Moments,
    mut state: State,
) -> Result<PathBuf, TrainError> {
    let target = folder.join(folder_name(state.step));
    let aside = folder.join(format!(".{}", folder_name(state.step)));
    let _ = std::fs::remove_dir_all(&aside);
    let mut attempt = || -> Result<(), TrainError> {
        std::fs::create_dir(&aside).map_err(|e| TrainError::io(&aside, &e))?;
        let metadata = BTreeMap::from([("snellen_step".to_owned(), state.step.to_string())]);
        for (name, values) in FILES.iter().zip([params, &moments.first, &moments.second]) {
            let path = aside.join(name);
            let hash = write_safetensors(&path, &tensors(layout, values), &metadata, StoredAs::F32)
                .map_err(|e| TrainError::io(&path, &e))?;
            state
                .files
                .insert((*name).to_owned(), hash.to_hex().to_string());
        }
        let text = serde_json::to_vec_pretty(&state)
            .map_err(|e| TrainError::config(format!("state of a checkpoint: {e}")))?;
        files::write_whole(&aside.join("state.json"), |out| out.write_all(&text))?;
        files::sync_folder(&aside);
        // A step is saved again after a fall-back: the damaged folder makes way.
        if target.exists() {
            std::fs::remove_dir_all(&target).map_err(|e| TrainError::io(&target, &e))?;
        }
        std::fs::rename(&aside, &target).map_err(|e| TrainError::io(&target, &e))?;
        files::sync_folder(folder);
        Ok(())
    };
    let result = attempt();
    if result.is_err() {
        let _ = std::fs::remove_dir_all(&aside);
    }
    result.map(|()| target)
}

/// Removes all checkpoints but the newest `keep_last` and the one of `best`.
///
/// # Errors
/// What the system says.
pub fn prune(folder: &Path, keep_last: usize, best: Option<u64>) -> Result<(), TrainError> {
    let steps = list(folder)?;
    let old = steps.len().saturating_sub(keep_last);
    for &step in &steps[..old] {
        if Some(step) != best {
            let path = folder.join(folder_name(step));
            std::fs::remove_dir_all(&path).map_err(|e| TrainError::io(&path, &e))?;
        }
    }
    Ok(())
}

/// Reads one checkpoint, every byte checked against its hash.
///
/// # Errors
/// A file that is missing, cut short or changed; another layout.
pub fn load(folder: &Path, layout: &Layout) -> Result<Snapshot, TrainError> {
    let path = folder.join("state.json");
    let text = files::read(&path).map_err(|e| TrainError::io(&path, &e))?;
    let state: State = serde_json::from_slice(&text)
        .map_err(|e| TrainError::file(&path, format!("is damaged ({e})")))?;
    if state.version != 1 {
        return Err(TrainError::file(
            &path,
            format!("version: expected 1, found {}", state.version),
        ));
    }
    let mut read = FILES.iter().map(|name| {
        let path = folder.join(name);
        let file = open(&path)?;
        // The values are then taken from the same mapped bytes: a file is read once.
        let found = file
            .files()
            .first()
            .map(|f| f.content_hash().to_hex().to_string());
        if state.files.get(*name) != found.as_ref() {
            return Err(TrainError::file(
                &path,
                "its bytes are not those that were written: cut short or changed",
            ));
        }
        values(&path, &file, layout)
    });
    let mut next = || {
        read.next()
            .unwrap_or_else(|| Err(TrainError::config("no more files")))
    };
    let (params, first, second) = (next()?, next()?, next()?);
    Ok(Snapshot {
        params,
        moments: Moments { first, second },
        state,
    })
}

/// The values of a layout's tensors from a safetensors file.
///
/// # Errors
/// A tensor that is missing, of another shape, or not finite is for the caller to judge; the first two are errors.
pub fn read_values(path: &Path, layout: &Layout) -> Result<Vec<f32>, TrainError> {
    values(path, &open(path)?, layout)
}

fn open(path: &Path) -> Result<Tensors, TrainError> {
    Tensors::open_file(path).map_err(|e| TrainError::config(e.to_string()))
}

fn values(path: &Path, file: &Tensors, layout: &Layout) -> Result<Vec<f32>, TrainError> {
    let mut values = Vec::with_capacity(layout.len());
    for param in &layout.params {
        let Some((file, info)) = file.find(&param.name) else {
            return Err(TrainError::file(
                path,
                format!("tensor {:?} is missing", param.name),
            ));
        };
        let shape: Vec<u64> = param.shape.iter().map(|n| *n as u64).collect();
        if info.shape != shape {
            return Err(TrainError::file(
                path,
                format!(
                    "tensor {:?}: expected shape {shape:?}, found {:?}",
                    param.name, info.shape
                ),
            ));
        }
        file.widen(info, 0..param.range.len(), &mut values)
            .map_err(|e| TrainError::config(e.to_string()))?;
    }
    Ok(values)
}

/// The newest checkpoint that is whole, and a line about each newer one that is not. `None` if there are none at all.
///
/// # Errors
/// Checkpoints that are all damaged.
pub fn newest(
    folder: &Path,
    layout: &Layout,
    config_hash: &str,
) -> Result<Option<(Snapshot, Vec<String>)>, TrainError> {
    let steps = list(folder)?;
    let mut warnings = Vec::new();
    for &step in steps.iter().rev() {
        match load(&folder.join(folder_name(step)), layout) {
            Ok(snapshot) if snapshot.state.config_hash != config_hash => {
                return Err(TrainError::file(
                    &folder.join(folder_name(step)),
                    "is of another configuration than run.toml; start a new run in another folder",
                ));
            }
            Ok(snapshot) => return Ok(Some((snapshot, warnings))),
            Err(error) => warnings.push(error.to_string()),
        }
    }
    if steps.is_empty() {
        return Ok(None);
    }
    Err(TrainError::file(
        folder,
        format!(
            "none of the {} checkpoints is whole; the newest: {}. To start over, use another folder",
            steps.len(),
            warnings[0]
        ),
    ))
}
