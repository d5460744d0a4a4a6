//! Where a command writes.

use crate::failure::Failure;
use std::path::{Path, PathBuf};

/// A file and the flag that names it.
pub(crate) type Named<'a> = (&'a str, Option<&'a Path>);

/// Refuses outputs that would overwrite each other, and files besides `--out` that are called `-`. That nothing which is read is
/// overwritten is looked after by [`crate::overwrite`].
pub(crate) fn separate(outputs: &[Named<'_>]) -> Result<(), Failure> {
    let outputs: Vec<(&str, &Path)> = outputs
        .iter()
        .filter_map(|(flag, path)| Some((*flag, (*path)?)))
        .collect();
    for (at, &(flag, path)) in outputs.iter().enumerate() {
        if path.as_os_str() == "-" {
            if flag == "--out" {
                continue;
            }
            return Err(Failure::error(format!(
                "{flag} -: stdout is for the document; name a file, or ./- for one of that name"
            )));
        }
        let same =
            |(_, other): &&(&str, &Path)| other.as_os_str() != "-" && place(other) == place(path);
        if let Some((other, _)) = outputs[..at].iter().find(same) {
            return Err(Failure::error(format!(
                "{}: {other} and {flag} name the same file, and one would overwrite the other; name two files",
                path.display()
            )));
        }
    }
    Ok(())
}

/// The file that a path names, whether it is there yet or not.
fn place(path: &Path) -> PathBuf {
    if let Ok(found) = path.canonicalize() {
        return found;
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::separate;
    use std::path::Path;

    #[test]
    fn files_named_twice_are_refused_however_they_are_spelled() {
        let folder = tempfile::tempdir().unwrap();
        let (file, spelled) = (
            folder.path().join("a.jsonl"),
            folder.path().join("./a.jsonl"),
        );
        let other = folder.path().join("b.jsonl");
        let (items, prompts) = (("--items", Some(&*file)), ("--prompts", Some(&*spelled)));
        let error = separate(&[items, prompts]).unwrap_err();
        assert!(
            error.message().contains("--items and --prompts"),
            "{}",
            error.message()
        );
        separate(&[items, ("--prompts", Some(&*other)), ("--out", None)]).unwrap();
        let dash = Path::new("-");
        separate(&[("--out", Some(dash))]).unwrap();
        let error = separate(&[("--items", Some(dash))]).unwrap_err();
        assert!(error.message().starts_with("--items -: "));
        #[cfg(unix)]
        {
            std::fs::write(&file, "").unwrap();
            let link = folder.path().join("link");
            std::os::unix::fs::symlink(&file, &link).unwrap();
            assert!(separate(&[items, ("--prompts", Some(&*link))]).is_err());
        }
    }
}
