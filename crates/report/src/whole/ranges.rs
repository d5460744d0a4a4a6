//! Numbers that cannot be: shares beyond 1, parts that do not add up to their whole, bins out of order.

use super::broken;
use crate::schema::{
    Accuracy, EvalReport, MeanLoss, PerplexityReport, ProbeReport, ProbeScore, StudyReport,
    StudyRow, TaskReport,
};

pub(super) type Checked = Result<(), String>;

/// Whether two floats are the same but for the order in which something was added up.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
}

pub(super) fn share(what: &str, value: Option<f64>) -> Checked {
    match value {
        Some(value) if !(0.0..=1.0).contains(&value) => {
            Err(broken(what, "a share from 0 to 1", value))
        }
        _ => Ok(()),
    }
}

pub(super) fn not_negative(what: &str, value: Option<f64>) -> Checked {
    match value {
        Some(value) if value < 0.0 => Err(broken(what, "no negative number", value)),
        _ => Ok(()),
    }
}

pub(super) fn at_most(what: &str, part: u64, of: &str, whole: u64) -> Checked {
    if part <= whole {
        return Ok(());
    }
    Err(broken(what, format!("at most {of}, {whole}"), part))
}

pub(super) fn adds_up(
    what: &str,
    parts: impl Iterator<Item = u64>,
    of: &str,
    whole: u64,
) -> Checked {
    let sum = parts.map(u128::from).sum::<u128>();
    if sum == u128::from(whole) {
        return Ok(());
    }
    Err(broken(what, format!("{whole} in all, as {of} says"), sum))
}

/// Bins in order, none reaching into the next.
pub(super) fn in_order(what: &str, bins: impl Iterator<Item = (u64, u64)>) -> Checked {
    let mut before: Option<u64> = None;
    for (from, to) in bins {
        if from > to || before.is_some_and(|before| from <= before) {
            let found = format!("{from} to {to}");
            return Err(broken(
                what,
                "bins in ascending order, each from its smaller to its larger edge",
                found,
            ));
        }
        before = Some(to);
    }
    Ok(())
}

pub(super) fn interval(
    what: &str,
    low: Option<f64>,
    middle: Option<f64>,
    high: Option<f64>,
) -> Checked {
    let (Some(low), Some(middle), Some(high)) = (low, middle, high) else {
        return Ok(());
    };
    let room = 1e-9 * (1.0 + middle.abs());
    if low <= middle + room && middle <= high + room {
        return Ok(());
    }
    Err(broken(
        what,
        format!("an interval around {middle}"),
        format!("{low} to {high}"),
    ))
}

fn loss(what: &str, loss: &MeanLoss) -> Checked {
    not_negative(&format!("{what}.nats_per_token"), loss.nats_per_token)?;
    not_negative(
        &format!("{what}.standard_error_nats"),
        loss.standard_error_nats,
    )
}

pub(super) fn eval(report: &EvalReport) -> Checked {
    report.perplexity.as_ref().map_or(Ok(()), perplexity)?;
    report.task.as_ref().map_or(Ok(()), task)
}

fn perplexity(report: &PerplexityReport) -> Checked {
    loss("perplexity", &report.all)?;
    let bins = &report.by_position;
    in_order(
        "perplexity.by_position",
        bins.iter().map(|bin| (bin.from, bin.to)),
    )?;
    for bin in bins {
        loss("perplexity.by_position", &bin.loss)?;
    }
    for (at, document) in (0..).zip(&report.documents) {
        if document.document != at {
            let found = document.document;
            return Err(broken(
                "perplexity.documents",
                format!("document {at} next"),
                found,
            ));
        }
        let tokens = document.loss.tokens;
        at_most(
            "perplexity.documents.tokens",
            tokens,
            "the document's length",
            document.length,
        )?;
        loss("perplexity.documents", &document.loss)?;
    }
    let all = report.all.tokens;
    let parts = bins.iter().map(|bin| bin.loss.tokens);
    adds_up(
        "perplexity.by_position.tokens",
        parts,
        "perplexity.tokens",
        all,
    )?;
    let parts = report.documents.iter().map(|document| document.loss.tokens);
    adds_up(
        "perplexity.documents.tokens",
        parts,
        "perplexity.tokens",
        all,
    )
}

