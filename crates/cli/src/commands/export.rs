//! `snellen export`: a trained decoder in a layout that others read.

use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use checkpoint::safetensors::StoredAs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use train::export::{provenance, write_mpt, write_spec};
use train::run::Trained;

/// Arguments of `export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Folder of a run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Layout
    #[arg(long = "as", value_enum, value_name = "LAYOUT")]
    layout: Layout,
    /// Folder to write into, empty or absent
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Step of the checkpoint [default: the newest]
    #[arg(long, value_name = "STEP")]
    step: Option<u64>,
    /// How values are stored
    #[arg(long, value_enum, default_value_t = Dtype::F32, value_name = "DTYPE")]
    dtype: Dtype,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// model.toml and model.safetensors, for this program; every fixed bias
    Spec,
    /// config.json and model.safetensors, for `transformers` as MPT; linear bias only
    Mpt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dtype {
    /// Exact
    F32,
    /// Rounded to nearest even
    Bf16,
}

/// Runs the verb.
pub(crate) fn run(args: &ExportArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    global.refuse_document_flags("export", &[])?;
    let trained = Trained::open(&args.run, args.step)?;
    let shown = args.to.display();
    let occupied = std::fs::read_dir(&args.to).is_ok_and(|mut entries| entries.next().is_some());
    if occupied {
        return Err(Failure::error(format!(
            "{shown}: is not empty; choose another folder"
        )));
    }
    let stored = match args.dtype {
        Dtype::F32 => StoredAs::F32,
        Dtype::Bf16 => StoredAs::Bf16,
    };
    let existed = args.to.exists();
    std::fs::create_dir_all(&args.to)
        .map_err(|error| Failure::error(format!("{shown}: cannot be made: {error}")))?;
    let metadata = provenance(trained.step, &trained.record.config_hash);
    let own = args.run.join("tokenizer.json");
    let tokenizer = own.exists();
    let written = match args.layout {
        Layout::Spec => write_spec(
            &args.to,
            &args
                .run
                .file_name()
                .map_or_else(|| "run".into(), |n| n.to_string_lossy()),
            &trained.network,
            &trained.params,
            tokenizer.then_some("tokenizer.json"),
            &metadata,
            stored,
        ),
        Layout::Mpt => write_mpt(
            &args.to,
            &trained.network,
            &trained.params,
            &metadata,
            stored,
        ),
    };
    if let Err(error) = written {
        if !existed {
            // only what was just made, and only if nothing is in it
            let _ = std::fs::remove_dir(&args.to);
        }
        return Err(error.into());
    }
    if tokenizer {
        let bytes = std::fs::read(&own)
            .map_err(|error| Failure::error(format!("{}: {error}", own.display())))?;
        let to = args.to.join("tokenizer.json");
        crate::output::write_file(&to, &bytes)
            .map_err(|error| Failure::cannot_write(&to.display().to_string(), &error))?;
    }
    global.talk().say(&format!(
        "{shown}: {} parameters of step {}",
        trained.record.parameters, trained.step
    ));
    Ok(Exit::Clean)
}
