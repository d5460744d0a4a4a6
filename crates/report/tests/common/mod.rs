//! Fixed results: the JSON snapshots of `renderers.rs`, read back as `snellen report` reads a saved file.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod results;
pub(crate) mod study;

use serde_json::Value;
use snellen_report::Document;
use snellen_report::schema::{FindingRecord, Severity};

pub(crate) fn saved(verb: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots");
    let text = std::fs::read_to_string(format!("{folder}/renderers__{verb}_json.snap")).unwrap();
    // insta's own header ends at the second line of dashes; it also drops the last newline
    let body = text.splitn(3, "---\n").nth(2).unwrap();
    format!("{}\n", body.trim_end())
}

pub(crate) fn document(verb: &str) -> Document {
    Document::from_json(&saved(verb)).unwrap()
}

/// Results about heads, with findings.
pub(crate) const VERBS: [&str; 4] = ["horizon", "inspect", "audit", "measure"];

/// Results that are not about heads; `task` is the other kind of `eval`.
pub(crate) const RESULTS: [&str; 4] = ["probe", "eval", "task", "train"];

pub(crate) fn counts(finding: &FindingRecord) -> bool {
    finding.severity >= Severity::Warning
}

/// The document inside a page.
pub(crate) fn embedded(page: &str) -> Value {
    let start = page.find("id=\"result\"").unwrap();
    let start = start + page[start..].find('>').unwrap() + 1;
    let end = start + page[start..].find("</script>").unwrap();
    serde_json::from_str(&page[start..end]).unwrap()
}
