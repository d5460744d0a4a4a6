//! Files written aside, synced and renamed: complete or absent.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::error::TrainError;

/// Writes `path` through `fill`. On any error nothing is left behind and an earlier file stays as it was.
pub(crate) fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), TrainError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let attempt = || -> io::Result<()> {
        let aside = tempfile::Builder::new()
            .prefix(".snellen-")
            .tempfile_in(folder)?;
        let mut out = BufWriter::with_capacity(1 << 20, aside.as_file());
        fill(&mut out)?;
        out.flush()?;
        drop(out);
        permit_reading(aside.as_file())?;
        aside.as_file().sync_all()?;
        aside.persist(path).map_err(|e| e.error)?;
        sync_folder(folder);
        Ok(())
    };
    attempt().map_err(|e| TrainError::io(path, &e))
}

/// Makes a rename inside `folder` durable, where folders can be opened.
pub(crate) fn sync_folder(folder: &Path) {
    if let Ok(folder) = std::fs::File::open(folder) {
        let _ = folder.sync_all();
    }
}

/// Temporary files are private; results are ordinary files.
#[cfg(unix)]
fn permit_reading(file: &std::fs::File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn permit_reading(_file: &std::fs::File) -> io::Result<()> {
    Ok(())
}
