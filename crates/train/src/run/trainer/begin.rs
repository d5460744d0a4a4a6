//! A run begins in a folder, or goes on in it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Observer, Trainer};
use crate::error::TrainError;
use crate::files;
use crate::optimiser::Moments;
use crate::run::checkpoint;
use crate::run::metrics::{self, Metric, SCHEMA_VERSION, Writer};
use crate::run::plan::{RunPlan, RunRecord};

/// Whether nothing is in `folder` but what a run leaves that was interrupted before it had begun.
fn is_fresh(folder: &Path) -> Result<bool, TrainError> {
    const OWN: [&str; 5] = [
        "checkpoints",
        "lock",
        "metrics.jsonl",
        "record.json",
        "tokenizer.json",
    ];
    if !folder.exists() {
        return Ok(true);
    }
    let fail = |e: std::io::Error| TrainError::io(folder, &e);
    for entry in fs::read_dir(folder).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let name = name.to_string_lossy();
        if !OWN.contains(&name.as_ref()) && !name.starts_with(".snellen-") {
            return Ok(false);
        }
    }
    let checkpoints = folder.join("checkpoints");
    Ok(!checkpoints.exists() || checkpoint::list(&checkpoints)?.is_empty())
}

/// The tokenizer's name in a run folder.
const TOKENIZER: &str = "tokenizer.json";

/// The bytes of a tokenizer file, which must be the one that made the token files.
fn tokenizer(path: &Path, hash: &str) -> Result<Vec<u8>, TrainError> {
    let bytes = files::read(path).map_err(|e| TrainError::io(path, &e))?;
    if blake3::hash(&bytes).to_hex().as_str() != hash {
        return Err(TrainError::file(
            path,
            "is not the tokenizer that made the token files (its hash differs)",
        ));
    }
    Ok(bytes)
}

fn lock(folder: &Path) -> Result<fs::File, TrainError> {
    let path = folder.join("lock");
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|e| TrainError::io(&path, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            Err(TrainError::file(folder, "another process is training here"))
        }
        Err(fs::TryLockError::Error(e)) => Err(TrainError::io(&path, &e)),
    }
}

impl Trainer {
    /// Begins a run in `folder`, which must be empty or absent.
    ///
    /// # Errors
    /// A folder that is in use, another tokenizer than that of the token files, what the system says.
    pub fn begin(mut plan: RunPlan, folder: &Path) -> Result<Self, TrainError> {
        if !is_fresh(folder)? {
            return Err(TrainError::file(
                folder,
                "is not empty; resume the run in it, or choose another folder",
            ));
        }
        // Before anything is written: a run that is refused leaves no folder behind.
        let tokenizer = match &plan.config.data.tokenizer {
            Some(path) => Some(tokenizer(path, &plan.record.tokenizer_hash)?),
            None => None,
        };
        let checkpoints = folder.join("checkpoints");
        fs::create_dir_all(&checkpoints).map_err(|e| TrainError::io(&checkpoints, &e))?;
        let lock = lock(folder)?;
        let config = &mut plan.config;
        for path in [&mut config.data.train, &mut config.data.held] {
            *path = std::path::absolute(&*path).map_err(|e| TrainError::io(path, &e))?;
        }
        if let Some(bytes) = tokenizer {
            files::write_whole(&folder.join(TOKENIZER), |out| out.write_all(&bytes))?;
            config.data.tokenizer = Some(PathBuf::from(TOKENIZER));
        }
        let params = plan.network.layout.initial(
            &plan.network.shape,
            &plan.network.position,
            config.model.init.unwrap_or_default(),
            config.seed,
        );
        let moments = Moments::new(params.len());
        let begun = folder.join("metrics.jsonl");
        if begun.exists() {
            fs::remove_file(&begun).map_err(|e| TrainError::io(&begun, &e))?;
        }
        let mut metrics = Writer::open(&begun, 0)?;
        metrics.line(&Metric::Begin {
            schema_version: SCHEMA_VERSION,
            parameters: plan.record.parameters,
            steps: plan.record.steps,
        })?;
        let text = config.canonical();
        let trainer = Self::assemble(folder, plan, params, moments, lock);
        trainer.write_record()?;
        // Last: a folder with run.toml is a whole run.
        files::write_whole(&folder.join("run.toml"), |out| {
            out.write_all(text.as_bytes())
        })?;
        Ok(trainer)
    }

    /// Continues the run in `folder`, whose plan is [`RunPlan::of_folder`], from its newest whole checkpoint. Says through `observer` what it
    /// found.
    ///
    /// # Errors
    /// Data or configuration that changed, checkpoints that are all damaged.
    pub fn resume(
        plan: RunPlan,
        folder: &Path,
        observer: &mut dyn Observer,
    ) -> Result<Self, TrainError> {
        let config = &plan.config;
        let lock = lock(folder)?;
        let path = folder.join("record.json");
        let text = files::read(&path).map_err(|e| TrainError::io(&path, &e))?;
        let record: RunRecord = serde_json::from_slice(&text)
            .map_err(|e| TrainError::file(&path, format!("is damaged ({e})")))?;
        if record.config_hash != plan.record.config_hash {
            let what = if record.train_hash != plan.record.train_hash {
                format!(
                    "{} is not the file the run began with",
                    config.data.train.display()
                )
            } else if record.held_hash != plan.record.held_hash {
                format!(
                    "{} is not the file the run began with",
                    config.data.held.display()
                )
            } else {
                "run.toml was changed since the run began".to_owned()
            };
            return Err(TrainError::file(folder, format!("{what}; begin a new run")));
        }
        if config.data.tokenizer.is_some() {
            tokenizer(&folder.join(TOKENIZER), &record.tokenizer_hash)?;
        }
        let checkpoints = folder.join("checkpoints");
        let found = checkpoint::newest(&checkpoints, &plan.network.layout, &record.config_hash)?;
        let lines = folder.join("metrics.jsonl");
        let last = metrics::check(&lines, &metrics::read_whole_lines(&lines)?, &record)?;
        let trainer = match found {
            Some((snapshot, warnings)) => {
                let step = snapshot.state.step;
                if last < step {
                    return Err(metrics::incomplete(&lines, last, step));
                }
                for warning in &warnings {
                    observer.note(&format!("warning: {warning}; falling back to step {step}"));
                }
                observer.note(&format!("resuming after step {step}"));
                let best = snapshot.state.best;
                let (params, moments) = (snapshot.params, snapshot.moments);
                let mut trainer = Self::assemble(folder, plan, params, moments, lock);
                trainer.step = step;
                trainer.best = best;
                trainer.saved = Some(step);
                trainer
            }
            None => {
                observer.note("no checkpoint was written yet; starting again at step 0");
                let params = plan.network.layout.initial(
                    &plan.network.shape,
                    &plan.network.position,
                    config.model.init.unwrap_or_default(),
                    config.seed,
                );
                let moments = Moments::new(params.len());
                Self::assemble(folder, plan, params, moments, lock)
            }
        };
        Ok(trainer)
    }

    fn assemble(
        folder: &Path,
        plan: RunPlan,
        params: Vec<f32>,
        moments: Moments,
        lock: fs::File,
    ) -> Self {
        Self {
            folder: folder.to_owned(),
            config: plan.config,
            network: plan.network,
            total: plan.record.steps,
            stages: plan.stages,
            train: plan.train,
            held: plan.held,
            task: plan.task,
            record: plan.record,
            params,
            moments,
            step: 0,
            best: None,
            saved: None,
            _lock: lock,
        }
    }
}
