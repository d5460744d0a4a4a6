//! Decoder models as data, and their forward pass.
//!
//! A [`ModelSpec`] says what a model computes, a [`WeightSource`] hands out its weights, [`Model`] runs it: embedding,
//! blocks, norm, head, on the `burn` tensor library, with the attention done by the `kernels` crate through a burn backend
//! extension. Memory is linear in the length: attention never builds a score matrix, the MLP and the logits go through in
//! row chunks, and weights are read one layer at a time unless the caller asks to keep them.
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::print_stderr,
        reason = "a failed unwrap is a failed test; figures are the point of some"
    )
)]

// The unit tests share inputs with the integration tests, which name the crate.
#[cfg(test)]
extern crate self as snellen_model;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
#[cfg(test)]
#[path = "../tests/op/mod.rs"]
mod op;

mod attention;
mod bias;
mod cache;
mod device;
mod error;
mod flex;
mod forward;
mod generate;
mod head;
mod layer;
mod math;
mod memory;
mod observer;
mod ops;
mod plain;
mod spec;
mod store;
mod validate;
mod weights;

pub use attention::{AttentionBias, AttentionCall, attention, kerple_log_bias};
pub use bias::LoweredBias;
pub use cache::KvCache;
pub use device::DeviceKind;
pub use error::{ModelError, SpecError};
pub use forward::{ForwardOptions, Hidden, Model};
pub use generate::Tokens;
pub use head::{Loss, TokenScore};
pub use memory::{MemoryEstimate, MemoryRequest, memory_estimate};
pub use observer::LayerObserver;
pub use spec::{
    Activation, AlibiSpec, Arrangement, AttentionSpec, BlockSpec, EmbeddingSpec, HeadSpec, MlpSpec,
    ModelSpec, NormKind, NormSpec, OutputSpec, QkNormExtent, QkNormSpec, ResidualFrom,
};
pub use weights::{LayerRole, Weight, WeightError, WeightRole, WeightSource, all_finite};
