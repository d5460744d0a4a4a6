//! Summaries of the verbs.

use super::{PlanTable, Summary, cell, least, place, plural};
use crate::number::{Distance, percent, short};
use crate::schema::{AuditReport, HorizonReport, InspectReport, MeasurePlanSummary, MeasureReport};

pub(super) fn horizon(report: &HorizonReport) -> Summary {
    let length = report.envelope.length.unwrap_or(0);
    let plan = report.envelope.plan.as_deref().unwrap_or("no plan");
    let sum = &report.summary;
    let mut summary = Summary {
        wrong: sum.heads_touched > 0 || sum.heads_nan > 0,
        headline: if sum.heads == 0 {
            "No head was looked at.".to_owned()
        } else if sum.heads_touched == 0 {
            format!(
                "Under {plan} none of {} is blind within {length} tokens by its bias alone.",
                plural(sum.heads, "head")
            )
        } else {
            format!(
                "Under {plan}, {} of {} {} blind within {length} tokens by the bias alone: {} of all pairs get a weight of \
                 exactly zero.",
                sum.heads_touched,
                plural(sum.heads, "head"),
                if sum.heads_touched == 1 { "is" } else { "are" },
                percent(sum.blind_share)
            )
        },
        ..Summary::default()
    };
    if let Some((head, distance)) = least(&report.heads, |head| head.first_blind_distance) {
        summary.facts.push(format!(
            "Since distance {distance}: that is where the steepest slope ({}, head {}) goes blind.",
            short(head.slope),
            head.head
        ));
    }
    if sum.heads_nan > 0 {
        summary.facts.push(format!(
            "The stored bias of {} overflows to infinity: rows that see it are NaN, and the shares leave them out.",
            plural(sum.heads_nan, "head")
        ));
    }
    let rows = report.plans.iter().map(|plan| {
        let sum = &plan.summary;
        let first = least(&plan.heads, |head| head.first_blind_distance);
        vec![
            plan.info.plan.clone(),
            format!("{} of {}", sum.heads_touched, sum.heads),
            percent(sum.blind_share),
            cell(sum.blind_share_last_row.map(percent)),
            cell(first.map(|(_, distance)| distance)),
            cell(plan.info.tau_nats().map(short)),
        ]
    });
    summary.by_plan = Some(PlanTable {
        columns: vec![
            "plan",
            "heads blind",
            "blind pairs",
            "blind to the last token",
            "first blind distance",
            "tau (nats)",
        ],
        rows: rows.collect(),
    });
    worst_plan(&mut summary, report.plans.len(), || {
        let sums = report
            .plans
            .iter()
            .map(|p| (p.info.plan.as_str(), p.summary.blind_share));
        sums.collect()
    });
    if summary.wrong && report.remedy.is_none() {
        summary.remedies_of("SN001");
    }
    summary.facts.push(
        "All content is taken as equal here: real scores move every distance, and `snellen measure` shows by how much."
            .to_owned(),
    );
    summary
}

/// Names the best and the worst of several plans by blind share.
fn worst_plan<'a>(
    summary: &mut Summary,
    n_plans: usize,
    shares: impl FnOnce() -> Vec<(&'a str, f64)>,
) {
    if n_plans < 2 {
        return;
    }
    let shares = shares();
    let order = |a: &&(&str, f64), b: &&(&str, f64)| a.1.total_cmp(&b.1);
    let (Some(best), Some(worst)) = (shares.iter().min_by(order), shares.iter().max_by(order))
    else {
        return;
    };
    if worst.1 > best.1 {
        summary.facts.push(format!(
            "Of {n_plans} plans {} loses most ({}) and {} least ({}).",
            worst.0,
            percent(worst.1),
            best.0,
            percent(best.1)
        ));
    }
}

pub(super) fn audit(report: &AuditReport) -> Summary {
    let length = report.envelope.length.unwrap_or(0);
    let plan = report.envelope.plan.as_deref().unwrap_or("no plan");
    let sum = &report.summary;
    if sum.heads == 0 {
        return Summary {
            headline: "No head could be bounded, so nothing is certified.".to_owned(),
            ..Summary::default()
        };
    }
    let mut summary = Summary {
        wrong: sum.heads_certified_blind > 0 || sum.heads_expected_blind > 0,
        headline: format!(
            "Under {plan}, for any text whatever: of {} {} certainly blind somewhere within {length} tokens, {} certain to \
             see all of it, and for the rest it depends on the text.",
            plural(sum.heads, "head"),
            are(sum.heads_certified_blind),
            are(sum.heads_guaranteed_visible)
        ),
        ..Summary::default()
    };
    summary.facts.push(format!(
        "An input of typical size blinds {} within {length} tokens.",
        plural(sum.heads_expected_blind, "head")
    ));
    if let Some((head, distance)) = least(&report.heads, |head| head.certified_horizon) {
        summary.facts.push(format!(
            "Certainly blind past distance {distance} at the earliest ({}).",
            place(Some(head.layer), head.head)
        ));
    }
    if let Some((head, distance)) = least(&report.heads, |head| head.expected_horizon) {
        summary.facts.push(format!(
            "Typically blind past distance {distance} at the earliest ({}).",
            place(Some(head.layer), head.head)
        ));
    }
    let rows = report.plans.iter().map(|plan| {
        let certificate = |head: &crate::schema::AuditHead| head.plans.get(&plan.plan).cloned();
        let visible = least(&report.heads, |head| certificate(head)?.guaranteed_visible);
        let expected = least(&report.heads, |head| certificate(head)?.expected_horizon);
        let certified = least(&report.heads, |head| certificate(head)?.certified_horizon);
        vec![
            plan.plan.clone(),
            cell(visible.map(|(_, distance)| distance)),
            cell(expected.map(|(_, distance)| distance)),
            cell(certified.map(|(_, distance)| distance)),
            cell(plan.tau_nats().map(short)),
        ]
    });
    summary.by_plan = Some(PlanTable {
        columns: vec![
            "plan",
            "shortest guaranteed visible",
            "shortest expected horizon",
            "shortest certified horizon",
            "tau (nats)",
        ],
        rows: rows.collect(),
    });
    summary
}

