//! Mapped files gone over once, in pieces, over rayon's threads. A checkpoint may be larger than memory: what comes next is read ahead, and
//! each piece leaves this process's memory when it is done with.

use rayon::prelude::*;

use crate::safetensors::TensorFile;

/// Bytes of a piece, a multiple of every element's size.
const PIECE_BYTES: usize = 1 << 20;
/// So many pieces are read ahead together.
const PIECES_AHEAD: usize = 128;

/// Bytes to go over, and the file they are mapped from where they are.
#[derive(Clone, Copy)]
pub(crate) struct Part<'p> {
    pub(crate) file: Option<&'p TensorFile>,
    pub(crate) bytes: &'p [u8],
}

/// `f` of every piece of the parts, in order, whatever the number of threads; it is told the part's position and the piece.
pub(crate) fn each_piece<T: Send>(
    parts: &[Part<'_>],
    f: impl Fn(usize, &[u8]) -> T + Sync,
) -> Vec<T> {
    let pieces: Vec<(usize, Part<'_>)> = parts
        .iter()
        .enumerate()
        .flat_map(|(position, part)| {
            let pieces = part.bytes.chunks(PIECE_BYTES);
            pieces.map(move |bytes| (position, Part { bytes, ..*part }))
        })
        .collect();
    let mut results = Vec::with_capacity(pieces.len());
    let mut windows = pieces.chunks(PIECES_AHEAD).peekable();
    while let Some(window) = windows.next() {
        for (_, next) in windows.peek().into_iter().copied().flatten() {
            if let Some(file) = next.file {
                file.read_ahead(next.bytes);
            }
        }
        results.par_extend(window.par_iter().map(|&(position, piece)| {
            let result = f(position, piece.bytes);
            if let Some(file) = piece.file {
                file.release(piece.bytes);
            }
            result
        }));
    }
    results
}
