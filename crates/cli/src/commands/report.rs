//! `snellen report A.json [B.json]`: a saved result in any format, or two side by side.

use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use clap::Args;
use report::Document;
use report::schema::PairReport;
use std::path::{Path, PathBuf};

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A result saved with --format json; `-` is stdin
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// A second result. Of the same verb: the two are compared, A before and B after, and new findings decide the exit
    /// code. Of another verb: the two are shown together
    #[arg(value_name = "B.json")]
    b: Option<PathBuf>,
}

/// Runs the verb.
pub(crate) fn run(args: &ReportArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let a = read(&args.a)?;
    let Some(path) = &args.b else {
        let flags = judged_as(&a, global);
        return crate::output::emit(a, &flags);
    };
    let b = read(path)?;
    for (path, document) in [(&args.a, &a), (path, &b)] {
        if document.outcome().is_none() {
            return Err(Failure::error(format!(
                "{}: expected the result of horizon, inspect, audit or measure, found one of {}; two of those are compared",
                path.display(),
                document.verb()
            )));
        }
    }
    let flags = judged_as(&a, global);
    crate::output::emit(PairReport::new(super::VERSION, a, b), &flags)
}

/// The flags that the verb itself judged its result by.
fn judged_as(document: &Document, global: &GlobalArgs) -> GlobalArgs {
    match document {
        Document::Horizon(_) | Document::Inspect(_) => global.judging_a_description(),
        _ => global.clone(),
    }
}

fn read(path: &Path) -> Result<Document, Failure> {
    let fail = |text: String| Failure::error(format!("{}: {text}", path.display()));
    let text = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| fail(error.to_string()))?;
    Document::from_json(&text).map_err(|error| fail(error.to_string()))
}