fn task(report: &TaskReport) -> Checked {
    at_most(
        "task.items",
        report.items,
        "items_available",
        report.items_available,
    )?;
    share("task.chance", report.chance)?;
    not_negative("task.gold_nats", report.gold_nats)?;
    let outcomes = &report.outcomes;
    accuracy(
        "task.acc",
        &report.acc,
        outcomes.iter().map(|one| Some(one.correct)),
    )?;
    let right = outcomes.iter().map(|one| one.correct_by_character);
    accuracy("task.acc_norm", &report.acc_norm, right)?;
    let right = outcomes.iter().map(|one| one.correct_by_byte);
    accuracy("task.acc_bytes", &report.acc_bytes, right)
}

/// A score against the outcomes of its items, where every item has one.
fn accuracy(what: &str, score: &Accuracy, outcomes: impl Iterator<Item = Option<bool>>) -> Checked {
    share(&format!("{what}.value"), score.value)?;
    not_negative(&format!("{what}.standard_error"), score.standard_error)?;
    let Some(outcomes) = outcomes.collect::<Option<Vec<bool>>>() else {
        return Ok(());
    };
    let (Some(value), false) = (score.value, outcomes.is_empty()) else {
        return Ok(());
    };
    let right = outcomes.iter().filter(|right| **right).count();
    #[allow(clippy::cast_precision_loss)] // items
    let expected = right as f64 / outcomes.len() as f64;
    if close(value, expected) {
        return Ok(());
    }
    let expected = format!(
        "{expected}, as {right} of {} outcomes are right",
        outcomes.len()
    );
    Err(broken(format!("{what}.value"), expected, value))
}

pub(super) fn probe(report: &ProbeReport) -> Checked {
    score("all", &report.all.score)?;
    for cell in &report.cells {
        let what = format!("cells (length {}, depth {})", cell.length, cell.depth);
        share(&format!("{what}.depth"), Some(cell.depth))?;
        score(&what, &cell.score)?;
        let hits = cell.results.iter().map(|sample| u64::from(sample.hit));
        adds_up(
            &format!("{what}.results.hit"),
            hits,
            "hits",
            cell.score.hits,
        )?;
        for changed in &cell.what_if {
            score(&format!("{what}.what_if"), &changed.score)?;
        }
        for seen in &cell.witness {
            let parts = [seen.seen, seen.sub_ulp, seen.blind].into_iter();
            adds_up(
                &format!("{what}.witness"),
                parts,
                "witness.heads",
                seen.heads,
            )?;
            super::same(
                &format!("{what}.witness.by_head"),
                seen.by_head.len(),
                seen.heads,
            )?;
        }
    }
    let of = |pick: fn(&ProbeScore) -> u64| report.cells.iter().map(move |cell| pick(&cell.score));
    let all = &report.all.score;
    adds_up(
        "cells.samples",
        of(|score| score.samples),
        "all.samples",
        all.samples,
    )?;
    adds_up("cells.hits", of(|score| score.hits), "all.hits", all.hits)
}

fn score(what: &str, score: &ProbeScore) -> Checked {
    at_most(
        &format!("{what}.hits"),
        score.hits,
        "samples",
        score.samples,
    )?;
    share(&format!("{what}.accuracy"), score.accuracy)?;
    interval(
        what,
        score.accuracy_low,
        score.accuracy,
        score.accuracy_high,
    )
}

pub(super) fn study(report: &StudyReport) -> Checked {
    for table in &report.tables {
        let with_p = |row: &&StudyRow| row.difference.as_ref().is_some_and(|d| d.p.is_some());
        let found = table.rows.iter().filter(with_p).count();
        super::same(
            &format!("tables.{}.rows with p", table.name),
            found,
            table.comparisons,
        )?;
        for row in &table.rows {
            let what = format!(
                "tables.{}.rows ({}, {})",
                table.name, row.quantity, row.variant
            );
            super::same(&format!("{what}.values"), row.values.len(), row.n)?;
            super::same(&format!("{what}.trials"), row.trials.len(), row.n)?;
            interval(&what, row.low, Some(row.mean), row.high)?;
            if let Some(own) = &row.difference {
                interval(
                    &format!("{what}.difference"),
                    own.low,
                    Some(own.mean),
                    own.high,
                )?;
                share(&format!("{what}.difference.p"), own.p)?;
            }
        }
    }
    Ok(())
}
