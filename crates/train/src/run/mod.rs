//! A training run as a folder: begun, continued exactly, finished.
//!
//! | in the folder | |
//! |---|---|
//! | `run.toml` | the configuration, with absolute paths to the token files |
//! | `record.json` | versions, hashes, sizes; the last evaluation when finished |
//! | `tokenizer.json` | a copy, where the configuration names one |
//! | `metrics.jsonl` | one JSON object a line, only what does not depend on the machine |
//! | `timing.jsonl` | tokens per second, beside it |
//! | `checkpoints/step-*/` | parameters, moments, state |
//! | `final/` | the trained model: `model.safetensors` and `model.toml`, which other verbs open |
//! | `lock` | held while a process works here |

mod calibrate;
pub mod checkpoint;
mod evaluate;
mod evaluation;
mod history;
pub mod metrics;
mod plan;
mod step;
pub mod tensorboard;
mod trained;
mod trainer;
mod watch;

pub use calibrate::StageCost;
pub use evaluate::RecallCell;
pub use evaluation::{Evaluation, HeadMargin, HeldLoss, RecallScore};
pub use history::History;
pub use plan::{Estimate, RunPlan, RunRecord};
pub use trained::Trained;
pub use trainer::{Ending, Observer, Trainer};
pub use watch::HeadWatch;
