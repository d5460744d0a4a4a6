//! `snellen tokens`: a tokenizer of one's own, and text into token files.

use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use checkpoint::tokenizer::Tokenizer;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use train::data::bpe;
use train::data::documents::{documents, text_files};
use train::data::encode::{EncodeOptions, encode, separator};

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
    /// Text: .txt, .md, .raw and .jsonl files, or folders of them; `<|endoftext|>` separates documents inside a text file
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Field of .jsonl lines that holds the text
    #[arg(long, default_value = "text", value_name = "NAME")]
    field: String,
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

fn train_tokenizer(args: &TrainTokenizerArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let mut texts = Vec::new();
    let target = args.to.canonicalize().ok();
    for file in text_files(&args.corpus.paths)? {
        if target.is_some() && file.canonicalize().ok() == target {
            return Err(Failure::error(format!(
                "--to {}: is a file of the corpus; name another file for the tokenizer",
                args.to.display()
            )));
        }
        texts.extend(documents(&file, &args.corpus.field)?);
    }
    if texts.is_empty() {
        return Err(Failure::error(
            "the corpus holds no text: every document is empty",
        ));
    }
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
    let bar = global.talk().bar("encoding", 0);
    let options = EncodeOptions {
        paths: args.corpus.paths.clone(),
        field: args.corpus.field.clone(),
        held_permille: args.held_permille,
    };
    let written = encode(&options, &tokenizer, &args.to, &|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    if separator(&tokenizer).is_none() {
        global.talk().say(
            "warning: the tokenizer has no token <|endoftext|>: documents follow one another without a mark between them",
        );
    }
    for split in &written {
        let file: &Path = &args.to.join(format!("{}.tok", split.split));
        global.talk().say(&format!(
            "{}: {} tokens of {} bits, {} documents",
            file.display(),
            split.tokens,
            split.width,
            split.documents
        ));
    }
    Ok(Exit::Clean)
}
