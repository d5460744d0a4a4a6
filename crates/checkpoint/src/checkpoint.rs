//! A [`Checkpoint`]: the configuration, and the weights where they can be read.

mod open;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{ModelSpec, Weight, WeightError, WeightRole, WeightSource};

use open::{note_widening, tokenizer_in};
pub use open::{open, open_config};

use crate::config::{Config, ModelFacts};
use crate::error::CheckpointError;
use crate::finite;
use crate::hash::{self, HashCover};
use crate::layout::Layout;
use crate::safetensors::{Dtype, TensorFile, TensorInfo, Tensors};
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
