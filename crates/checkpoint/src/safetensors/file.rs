//! One memory-mapped safetensors file, and the values of its tensors widened to f32.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::header::{Dtype, Header, TensorInfo};
use crate::error::{CheckpointError, quoted};
use crate::read::{cannot_read, open_regular};

/// A safetensors file: its checked header, and a memory map of which only what is asked for is read.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    map: Mmap,
    header: Header,
}

impl TensorFile {
    /// Maps the file and checks its header. Only the header's pages are read.
    pub fn open(path: &Path) -> Result<TensorFile, CheckpointError> {
        let file = open_regular(path)?;
        let map = map_file(&file).map_err(|e| cannot_read(path, &e))?;
        let header = Header::parse(&map).map_err(|e| e.in_file(path))?;
        Ok(TensorFile {
            path: path.to_owned(),
            file,
            map,
            header,
        })
    }

    /// The file's path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The checked header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// BLAKE3 of all bytes of the file.
    pub fn content_hash(&self) -> blake3::Hash {
        blake3::hash(&self.map)
    }

    /// The bytes of one of this file's tensors.
    pub(crate) fn tensor_bytes(&self, tensor: &TensorInfo) -> &[u8] {
        let begin = self.header.data_begin();
        // The header's check put every range inside the file, whose length fits in usize because it is mapped.
        &self.map[(begin + tensor.begin) as usize..(begin + tensor.end) as usize]
    }

    /// Asks the system to begin reading `part`, a part of this file's bytes, from disk. Where it cannot, nothing happens.
    pub(crate) fn read_ahead(&self, part: &[u8]) {
        #[cfg(unix)]
        if let Some(offset) = self.offset(part) {
            // A hint: a system that refuses it reads when the bytes are asked for.
            let _ = self
                .map
                .advise_range(memmap2::Advice::WillNeed, offset, part.len());
        }
        #[cfg(not(unix))]
        let _ = part;
    }

    /// Reads `part`, a part of this file's bytes, into `buffer` without bringing it into the map; `false` where that cannot be done, and the
    /// map has to serve.
    pub(crate) fn read(&self, part: &[u8], buffer: &mut Vec<u8>) -> bool {
        buffer.resize(part.len(), 0);
        #[cfg(unix)]
        {
            use std::os::unix::fs::FileExt as _;
            self.offset(part)
                .is_some_and(|at| self.file.read_exact_at(buffer, at as u64).is_ok())
        }
        #[cfg(not(unix))]
        {
            // reading at a place has another name there; the map serves
            let _ = &self.file;
            false
        }
    }

    /// Lets the pages of `part`, a part of this file's bytes, leave this process's memory. They stay in the system's page cache as
    /// long as it has room, and come back when they are asked for.
    #[allow(
        unsafe_code,
        reason = "the pages of a read-only map of a file can be dropped and read again"
    )]
    pub(crate) fn release(&self, part: &[u8]) {
        #[cfg(unix)]
        if let Some(offset) = self.offset(part) {
            // SAFETY: the map is shared, read-only and of a file, so nothing is stored in its pages that the file has not: an access,
            // even by a thread that reads them at this moment, brings the same bytes back. That the file may be
            // changed by others in between is the hazard that `map_file` accepts.
            let _ = unsafe {
                self.map.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    offset,
                    part.len(),
                )
            };
        }
        #[cfg(not(unix))]
        let _ = part;
    }

    /// Where `part` begins in the map; `None` where it is empty or not part of it.
    #[cfg(unix)]
    fn offset(&self, part: &[u8]) -> Option<usize> {
        let offset = part.as_ptr().addr().checked_sub(self.map.as_ptr().addr())?;
        let end = offset.checked_add(part.len())?;
        (!part.is_empty() && end <= self.map.len()).then_some(offset)
    }

    /// Appends `range` of the tensor's elements (row-major) to `out`, widened to f32; exact for F32, F16 and BF16.
    ///
    /// Other dtypes are refused. Values are not looked at; the caller checks that they are finite.
    pub fn widen(
        &self,
        tensor: &TensorInfo,
        range: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<(), CheckpointError> {
        let refuse = |text: String| {
            CheckpointError::unsupported(format!("tensor {}: {text}", quoted(&tensor.name)))
                .in_file(&self.path)
        };
        let bytes = self.tensor_bytes(tensor);
        let width = match tensor.dtype {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
            other => {
                return Err(refuse(format!(
                    "dtype {} is not read as weights, only F32, F16 and BF16 are; convert the checkpoint to one of them",
                    other.name()
                )));
            }
        };
        let bytes = range
            .start
            .checked_mul(width)
            .zip(range.end.checked_mul(width))
            .and_then(|(a, b)| bytes.get(a..b));
        let Some(bytes) = bytes else {
            return Err(refuse(format!(
                "elements {range:?} asked for, it has {}",
                tensor.elements()
            )));
        };
        out.reserve(range.len());
        match tensor.dtype {
            Dtype::F32 => out.extend(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b))),
            Dtype::F16 => out.extend(
                bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&b| half::f16::from_le_bytes(b).to_f32()),
            ),
            // The only dtype left by the match above.
            _ => out.extend(
                bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&b| half::bf16::from_le_bytes(b).to_f32()),
            ),
        }
        Ok(())
    }
}

#[allow(unsafe_code, reason = "memory maps are how weights are read lazily")]
fn map_file(file: &File) -> io::Result<Mmap> {
    // SAFETY: the map is read-only and private to this process. The remaining hazard is another process that changes the file
    // while it is mapped: a write would change values under us (every access goes through byte slices that are decoded, so no
    // value is ever invalid for its type), and a truncation would raise SIGBUS, which ends the process without a wrong result.
    // Both are outside what a reader can prevent, and are the accepted price of mapping (the reference implementation pays it too).
    unsafe { Mmap::map(file) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::safetensors::{StoredAs, TensorData, write_safetensors};

    /// Bytes of mapped files that this process holds.
    fn resident() -> i64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|l| l.starts_with("RssFile")).unwrap();
        1024 * line
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<i64>()
            .unwrap()
    }

    #[test]
    fn released_pages_leave_and_come_back() {
        const MIB: i64 = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large.safetensors");
        let values: Vec<f32> = (0..16 << 20).map(|i| i as f32).collect();
        let tensor = TensorData {
            name: "t".to_owned(),
            shape: vec![values.len()],
            values: &values,
        };
        write_safetensors(&path, &[tensor], &Default::default(), StoredAs::F32).unwrap();
        let file = TensorFile::open(&path).unwrap();
        let tensor = &file.header().tensors()[0];
        let before = resident();
        let mut read = vec![];
        file.read_ahead(file.tensor_bytes(tensor));
        file.widen(tensor, 0..16 << 20, &mut read).unwrap();
        let held = resident();
        // 64 MiB were touched; other tests of this process map only little.
        assert!(held - before > 56 * MIB, "{before} {held}");
        file.release(file.tensor_bytes(tensor));
        let after = resident();
        assert!(held - after > 56 * MIB, "{held} {after}");
        let mut again = vec![];
        file.widen(tensor, 0..16 << 20, &mut again).unwrap();
        assert!(read == values && again == values);
        // A part of something else is no part of this file.
        file.release(&[1, 2, 3]);
        file.release(&[]);
    }
}
