//! `snellen eval`: losses on a text, scores on a task.

use super::ids::{Codec, CodecArgs, read_documents, read_text};
use super::{describe, estimate};
use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use crate::parse;
use crate::places::separate;
use ::audit::eval::{
    EvalError, Item, TextCodec, Windows, count_items, parse_items, score_documents_in_pieces,
    score_task,
};
use checkpoint::{Checkpoint, HashCover};
use clap::{ArgGroup, Args};
use model::{DeviceKind, Model, ModelSpec};
use report::number::finite;
use report::schema::{
    Envelope, EvalReport, Outcome, PerplexityReport, TaskItemRecord, TaskOutcome, TaskReport,
    TextInfo,
};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use train::data::documents::{SEPARATOR, parts};

/// Arguments of `eval`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["text", "tokens", "task"]), after_long_help = RULES)]
pub(crate) struct EvalArgs {
    /// A model folder, .safetensors file or spec .toml
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Text to predict, UTF-8; `<|endoftext|>` separates documents, and no window reaches over it
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Token ids to predict: one document as whitespace separated text, little-endian .i32 or .u16, or .npy; or a .tok of `snellen tokens`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tokenizer", "bytes"])]
    tokens: Option<PathBuf>,
    /// Task to answer: JSON lines with context and continuation; query, choices and gold; context_options, continuation and
    /// gold; or HellaSwag's activity_label, ctx_a, ctx_b, endings and label (also as text, six lines an item)
    #[arg(long, value_name = "FILE")]
    task: Option<PathBuf>,
    #[command(flatten)]
    codec: CodecArgs,
    /// Tokens of a window [default: the trained length or the longest document, whichever is shorter]
    #[arg(short, long, value_name = "TOKENS", value_parser = parse::length, conflicts_with = "task")]
    length: Option<u64>,
    /// Tokens between the beginnings of two windows, up to --length [default: half of it]
    #[arg(long, value_name = "TOKENS", value_parser = parse::length, conflicts_with = "task")]
    stride: Option<u64>,
    /// Run each window in pieces of N tokens on a key/value cache, as servers do; changes rounding only [default: all at once]
    #[arg(long, value_name = "N", conflicts_with = "task", value_parser = parse::length)]
    chunk: Option<u64>,
    /// Where to run: cpu, or in a build with the feature of that name cuda, metal, rocm or wgpu (f32 with other roundings)
    #[arg(long, value_name = "DEVICE", value_parser = parse::device, default_value = "cpu", hide_default_value = true)]
    device: DeviceKind,
    /// Score the first N items of the task
    #[arg(long, value_name = "N", conflicts_with_all = ["text", "tokens"], value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// What stands between context and continuation
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["text", "tokens"], default_value = " ")]
    delimiter: String,
    /// Id put before every context of the task, such as the model's begin-of-text [default: none]
    #[arg(long, value_name = "ID", conflicts_with_all = ["text", "tokens"])]
    prefix_token: Option<u32>,
    /// Write what became of every item of the task, JSON lines
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "tokens"])]
    items: Option<PathBuf>,
}

const RULES: &str = "Texts: each window is run by itself; every token is predicted once, from what its window holds before it. \
    --stride 1 gives each token all the context of --length; --stride equal to --length makes disjoint blocks, whose first \
    tokens are not predicted.\n\n\
    Tasks are scored as lm-evaluation-harness does: white space at the end of the context moves to the continuation, both are \
    encoded together, and the ids beyond as many as the context alone has are scored. acc compares sums of log-likelihoods, \
    acc_norm divides them by the characters of the choice and acc_bytes by its bytes; a last word is right when greedy decoding \
    says all of it. Where a merge leaves the continuation no ids of its own, it begins at the first id that differs. Nothing is cut.";

