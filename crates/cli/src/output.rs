//! The document: rendered in memory, then written whole or not at all.

use crate::args::{ColorWhen, Format, GlobalArgs};
use crate::fail_on::Rules;
use crate::failure::{Exit, Failure};
use clap::ValueEnum as _;
use report::Document;
use report::figure::Chosen;
use report::text::{RenderText as _, TextOptions};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;

/// Columns when the output is not a terminal.
const WIDTH_DEFAULT: usize = 100;
/// Narrower than this no table is readable.
const WIDTH_MIN: usize = 40;

/// Renders a result in the format asked for, writes it, and judges its findings.
pub(crate) fn emit(report: impl Into<Document>, global: &GlobalArgs) -> Result<Exit, Failure> {
    emit_figures(report, &Chosen::Everything, global)
}

/// [`emit`] with chosen figures instead of all, which only the forms that are pictures have.
pub(crate) fn emit_figures(
    report: impl Into<Document>,
    chosen: &Chosen,
    global: &GlobalArgs,
) -> Result<Exit, Failure> {
    let document = report.into();
    if document.runs_no_checks() {
        global.refuse_judging(document.verb())?;
    }
    // judged before anything is written: a mistyped --fail-on writes nothing
    let rules = Rules::of(global)?;
    refuse_binary_on_a_terminal(global)?;
    let body = render(&document, chosen, &rules, global)?;
    write_bytes(&body, global)?;
    Ok(rules.judge(&document.judged(), global))
}

/// Binary on a terminal helps nobody, and may change how the terminal behaves.
pub(crate) fn refuse_binary_on_a_terminal(global: &GlobalArgs) -> Result<(), Failure> {
    let name = match global.format() {
        Format::Npz => "npz",
        Format::Png => "png",
        _ => return Ok(()),
    };
    if to_stdout(global) && std::io::stdout().is_terminal() {
        return Err(Failure::error(format!(
            "--format {name} is binary and stdout is a terminal: add --out FILE.{name}"
        )));
    }
    Ok(())
}

fn render(
    document: &Document,
    chosen: &Chosen,
    rules: &Rules,
    global: &GlobalArgs,
) -> Result<Vec<u8>, Failure> {
    let none = || match chosen {
        Chosen::Quantity(name) => no_such_quantity(document, name),
        Chosen::Head(place) => Failure::error(format!(
            "--head: this result has no {place}; expected a head that it looked at, such as L2H0, or H0 where the result is the same in \
             every layer"
        )),
        Chosen::Everything => no_such_form(document, global),
    };
    let json = |error: serde_json::Error| Failure::error(format!("JSON: {error}"));
    let body = match global.format() {
        Format::Text => Some(document.render_text(&text_options(global))),
        Format::Json => Some(report::json::render(document).map_err(json)?),
        Format::Html => report::html::render(document).map_err(json)?,
        // prompts that were not run are no result: they have no page
        Format::Md if matches!(document, Document::Prompts(_)) => None,
        Format::Md => Some(report::markdown::render(document)),
        Format::Sarif => report::sarif::render(document).map_err(json)?,
        Format::Junit => report::junit::render(document, &|finding| rules.matches(finding)),
        Format::Csv => report::csv::render(document),
        Format::Svg => report::figure::render(document, chosen),
        Format::Png => {
            let picture = report::figure::png::render(document, chosen).ok_or_else(none)?;
            return picture.map_err(|error| Failure::error(format!("png: {error}")));
        }
        Format::Npz => {
            let bytes = report::npz::render(document);
            return bytes
                .map_err(|error| Failure::error(format!("npz: {error}")))?
                .ok_or_else(none);
        }
    };
    body.map(String::into_bytes).ok_or_else(none)
}

fn no_such_quantity(document: &Document, name: &str) -> Failure {
    let known = report::figure::quantities(document);
    Failure::error(if known.is_empty() {
        format!("--show {name}: this result has no eye chart; leave the flag away")
    } else {
        let hint = crate::suggest::did_you_mean(name, known.iter().copied());
        format!("--show {name}: expected one of {}{hint}", known.join(", "))
    })
}

