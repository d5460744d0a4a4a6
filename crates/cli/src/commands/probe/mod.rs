//! `snellen probe`: what a model finds in a long text.

mod results;

use super::ids::{Codec, CodecArgs, read_text};
use super::{describe, estimate};
use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use crate::parse;
use ::audit::probe::{CellPrompts, Haystack, ProbeTask, PromptBuilder, WhatIf, run_cell};
use checkpoint::{Checkpoint, HashCover};
use clap::Args;
use model::{Model, ModelSpec};
use report::schema::{
    Envelope, Outcome, ProbeArea, ProbeCell, ProbeReport, ProbeSample, ProbeScore, ProbeSettings,
    ProbeWhatIf,
};
use results::Results;
use std::path::PathBuf;
use std::sync::Arc;

/// The longest prompt, 16M tokens: beyond it a mistyped length would fill the memory with filler before anything is refused.
const LENGTH_MAX: usize = 1 << 24;

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// A model folder, .safetensors file or spec .toml
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// What is to be found: passkey (a number in repetitive filler), needle (a number in the prose of --text) or
    /// key-value (one of many lines of names and numbers)
    #[arg(long, value_name = "NAME", default_value = "passkey")]
    task: String,
    /// Text to hide the needle in, UTF-8; cut at sentences, used once from its beginning, not repeated
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    #[command(flatten)]
    codec: CodecArgs,
    /// Tokens of prompt and answer together, comma separated; the filler shrinks to fit and nothing is cut
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true, value_parser = parse::length)]
    lengths: Vec<u64>,
    /// Depths, evenly spaced from the first place to the last; 1 is the middle
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1001))]
    depths: u16,
    /// Samples a cell
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,
    /// Seed of the keys
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Id put before the prompt, such as the model's begin-of-text [default: none]
    #[arg(long, value_name = "ID")]
    prefix_token: Option<u32>,
    /// Try cells with misses under another bias, comma separated: clamp=-12, log, slopes/2, interpolate (trained length over
    /// length), interpolate=0.5
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    what_if: Vec<String>,
    /// Append every finished cell to FILE, and skip those it holds
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

/// Runs the verb.
pub(crate) fn run(args: &ProbeArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let failed = |error: ::audit::eval::EvalError| Failure::error(error.to_string());
    let task =
        ProbeTask::named(&args.task).map_err(|error| Failure::error(format!("--task: {error}")))?;
    let changes = args.what_if.iter().map(|text| WhatIf::parse(text));
    let changes = changes
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Failure::error(format!("--what-if: {error}")))?;
    let checkpoint = Arc::new(describe::open(&args.path)?);
    let spec = checkpoint.runnable()?.clone();
    let codec = Codec::new(&args.codec, &checkpoint, spec.vocab_size)?;
    let text = text_for(&task, args)?;
    let info = describe::hashed(&checkpoint, &args.path, HashCover::Everything);
    let (lengths, depths) = (lengths(args), depths(args.depths));
    let settings = ProbeSettings {
        task: task.task.clone(),
        task_version: task.version,
        model_hash: info.hash.clone().unwrap_or_default(),
        tokenizer: codec.name(),
        tokenizer_hash: codec.hash(),
        haystack_hash: text
            .as_ref()
            .map(|text| blake3::hash(text.as_bytes()).to_hex().to_string()),
        prefix_token: args.prefix_token,
        lengths: lengths.iter().map(|&length| length as u64).collect(),
        depths: depths.clone(),
        samples: args.samples.into(),
        seed: args.seed,
        what_if: changes
            .iter()
            .map(|change| change.name().to_owned())
            .collect(),
    };

    let longest = lengths.last().copied().unwrap_or(0);
    if longest > LENGTH_MAX {
        return Err(Failure::error(format!(
            "--lengths: {longest} tokens are more than the longest prompt that is built, {LENGTH_MAX}"
        )));
    }
    let keep = estimate::check_repeated(&spec, longest, global)?;
    let haystack = match &text {
        Some(text) => Haystack::of_text(&codec, text),
        None => Haystack::of_task(&codec, &task, longest, args.seed),
    };
    let haystack = haystack.map_err(|error| match &args.text {
        Some(file) => Failure::error(format!("{}: {error}", file.display())),
        None => Failure::error(error.to_string()),
    })?;
    let builder = PromptBuilder::new(&codec, &task, haystack, args.prefix_token, args.seed)
        .map_err(failed)?;
    // every prompt can be built, and every change applied, or nothing is run; one cell's prompts are in memory at a time
    let build = |(length, depth)| {
        builder
            .cell(length, depth, args.samples as usize)
            .map_err(failed)
    };
    let mut places = Vec::new();
    for &length in &lengths {
        for change in &changes {
            let changed = change.apply(&spec, length).map_err(failed)?;
            changed
                .validate()
                .map_err(|error| Failure::error(format!("--what-if {}: {error}", change.name())))?;
        }
        for &depth in &depths {
            build((length, depth))?;
            places.push((length, depth));
        }
    }
    let runner = Runner {
        checkpoint: &checkpoint,
        codec: &codec,
        spec: &spec,
        keep,
    };
    let model = runner.model(spec.clone())?;
    let mut results = Results::open(args.results.as_deref(), &settings)?;
    let bar = global.talk().bar("cells", places.len() as u64);
    let mut cells = Vec::with_capacity(places.len());
    for place in places {
        let cell = match results.find(place.0 as u64, place.1) {
            Some(cell) => cell.clone(),
            None => results.add(&runner.cell(&model, &build(place)?, &changes)?)?,
        };
        cells.push(cell);
        bar.inc(1);
    }
    bar.finish_and_clear();

    let mut outcome = Outcome {
        notes: describe::notes(&checkpoint.config),
        ..Outcome::default()
    };
    outcome.notes.extend(describe::unused(&checkpoint));
    let trained = spec.trained_length.map(|length| length as u64);
    if trained.is_none() {
        outcome.notes.push(
            "the model does not say its trained length, so the grid is not divided by it"
                .to_owned(),
        );
    }
    let mut envelope = Envelope::new("probe", super::VERSION);
    envelope.model = Some(info);
    envelope.seed = Some(args.seed);
    let part = |inside: bool| {
        let trained = trained?;
        ProbeArea::of(&cells, |cell| (cell.length <= trained) == inside)
    };
    let report = ProbeReport {
        envelope,
        configuration: results::configuration(&settings)?,
        settings,
        all: ProbeArea::of(&cells, |_| true).unwrap_or_default(),
        inside_trained_length: part(true),
        beyond_trained_length: part(false),
        cells,
        outcome,
    };
    crate::output::emit(report, global)
}

