//! Files of token ids: little-endian `.i32` and `.u16`, `.npy`, or whitespace-separated text.

use std::path::Path;

use crate::error::{CheckpointError, quoted};
use crate::files::{is_utf_16, without_mark};
use crate::read::read_once;

/// Longest file of ids that is read, in bytes (8 GiB: two thousand million ids).
const IDS_BYTES_MAX: u64 = 8 << 30;

/// Reads token ids and checks every one against the vocabulary. The format follows the file's extension: `.i32` and `.u16` are bare
/// little-endian numbers, `.npy` is NumPy's format with any integer dtype and one sequence, anything else is text (UTF-8, a byte order mark is skipped).
///
/// A `.u16` file is refused where the vocabulary does not fit into 16 bits: ids beyond would have wrapped when it was written.
pub fn read_token_file(path: &Path, vocab_size: usize) -> Result<Vec<u32>, CheckpointError> {
    let bytes = read_once(path, IDS_BYTES_MAX)?;
    let ids = match path.extension().and_then(|e| e.to_str()) {
        Some("i32") => fixed::<4>(&bytes, vocab_size, |b| i128::from(i32::from_le_bytes(b))),
        Some("u16") if vocab_size > 1 << 16 => Err(CheckpointError::malformed(format!(
            "16-bit ids cannot hold a vocabulary of {vocab_size}, so larger ids would have wrapped; write the file as .i32"
        ))),
        Some("u16") => fixed::<2>(&bytes, vocab_size, |b| i128::from(u16::from_le_bytes(b))),
        Some("npy") => npy(&bytes, vocab_size),
        _ => text(&bytes, vocab_size),
    };
    ids.map_err(|e| e.in_file(path))
}

/// Checks that every id is below `vocab_size`; the error gives the position of the first that is not.
pub fn check_ids(ids: &[u32], vocab_size: usize) -> Result<(), CheckpointError> {
    match ids.iter().position(|&id| id as usize >= vocab_size) {
        None => Ok(()),
        Some(position) => Err(outside(position, &ids[position].to_string(), vocab_size)),
    }
}

fn outside(position: usize, id: &str, vocab_size: usize) -> CheckpointError {
    CheckpointError::malformed(format!(
        "token {position}: id {id} is outside the vocabulary, 0 to {}; the ids were made with another tokenizer (every id is \
         checked, used or not)",
        vocab_size.saturating_sub(1)
    ))
}

fn checked(position: usize, id: i128, vocab_size: usize) -> Result<u32, CheckpointError> {
    match u32::try_from(id) {
        Ok(small) if (small as usize) < vocab_size => Ok(small),
        _ => Err(outside(position, &id.to_string(), vocab_size)),
    }
}

fn fixed<const N: usize>(
    bytes: &[u8],
    vocab_size: usize,
    decode: impl Fn([u8; N]) -> i128,
) -> Result<Vec<u32>, CheckpointError> {
    let (items, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        return Err(CheckpointError::malformed(format!(
            "{} bytes are not a whole number of {N}-byte ids; the file is cut off or has another format",
            bytes.len()
        )));
    }
    items
        .iter()
        .enumerate()
        .map(|(i, &b)| checked(i, decode(b), vocab_size))
        .collect()
}

fn text(bytes: &[u8], vocab_size: usize) -> Result<Vec<u32>, CheckpointError> {
    let text = std::str::from_utf8(without_mark(bytes)).map_err(|e| {
        CheckpointError::malformed(if is_utf_16(bytes) {
            "is text in UTF-16; save it as UTF-8".to_owned()
        } else {
            format!("is not text ({e}); binary ids need the extension .i32, .u16 or .npy")
        })
    })?;
    let parse = |(position, word): (usize, &str)| match word.parse::<i128>() {
        Ok(id) => checked(position, id, vocab_size),
        Err(_) => Err(CheckpointError::malformed(format!(
            "token {position}: expected a token id, found {}; ids are separated by white space",
            quoted(word)
        ))),
    };
    text.split_whitespace().enumerate().map(parse).collect()
}

