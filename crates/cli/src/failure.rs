//! How a run ends.

use checkpoint::{CheckpointError, ErrorKind};

/// Exit codes, the same for every verb and every format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// No finding at or above `--fail-on`.
    Clean,
    /// Findings at or above `--fail-on`.
    Findings,
    /// The job could not be done.
    Error,
    /// Not an ALiBi model.
    NotApplicable,
    /// Stopped by Ctrl-C or a request to end, where it can go on.
    Interrupted,
}

impl Exit {
    /// The number the process ends with.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Findings => 1,
            Self::Error => 2,
            Self::NotApplicable => 3,
            // 128 + SIGINT, as shells say it
            Self::Interrupted => 130,
        }
    }
}

/// Why there is no result, in one line.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    /// The job could not be done. Line breaks and control characters of `message` are made visible: it stays one line.
    pub(crate) fn error(message: impl AsRef<str>) -> Self {
        Self {
            exit: Exit::Error,
            message: report::text::escape(message.as_ref()).into_owned(),
        }
    }

    /// A file that cannot be read: which, why, and what was expected there.
    pub(crate) fn cannot_read(
        path: &std::path::Path,
        error: &std::io::Error,
        expected: &str,
    ) -> Self {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "no such file".to_owned(),
            std::io::ErrorKind::IsADirectory => "is a folder".to_owned(),
            std::io::ErrorKind::InvalidData => "is not UTF-8 text".to_owned(),
            _ => format!("cannot be read: {}", plain(error)),
        };
        Self::error(format!("{}: {why}; {expected}", path.display()))
    }

    /// Something that cannot be written: what, why, and what to do where that is known.
    pub(crate) fn cannot_write(what: &str, error: &std::io::Error) -> Self {
        Self::error(format!("{what}: cannot be written: {}", plain(error)))
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The line.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }
}

/// The system's words without its numbers, and what to do about the common ones.
fn plain(error: &std::io::Error) -> String {
    use std::io::ErrorKind as Kind;
    match error.kind() {
        Kind::StorageFull => {
            "no space is left on the device; free some or choose another place".to_owned()
        }
        Kind::PermissionDenied => "permission denied; choose a place that you may use".to_owned(),
        Kind::ReadOnlyFilesystem => "the file system is read-only; choose another place".to_owned(),
        Kind::NotFound if error.raw_os_error().is_some() => "no such folder".to_owned(),
        Kind::NotADirectory => "a part of the path is a file, not a folder".to_owned(),
        _ => {
            let text = error.to_string();
            let end = text.find(" (os error").unwrap_or(text.len());
            text[..end].to_owned()
        }
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        let exit = match error.kind() {
            ErrorKind::NotAlibi => Exit::NotApplicable,
            _ => Exit::Error,
        };
        Self {
            exit,
            ..Self::error(error.to_string())
        }
    }
}

impl From<train::TrainError> for Failure {
    fn from(error: train::TrainError) -> Self {
        Self::error(error.to_string())
    }
}
