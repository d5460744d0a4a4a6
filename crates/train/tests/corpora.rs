//! Corpora as they are published: every container gives the documents of the plain folder, and one that is damaged gives an error.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use checkpoint::tokenizer::Tokenizer;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use snellen_train::data::bpe;
use snellen_train::data::documents::each_document;
use snellen_train::data::encode::{EncodeOptions, encode};

/// Texts with characters of one to four bytes, longer together than a read buffer.
fn texts() -> Vec<String> {
    (0..900u32)
        .map(|n| {
            let word = ["cat", "\u{e9}t\u{e9}", "\u{4e2d}\u{6587}", "\u{1f600}"][n as usize % 4];
            let mut text = format!("document {n} about {word}");
            for i in 0..n % 60 {
                text.push_str(&format!("\nline {i} of {word}, {}", n * 31 % 17));
            }
            text
        })
        .collect()
}

/// The two files of the plain folder: text with separators, and JSON lines.
fn plain() -> [(&'static str, Vec<u8>); 2] {
    let texts = texts();
    let (first, second) = texts.split_at(texts.len() / 2);
    let text = first.join("\n<|endoftext|>\n");
    let lines: String = second
        .iter()
        .map(|text| format!("{}\n", serde_json::json!({"id": 7, "text": text})))
        .collect();
    [
        ("a.txt", text.into_bytes()),
        ("b.jsonl", lines.into_bytes()),
    ]
}

fn pack(packing: &str, bytes: &[u8]) -> Vec<u8> {
    match packing {
        "" => bytes.to_vec(),
        "gz" => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
        "xz" => {
            let options = lzma_rust2::XzOptions::with_preset(1);
            let mut out = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
        "zst" => zstd::encode_all(bytes, 1).unwrap(),
        other => panic!("{other}"),
    }
}

/// An archive of files in the order given, with a folder in it.
fn archive(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut out = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_size(0);
    header.set_mode(0o755);
    out.append_data(&mut header, "books/", std::io::empty())
        .unwrap();
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        let name = format!("books/{name}");
        out.append_data(&mut header, name, bytes.as_slice())
            .unwrap();
    }
    out.into_inner().unwrap()
}

/// A table with columns `id` and `text`, in two row groups; every tenth text is null.
fn table(texts: &[String], compression: Compression) -> Vec<u8> {
    let schema = "message table { required int64 id; optional binary text (UTF8); }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder().set_compression(compression);
    let mut bytes = Vec::new();
    let mut file =
        SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties.build())).unwrap();
    for part in texts.chunks(texts.len().div_ceil(2).max(1)) {
        let mut group = file.next_row_group().unwrap();
        let (mut ids, mut values, mut levels) = (Vec::new(), Vec::new(), Vec::new());
        for (n, text) in part.iter().enumerate() {
            if n % 10 == 9 {
                ids.push(-1);
                levels.push(0);
            }
            ids.push(n as i64);
            levels.push(1);
            values.push(ByteArray::from(text.as_str()));
        }
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<Int64Type>()
            .write_batch(&ids, None, None)
            .unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<ByteArrayType>()
            .write_batch(&values, Some(&levels), None)
            .unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    file.close().unwrap();
    bytes
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The texts of a file and the number of skipped entries; all of its bytes were read.
fn read(path: &Path) -> Result<(Vec<String>, u64), String> {
    let counter = AtomicU64::new(0);
    let mut texts = Vec::new();
    let skipped = each_document(path, "text", &counter, &mut |document| {
        texts.push(document.text);
        Ok(())
    })
    .map_err(|e| e.to_string())?;
    let size = std::fs::metadata(path).unwrap().len();
    assert_eq!(counter.load(Ordering::Relaxed), size, "{}", path.display());
    Ok((texts, skipped))
}

/// A byte order mark says UTF-8 and is no text, at the beginning of a file; anywhere else it is a character. Places are those of the file.
#[test]
fn a_byte_order_mark_is_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\u{feff}one<|endoftext|>\u{feff}two";
    let path = write(folder.path(), "a.txt", text.as_bytes());
    assert_eq!(read(&path).unwrap().0, ["one", "\u{feff}two"]);
    let lines = "\u{feff}{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
    let path = write(folder.path(), "a.jsonl", lines.as_bytes());
    assert_eq!(read(&path).unwrap().0, ["one", "two"]);
    let path = write(folder.path(), "b.txt", b"\xef\xbb\xbfa\xff");
    fails(&path, &["is not UTF-8 from byte 4 on"]);
}