/// Runs the verb.
pub(crate) fn run(args: &EvalArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    separate(&[
        ("--items", args.items.as_deref()),
        ("--out", global.out.as_deref()),
    ])?;
    let checkpoint = Arc::new(describe::open(&args.path)?);
    let spec = checkpoint.runnable()?.clone();
    let mut envelope = Envelope::new("eval", super::VERSION);
    let mut outcome = Outcome {
        notes: describe::notes(&checkpoint.config),
        ..Outcome::default()
    };
    outcome.notes.extend(describe::unused(&checkpoint));
    if args.device != DeviceKind::Cpu {
        outcome.notes.push(format!(
            "computed on {} in f32 by burn's own operations; the cpu's kernels round otherwise",
            args.device.name()
        ));
    }
    let (mut perplexity, mut task) = (None, None);
    match &args.task {
        None => {
            let documents = Documents::read(args, &checkpoint, &spec)?;
            outcome.notes.extend(documents.notes.iter().cloned());
            let windows = windows(args, &spec, &documents)?;
            envelope.length = Some(windows.length() as u64);
            let model = model(args, &spec, &checkpoint, windows.length(), global)?;
            let n = documents
                .ids
                .iter()
                .map(|ids| windows.of(ids.len()).count() as u64);
            let bar = global.talk().bar("windows", n.sum());
            let chunk = args
                .chunk
                .and_then(|n| NonZeroUsize::new(usize::try_from(n).unwrap_or(usize::MAX)));
            let score =
                score_documents_in_pieces(&model, &documents.ids, windows, chunk, &|| bar.inc(1))
                    .map_err(|error| at(&args.path, &error))?;
            bar.finish_and_clear();
            if score.nats.n() == 0 {
                return Err(Failure::error(format!(
                    "{}: no document has two tokens, so nothing is predicted",
                    documents.info.source
                )));
            }
            beyond_trained(&mut outcome, &spec, windows.length());
            envelope.text = Some(documents.info);
            perplexity = Some(PerplexityReport {
                chunk: args.chunk,
                ..PerplexityReport::new(&score, windows)
            });
        }
        Some(file) => {
            task = Some(answer(
                args,
                file,
                &checkpoint,
                &spec,
                &mut outcome,
                global,
            )?)
        }
    }
    envelope.model = Some(describe::hashed(
        &checkpoint,
        &args.path,
        HashCover::Everything,
    ));
    let report = EvalReport {
        envelope,
        perplexity,
        task,
        outcome,
    };
    crate::output::emit(report, global)
}

fn at(path: &Path, error: &EvalError) -> Failure {
    Failure::error(format!("{}: {error}", path.display()))
}

fn model(
    args: &EvalArgs,
    spec: &ModelSpec,
    checkpoint: &Arc<Checkpoint>,
    length: usize,
    global: &GlobalArgs,
) -> Result<Model, Failure> {
    let keep = estimate::check_repeated(spec, length, 1, global)?;
    Model::new(spec.clone(), checkpoint.clone())
        .and_then(|model| model.keep_weights(keep).on(args.device))
        .map_err(|error| Failure::error(error.to_string()))
}

fn beyond_trained(outcome: &mut Outcome, spec: &ModelSpec, length: usize) {
    if let Some(trained) = spec.trained_length.filter(|trained| length > *trained) {
        outcome.notes.push(format!(
            "sequences of up to {length} tokens are beyond the trained length, {trained}"
        ));
    }
}

/// The documents of a text: its parts between separators. A text without any separator is one document as it is.
fn documents(text: &str) -> Vec<&str> {
    match text {
        "" => Vec::new(),
        _ if text.contains(SEPARATOR) => parts(text).collect(),
        _ => vec![text],
    }
}

/// The documents of a text.
struct Documents {
    ids: Vec<Vec<u32>>,
    info: TextInfo,
    notes: Vec<String>,
}

impl Documents {
    fn read(args: &EvalArgs, checkpoint: &Checkpoint, spec: &ModelSpec) -> Result<Self, Failure> {
        let mut notes = Vec::new();
        let (ids, source, tokenizer) = match (&args.text, &args.tokens) {
            (Some(file), _) => {
                let codec = Codec::new(&args.codec, checkpoint, spec.vocab_size)?;
                let found = read_text(file, "--text")?;
                notes.extend(found.notes);
                let encoded = documents(&found.content).into_iter().map(|text| {
                    codec
                        .encode(text)
                        .map_err(|error| Failure::error(format!("{}: {error}", file.display())))
                });
                let ids = encoded.collect::<Result<Vec<_>, _>>()?;
                (ids, file, (codec.name(), codec.hash()))
            }
            (None, Some(file)) => {
                let ids = read_documents(file, spec.vocab_size)?;
                (ids, file, ("ids".to_owned(), None))
            }
            (None, None) => return Err(Failure::error("eval needs --text, --tokens or --task")),
        };
        let tokens: u64 = ids.iter().map(|ids| ids.len() as u64).sum();
        if tokens == 0 {
            return Err(Failure::error(format!(
                "{}: the text holds no tokens",
                source.display()
            )));
        }
        let mut hash = blake3::Hasher::new();
        for id in ids.iter().flatten() {
            hash.update(&id.to_le_bytes());
        }
        let info = TextInfo {
            source: source.display().to_string(),
            tokens,
            tokens_available: tokens,
            hash: hash.finalize().to_hex().to_string(),
            tokenizer: tokenizer.0,
            tokenizer_hash: tokenizer.1,
        };
        Ok(Self { ids, info, notes })
    }
}

