//! Arguments of `probe`.

use super::super::ids::CodecArgs;
use crate::args::{GlobalArgs, PlanArgs};
use crate::failure::Failure;
use crate::parse;
use crate::places::separate;
use ::audit::probe::{ProbeTask, WhatIf};
use checkpoint::ModelFacts;
use clap::Args;

use std::path::PathBuf;

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// A model folder, .safetensors file or spec .toml
    #[arg(value_name = "PATH")]
    pub(super) path: PathBuf,
    /// What is to be found: passkey (a number in repetitive filler), word or uuid (another value there), needle (a number in
    /// the prose of --text), key-value (one of many lines of names and numbers), multi-key (one of several named facts),
    /// multi-value (all values of a name) or multi-query (the values of several names)
    #[arg(long, value_name = "NAME", default_value = "passkey")]
    pub(super) task: String,
    /// Facts of a prompt, for multi-key, multi-value and multi-query: the first at the depth of the cell, the others where the seed
    /// puts them [default: 4]
    #[arg(long, value_name = "N")]
    needles: Option<u32>,
    /// Text to hide the fact in, UTF-8, instead of the task's own filler; cut at sentences, used once from its beginning, not
    /// repeated
    #[arg(long, value_name = "FILE")]
    pub(super) text: Option<PathBuf>,
    /// Put the sentences of --text in an order drawn from the seed
    #[arg(long, requires = "text")]
    pub(super) shuffle: bool,
    #[command(flatten)]
    pub(super) codec: CodecArgs,
    /// Tokens of prompt and answer together, comma separated; the filler shrinks to fit and nothing is cut
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true, value_parser = parse::length)]
    pub(super) lengths: Vec<u64>,
    /// Depths, evenly spaced from the first place to the last; 1 is the middle
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1001))]
    pub(super) depths: u16,
    /// Samples a cell
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) samples: u32,
    /// Seed of the values and of where further facts go
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Id put before the prompt, such as the model's begin-of-text [default: none]
    #[arg(long, value_name = "ID")]
    pub(super) prefix_token: Option<u32>,
    /// Leave the facts out: what is found then was guessed, or stood in the text
    #[arg(long, conflicts_with = "plans")]
    pub(super) control: bool,
    #[command(flatten)]
    pub(super) plans: PlanArgs,
    /// Do not compute which heads had the fact within sight under --plan
    #[arg(long, conflicts_with = "plans")]
    pub(super) no_witness: bool,
    /// Try cells with misses under another bias or plan, comma separated: clamp=-12, log, slopes/2, interpolate (trained length
    /// over length), interpolate=0.5, relative-f32, f64, hf-eager:bf16 (every pair is rounded one by one: slow)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    what_if: Vec<String>,
    /// List what was answered instead, in the text form; the JSON form always has it
    #[arg(long)]
    pub(super) show_failures: bool,
    /// Append every finished cell to FILE, and skip those it holds; it may hold cells of another grid
    #[arg(long, value_name = "FILE")]
    pub(super) results: Option<PathBuf>,
    /// Take the cells of other files that --results wrote with the same settings, whatever their grids, and append those that FILE
    /// lacks; comma separated
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "results")]
    pub(super) merge: Vec<PathBuf>,
    /// Write what became of every sample, JSON lines
    #[arg(long, value_name = "FILE", conflicts_with = "build_only")]
    pub(super) items: Option<PathBuf>,
    /// Write every prompt as text and ids, JSON lines
    #[arg(long, value_name = "FILE")]
    pub(super) prompts: Option<PathBuf>,
    /// Build the prompts, report their tokens, depths and hashes, and run nothing
    #[arg(long, conflicts_with_all = ["results", "merge", "what_if", "show_failures", "no_witness", "plans"])]
    pub(super) build_only: bool,
}

impl ProbeArgs {
    /// Refuses files that would overwrite each other.
    pub(super) fn separate_files(&self, global: &GlobalArgs) -> Result<(), Failure> {
        separate(&[
            ("--results", self.results.as_deref()),
            ("--items", self.items.as_deref()),
            ("--prompts", self.prompts.as_deref()),
            ("--out", global.out.as_deref()),
        ])
    }

    /// The task with the facts asked for.
    pub(super) fn task(&self) -> Result<ProbeTask, Failure> {
        let task = ProbeTask::named(&self.task)
            .map_err(|error| Failure::error(format!("--task: {error}")))?;
        match self.needles {
            None => Ok(task),
            Some(needles) => task
                .with_needles(needles)
                .map_err(|error| Failure::error(format!("--needles: {error}"))),
        }
    }

    /// What cells with misses are tried under.
    pub(super) fn changes(&self, facts: &ModelFacts) -> Result<Vec<WhatIf>, Failure> {
        let of_model = |plan| facts.as_run_by(plan);
        let texts = self.what_if.iter();
        let changes = texts.map(|text| WhatIf::parse_for(text, facts.family, of_model));
        changes
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Failure::error(format!("--what-if: {error}")))
    }
}
