//! `snellen report A [B]`: a saved result or a training run in any format, or two side by side.

use crate::args::{Format, GlobalArgs};
use crate::failure::{Exit, Failure};
use clap::Args;
use report::Document;
use report::figure::{Chosen, HeadPlace};
use report::schema::{PairReport, TrainReport};
use std::path::{Path, PathBuf};
use train::run::History;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A result saved with --format json, or the folder of a training run; `-` is stdin
    #[arg(value_name = "A")]
    a: PathBuf,
    /// A second result. Of the same verb: the two are compared, A before and B after, and new findings decide the exit
    /// code. Of another verb: the two are shown together
    #[arg(value_name = "B")]
    b: Option<PathBuf>,
    /// With --format svg or png: the figures of one head, named as in the addresses of the page: L2H0, or H0 where a result is the same in
    /// every layer
    #[arg(long, value_name = "HEAD", value_parser = crate::parse::head_place)]
    head: Option<HeadPlace>,
    /// With --format svg or png: the eye chart by another quantity, named as in the schema: first_blind_distance, reach_90, ...
    #[arg(long, value_name = "FIELD", conflicts_with = "head")]
    show: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &ReportArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    crate::output::refuse_binary_on_a_terminal(global)?;
    let chosen = chosen(args, global)?;
    let a = read(&args.a)?;
    let Some(path) = &args.b else {
        let flags = judged_as(&a, global);
        return crate::output::emit_figures(a, &chosen, &flags);
    };
    let b = read(path)?;
    for (path, document) in [(&args.a, &a), (path, &b)] {
        if document.outcome().is_none() {
            return Err(Failure::error(format!(
                "{}: expected the result of a run, found one of {}; the results of two runs are compared",
                path.display(),
                document.verb()
            )));
        }
    }
    let flags = judged_as(&a, global);
    let pair = PairReport::new(super::VERSION, a, b);
    crate::output::emit_figures(pair, &chosen, &flags)
}

/// The figures asked for.
fn chosen(args: &ReportArgs, global: &GlobalArgs) -> Result<Chosen, Failure> {
    let (flag, chosen) = match (args.head, &args.show) {
        (Some(place), _) => ("--head", Chosen::Head(place)),
        (None, Some(name)) => ("--show", Chosen::Quantity(name.clone())),
        (None, None) => return Ok(Chosen::Everything),
    };
    if matches!(global.format(), Format::Svg | Format::Png) {
        return Ok(chosen);
    }
    Err(Failure::error(format!(
        "{flag}: chooses the figures of a picture; add --format svg or --format png"
    )))
}

/// The flags that the verb itself judged its result by.
fn judged_as(document: &Document, global: &GlobalArgs) -> GlobalArgs {
    match document {
        Document::Horizon(_) | Document::Inspect(_) => global.judging_a_description(),
        _ => global.clone(),
    }
}

/// What `report` expects, for those who gave something else.
const EXPECTED: &str =
    "report expects a result saved with --format json, or the folder of a training run or a study";

fn read(path: &Path) -> Result<Document, Failure> {
    let fail = |text: String| Failure::error(format!("{}: {text}", path.display()));
    if path.as_os_str() == "-" {
        let text = std::io::read_to_string(std::io::stdin())
            .map_err(|error| Failure::cannot_read(Path::new("stdin"), &error, EXPECTED))?;
        // some shells put a byte order mark before what they pipe
        return Document::from_json(text.trim_start_matches('\u{feff}'))
            .map_err(|error| Failure::error(format!("stdin: {error}")));
    }
    if History::is_run(path) {
        return Ok(TrainReport::new(super::VERSION, &History::read(path)?)?.into());
    }
    if path.join("study.toml").exists() {
        return Ok(super::study::report::of(path)?.into());
    }
    if path.is_dir() {
        return Err(fail(format!(
            "is a folder without record.json and metrics.jsonl; {EXPECTED}"
        )));
    }
    let text = checkpoint::files::read_to_string(path)
        .map_err(|error| Failure::cannot_read(path, &error, EXPECTED))?;
    Document::from_json(&text).map_err(|error| fail(error.to_string()))
}
