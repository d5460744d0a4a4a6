//! Prompts and samples as files, and the grid that is built and not run.

use super::effort::Effort;
use super::grid::Grid;
use super::{ProbeArgs, envelope, failed, hash_ids, results};
use crate::args::GlobalArgs;
use crate::commands::ids::Codec;
use crate::failure::{Exit, Failure};
use ::audit::eval::TextCodec;
use ::audit::probe::PromptBuilder;
use report::schema::{
    ModelInfo, Outcome, ProbeCell, ProbeItemRecord, ProbePromptCell, ProbePromptRecord,
    ProbePromptsReport, ProbeSettings,
};
use std::path::Path;

/// Builds every prompt and reports them; `effort` is empty, `notes` are about the text.
#[allow(
    clippy::too_many_arguments,
    reason = "one call site; every argument is a different thing"
)]
pub(super) fn only(
    args: &ProbeArgs,
    builder: &PromptBuilder<'_>,
    codec: &Codec,
    grid: &Grid,
    settings: ProbeSettings,
    info: ModelInfo,
    mut effort: Effort,
    notes: Vec<String>,
    global: &GlobalArgs,
) -> Result<Exit, Failure> {
    let verb = "probe --build-only";
    global.refuse_document_flags(verb, &["--format", "--out"])?;
    global.refuse_estimating(verb)?;
    let mut cells = Vec::new();
    for (length, depth) in grid.places() {
        let cell = builder.cell(length, depth, grid.samples).map_err(failed)?;
        effort.add(&cell);
        cells.push(ProbePromptCell::new(&cell, hash_ids));
    }
    if let Some(file) = &args.prompts {
        write(file, builder, codec, grid)?;
    }
    let report = ProbePromptsReport {
        envelope: envelope(args, info),
        configuration: results::configuration(&settings)?,
        settings,
        tokens_to_run: effort.tokens(),
        cells,
        outcome: Outcome {
            notes,
            ..Outcome::default()
        },
    };
    crate::output::emit(report, global)
}

/// Writes every prompt of the grid, a line each.
pub(super) fn write(
    file: &Path,
    builder: &PromptBuilder<'_>,
    codec: &Codec,
    grid: &Grid,
) -> Result<(), Failure> {
    let mut lines = String::new();
    for (length, depth) in grid.places() {
        let cell = builder.cell(length, depth, grid.samples).map_err(failed)?;
        let facts = ProbePromptCell::new(&cell, hash_ids);
        let prompts = cell.prompts.iter().zip(facts.prompts).enumerate();
        for (sample, (prompt, facts)) in prompts {
            let ids = cell.ids(prompt);
            lines.push_str(&results::line(&ProbePromptRecord {
                length: length as u64,
                depth,
                sample: sample as u64,
                prompt: facts,
                answer_room: cell.answer_room as u64,
                text: codec.decode(&ids).map_err(Failure::error)?,
                ids,
                answer_ids: prompt.answer.clone(),
            })?);
        }
    }
    write_lines(file, &lines)
}

/// Writes what became of every sample, a line each.
pub(super) fn write_items(file: &Path, cells: &[ProbeCell]) -> Result<(), Failure> {
    let mut lines = String::new();
    for cell in cells {
        for (sample, result) in cell.results.iter().enumerate() {
            lines.push_str(&results::line(&ProbeItemRecord {
                length: cell.length,
                depth: cell.depth,
                sample: sample as u64,
                result: result.clone(),
            })?);
        }
    }
    write_lines(file, &lines)
}

fn write_lines(file: &Path, lines: &str) -> Result<(), Failure> {
    crate::output::write_file(file, lines.as_bytes())
        .map_err(|error| Failure::error(format!("{}: cannot be written: {error}", file.display())))
}
