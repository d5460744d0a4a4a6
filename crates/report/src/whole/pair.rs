//! Two results side by side: what is said of them against what they say themselves. Each was looked at when it was read.

use super::broken;
use super::counts::equal;
use super::ranges::Checked;
use crate::schema::{FindingRecord, PairReport};

pub(super) fn report(report: &PairReport) -> Checked {
    let expected = PairReport::new(&report.tool.version, report.a.clone(), report.b.clone());
    let (comparable, found) = (expected.comparable, report.comparable);
    equal("comparable", "the verbs of a and b", comparable, found)?;
    for (list, expected, found) in [
        ("findings_new", &expected.findings_new, &report.findings_new),
        (
            "findings_gone",
            &expected.findings_gone,
            &report.findings_gone,
        ),
    ] {
        held(list, expected, found)?;
    }
    let (kept, found) = (expected.findings_kept, report.findings_kept);
    equal("findings_kept", "a and b", kept, found)?;
    for head in &report.heads {
        for (quantity, own) in &head.quantities {
            let place = head.layer.map_or(String::new(), |l| format!("layer {l}, "));
            let what = format!("heads ({place}head {}).{quantity}.change", head.head);
            change(&what, own.a, own.b, own.change)?;
        }
    }
    for one in &report.paired {
        let what = format!("paired ({}, {}).change", one.what, one.quantity);
        change(&what, one.a, one.b, one.change)?;
    }
    Ok(())
}

/// A list that decides the exit code must hold what a and b give; older documents also hold what only one of them looked at.
fn held(list: &str, expected: &[FindingRecord], found: &[FindingRecord]) -> Checked {
    let Some(missing) = expected.iter().find(|one| !found.contains(one)) else {
        return Ok(());
    };
    let expected = format!("{} {}, as a and b say", missing.code, missing.name);
    Err(broken(list, expected, "none such"))
}

/// A change is that from the first number to the second.
fn change(what: &str, a: Option<f64>, b: Option<f64>, found: Option<f64>) -> Checked {
    let (Some(a), Some(b), Some(found)) = (a, b, found) else {
        return Ok(());
    };
    // a difference of two numbers as they are written: off by their last digits
    if (b - a - found).abs() <= 1e-9 * a.abs().max(b.abs()) {
        return Ok(());
    }
    Err(broken(what, b - a, found))
}
