//! Token files: ids of one split of a corpus, with what is needed not to misread them.
//!
//! Layout: 8 bytes `SNLTOK01`; the length of the description, `u32` little-endian; the description, JSON ([`Description`]); the ids,
//! 2 or 4 bytes each, little-endian; for each document the index after its last id, `u64` little-endian.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::files;

const MAGIC: &[u8; 8] = b"SNLTOK01";

/// Largest description that is believed, bytes.
const DESCRIPTION_MAX: usize = 1 << 20;

/// What a token file says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Bits of an id: 16 or 32.
    pub width: u32,
    /// Ids are below this.
    pub vocab: u64,
    /// Hash of the tokenizer file that made them.
    pub tokenizer_hash: String,
    /// Number of ids.
    pub tokens: u64,
    /// Number of documents.
    pub documents: u64,
    /// `train` or `held`.
    pub split: String,
    /// Version of the program that wrote it.
    pub snellen: String,
}

/// The ids of a split, in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// What the file says.
    pub description: Description,
    /// Ids.
    pub ids: Ids,
    /// Index after each document's last id, ascending.
    pub ends: Vec<u64>,
    /// BLAKE3 of the file.
    pub hash: String,
}

impl Tokens {
    /// Where documents end before the last of the tokens `start .. start + length`, counted from `start`.
    pub(crate) fn ends_inside(&self, start: usize, length: usize) -> impl Iterator<Item = usize> {
        let from = self.ends.partition_point(|end| *end <= start as u64);
        self.ends[from..]
            .iter()
            .map(move |end| *end as usize - start)
            .take_while(move |end| *end < length)
    }
}

/// Ids in the width they are stored in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ids {
    /// Vocabularies of up to 65,536.
    Narrow(Vec<u16>),
    /// Larger ones.
    Wide(Vec<u32>),
}

