//! Files written aside, synced and renamed: complete or absent; and files read whole, devices refused.

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

/// The bytes of a file. Pipes are read to their end; a device, which may have none, is refused.
///
/// # Errors
/// What the system says, and [`io::ErrorKind::InvalidInput`] for a device.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    refuse_device(path)?;
    std::fs::read(path)
}

/// [`read`] as text in UTF-8, without its byte order mark.
///
/// # Errors
/// As [`read`], and [`io::ErrorKind::InvalidData`] for other bytes.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    refuse_device(path)?;
    let mut text = std::fs::read_to_string(path)?;
    if text.starts_with(MARK_CHAR) {
        text.remove(0);
    }
    Ok(text)
}

/// The byte order mark, by which some editors say at the start of a file that it is UTF-8. It is no part of the text.
pub const MARK: &[u8] = "\u{feff}".as_bytes();
const MARK_CHAR: char = '\u{feff}';

/// The bytes behind the byte order mark, or all where there is none.
#[must_use]
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(MARK).unwrap_or(bytes)
}

/// Whether bytes begin with the byte order mark of UTF-16, in which some systems' shells write text.
#[must_use]
pub fn is_utf_16(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff")
}

#[cfg(unix)]
pub(crate) fn refuse_device(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a device, not a file",
        ));
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_device(_path: &Path) -> io::Result<()> {
    Ok(())
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
    #[cfg(unix)]
    fn a_device_is_not_read() {
        for device in ["/dev/zero", "/dev/full", "/dev/null"] {
            let error = read(Path::new(device)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{device}");
            assert!(read_to_string(Path::new(device)).is_err());
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "\u{feff}a\u{feff}").unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "a\u{feff}");
        assert_eq!(without_mark(&read(&path).unwrap()), "a\u{feff}".as_bytes());
        assert_eq!(without_mark(b"\xef\xbba"), b"\xef\xbba");
        assert!(is_utf_16(b"\xff\xfea\0") && !is_utf_16(MARK));
    }

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
