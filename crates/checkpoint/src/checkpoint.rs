//! Opening what the user named, and the [`Checkpoint`] that results.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{ModelSpec, Weight, WeightError, WeightRole, WeightSource};

use crate::config::{Config, Keys, ModelFacts, Note, Reader};
use crate::error::{CheckpointError, ErrorKind};
use crate::families::{bloom, falcon, mpt};
use crate::finite;
use crate::hash::{self, HashCover};
use crate::layout::Layout;
use crate::read::cannot_read;
use crate::safetensors::{Dtype, TensorFile, TensorInfo, Tensors};
use crate::spec;
use crate::tokenizer::Tokenizer;

/// A model on disk: what its configuration says, and its weights where they can be read.
#[derive(Debug)]
pub struct Checkpoint {
    /// What the configuration (or specification file) says.
    pub config: ModelFacts,
    /// The model to run; `None` where there are no weights to run it with, see [`Checkpoint::runnable`].
    pub spec: Option<ModelSpec>,
    weights: Result<Weights, CheckpointError>,
    /// The bytes of the configuration or specification file, for the hash.
    config_bytes: Vec<u8>,
    tokenizer: Option<TokenizerFile>,
}

#[derive(Debug)]
struct Weights {
    tensors: Tensors,
    layout: Layout,
    read: Mutex<ReadSoFar>,
}

/// What was read of the weights until now.
#[derive(Debug, Default)]
struct ReadSoFar {
    /// Names of the tensors of which something was read, for [`HashCover::Read`].
    tensors: BTreeSet<String>,
    /// Weights that were read whole, and hence found finite.
    whole: HashSet<WeightRole>,
}

impl Weights {
    fn new(tensors: Tensors, layout: Layout) -> Self {
        Self {
            tensors,
            layout,
            read: Mutex::default(),
        }
    }

    /// A panic elsewhere while it was held leaves the sets whole: they only ever grow.
    fn read(&self) -> MutexGuard<'_, ReadSoFar> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the tokenizer is, and how text is prepared for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenizerFile {
    pub(crate) path: PathBuf,
    pub(crate) fold_white_space: bool,
    pub(crate) replace: Vec<(String, String)>,
}

/// One row of the tensor table.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorRow {
    /// Name in the file.
    pub name: String,
    /// Element type in the file.
    pub dtype: Dtype,
    /// Extents, slowest first.
    pub shape: Vec<u64>,
    /// File it lies in.
    pub file: PathBuf,
    /// Whether the model reads it. Tensors that no weight needs are listed, and otherwise ignored.
    pub used: bool,
}

/// How many tensors have a dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DtypeCount {
    /// The dtype.
    pub dtype: Dtype,
    /// Number of tensors.
    pub tensors: u64,
    /// Number of elements in them.
    pub elements: u64,
    /// Bytes in the files.
    pub bytes: u64,
}

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

