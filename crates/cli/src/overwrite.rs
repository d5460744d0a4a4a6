//! A result is not written over what it is made from: the command line is looked over before anything is read.

use crate::failure::Failure;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Flags whose value is a file that is written.
const WRITTEN: [&str; 4] = ["--out", "-o", "--items", "--prompts"];

/// Refuses a command line that names a file as a result and as an input, or a result that lies in a folder of the command line and is a
/// part of a model there. Files that do not exist yet, and results of earlier runs, are no inputs.
pub(crate) fn refuse(argv: &[OsString]) -> Result<(), Failure> {
    let (written, others) = split(argv);
    for (flag, path) in written {
        let Ok(real) = path.canonicalize() else {
            continue;
        };
        for other in &others {
            let Ok(input) = other.canonicalize() else {
                continue;
            };
            let within = input.is_dir() && real.starts_with(&input) && is_part_of_a_model(&real);
            if input == real && real.is_file() || within {
                return Err(Failure::error(format!(
                    "{flag} {}: this command reads that file; write to another one",
                    path.display()
                )));
            }
        }
    }
    Ok(())
}

/// Paths that are written, with their flag, and everything else that could be a path.
fn split(argv: &[OsString]) -> (Vec<(&'static str, PathBuf)>, Vec<PathBuf>) {
    let (mut written, mut others) = (Vec::new(), Vec::new());
    let mut words = argv.iter().skip(1);
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if let Some(flag) = WRITTEN.into_iter().find(|flag| *flag == text) {
            written.extend(words.next().map(|path| (flag, path.into())));
        } else if let Some((flag, path)) = WRITTEN.into_iter().find_map(|flag| {
            let rest = text.strip_prefix(flag)?;
            // `--out=FILE`, `-oFILE`
            let path = if flag.starts_with("--") {
                rest.strip_prefix('=')?
            } else {
                rest.strip_prefix('=').unwrap_or(rest)
            };
            Some((flag, path.to_owned()))
        }) {
            written.push((flag, path.into()));
        } else {
            let value = text
                .strip_prefix("--")
                .and_then(|rest| rest.split_once('='));
            others.push(value.map_or_else(|| word.into(), |(_, value)| value.into()));
        }
    }
    (written, others)
}

/// Names of files of which models consist.
fn is_part_of_a_model(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let suffix = path.extension().unwrap_or_default();
    ["safetensors", "toml", "tok", "bin", "gguf"]
        .iter()
        .any(|known| suffix == *known)
        || name == "config.json"
        || name == "metrics.jsonl"
        || name == "record.json"
        || name.ends_with(".index.json")
        || name.starts_with("tokenizer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::create_dir(at("m")).unwrap();
        for name in [
            "m/model.safetensors",
            "m/config.json",
            "m/earlier.json",
            "r.json",
            "t.txt",
        ] {
            std::fs::write(at(name), "x").unwrap();
        }
        let judge = |line: &str| {
            let words = line.split(' ').map(|word| match word.split_once('@') {
                Some((flag, name)) => format!("{flag}{}", at(name)).into(),
                None => word.into(),
            });
            let argv: Vec<OsString> = std::iter::once("snellen".into()).chain(words).collect();
            refuse(&argv).is_ok()
        };
        for line in [
            "report @r.json -o @r.json",
            "report @r.json -o@r.json",
            "report @r.json --out=@r.json",
            "measure @m --text=@t.txt --out @t.txt",
            "measure -o @m/../t.txt @m --text @t.txt",
            "audit @m -o @m/model.safetensors",
            "audit @m --out @m/config.json",
            "probe @m --items @m/model.safetensors",
        ] {
            assert!(!judge(line), "{line}");
        }
        for line in [
            "report @r.json -o @new.json",
            "report @r.json -o -",
            "audit @m -o @m/earlier.json",
            "audit @m -o @m/new.html",
            "audit @m -o @t.txt",
            "report @r.json",
        ] {
            assert!(judge(line), "{line}");
        }
    }
}
