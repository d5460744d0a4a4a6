//! Cells of a probe: what their lists say and what their sums say.

use super::{broken, close, once, same};
use crate::schema::{ProbeArea, ProbeCell, ProbeReport, ProbeScore, ProbeWitness};

pub(super) fn report(report: &ProbeReport) -> Result<(), String> {
    same("cells", report.cells.len(), report.all.cells)?;
    once("cells", places(&report.cells))?;
    for cell in &report.cells {
        cell.check()?;
        same_samples("cells.samples", report.settings.samples, cell)?;
    }
    let settings = &report.settings;
    // fewer is a run that did not get to all of them
    let grid = settings.lengths.len() * settings.depths.len();
    if report.cells.len() > grid {
        return Err(broken(
            "cells",
            format!("at most {grid}, the grid's"),
            report.cells.len(),
        ));
    }
    area(
        "all",
        &ProbeArea::of(&report.cells, |_| true).unwrap_or_default(),
        &report.all,
    )?;
    let parts = [&report.inside_trained_length, &report.beyond_trained_length];
    let cells: u64 = parts
        .iter()
        .filter_map(|part| Some(part.as_ref()?.cells))
        .sum();
    if cells != 0 && cells != report.all.cells {
        return Err(broken(
            "inside_trained_length and beyond_trained_length",
            format!("{} cells together", report.all.cells),
            cells,
        ));
    }
    // lengths are ascending in what they are inside of: the shorter ones are those inside
    let mut by_length: Vec<&ProbeCell> = report.cells.iter().collect();
    by_length.sort_by_key(|cell| cell.length);
    let inside = parts[0].as_ref().map_or(0, |part| part.cells) as usize;
    let last = by_length
        .get(inside.wrapping_sub(1))
        .map(|cell| cell.length);
    for (name, part, within) in [
        ("inside_trained_length", parts[0], true),
        ("beyond_trained_length", parts[1], false),
    ] {
        let Some(part) = part else { continue };
        let belongs = |cell: &ProbeCell| last.is_some_and(|last| cell.length <= last) == within;
        let expected = ProbeArea::of(&report.cells, belongs).unwrap_or_default();
        area(name, &expected, part)?;
    }
    Ok(())
}

/// Length and depth of cells, in a form that can be compared.
fn places(cells: &[ProbeCell]) -> impl Iterator<Item = (u64, String)> {
    cells
        .iter()
        .map(|cell| (cell.length, cell.depth.to_string()))
}

fn same_samples(what: &str, expected: u64, cell: &ProbeCell) -> Result<(), String> {
    if cell.score.samples == expected {
        return Ok(());
    }
    Err(broken(what, expected, cell.score.samples))
}

fn area(name: &str, expected: &ProbeArea, found: &ProbeArea) -> Result<(), String> {
    if expected.cells != found.cells {
        return Err(broken(format!("{name}.cells"), expected.cells, found.cells));
    }
    close(
        &format!("{name}.area_under_accuracy"),
        expected.area_under_accuracy,
        found.area_under_accuracy,
    )?;
    score(name, &expected.score, &found.score)
}

fn score(name: &str, expected: &ProbeScore, found: &ProbeScore) -> Result<(), String> {
    if (expected.samples, expected.hits) != (found.samples, found.hits) {
        let shown = |score: &ProbeScore| format!("{} hits of {}", score.hits, score.samples);
        return Err(broken(name, shown(expected), shown(found)));
    }
    let pairs = [
        ("accuracy", expected.accuracy, found.accuracy),
        ("accuracy_low", expected.accuracy_low, found.accuracy_low),
        ("accuracy_high", expected.accuracy_high, found.accuracy_high),
        (
            "log_probability",
            expected.log_probability,
            found.log_probability,
        ),
        (
            "log_probability_standard_error",
            expected.log_probability_standard_error,
            found.log_probability_standard_error,
        ),
    ];
    pairs
        .into_iter()
        .try_for_each(|(field, expected, found)| close(&format!("{name}.{field}"), expected, found))
}

impl ProbeCell {
    /// Whether the cell's sums are those of its samples, and its counts of heads those of its heads.
    ///
    /// # Errors
    /// One line: the first value that does not follow from the others.
    pub fn check(&self) -> Result<(), String> {
        let at = |what: String| {
            format!(
                "cell of length {} at depth {}: {what}",
                self.length, self.depth
            )
        };
        self.sums().map_err(at)
    }

    fn sums(&self) -> Result<(), String> {
        same("results", self.results.len(), self.score.samples)?;
        score("its sums", &ProbeScore::of(&self.results), &self.score)?;
        for sample in &self.results {
            if sample.values_right > sample.values_asked {
                return Err(broken(
                    "results.values_right",
                    format!("at most {}", sample.values_asked),
                    sample.values_right,
                ));
            }
        }
        once("what_if", self.what_if.iter().map(|one| &one.change))?;
        for one in &self.what_if {
            let name = format!("what_if {}", one.change);
            if one.score.samples != self.score.samples || one.score.hits > one.score.samples {
                return Err(broken(
                    name,
                    format!("hits of {} samples", self.score.samples),
                    format!("{} of {}", one.score.hits, one.score.samples),
                ));
            }
            #[allow(clippy::cast_precision_loss)] // counts
            let accuracy = one.score.hits as f64 / one.score.samples as f64;
            close(
                &format!("{name}.accuracy"),
                Some(accuracy),
                one.score.accuracy,
            )?;
        }
        once("witness", self.witness.iter().map(|one| &one.plan))?;
        self.witness.iter().try_for_each(witness)
    }
}

fn witness(witness: &ProbeWitness) -> Result<(), String> {
    same("witness.by_head", witness.by_head.len(), witness.heads)?;
    once(
        "witness.by_head",
        witness.by_head.iter().map(|head| (head.layer, head.head)),
    )?;
    for (sight, found) in [
        ("seen", witness.seen),
        ("sub-ulp", witness.sub_ulp),
        ("blind", witness.blind),
    ] {
        let expected = witness.by_head.iter().filter(|head| head.sight == sight);
        let expected = expected.count() as u64;
        if expected != found {
            return Err(broken(
                format!("witness {} {sight}", witness.plan),
                expected,
                found,
            ));
        }
    }
    Ok(())
}
