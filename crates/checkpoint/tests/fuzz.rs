//! Bounded fuzzing of the parsers that read untrusted files. The same entry points have cargo-fuzz targets in `fuzz/`.
//!
//! Any result is fine; a panic, a hang or an allocation far beyond the input is not. Allocation is bounded by construction and
//! checked where it counts: a header's stated length (`safetensors.rs`) and shapes, which are never allocated from.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::path::Path;

use proptest::prelude::*;
use snellen_checkpoint::HashCover;
use snellen_checkpoint::config::parse_config;
use snellen_checkpoint::safetensors::{Header, parse_index};
use snellen_checkpoint::spec;
use snellen_checkpoint::tokenizer::{Tokenizer, read_token_file};
use support::{BLOOM_CONFIG, FALCON_CONFIG, MPT_CONFIG, raw, safetensors, tiny_bloom};

/// A header that parses must describe the file: ranges inside, one after the other, of the right length.
fn header_holds(file: &[u8]) {
    let Ok(header) = Header::parse(file) else {
        return;
    };
    let mut covered = 0;
    for tensor in header.tensors() {
        assert_eq!(tensor.begin, covered);
        assert_eq!(
            (tensor.end - tensor.begin) * 8,
            tensor.elements() * tensor.dtype.bits()
        );
        assert_eq!(header.tensor(&tensor.name), Some(tensor));
        covered = tensor.end;
    }
    assert_eq!(header.data_begin() + covered, file.len() as u64);
}

/// Some bytes overwritten, inserted or removed.
fn mutate(mut bytes: Vec<u8>, edits: &[(usize, u8, u8)]) -> Vec<u8> {
    for &(at, kind, value) in edits {
        let at = at % (bytes.len() + 1);
        match kind % 4 {
            0 if at < bytes.len() => bytes[at] = value,
            1 => bytes.insert(at, value),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

fn edits() -> impl Strategy<Value = Vec<(usize, u8, u8)>> {
    // Truncation (kind 3) is rare: it would hide the other edits.
    let kind = prop_oneof![4 => Just(0u8), 3 => Just(1u8), 3 => Just(2u8), 1 => Just(3u8)];
    // Half of the new bytes are those that mean something in JSON and TOML.
    let byte = prop_oneof![
        any::<u8>(),
        proptest::sample::select(b"{}[]\",:=-+.0123456789eE\\ntf\n# ".to_vec())
    ];
    proptest::collection::vec((any::<usize>(), kind, byte), 1..8)
}

const SPEC: &str = include_str!("../../../specs/alilama.toml");
const HEADER: &str = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[8,16]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        header_holds(&bytes);
        let text = String::from_utf8_lossy(&bytes);
        header_holds(&raw(&format!("{{{text}"), &[]));
        let path = Path::new("fuzz");
        let _ = (parse_index(&bytes), parse_config(&bytes, path), spec::parse(&bytes, path));
    }

    #[test]
    fn mutated_headers(edits in edits()) {
        // The length prefix is mutated in half of the cases, and otherwise made to fit.
        let file = raw(HEADER, &[0; 16]);
        header_holds(&mutate(file, &edits));
        let header = mutate(HEADER.as_bytes().to_vec(), &edits);
        header_holds(&raw(&String::from_utf8_lossy(&header), &[0; 16]));
    }

    #[test]
    fn mutated_configurations(edits in edits(), which in 0..3usize) {
        let config = [BLOOM_CONFIG, MPT_CONFIG, FALCON_CONFIG][which];
        if let Ok(facts) = parse_config(&mutate(config.as_bytes().to_vec(), &edits), Path::new("fuzz")) {
            prop_assert_eq!(facts.slope_values().unwrap().len(), facts.n_heads);
            prop_assert!(facts.head_width * facts.n_heads == facts.width);
        }
    }

    #[test]
    fn mutated_specifications(edits in edits()) {
        if let Ok(spec) = spec::parse(&mutate(SPEC.as_bytes().to_vec(), &edits), Path::new("fuzz")) {
            prop_assert!(spec.model.validate().is_ok());
        }
    }

    #[test]
    fn mutated_indexes(edits in edits()) {
        let index = br#"{"metadata":{"total_size":1},"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}"#;
        if let Ok(map) = parse_index(&mutate(index.to_vec(), &edits)) {
            prop_assert!(map.values().all(|v| !v.contains("..") || !v.split('/').any(|p| p == "..")));
            prop_assert!(map.values().all(|v| !v.starts_with('/')));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Through files: a whole checkpoint with a damaged header or configuration, token files, minbpe models.
    #[test]
    fn damaged_files(edits in edits(), bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), mutate(BLOOM_CONFIG.as_bytes().to_vec(), &edits)).unwrap();
        let mut file = safetensors(&tiny_bloom(""), &[]);
        let header = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize + 8;
        let data = file.split_off(header);
        let mut damaged = mutate(file, &edits);
        damaged.extend(data);
        std::fs::write(dir.path().join("model.safetensors"), damaged).unwrap();
        if let Ok(checkpoint) = snellen_checkpoint::open(dir.path()) {
            let _ = (checkpoint.check_finite(), checkpoint.hash(HashCover::Everything));
        }
        for name in ["x.i32", "x.u16", "x.npy", "x.txt"] {
            let path = dir.path().join(name);
            let mut content = if name == "x.npy" { b"\x93NUMPY\x01\x00\x10\x00".to_vec() } else { Vec::new() };
            content.extend(&bytes);
            std::fs::write(&path, content).unwrap();
            if let Ok(ids) = read_token_file(&path, 100) {
                prop_assert!(ids.iter().all(|&id| id < 100));
            }
        }
        let path = dir.path().join("tokenizer.model");
        let model = mutate(b"minbpe v1\n[a-z]+| +|.\n1\n<s> 300\n97 98\n256 97\n".to_vec(), &edits);
        std::fs::write(&path, model).unwrap();
        if let Ok(tokenizer) = Tokenizer::open(&path)
            && let Ok(ids) = tokenizer.encode("abab ba")
        {
            let _ = tokenizer.decode(&ids);
        }
    }
}
