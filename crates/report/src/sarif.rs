//! The SARIF 2.1.0 renderer: findings for code scanning pages.
//!
//! Rules are the checks, all of them and always, by their stable codes; a result is a finding. Heads are *logical* locations
//! (`layer.3.head.5`); the artifact is the model's path, relative where it was given so. What could not be measured is a tool
//! notification, so that silence is never taken for health. Of a pair, every result says whether it is new in B (`baselineState`).

use crate::document::Document;
use crate::schema::{FindingRecord, ModelInfo, Outcome, Severity};
use audit::CheckDoc;
use audit::checks::CHECKS;
use serde_json::{Value, json};

/// Address of the schema, as SARIF asks for it.
pub const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// The log, or `None` for documentation and for results without checks, whose silence would mean nothing.
///
/// # Errors
/// Never for a value of this crate's types; the signature is `serde_json`'s.
pub fn render(document: &Document) -> Result<Option<String>, serde_json::Error> {
    if document.runs_no_checks() {
        return Ok(None);
    }
    let runs = match document {
        Document::Prompts(_) | Document::Explain(_) => return Ok(None),
        Document::Pair(pair) if pair.comparable => vec![compared(document, pair)],
        Document::Pair(pair) => vec![run(&pair.a), run(&pair.b)],
        other => vec![run(other)],
    };
    let log = json!({ "$schema": SCHEMA, "version": "2.1.0", "runs": runs });
    crate::json::render(&log).map(Some)
}

fn run(document: &Document) -> Value {
    let model = document
        .envelope()
        .and_then(|envelope| envelope.model.as_ref());
    let outcome = document.outcome();
    let results: Vec<Value> = outcome
        .map(|outcome| outcome.findings.as_slice())
        .unwrap_or_default()
        .iter()
        .map(|finding| result(finding, model, None))
        .collect();
    frame(document, results, outcome)
}

fn compared(document: &Document, pair: &crate::schema::PairReport) -> Value {
    let model = |side: &Document| side.envelope().and_then(|envelope| envelope.model.clone());
    let (of_a, of_b) = (model(&pair.a), model(&pair.b));
    let new = pair.findings_new.iter();
    let mut results: Vec<Value> = new
        .map(|finding| result(finding, of_b.as_ref(), Some("new")))
        .collect();
    let gone = pair.findings_gone.iter();
    results.extend(gone.map(|finding| result(finding, of_a.as_ref(), Some("absent"))));
    let outcome_b = pair.b.outcome();
    let new_ones: std::collections::HashSet<String> =
        pair.findings_new.iter().map(fingerprint).collect();
    let all_b = outcome_b
        .map(|outcome| outcome.findings.as_slice())
        .unwrap_or_default();
    let kept = all_b
        .iter()
        .filter(|finding| !new_ones.contains(&fingerprint(finding)));
    results.extend(kept.map(|finding| result(finding, of_b.as_ref(), Some("unchanged"))));
    frame(document, results, outcome_b)
}

fn frame(document: &Document, results: Vec<Value>, outcome: Option<&Outcome>) -> Value {
    let notifications: Vec<Value> = outcome
        .map(|outcome| outcome.skipped.as_slice())
        .unwrap_or_default()
        .iter()
        .map(|skipped| {
            json!({
                "level": "note",
                "message": { "text": visible(&format!("not checked: {}: {}", skipped.what, skipped.reason)) },
            })
        })
        .collect();
    json!({
        "tool": { "driver": {
            "name": "snellen",
            "version": visible(document.tool_version()),
            "rules": CHECKS.iter().map(|check| rule(check.doc)).collect::<Vec<_>>(),
        } },
        "invocations": [{
            "executionSuccessful": true,
            "toolExecutionNotifications": notifications,
        }],
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": { "verb": visible(document.verb()) },
    })
}

fn rule(doc: &CheckDoc) -> Value {
    let mut help = format!(
        "Measures: {}\n\nThreshold: {}\n\nFalse alarms: {}\n\nRemedies:\n",
        doc.measures, doc.threshold, doc.false_alarms
    );
    for (kind, action) in doc.remedies {
        help.push_str(&format!("- ({}) {action}\n", kind.name()));
    }
    json!({
        "id": doc.code,
        "name": doc.name,
        "shortDescription": { "text": doc.summary },
        "fullDescription": { "text": doc.why_it_matters },
        "help": { "text": help },
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

fn result(finding: &FindingRecord, model: Option<&ModelInfo>, baseline: Option<&str>) -> Value {
    let rule_index = CHECKS
        .iter()
        .position(|check| check.doc.code == finding.code);
    let mut result = json!({
        "ruleId": visible(&finding.code),
        "level": level(finding.severity),
        "message": { "text": visible(&message(finding)) },
        "locations": [location(finding, model)],
        "partialFingerprints": { "snellen/v1": visible(&fingerprint(finding)) },
        "properties": { "value": finding.value, "threshold": finding.threshold, "plan": finding.plan.as_deref().map(visible) },
    });
    if let Some(index) = rule_index {
        result["ruleIndex"] = json!(index);
    }
    if let Some(state) = baseline {
        result["baselineState"] = json!(state);
    }
    result
}

fn message(finding: &FindingRecord) -> String {
    let place = crate::findings::place(finding);
    let mut message = place.map_or_else(String::new, |place| format!("{place}: "));
    message.push_str(&finding.message);
    if let Some(next) = &finding.next_command {
        message.push_str(&format!(" Next: {next}"));
    }
    message
}

/// Place and plan, without numbers: the same defect has the same print in every run.
fn fingerprint(finding: &FindingRecord) -> String {
    let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    format!(
        "{}/{}/{}/{}",
        finding.code,
        number(finding.layer),
        number(finding.head),
        finding.plan.as_deref().unwrap_or("-")
    )
}

fn location(finding: &FindingRecord, model: Option<&ModelInfo>) -> Value {
    let part = match (finding.layer, finding.head) {
        (Some(layer), Some(head)) => format!("layer.{layer}.head.{head}"),
        (Some(layer), None) => format!("layer.{layer}"),
        (None, Some(head)) => format!("head.{head}"),
        (None, None) => "model".to_owned(),
    };
    let mut location = json!({
        "logicalLocations": [{ "name": part, "fullyQualifiedName": part, "kind": "module" }],
    });
    if let Some(path) = model.and_then(|model| model.path.as_deref()) {
        location["physicalLocation"] = json!({ "artifactLocation": { "uri": uri(path) } });
    }
    location
}

/// A path as a URI reference: what RFC 3986 does not allow in a path is percent-encoded.
fn uri(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.replace('\\', "/").bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    if out.starts_with("//") {
        // two slashes would start an authority
        out.insert_str(0, "/.");
    }
    if path.starts_with('/') {
        format!("file://{out}")
    } else {
        out
    }
}

fn visible(text: &str) -> String {
    crate::text::escape(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_uri_references() {
        assert_eq!(uri("models/tiny"), "models/tiny");
        assert_eq!(uri("a b/\u{e9}:<x>"), "a%20b/%C3%A9%3A%3Cx%3E");
        assert_eq!(uri("/m/x"), "file:///m/x");
    }
}
