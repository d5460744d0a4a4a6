//! Hashes of a checkpoint, and what they cover.
//!
//! A run that reads a fifth of the weights should not have to read the rest for its hash, and a hash that does not cover
//! everything should say so. The bytes are hashed in pieces, over rayon's threads; what is hashed in the end is the list of the
//! pieces' own hashes, so the result does not depend on the number of threads.

use std::collections::BTreeSet;

use crate::pieces::{Part, each_piece};
use crate::safetensors::{TensorFile, Tensors};

/// What a hash of a checkpoint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashCover {
    /// Configuration, headers and sizes of the tensor files: cheap, and blind to values.
    Headers,
    /// The same and every byte of the tensors that were read until now.
    Read,
    /// The configuration and every byte of the tensor files. Reads everything.
    Everything,
}

impl HashCover {
    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Headers => "the configuration and the tensor headers",
            Self::Read => {
                "the configuration, the tensor headers and the tensors that were read for this result"
            }
            Self::Everything => "the configuration and every byte of the tensor files",
        }
    }
}

/// BLAKE3 in hexadecimal over the configuration and what `cover` says of the files; `read` names the tensors that were read.
pub(crate) fn hash(
    config: &[u8],
    tensors: Option<&Tensors>,
    read: &BTreeSet<String>,
    cover: HashCover,
) -> String {
    let loose = |bytes| Part { file: None, bytes };
    let mut parts: Vec<Part<'_>> = vec![
        loose(b"snellen"),
        loose(cover.text().as_bytes()),
        loose(config),
    ];
    let files = tensors.into_iter().flat_map(Tensors::files);
    let sizes: Vec<[u8; 8]> = files
        .clone()
        .map(|file| (file.bytes().len() as u64).to_le_bytes())
        .collect();
    for (file, size) in files.zip(&sizes) {
        parts.push(loose(size));
        let bytes = match cover {
            HashCover::Everything => file.bytes(),
            HashCover::Headers | HashCover::Read => {
                &file.bytes()[..file.header().data_begin() as usize]
            }
        };
        parts.push(mapped(file, bytes));
    }
    if cover == HashCover::Read {
        for name in read {
            let found = tensors.and_then(|tensors| tensors.find(name));
            if let Some((file, tensor)) = found {
                parts.push(loose(name.as_bytes()));
                parts.push(mapped(file, file.tensor_bytes(tensor)));
            }
        }
    }
    let hashes = each_piece(&parts, |_, piece| blake3::hash(piece));
    let mut hasher = blake3::Hasher::new();
    // lengths first, so that no two lists of parts collide
    for part in &parts {
        hasher.update(&(part.bytes.len() as u64).to_le_bytes());
    }
    for hash in &hashes {
        hasher.update(hash.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

fn mapped<'p>(file: &'p TensorFile, bytes: &'p [u8]) -> Part<'p> {
    Part {
        file: Some(file),
        bytes,
    }
}
