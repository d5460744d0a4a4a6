//! Bytes of a corpus as they are unpacked: counted while read, and an end that is not the stream's own end is an error.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::corpus::Packing;
use crate::error::TrainError;

/// Bytes read at a time from disk.
const BUFFER: usize = 1 << 18;

/// Largest window of a Zstandard frame that is taken, as a power of two: the largest that the format's own program writes.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;

/// Where in a corpus something is, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The file.
    pub file: &'a Path,
    /// File inside it, where it is an archive.
    pub entry: Option<&'a str>,
}

impl Place<'_> {
    /// An error here.
    pub(crate) fn error(&self, what: impl std::fmt::Display) -> TrainError {
        match self.entry {
            Some(entry) => TrainError::file(self.file, format!("entry {entry:?}: {what}")),
            None => TrainError::file(self.file, what),
        }
    }

    /// A read that failed: by the system, or because the packed bytes are not what they should be.
    pub(crate) fn unreadable(&self, packing: Packing, error: &io::Error) -> TrainError {
        if error.raw_os_error().is_some() {
            return TrainError::io(self.file, error);
        }
        let name = packing.name();
        if error.kind() == io::ErrorKind::UnexpectedEof {
            self.error(format!(
                "is cut short: the {name} stream has no end; get the file again"
            ))
        } else {
            self.error(format!("is not a whole {name} stream: {error}"))
        }
    }
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.entry {
            Some(entry) => write!(f, ": entry {entry:?}"),
            None => Ok(()),
        }
    }
}

/// A reader that adds what it reads to a counter.
struct Counted<'c, R> {
    inner: R,
    count: &'c AtomicU64,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.count.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// The unpacked bytes of a file. `read` counts the bytes taken from disk.
pub(crate) fn open<'c>(
    path: &Path,
    packing: Packing,
    read: &'c AtomicU64,
) -> Result<Box<dyn Read + 'c>, TrainError> {
    let file = std::fs::File::open(path).map_err(|e| TrainError::io(path, &e))?;
    let counted = Counted {
        inner: file,
        count: read,
    };
    let place = Place {
        file: path,
        entry: None,
    };
    unpack(counted, packing).map_err(|e| place.unreadable(packing, &e))
}

/// The unpacked bytes of `packed`. An error of kind `UnexpectedEof` says that the stream has no end of its own.
pub(crate) fn unpack<'r>(
    packed: impl Read + 'r,
    packing: Packing,
) -> io::Result<Box<dyn Read + 'r>> {
    let mut packed = BufReader::with_capacity(BUFFER, packed);
    // Zstandard and gzip readers take nothing at all for an empty text.
    if packing != Packing::Plain && packed.fill_buf()?.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(match packing {
        Packing::Plain => Box::new(packed),
        Packing::Gz => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
        Packing::Xz => Box::new(lzma_rust2::XzReader::new(packed, true)),
        Packing::Zst => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
    })
}
