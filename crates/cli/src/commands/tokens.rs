//! `snellen tokens`: a tokenizer of one's own, and text into token files.

use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use checkpoint::tokenizer::Tokenizer;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use train::data::bpe;
use train::data::corpus::{CorpusFiles, corpus_files};
use train::data::documents::{Document, each_document};
use train::data::encode::{EncodeOptions, bytes_on_disk, encode, separator};

/// Arguments of `tokens`.
#[derive(Debug, Args)]
pub(crate) struct TokensArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Train a byte-level BPE tokenizer on text
    Train(TrainTokenizerArgs),
    /// Encode text into train.tok and held.tok
    Encode(EncodeArgs),
}

#[derive(Debug, Args)]
struct Corpus {
    /// Text: .txt, .md, .raw and .jsonl files (also .gz, .xz, .zst), .parquet, archives (.tar, .tar.gz, .tar.xz, .tar.zst), or folders of
    /// them; `<|endoftext|>` separates documents inside a text
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Column of .jsonl and .parquet that holds the text
    #[arg(long, alias = "field", default_value = "text", value_name = "NAME")]
    column: String,
}

#[derive(Debug, Args)]
struct TrainTokenizerArgs {
    #[command(flatten)]
    corpus: Corpus,
    /// Entries of the vocabulary
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    vocab: u32,
    /// File to write
    #[arg(long, value_name = "FILE", default_value = "tokenizer.json")]
    to: PathBuf,
}

#[derive(Debug, Args)]
struct EncodeArgs {
    #[command(flatten)]
    corpus: Corpus,
    /// The tokenizer
    #[arg(long, value_name = "FILE", default_value = "tokenizer.json")]
    tokenizer: PathBuf,
    /// Folder to write into
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    to: PathBuf,
    /// Documents of a thousand that are held out, chosen by the hash of their text
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=999))]
    held_permille: u64,
}

/// Runs the verb.
pub(crate) fn run(args: &TokensArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    global.refuse_document_flags("tokens", &[])?;
    match &args.what {
        What::Train(args) => train_tokenizer(args, global),
        What::Encode(args) => encode_corpus(args, global),
    }
}

/// All documents of a corpus, in memory.
fn gather(args: &TrainTokenizerArgs, global: &GlobalArgs) -> Result<Vec<Document>, Failure> {
    let corpus = corpus_files(&args.corpus.paths)?;
    let files = &corpus.files;
    let target = args.to.canonicalize().ok();
    if target.is_some() && files.iter().any(|f| f.canonicalize().ok() == target) {
        return Err(Failure::error(format!(
            "--to {}: is a file of the corpus; name another file for the tokenizer",
            args.to.display()
        )));
    }
    let bar = global.talk().byte_bar("reading", bytes_on_disk(files)?);
    let read = AtomicU64::new(0);
    let mut documents = Vec::new();
    let mut skipped = 0;
    for file in files {
        skipped += each_document(file, &args.corpus.column, &read, &mut |document| {
            documents.push(document);
            bar.set_position(read.load(Ordering::Relaxed));
            Ok(())
        })?;
    }
    bar.finish_and_clear();
    say_skipped(skipped, &corpus, global);
    if documents.is_empty() {
        return Err(Failure::error(
            "the corpus holds no text: every document is empty",
        ));
    }
    Ok(documents)
}

/// Says what of the named paths is not in the corpus: a corpus that is smaller than its folder should not surprise.
fn say_skipped(entries: u64, corpus: &CorpusFiles, global: &GlobalArgs) {
    let warn = |count: u64, one: &str, several: &str| match count {
        0 => {}
        1 => global.talk().say(&format!("warning: 1 {one}")),
        _ => global.talk().say(&format!("warning: {count} {several}")),
    };
    warn(
        entries,
        "entry of an archive is no text by its name and was skipped",
        "entries of archives are no text by their names and were skipped",
    );
    warn(
        corpus.passed_over,
        "file in the folders is no text by its name and was passed over",
        "files in the folders are no text by their names and were passed over",
    );
    warn(
        corpus.repeated,
        "file was reached a second time and is read once",
        "files were reached a second time and are read once",
    );
}

fn train_tokenizer(args: &TrainTokenizerArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let texts = gather(args, global)?;
    let spinner = global.talk().spinner("training the tokenizer");
    let json = bpe::train(texts.iter().map(|d| d.text.as_str()), args.vocab as usize)?;
    spinner.finish_and_clear();
    crate::output::write_file(&args.to, json.as_bytes())
        .map_err(|error| Failure::cannot_write(&args.to.display().to_string(), &error))?;
    let tokenizer = Tokenizer::open(&args.to)?;
    let found = tokenizer.vocab_size();
    let bytes: usize = texts.iter().map(|d| d.text.len()).sum();
    global.talk().say(&format!(
        "{}: {found} entries from {} documents, {bytes} bytes",
        args.to.display(),
        texts.len()
    ));
    if found < args.vocab as usize {
        global.talk().say(&format!(
            "warning: asked for {} entries; the text has no more pairs that occur twice",
            args.vocab
        ));
    }
    Ok(Exit::Clean)
}

fn encode_corpus(args: &EncodeArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let tokenizer = Tokenizer::open(&args.tokenizer)?;
    let bar = global.talk().byte_bar("encoding", 0);
    let options = EncodeOptions {
        paths: args.corpus.paths.clone(),
        column: args.corpus.column.clone(),
        held_permille: args.held_permille,
    };
    let encoded = encode(&options, &tokenizer, &args.to, &|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    say_skipped(encoded.skipped, &encoded.corpus, global);
    if separator(&tokenizer).is_none() {
        global.talk().say(
            "warning: the tokenizer has no token <|endoftext|>: documents follow one another without a mark between them",
        );
    }
    for split in &encoded.written {
        let file: &Path = &args.to.join(format!("{}.tok", split.split));
        global.talk().say(&format!(
            "{}: {} tokens of {} bits, {} documents",
            file.display(),
            split.tokens,
            split.width,
            split.documents
        ));
        if split.tokens == 0 {
            global.talk().say(&format!(
                "warning: {} is empty: whole documents are held out, by the hash of their text, and there are {} in all; separate \
                 documents by <|endoftext|> or give another --held-permille",
                file.display(),
                encoded.written.iter().map(|s| s.documents).sum::<u64>()
            ));
        }
    }
    Ok(Exit::Clean)
}
