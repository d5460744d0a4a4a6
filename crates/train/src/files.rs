//! Files read and written as `checkpoint` does: devices are refused, nothing is half-written.

use std::io::{self, Write};
use std::path::Path;

pub(crate) use checkpoint::files::{read, read_to_string, sync_folder};

use crate::error::TrainError;

/// [`checkpoint::files::write_whole`]; an error names the file.
pub(crate) fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), TrainError> {
    checkpoint::files::write_whole(path, fill).map_err(|e| TrainError::io(path, &e))
}