/// The text to hide the fact in, for a task that brings none.
fn text_for(task: &ProbeTask, args: &ProbeArgs) -> Result<Option<String>, Failure> {
    match (&args.text, task.needs_text()) {
        (Some(_), false) => Err(Failure::error(format!(
            "--task {} brings its own filler; --text is for the needle task",
            task.task
        ))),
        (None, true) => Err(Failure::error(format!(
            "--task {} needs a text to hide its fact in: add --text FILE",
            task.task
        ))),
        (text, _) => text
            .as_deref()
            .map(|file| read_text(file, "--text"))
            .transpose(),
    }
}

/// The lengths asked for, each once, ascending.
fn lengths(args: &ProbeArgs) -> Vec<usize> {
    let tokens = |&length: &u64| usize::try_from(length).unwrap_or(usize::MAX);
    let mut lengths: Vec<usize> = args.lengths.iter().map(tokens).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// `n` depths from 0 to 1.
fn depths(n: u16) -> Vec<f64> {
    match n {
        1 => vec![0.5],
        n => (0..n).map(|at| f64::from(at) / f64::from(n - 1)).collect(),
    }
}

struct Runner<'a> {
    checkpoint: &'a Arc<Checkpoint>,
    codec: &'a Codec,
    spec: &'a ModelSpec,
    keep: bool,
}

impl Runner<'_> {
    fn model(&self, spec: ModelSpec) -> Result<Model, Failure> {
        Model::new(spec, self.checkpoint.clone())
            .map(|model| model.keep_weights(self.keep))
            .map_err(|error| Failure::error(error.to_string()))
    }

    /// Runs a cell, and where something was missed, again under each change.
    fn cell(
        &self,
        model: &Model,
        prompts: &CellPrompts,
        changes: &[WhatIf],
    ) -> Result<ProbeCell, Failure> {
        let failed = |error: ::audit::eval::EvalError| Failure::error(error.to_string());
        let samples = run_cell(model, self.codec, prompts).map_err(failed)?;
        let mut cell = ProbeCell::new(prompts, &samples);
        if cell.score.hits == cell.score.samples {
            return Ok(cell);
        }
        for change in changes {
            let spec = change.apply(self.spec, prompts.length).map_err(failed)?;
            // dropped after the cell: one changed model is in memory at a time
            let changed = self.model(spec)?;
            let samples = run_cell(&changed, self.codec, prompts).map_err(failed)?;
            let samples: Vec<ProbeSample> = samples.iter().map(ProbeSample::from).collect();
            cell.what_if.push(ProbeWhatIf {
                change: change.name().to_owned(),
                score: ProbeScore::of(&samples),
            });
        }
        Ok(cell)
    }
}
