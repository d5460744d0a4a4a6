//! The end of every text document: findings, what was skipped, notes.

use super::style::Style;
use super::{Page, escape, plural};
use crate::number::short;
use crate::schema::{FindingRecord, Outcome, Severity, Skipped};

/// Findings of one code that are shown in full; the rest are listed by place.
const SHOWN_PER_CODE: usize = 3;
/// Places listed after the findings that are shown in full.
const PLACES_LISTED: usize = 12;

/// Writes the tail of a document. `checked` is what was looked at; a clean verdict over nothing is never given.
pub(super) fn render(page: &mut Page<'_>, outcome: &Outcome, checked: Option<&str>) {
    if !outcome.findings.is_empty() {
        findings(page, &outcome.findings);
    } else if let Some(checked) = checked {
        page.heading("Findings");
        page.line(&format!("  none in {checked}"));
    }
    if !outcome.skipped.is_empty() {
        page.heading("Not checked");
        for (what, reason) in by_reason(&outcome.skipped) {
            page.item(&format!("{}: {}", escape(&what), escape(reason)));
        }
    }
    if !outcome.notes.is_empty() {
        page.heading("Notes");
        for note in &outcome.notes {
            page.item(&escape(note));
        }
    }
}

/// What was skipped for one reason together, in the order of the first.
fn by_reason(skipped: &[Skipped]) -> Vec<(String, &str)> {
    let mut groups: Vec<(String, &str)> = Vec::new();
    for one in skipped {
        match groups.iter_mut().find(|(_, reason)| *reason == one.reason) {
            Some((what, _)) => {
                what.push_str(", ");
                what.push_str(&one.what);
            }
            None => groups.push((one.what.clone(), &one.reason)),
        }
    }
    groups
}

fn findings(page: &mut Page<'_>, findings: &[FindingRecord]) {
    let count = |severity| {
        findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count() as u64
    };
    let counts = [
        (Severity::Error, "error"),
        (Severity::Warning, "warning"),
        (Severity::Note, "note"),
    ];
    let counts = counts
        .map(|(severity, noun)| (count(severity), noun))
        .into_iter()
        .filter(|(n, _)| *n > 0);
    let counts: Vec<_> = counts.map(|(n, noun)| plural(n, noun)).collect();
    page.heading(&format!("Findings: {}", counts.join(", ")));
    for (index, group) in findings
        .chunk_by(|a, b| a.code == b.code && a.severity == b.severity)
        .enumerate()
    {
        if index > 0 {
            page.line("");
        }
        for finding in group.iter().take(SHOWN_PER_CODE) {
            one(page, finding);
        }
        let rest = &group[group.len().min(SHOWN_PER_CODE)..];
        if !rest.is_empty() {
            more(page, rest);
        }
        if let Some(next) = group
            .iter()
            .find_map(|finding| finding.next_command.as_deref())
        {
            page.line(&format!("    next: {}", escape(next)));
        }
    }
}

/// `  warning SN001 blind-head, layer 3 head 0, plan ftz: value 0.83, threshold 0.5` and the message.
fn one(page: &mut Page<'_>, finding: &FindingRecord) {
    let style = match finding.severity {
        Severity::Error => Style::Error,
        Severity::Warning => Style::Warning,
        Severity::Note => Style::Bold,
    };
    let severity = finding.severity.name();
    let mut line = format!("{} {}", finding.code, finding.name);
    for part in [
        place(finding),
        finding
            .plan
            .as_ref()
            .map(|plan| format!("plan {}", escape(plan))),
    ]
    .iter()
    .flatten()
    {
        line.push_str(", ");
        line.push_str(part);
    }
    match (finding.value, finding.threshold) {
        (Some(value), Some(threshold)) => {
            line.push_str(&format!(
                ": value {}, threshold {}",
                short(value),
                short(threshold)
            ));
        }
        (Some(value), None) => line.push_str(&format!(": value {}", short(value))),
        _ => {}
    }
    let line = page.options.wrap(&line, severity.len() + 3, 4);
    page.line(&format!("  {} {line}", page.options.paint(style, severity)));
    let message = page.options.wrap(&escape(&finding.message), 4, 4);
    page.line(&format!("    {message}"));
}

fn place(finding: &FindingRecord) -> Option<String> {
    match (finding.layer, finding.head) {
        (Some(layer), Some(head)) => Some(format!("layer {layer} head {head}")),
        (Some(layer), None) => Some(format!("layer {layer}")),
        (None, Some(head)) => Some(format!("head {head} of every layer")),
        (None, None) => None,
    }
}

/// Where the others are, as `layer/head`.
fn more(page: &mut Page<'_>, rest: &[FindingRecord]) {
    let mut places: Vec<String> = Vec::new();
    for finding in rest {
        let short_place = match (finding.layer, finding.head) {
            (Some(layer), Some(head)) => format!("{layer}/{head}"),
            (Some(layer), None) => format!("{layer}/-"),
            (None, Some(head)) => format!("-/{head}"),
            (None, None) => continue,
        };
        if !places.contains(&short_place) {
            places.push(short_place);
        }
    }
    let mut text = format!("{} more of this code", rest.len());
    if !places.is_empty() {
        let listed = places.len().min(PLACES_LISTED);
        text.push_str(&format!(" (layer/head {}", places[..listed].join(" ")));
        if places.len() > listed {
            text.push_str(&format!(" and {} more places", places.len() - listed));
        }
        text.push(')');
    }
    text.push_str("; --format json lists all");
    let wrapped = page.options.wrap(&text, 4, 4);
    page.line(&format!("    {wrapped}"));
}

/// Letter that marks a head with a failure other than blindness, which the glyph of the cell already shows. Findings under
/// another plan than the charted one do not mark it.
pub(crate) fn mark(findings: &[FindingRecord], plan: &str, layer: u64, head: u64) -> Option<char> {
    let here = findings.iter().filter(|finding| {
        finding.head == Some(head)
            && finding.layer.is_none_or(|found| found == layer)
            && finding.plan.as_deref().is_none_or(|found| found == plan)
            && finding.name != "blind-head"
    });
    // the first among equals: findings are ordered by code
    let worst = here.reduce(|a, b| if b.severity > a.severity { b } else { a });
    worst.map(|finding| letter(&finding.name))
}

/// Letters of the failures that concern one head, and what the legend calls them.
pub(crate) const MARKS: &[(&str, char, &str)] = &[
    ("position-collapse", 'c', "position collapse"),
    ("sink-head", 's', "sink"),
    ("dead-head", 'd', "dead"),
    ("bias-overflow", 'o', "bias overflow"),
    ("half-precision-slopes", 'h', "slope rounded"),
    ("sub-ulp-reach", 'u', "below the sum's resolution"),
    ("out-of-reach", 'r', "beyond the reach of content"),
    ("not-finite", 'n', "not finite"),
];
const MARK_OTHER: char = '*';

fn letter(name: &str) -> char {
    let known = MARKS.iter().find(|(known, _, _)| *known == name);
    known.map_or(MARK_OTHER, |(_, letter, _)| *letter)
}

/// The marks that occur, explained.
pub(crate) fn mark_legend(marks: impl Iterator<Item = char>) -> Option<String> {
    let marks: std::collections::BTreeSet<char> = marks.collect();
    let explain = |mark: &char| match MARKS.iter().find(|(_, letter, _)| letter == mark) {
        Some((_, letter, meaning)) => format!("{letter} {meaning}"),
        None => format!("{MARK_OTHER} another finding"),
    };
    (!marks.is_empty()).then(|| marks.iter().map(explain).collect::<Vec<_>>().join("; "))
}
