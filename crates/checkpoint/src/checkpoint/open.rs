//! Opening what the user named: which files there are, and what they hold.

use std::path::{Path, PathBuf};

use super::{Checkpoint, TokenizerFile, Weights};
use crate::config::{Config, Keys, ModelFacts, Note, Reader};
use crate::error::{CheckpointError, ErrorKind};
use crate::families::{bloom, falcon, mpt};
use crate::layout::Layout;
use crate::read::cannot_read;
use crate::safetensors::{Dtype, Tensors};
use crate::spec;

/// Opens a model: a folder with `config.json`, a `config.json` (no weights), a `.safetensors` file or index with `config.json`
/// beside it, or a specification file (`.toml`, see [`crate::spec`]).
///
/// Reads the configuration and the tensor headers, no weights. A model whose weights cannot be had for a known reason (there are
/// none, only pickle files, a family that is known by its configuration only) opens all the same, and
/// [`Checkpoint::runnable`] gives the reason; weights that are there and broken are an error.
pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let metadata = std::fs::metadata(path).map_err(|e| cannot_read(path, &e))?;
    if metadata.is_dir() {
        let config = folder_config(path)?;
        return match find_weights(path) {
            Ok(Found::File(file)) => with_weights(config, path, || Tensors::open_file(&file)),
            Ok(Found::Index(index)) => with_weights(config, path, || Tensors::open_index(&index)),
            Err(reason) => Ok(Checkpoint::without_weights(config, path, reason)),
        };
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    match kind_of(path) {
        Kind::Spec => spec::open(path),
        Kind::Config => {
            let reason = CheckpointError::missing(format!(
                "{}: only the configuration was named; name the folder {} to use its weights",
                path.display(),
                if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.display()
            ));
            Ok(Checkpoint::without_weights(Config::read(path)?, folder, reason))
        }
        Kind::Safetensors => with_weights(beside(path)?, folder, || Tensors::open_file(path)),
        Kind::Index => with_weights(beside(path)?, folder, || Tensors::open_index(path)),
        Kind::Pickle => Err(pickle(path)),
        Kind::Gguf => Err(gguf(path)),
        Kind::Other => Err(CheckpointError::unsupported(
            "expected a model folder, a config.json, a .safetensors file or a specification file (.toml)",
        )
        .in_file(path)),
    }
}

/// Reads only the configuration (or specification file) of what the user named; weights are not looked at, whatever their state.
pub fn open_config(path: &Path) -> Result<ModelFacts, CheckpointError> {
    let metadata = std::fs::metadata(path).map_err(|e| cannot_read(path, &e))?;
    if metadata.is_dir() {
        return Ok(folder_config(path)?.facts);
    }
    match kind_of(path) {
        Kind::Spec => Ok(spec::read(path)?.facts),
        Kind::Config => Ok(Config::read(path)?.facts),
        _ => Ok(beside(path)?.facts),
    }
}

enum Kind {
    Spec,
    Config,
    Safetensors,
    Index,
    Pickle,
    Gguf,
    Other,
}

fn kind_of(path: &Path) -> Kind {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match path.extension().and_then(|e| e.to_str()) {
        Some("toml") => Kind::Spec,
        Some("json") if name.ends_with(".safetensors.index.json") => Kind::Index,
        Some("json") => Kind::Config,
        Some("safetensors") => Kind::Safetensors,
        Some("bin" | "pt" | "pth" | "ckpt" | "pkl" | "pickle") => Kind::Pickle,
        Some("gguf") => Kind::Gguf,
        _ => Kind::Other,
    }
}

fn folder_config(folder: &Path) -> Result<Config, CheckpointError> {
    let path = folder.join("config.json");
    if path.exists() {
        return Config::read(&path);
    }
    let names = names_in(folder)?;
    let specs: Vec<_> = names
        .iter()
        .filter(|n| n.ends_with(".toml"))
        .take(3)
        .map(String::as_str)
        .collect();
    let hint = if specs.is_empty() {
        "add it, or write a specification file (.toml) that describes the model".to_owned()
    } else {
        format!(
            "to use a specification file, name it ({})",
            specs.join(", ")
        )
    };
    Err(CheckpointError::missing(format!("no config.json in this folder; {hint}")).in_file(folder))
}

/// The configuration beside a weight file.
fn beside(path: &Path) -> Result<Config, CheckpointError> {
    let config = path.parent().unwrap_or(Path::new("")).join("config.json");
    if config.exists() {
        return Config::read(&config);
    }
    Err(CheckpointError::missing("no config.json beside this file; add it, or write a specification file (.toml) that names the weights").in_file(path))
}

enum Found {
    File(PathBuf),
    Index(PathBuf),
}

