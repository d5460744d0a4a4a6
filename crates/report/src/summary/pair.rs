//! Summary of two results side by side.

use super::{Summary, plural};
use crate::document::Document;
use crate::number::{percent, short};
use crate::schema::{FindingRecord, PairReport, PairedDifference};

pub(super) fn of(report: &PairReport) -> Summary {
    let (a, b) = (Summary::of(&report.a), Summary::of(&report.b));
    let mut summary = Summary {
        wrong: report.judged_any(),
        ..Summary::default()
    };
    if report.comparable {
        let findings = |list: &[FindingRecord]| plural(list.len() as u64, "finding");
        summary.headline = if report.paired.is_empty() && runs_no_checks(report) {
            format!(
                "A and B are both results of {}; nothing in them pairs, so only their own summaries stand side by side.",
                report.a.verb()
            )
        } else if report.paired.is_empty() {
            format!(
                "From A to B: {} new, {} gone, {} in both.",
                findings(&report.findings_new),
                findings(&report.findings_gone),
                report.findings_kept
            )
        } else {
            paired(report)
        };
        for (side, other, list) in [
            ("A", "B", &report.findings_not_measured_in_a),
            ("B", "A", &report.findings_not_measured_in_b),
        ] {
            if !list.is_empty() {
                summary.facts.push(format!(
                    "{} of {other} at heads or plans not measured in {side}: neither new nor gone.",
                    findings(list)
                ));
            }
        }
        for sum in report.summary.iter().filter(|sum| {
            [
                "blind_share",
                "expected_horizon",
                "certified_horizon",
                "reach_90",
            ]
            .contains(&sum.quantity.as_str())
        }) {
            let mut words = vec![
                format!("higher in {}", plural(sum.heads_more, "head")),
                format!("lower in {}", sum.heads_less),
                format!("the same in {}", sum.heads_same),
            ];
            if sum.heads_gained > 0 {
                words.push(format!("there in B only in {}", sum.heads_gained));
            }
            if sum.heads_lost > 0 {
                words.push(format!("there in A only in {}", sum.heads_lost));
            }
            summary.facts.push(format!(
                "{}{}: {}.",
                sum.quantity.replace('_', " "),
                plans(sum.plan_a.as_deref(), sum.plan_b.as_deref()),
                words.join(", ")
            ));
        }
    } else {
        summary.headline = format!(
            "Two results together: {} and {}.",
            report.a.verb(),
            report.b.verb()
        );
    }
    for (letter, side, own) in [("A", &report.a, &a), ("B", &report.b, &b)] {
        summary
            .facts
            .push(format!("{letter} is {}: {}", named(side), own.headline));
    }
    summary.facts.extend(report.differences.iter().cloned());
    summary
}

/// Whether neither side has findings, so that none can be new or gone.
fn runs_no_checks(report: &PairReport) -> bool {
    report.a.runs_no_checks() && report.b.runs_no_checks()
}

/// Which result a side is: what it is about, how much of it was looked at, and whether it is a control.
fn named(side: &Document) -> String {
    let mut words = crate::html::subject(side);
    if let Some(length) = side.envelope().and_then(|envelope| envelope.length) {
        words.push_str(&format!(" at {length} tokens"));
    }
    match side {
        Document::Horizon(report) => {
            words.extend(
                report
                    .remedy
                    .as_ref()
                    .map(|remedy| format!(" with {remedy}")),
            );
        }
        Document::Probe(report) if report.settings.control => {
            words.push_str(", a control (its facts were left out)");
        }
        _ => {}
    }
    words
}

/// The difference over everything that both have.
fn paired(report: &PairReport) -> String {
    let Some(first) = report.paired.first() else {
        return String::new();
    };
    let number = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |v| amount(first, v));
    let interval = match (first.change_low, first.change_high) {
        (Some(low), Some(high)) => format!(
            ", 95 % interval {} to {}: {}",
            change(first, low),
            change(first, high),
            if first.is_clear() {
                "a clear difference"
            } else {
                "no clear difference"
            }
        ),
        _ => format!(" ({})", first.method),
    };
    format!(
        "{} over {}: {} in A, {} in B, a change of {}{interval}.",
        sentence(&first.quantity.replace('_', " ")),
        first.what,
        number(first.a),
        number(first.b),
        first
            .change
            .map_or_else(|| "none".to_owned(), |value| change(first, value))
    )
}

/// With a capital at its beginning.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(characters).collect()
}

/// A value of a paired quantity.
pub(crate) fn amount(of: &PairedDifference, value: f64) -> String {
    if of.is_share() {
        percent(value)
    } else {
        short(value)
    }
}

/// Behind the change of a share.
pub(crate) const POINTS: &str = " points";

/// A change with its sign; of a share, in points.
pub(crate) fn change(of: &PairedDifference, value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    if of.is_share() {
        format!("{sign}{:.1}{POINTS}", 100.0 * value)
    } else {
        format!("{sign}{}", short(value))
    }
}

fn plans(a: Option<&str>, b: Option<&str>) -> String {
    match (a, b) {
        (Some(a), Some(b)) if a == b => format!(" under {a}"),
        (Some(a), Some(b)) => format!(" under {a} in A and {b} in B"),
        _ => String::new(),
    }
}

impl PairReport {
    /// Whether a finding decides the exit code.
    fn judged_any(&self) -> bool {
        if self.comparable {
            !self.findings_new.is_empty()
        } else {
            [&self.a, &self.b]
                .iter()
                .any(|document| !document.judged().is_empty())
        }
    }
}
