//! Writing safetensors files: whole or not at all.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use half::{bf16, f16};

use crate::files::write_whole;

/// How values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredAs {
    /// 4 bytes a value, exact.
    F32,
    /// 2 bytes a value, rounded to nearest even.
    Bf16,
    /// 2 bytes a value, rounded to nearest even; infinite from 65520 on.
    F16,
}

impl StoredAs {
    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        match self {
            StoredAs::F32 => 4,
            StoredAs::Bf16 | StoredAs::F16 => 2,
        }
    }

    /// Appends values, little-endian.
    pub(crate) fn extend(self, values: &[f32], out: &mut Vec<u8>) {
        match self {
            StoredAs::F32 => out.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            StoredAs::Bf16 => {
                out.extend(values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()));
            }
            StoredAs::F16 => {
                out.extend(values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()));
            }
        }
    }
}

/// One tensor to write.
#[derive(Clone, Debug)]
pub struct TensorData<'a> {
    /// Name.
    pub name: String,
    /// Shape; its product is the number of values.
    pub shape: Vec<usize>,
    /// Row-major values.
    pub values: &'a [f32],
}

/// Writes `tensors` and text `metadata` into `path`: aside, synced, renamed. Tensors follow one another in the order given. Returns
/// the BLAKE3 hash of the file.
///
/// # Errors
/// What the system says; then nothing is left behind.
///
/// # Panics
/// If a shape and the number of values disagree.
pub fn write_safetensors(
    path: &Path,
    tensors: &[TensorData<'_>],
    metadata: &BTreeMap<String, String>,
    stored: StoredAs,
) -> io::Result<blake3::Hash> {
    let dtype = match stored {
        StoredAs::F32 => "F32",
        StoredAs::Bf16 => "BF16",
        StoredAs::F16 => "F16",
    };
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), serde_json::json!(metadata));
    }
    let mut at = 0usize;
    for tensor in tensors {
        assert_eq!(
            tensor.shape.iter().product::<usize>(),
            tensor.values.len(),
            "shape of {}",
            tensor.name
        );
        let end = at + tensor.values.len() * stored.bytes();
        header.insert(
            tensor.name.clone(),
            serde_json::json!({"dtype": dtype, "shape": tensor.shape, "data_offsets": [at, end]}),
        );
        at = end;
    }
    let mut text = serde_json::to_vec(&header)?;
    // Data starts at a multiple of 8, as the format's own writer aligns it.
    text.resize(text.len().next_multiple_of(8), b' ');

    write_whole(path, |file| {
        let mut out = Hashed {
            to: file,
            hasher: blake3::Hasher::new(),
        };
        out.write_all(&(text.len() as u64).to_le_bytes())?;
        out.write_all(&text)?;
        let mut piece = Vec::with_capacity(1 << 16);
        for tensor in tensors {
            for values in tensor.values.chunks(1 << 14) {
                piece.clear();
                stored.extend(values, &mut piece);
                out.write_all(&piece)?;
            }
        }
        Ok(out.hasher.finalize())
    })
}

struct Hashed<W> {
    to: W,
    hasher: blake3::Hasher,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::safetensors::Tensors;

    #[test]
    fn what_is_written_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        let values: Vec<f32> = (0..6).map(|i| i as f32 * 0.3 - 1.0).collect();
        let tensors = [
            TensorData {
                name: "b".into(),
                shape: vec![2, 2],
                values: &values[..4],
            },
            TensorData {
                name: "a".into(),
                shape: vec![2],
                values: &values[4..],
            },
        ];
        let metadata = BTreeMap::from([("made_by".to_owned(), "a test".to_owned())]);
        for (stored, round) in [
            (StoredAs::F32, (|x| x) as fn(f32) -> f32),
            (StoredAs::Bf16, |x| bf16::from_f32(x).to_f32()),
            (StoredAs::F16, |x| f16::from_f32(x).to_f32()),
        ] {
            let hash = write_safetensors(&path, &tensors, &metadata, stored).unwrap();
            assert_eq!(hash, blake3::hash(&std::fs::read(&path).unwrap()));
            let read = Tensors::open_file(&path).unwrap();
            for tensor in &tensors {
                let (file, info) = read.find(&tensor.name).unwrap();
                let mut got = Vec::new();
                file.widen(info, 0..tensor.values.len(), &mut got).unwrap();
                let want: Vec<f32> = tensor.values.iter().map(|v| round(*v)).collect();
                assert_eq!(got, want, "{} {stored:?}", tensor.name);
            }
        }
        // Only the file itself is there.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