#[track_caller]
fn fails(path: &Path, wanted: &[&str]) {
    let error = read(path).unwrap_err();
    let name = path.file_name().unwrap().to_str().unwrap();
    for part in wanted.iter().chain([&name]) {
        assert!(error.contains(part), "expected {part:?} in {error}");
    }
}

#[test]
fn every_container_gives_the_tokens_of_the_plain_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let json = bpe::train(texts().iter().map(String::as_str), 400).unwrap();
    std::fs::write(at("tokenizer.json"), json).unwrap();
    let tokenizer = Tokenizer::open(&at("tokenizer.json")).unwrap();
    let tokens = |name: &str, paths: Vec<PathBuf>| {
        let options = EncodeOptions {
            paths,
            column: "text".into(),
            held_permille: 200,
        };
        let out = at(&format!("out-{name}"));
        encode(&options, &tokenizer, &out, &|done, all| {
            assert!(done <= all)
        })
        .unwrap();
        ["train.tok", "held.tok"].map(|file| std::fs::read(out.join(file)).unwrap())
    };
    std::fs::create_dir(at("plain")).unwrap();
    for (name, bytes) in plain() {
        write(&at("plain"), name, &bytes);
    }
    let wanted = tokens("plain", vec![at("plain")]);

    for packing in ["gz", "xz", "zst"] {
        let sub = at(packing);
        std::fs::create_dir(&sub).unwrap();
        for (name, bytes) in plain() {
            write(&sub, &format!("{name}.{packing}"), &pack(packing, &bytes));
        }
        assert!(tokens(packing, vec![sub]) == wanted, "{packing}");
    }
    for packing in ["", "gz", "xz", "zst"] {
        let dot = if packing.is_empty() { "" } else { "." };
        let name = format!("corpus.tar{dot}{packing}");
        let path = write(folder.path(), &name, &pack(packing, &archive(&plain())));
        assert!(tokens(&name, vec![path]) == wanted, "{name}");
    }
    let inside = plain().map(|(name, bytes)| (name, pack("xz", &bytes)));
    let inside = [
        ("a.txt.xz", inside[0].1.clone()),
        ("b.jsonl.xz", inside[1].1.clone()),
    ];
    let path = write(folder.path(), "inside.tar", &archive(&inside));
    assert!(tokens("inside", vec![path]) == wanted, "packed inside");

    for (name, compression) in [
        ("none", Compression::UNCOMPRESSED),
        ("snappy", Compression::SNAPPY),
        ("zstd", Compression::ZSTD(Default::default())),
    ] {
        let path = at(&format!("{name}.parquet"));
        std::fs::write(&path, table(&texts(), compression)).unwrap();
        assert!(tokens(name, vec![path]) == wanted, "{name}");
    }
}

/// Any number of members, streams and frames; the order of an archive's entries is the archive's.
#[test]
fn joined_streams_and_the_order_of_entries() {
    let folder = tempfile::tempdir().unwrap();
    for packing in ["gz", "xz", "zst"] {
        let mut bytes = pack(packing, b"one<|endof");
        bytes.extend(pack(packing, b"text|>two"));
        let path = write(folder.path(), &format!("a.txt.{packing}"), &bytes);
        assert_eq!(read(&path).unwrap().0, ["one", "two"], "{packing}");
    }
    let files = [
        ("z.txt", b"first".to_vec()),
        ("cover.png", vec![0xff; 700]),
        ("a.md", b"second".to_vec()),
        ("inner.tar", archive(&[])),
    ];
    let path = write(folder.path(), "order.tar", &archive(&files));
    let (texts, skipped) = read(&path).unwrap();
    assert_eq!(
        (texts.as_slice(), skipped),
        (["first".to_owned(), "second".to_owned()].as_slice(), 2)
    );
}

