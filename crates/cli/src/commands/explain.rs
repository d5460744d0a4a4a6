//! `snellen explain [CODE]`.

use crate::args::GlobalArgs;
use crate::failure::{Exit, Failure};
use crate::suggest::did_you_mean;
use ::audit::checks::{CHECKS, Check};
use clap::Args;
use report::schema::ExplainReport;

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Code or name of a check, such as SN001 or blind-head; all are listed without it
    code: Option<String>,
}

/// The check of this code or name, ignoring case.
pub(crate) fn find(code: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| {
        check.doc.code.eq_ignore_ascii_case(code) || check.doc.name.eq_ignore_ascii_case(code)
    })
}

/// Prints the documentation of one check, or the list.
pub(crate) fn run(args: &ExplainArgs, global: &GlobalArgs) -> Result<Exit, Failure> {
    let report = match &args.code {
        None => ExplainReport::new(super::VERSION, CHECKS.iter().map(|check| check.doc)),
        Some(code) => {
            let check = find(code).ok_or_else(|| {
                let known = CHECKS
                    .iter()
                    .flat_map(|check| [check.doc.code, check.doc.name]);
                let hint = did_you_mean(code, known);
                Failure::error(format!(
                    "unknown check {code:?}{hint}; `snellen explain` lists all"
                ))
            })?;
            ExplainReport::new(super::VERSION, std::iter::once(check.doc))
        }
    };
    crate::output::emit(report, global)
}
