//! Files written aside, synced and renamed: complete or absent.

use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes `path` through `fill`. On any error nothing is left behind and an earlier file stays as it was.
///
/// # Errors
/// What the system says, and what `fill` returns.
pub fn write_whole<T>(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let aside = tempfile::Builder::new()
        .prefix(".snellen-")
        .tempfile_in(folder)?;
    let mut out = BufWriter::with_capacity(1 << 20, aside.as_file());
    let value = fill(&mut out)?;
    out.flush()?;
    drop(out);
    permit_reading(aside.as_file())?;
    aside.as_file().sync_all()?;
    aside.persist(path).map_err(|e| e.error)?;
    sync_folder(folder);
    Ok(value)
}

/// Makes a rename inside `folder` durable; where folders cannot be opened there is nothing to sync.
pub fn sync_folder(folder: &Path) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write_whole(&path, |out| out.write_all(b"old")).unwrap();
        let failed = write_whole(&path, |out| {
            out.write_all(b"half of the new")?;
            Err::<(), _>(io::Error::other("no more"))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
