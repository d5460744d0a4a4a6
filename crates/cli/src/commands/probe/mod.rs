//! `snellen probe`: what a model finds in a long text.

mod args;
mod effort;
mod grid;
mod prompts;
mod results;
mod runner;

use super::describe;
use super::estimate;
use super::ids::{Codec, Found, read_text};
use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use ::audit::eval::EvalError;
use ::audit::probe::{Haystack, ProbeTask, PromptBuilder, WhatIf};
pub(crate) use args::ProbeArgs;
use checkpoint::{Checkpoint, HashCover};
use effort::Effort;
use grid::Grid;
use report::schema::{
    Envelope, ModelInfo, Outcome, ProbeArea, ProbeCell, ProbeReport, ProbeSettings,
};
use results::Results;
use runner::Runner;
use std::sync::Arc;

/// The longest prompt, 16M tokens: beyond it a mistyped length would fill the memory with filler before anything is refused.
const LENGTH_MAX: usize = 1 << 24;

fn failed(error: EvalError) -> Failure {
    Failure::error(error.to_string())
}

/// Runs the verb.
pub(crate) fn run(args: &ProbeArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    args.separate_files(global)?;
    let task = args.task()?;
    let checkpoint = Arc::new(describe::open(&args.path)?);
    let spec = checkpoint.runnable()?.clone();
    let changes = args.changes(&checkpoint.config)?;
    let plans = match args.no_witness || args.control {
        true => Vec::new(),
        false => args.plans.resolve(&checkpoint.config)?,
    };
    let codec = Codec::new(&args.codec, &checkpoint, spec.vocab_size)?;
    if let Some(id) = args.prefix_token
        && id as usize >= spec.vocab_size
    {
        return Err(Failure::error(format!(
            "--prefix-token {id}: the model has the ids 0 to {}",
            spec.vocab_size - 1
        )));
    }
    let (text, notes) = match text_for(&task, args)? {
        Some(found) => (Some(found.content), found.notes),
        None => (None, Vec::new()),
    };
    let info = describe::hashed(&checkpoint, &args.path, HashCover::Everything);
    let grid = Grid::new(args)?;
    let mut settings = settings(args, &task, &grid, &info, &codec, text.as_deref());
    settings.what_if = names(changes.iter().map(WhatIf::name));
    settings.plans = names(plans.iter().map(|plan| plan.key()));

    let haystack = haystack(args, &task, &codec, text.as_deref(), grid.longest())?;
    let builder = PromptBuilder::new(&codec, &task, haystack, args.prefix_token, args.seed)
        .map_err(failed)?
        .control(args.control);
    if args.build_only {
        return prompts::only(
            args,
            &builder,
            &codec,
            &grid,
            settings,
            info,
            Effort::new(&spec),
            notes,
            global,
        );
    }
    // room for the beginning that cells share, beside the cell's own copy of it
    let keep = estimate::check_repeated(&spec, grid.longest(), 2, global)?;
    // every prompt can be built, and every change applied, or nothing is run; one cell's prompts are in memory at a time
    for &length in &grid.lengths {
        for change in &changes {
            let changed = change.apply(&spec, length).map_err(failed)?;
            changed
                .validate()
                .map_err(|error| Failure::error(format!("--what-if {}: {error}", change.name())))?;
        }
    }
    let mut effort = Effort::new(&spec);
    for (length, depth) in grid.places() {
        effort.add(&builder.cell(length, depth, grid.samples).map_err(failed)?);
    }
    if let Some(file) = &args.prompts {
        prompts::write(file, &builder, &codec, &grid)?;
    }
    let runner = Runner {
        checkpoint: &checkpoint,
        codec: &codec,
        spec: &spec,
        keep,
        changes: &changes,
        plans: &plans,
    };
    let mut results = Results::open(args.results.as_deref(), &settings)?;
    results.merge(&args.merge, &settings)?;
    let cells = runner.grid(&grid, &builder, results, effort, global)?;
    if let Some(file) = &args.items {
        prompts::write_items(file, &cells)?;
    }
    let outcome = outcome(&checkpoint, spec.trained_length.is_none(), notes);
    let trained = spec.trained_length.map(|length| length as u64);
    let report = report(args, settings, info, cells, trained, outcome)?;
    crate::output::emit(report, global)
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    names.map(str::to_owned).collect()
}

