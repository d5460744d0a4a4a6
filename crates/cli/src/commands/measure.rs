//! `snellen measure`: what every head does on a text, many plans in one pass.

use super::{describe, estimate};
use crate::args::{GlobalArgs, PlanArgs};
use crate::embedded;
use crate::failure::{Exit, Failure};
use crate::parse::{self, Selection};
use ::audit::checks::{AuditContext, Target, run_all, shell_word};
use ::audit::evidence::{
    ContentAdvantage, Evidence, EvidenceCollector, EvidenceOptions, HeadEvidence,
};
use checkpoint::tokenizer::{Tokenizer, check_ids};
use checkpoint::{Checkpoint, HashCover};
use clap::Args;
use model::{ForwardOptions, Model, ModelError, ModelSpec};
use report::number::finite;
use report::schema::{
    Envelope, LossInfo, MeasureHead, MeasureReport, MeasureSummary, Outcome, TextInfo,
};
use report::text::plural;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments of `measure`.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// A model folder, .safetensors file or spec .toml [default: an embedded model of a million parameters]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// Text to run, UTF-8
    #[arg(long, value_name = "FILE", conflicts_with = "tokens")]
    text: Option<PathBuf>,
    /// Token ids to run: whitespace separated text, little-endian .i32 or .u16, .npy, or a .tok of `snellen tokens`
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Tokenizer for --text [default: the model's own]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tokens", "bytes"])]
    tokenizer: Option<PathBuf>,
    /// One token id a byte of --text
    #[arg(long, conflicts_with = "tokens")]
    bytes: bool,
    /// Tokens to use [default: the trained length or the whole text, whichever is shorter]
    #[arg(short, long, value_name = "TOKENS", value_parser = parse::length)]
    length: Option<u64>,
    /// Repeat a text that is shorter than --length
    #[arg(long, requires = "length")]
    repeat: bool,
    #[command(flatten)]
    plans: PlanArgs,
    /// Layers to look at, by index: 3,5 or 0-7
    #[arg(long, value_name = "LIST")]
    layers: Option<Selection>,
    /// Heads to look at, by index: 3,5 or 0-7
    #[arg(long, value_name = "LIST")]
    heads: Option<Selection>,
}

/// Runs the verb.
pub(crate) fn run(args: &MeasureArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let unpacked = if args.path.is_none() {
        Some(embedded::Unpacked::new()?)
    } else {
        None
    };
    let path = match (&args.path, &unpacked) {
        (Some(path), _) => path.as_path(),
        (None, Some(unpacked)) => unpacked.path(),
        (None, None) => unreachable!("unpacked when no path is given"),
    };
    let checkpoint = Arc::new(describe::open(path)?);
    let spec = checkpoint.runnable()?.clone();
    let layers = Selection::resolve(args.layers.as_ref(), "--layers", spec.n_layers)?;
    let heads = Selection::resolve(args.heads.as_ref(), "--heads", spec.n_heads)?;
    let plans = args.plans.resolve(&checkpoint.config)?;
    // judged before the ids are laid out: a length far beyond any memory is refused, not tried
    let affordable = |length| estimate::check(&spec, length, plans.len(), heads.len(), global);
    let tokens = Tokens::read(args, &checkpoint, &spec, affordable)?;

    let mut outcome = Outcome {
        notes: tokens.notes.clone(),
        ..Outcome::default()
    };
    if unpacked.is_some() {
        outcome.notes.insert(
            0,
            "no path was given: this is the embedded model, a million parameters of plain ALiBi trained at 512 tokens on the \
             documentation of Python; its findings decide the exit code only with --fail-on; `snellen measure PATH --text FILE` \
             looks at yours"
                .to_owned(),
        );
    }
    outcome.notes.extend(describe::notes(&checkpoint.config));
    outcome.notes.extend(describe::unused(&checkpoint));

    let options = EvidenceOptions {
        length: tokens.ids.len(),
        layers: args.layers.is_some().then_some(layers),
        heads: args.heads.is_some().then_some(heads),
        several_calls: false,
        row_by_row: false,
    };
    let collector = EvidenceCollector::new(&spec, plans.clone(), options);
    let loss = forward(&spec, &checkpoint, &tokens.ids, &collector, global)
        .map_err(|error| Failure::error(format!("{}: {error}", path.display())))?;
    let evidence = collector.finish();
    outcome.notes.extend(left_out(&evidence));

    let length = tokens.ids.len() as u64;
    let named = args.path.as_ref().map(|path| path.display().to_string());
    let text = text_flags(args);
    let context = AuditContext {
        target: named.as_deref().map_or(Target::Unnamed, Target::Path),
        facts: &checkpoint.config,
        plans: &plans,
        length,
        text: text.as_deref(),
        certificates: None,
        evidence: Some(&evidence),
    };
    outcome.add_checks(&run_all(&context));
    outcome.drop_repeated_notes();

    let mut envelope = Envelope::new("measure", super::VERSION);
    let mut info = describe::hashed(&checkpoint, path, HashCover::Everything);
    if unpacked.is_some() {
        info.path = None;
    }
    envelope.model = Some(info);
    envelope.plan = plans.first().map(|plan| plan.key().to_owned());
    envelope.length = Some(length);
    envelope.text = Some(tokens.info);
    let heads: Vec<MeasureHead> = evidence
        .heads
        .iter()
        .map(|head| MeasureHead::new(head, &evidence.edges))
        .collect();
    let report = MeasureReport {
        envelope,
        plans: plans.iter().map(describe::plan).collect(),
        loss: Some(loss),
        summary: MeasureSummary::of(&heads),
        heads,
        outcome,
    };
    let demonstration = unpacked.is_some() && global.fail_on.is_empty();
    let mut global = global.clone();
    global.exit_zero |= demonstration;
    crate::output::emit(report, &global)
}

