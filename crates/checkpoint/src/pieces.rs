//! Mapped files gone over once, in pieces, over rayon's threads. A checkpoint may be larger than memory, and pages of a map cost more to
//! take in and let go of than bytes cost to copy: a piece is read into a buffer, and what comes next is read ahead.

use rayon::prelude::*;

use crate::safetensors::TensorFile;

/// Bytes of a piece, a multiple of every element's size; a copy of it stays in a core's cache.
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
        let looked = window
            .par_iter()
            .map_init(Vec::new, |buffer, &(position, piece)| {
                f(position, piece.copied(buffer))
            });
        results.par_extend(looked);
    }
    results
}

impl<'p> Part<'p> {
    /// The bytes, in `buffer` where they are those of a file that can be read.
    fn copied<'b>(&self, buffer: &'b mut Vec<u8>) -> &'b [u8]
    where
        'p: 'b,
    {
        match self.file {
            Some(file) if file.read(self.bytes, buffer) => buffer,
            _ => self.bytes,
        }
    }
}
