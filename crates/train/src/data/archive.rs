//! The files of a tar archive, one after another as they stand in it. Nothing is written to disk, so names are only names.

use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::AtomicU64;

use super::corpus::{Form, Packing, kind};
use super::unpack::{Place, open, unpack};
use crate::error::TrainError;

/// Notes whether its reader came to its end.
struct Ending<R> {
    inner: R,
    ended: bool,
}

impl<R: Read> Read for Ending<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.ended |= n == 0 && !buffer.is_empty();
        Ok(n)
    }
}

/// Counts what it gives.
struct Given<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Given<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.bytes += n as u64;
        Ok(n)
    }
}

/// Who is handed the entries: where, what it is, the packing to blame for a read that fails, the unpacked bytes.
pub(crate) type Each<'e> =
    dyn FnMut(Place<'_>, Form, Packing, &mut dyn Read) -> Result<(), TrainError> + 'e;

/// Hands every text of the archive to `each`; returns the number of entries that are none (folders are not counted).
///
/// # Errors
/// An archive that is cut short or damaged, its end marks included; what `each` says.
pub(crate) fn entries(
    path: &Path,
    packing: Packing,
    read: &AtomicU64,
    each: &mut Each<'_>,
) -> Result<u64, TrainError> {
    let whole = Place {
        file: path,
        entry: None,
    };
    let mut archive = tar::Archive::new(Ending {
        inner: open(path, packing, read)?,
        ended: false,
    });
    let mut skipped = 0;
    let list = archive.entries().map_err(|e| broken(whole, packing, &e))?;
    for entry in list {
        let entry = entry.map_err(|e| broken(whole, packing, &e))?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let header = entry.header().entry_type();
        if header.is_dir() || header.is_pax_global_extensions() {
            continue;
        }
        let base = name.rsplit('/').next().unwrap_or_default();
        let text = kind(base).filter(|(form, _)| matches!(form, Form::Text | Form::Jsonl));
        let Some((form, inner)) = text.filter(|_| header.is_file()) else {
            skipped += 1;
            continue;
        };
        let place = Place {
            file: path,
            entry: Some(&name),
        };
        let size = entry.size();
        let mut given = Given {
            inner: entry,
            bytes: 0,
        };
        // A cut inside an entry gives a short text without an error, or one that the text's reader takes for its own.
        let blamed = if inner == Packing::Plain {
            packing
        } else {
            inner
        };
        let result = unpack(&mut given, inner)
            .map_err(|e| place.unreadable(blamed, &e))
            .and_then(|mut text| each(place, form, blamed, &mut text));
        let rest = io::copy(&mut given, &mut io::sink());
        if rest.is_ok() && given.bytes != size {
            return Err(place.error(format!(
                "is cut short: expected {size} bytes, found {}; get the archive again",
                given.bytes
            )));
        }
        result?;
        rest.map_err(|e| broken(place, packing, &e))?;
    }
    check_end(whole, packing, archive.into_inner())?;
    Ok(skipped)
}

/// An archive ends with blocks of zeros. Without them it was cut between two entries; what stands behind them would never be seen.
fn check_end(
    place: Place<'_>,
    packing: Packing,
    mut rest: Ending<impl Read>,
) -> Result<(), TrainError> {
    if rest.ended {
        return Err(place.error("is cut short: the archive has no end mark; get the archive again"));
    }
    let mut buffer = [0u8; 1 << 13];
    loop {
        let n = rest
            .read(&mut buffer)
            .map_err(|e| broken(place, packing, &e))?;
        if n == 0 {
            return Ok(());
        }
        if buffer[..n].iter().any(|byte| *byte != 0) {
            return Err(place.error(
                "holds more behind the archive's end mark: archives that were joined are not read; give them one by one",
            ));
        }
    }
}

/// An error of the archive's own structure, or of the packing below it.
fn broken(place: Place<'_>, packing: Packing, error: &io::Error) -> TrainError {
    if error.raw_os_error().is_some() || error.kind() == io::ErrorKind::UnexpectedEof {
        return place.unreadable(packing, error);
    }
    place.error(format!("is not a whole tar archive: {error}"))
}
