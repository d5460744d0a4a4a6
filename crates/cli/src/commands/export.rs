//! `snellen export`: a trained decoder in a layout that others read.

use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use checkpoint::safetensors::StoredAs;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use train::TrainError;
use train::export::{provenance, write_gguf, write_mpt, write_spec};
use train::run::Trained;
use train::run::tensorboard::write_events;

/// Arguments of `export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Folder of a run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Layout
    #[arg(long = "as", value_enum, value_name = "LAYOUT")]
    layout: Layout,
    /// Folder to write into, empty or absent (tensorboard: any)
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Step of the checkpoint [default: the newest]
    #[arg(long, value_name = "STEP")]
    step: Option<u64>,
    /// How values are stored [default: f32]
    #[arg(long, value_enum, value_name = "DTYPE")]
    dtype: Option<Dtype>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// model.toml and model.safetensors, for this program; every fixed bias
    Spec,
    /// config.json and model.safetensors, for `transformers` as MPT; linear bias only
    Mpt,
    /// model.gguf with the tokenizer in it, for llama.cpp as MPT; linear bias only
    Gguf,
    /// An event file with the curves of metrics.jsonl, for TensorBoard
    Tensorboard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dtype {
    /// Exact
    F32,
    /// Rounded to nearest even
    Bf16,
    /// Rounded to nearest even; values beyond its range are refused in gguf
    F16,
}

/// Runs the verb.
pub(crate) fn run(args: &ExportArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    global.refuse_document_flags("export", &[])?;
    let shown = args.to.display();
    if args.layout == Layout::Tensorboard {
        if args.step.is_some() || args.dtype.is_some() {
            return Err(Failure::error(
                "--as tensorboard writes the curves of the whole run: --step and --dtype say nothing about them; leave them out",
            ));
        }
        let (path, points) = write_events(&args.run, &args.to)?;
        global
            .talk()
            .say(&format!("{}: {points} points", path.display()));
        return Ok(Exit::Clean);
    }
    let trained = Trained::open(&args.run, args.step)?;
    let occupied = std::fs::read_dir(&args.to).is_ok_and(|mut entries| entries.next().is_some());
    if occupied {
        return Err(Failure::error(format!(
            "{shown}: is not empty; choose another folder"
        )));
    }
    let stored = match args.dtype.unwrap_or(Dtype::F32) {
        Dtype::F32 => StoredAs::F32,
        Dtype::Bf16 => StoredAs::Bf16,
        Dtype::F16 => StoredAs::F16,
    };
    let existed = args.to.exists();
    std::fs::create_dir_all(&args.to)
        .map_err(|error| Failure::error(format!("{shown}: cannot be made: {error}")))?;
    if let Err(error) = write(args, &trained, stored) {
        if !existed {
            // only what was just made, and only if nothing is in it
            let _ = std::fs::remove_dir(&args.to);
        }
        return Err(error.into());
    }
    if let Some(what) = trained.network.rule.unspoken() {
        global.talk().say(&format!("{shown}: {what}"));
    }
    global.talk().say(&format!(
        "{shown}: {} parameters of step {}",
        trained.record.parameters, trained.step
    ));
    Ok(Exit::Clean)
}

/// Writes the layout asked for and the tokenizer.
fn write(args: &ExportArgs, trained: &Trained, stored: StoredAs) -> Result<(), TrainError> {
    let metadata = provenance(trained.step, &trained.record.config_hash);
    let name = args
        .run
        .file_name()
        .map_or_else(|| "run".into(), |n| n.to_string_lossy());
    let (network, params) = (&trained.network, &trained.params);
    let own = args.run.join("tokenizer.json");
    let tokenizer = if own.exists() {
        Some(std::fs::read(&own).map_err(|e| TrainError::io(&own, &e))?)
    } else {
        None
    };
    match args.layout {
        Layout::Spec => {
            let file = tokenizer.as_ref().map(|_| "tokenizer.json");
            write_spec(&args.to, &name, network, params, file, &metadata, stored)?;
        }
        Layout::Mpt => write_mpt(&args.to, network, params, &metadata, stored)?,
        Layout::Gguf => {
            let path = args.to.join("model.gguf");
            return write_gguf(&path, &name, network, params, tokenizer.as_deref(), stored);
        }
        // Has neither parameters nor a tokenizer and was written above.
        Layout::Tensorboard => return Ok(()),
    }
    match tokenizer {
        Some(bytes) => copy(&args.to.join("tokenizer.json"), &bytes),
        None => Ok(()),
    }
}

fn copy(to: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    checkpoint::files::write_whole(to, |out| out.write_all(bytes))
        .map_err(|e| TrainError::io(to, &e))
}
