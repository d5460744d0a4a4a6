//! Files written whole, with this crate's errors.

use std::io::{self, Write};
use std::path::Path;

pub(crate) use checkpoint::files::sync_folder;

use crate::error::TrainError;

/// [`checkpoint::files::write_whole`]; an error names the file.
pub(crate) fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), TrainError> {
    checkpoint::files::write_whole(path, fill).map_err(|e| TrainError::io(path, &e))
}
