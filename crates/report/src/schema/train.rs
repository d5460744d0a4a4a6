//! `snellen train`: what a run recorded, from its folder.

use super::{Envelope, Outcome};
use serde::{Deserialize, Serialize};

/// A training run, finished or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrainReport {
    /// Common head of every document; `length` is `null`: the stages have their own.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// What was run and how far.
    pub run: TrainRun,
    /// One entry a step.
    pub steps: Vec<TrainStep>,
    /// Losses on held-out text.
    pub held: Vec<TrainHeld>,
    /// Recall by distance; empty without recall tasks.
    pub recall: Vec<TrainRecall>,
    /// Looks at every head; empty where none was taken.
    pub looks: Vec<TrainLook>,
    /// Common tail of every document.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What was run and how far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrainRun {
    /// Hash of configuration and data.
    pub configuration: String,
    /// Hash of the training tokens' file.
    pub train_hash: String,
    /// Hash of the held-out tokens' file.
    pub held_hash: String,
    /// Hash of the tokenizer that made both.
    pub tokenizer_hash: String,
    /// Parameters of the model.
    pub parameters: u64,
    /// Steps of the whole run.
    pub steps: u64,
    /// Steps that were done.
    pub steps_done: u64,
    /// Tokens of the whole run.
    pub tokens: u64,
    /// How the model knows positions: `alibi`, with its remedy if there is one.
    pub position: String,
    /// Stages `LENGTH:STEPS`.
    pub stages: String,
    /// Rule of the attention: `exact`, `zero-beyond:...` or `plan:...`.
    pub attention: String,
    /// Slope of every head, where there are slopes.
    pub slopes: Vec<f64>,
    /// Whether attention stays inside documents.
    pub document_mask: bool,
    /// Best held-out loss; `null` before the first.
    pub best: Option<TrainBest>,
    /// Whether all steps are done.
    pub finished: bool,
    /// Why it stopped, where something was not finite.
    pub stopped: Option<TrainStop>,
}

/// Best loss on held-out text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrainBest {
    /// Step after which it was taken.
    pub step: u64,
    /// Mean loss, nats a token.
    pub nats_per_token: f64,
}

/// Where and why a run stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrainStop {
    /// Step that failed.
    pub step: u64,
    /// What was not finite.
    pub reason: String,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrainStep {
    /// From 1.
    pub step: u64,
    /// Tokens of a sequence.
    pub length: u64,
    /// Tokens trained on up to here.
    pub tokens: u64,
    /// What was minimised: the sum of the mean losses below, nats.
    pub loss: f64,
    /// Mean loss of the text's tokens, nats.
    pub text: f64,
    /// Mean loss of passkey answers, nats; `null` where none was asked for.
    pub passkey: Option<f64>,
    /// Mean loss of pair answers, nats.
    pub pair: Option<f64>,
    /// Mean loss of needle answers, nats; absent where none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needle: Option<f64>,
    /// Learning rate.
    pub learning_rate: f64,
    /// Global norm of the gradient before clipping.
    pub gradient_norm: f64,
}

/// Loss on held-out text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrainHeld {
    /// Step after which it was taken.
    pub step: u64,
    /// Tokens of a sequence.
    pub length: u64,
    /// Tokens predicted.
    pub tokens: u64,
    /// Mean loss, nats a token.
    pub nats_per_token: f64,
}

/// Recall on held-out text at one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrainRecall {
    /// Step after which it was taken.
    pub step: u64,
    /// Tokens of a sequence.
    pub length: u64,
    /// By task and distance.
    pub cells: Vec<TrainRecallCell>,
}

/// Recall at distances `from` to `to`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrainRecallCell {
    /// `passkey`, `pair` or `needle`.
    pub task: String,
    /// Smallest distance, tokens.
    pub from: u64,
    /// Largest distance.
    pub to: u64,
    /// Questions.
    pub questions: u64,
    /// Answered right: the right token is the likeliest of its task's answers.
    pub right: u64,
    /// `right / questions`.
    pub accuracy: Option<f64>,
    /// Lower end of the 95 % Wilson interval of `accuracy`.
    pub accuracy_low: Option<f64>,
    /// Upper end.
    pub accuracy_high: Option<f64>,
    /// Mean loss of the right answer over the whole vocabulary, nats.
    pub nats: f64,
}

/// A look at every head on fixed held-out text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrainLook {
    /// Step after which it was taken.
    pub step: u64,
    /// Tokens of the sequence looked at.
    pub length: u64,
    /// Upper edges of the distance bins of `gradient_share`, tokens, exclusive.
    pub edges: Vec<u64>,
    /// Pairs of all heads.
    pub pairs: u64,
    /// Those whose weight is exactly zero under the run's rule.
    pub blind_pairs: u64,
    /// `blind_pairs / pairs`.
    pub blind_share: Option<f64>,
    /// Heads, layer by layer.
    pub heads: Vec<TrainHead>,
}

/// One head at one look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrainHead {
    /// Layer.
    pub layer: u64,
    /// Head within the layer.
    pub head: u64,
    /// Causal pairs.
    pub pairs: u64,
    /// Pairs whose weight is exactly zero.
    pub blind_pairs: u64,
    /// `blind_pairs / pairs`.
    pub blind_share: Option<f64>,
    /// Distance within which 90 % of the weight lies, tokens.
    pub reach_90: u64,
    /// Mean weight on key 0 over the queries after the first.
    pub key0_mass: f64,
    /// Share of the absolute score gradient in each distance bin.
    pub gradient_share: Vec<f64>,
    /// Sum of the absolute score gradients of blind pairs: exactly 0.
    pub blind_gradient: f64,
}