fn note_widening(facts: &mut ModelFacts, tensors: &Tensors, layout: &Layout) {
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

fn tokenizer_in(folder: &Path) -> Option<TokenizerFile> {
    let path = folder.join("tokenizer.json");
    path.exists().then_some(TokenizerFile {
        path,
        fold_white_space: false,
        replace: Vec::new(),
    })
}

impl Checkpoint {
    fn without_weights(config: Config, folder: &Path, reason: CheckpointError) -> Checkpoint {
        Checkpoint {
            config: config.facts,
            spec: None,
            weights: Err(reason),
            config_bytes: config.bytes,
            tokenizer: tokenizer_in(folder),
        }
    }

    /// A checkpoint from a specification file.
    pub(crate) fn from_spec(
        mut facts: ModelFacts,
        weights: Result<(ModelSpec, Tensors, Layout), CheckpointError>,
        bytes: Vec<u8>,
        tokenizer: Option<TokenizerFile>,
    ) -> Checkpoint {
        let (spec, weights) = match weights {
            Ok((spec, tensors, layout)) => {
                note_widening(&mut facts, &tensors, &layout);
                (Some(spec), Ok(Weights::new(tensors, layout)))
            }
            Err(reason) => (None, Err(reason)),
        };
        Checkpoint {
            config: facts,
            spec,
            weights,
            config_bytes: bytes,
            tokenizer,
        }
    }

    /// The model to run, or why it cannot be run.
    pub fn runnable(&self) -> Result<&ModelSpec, CheckpointError> {
        match (&self.spec, &self.weights) {
            (Some(spec), _) => Ok(spec),
            (None, Err(reason)) => Err(reason.clone()),
            (None, Ok(_)) => unreachable!("weights are only kept beside their specification"),
        }
    }

    /// The tensors, headers only, where there are any that this crate reads.
    pub fn tensors(&self) -> Option<&Tensors> {
        self.weights.as_ref().ok().map(|w| &w.tensors)
    }

    /// Every tensor in the files, by file and position, and whether the model uses it. Empty without weights.
    pub fn tensor_table(&self) -> Vec<TensorRow> {
        let Ok(weights) = &self.weights else {
            return Vec::new();
        };
        let used = weights.layout.used(&weights.tensors);
        let row = |(file, t): (&TensorFile, &TensorInfo)| TensorRow {
            name: t.name.clone(),
            dtype: t.dtype,
            shape: t.shape.clone(),
            file: file.path().to_owned(),
            used: used.contains(t.name.as_str()),
        };
        weights.tensors.iter().map(row).collect()
    }

    /// Tensors, elements and bytes by dtype, in the order of [`Dtype`]. Empty without weights.
    pub fn dtype_counts(&self) -> Vec<DtypeCount> {
        let mut counts = BTreeMap::new();
        for (_, tensor) in self.tensors().into_iter().flat_map(Tensors::iter) {
            let count = counts.entry(tensor.dtype).or_insert(DtypeCount {
                dtype: tensor.dtype,
                tensors: 0,
                elements: 0,
                bytes: 0,
            });
            count.tensors += 1;
            count.elements += tensor.elements();
            count.bytes += tensor.end - tensor.begin;
        }
        counts.into_values().collect()
    }

    /// Name of the tensor that holds a weight, or holds it among others (fused projections).
    pub fn tensor_name(&self, role: WeightRole) -> Option<&str> {
        self.weights.as_ref().ok()?.layout.tensor_name(role)
    }

    /// Path of the tokenizer, where there is one.
    pub fn tokenizer_path(&self) -> Option<&Path> {
        self.tokenizer.as_ref().map(|t| t.path.as_path())
    }

    /// Opens the tokenizer.
    pub fn tokenizer(&self) -> Result<Tokenizer, CheckpointError> {
        let Some(file) = &self.tokenizer else {
            return Err(CheckpointError::missing(format!(
                "the model {} comes without tokenizer.json; put one beside its config.json, or give token ids with --tokens FILE",
                self.config.name
            )));
        };
        Ok(Tokenizer::open(&file.path)?.prepared(file.fold_white_space, file.replace.clone()))
    }

    /// BLAKE3 of what `cover` says, in hexadecimal.
    pub fn hash(&self, cover: HashCover) -> String {
        let config = &self.config_bytes;
        match &self.weights {
            Ok(weights) => hash::hash(
                config,
                Some(&weights.tensors),
                &weights.read().tensors,
                cover,
            ),
            Err(_) => hash::hash(config, None, &BTreeSet::new(), cover),
        }
    }

    /// Refuses weights that are NaN or infinite. Reading a weight does so too, so those that were read whole are not looked at again; of the
    /// rest every stored value is, without widening it and without keeping it in memory.
    ///
    /// # Errors
    /// File, tensor and position of the first such value; or why there are no weights.
    pub fn check_finite(&self) -> Result<(), CheckpointError> {
        let weights = self.weights.as_ref().map_err(Clone::clone)?;
        let stored = weights
            .layout
            .stored(&weights.tensors, &weights.read().whole);
        finite::check(&stored)
    }

    /// Calls `f` once with every tensor that holds one of these weights.
    fn each_tensor(&self, roles: &[WeightRole], f: impl Fn(&TensorFile, &TensorInfo)) {
        let Ok(weights) = &self.weights else {
            return;
        };
        let names = roles
            .iter()
            .filter_map(|&role| weights.layout.tensor_name(role));
        for name in names.collect::<BTreeSet<_>>() {
            if let Some((file, tensor)) = weights.tensors.find(name) {
                f(file, tensor);
            }
        }
    }

    fn read(&self, role: WeightRole, rows: Option<Range<usize>>) -> Result<Weight, WeightError> {
        let weights = self
            .weights
            .as_ref()
            .map_err(|reason| WeightError::Missing {
                role,
                detail: reason.to_string(),
            })?;
        if let Some(name) = weights.layout.tensor_name(role) {
            let mut read = weights.read();
            if !read.tensors.contains(name) {
                read.tensors.insert(name.to_owned());
            }
        }
        let is_whole = rows.is_none();
        match weights.layout.read(&weights.tensors, role, rows) {
            Some(Ok(weight)) => {
                if is_whole {
                    weights.read().whole.insert(role);
                }
                Ok(weight)
            }
            Some(Err(error)) => Err(WeightError::Read {
                role,
                message: error.to_string(),
            }),
            None => Err(WeightError::Missing {
                role,
                detail: "this model has no such weight".to_owned(),
            }),
        }
    }
}

impl WeightSource for Checkpoint {
    fn weight(&self, role: WeightRole) -> Result<Weight, WeightError> {
        self.read(role, None)
    }

    fn rows(&self, role: WeightRole, rows: Range<usize>) -> Result<Weight, WeightError> {
        self.read(role, Some(rows))
    }

    fn has_cheap_rows(&self) -> bool {
        true
    }

    fn read_ahead(&self, roles: &[WeightRole]) {
        self.each_tensor(roles, |file, tensor| {
            file.read_ahead(file.tensor_bytes(tensor));
        });
    }

    fn release(&self, roles: &[WeightRole]) {
        self.each_tensor(roles, |file, tensor| {
            file.release(file.tensor_bytes(tensor));
        });
    }
}