impl Ids {
    /// Number of ids.
    pub fn len(&self) -> usize {
        match self {
            Ids::Narrow(ids) => ids.len(),
            Ids::Wide(ids) => ids.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a range to `out`.
    pub fn copy(&self, range: std::ops::Range<usize>, out: &mut Vec<u32>) {
        match self {
            Ids::Narrow(ids) => out.extend(ids[range].iter().map(|&id| u32::from(id))),
            Ids::Wide(ids) => out.extend_from_slice(&ids[range]),
        }
    }
}

/// Whether ids of a vocabulary fit 16 bits: chosen by the vocabulary, never by the ids that happen to occur.
pub fn width_for(vocab: usize) -> u32 {
    if vocab <= 1 << 16 { 16 } else { 32 }
}

/// Writes a token file, whole or not at all.
///
/// # Errors
/// An id outside the vocabulary, and what the system says.
pub fn write(
    path: &Path,
    ids: &[u32],
    ends: &[u64],
    vocab: usize,
    tokenizer_hash: &str,
    split: &str,
) -> Result<Description, TrainError> {
    if let Some(at) = ids.iter().position(|id| *id as usize >= vocab) {
        return Err(TrainError::file(
            path,
            format!(
                "token {at} is {}, the vocabulary has {vocab} entries; nothing is written",
                ids[at]
            ),
        ));
    }
    let description = Description {
        width: width_for(vocab),
        vocab: vocab as u64,
        tokenizer_hash: tokenizer_hash.to_owned(),
        tokens: ids.len() as u64,
        documents: ends.len() as u64,
        split: split.to_owned(),
        snellen: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let text = serde_json::to_vec(&description).map_err(|e| TrainError::file(path, e))?;
    crate::files::write_whole(path, |out| {
        out.write_all(MAGIC)?;
        out.write_all(&(text.len() as u32).to_le_bytes())?;
        out.write_all(&text)?;
        if description.width == 16 {
            for id in ids {
                out.write_all(&(*id as u16).to_le_bytes())?;
            }
        } else {
            for id in ids {
                out.write_all(&id.to_le_bytes())?;
            }
        }
        for end in ends {
            out.write_all(&end.to_le_bytes())?;
        }
        Ok(())
    })?;
    Ok(description)
}

/// Reads a token file and checks all of it.
///
/// # Errors
/// A file that is no token file, is cut short or too long, or whose ids do not fit its own description.
pub fn read(path: &Path) -> Result<Tokens, TrainError> {
    let bytes = files::read(path).map_err(|e| TrainError::io(path, &e))?;
    let fail = |what: String| Err(TrainError::file(path, what));
    let Some(rest) = bytes.strip_prefix(MAGIC.as_slice()) else {
        return fail(
            "is not a token file of this program; make one with `snellen tokens encode`".into(),
        );
    };
    let Some((length, rest)) = rest.split_first_chunk::<4>() else {
        return fail("is cut short inside its header; encode the text again".into());
    };
    let length = u32::from_le_bytes(*length) as usize;
    if length > DESCRIPTION_MAX || length > rest.len() {
        return fail(format!(
            "its header claims a description of {length} bytes, {} are left; encode the text again",
            rest.len()
        ));
    }
    let (text, body) = rest.split_at(length);
    let description: Description = match serde_json::from_slice(text) {
        Ok(description) => description,
        Err(e) => return fail(format!("its description is not readable ({e})")),
    };
    let bytes_per_id = match description.width {
        16 => 2u64,
        32 => 4,
        other => return fail(format!("ids of {other} bits; expected 16 or 32")),
    };
    if u64::from(description.width) < u64::from(width_for(description.vocab as usize)) {
        return fail(format!(
            "ids of {} bits cannot hold its vocabulary of {}",
            description.width, description.vocab
        ));
    }
    let expected = description
        .tokens
        .checked_mul(bytes_per_id)
        .and_then(|ids| Some((ids, ids.checked_add(description.documents.checked_mul(8)?)?)));
    let Some((ids_bytes, total)) = expected.filter(|(_, total)| *total == body.len() as u64) else {
        return fail(format!(
            "describes {} ids of {} bits and {} documents, but holds {} bytes of them: it is cut short or damaged; encode the text again",
            description.tokens,
            description.width,
            description.documents,
            body.len()
        ));
    };
    debug_assert!(ids_bytes <= total);
    let (ids, ends) = body.split_at(ids_bytes as usize);
    let ids = if description.width == 16 {
        Ids::Narrow(
            ids.as_chunks()
                .0
                .iter()
                .map(|b| u16::from_le_bytes(*b))
                .collect(),
        )
    } else {
        Ids::Wide(
            ids.as_chunks()
                .0
                .iter()
                .map(|b| u32::from_le_bytes(*b))
                .collect(),
        )
    };
    let largest = match &ids {
        Ids::Narrow(ids) => ids.iter().max().map(|id| u64::from(*id)),
        Ids::Wide(ids) => ids.iter().max().map(|id| u64::from(*id)),
    };
    if let Some(id) = largest.filter(|id| *id >= description.vocab) {
        return fail(format!(
            "holds id {id}, its vocabulary has {} entries",
            description.vocab
        ));
    }
    let ends: Vec<u64> = ends
        .as_chunks()
        .0
        .iter()
        .map(|b| u64::from_le_bytes(*b))
        .collect();
    let ascending = ends.windows(2).all(|pair| pair[0] < pair[1]);
    if !ascending || ends.last().is_some_and(|end| *end != description.tokens) {
        return fail("its document ends are not ascending up to the last id".into());
    }
    Ok(Tokens {
        description,
        ids,
        ends,
        hash: blake3::hash(&bytes).to_hex().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_and_narrow_ids_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.tok");
        for (vocab, ids, width) in [
            (250_880usize, vec![65_535u32, 65_536, 250_000, 0], 32),
            (65_536, vec![65_535, 0, 7], 16),
            (65_537, vec![65_535, 65_536], 32),
            (300, vec![], 16),
        ] {
            let ends: Vec<u64> = if ids.is_empty() {
                vec![]
            } else {
                vec![1, ids.len() as u64]
            };
            write(&path, &ids, &ends, vocab, "abc", "train").unwrap();
            let back = read(&path).unwrap();
            let mut got = Vec::new();
            back.ids.copy(0..back.ids.len(), &mut got);
            assert_eq!((got, back.ends, back.description.width), (ids, ends, width));
        }
        assert!(write(&path, &[300], &[1], 300, "abc", "train").is_err());
    }

    #[test]
    fn documents_end_inside_a_sequence_and_not_at_its_edges() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.tok");
        write(&path, &[1; 12], &[2, 5, 9, 12], 10, "abc", "held").unwrap();
        let tokens = read(&path).unwrap();
        let inside = |start, length| tokens.ends_inside(start, length).collect::<Vec<_>>();
        assert_eq!(inside(0, 12), [2, 5, 9]);
        assert_eq!(inside(2, 4), [3]);
        assert_eq!(inside(5, 4), [] as [usize; 0]);
        assert_eq!(inside(4, 8), [1, 5]);
    }

    #[test]
    fn every_cut_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.tok");
        write(&path, &[1, 2, 3, 4, 5], &[2, 5], 10, "abc", "held").unwrap();
        let whole = std::fs::read(&path).unwrap();
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert!(read(&path).is_err(), "cut at {end}");
        }
        let mut more = whole.clone();
        more.push(0);
        std::fs::write(&path, &more).unwrap();
        assert!(read(&path).is_err());
    }
}