#[test]
fn a_cut_anywhere_is_an_error_and_never_a_shorter_corpus() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..60).map(|n| format!("word {n} {}\n", n * n)).collect();
    let files = [
        ("a.txt", text.clone().into_bytes()),
        ("b.txt", b"end".to_vec()),
    ];
    for packing in ["gz", "xz", "zst"] {
        for (name, bytes) in [
            (format!("cut.txt.{packing}"), pack(packing, text.as_bytes())),
            (
                format!("cut.tar.{packing}"),
                pack(packing, &archive(&files)),
            ),
        ] {
            let path = write(folder.path(), &name, &bytes);
            read(&path).unwrap();
            for end in 0..bytes.len() {
                std::fs::write(&path, &bytes[..end]).unwrap();
                fails(&path, &[]);
            }
        }
    }
    // The last 1024 bytes of an archive are its end mark, of which one block is enough.
    let bytes = archive(&files);
    let path = folder.path().join("cut.tar");
    for end in (0..=bytes.len() - 1024).step_by(37) {
        std::fs::write(&path, &bytes[..end]).unwrap();
        fails(&path, &[]);
    }
    std::fs::write(&path, &bytes[..bytes.len() - 1024]).unwrap();
    fails(&path, &["no end mark"]);
    std::fs::write(&path, &bytes[..512 + 512 + 100]).unwrap();
    fails(&path, &["entry \"books/a.txt\"", "cut short"]);
    let twice = [bytes.clone(), bytes].concat();
    std::fs::write(&path, twice).unwrap();
    fails(&path, &["behind the archive's end mark"]);

    let bytes = table(&texts(), Compression::SNAPPY);
    let path = folder.path().join("cut.parquet");
    for end in [0, 4, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..end]).unwrap();
        fails(&path, &["Parquet"]);
    }
}

#[test]
fn changed_bytes_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..400).map(|n| format!("word {n} {}\n", n * n)).collect();
    // Zstandard frames have no checksum unless asked for, so a change in one may go unnoticed there.
    for packing in ["gz", "xz"] {
        let mut bytes = pack(packing, text.as_bytes());
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        let path = write(folder.path(), &format!("a.txt.{packing}"), &bytes);
        fails(&path, &["is not a whole"]);
    }
    let path = write(folder.path(), "text.txt.gz", b"plain text by another name");
    fails(&path, &["is not a whole gzip stream"]);
    let path = write(folder.path(), "text.tar", &[b'x'; 2048]);
    fails(&path, &["is not a whole tar archive"]);
}

/// Any byte of any container may be wrong: an error or a text, never a panic or an allocation on the file's word.
#[test]
fn hostile_bytes_are_survived() {
    let folder = tempfile::tempdir().unwrap();
    let texts = &texts()[..12];
    let text = texts.join("<|endoftext|>").into_bytes();
    let files = [
        ("a.txt", text.clone()),
        ("b.jsonl", b"{\"text\":\"x\"}".to_vec()),
    ];
    let mut errors = 0;
    for (name, bytes, step) in [
        ("a.parquet", table(texts, Compression::SNAPPY), 1),
        (
            "b.parquet",
            table(texts, Compression::ZSTD(Default::default())),
            5,
        ),
        ("a.txt.gz", pack("gz", &text), 4),
        ("a.txt.xz", pack("xz", &text), 4),
        ("a.txt.zst", pack("zst", &text), 4),
        ("a.tar", archive(&files), 23),
    ] {
        let path = folder.path().join(name);
        for at in (0..bytes.len()).step_by(step) {
            for change in [0x01, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] ^= change;
                std::fs::write(&path, bytes).unwrap();
                let read = each_document(&path, "text", &AtomicU64::new(0), &mut |_| Ok(()));
                errors += usize::from(read.is_err());
            }
        }
    }
    assert!(errors > 200, "{errors}");
}

