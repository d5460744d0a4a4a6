//! Shares, sums and bins that do not follow from the counts beside them.

use std::collections::BTreeMap;

use super::ranges::{Checked, adds_up, at_most, in_order, interval, share};
use super::{broken, close, once, place, shown};
use crate::schema::{
    HorizonHead, HorizonPlan, HorizonReport, HorizonSummary, MeasureHead, MeasurePlanEvidence,
    MeasureReport, Outcome, PlanInfo, TrainLook, TrainReport,
};

/// Whether a share is `part / whole`; `empty` is what it is where there is nothing to have a share of.
#[allow(clippy::cast_precision_loss)] // a share of counts
fn follows(what: &str, part: u128, whole: u128, found: Option<f64>, empty: Option<f64>) -> Checked {
    share(what, found)?;
    let expected = if whole == 0 {
        empty
    } else {
        Some(part as f64 / whole as f64)
    };
    close(what, expected, found).map_err(|_| {
        let expected = format!("{}, as {part} of {whole} give", shown(expected));
        broken(what, expected, shown(found))
    })
}

/// A value that another part of the document decides.
pub(super) fn equal<T: PartialEq + std::fmt::Debug>(
    what: &str,
    of: &str,
    expected: T,
    found: T,
) -> Checked {
    if expected == found {
        return Ok(());
    }
    Err(broken(
        what,
        format!("{expected:?}, as {of} say"),
        format!("{found:?}"),
    ))
}

/// A first blind distance is there where a pair is blind, and only there.
fn first_blind(what: &str, blind: bool, found: bool) -> Checked {
    if blind == found {
        return Ok(());
    }
    let of = |there: bool| if there { "a distance" } else { "null" };
    Err(broken(
        format!("{what}.first_blind_distance"),
        format!("{}, as blind_pairs says", of(blind)),
        of(found),
    ))
}

/// Plans of a part of the document against those of the whole.
fn plans<P>(what: &str, of: &[PlanInfo], found: &BTreeMap<String, P>) -> Checked {
    let mut of: Vec<&String> = of.iter().map(|plan| &plan.plan).collect();
    of.sort();
    let what = format!("{what}.plans");
    equal(&what, "the document's plans", of, found.keys().collect())
}

