//! The JUnit XML renderer: a test case a check, for the pages that pipelines show.
//!
//! A check fails where one of its findings decides the exit code, is *skipped* where it could not be measured or does not apply,
//! and passes where it looked at something and found nothing that counts.

use crate::document::Document;
use crate::findings::{groups, place};
use crate::schema::{CheckRecord, FindingRecord};
use std::fmt::Write as _;

/// The document; `counts` says whether a finding decides the exit code. `None` where a result has no checks at all: a test that
/// cannot fail is none.
#[must_use]
pub fn render(document: &Document, counts: &dyn Fn(&FindingRecord) -> bool) -> Option<String> {
    if document.runs_no_checks() {
        return None;
    }
    let mut cases = Vec::new();
    match document {
        Document::Prompts(_) | Document::Explain(_) => return None,
        Document::Pair(pair) => {
            for group in groups(&pair.findings_new) {
                cases.push(case(&group.findings, counts));
            }
            if pair.comparable && cases.is_empty() {
                cases.push(Case::passed("new findings", "none in B that A has not"));
            }
            if !pair.comparable {
                for side in [&pair.a, &pair.b] {
                    cases.extend(cases_of(side, counts));
                }
            }
        }
        other => cases.extend(cases_of(other, counts)),
    }
    if cases.is_empty() {
        cases.push(Case {
            name: document.verb().to_owned(),
            state: State::Skipped("this result ran no checks".to_owned()),
            output: String::new(),
        });
    }
    Some(write(document, &cases))
}

enum State {
    Passed,
    Skipped(String),
    Failed { message: String, body: String },
}

struct Case {
    name: String,
    state: State,
    output: String,
}

impl Case {
    fn skipped(check: &CheckRecord, why: &str) -> Self {
        Self {
            name: format!("{} {}", check.code, check.name),
            state: State::Skipped(why.to_owned()),
            output: String::new(),
        }
    }

    fn passed(name: &str, output: &str) -> Self {
        Self {
            name: name.to_owned(),
            state: State::Passed,
            output: output.to_owned(),
        }
    }
}

fn cases_of(document: &Document, counts: &dyn Fn(&FindingRecord) -> bool) -> Vec<Case> {
    let Some(outcome) = document.outcome() else {
        return Vec::new();
    };
    let nothing = crate::whole::nothing_measured(document);
    let known = |code: &str| outcome.checks.iter().any(|check| check.code == code);
    let mut cases: Vec<Case> = outcome
        .checks
        .iter()
        .map(|check| {
            let findings: Vec<_> = outcome
                .findings
                .iter()
                .filter(|finding| finding.code == check.code)
                .collect();
            if nothing && findings.is_empty() {
                return Case::skipped(check, "nothing was measured");
            }
            checked(check, &findings, counts)
        })
        .collect();
    for group in groups(&outcome.findings) {
        if !known(&group.findings[0].code) {
            cases.push(case(&group.findings, counts));
        }
    }
    cases
}

fn checked(
    check: &CheckRecord,
    findings: &[&FindingRecord],
    counts: &dyn Fn(&FindingRecord) -> bool,
) -> Case {
    if !findings.is_empty() {
        return case(findings, counts);
    }
    let name = format!("{} {}", check.code, check.name);
    if check.status == "checked" {
        return Case::passed(&name, &format!("looked at {}", check.items));
    }
    let reason = check.reason.clone().unwrap_or_default();
    Case::skipped(check, &format!("{}: {reason}", check.status))
}

/// Findings of one code.
fn case(findings: &[&FindingRecord], counts: &dyn Fn(&FindingRecord) -> bool) -> Case {
    let first = findings[0];
    let (failing, milder): (Vec<_>, Vec<_>) = findings
        .iter()
        .copied()
        .partition(|finding| counts(finding));
    let name = format!("{} {}", first.code, first.name);
    let state = match failing.first() {
        None => State::Passed,
        Some(worst) => State::Failed {
            message: format!(
                "{} ({} in all)",
                line(worst),
                crate::summary::plural(failing.len() as u64, "finding")
            ),
            body: lines(&failing),
        },
    };
    Case {
        name,
        state,
        output: lines(&milder),
    }
}

fn lines(findings: &[&FindingRecord]) -> String {
    findings
        .iter()
        .map(|finding| line(finding))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Severity, place, plan, number and message of a finding in a line.
fn line(finding: &FindingRecord) -> String {
    let mut line = finding.severity.name().to_owned();
    if let Some(place) = place(finding) {
        let _ = write!(line, ", {place}");
    }
    if let Some(plan) = &finding.plan {
        let _ = write!(line, ", plan {plan}");
    }
    if let Some(value) = finding.value {
        let _ = write!(line, ", value {}", crate::csv::float(value));
    }
    format!("{line}: {}", finding.message)
}

fn write(document: &Document, cases: &[Case]) -> String {
    let model = document
        .envelope()
        .and_then(|envelope| envelope.model.as_ref())
        .map(|model| format!(" {}", model.name));
    let suite = xml(&format!(
        "snellen {}{}",
        document.verb(),
        model.unwrap_or_default()
    ));
    let count = |test: &dyn Fn(&State) -> bool| cases.iter().filter(|c| test(&c.state)).count();
    let numbers = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\"",
        cases.len(),
        count(&|state| matches!(state, State::Failed { .. })),
        count(&|state| matches!(state, State::Skipped(_)))
    );
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"snellen\" {numbers}>\n  <testsuite name=\"{suite}\" \
         {numbers}>\n"
    );
    for case in cases {
        let _ = writeln!(
            out,
            "    <testcase classname=\"{suite}\" name=\"{}\">",
            xml(&case.name)
        );
        match &case.state {
            State::Passed => {}
            State::Skipped(reason) => {
                let _ = writeln!(out, "      <skipped message=\"{}\"/>", xml(reason));
            }
            State::Failed { message, body } => {
                let _ = writeln!(
                    out,
                    "      <failure message=\"{}\" type=\"{}\">{}</failure>",
                    xml(message),
                    xml(&case.name),
                    xml(body)
                );
            }
        }
        if !case.output.is_empty() {
            let _ = writeln!(out, "      <system-out>{}</system-out>", xml(&case.output));
        }
        out.push_str("    </testcase>\n");
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

/// Text as XML: entities, and characters that XML 1.0 forbids made visible. Line breaks between findings stay.
fn xml(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(crate::html::escape_html).collect();
    lines
        .join("\n")
        .replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}
