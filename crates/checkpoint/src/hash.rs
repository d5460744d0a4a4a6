//! Hashes of a checkpoint, and what they cover.
//!
//! A run that reads a fifth of the weights should not have to read the rest for its hash, and a hash that does not cover
//! everything should say so. The bytes are hashed in pieces, over rayon's threads; what is hashed in the end is the list of the
//! pieces' own hashes, so the result does not depend on the number of threads.

use std::collections::BTreeSet;

use rayon::prelude::*;

use crate::safetensors::{TensorFile, Tensors};

/// Bytes of a piece.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that are in memory together: the next so many are read ahead, those behind are released.
const PIECES_AT_ONCE: usize = 128;

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
    let mut parts: Vec<&[u8]> = vec![b"snellen", cover.text().as_bytes(), config];
    let files = tensors.into_iter().flat_map(Tensors::files);
    let sizes: Vec<[u8; 8]> = files
        .clone()
        .map(|file| (file.bytes().len() as u64).to_le_bytes())
        .collect();
    for (file, size) in files.zip(&sizes) {
        parts.push(size);
        let bytes = file.bytes();
        match cover {
            HashCover::Everything => parts.push(bytes),
            HashCover::Headers | HashCover::Read => {
                parts.push(&bytes[..file.header().data_begin() as usize]);
            }
        }
    }
    if cover == HashCover::Read {
        for name in read {
            let found = tensors.and_then(|tensors| tensors.find(name));
            if let Some((file, tensor)) = found {
                parts.extend([name.as_bytes(), file.tensor_bytes(tensor)]);
            }
        }
    }
    let pieces: Vec<&[u8]> = parts
        .iter()
        .flat_map(|part| part.chunks(PIECE_BYTES))
        .collect();
    let files: Vec<&TensorFile> = tensors.into_iter().flat_map(Tensors::files).collect();
    let hashes = hash_pieces(&pieces, &files);
    let mut hasher = blake3::Hasher::new();
    // lengths first, so that no two lists of parts collide
    for part in &parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
    }
    for hash in &hashes {
        hasher.update(hash.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// The hash of every piece. A checkpoint may be larger than memory: of its mapped bytes no more stay with this process than two
/// windows of pieces.
fn hash_pieces(pieces: &[&[u8]], files: &[&TensorFile]) -> Vec<blake3::Hash> {
    let mut hashes = Vec::with_capacity(pieces.len());
    let mut windows = pieces.chunks(PIECES_AT_ONCE).peekable();
    // A piece is part of one file at most; the others take no notice.
    let each = |window: &[&[u8]], f: fn(&TensorFile, &[u8])| {
        for piece in window {
            files.iter().for_each(|file| f(file, piece));
        }
    };
    while let Some(window) = windows.next() {
        if let Some(next) = windows.peek() {
            each(next, TensorFile::read_ahead);
        }
        hashes.par_extend(window.par_iter().map(|piece| blake3::hash(piece)));
        each(window, TensorFile::release);
    }
    hashes
}
