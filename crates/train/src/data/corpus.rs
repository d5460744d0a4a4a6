//! Which files a corpus is made of, and what each is: told by the suffix alone.
//!
//! | suffix | read as |
//! |---|---|
//! | `.txt`, `.md`, `.markdown`, `.raw` | text |
//! | `.jsonl` | a JSON object a line |
//! | `.parquet` | a table |
//! | any of the first two rows and `.gz`, `.xz` or `.zst` | the same, decompressed while it is read |
//! | `.tar`, `.tar.gz`, `.tar.xz`, `.tar.zst`, `.tgz`, `.txz`, `.tzst` | an archive; the files inside by the same table, without tables and archives |

use std::collections::HashSet;
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

/// The files of a corpus, and what of the paths is none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorpusFiles {
    /// What is read, in a fixed order: each path in turn, folders by name. No file is in it twice.
    pub files: Vec<PathBuf>,
    /// Files in folders that are not read, by their names. Hidden ones (the name begins with a dot) are not counted.
    pub passed_over: u64,
    /// Files that were reached again, by another path or a symbolic link.
    pub repeated: u64,
    /// What was reached, links resolved.
    seen: HashSet<PathBuf>,
}

/// Files under `paths`. Symbolic links are followed; a folder is walked once, so that a link to a folder above it ends.
///
/// # Errors
/// A path that is not there, a folder without a file that is read, a file of another kind, a pipe or device.
pub fn corpus_files(paths: &[PathBuf]) -> Result<CorpusFiles, TrainError> {
    let mut found = CorpusFiles::default();
    for path in paths {
        let metadata = std::fs::metadata(path).map_err(|e| TrainError::io(path, &e))?;
        if metadata.is_dir() {
            let before = found.reached();
            let known = found.seen.contains(&resolved(path)?);
            found.walk(path)?;
            if found.reached() == before && !known {
                return Err(TrainError::file(
                    path,
                    format!("holds no file that is read: expected {SUFFIXES}"),
                ));
            }
        } else if kind_of(path).is_none() {
            return Err(TrainError::file(
                path,
                format!("is not read, by its name: expected {SUFFIXES}"),
            ));
        } else if !metadata.is_file() {
            return Err(TrainError::file(
                path,
                "is not a regular file; a corpus is read more than once, so pipes and devices are not taken",
            ));
        } else {
            found.add(path)?;
        }
    }
    Ok(found)
}

fn resolved(path: &Path) -> Result<PathBuf, TrainError> {
    path.canonicalize().map_err(|e| TrainError::io(path, &e))
}

impl CorpusFiles {
    /// Files reached so far, again or for the first time.
    fn reached(&self) -> u64 {
        self.files.len() as u64 + self.repeated
    }

    /// Whether a path was not reached before; it is from now on.
    fn is_new(&mut self, path: &Path) -> Result<bool, TrainError> {
        Ok(self.seen.insert(resolved(path)?))
    }

    fn add(&mut self, file: &Path) -> Result<(), TrainError> {
        if self.is_new(file)? {
            self.files.push(file.to_owned());
        } else {
            self.repeated += 1;
        }
        Ok(())
    }

    fn walk(&mut self, folder: &Path) -> Result<(), TrainError> {
        if !self.is_new(folder)? {
            return Ok(());
        }
        let entries = std::fs::read_dir(folder).map_err(|e| TrainError::io(folder, &e))?;
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.map(|e| e.path()))
            .collect::<Result<_, _>>()
            .map_err(|e| TrainError::io(folder, &e))?;
        paths.sort();
        for path in paths {
            let hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if hidden {
                continue;
            }
            if path.is_dir() {
                self.walk(&path)?;
            } else if kind_of(&path).is_some() && path.is_file() {
                self.add(&path)?;
            } else {
                self.passed_over += 1;
            }
        }
        Ok(())
    }
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
        let found = corpus_files(&[folder.path().to_owned()]).unwrap();
        assert_eq!(found.files, [at("a.jsonl"), at("b.txt")]);
        assert_eq!((found.passed_over, found.repeated), (1, 0));
        let error = corpus_files(&[at("c.bin")]).unwrap_err().to_string();
        assert!(
            error.contains("c.bin") && error.contains(".tar.zst"),
            "{error}"
        );
        assert!(corpus_files(&[at("none")]).is_err());
    }
    /// Links to folders above and to files read already end the walk; hidden files and pipes are no text.
    #[test]
    #[cfg(unix)]
    fn nothing_is_read_twice_or_waited_for() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("t/deep")).unwrap();
        std::fs::create_dir_all(at("t/.git")).unwrap();
        for name in ["t/a.txt", "t/deep/b.txt", "t/.hidden.txt", "t/.git/c.txt"] {
            std::fs::write(at(name), "").unwrap();
        }
        symlink(at("t"), at("t/deep/loop")).unwrap();
        symlink(at("t/a.txt"), at("t/z.txt")).unwrap();
        symlink(at("gone"), at("t/broken.txt")).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(at("t/pipe.txt"))
            .status();
        let pipe = made.is_ok_and(|status| status.success());
        let found = corpus_files(&[at("t"), at("t/deep"), at("t/a.txt")]).unwrap();
        assert_eq!(found.files, [at("t/a.txt"), at("t/deep/b.txt")]);
        assert_eq!(
            (found.passed_over, found.repeated),
            (1 + u64::from(pipe), 2)
        );
        if pipe {
            let error = corpus_files(&[at("t/pipe.txt")]).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }
}
