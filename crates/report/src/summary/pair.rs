//! Summary of two results side by side.

use super::{Summary, plural};
use crate::schema::{FindingRecord, PairReport};

pub(super) fn of(report: &PairReport) -> Summary {
    let (a, b) = (Summary::of(&report.a), Summary::of(&report.b));
    let mut summary = Summary {
        wrong: report.judged_any(),
        ..Summary::default()
    };
    if report.comparable {
        let findings = |list: &[FindingRecord]| plural(list.len() as u64, "finding");
        summary.headline = format!(
            "From A to B: {} new, {} gone, {} in both.",
            findings(&report.findings_new),
            findings(&report.findings_gone),
            report.findings_kept
        );
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
    summary.facts.push(format!("A: {}", a.headline));
    summary.facts.push(format!("B: {}", b.headline));
    summary.facts.extend(report.differences.iter().cloned());
    summary
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
