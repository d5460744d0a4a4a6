//! Hostile, broken and unusual safetensors files.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use model::{LayerRole, WeightRole, WeightSource};
use snellen_checkpoint::safetensors::{Dtype, Header};
use snellen_checkpoint::{ErrorKind, HashCover, open};
use support::{
    BLOOM_CONFIG, check_error, check_text, folder, logits, raw, safetensors, sharded, tiny_bloom,
};

fn header_error(file: &[u8], expect: &[&str]) {
    check_text(
        &Header::parse(file).unwrap_err(),
        ErrorKind::Malformed,
        expect,
    );
}

/// The stated length is compared with limit and size before anything is allocated
/// (https://github.com/safetensors/safetensors/issues/668).
#[test]
fn absurd_header_lengths() {
    let mut file = (1u64 << 63).to_le_bytes().to_vec();
    file.resize(20, b' ');
    header_error(
        &file,
        &[
            "9223372036854775808 bytes",
            "has 20 bytes",
            "limit is 268435456",
        ],
    );
    let mut file = 150_000_000u64.to_le_bytes().to_vec();
    file.resize(1024, b' ');
    header_error(
        &file,
        &[
            "150000000 bytes",
            "at least 150000008",
            "found 1024",
            "268435456",
        ],
    );
    for length in 0..8 {
        header_error(
            &vec![0; length],
            &[
                "truncated",
                &format!("has {length} bytes"),
                "expected at least the 8 bytes",
            ],
        );
    }
    header_error(&[0; 8], &["must begin with '{'"]);
}

/// The same through the folder: the message names the file.
#[test]
fn the_file_is_named() {
    let dir = folder(BLOOM_CONFIG, &[]);
    let mut file = (1u64 << 63).to_le_bytes().to_vec();
    file.resize(20, b' ');
    std::fs::write(dir.path().join("model.safetensors"), file).unwrap();
    check_error(
        open(dir.path()),
        ErrorKind::Malformed,
        &["model.safetensors: the header says"],
    );
}

