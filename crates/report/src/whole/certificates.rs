//! Certificates that contradict one another or their sums.

use super::counts::{equal, heads};
use super::ranges::Checked;
use super::{broken, place};
use crate::number::Distance;
use crate::schema::{AuditHead, AuditPlanCertificate, AuditReport, AuditSummary};

pub(super) fn audit(report: &AuditReport) -> Checked {
    let parts = report.heads.iter();
    heads(
        &report.plans,
        parts.map(|head| (head.layer, head.head, &head.plans)),
    )?;
    for head in &report.heads {
        let what = place(head.layer, head.head);
        for (plan, own) in &head.plans {
            certificate(&format!("{what}.plans.{plan}"), own)?;
        }
        let first = report.plans.first();
        let Some(first) = first.and_then(|plan| head.plans.get(&plan.plan)) else {
            continue;
        };
        if of_first_plan(head) != *first {
            let expected = "the certificate under the first plan";
            return Err(broken(&what, expected, "another"));
        }
    }
    let Some(length) = report.envelope.length else {
        return Ok(());
    };
    let expected = AuditSummary::of(&report.heads, length);
    let found = &report.summary;
    for (count, expected, found) in [
        (
            "heads_certified_blind",
            expected.heads_certified_blind,
            found.heads_certified_blind,
        ),
        (
            "heads_expected_blind",
            expected.heads_expected_blind,
            found.heads_expected_blind,
        ),
        (
            "heads_guaranteed_visible",
            expected.heads_guaranteed_visible,
            found.heads_guaranteed_visible,
        ),
    ] {
        equal(&format!("summary.{count}"), "the heads", expected, found)?;
    }
    Ok(())
}

/// What a head repeats of the first plan.
fn of_first_plan(head: &AuditHead) -> AuditPlanCertificate {
    AuditPlanCertificate {
        guaranteed_visible: head.guaranteed_visible,
        expected_horizon: head.expected_horizon,
        certified_horizon: head.certified_horizon,
        always_visible: head.always_visible,
        reason: head.certificate_reason.clone(),
    }
}

/// A pair is not both never blind and always blind.
fn certificate(what: &str, own: &AuditPlanCertificate) -> Checked {
    let Some(blind) = own.certified_horizon else {
        return Ok(());
    };
    let what = format!("{what}.certified_horizon");
    if own.always_visible {
        return Err(broken(&what, "null, as always_visible says", blind));
    }
    match own.guaranteed_visible.map(Distance::tokens) {
        Some(visible) if blind.tokens() < visible => {
            let expected = format!("at least guaranteed_visible, {visible}");
            Err(broken(&what, expected, blind))
        }
        _ => Ok(()),
    }
}
