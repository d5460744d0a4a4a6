//! Safetensors checkpoints: a single file, or shards with an index.
//!
//! | file | holds |
//! |---|---|
//! | `header` | parser of one header, every rule with its message; pure, fuzzed |
//! | `file` | one memory-mapped file, values widened to f32; the crate's only `unsafe` |
//! | `index` | `model.safetensors.index.json`, path rules; pure, fuzzed |
//! | `write` | one file written, whole or not at all |
//! | `mod` | [`Tensors`], the union of the files of a checkpoint |

mod file;
mod header;
mod index;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

pub use file::TensorFile;
pub use header::{Dtype, HEADER_BYTES_MAX, Header, TensorInfo};
pub use index::parse_index;
pub use write::{StoredAs, TensorData, write_safetensors};

use crate::error::{CheckpointError, quoted};
use crate::read::read_limited;

/// All tensors of a checkpoint. Opening reads headers only.
#[derive(Debug)]
pub struct Tensors {
    files: Vec<TensorFile>,
    /// Tensor name -> position of its file; aliases are resolved by [`Tensors::find`].
    place: HashMap<String, usize>,
    index: Option<PathBuf>,
}

impl Tensors {
    /// A single file.
    pub fn open_file(path: &Path) -> Result<Tensors, CheckpointError> {
        let file = TensorFile::open(path)?;
        let place = file
            .header()
            .tensors()
            .iter()
            .map(|t| (t.name.clone(), 0))
            .collect();
        Ok(Tensors {
            files: vec![file],
            place,
            index: None,
        })
    }

    /// Shards, by their index file; they lie beside it. Every shard must be there and have a valid header, and every tensor of the
    /// index must be in the shard it names, before anything is computed.
    pub fn open_index(path: &Path) -> Result<Tensors, CheckpointError> {
        let bytes = read_limited(path, index::INDEX_BYTES_MAX)?;
        let weight_map = parse_index(&bytes).map_err(|e| e.in_file(path))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        // Sorted: the order of messages and of the hash must not depend on a hash map.
        let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (tensor, shard) in &weight_map {
            shards.entry(shard).or_default().push(tensor);
        }
        let gone: Vec<_> = shards.keys().filter(|s| !folder.join(s).exists()).collect();
        if !gone.is_empty() {
            let names: Vec<_> = gone.iter().take(8).map(|s| quoted(s)).collect();
            let more = if gone.len() > names.len() {
                format!(" and {} more", gone.len() - names.len())
            } else {
                String::new()
            };
            return Err(CheckpointError::missing(format!(
                "missing {} of {} shards: {}{more}; expected in {}; download them again",
                gone.len(),
                shards.len(),
                names.join(", "),
                folder.display()
            ))
            .in_file(path));
        }
        let mut files = Vec::new();
        let mut place = HashMap::new();
        for (shard, mut tensors) in shards {
            let file = TensorFile::open(&folder.join(shard))?;
            tensors.sort_unstable();
            for tensor in tensors {
                if file.header().tensor(tensor).is_none() {
                    return Err(CheckpointError::missing(format!(
                        "tensor {} should be in shard {} but is not there; the index and the shards do not belong together",
                        quoted(tensor),
                        quoted(shard)
                    ))
                    .in_file(path));
                }
                place.insert(tensor.to_owned(), files.len());
            }
            files.push(file);
        }
        let tensors = Tensors {
            files,
            place,
            index: Some(path.to_owned()),
        };
        tensors.refuse_copies()?;
        Ok(tensors)
    }

    /// A tensor that a second shard holds too may have other values there, and loaders differ in which of them they take.
    fn refuse_copies(&self) -> Result<(), CheckpointError> {
        for (i, file) in self.files.iter().enumerate() {
            for tensor in file.header().tensors() {
                let Some(&named) = self.place.get(&tensor.name).filter(|&&named| named != i) else {
                    continue;
                };
                return Err(CheckpointError::malformed(format!(
                    "tensor {} is in two shards, {} and {}, of which the index names the first; the shards do not belong together: fetch \
                     the checkpoint again, or save it anew",
                    quoted(&tensor.name),
                    self.files[named].path().display(),
                    file.path().display()
                ))
                .in_file(self.path()));
            }
        }
        Ok(())
    }

    /// The files, in the order of their names.
    pub fn files(&self) -> &[TensorFile] {
        &self.files
    }

    /// The index file, when there is one.
    pub fn index(&self) -> Option<&Path> {
        self.index.as_deref()
    }

    /// The tensor with this name and its file. A tensor that was left out because it shares memory with another may be
    /// recorded in a header's metadata as `left out -> kept`; such an alias is followed once.
    pub fn find(&self, name: &str) -> Option<(&TensorFile, &TensorInfo)> {
        self.find_exact(name).or_else(|| {
            let mut kept = self
                .files
                .iter()
                .filter_map(|f| f.header().metadata().get(name));
            kept.find_map(|kept| self.find_exact(kept))
        })
    }

    fn find_exact(&self, name: &str) -> Option<(&TensorFile, &TensorInfo)> {
        let file = &self.files[*self.place.get(name)?];
        file.header().tensor(name).map(|tensor| (file, tensor))
    }

    /// Every tensor of the checkpoint with its file, by file and position. Tensors of a shard that the index does not name are left out.
    pub fn iter(&self) -> impl Iterator<Item = (&TensorFile, &TensorInfo)> {
        self.files.iter().enumerate().flat_map(move |(i, file)| {
            let mine = move |t: &&TensorInfo| self.place.get(&t.name) == Some(&i);
            file.header()
                .tensors()
                .iter()
                .filter(mine)
                .map(move |t| (file, t))
        })
    }

    /// Where the tensors are, for messages: the file, or the index.
    pub fn path(&self) -> &Path {
        self.index
            .as_deref()
            .unwrap_or_else(|| self.files[0].path())
    }
}
