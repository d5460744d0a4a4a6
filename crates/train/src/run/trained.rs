//! A run's parameters without its data: for exports and evaluation.

use std::path::Path;

use super::checkpoint;
use super::plan::RunRecord;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::files;
use crate::network::Network;

/// A network with values.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The network.
    pub network: Network,
    /// Its parameters.
    pub params: Vec<f32>,
    /// Steps that made them.
    pub step: u64,
    /// What is known of the run.
    pub record: RunRecord,
    /// The run's configuration.
    pub config: RunConfig,
}

impl Trained {
    /// Opens the checkpoint of `step`, or the newest whole one, of the run in `folder`. A run without checkpoints is opened at its
    /// last step, from `model.safetensors` or `final/model.safetensors`.
    ///
    /// # Errors
    /// A folder without a run, no checkpoint, a damaged one.
    pub fn open(folder: &Path, step: Option<u64>) -> Result<Self, TrainError> {
        let (config, record, network) = description(folder)?;
        let checkpoints = folder.join("checkpoints");
        // A run that is kept with its model alone, or a finished one whose checkpoints are gone.
        let kept = [
            folder.join("model.safetensors"),
            folder.join("final/model.safetensors"),
        ]
        .into_iter()
        .find(|file| file.exists());
        let (params, step) = match step {
            Some(step) => {
                let path = checkpoints.join(checkpoint::folder_name(step));
                (checkpoint::load(&path, &network.layout)?.params, step)
            }
            None if !checkpoints.exists()
                && let Some(kept) = kept =>
            {
                (
                    checkpoint::read_values(&kept, &network.layout)?,
                    record.steps,
                )
            }
            None => {
                let found = checkpoint::newest(&checkpoints, &network.layout, &record.config_hash)?;
                let Some((snapshot, _)) = found else {
                    return Err(TrainError::file(folder, "has no checkpoint yet"));
                };
                (snapshot.params, snapshot.state.step)
            }
        };
        Ok(Self {
            network,
            params,
            step,
            record,
            config,
        })
    }

    /// Opens the model in `final/` of the finished run in `folder`; its checkpoints are not needed.
    ///
    /// # Errors
    /// A folder without a run, a run that is not finished, a damaged file.
    pub fn open_final(folder: &Path) -> Result<Self, TrainError> {
        let (config, record, network) = description(folder)?;
        if !record.finished {
            return Err(TrainError::file(
                folder,
                "the run in it is not finished; go on with `snellen train --resume`",
            ));
        }
        let path = folder.join("final").join("model.safetensors");
        let params = checkpoint::read_values(&path, &network.layout)?;
        Ok(Self {
            network,
            params,
            step: record.steps,
            record,
            config,
        })
    }
}

/// What a run's folder says of it.
fn description(folder: &Path) -> Result<(RunConfig, RunRecord, Network), TrainError> {
    let file = folder.join("run.toml");
    if !file.exists() {
        return Err(TrainError::file(
            folder,
            "holds no run (run.toml is missing); give the folder that `snellen train --to` wrote",
        ));
    }
    let config = RunConfig::read(&file)?;
    let path = folder.join("record.json");
    let text = files::read(&path).map_err(|e| TrainError::io(&path, &e))?;
    let record: RunRecord = serde_json::from_slice(&text)
        .map_err(|e| TrainError::file(&path, format!("is damaged ({e})")))?;
    let shape = config.shape(record.vocab as usize)?;
    let position = config.position.resolve(shape.heads, shape.context)?;
    let network = Network::new(shape, position, config.rule()?);
    Ok((config, record, network))
}
