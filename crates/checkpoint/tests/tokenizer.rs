//! Tokenizer files, and what is said about those that are not understood
//! (https://github.com/huggingface/tokenizers/issues/1297).
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use snellen_checkpoint::ErrorKind;
use snellen_checkpoint::tokenizer::{Tokenizer, read_token_file};
use support::{check_text, shared};

const BPE: &str = r#"{"version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}, "padding": null,
 "added_tokens": [{"id": 5, "special": true, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
 "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
 "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
 "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
 "byte_fallback": false, "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġa": 4}, "merges": ["a b", "Ġ a"]}}"#;

fn open(text: &[u8]) -> Result<Tokenizer, snellen_checkpoint::CheckpointError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, text).unwrap();
    Tokenizer::open(&path)
}

/// The file's own truncation (two tokens) must not cut a text in silence.
#[test]
fn nothing_is_cut_and_nothing_added() {
    let tokenizer = open(BPE.as_bytes()).unwrap();
    assert_eq!(tokenizer.encode("ab ab").unwrap(), [2, 3, 2]);
    assert_eq!(tokenizer.encode("").unwrap(), [0u32; 0]);
    assert_eq!(tokenizer.decode(&[2, 3, 2]).unwrap(), "ab ab");
    assert_eq!(tokenizer.vocab_size(), 6);
    assert_eq!(tokenizer.hash().len(), 64);
}

/// Merges as pairs load.
#[test]
fn merges_as_pairs() {
    let pairs = BPE.replace(r#"["a b", "Ġ a"]"#, r#"[["a", "b"], ["Ġ", "a"]]"#);
    assert_eq!(
        open(pairs.as_bytes()).unwrap().encode("ab ab").unwrap(),
        [2, 3, 2]
    );
}

/// The file, what was not understood, the likely reason.
#[test]
fn errors_say_what_was_not_understood() {
    for (text, kind, expect) in [
        (
            BPE.replace(r#""type": "BPE""#, r#""type": "HyperBPE""#),
            ErrorKind::Unsupported,
            vec!["\"model\"", "\"HyperBPE\"", "newer version", "0.22"],
        ),
        (
            BPE[..BPE.len() / 2].to_owned(),
            ErrorKind::Malformed,
            vec!["cut off"],
        ),
        (
            BPE.replace(r#""version": "1.0""#, r#""version": "2.0""#),
            ErrorKind::Unsupported,
            vec!["\"version\"", "\"2.0\""],
        ),
        (
            BPE.replace(
                r#""type": "ByteLevel", "add_prefix_space": false"#,
                r#""type": "BitLevel", "x": false"#,
            ),
            ErrorKind::Unsupported,
            vec!["\"pre_tokenizer\"", "\"BitLevel\"", "newer"],
        ),
        (
            BPE.replace("\"a b\"", "\"a z\""),
            ErrorKind::Unsupported,
            vec!["\"model\"", "BPE"],
        ),
        (
            r#"{"tokenizer_class": "X"}"#.to_owned(),
            ErrorKind::Malformed,
            vec!["\"model\" is missing", "tokenizer_config.json"],
        ),
        (
            "[]".to_owned(),
            ErrorKind::Malformed,
            vec!["expected a tokenizer.json"],
        ),
        (
            "minbpe v2".to_owned(),
            ErrorKind::Malformed,
            vec!["not JSON"],
        ),
    ] {
        let error = open(text.as_bytes()).unwrap_err();
        check_text(&error, kind, &["tokenizer.json: "]);
        check_text(&error, kind, &expect);
    }
}

/// Files as they are in circulation load, and agree with the ids that the reference library made of the same text.
#[test]
fn real_files() {
    for name in ["gpt2", "mpt", "bert-uncased"] {
        let Some(path) = shared(&format!("tokenizers/{name}.json")) else {
            return;
        };
        let tokenizer = Tokenizer::open(&path).unwrap();
        let ids = tokenizer.encode("Once upon a time").unwrap();
        assert!(
            !ids.is_empty() && ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()),
            "{name}"
        );
    }
    // GPT-2's ids of this text are widely published.
    let gpt2 = Tokenizer::open(&shared("tokenizers/gpt2.json").unwrap()).unwrap();
    assert_eq!(gpt2.encode("Hello world").unwrap(), [15496, 995]);
    let Some(folder) = shared("fixtures/bpe8192") else {
        return;
    };
    let tokenizer = Tokenizer::open(&folder.join("tokenizer.json")).unwrap();
    let ids = read_token_file(&folder.join("eval_ids.i32"), tokenizer.vocab_size()).unwrap();
    let text = tokenizer.decode(&ids[1000..1200]).unwrap();
    assert_eq!(
        tokenizer.decode(&tokenizer.encode(&text).unwrap()).unwrap(),
        text
    );
}

/// A text is not one piece behind a run on which the split pattern gives up; a run that ends the text is a piece of its own.
#[test]
fn a_run_that_the_pattern_gives_up_on_is_an_error() {
    let split = r#"{"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
 "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
 {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]}"#;
    let whole = r#"{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}"#;
    let with = BPE.replacen(whole, split, 1);
    assert_ne!(with, BPE);
    let tokenizer = open(with.as_bytes()).unwrap();
    let run = "a".repeat(1_200_000);
    assert_eq!(tokenizer.encode("ab ab").unwrap(), [2, 3, 2]);
    assert_eq!(
        tokenizer.encode(&format!("ab {run}")).unwrap().len(),
        2 + 1_199_999
    );
    let error = tokenizer.encode(&format!("ab {run} ab ab")).unwrap_err();
    check_text(
        &error,
        ErrorKind::Malformed,
        &["tokenizer.json: ", "gives up on the text at byte 2,"],
    );
}