fn forward(
    spec: &ModelSpec,
    checkpoint: &Arc<Checkpoint>,
    ids: &[u32],
    collector: &EvidenceCollector,
    global: &GlobalArgs,
) -> Result<LossInfo, ModelError> {
    let model = Model::new(spec.clone(), checkpoint.clone())?;
    let bar = global.talk().bar("layers", spec.n_layers as u64);
    let progress = |_layer: usize| bar.inc(1);
    let options = ForwardOptions {
        observer: Some(Arc::new(collector.clone())),
        progress: Some(&progress),
        ..ForwardOptions::default()
    };
    let hidden = model.forward(ids, options)?;
    bar.finish_and_clear();
    let loss = model.loss(&hidden, ids)?;
    let nats_per_token = loss.mean().and_then(finite);
    Ok(LossInfo {
        nats_per_token,
        perplexity: nats_per_token.and_then(|nats| finite(nats.exp())),
        tokens: loss.nats_per_token.len() as u64,
    })
}

/// Why numbers of heads are missing that a text of this length gives.
fn left_out(evidence: &Evidence) -> Vec<String> {
    let said = |missing: &dyn Fn(&HeadEvidence) -> bool, what: &str| {
        let n = evidence.heads.iter().filter(|head| missing(head)).count() as u64;
        (n > 0).then(|| format!("{}: {what}", plural(n, "head")))
    };
    let beyond = |advantage: &ContentAdvantage| {
        let missing = |largest: Option<f64>, p99: Option<f64>| largest.is_some() && p99.is_none();
        missing(advantage.largest_over_diagonal, advantage.p99_over_diagonal)
            || missing(advantage.largest_over_recent, advantage.p99_over_recent)
    };
    let not_finite = |value: Option<f64>| value.is_some_and(|value| !value.is_finite());
    let notes = [
        said(
            &|head| beyond(&head.advantage),
            "a percentile of the content advantage lies more than 256 nats from 0 and is not given",
        ),
        said(
            &|head| not_finite(head.entropy_nats) || not_finite(head.max_score),
            "scores are so large that the entropy or the largest of them leaves its format and is not given",
        ),
    ];
    notes.into_iter().flatten().collect()
}

/// The flags that name the text, as they were given.
fn text_flags(args: &MeasureArgs) -> Option<String> {
    let path = |flag: &str, path: &Option<PathBuf>| {
        let path = path.as_ref()?;
        Some(format!(
            "{flag} {}",
            shell_word(&path.display().to_string())
        ))
    };
    let flag = |given: bool, flag: &str| given.then(|| flag.to_owned());
    let flags: Vec<String> = [
        path("--text", &args.text),
        path("--tokens", &args.tokens),
        path("--tokenizer", &args.tokenizer),
        flag(args.bytes, "--bytes"),
        flag(args.repeat, "--repeat"),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!flags.is_empty()).then(|| flags.join(" "))
}