/// Every head once, each under the document's plans.
pub(super) fn heads<'a, P: 'a>(
    of: &[PlanInfo],
    heads: impl Iterator<Item = (u64, u64, &'a BTreeMap<String, P>)> + Clone,
) -> Checked {
    once("heads", heads.clone().map(|(layer, head, _)| (layer, head)))?;
    for (layer, head, found) in heads {
        plans(&place(layer, head), of, found)?;
    }
    Ok(())
}

/// Whether every check has the findings that it counted: a list that lost them must not read as a clean result.
pub(super) fn findings(outcome: &Outcome) -> Checked {
    for check in &outcome.checks {
        let own = outcome.findings.iter().filter(|f| f.code == check.code);
        let what = format!("findings ({})", check.code);
        adds_up(&what, own.map(|_| 1), "checks.findings", check.findings)?;
    }
    Ok(())
}

pub(super) fn measure(report: &MeasureReport) -> Checked {
    let parts = report.heads.iter();
    heads(
        &report.plans,
        parts.map(|head| (head.layer, head.head, &head.plans)),
    )?;
    for head in &report.heads {
        let what = place(head.layer, head.head);
        for (plan, own) in &head.plans {
            evidence(&format!("{what}.plans.{plan}"), own)?;
        }
        bins(&what, report, head)?;
        let excess = head.key0_mass.zip(head.key0_baseline);
        let excess = excess.map(|(mass, baseline)| mass - baseline);
        difference(&format!("{what}.key0_excess"), excess, head.key0_excess)?;
    }
    measure_summary(report)
}

fn evidence(what: &str, own: &MeasurePlanEvidence) -> Checked {
    for (count, pairs) in [
        ("blind_pairs", own.blind_pairs),
        ("blind_numerator", own.blind_numerator),
        ("blind_weight", own.blind_weight),
        ("undecided_pairs", own.undecided_pairs),
    ] {
        at_most(&format!("{what}.{count}"), pairs, "pairs", own.pairs)?;
    }
    let (not_counted, rows) = (own.non_finite_pairs, own.non_finite_rows);
    at_most(
        &format!("{what}.non_finite_pairs"),
        not_counted,
        "pairs",
        own.pairs,
    )?;
    at_most(
        &format!("{what}.non_finite_rows"),
        rows,
        "non_finite_pairs",
        not_counted,
    )?;
    let counted = own.pairs - not_counted;
    let finite = "pairs less non_finite_pairs";
    at_most(
        &format!("{what}.blind_pairs"),
        own.blind_pairs,
        finite,
        counted,
    )?;
    follows(
        &format!("{what}.blind_share"),
        own.blind_pairs.into(),
        counted.into(),
        own.blind_share,
        None,
    )?;
    first_blind(
        what,
        own.blind_pairs > 0,
        own.first_blind_distance.is_some(),
    )
}

/// Bins of distances against the counts under the plans; blind pairs of the bins are those under the first.
fn bins(head_name: &str, report: &MeasureReport, head: &MeasureHead) -> Checked {
    let what = format!("{head_name}.mass_by_distance");
    let bins = &head.mass_by_distance;
    in_order(&what, bins.iter().map(|bin| (bin.from, bin.to)))?;
    for bin in bins {
        at_most(
            &format!("{what}.blind_pairs"),
            bin.blind_pairs,
            "pairs",
            bin.pairs,
        )?;
    }
    mass(&format!("{what}.mass"), bins.iter().map(|bin| bin.mass))?;
    for (index, plan) in report.plans.iter().enumerate() {
        let Some(own) = head.plans.get(&plan.plan) else {
            continue;
        };
        let of = |count: &str| format!("plans.{}.{count}", plan.plan);
        let pairs = bins.iter().map(|bin| bin.pairs);
        adds_up(&format!("{what}.pairs"), pairs, &of("pairs"), own.pairs)?;
        if index == 0 {
            let blind = bins.iter().map(|bin| bin.blind_pairs);
            let found = format!("{what}.blind_pairs");
            adds_up(&found, blind, &of("blind_pairs"), own.blind_pairs)?;
        }
        if own.mass_by_distance.is_empty() {
            continue;
        }
        let of = |field: &str| format!("{head_name}.plans.{}.{field}", plan.plan);
        let what = of("mass_by_distance");
        super::same(&what, own.mass_by_distance.len(), bins.len() as u64)?;
        mass(&what, own.mass_by_distance.iter().copied())?;
        let both = own.mass_by_distance.iter().zip(bins);
        let apart: f64 = both.map(|(own, bin)| (own - bin.mass).abs()).sum();
        let what = of("total_variation");
        let expected = own.total_variation.map(|_| apart / 2.0);
        difference(&what, expected, own.total_variation)?;
    }
    Ok(())
}

/// A difference of numbers up to 1 that the document holds.
fn difference(what: &str, expected: Option<f64>, found: Option<f64>) -> Checked {
    /// Their own roundings, in another order.
    const OFF: f64 = 1e-9;
    let near = |(a, b): (f64, f64)| (a - b).abs() <= OFF;
    if expected.is_some() == found.is_some() && expected.zip(found).is_none_or(near) {
        return Ok(());
    }
    Err(broken(what, shown(expected), shown(found)))
}

/// Masses of bins are shares of one whole, or all 0 where no row had any.
fn mass(what: &str, bins: impl Iterator<Item = f64>) -> Checked {
    /// Weights are f32, each within a few ulps of 2^-24 of its row's sum: a hundred of them, and room.
    const OFF: f64 = 1e-5;
    let mut sum = 0.0;
    for bin in bins {
        if bin < 0.0 {
            return Err(broken(what, "no negative number", bin));
        }
        sum += bin;
    }
    if sum == 0.0 || (sum - 1.0).abs() <= OFF {
        return Ok(());
    }
    Err(broken(what, "1 in all", sum))
}

fn measure_summary(report: &MeasureReport) -> Checked {
    if !report.heads.is_empty() {
        plans("summary", &report.plans, &report.summary.plans)?;
    }
    for (plan, sum) in &report.summary.plans {
        let what = format!("summary.plans.{plan}");
        let own = || report.heads.iter().filter_map(|head| head.plans.get(plan));
        for (count, found, parts) in [
            ("pairs", sum.pairs, own().map(|own| own.pairs).collect()),
            (
                "blind_pairs",
                sum.blind_pairs,
                own().map(|own| own.blind_pairs).collect::<Vec<_>>(),
            ),
            (
                "non_finite_pairs",
                sum.non_finite_pairs,
                own().map(|own| own.non_finite_pairs).collect(),
            ),
        ] {
            let parts: u128 = parts.into_iter().map(u128::from).sum();
            equal(&format!("{what}.{count}"), "the heads", parts, found.into())?;
        }
        let touched = own().filter(|own| own.blind_pairs > 0).count() as u64;
        let found = sum.heads_touched;
        equal(
            &format!("{what}.heads_touched"),
            "the heads",
            touched,
            found,
        )?;
        follows(
            &format!("{what}.blind_share"),
            sum.blind_pairs.into(),
            (sum.pairs - sum.non_finite_pairs).into(),
            sum.blind_share,
            None,
        )?;
    }
    Ok(())
}

pub(super) fn horizon(report: &HorizonReport) -> Checked {
    for plan in &report.plans {
        horizon_plan(plan, report.envelope.length)?;
    }
    let Some(first) = report.plans.first() else {
        return equal("heads", "the plans", 0, report.heads.len());
    };
    if report.heads != first.heads || report.summary != first.summary {
        let expected = format!("those under the first plan, {}", first.info.plan);
        return Err(broken("heads and summary", expected, "others"));
    }
    Ok(())
}

fn horizon_plan(plan: &HorizonPlan, length: Option<u64>) -> Checked {
    let name = &plan.info.plan;
    once(
        &format!("plans.{name}.heads"),
        plan.heads.iter().map(|head| head.head),
    )?;
    for head in &plan.heads {
        horizon_head(
            &format!("plans.{name}.heads (head {})", head.head),
            head,
            length,
        )?;
    }
    // what the sums are made of was looked at above; sums of u128 can still be too large
    let mut heads = plan.heads.iter();
    let pairs = heads.try_fold(0_u128, |sum, head| sum.checked_add(head.pairs));
    if pairs.is_none() {
        let what = format!("plans.{name}.heads.pairs");
        return Err(broken(&what, "counts below 2^128 in all", "more"));
    }
    let what = format!("plans.{name}.summary");
    let (expected, found) = (HorizonSummary::of(&plan.heads), &plan.summary);
    for (share, expected, found) in [
        (
            "blind_share",
            Some(expected.blind_share),
            Some(found.blind_share),
        ),
        (
            "blind_share_last_row",
            expected.blind_share_last_row,
            found.blind_share_last_row,
        ),
    ] {
        close(&format!("{what}.{share}"), expected, found)?;
    }
    let counts = |sum: &HorizonSummary| (sum.heads_touched, sum.heads_nan);
    let what = format!("{what} (heads_touched, heads_nan)");
    equal(&what, "the heads", counts(&expected), counts(found))
}

fn horizon_head(what: &str, head: &HorizonHead, length: Option<u64>) -> Checked {
    if head.nan_pairs > head.pairs {
        let expected = format!("at most pairs, {}", head.pairs);
        return Err(broken(
            format!("{what}.nan_pairs"),
            expected,
            head.nan_pairs,
        ));
    }
    let weighed = head.pairs - head.nan_pairs;
    if head.blind_pairs > weighed {
        let expected = format!("at most the pairs that have a weight, {weighed}");
        return Err(broken(
            format!("{what}.blind_pairs"),
            expected,
            head.blind_pairs,
        ));
    }
    // documents from before nan_pairs have shares of all pairs
    follows(
        &format!("{what}.blind_share"),
        head.blind_pairs,
        weighed,
        Some(head.blind_share),
        Some(0.0),
    )?;
    let last = format!("{what}.blind_share_last_row");
    share(&last, head.blind_share_last_row)?;
    let (Some(length), Some(_)) = (length, head.blind_share_last_row) else {
        return Ok(());
    };
    let found = head.blind_share_last_row;
    let count = head.blind_last_row;
    follows(&last, count.into(), length.into(), found, Some(0.0))
}

pub(super) fn train(report: &TrainReport) -> Checked {
    for cell in report.recall.iter().flat_map(|look| &look.cells) {
        let what = format!("recall.cells ({}, {} to {})", cell.task, cell.from, cell.to);
        let (right, questions) = (cell.right, cell.questions);
        at_most(&format!("{what}.right"), right, "questions", questions)?;
        follows(
            &format!("{what}.accuracy"),
            right.into(),
            questions.into(),
            cell.accuracy,
            None,
        )?;
        interval(&what, cell.accuracy_low, cell.accuracy, cell.accuracy_high)?;
    }
    report.looks.iter().try_for_each(look)
}

fn look(look: &TrainLook) -> Checked {
    let what = format!("looks (step {})", look.step);
    let blind = |what: &str, blind: u64, pairs: u64, found: Option<f64>| {
        at_most(&format!("{what}.blind_pairs"), blind, "pairs", pairs)?;
        let what = format!("{what}.blind_share");
        follows(&what, blind.into(), pairs.into(), found, None)
    };
    blind(&what, look.blind_pairs, look.pairs, look.blind_share)?;
    once(
        &format!("{what}.heads"),
        look.heads.iter().map(|head| (head.layer, head.head)),
    )?;
    for head in &look.heads {
        let what = format!("{what}.{}", place(head.layer, head.head));
        blind(&what, head.blind_pairs, head.pairs, head.blind_share)?;
    }
    let parts = look.heads.iter().map(|head| head.pairs);
    adds_up(&format!("{what}.heads.pairs"), parts, "pairs", look.pairs)?;
    let parts = look.heads.iter().map(|head| head.blind_pairs);
    let what = format!("{what}.heads.blind_pairs");
    adds_up(&what, parts, "blind_pairs", look.blind_pairs)
}