fn windows(args: &EvalArgs, spec: &ModelSpec, documents: &Documents) -> Result<Windows, Failure> {
    let tokens = |asked: Option<u64>| asked.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let longest = documents.ids.iter().map(Vec::len).max().unwrap_or(0).max(2);
    let length = tokens(args.length)
        .or(spec.trained_length)
        .unwrap_or(longest);
    let stride = tokens(args.stride).unwrap_or((length / 2).max(1));
    // judged as asked; a window longer than every document is then that document
    Windows::new(length, stride).map_err(|error| Failure::error(error.to_string()))?;
    let (length, stride) = (length.min(longest), stride.min(length.min(longest)));
    Windows::new(length, stride).map_err(|error| Failure::error(error.to_string()))
}

fn answer(
    args: &EvalArgs,
    file: &Path,
    checkpoint: &Arc<Checkpoint>,
    spec: &ModelSpec,
    outcome: &mut Outcome,
    global: &GlobalArgs,
) -> Result<TaskReport, Failure> {
    let found = read_text(file, "--task")?;
    outcome.notes.extend(found.notes);
    let codec = Codec::new(&args.codec, checkpoint, spec.vocab_size)?;
    let in_file =
        |error: &dyn std::fmt::Display| Failure::error(format!("{}: {error}", file.display()));
    let limit = args.limit.map(|limit| limit as usize);
    let items = parse_items(&found.content, limit).map_err(|error| in_file(&error))?;
    if items.is_empty() {
        return Err(in_file(&"the task holds no items"));
    }
    let model = model(
        args,
        spec,
        checkpoint,
        spec.trained_length.unwrap_or(2048),
        global,
    )?;
    let bar = global.talk().bar("items", items.len() as u64);
    let score = score_task(
        &model,
        &codec,
        &items,
        &args.delimiter,
        args.prefix_token,
        &|| {
            bar.inc(1);
        },
    )
    .map_err(|error| in_file(&error))?;
    bar.finish_and_clear();
    let longest = score
        .items
        .iter()
        .map(|item| item.tokens_max)
        .max()
        .unwrap_or(0);
    beyond_trained(outcome, spec, longest);
    if let Some(path) = &args.items {
        write_items(path, &score.items)?;
    }
    let last_word = matches!(items[0], Item::LastWord { .. });
    let merged = |item: &&::audit::eval::ItemScore| item.alternatives.iter().any(|a| a.merged);
    #[allow(clippy::cast_precision_loss)] // numbers of choices
    let chances = score
        .items
        .iter()
        .map(|item| 1.0 / item.alternatives.len() as f64);
    let chance: ::audit::eval::Moments = chances.collect();
    let gold_nats = score.gold_nats.mean().and_then(finite);
    Ok(TaskReport {
        source: file.display().to_string(),
        hash: blake3::hash(found.content.as_bytes()).to_hex().to_string(),
        tokenizer: codec.name(),
        tokenizer_hash: codec.hash(),
        kind: match items[0] {
            Item::LastWord { .. } => "last-word",
            Item::Choices { .. } => "choices",
            Item::ContextOptions { .. } => "context-options",
        }
        .to_owned(),
        delimiter: args.delimiter.clone(),
        prefix_token: args.prefix_token,
        items: items.len() as u64,
        items_available: count_items(&found.content) as u64,
        chance: chance.mean().filter(|_| !last_word),
        acc: (&score.accuracy).into(),
        acc_norm: (&score.accuracy_by_character).into(),
        acc_bytes: (&score.accuracy_by_byte).into(),
        gold_nats,
        gold_nats_standard_error: score.gold_nats.standard_error().and_then(finite),
        perplexity: gold_nats
            .filter(|_| last_word)
            .and_then(|nats| finite(nats.exp())),
        merged_boundaries: score.items.iter().filter(merged).count() as u64,
        longest_tokens: longest as u64,
        outcomes: score.items.iter().map(TaskOutcome::from).collect(),
    })
}

fn write_items(path: &Path, items: &[::audit::eval::ItemScore]) -> Result<(), Failure> {
    let mut lines = String::new();
    for (index, item) in items.iter().enumerate() {
        let record = serde_json::to_string(&TaskItemRecord::new(index, item))
            .map_err(|error| Failure::error(format!("JSON: {error}")))?;
        lines.push_str(&record);
        lines.push('\n');
    }
    crate::output::write_file(path, lines.as_bytes())
        .map_err(|error| Failure::cannot_write(&path.display().to_string(), &error))
}