#[test]
fn nothing_in_it() {
    let folder = tempfile::tempdir().unwrap();
    for packing in ["gz", "xz", "zst"] {
        let path = write(
            folder.path(),
            &format!("a.txt.{packing}"),
            &pack(packing, b""),
        );
        assert!(read(&path).unwrap().0.is_empty());
        std::fs::write(&path, b"").unwrap();
        fails(&path, &["is cut short"]);
    }
    let path = write(folder.path(), "a.tar", &archive(&[]));
    assert!(read(&path).unwrap().0.is_empty());
    std::fs::write(&path, b"").unwrap();
    fails(&path, &["no end mark"]);
    let path = write(folder.path(), "a.parquet", &table(&[], Compression::SNAPPY));
    assert_eq!(read(&path).unwrap(), (vec![], 0));
}

#[test]
fn text_that_is_not_utf8_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = vec![b'a'; 70_000];
    text.extend(b"<|endoftext|>b\xff");
    let path = write(folder.path(), "a.txt", &text);
    fails(&path, &["not UTF-8 from byte 70014 on"]);
    let path = write(folder.path(), "a.txt.xz", &pack("xz", &text));
    fails(&path, &["not UTF-8 from byte 70014 on"]);
    let files = [("x/a.txt", text), ("b.jsonl", b"{}".to_vec())];
    let path = write(folder.path(), "a.tar.zst", &pack("zst", &archive(&files)));
    fails(
        &path,
        &["entry \"books/x/a.txt\"", "not UTF-8 from byte 70014"],
    );
    let path = write(
        folder.path(),
        "a.jsonl",
        b"{\"text\":\"a\"}\n{\"text\":\"\xff\"}\n",
    );
    fails(&path, &["line 2", "not UTF-8 from byte 9 of the line"]);
}

#[test]
fn a_column_that_is_not_there_names_those_that_are() {
    let folder = tempfile::tempdir().unwrap();
    let fails = |name: &str, column: &str, wanted: &[&str]| {
        let path = folder.path().join(name);
        let error = each_document(&path, column, &AtomicU64::new(0), &mut |_| Ok(()))
            .unwrap_err()
            .to_string();
        for part in wanted {
            assert!(error.contains(part), "expected {part:?} in {error}");
        }
    };
    write(
        folder.path(),
        "a.parquet",
        &table(&texts(), Compression::SNAPPY),
    );
    fails(
        "a.parquet",
        "body",
        &["no column \"body\"", "\"id\", \"text\""],
    );
    fails(
        "a.parquet",
        "id",
        &["column \"id\"", "expected text, found INT64"],
    );
    write(
        folder.path(),
        "a.jsonl",
        b"{\"title\":\"x\",\"content\":\"y\",\"n\":1}\n[1]\n",
    );
    fails(
        "a.jsonl",
        "text",
        &[
            "line 1",
            "no column \"text\"",
            "\"title\", \"content\", \"n\"",
        ],
    );
    fails("a.jsonl", "n", &["line 1", "column \"n\"", "expected text"]);
    fails("a.jsonl", "title", &["line 2", "no column"]);
}

/// Books as they are published, against the files they unpack to.
#[test]
fn a_published_archive() {
    let Some(data) = data() else { return };
    let path = data.join("corpora/tinystories-heldout.txt.xz");
    let (texts, _) = read(&path).unwrap();
    let mut whole = String::new();
    lzma_rust2::XzReader::new(std::fs::File::open(&path).unwrap(), true)
        .read_to_string(&mut whole)
        .unwrap();
    let wanted: Vec<&str> = whole
        .split("<|endoftext|>")
        .map(|t| t.trim_matches(['\n', '\r']))
        .filter(|t| !t.is_empty())
        .collect();
    assert!(texts == wanted && whole.len() > 1_000_000);
    let (books, skipped) = read(&data.join("corpora/books-held.tar.xz")).unwrap();
    let bytes: usize = books.iter().map(String::len).sum();
    assert_eq!((books.len(), skipped), (20, 0));
    assert!(bytes > 8_000_000, "{bytes}");
}

/// Data that is not part of the project, or `None` after saying so.
#[allow(clippy::print_stderr, reason = "a skipped test is visible")]
fn data() -> Option<PathBuf> {
    let folder = match std::env::var_os("SNELLEN_SHARED_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: {} not found", folder.display());
    None
}