/// BLAKE3 hash of ids as little-endian `u32`.
fn hash_ids(ids: &[u32]) -> String {
    let mut hash = blake3::Hasher::new();
    for id in ids {
        hash.update(&id.to_le_bytes());
    }
    hash.finalize().to_hex().to_string()
}

/// Everything the results depend on but plans and changes.
fn settings(
    args: &ProbeArgs,
    task: &ProbeTask,
    grid: &Grid,
    info: &ModelInfo,
    codec: &Codec,
    text: Option<&str>,
) -> ProbeSettings {
    ProbeSettings {
        task: task.task.clone(),
        task_version: task.version,
        model_hash: info.hash.clone().unwrap_or_default(),
        tokenizer: codec.name(),
        tokenizer_hash: codec.hash(),
        haystack_hash: text.map(|text| blake3::hash(text.as_bytes()).to_hex().to_string()),
        prefix_token: args.prefix_token,
        lengths: grid.lengths.iter().map(|&length| length as u64).collect(),
        depths: grid.depths.clone(),
        samples: grid.samples as u64,
        seed: args.seed,
        what_if: Vec::new(),
        plans: Vec::new(),
        needles: task.needles.into(),
        shuffled: args.shuffle,
        control: args.control,
    }
}

/// The text to hide the fact in: where a task brings none it has to be given, elsewhere it takes the place of the task's own.
fn text_for(task: &ProbeTask, args: &ProbeArgs) -> Result<Option<Found<String>>, Failure> {
    match (&args.text, task.needs_text()) {
        (Some(_), false) if task.line.is_some() => Err(Failure::error(format!(
            "--task {} brings its own filler, lines among which one is asked for; leave --text away",
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

fn haystack(
    args: &ProbeArgs,
    task: &ProbeTask,
    codec: &Codec,
    text: Option<&str>,
    longest: usize,
) -> Result<Haystack, Failure> {
    let haystack = match text {
        Some(text) => Haystack::of_text(codec, text),
        None => Haystack::of_task(codec, task, longest, args.seed),
    };
    let haystack = haystack.map_err(|error| match &args.text {
        Some(file) => Failure::error(format!("{}: {error}", file.display())),
        None => failed(error),
    })?;
    Ok(match args.shuffle {
        true => haystack.shuffled(args.seed),
        false => haystack,
    })
}

/// What there is to say; `notes` are about the text.
fn outcome(checkpoint: &Checkpoint, no_trained_length: bool, notes: Vec<String>) -> Outcome {
    let mut outcome = Outcome {
        notes,
        ..Outcome::default()
    };
    outcome.notes.extend(describe::notes(&checkpoint.config));
    outcome.notes.extend(describe::unused(checkpoint));
    if no_trained_length {
        outcome.notes.push(
            "the model does not say its trained length, so the grid is not divided by it"
                .to_owned(),
        );
    }
    outcome
}

fn envelope(args: &ProbeArgs, info: ModelInfo) -> Envelope {
    let mut envelope = Envelope::new("probe", super::VERSION);
    envelope.model = Some(info);
    envelope.seed = Some(args.seed);
    envelope
}

fn report(
    args: &ProbeArgs,
    settings: ProbeSettings,
    info: ModelInfo,
    cells: Vec<ProbeCell>,
    trained: Option<u64>,
    outcome: Outcome,
) -> Result<ProbeReport, Failure> {
    let part = |inside: bool| {
        let trained = trained?;
        ProbeArea::of(&cells, |cell| (cell.length <= trained) == inside)
    };
    let mut envelope = envelope(args, info);
    envelope.plan = settings.plans.first().cloned();
    Ok(ProbeReport {
        envelope,
        configuration: results::configuration(&settings)?,
        settings,
        all: ProbeArea::of(&cells, |_| true).unwrap_or_default(),
        inside_trained_length: part(true),
        beyond_trained_length: part(false),
        cells,
        show_failures: args.show_failures,
        outcome,
    })
}