/// The weights of a folder by their standard names, a single file before an index as in the reference loader. `Err`: why there are none.
fn find_weights(folder: &Path) -> Result<Found, CheckpointError> {
    let single = folder.join("model.safetensors");
    if single.exists() {
        return Ok(Found::File(single));
    }
    if single.is_symlink() {
        return Err(CheckpointError::missing(
            "is a symbolic link that leads nowhere; the download it belongs to is incomplete, fetch it again",
        )
        .in_file(&single));
    }
    let index = folder.join("model.safetensors.index.json");
    if index.exists() {
        return Ok(Found::Index(index));
    }
    let names = names_in(folder)?;
    let first = |test: fn(&Kind) -> bool| {
        names
            .iter()
            .find(|n| test(&kind_of(Path::new(n))))
            .map(|n| folder.join(n))
    };
    if let Some(file) = first(|k| matches!(k, Kind::Safetensors)) {
        return Err(CheckpointError::missing(format!(
            "neither model.safetensors nor model.safetensors.index.json; there is {}: name that file if it is the model, or add the index if it is a shard",
            file.file_name().unwrap_or_default().to_string_lossy()
        ))
        .in_file(folder));
    }
    if let Some(file) = first(|k| matches!(k, Kind::Pickle)) {
        return Err(pickle(&file));
    }
    if let Some(file) = first(|k| matches!(k, Kind::Gguf)) {
        return Err(gguf(&file));
    }
    Err(CheckpointError::missing(
        "no weights: expected model.safetensors or model.safetensors.index.json; `snellen horizon` needs the configuration only",
    )
    .in_file(folder))
}

fn names_in(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let entries = std::fs::read_dir(folder).map_err(|e| cannot_read(folder, &e))?;
    let mut names: Vec<_> = entries
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

fn pickle(file: &Path) -> CheckpointError {
    CheckpointError::unsupported(
        "the weights are a pickle, which can run code when it is loaded, so it is not opened; convert it once where you trust it: \
         python -c \"from transformers import AutoModelForCausalLM as M; M.from_pretrained('FOLDER').save_pretrained('OUT', safe_serialization=True)\"; \
         `snellen horizon` works from config.json alone",
    )
    .in_file(file)
}

fn gguf(file: &Path) -> CheckpointError {
    CheckpointError::unsupported(
        "GGUF files are not read yet; use the safetensors checkpoint that it was made from",
    )
    .in_file(file)
}

/// Opens the weights and lowers the family; a family without a reader of weights does not open them at all.
fn with_weights(
    config: Config,
    folder: &Path,
    tensors: impl FnOnce() -> Result<Tensors, CheckpointError>,
) -> Result<Checkpoint, CheckpointError> {
    let lower = match config.reader {
        Reader::Bloom => bloom::lower,
        Reader::Mpt => mpt::lower,
        Reader::Falcon => falcon::lower,
        _ => {
            let reason = CheckpointError::unsupported(format!(
                "reading the weights of the family {} is not supported yet, only its configuration is; `snellen horizon` works, and a specification file (.toml) can describe a decoder",
                config.facts.family
            ))
            .in_file(folder);
            return Ok(Checkpoint::without_weights(config, folder, reason));
        }
    };
    let tensors = tensors()?;
    let Config {
        bytes,
        map,
        mut facts,
        ..
    } = config;
    let config_path = folder.join("config.json");
    let (spec, weights) = match lower(&Keys::new(&config_path, &map), &mut facts, &tensors) {
        Ok((spec, layout)) => {
            note_widening(&mut facts, &tensors, &layout);
            (Some(spec), Ok(Weights::new(tensors, layout)))
        }
        Err(reason) if reason.kind() == ErrorKind::Unsupported => (None, Err(reason)),
        Err(error) => return Err(error),
    };
    Ok(Checkpoint {
        config: facts,
        spec,
        weights,
        config_bytes: bytes,
        tokenizer: tokenizer_in(folder),
    })
}

pub(super) fn note_widening(facts: &mut ModelFacts, tensors: &Tensors, layout: &Layout) {
    let used = layout.used(tensors);
    let count = |dtype| {
        tensors
            .iter()
            .filter(|(_, t)| t.dtype == dtype && used.contains(t.name.as_str()))
            .count()
    };
    let (f16, bf16) = (count(Dtype::F16), count(Dtype::Bf16));
    if f16 + bf16 > 0 {
        facts.notes.push(Note::WeightsWidened { f16, bf16 });
    }
}

pub(super) fn tokenizer_in(folder: &Path) -> Option<TokenizerFile> {
    let path = folder.join("tokenizer.json");
    path.exists().then_some(TokenizerFile {
        path,
        fold_white_space: false,
        replace: Vec::new(),
    })
}