/// A result that has no form of this kind, and why: documentation has no heads, a pair is not one set of arrays, a result without
/// checks has nothing that could fail.
fn no_such_form(document: &Document, global: &GlobalArgs) -> Failure {
    let no_checks = document.runs_no_checks();
    let forms = match document {
        Document::Explain(_) => "text, json and md",
        Document::Prompts(_) => "text and json",
        Document::Pair(_) | Document::Study(_) if no_checks => {
            "text, json, html, md, csv, svg and png"
        }
        Document::Pair(_) | Document::Study(_) => {
            "text, json, html, md, sarif, junit, csv, svg and png"
        }
        Document::Inspect(_) => "text, json, html, md, sarif, junit, csv and npz",
        _ if no_checks => "text, json, html, md, csv, npz, svg and png",
        _ => "text, json, html, md, sarif, junit, csv, npz, svg and png",
    };
    let why = match global.format() {
        Format::Sarif | Format::Junit if no_checks => {
            format!(
                "; `{}` runs no checks, so nothing could ever fail",
                document.verb()
            )
        }
        _ if matches!(document, Document::Prompts(_)) => {
            "; it holds prompts that were not run".to_owned()
        }
        Format::Svg | Format::Png if matches!(document, Document::Inspect(_)) => {
            "; it has no figure of its own".to_owned()
        }
        Format::Svg | Format::Png => "; it holds nothing to draw".to_owned(),
        _ => String::new(),
    };
    let name = global
        .format()
        .to_possible_value()
        .map(|value| value.get_name().to_owned());
    Failure::error(format!(
        "--format {}: this result has the forms {forms}{why}",
        name.unwrap_or_default()
    ))
}

fn to_stdout(global: &GlobalArgs) -> bool {
    global
        .out
        .as_ref()
        .is_none_or(|path| path.as_os_str() == "-")
}

/// Writes a finished document to `--out` or to stdout.
pub(crate) fn write(body: &str, global: &GlobalArgs) -> Result<(), Failure> {
    write_bytes(body.as_bytes(), global)
}

fn write_bytes(body: &[u8], global: &GlobalArgs) -> Result<(), Failure> {
    match &global.out {
        Some(path) if path.as_os_str() != "-" => write_file(path, body)
            .map_err(|error| Failure::cannot_write(&path.display().to_string(), &error)),
        _ => write_stdout(body).map_err(|error| Failure::cannot_write("stdout", &error)),
    }
}

/// Writes text with ANSI styles to stdout, which keeps them only where it is a terminal that shows them.
pub(crate) fn write_styled(text: &str) -> Result<(), Failure> {
    write_quietly(&mut anstream::stdout().lock(), text.as_bytes())
        .map_err(|error| Failure::cannot_write("stdout", &error))
}

fn write_stdout(bytes: &[u8]) -> std::io::Result<()> {
    write_quietly(&mut std::io::stdout().lock(), bytes)
}

/// Writes all of it; a reader that closed the pipe has seen enough.
fn write_quietly(stdout: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes the file whole: a reader sees the old file or the whole new one. A link is written through to what it names;
/// a device or a pipe, which a rename would replace, is refused.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = target.as_path();
    if path.symlink_metadata().is_ok_and(|found| {
        let kind = found.file_type();
        !kind.is_file() && !kind.is_dir()
    }) {
        return Err(std::io::Error::new(
            ErrorKind::InvalidInput,
            "is not an ordinary file (a device, a pipe or a dangling link); expected the name of a file",
        ));
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if path.is_dir() {
        return Err(std::io::Error::new(
            ErrorKind::IsADirectory,
            "is a directory",
        ));
    }
    if !folder.is_dir() {
        return Err(std::io::Error::new(
            ErrorKind::NotFound,
            format!("the folder {} does not exist", folder.display()),
        ));
    }
    checkpoint::files::write_whole(path, |out| out.write_all(bytes))
}

/// Layout of a text document: a terminal decides width and colour, a file or pipe always gets the same bytes.
pub(crate) fn text_options(global: &GlobalArgs) -> TextOptions {
    let to_file = !to_stdout(global);
    let terminal = !to_file && std::io::stdout().is_terminal();
    let color = match global.color {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        // honours NO_COLOR, CLICOLOR and the terminal's abilities
        ColorWhen::Auto => {
            !to_file
                && anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
        }
    };
    let width = if terminal {
        terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
    } else {
        None
    };
    TextOptions {
        width: width.unwrap_or(WIDTH_DEFAULT).max(WIDTH_MIN),
        color,
        ascii: global.ascii || (terminal && !locale_is_utf8()),
    }
}

/// Whether the locale's encoding is UTF-8, by the variables that decide it on Unix; elsewhere assumed.
fn locale_is_utf8() -> bool {
    if !cfg!(unix) {
        return true;
    }
    let set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    set.is_some_and(|value| {
        let value = value.to_ascii_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        write_file(&path, b"old").unwrap();
        write_file(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        let names: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, ["out.json"]);
        assert!(write_file(folder.path(), b"x").is_err());
        let error = write_file(&folder.path().join("missing/out.json"), b"x").unwrap_err();
        assert!(
            error.to_string().contains("missing does not exist"),
            "{error}"
        );
    }

    /// A rename onto a device node replaces it for the whole machine.
    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_devices_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_file(&link, b"new").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert!(link.symlink_metadata().unwrap().file_type().is_symlink());
        // a socket stands for every special file: the test never aims at a device of the machine
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(write_file(&socket, b"x").is_err());
        std::fs::remove_file(&file).unwrap();
        assert!(write_file(&link, b"x").is_err(), "a dangling link");
    }
}
