//! Documents of a corpus on disk, and the split into training and held-out ones.

use std::path::{Path, PathBuf};

use crate::error::TrainError;

/// Separates documents inside a plain text file.
pub const SEPARATOR: &str = "<|endoftext|>";

/// One document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// File it is from.
    pub source: PathBuf,
    /// Its text.
    pub text: String,
}

impl Document {
    /// Whether it is held out, given how many of a thousand documents are: decided by the hash of the text alone, so that neither
    /// order nor other documents matter.
    pub fn is_held(&self, held_permille: u64) -> bool {
        crate::rng::name(&self.text) % 1000 < held_permille
    }
}

/// Files under `paths` that hold text, in a fixed order: each path in turn, folders by name.
///
/// # Errors
/// A path that is not there, a folder without text, a kind of file that is not read.
pub fn text_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, TrainError> {
    let mut files = Vec::new();
    for path in paths {
        let kind = std::fs::metadata(path).map_err(|e| TrainError::io(path, &e))?;
        if kind.is_dir() {
            let before = files.len();
            walk(path, &mut files)?;
            if files.len() == before {
                return Err(TrainError::file(
                    path,
                    "holds no .txt, .md, .raw or .jsonl file",
                ));
            }
        } else if readable(path) {
            files.push(path.clone());
        } else {
            return Err(TrainError::file(
                path,
                "is not read as text: expected .txt, .md, .raw or .jsonl (unpack archives and compressed files first)",
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
        } else if readable(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

fn readable(path: &Path) -> bool {
    matches!(
        extension(path).as_deref(),
        Some("txt" | "md" | "markdown" | "raw" | "jsonl")
    )
}

/// The documents of one file, in order; empty ones are left out. Text is cut at [`SEPARATOR`]; JSONL has a text a line in the
/// field `field`.
///
/// # Errors
/// Text that is not UTF-8, lines that are not JSON or lack the field.
pub fn documents(path: &Path, field: &str) -> Result<Vec<Document>, TrainError> {
    let bytes = std::fs::read(path).map_err(|e| TrainError::io(path, &e))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        TrainError::file(
            path,
            format!(
                "is not UTF-8 from byte {} on; convert it first",
                e.utf8_error().valid_up_to()
            ),
        )
    })?;
    let texts: Vec<String> = if extension(path).as_deref() == Some("jsonl") {
        let mut texts = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let value: serde_json::Value = serde_json::from_str(line)
                .map_err(|e| TrainError::file(path, format!("line {}: {e}", number + 1)))?;
            let Some(text) = value.get(field).and_then(|v| v.as_str()) else {
                return Err(TrainError::file(
                    path,
                    format!("line {}: no text in field {field:?}", number + 1),
                ));
            };
            texts.extend(text.split(SEPARATOR).map(str::to_owned));
        }
        texts
    } else {
        text.split(SEPARATOR).map(str::to_owned).collect()
    };
    Ok(texts
        .into_iter()
        .map(|text| text.trim_matches(['\n', '\r']).to_owned())
        .filter(|text| !text.is_empty())
        .map(|text| Document {
            source: path.to_owned(),
            text,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_cut_into_documents() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("b.txt"), "one\n<|endoftext|>\ntwo\n<|endoftext|>\n").unwrap();
        std::fs::write(at("a.jsonl"), "{\"body\":\"x\"}\n\n{\"body\":\"y\\nz\"}\n").unwrap();
        std::fs::write(at("c.bin"), [0xff]).unwrap();
        let files = text_files(&[folder.path().to_owned()]).unwrap();
        assert_eq!(files, [at("a.jsonl"), at("b.txt")]);
        let texts: Vec<String> = files
            .iter()
            .flat_map(|f| documents(f, "body").unwrap())
            .map(|d| d.text)
            .collect();
        assert_eq!(texts, ["x", "y\nz", "one", "two"]);
        let error = documents(&at("a.jsonl"), "text").unwrap_err().to_string();
        assert!(
            error.contains("line 1") && error.contains("\"text\""),
            "{error}"
        );
        std::fs::write(at("d.txt"), [b'a', 0xff]).unwrap();
        let error = documents(&at("d.txt"), "text").unwrap_err().to_string();
        assert!(error.contains("not UTF-8 from byte 1"), "{error}");
        assert!(text_files(&[at("c.bin")]).is_err());
        assert!(text_files(&[at("none")]).is_err());
    }

    #[test]
    fn the_split_depends_on_the_text_alone() {
        let held = |text: &str| {
            Document {
                source: PathBuf::new(),
                text: text.to_owned(),
            }
            .is_held(100)
        };
        let n = (0..5000).filter(|i| held(&format!("document {i}"))).count() as f64;
        // Five standard deviations of a binomial count.
        assert!(
            (n - 500.0).abs() < 5.0 * (5000.0f64 * 0.1 * 0.9).sqrt(),
            "{n}"
        );
        assert_eq!(held("document 17"), held("document 17"));
    }
}