/// Each rule with the tensor and the rule's name (https://github.com/safetensors/safetensors/issues/401).
#[test]
fn hostile_headers() {
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a":{{"dtype":"F32","shape":[2],"data_offsets":{a}}},"b":{{"dtype":"F32","shape":[2],"data_offsets":{b}}}}}"#
        )
    };
    header_error(
        &raw(&two("[0,8]", "[4,12]"), &[0; 12]),
        &["tensor \"b\"", "overlap tensor \"a\""],
    );
    header_error(
        &raw(&two("[0,8]", "[12,20]"), &[0; 20]),
        &["tensor \"b\"", "hole of 4 bytes"],
    );
    header_error(
        &raw(&two("[4,12]", "[12,20]"), &[0; 20]),
        &[
            "tensor \"a\"",
            "hole of 4 bytes between the start of the data",
        ],
    );
    header_error(
        &raw(&two("[0,8]", "[8,16]"), &[0; 12]),
        &["tensor \"b\"", "past the end", "real size"],
    );
    header_error(
        &raw(&two("[0,8]", "[8,16]"), &[0; 20]),
        &["4 bytes after tensor \"b\" belong to no tensor"],
    );
    let one = |body: &str| raw(&format!(r#"{{"a":{body}}}"#), &[0; 8]);
    header_error(
        &one(r#"{"dtype":"F32","shape":[3],"data_offsets":[0,8]}"#),
        &["tensor \"a\"", "shape [3] of F32 takes 12 bytes", "hold 8"],
    );
    header_error(
        &one(r#"{"dtype":"Q7","shape":[2],"data_offsets":[0,8]}"#),
        &["tensor \"a\"", "unknown dtype \"Q7\"", "BF16"],
    );
    header_error(
        &one(r#"{"dtype":"F32","shape":[2],"data_offsets":[8,0]}"#),
        &["tensor \"a\"", "end before they begin"],
    );
    header_error(
        &one(r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}"#),
        &["tensor \"a\"", "more than 2^64"],
    );
    header_error(
        &one(r#"{"dtype":"F4","shape":[3],"data_offsets":[0,8]}"#),
        &["tensor \"a\"", "whole number of bytes"],
    );
    header_error(
        &one(r#"{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}"#),
        &["tensor \"a\"", "-2"],
    );
    header_error(
        &one(r#"{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}"#),
        &["tensor \"a\"", "2.5"],
    );
    header_error(
        &one(r#"{"dtype":"F32","shape":[2],"data_offsets":[0]}"#),
        &["tensor \"a\"", "invalid length 1"],
    );
    header_error(
        &one(r#"{"dtype":"F32","shape":[2]}"#),
        &["tensor \"a\"", "\"data_offsets\" is missing"],
    );
    header_error(
        &one(r#"{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}"#),
        &["tensor \"a\"", "\"shape\" appears twice"],
    );
    header_error(
        &one(r#"{"dtype":"F32","shape":[2],"data_offsets":[0,8],"scale":1}"#),
        &["tensor \"a\"", "unknown key \"scale\""],
    );
    header_error(
        &one(r#"{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}"#),
        &["more than 16 extents"],
    );
    header_error(&one("7"), &["tensor \"a\"", "invalid type"]);
    let twice = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    header_error(
        &raw(twice, &[0; 8]),
        &["tensor \"a\": the name appears twice"],
    );
    header_error(
        &raw(r#"{"__metadata__":{"k":"1","k":"2"}}"#, &[]),
        &["__metadata__", "\"k\" appears twice"],
    );
    header_error(
        &raw(r#"{"__metadata__":{"k":1}}"#, &[]),
        &["__metadata__", "key \"k\""],
    );
    header_error(&raw(r#"{"a":"#, &[]), &["EOF"]);
    header_error(&raw("{} x", &[]), &["trailing"]);
    // Offsets near 2^64 must not wrap.
    let edge = r#"{"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}}"#;
    header_error(&raw(edge, &[0; 8]), &["more than 2^64 bits"]);
    let edge = r#"{"a":{"dtype":"U8","shape":[2305843009213693951],"data_offsets":[0,2305843009213693951]}}"#;
    header_error(&raw(edge, &[0; 8]), &["tensor \"a\"", "past the end"]);
}

/// What the format allows: padding, metadata, scalars, empty tensors, every dtype.
#[test]
fn legal_headers() {
    let header = Header::parse(&raw("{}   ", &[])).unwrap();
    assert!(header.tensors().is_empty());
    let text = r#"{"__metadata__":{"format":"pt"},"e":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    let header = Header::parse(&raw(text, &[0; 8])).unwrap();
    assert_eq!(header.metadata()["format"], "pt");
    assert_eq!(header.tensor("s").unwrap().elements(), 1);
    assert_eq!(header.tensor("e").unwrap().elements(), 0);
    for (i, (dtype, name, bits)) in Dtype::ALL.into_iter().enumerate() {
        assert_eq!(
            (
                dtype as usize,
                dtype.name(),
                dtype.bits(),
                Dtype::parse(name)
            ),
            (i, name, bits, Some(dtype))
        );
        let file = raw(
            &format!(r#"{{"a":{{"dtype":"{name}","shape":[8],"data_offsets":[0,{bits}]}}}}"#),
            &vec![0; bits as usize],
        );
        assert_eq!(
            Header::parse(&file).unwrap().tensor("a").unwrap().dtype,
            dtype
        );
    }
}

/// Of three shards, the one that is cut is named, with both sizes (https://github.com/Comfy-Org/ComfyUI/pull/15722).
#[test]
fn truncated_shard() {
    let dir = sharded(BLOOM_CONFIG, &tiny_bloom("transformer."));
    let name = "model-00002-of-00003.safetensors";
    let path = dir.path().join(name);
    let whole = std::fs::read(&path).unwrap();
    let size = whole.len();
    for keep in [size - 1, size / 2] {
        std::fs::write(&path, &whole[..keep]).unwrap();
        check_error(
            open(dir.path()),
            ErrorKind::Malformed,
            &[
                name,
                &format!("expected size {size} bytes, real size {keep}"),
            ],
        );
    }
    std::fs::write(&path, &whole[..4]).unwrap();
    check_error(
        open(dir.path()),
        ErrorKind::Malformed,
        &[name, "truncated", "4 bytes"],
    );
    std::fs::write(&path, &whole[..40]).unwrap();
    check_error(
        open(dir.path()),
        ErrorKind::Malformed,
        &[name, "truncated", "found 40"],
    );
}

/// A shard that is not there is listed, and nothing is computed (https://github.com/sgl-project/sglang/pull/32279).
#[test]
fn missing_shard() {
    let dir = sharded(BLOOM_CONFIG, &tiny_bloom("transformer."));
    std::fs::remove_file(dir.path().join("model-00002-of-00003.safetensors")).unwrap();
    check_error(
        open(dir.path()),
        ErrorKind::Missing,
        &[
            "model.safetensors.index.json",
            "missing 1 of 3 shards",
            "\"model-00002-of-00003.safetensors\"",
        ],
    );
}

#[test]
fn shards_equal_the_single_file() {
    let tensors = tiny_bloom("transformer.");
    let (single, shards) = (
        folder(BLOOM_CONFIG, &tensors),
        sharded(BLOOM_CONFIG, &tensors),
    );
    assert_eq!(
        logits(single.path(), &[1, 5, 9]),
        logits(shards.path(), &[1, 5, 9])
    );
    // An index may be named directly.
    assert!(
        open(&shards.path().join("model.safetensors.index.json"))
            .unwrap()
            .spec
            .is_some()
    );
}

#[test]
fn index_that_does_not_fit_the_shards() {
    let dir = sharded(BLOOM_CONFIG, &tiny_bloom("transformer."));
    let path = dir.path().join("model.safetensors.index.json");
    let index = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        index.replacen("transformer.ln_f.bias", "transformer.ln_f.bogus", 1),
    )
    .unwrap();
    check_error(
        open(dir.path()),
        ErrorKind::Missing,
        &[
            "\"transformer.ln_f.bogus\"",
            "shard \"model-00003-of-00003.safetensors\"",
        ],
    );
}

/// Paths that leave the folder are refused (https://github.com/huggingface/transformers/issues/47176); links are followed, as
/// caches of the model hub need.
#[test]
fn path_traversal() {
    let tensors = tiny_bloom("transformer.");
    let dir = sharded(BLOOM_CONFIG, &tensors);
    let index = dir.path().join("model.safetensors.index.json");
    let good = std::fs::read_to_string(&index).unwrap();
    for bad in ["../other/x.safetensors", "/etc/hostname"] {
        std::fs::write(
            &index,
            good.replacen("model-00002-of-00003.safetensors", bad, 1),
        )
        .unwrap();
        check_error(
            open(dir.path()),
            ErrorKind::Malformed,
            &[
                "model.safetensors.index.json",
                &format!("{bad:?}"),
                "outside the model folder",
            ],
        );
    }
    std::fs::write(&index, good).unwrap();
    #[cfg(unix)]
    {
        let blobs = tempfile::tempdir().unwrap();
        let shard = dir.path().join("model-00002-of-00003.safetensors");
        let blob = blobs.path().join("0123abcd");
        std::fs::rename(&shard, &blob).unwrap();
        std::os::unix::fs::symlink(&blob, &shard).unwrap();
        assert!(open(dir.path()).unwrap().spec.is_some());
    }
}

/// A folder, a pipe or an empty file in the place of the weights is refused, and does not hang.
#[test]
fn not_a_regular_file() {
    let dir = folder(BLOOM_CONFIG, &[]);
    let path = dir.path().join("model.safetensors");
    std::fs::create_dir(&path).unwrap();
    check_error(
        open(dir.path()),
        ErrorKind::Malformed,
        &["model.safetensors", "found a folder"],
    );
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, []).unwrap();
    check_error(
        open(dir.path()),
        ErrorKind::Malformed,
        &["model.safetensors", "has 0 bytes"],
    );
    std::fs::remove_file(&path).unwrap();
    #[cfg(unix)]
    if std::process::Command::new("mkfifo")
        .arg(&path)
        .status()
        .is_ok_and(|s| s.success())
    {
        check_error(
            open(dir.path()),
            ErrorKind::Malformed,
            &["model.safetensors", "not a regular file"],
        );
    }
}

/// Every hash covers what it says: all bytes, headers, or headers and what was read.
#[test]
fn hashes() {
    let mut tensors = tiny_bloom("transformer.");
    let first = folder(BLOOM_CONFIG, &tensors);
    tensors[0].bytes[0] ^= 1;
    let second = folder(BLOOM_CONFIG, &tensors);
    let third = folder(&BLOOM_CONFIG.replace("1e-5", "1e-6"), &tensors);
    let [a, b, c] = [&first, &second, &third].map(|d| open(d.path()).unwrap());
    let again = open(first.path()).unwrap();
    for cover in [HashCover::Headers, HashCover::Read, HashCover::Everything] {
        assert_eq!(a.hash(cover), again.hash(cover));
        assert_eq!(a.hash(cover).len(), 64);
        assert_ne!(b.hash(cover), c.hash(cover));
        assert_eq!(
            a.hash(cover) == b.hash(cover),
            cover != HashCover::Everything
        );
    }
    // the first tensor, in which they differ, is the embedding
    a.weight(WeightRole::FinalNormWeight).unwrap();
    b.weight(WeightRole::FinalNormWeight).unwrap();
    assert_eq!(a.hash(HashCover::Read), b.hash(HashCover::Read));
    assert_ne!(a.hash(HashCover::Read), again.hash(HashCover::Read));
    a.weight(WeightRole::Embedding).unwrap();
    b.weight(WeightRole::Embedding).unwrap();
    assert_ne!(a.hash(HashCover::Read), b.hash(HashCover::Read));
}

#[test]
fn writer_of_these_tests_is_well_formed() {
    let file = safetensors(&tiny_bloom(""), &[("format", "pt")]);
    assert_eq!(Header::parse(&file).unwrap().tensors().len(), 5 + 12 * 2);
}

/// A value that is not finite is refused in whatever tensor the model uses, format and shard it is, with its place; one that no weight of the
/// model is made of is not looked at.
#[test]
fn every_weight_is_looked_at() {
    let good = tiny_bloom("");
    let last = |t: &support::Tensor| t.shape.iter().map(|n| n - 1).collect::<Vec<_>>();
    for (dtype, bad) in [
        ("F32", &f32::NAN.to_le_bytes()[..]),
        ("F16", &half::f16::INFINITY.to_le_bytes()[..]),
        ("BF16", &half::bf16::NEG_INFINITY.to_le_bytes()[..]),
    ] {
        let cast: Vec<_> = good.iter().map(|t| t.cast(dtype)).collect();
        assert_eq!(
            open(folder(BLOOM_CONFIG, &cast).path())
                .unwrap()
                .check_finite(),
            Ok(())
        );
        for i in 0..cast.len() {
            let mut tensors = cast.clone();
            let bytes = &mut tensors[i].bytes;
            let end = bytes.len() - bad.len();
            bytes[end..].copy_from_slice(bad);
            let name = format!("tensor \"{}\": 1 of ", good[i].name);
            let place = format!("the first at {:?}", last(&good[i]));
            let expect = [".safetensors: ", &name, &place, "fetch it again"];
            let whole = folder(BLOOM_CONFIG, &tensors);
            let error = open(whole.path()).unwrap().check_finite().unwrap_err();
            check_text(&error, ErrorKind::Malformed, &expect);
            let shards = sharded(BLOOM_CONFIG, &tensors);
            let error = open(shards.path()).unwrap().check_finite().unwrap_err();
            check_text(&error, ErrorKind::Malformed, &expect);
            let shard = format!(
                "model-{:05}-of-00003.safetensors",
                i / cast.len().div_ceil(3) + 1
            );
            assert!(error.to_string().contains(&shard), "{error}");
        }
        let mut spare = cast.clone();
        spare.push(support::f32_tensor("spare", &[1], &[f32::NAN]));
        assert_eq!(
            open(folder(BLOOM_CONFIG, &spare).path())
                .unwrap()
                .check_finite(),
            Ok(())
        );
    }
}

/// What was read is not looked at again, and the first value in the order of the file is named, whatever was read before.
#[test]
fn reading_and_looking_cover_every_weight_once() {
    let mut tensors = tiny_bloom("");
    let qkv = tensors
        .iter()
        .position(|t| t.name == "h.1.self_attention.query_key_value.weight")
        .unwrap();
    // the last value row of the last head, and the first of the first
    let width = tensors[qkv].shape[1];
    for row in [95, 16] {
        let at = 4 * (row * width + 3);
        tensors[qkv].bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    }
    let dir = folder(BLOOM_CONFIG, &tensors);
    let checkpoint = open(dir.path()).unwrap();
    for layer in 0..2 {
        for role in [LayerRole::QueryWeight, LayerRole::KeyWeight] {
            checkpoint.weight(WeightRole::Layer(layer, role)).unwrap();
        }
    }
    let expect = ["1 of 256 values", "the first at [16, 3] is NaN"];
    check_text(
        &checkpoint.check_finite().unwrap_err(),
        ErrorKind::Malformed,
        &expect,
    );
    let expect = ["2 of 3072 values", "the first at [16, 3] is NaN"];
    check_text(
        &open(dir.path()).unwrap().check_finite().unwrap_err(),
        ErrorKind::Malformed,
        &expect,
    );
}

/// A tensor that two shards hold is refused with both; one that the index does not name at all is not a tensor of the checkpoint.
#[test]
fn a_tensor_in_two_shards() {
    let tensors = tiny_bloom("");
    let dir = sharded(BLOOM_CONFIG, &tensors);
    let third = tensors.len().div_ceil(3);
    let second = dir.path().join("model-00002-of-00003.safetensors");
    let mut part = tensors[third..2 * third].to_vec();
    part.push(support::f32_tensor("spare", &[1], &[1.0]));
    std::fs::write(&second, safetensors(&part, &[])).unwrap();
    open(dir.path()).unwrap();
    part.push(tensors[0].clone());
    std::fs::write(&second, safetensors(&part, &[])).unwrap();
    let expect = [
        "index.json: tensor \"word_embeddings.weight\" is in two shards",
        "model-00001-of-00003.safetensors and ",
        "model-00002-of-00003.safetensors, of which",
        "fetch the checkpoint again",
    ];
    check_error(open(dir.path()), ErrorKind::Malformed, &expect);
}
