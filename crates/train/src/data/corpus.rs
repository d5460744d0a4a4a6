//! Which files a corpus is made of, and what each is: told by the suffix alone.
//!
//! | suffix | read as |
//! |---|---|
//! | `.txt`, `.md`, `.markdown`, `.raw` | text |
//! | `.jsonl` | a JSON object a line |
//! | `.parquet` | a table |
//! | any of the first two rows and `.gz`, `.xz` or `.zst` | the same, decompressed while it is read |
//! | `.tar`, `.tar.gz`, `.tar.xz`, `.tar.zst`, `.tgz`, `.txz`, `.tzst` | an archive; the files inside by the same table, without tables and archives |

use std::path::{Path, PathBuf};

use crate::error::TrainError;

/// Suffixes that are read, for messages.
pub const SUFFIXES: &str = ".txt, .md, .raw, .jsonl (also with .gz, .xz or .zst), .parquet, .tar, .tar.gz, .tar.xz or .tar.zst";

/// How a file's bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip, any number of members.
    Gz,
    /// xz, any number of streams.
    Xz,
    /// Zstandard, any number of frames.
    Zst,
}

impl Packing {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Packing::Plain => "plain",
            Packing::Gz => "gzip",
            Packing::Xz => "xz",
            Packing::Zst => "Zstandard",
        }
    }
}

/// What the unpacked bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text, cut at separators.
    Text,
    /// A JSON object a line.
    Jsonl,
    /// A table; never packed from outside, since it is read from its end.
    Parquet,
    /// An archive.
    Tar,
}

/// What a file is, by its name; `None` if it is not read.
pub fn kind(name: &str) -> Option<(Form, Packing)> {
    let name = name.to_ascii_lowercase();
    for (short, packing) in [
        (".tgz", Packing::Gz),
        (".txz", Packing::Xz),
        (".tzst", Packing::Zst),
    ] {
        if name.ends_with(short) {
            return Some((Form::Tar, packing));
        }
    }
    let (stem, packing) = [
        (".gz", Packing::Gz),
        (".xz", Packing::Xz),
        (".zst", Packing::Zst),
    ]
    .into_iter()
    .find_map(|(suffix, packing)| Some((name.strip_suffix(suffix)?, packing)))
    .unwrap_or((&name, Packing::Plain));
    let form = match stem.rsplit_once('.')?.1 {
        "txt" | "md" | "markdown" | "raw" => Form::Text,
        "jsonl" => Form::Jsonl,
        "tar" => Form::Tar,
        "parquet" if packing == Packing::Plain => Form::Parquet,
        _ => return None,
    };
    Some((form, packing))
}

/// [`kind`] of a path's last part.
pub(crate) fn kind_of(path: &Path) -> Option<(Form, Packing)> {
    kind(path.file_name()?.to_str()?)
}

/// Files under `paths` that are read, in a fixed order: each path in turn, folders by name.
///
/// # Errors
/// A path that is not there, a folder without a file that is read, a file of another kind.
pub fn corpus_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, TrainError> {
    let mut files = Vec::new();
    for path in paths {
        let metadata = std::fs::metadata(path).map_err(|e| TrainError::io(path, &e))?;
        if metadata.is_dir() {
            let before = files.len();
            walk(path, &mut files)?;
            if files.len() == before {
                return Err(TrainError::file(
                    path,
                    format!("holds no file that is read: expected {SUFFIXES}"),
                ));
            }
        } else if kind_of(path).is_some() {
            files.push(path.clone());
        } else {
            return Err(TrainError::file(
                path,
                format!("is not read, by its name: expected {SUFFIXES}"),
            ));
        }
    }
    Ok(files)
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), TrainError> {
    let entries = std::fs::read_dir(folder).map_err(|e| TrainError::io(folder, &e))?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()
        .map_err(|e| TrainError::io(folder, &e))?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            walk(&path, files)?;
        } else if kind_of(&path).is_some() {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_file_is() {
        for (name, wanted) in [
            ("a.txt", Some((Form::Text, Packing::Plain))),
            ("a.b.MD", Some((Form::Text, Packing::Plain))),
            ("a.txt.xz", Some((Form::Text, Packing::Xz))),
            ("a.jsonl.zst", Some((Form::Jsonl, Packing::Zst))),
            ("a.tar", Some((Form::Tar, Packing::Plain))),
            ("a.tar.gz", Some((Form::Tar, Packing::Gz))),
            ("a.tgz", Some((Form::Tar, Packing::Gz))),
            ("a.parquet", Some((Form::Parquet, Packing::Plain))),
            ("a.parquet.gz", None),
            ("a.gz", None),
            ("txt", None),
            ("a.zip", None),
        ] {
            assert_eq!(kind(name), wanted, "{name}");
        }
    }

    #[test]
    fn folders_are_walked_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b.txt", "a.jsonl", "c.bin"] {
            std::fs::write(at(name), "").unwrap();
        }
        let files = corpus_files(&[folder.path().to_owned()]).unwrap();
        assert_eq!(files, [at("a.jsonl"), at("b.txt")]);
        let error = corpus_files(&[at("c.bin")]).unwrap_err().to_string();
        assert!(
            error.contains("c.bin") && error.contains(".tar.zst"),
            "{error}"
        );
        assert!(corpus_files(&[at("none")]).is_err());
    }
}
