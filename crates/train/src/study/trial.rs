//! One variant with one seed.

use serde::{Deserialize, Serialize};

use super::evaluate::EvaluateConfig;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::run::{Estimate, RunPlan};

/// A trial before it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Name of it and of its folder: `VARIANT-sSEED`.
    pub name: String,
    /// Its variant.
    pub variant: String,
    /// The run, with the trial's seed.
    pub run: RunConfig,
    /// What is measured of it, every list filled in.
    pub evaluate: EvaluateConfig,
}

impl Trial {
    /// Hash of what is measured.
    pub fn evaluation_hash(&self) -> String {
        self.evaluate.identity()
    }
}

/// A trial whose configuration and data fit together.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedTrial {
    /// The trial.
    pub trial: Trial,
    /// Hash of the run: configuration, seed, data.
    pub run_hash: String,
    /// What the run takes.
    pub estimate: Estimate,
}

/// Reads the data of every variant once and checks it with all of its trials. `look` is handed each variant's plan.
///
/// # Errors
/// The first thing that cannot be, with its variant and key.
pub fn check(
    trials: &[Trial],
    mut look: impl FnMut(&Trial, &RunPlan),
) -> Result<Vec<CheckedTrial>, TrainError> {
    let mut checked: Vec<Option<CheckedTrial>> = vec![None; trials.len()];
    for at in 0..trials.len() {
        if checked[at].is_some() {
            continue;
        }
        let trial = &trials[at];
        let named = |e: TrainError| TrainError::config(format!("variant {:?}: {e}", trial.variant));
        // One variant's data is in memory at a time.
        let plan = RunPlan::new(trial.run.clone()).map_err(named)?;
        trial
            .evaluate
            .validate(&trial.run, plan.held_tokens(), plan.recall_length_min())
            .map_err(named)?;
        look(trial, &plan);
        for (trial, to) in trials.iter().zip(&mut checked) {
            if trial.variant == trials[at].variant {
                *to = Some(CheckedTrial {
                    trial: trial.clone(),
                    run_hash: plan.hash_with_seed(trial.run.seed),
                    estimate: plan.estimate(),
                });
            }
        }
    }
    Ok(checked.into_iter().flatten().collect())
}
