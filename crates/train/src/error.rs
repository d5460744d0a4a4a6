//! Why a run cannot go on, in one line for the user.

use std::path::Path;

/// One line: file or key, what was expected, what was found, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TrainError(String);

impl TrainError {
    /// A setting that cannot be.
    pub fn config(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// Something wrong with a file.
    pub fn file(path: &Path, what: impl std::fmt::Display) -> Self {
        Self(format!("{}: {what}", path.display()))
    }

    /// A system error, in words that say what to do where that is known.
    pub fn io(path: &Path, error: &std::io::Error) -> Self {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => "does not exist".to_owned(),
            std::io::ErrorKind::PermissionDenied => "may not be read or written".to_owned(),
            std::io::ErrorKind::StorageFull => {
                "the disk is full; free some space and resume".to_owned()
            }
            std::io::ErrorKind::IsADirectory => "is a folder; a file is expected".to_owned(),
            std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => {
                "is a file or lies below one; a folder is expected".to_owned()
            }
            std::io::ErrorKind::InvalidData => "is not text in UTF-8".to_owned(),
            _ => error.to_string(),
        };
        Self(format!("{}: {hint}", path.display()))
    }
}
