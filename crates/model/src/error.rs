//! What can go wrong.

use crate::weights::WeightError;

/// A specification that describes no model we can run. One line, naming the field, what was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model specification: {0}")]
pub struct SpecError(pub(crate) String);

/// Why a forward pass stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The specification is inconsistent.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A weight is missing, unreadable, of the wrong shape or not finite.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// The device is not there.
    #[error("{0}")]
    Device(String),
    /// The caller's tokens, mask, cache or row range do not fit.
    #[error("{0}")]
    Input(String),
}