fn are(count: u64) -> String {
    if count == 1 {
        "1 is".to_owned()
    } else {
        format!("{count} are")
    }
}

/// How many pairs were blind under a plan: what follows "under the plan". `heads` are all that were measured.
pub(crate) fn blind_pairs(sum: &MeasurePlanSummary, heads: &str) -> String {
    let Some(share) = sum.blind_share else {
        return format!(" every score of {heads} overflows: nothing was counted.");
    };
    let mut text = if sum.blind_pairs == 0 {
        format!(" no pair of {heads} was blind.")
    } else {
        format!(
            ", {} of {heads} had blind pairs: {} of all weights were exactly zero.",
            sum.heads_touched,
            percent(share)
        )
    };
    if sum.non_finite_pairs > 0 {
        let share = sum.non_finite_pairs as f64 / sum.pairs as f64;
        text.push_str(&format!(
            " Not counted: {} of the pairs, in rows whose scores overflow.",
            percent(share)
        ));
    }
    text
}

pub(super) fn measure(report: &MeasureReport) -> Summary {
    let plan = report.envelope.plan.as_deref().unwrap_or("no plan");
    let heads = plural(report.summary.heads, "head");
    let sum = report.summary.plans.get(plan);
    let mut summary = Summary {
        headline: match sum {
            None => "No head was measured.".to_owned(),
            Some(sum) => format!("On this text and under {plan}{}", blind_pairs(sum, &heads)),
        },
        wrong: sum.is_some_and(|sum| sum.blind_pairs + sum.non_finite_pairs > 0)
            || !report.outcome.findings.is_empty(),
        ..Summary::default()
    };
    let first = |key: &str| {
        least(&report.heads, |head| {
            head.plans
                .get(key)
                .and_then(|evidence| evidence.first_blind_distance)
                .map(Distance::from)
        })
    };
    if let Some((head, distance)) = first(plan) {
        summary.facts.push(format!(
            "Since distance {distance}: the first blind pair ({}).",
            place(Some(head.layer), head.head)
        ));
    }
    worst_plan(&mut summary, report.plans.len(), || {
        let sums = report.summary.plans.iter();
        sums.filter_map(|(key, sum)| Some((key.as_str(), sum.blind_share?)))
            .collect()
    });
    let mut reach: Vec<u64> = report
        .heads
        .iter()
        .filter_map(|head| head.reach_90)
        .collect();
    reach.sort_unstable();
    if let Some(middle) = reach.get(reach.len() / 2) {
        summary.facts.push(format!(
            "Half of the heads place nine tenths of their attention within {middle} tokens."
        ));
    }
    if let Some(nats) = report.loss.as_ref().and_then(|loss| loss.nats_per_token) {
        summary
            .facts
            .push(format!("Loss on the text: {nats:.3} nats a token."));
    }
    let rows = report.plans.iter().filter_map(|plan| {
        let sum = report.summary.plans.get(&plan.plan)?;
        Some(vec![
            plan.plan.clone(),
            format!("{} of {}", sum.heads_touched, report.summary.heads),
            sum.blind_share
                .map_or_else(|| "unknown".to_owned(), percent),
            cell(first(&plan.plan).map(|(_, distance)| distance)),
            cell(plan.tau_nats().map(short)),
        ])
    });
    summary.by_plan = Some(PlanTable {
        columns: vec![
            "plan",
            "heads blind",
            "blind pairs",
            "first blind distance",
            "tau (nats)",
        ],
        rows: rows.collect(),
    });
    summary
}

pub(super) fn inspect(report: &InspectReport) -> Summary {
    let failed: Vec<_> = report
        .self_check
        .iter()
        .filter(|check| check.holds == Some(false))
        .collect();
    let unknown = report
        .self_check
        .iter()
        .filter(|check| check.holds.is_none())
        .count() as u64;
    let held = report.self_check.len() as u64 - failed.len() as u64 - unknown;
    let mut summary = Summary {
        wrong: !failed.is_empty() || !report.outcome.findings.is_empty(),
        headline: if failed.is_empty() {
            format!(
                "The configuration was read without its weights' values: {} {} and {unknown} could not be checked.",
                plural(held, "self-check"),
                if held == 1 { "holds" } else { "hold" }
            )
        } else {
            format!(
                "{} of the configuration fail.",
                plural(failed.len() as u64, "self-check")
            )
        },
        ..Summary::default()
    };
    for check in failed {
        summary
            .facts
            .push(format!("{}: {}", check.check, check.detail));
    }
    let alibi = &report.alibi;
    summary.facts.push(format!(
        "The bias is {}, added {}, from slopes of rule {}.",
        alibi.form, alibi.scale_order, alibi.slope_rule
    ));
    summary
}
