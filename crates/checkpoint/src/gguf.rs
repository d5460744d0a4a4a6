//! Writing GGUF files, version 3: metadata and tensors in one file, as llama.cpp reads them.
//!
//! Layout, all little-endian: `GGUF`, version `u32`, number of tensors `u64`, number of metadata entries `u64`; the entries (key, type
//! `u32`, value); for each tensor its name, number of dimensions `u32`, the dimensions `u64` with the fastest first, type `u32`, offset
//! `u64` from the start of the data; zeros up to a multiple of 32; the data, each tensor from a multiple of 32. Strings are a length
//! `u64` and UTF-8. Source: the specification in ggml's repository, `docs/gguf.md`.

use std::io::{self, Write};
use std::path::Path;

use crate::files::write_whole;
use crate::safetensors::{StoredAs, TensorData};

const MAGIC: &[u8; 4] = b"GGUF";
const VERSION: u32 = 3;

/// Tensors start at multiples of this many bytes, the format's default.
const ALIGNMENT: u64 = 32;

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum GgufValue {
    /// Unsigned, 32 bits.
    U32(u32),
    /// Float, 32 bits.
    F32(f32),
    /// Truth value.
    Bool(bool),
    /// Text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// Signed numbers, 32 bits.
    I32s(Vec<i32>),
}

/// A tensor and how its values are stored.
#[derive(Clone, Debug)]
pub struct GgufTensor<'a> {
    /// Name, shape with the slowest dimension first, values.
    pub data: TensorData<'a>,
    /// Storage.
    pub stored: StoredAs,
}

/// Writes a GGUF file: aside, synced, renamed. Entries and tensors stand in the order given.
///
/// # Errors
/// What the system says; then nothing is left behind.
///
/// # Panics
/// If a shape and the number of values disagree.
pub fn write_gguf(
    path: &Path,
    metadata: &[(&str, GgufValue)],
    tensors: &[GgufTensor<'_>],
) -> io::Result<()> {
    let header = header(metadata, tensors);
    write_whole(path, |out| {
        out.write_all(&header)?;
        pad(out, header.len() as u64)?;
        let mut piece = Vec::with_capacity(1 << 16);
        for tensor in tensors {
            for values in tensor.data.values.chunks(1 << 14) {
                piece.clear();
                tensor.stored.extend(values, &mut piece);
                out.write_all(&piece)?;
            }
            pad(out, bytes(tensor))?;
        }
        Ok(())
    })
}

/// Everything before the data.
fn header(metadata: &[(&str, GgufValue)], tensors: &[GgufTensor<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        put_text(&mut out, key);
        put_value(&mut out, value);
    }
    let mut at = 0u64;
    for tensor in tensors {
        let TensorData {
            name,
            shape,
            values,
        } = &tensor.data;
        assert_eq!(
            shape.iter().product::<usize>(),
            values.len(),
            "shape of {name}"
        );
        put_text(&mut out, name);
        out.extend((shape.len() as u32).to_le_bytes());
        for size in shape.iter().rev() {
            out.extend((*size as u64).to_le_bytes());
        }
        // Numbers of `ggml_type`.
        let kind: u32 = match tensor.stored {
            StoredAs::F32 => 0,
            StoredAs::F16 => 1,
            StoredAs::Bf16 => 30,
        };
        out.extend(kind.to_le_bytes());
        out.extend(at.to_le_bytes());
        at += bytes(tensor).next_multiple_of(ALIGNMENT);
    }
    out
}

fn bytes(tensor: &GgufTensor<'_>) -> u64 {
    (tensor.data.values.len() * tensor.stored.bytes()) as u64
}

fn pad(out: &mut dyn Write, length: u64) -> io::Result<()> {
    let zeros = [0u8; ALIGNMENT as usize];
    let missing = length.next_multiple_of(ALIGNMENT) - length;
    out.write_all(&zeros[..missing as usize])
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A value behind its type: numbers of `gguf_metadata_value_type`.
fn put_value(out: &mut Vec<u8>, value: &GgufValue) {
    const I32: u32 = 5;
    const TEXT: u32 = 8;
    let mut put = |kind: u32| out.extend(kind.to_le_bytes());
    match value {
        GgufValue::U32(_) => put(4),
        GgufValue::F32(_) => put(6),
        GgufValue::Bool(_) => put(7),
        GgufValue::Text(_) => put(TEXT),
        GgufValue::Texts(_) | GgufValue::I32s(_) => put(9),
    }
    match value {
        GgufValue::U32(n) => out.extend(n.to_le_bytes()),
        GgufValue::F32(x) => out.extend(x.to_le_bytes()),
        GgufValue::Bool(b) => out.push(u8::from(*b)),
        GgufValue::Text(text) => put_text(out, text),
        GgufValue::Texts(texts) => {
            out.extend(TEXT.to_le_bytes());
            out.extend((texts.len() as u64).to_le_bytes());
            for text in texts {
                put_text(out, text);
            }
        }
        GgufValue::I32s(numbers) => {
            out.extend(I32.to_le_bytes());
            out.extend((numbers.len() as u64).to_le_bytes());
            out.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a small file, written out by hand from the specification.
    #[test]
    fn the_layout_is_the_specifications() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.gguf");
        let values = [1.0f32, -2.0, 0.5, 3.0, 4.0, 5.0];
        let tensor = |name: &str, shape: &[usize], stored| GgufTensor {
            data: TensorData {
                name: name.into(),
                shape: shape.to_vec(),
                values: &values,
            },
            stored,
        };
        let metadata = [("k", GgufValue::Texts(vec!["a".into(), String::new()]))];
        let tensors = [
            tensor("t", &[2, 3], StoredAs::F16),
            tensor("u", &[6], StoredAs::F32),
        ];
        write_gguf(&path, &metadata, &tensors).unwrap();
        let mut wanted = b"GGUF\x03\0\0\0".to_vec();
        let mut long = |n: u64| wanted.extend(n.to_le_bytes());
        long(2);
        long(1);
        long(1);
        wanted.extend(b"k\x09\0\0\0\x08\0\0\0\x02\0\0\0\0\0\0\0");
        wanted.extend(b"\x01\0\0\0\0\0\0\0a\0\0\0\0\0\0\0\0");
        wanted.extend(b"\x01\0\0\0\0\0\0\0t\x02\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0");
        wanted.extend(b"\x01\0\0\0\0\0\0\0\0\0\0\0");
        wanted.extend(b"\x01\0\0\0\0\0\0\0u\x01\0\0\0\x06\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0");
        wanted.resize(wanted.len().next_multiple_of(32), 0);
        wanted.extend(b"\0\x3c\0\xc0\0\x38\0\x42\0\x44\0\x45");
        wanted.extend([0; 20]);
        wanted.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        wanted.resize(wanted.len().next_multiple_of(32), 0);
        assert_eq!(std::fs::read(&path).unwrap(), wanted);
    }
}
