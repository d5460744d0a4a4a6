//! One memory-mapped safetensors file, and the values of its tensors widened to f32.

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
    map: Mmap,
    header: Header,
}

impl TensorFile {
    /// Maps the file and checks its header. Only the header's pages are read.
    pub fn open(path: &Path) -> Result<TensorFile, CheckpointError> {
        let map = map_file(path)?;
        let header = Header::parse(&map).map_err(|e| e.in_file(path))?;
        Ok(TensorFile {
            path: path.to_owned(),
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

#[allow(
    unsafe_code,
    reason = "memory maps are how weights are read lazily; the one unsafe call of this crate"
)]
fn map_file(path: &Path) -> Result<Mmap, CheckpointError> {
    let file = open_regular(path)?;
    // SAFETY: the map is read-only and private to this process. The remaining hazard is another process that changes the file
    // while it is mapped: a write would change values under us (every access goes through byte slices that are decoded, so no
    // value is ever invalid for its type), and a truncation would raise SIGBUS, which ends the process without a wrong result.
    // Both are outside what a reader can prevent, and are the accepted price of mapping (the reference implementation pays it too).
    unsafe { Mmap::map(&file) }.map_err(|e| cannot_read(path, &e))
}