/// The ids to run and where they came from.
struct Tokens {
    ids: Vec<u32>,
    info: TextInfo,
    notes: Vec<String>,
}

impl Tokens {
    fn read(
        args: &MeasureArgs,
        checkpoint: &Checkpoint,
        spec: &ModelSpec,
        affordable: impl FnOnce(usize) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let plain = |tokenizer: &str| (tokenizer.to_owned(), None);
        let mut notes = Vec::new();
        let (all, source, tokenizer) = match (&args.text, &args.tokens) {
            (_, Some(file)) => (
                super::ids::read_documents(file, spec.vocab_size)?.concat(),
                file.display().to_string(),
                plain("ids"),
            ),
            (Some(file), None) => {
                let found = super::ids::read_bytes(file, "--text")?;
                notes.extend(found.notes);
                let (ids, tokenizer) = encode(args, file, found.content, checkpoint)?;
                (ids, file.display().to_string(), tokenizer)
            }
            (None, None) if args.path.is_none() => {
                let text = embedded::TEXT.as_bytes().to_vec();
                let (ids, tokenizer) = encode(args, Path::new(embedded::NAME), text, checkpoint)?;
                (ids, embedded::NAME.to_owned(), tokenizer)
            }
            (None, None) => {
                return Err(Failure::error(
                    "measure needs a text: add --text FILE or --tokens FILE",
                ));
            }
        };
        if all.is_empty() {
            return Err(Failure::error(format!(
                "{source}: the text holds no tokens"
            )));
        }
        check_ids(&all, spec.vocab_size)
            .map_err(|error| Failure::error(format!("{source}: {error}")))?;
        let (used, about_length) = length_used(args, spec, &source, all.len())?;
        notes.extend(about_length);
        affordable(used)?;
        let ids: Vec<u32> = all.iter().copied().cycle().take(used).collect();
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let info = TextInfo {
            source,
            tokens: used as u64,
            tokens_available: all.len() as u64,
            hash: blake3::hash(&bytes).to_hex().to_string(),
            tokenizer: tokenizer.0,
            tokenizer_hash: tokenizer.1,
        };
        Ok(Self { ids, info, notes })
    }
}

/// How many of `available` tokens are used, and a note where that is not all of them once: never cut without saying so.
fn length_used(
    args: &MeasureArgs,
    spec: &ModelSpec,
    source: &str,
    available: usize,
) -> Result<(usize, Vec<String>), Failure> {
    let asked = args
        .length
        .map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    let used = match asked {
        Some(asked) if asked > available && !args.repeat => {
            return Err(Failure::error(format!(
                "{source}: the text has {} and --length asks for {asked}; give a longer text, a smaller --length, or \
                 --repeat",
                tokens(available)
            )));
        }
        Some(asked) => asked,
        None => spec
            .trained_length
            .map_or(available, |trained| trained.min(available)),
    };
    let note = if used > available {
        format!(
            "the text of {} is repeated to fill {used}",
            tokens(available)
        )
    } else if used == available {
        return Ok((used, Vec::new()));
    } else if asked.is_some() {
        format!(
            "the first {used} of {} are used (--length)",
            tokens(available)
        )
    } else {
        format!(
            "the first {used} of {} are used (the trained length; --length takes more)",
            tokens(available)
        )
    };
    Ok((used, vec![note]))
}

/// `1 token`, `3 tokens`.
fn tokens(count: usize) -> String {
    report::text::plural(count as u64, "token")
}

/// Name and, for a file, hash of what made the ids.
type TokenizerName = (String, Option<String>);

/// Ids of the bytes of a text file, and what made them.
fn encode(
    args: &MeasureArgs,
    file: &Path,
    bytes: Vec<u8>,
    checkpoint: &Checkpoint,
) -> Result<(Vec<u32>, TokenizerName), Failure> {
    if args.bytes {
        return Ok((super::ids::byte_ids(&bytes), ("bytes".to_owned(), None)));
    }
    let text = super::ids::as_text(file, bytes)?;
    let tokenizer = match &args.tokenizer {
        Some(path) => Tokenizer::open(path)?,
        None => checkpoint.tokenizer()?,
    };
    let name = tokenizer
        .path()
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let hash = tokenizer.hash().to_owned();
    Ok((tokenizer.encode(&text)?, (name, Some(hash))))
}