/// NumPy's format, versions 1 to 3: magic, version, length, a Python literal, data.
fn npy(bytes: &[u8], vocab_size: usize) -> Result<Vec<u32>, CheckpointError> {
    let cut = || CheckpointError::malformed("the .npy header is cut off");
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or_else(|| {
        CheckpointError::malformed("is not a .npy file (its first bytes are not \\x93NUMPY)")
    })?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
    let (length, rest) = match version[0] {
        1 => {
            let (n, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
            (u64::from(u16::from_le_bytes(*n)), rest)
        }
        2 | 3 => {
            let (n, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
            (u64::from(u32::from_le_bytes(*n)), rest)
        }
        other => {
            return Err(CheckpointError::unsupported(format!(
                ".npy version {other} is not known, expected 1, 2 or 3"
            )));
        }
    };
    if length > rest.len() as u64 {
        return Err(cut());
    }
    let (header, data) = rest.split_at(length as usize);
    let header = String::from_utf8_lossy(header);
    let descr = literal(&header, "descr")
        .and_then(|v| v.strip_prefix(['\'', '"'])?.split(['\'', '"']).next());
    let descr = descr.ok_or_else(|| {
        CheckpointError::malformed("the .npy header has no simple descr; expected an integer dtype")
    })?;
    let shape = literal(&header, "shape").and_then(|v| v.strip_prefix('(')?.split(')').next());
    let shape = shape.ok_or_else(|| CheckpointError::malformed("the .npy header has no shape"))?;
    let extents: Result<Vec<u64>, _> = shape
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .map(str::parse)
        .collect();
    let extents = extents.map_err(|_| {
        CheckpointError::malformed(format!("the .npy header has the shape {}", quoted(shape)))
    })?;
    let wanted = extents.iter().try_fold(1u64, |n, &e| n.checked_mul(e));
    let sequence = extents.len() == 1
        || (extents.len() > 1 && extents[..extents.len() - 1].iter().all(|&e| e == 1));
    if !sequence {
        return Err(CheckpointError::malformed(format!(
            "expected one sequence of ids, found the shape ({shape})"
        )));
    }
    let big = descr.starts_with('>');
    let ids = match descr.trim_start_matches(['<', '>', '|', '=']) {
        "u1" => fixed::<1>(data, vocab_size, |[b]| i128::from(b)),
        "i1" => fixed::<1>(data, vocab_size, |[b]| i128::from(b as i8)),
        "u2" => fixed(data, vocab_size, |b| {
            i128::from(if big {
                u16::from_be_bytes(b)
            } else {
                u16::from_le_bytes(b)
            })
        }),
        "i2" => fixed(data, vocab_size, |b| {
            i128::from(if big {
                i16::from_be_bytes(b)
            } else {
                i16::from_le_bytes(b)
            })
        }),
        "u4" => fixed(data, vocab_size, |b| {
            i128::from(if big {
                u32::from_be_bytes(b)
            } else {
                u32::from_le_bytes(b)
            })
        }),
        "i4" => fixed(data, vocab_size, |b| {
            i128::from(if big {
                i32::from_be_bytes(b)
            } else {
                i32::from_le_bytes(b)
            })
        }),
        "u8" => fixed(data, vocab_size, |b| {
            i128::from(if big {
                u64::from_be_bytes(b)
            } else {
                u64::from_le_bytes(b)
            })
        }),
        "i8" => fixed(data, vocab_size, |b| {
            i128::from(if big {
                i64::from_be_bytes(b)
            } else {
                i64::from_le_bytes(b)
            })
        }),
        _ => Err(CheckpointError::malformed(format!(
            "the .npy dtype is {}, expected an integer dtype",
            quoted(descr)
        ))),
    }?;
    if wanted != Some(ids.len() as u64) {
        return Err(CheckpointError::malformed(format!(
            "the shape ({shape}) does not hold {} ids; the file is cut off",
            ids.len()
        )));
    }
    Ok(ids)
}

fn literal<'h>(header: &'h str, key: &str) -> Option<&'h str> {
    let at = header.find(&format!("'{key}'"))? + key.len() + 2;
    Some(header[at..].trim_start().strip_prefix(':')?.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, bytes: &[u8], vocab_size: usize) -> Result<Vec<u32>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        read_token_file(&path, vocab_size).map_err(|e| e.to_string())
    }

    fn npy_file(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(data);
        file
    }

    /// Wide ids survive (datatrove issue 118: 16-bit files wrapped them).
    #[test]
    fn large_vocabularies_round_trip_or_are_refused() {
        let ids = [65_535i32, 65_536, 250_000];
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        assert_eq!(
            read("a.i32", &bytes, 250_880).unwrap(),
            [65_535, 65_536, 250_000]
        );
        assert!(
            read("a.u16", &bytes, 250_880)
                .unwrap_err()
                .contains("would have wrapped")
        );
        assert_eq!(
            read("a.u16", &[1, 0, 255, 255], 65_536).unwrap(),
            [1, 65_535]
        );
        assert_eq!(
            read("a.txt", b" 65535\n65536\t250000 ", 250_880).unwrap(),
            [65_535, 65_536, 250_000]
        );
    }

    #[test]
    fn numpy_dtypes_and_shapes() {
        assert_eq!(
            read(
                "a.npy",
                &npy_file(
                    "<i8",
                    "(2,)",
                    &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]
                ),
                9
            )
            .unwrap(),
            [1, 2]
        );
        assert_eq!(
            read("a.npy", &npy_file(">u2", "(1, 2)", &[0, 1, 0, 2]), 9).unwrap(),
            [1, 2]
        );
        assert_eq!(
            read("a.npy", &npy_file("|u1", "(0,)", &[]), 9).unwrap(),
            [0u32; 0]
        );
        let check = |file: Vec<u8>, expect: &str| {
            let error = read("a.npy", &file, 9).unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        check(
            npy_file("<f4", "(1,)", &[0; 4]),
            "expected an integer dtype",
        );
        check(npy_file("<i4", "(2, 1)", &[0; 8]), "one sequence");
        check(npy_file("<i4", "(2,)", &[0; 4]), "cut off");
        check(
            npy_file("<i4", "(1,)", &[0; 3]),
            "whole number of 4-byte ids",
        );
        check(
            npy_file("<i4", "(1,)", &(-1i32).to_le_bytes()),
            "token 0: id -1 is outside",
        );
        check(b"\x93NUMPY\x02\x00\xff\xff\xff\x7f".to_vec(), "cut off");
        check(b"PK".to_vec(), "not a .npy file");
    }

    #[test]
    fn positions_are_reported() {
        assert!(
            read("a.txt", b"1 2 9", 9)
                .unwrap_err()
                .contains("token 2: id 9 is outside the vocabulary, 0 to 8")
        );
        assert!(
            read("a.txt", b"1 two", 9)
                .unwrap_err()
                .contains("token 1: expected a token id, found \"two\"")
        );
        assert!(
            read("a.ids", b"1 \xff", 9)
                .unwrap_err()
                .contains("is not text")
        );
        assert_eq!(read("a.txt", b"\xef\xbb\xbf1 2", 9).unwrap(), [1, 2]);
        assert!(
            read("a.txt", b"\xff\xfe1\0 \x002\0", 9)
                .unwrap_err()
                .contains("UTF-16; save it as UTF-8")
        );
        assert!(
            read("a.i32", &[0; 6], 9)
                .unwrap_err()
                .contains("6 bytes are not a whole number")
        );
        assert!(
            check_ids(&[0, 8, 9], 9)
                .unwrap_err()
                .to_string()
                .contains("token 2")
        );
    }
}
