//! Summaries of probes, evaluations and training runs.

use super::{PlanTable, Summary, cell, plural};
use crate::number::{percent, short};
use crate::schema::{
    EvalReport, PerplexityReport, ProbeArea, ProbeCell, ProbeReport, StudyReport, StudyRow,
    TaskReport, TrainReport,
};
use crate::study::TRIAL_LEFT_OUT;
use crate::study::columns::by_quantity;

pub(super) fn probe(report: &ProbeReport) -> Summary {
    let all = &report.all.score;
    if all.samples == 0 {
        return Summary {
            headline: "Nothing was asked for, so nothing is known.".to_owned(),
            ..Summary::default()
        };
    }
    let mut summary = Summary {
        // in a control there is nothing to be found, and nothing is wrong where nothing is
        wrong: all.hits < all.samples && !report.settings.control,
        headline: format!(
            "{}{} of {} found ({}; 95 % interval {} to {}).",
            if report.settings.control {
                "A control, its facts left out, so that what is found was guessed: "
            } else {
                ""
            },
            all.hits,
            plural(all.samples, "sample"),
            cell(all.accuracy.map(percent)),
            cell(all.accuracy_low.map(percent)),
            cell(all.accuracy_high.map(percent))
        ),
        ..Summary::default()
    };
    let settings = &report.settings;
    summary.facts.push(format!(
        "Task {} (version {}), {} in {}, seed {}.",
        settings.task,
        settings.task_version,
        plural(settings.samples, "sample"),
        "each cell",
        settings.seed
    ));
    let parts = [
        ("within the trained length", &report.inside_trained_length),
        ("beyond the trained length", &report.beyond_trained_length),
    ];
    let mut rows = vec![row("all", &report.all)];
    rows.extend(
        parts
            .iter()
            .filter_map(|(name, part)| part.as_ref().map(|part| row(name, part))),
    );
    summary.by_plan = Some(PlanTable {
        columns: vec![
            "cells",
            "number",
            "found",
            "share",
            "95 % interval",
            "area under accuracy",
            "ln p of the answer",
        ],
        rows,
    });
    summary.facts.extend(by_change(&report.cells));
    summary
}

fn row(name: &str, part: &ProbeArea) -> Vec<String> {
    let score = &part.score;
    vec![
        name.to_owned(),
        part.cells.to_string(),
        format!("{} of {}", score.hits, score.samples),
        cell(score.accuracy.map(percent)),
        format!(
            "{} to {}",
            cell(score.accuracy_low.map(percent)),
            cell(score.accuracy_high.map(percent))
        ),
        cell(part.area_under_accuracy.map(short)),
        cell(score.log_probability.map(short)),
    ]
}

/// What each change of the bias made of the cells with misses.
fn by_change(cells: &[ProbeCell]) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for changed in cells.iter().flat_map(|cell| &cell.what_if) {
        if !names.contains(&changed.change.as_str()) {
            names.push(&changed.change);
        }
    }
    let line = |name: &&str| {
        let tried = cells.iter().filter_map(|cell| {
            let changed = cell.what_if.iter().find(|one| one.change == **name)?;
            Some((cell.score, changed.score))
        });
        let (mut n, mut before, mut after) = (0, 0, 0);
        for (old, new) in tried {
            n += old.samples;
            before += old.hits;
            after += new.hits;
        }
        format!("Under {name} the cells with misses find {after} of {n} instead of {before}.")
    };
    names.iter().map(line).collect()
}

/// Why a cell has misses, as far as the changes of the bias tell.
pub(crate) fn cause(probe: &ProbeReport, cell: &ProbeCell) -> String {
    let trained = probe.envelope.model.as_ref().and_then(|m| m.trained_length);
    let beyond = match trained {
        Some(trained) if cell.length > trained => " It lies beyond the trained length.",
        _ => "",
    };
    let best = cell.what_if.iter().max_by_key(|changed| changed.score.hits);
    let text = match best {
        None => {
            "Cause not tried: `--what-if clamp=-12,log,slopes/2` runs the cell under other biases."
                .to_owned()
        }
        Some(best) if best.score.hits > cell.score.hits => format!(
            "Under {} it finds {} of {}: the bias hides {} of the {} that are missed.",
            best.change,
            best.score.hits,
            best.score.samples,
            best.score.hits - cell.score.hits,
            cell.score.samples - cell.score.hits
        ),
        Some(one) => {
            let tried = match cell.what_if.len() {
                1 => format!("{} finds no more", one.change),
                n => format!("None of {n} changes finds more"),
            };
            format!("{tried}: not learned, or beyond what a change of the bias alone can do.")
        }
    };
    text + beyond
}

pub(super) fn eval(report: &EvalReport) -> Summary {
    match (&report.perplexity, &report.task) {
        (Some(perplexity), _) => text(perplexity),
        (None, Some(task)) => scores(task),
        (None, None) => Summary {
            headline: "Nothing was evaluated.".to_owned(),
            ..Summary::default()
        },
    }
}

fn text(report: &PerplexityReport) -> Summary {
    let error = match report.standard_error_nats_by_document {
        Some(error) => format!("standard error {} by document", short(error)),
        None => format!(
            "standard error {} by token",
            cell(report.all.standard_error_nats.map(short))
        ),
    };
    let mut summary = Summary {
        headline: format!(
            "Loss {} nats a token ({error}), perplexity {}, over {} predicted tokens.",
            cell(report.all.nats_per_token.map(short)),
            cell(report.all.perplexity.map(short)),
            report.all.tokens
        ),
        ..Summary::default()
    };
    summary.facts.push(format!(
        "Windows of {}, {} apart: {}.",
        plural(report.length, "token"),
        report.stride,
        plural(report.windows, "window")
    ));
    let mut known = report
        .by_position
        .iter()
        .filter_map(|bin| Some((bin, bin.loss.nats_per_token?)));
    let best = known.clone().min_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(best), Some(last)) = (best, known.next_back()) else {
        return summary;
    };
    let errors = (
        best.0.loss.standard_error_nats,
        last.0.loss.standard_error_nats,
    );
    let clear = errors
        .0
        .zip(errors.1)
        .is_some_and(|(x, y)| last.1 - best.1 > 2.0 * x.hypot(y));
    summary.wrong = clear;
    summary.facts.push(if clear {
        format!(
            "Best with {} to {} tokens of context ({} nats), worse again with {} to {} ({}).",
            best.0.from,
            best.0.to,
            short(best.1),
            last.0.from,
            last.0.to,
            short(last.1)
        )
    } else {
        format!(
            "Lowest with {} to {} tokens of context: {} nats a token; no later position is clearly worse.",
            best.0.from,
            best.0.to,
            short(best.1)
        )
    });
    summary
}

fn scores(task: &TaskReport) -> Summary {
    let mut facts = vec![format!(
        "{} of {} of the file, scored as {}.",
        task.items,
        plural(task.items_available, "item"),
        task.kind
    )];
    for (name, score) in [
        ("By character", &task.acc_norm),
        ("By byte", &task.acc_bytes),
    ] {
        if let Some(value) = score.value {
            facts.push(format!(
                "{name}: {} (standard error {}).",
                percent(value),
                cell(score.standard_error.map(percent))
            ));
        }
    }
    if let Some(nats) = task.gold_nats {
        facts.push(format!(
            "The right answer costs {} nats (standard error {}).",
            short(nats),
            cell(task.gold_nats_standard_error.map(short))
        ));
    }
    let chance = task.chance.map_or_else(String::new, |chance| {
        format!("; chance is {}", percent(chance))
    });
    Summary {
        headline: format!(
            "{} right on {} (standard error {}){chance}.",
            cell(task.acc.value.map(percent)),
            plural(task.items, "item"),
            cell(task.acc.standard_error.map(percent))
        ),
        facts,
        ..Summary::default()
    }
}

pub(super) fn train(report: &TrainReport) -> Summary {
    let run = &report.run;
    let best = run.best.map_or_else(
        || "; no held-out loss was taken".to_owned(),
        |best| {
            format!(
                "; best held-out loss {} nats a token after step {}",
                short(best.nats_per_token),
                best.step
            )
        },
    );
    let headline = match &run.stopped {
        Some(stop) => format!("Stopped at step {}: {}{best}.", stop.step, stop.reason),
        None if run.finished => format!("All {} done{best}.", plural(run.steps, "step")),
        None => format!(
            "{} of {} done{best}.",
            run.steps_done,
            plural(run.steps, "step")
        ),
    };
    let mut summary = Summary {
        headline,
        wrong: run.stopped.is_some(),
        ..Summary::default()
    };
    summary.facts.push(format!(
        "{} parameters, {}, attention {}, stages {}.",
        crate::number::grouped(run.parameters.into()),
        run.position,
        run.attention,
        run.stages
    ));
    if let (Some(first), Some(last)) = (report.steps.first(), report.steps.last()) {
        summary.facts.push(format!(
            "Loss on the training text from {} to {} nats.",
            short(first.text),
            short(last.text)
        ));
    }
    if let Some(look) = report.looks.last() {
        let blind = look
            .heads
            .iter()
            .filter(|head| head.blind_pairs > 0)
            .count();
        summary.facts.push(format!(
            "At the last look (step {}, {} tokens) {} of {} had pairs of weight zero: {} of all pairs.",
            look.step,
            look.length,
            blind,
            plural(look.heads.len() as u64, "head"),
            cell(look.blind_share.map(percent))
        ));
    }
    if let Some(last) = report.recall.last() {
        let far = last.cells.iter().map(|one| one.to).max();
        for one in last.cells.iter().filter(|one| Some(one.to) == far) {
            summary.facts.push(format!(
                "Recall of {} at the farthest distances ({} to {} tokens): {} of {}.",
                one.task, one.from, one.to, one.right, one.questions
            ));
        }
    }
    summary
}

pub(super) fn study(report: &StudyReport) -> Summary {
    let count = |status: &str| report.trials.iter().filter(|t| t.status == status).count() as u64;
    let done = count("done");
    let failed = count("diverged") + count("crashed");
    let mut summary = Summary {
        wrong: failed > 0,
        headline: format!(
            "{done} of {} done, {failed} failed, {} not run{}.",
            plural(report.trials.len() as u64, "trial"),
            count("not run"),
            match count(TRIAL_LEFT_OUT) {
                0 => String::new(),
                n => format!(", {n} left out"),
            }
        ),
        ..Summary::default()
    };
    summary.facts.extend(
        report
            .baseline
            .as_ref()
            .map(|name| format!("Differences are to {name}, paired by seed.")),
    );
    summary.facts.extend(furthest(report));
    summary.facts.push(
        "What failed or was not run is in no average; a mean of one seed has no interval."
            .to_owned(),
    );
    summary
}

/// The best and the worst variant of every task at the longest length that was measured, with the baseline between them.
fn furthest(report: &StudyReport) -> Vec<String> {
    let Some(table) = report.tables.iter().find(|table| table.name == "recall") else {
        return Vec::new();
    };
    let length = |quantity: &str| {
        let (_, length) = quantity.rsplit_once(" length ")?;
        length.parse::<u64>().ok()
    };
    let groups = by_quantity(table);
    let longest = groups.iter().filter_map(|(name, _)| length(name)).max();
    let at_longest = groups.iter().filter(|(name, _)| length(name) == longest);
    let words = |(quantity, rows): &(&str, Vec<&StudyRow>)| {
        let mut rows = rows.clone();
        rows.sort_by(|a, b| b.mean.total_cmp(&a.mean));
        let (best, worst) = (rows.first()?, rows.last()?);
        let says = |row: &StudyRow| format!("{} {}", row.variant, percent(row.mean));
        // the baseline is said besides, where it is neither
        let ends = [best, worst].map(|row| &row.variant);
        let own = |row: &&&StudyRow| {
            Some(&row.variant) == report.baseline.as_ref() && !ends.contains(&&row.variant)
        };
        let baseline = rows.iter().find(own).map(|row| format!("; {}", says(row)));
        Some(format!(
            "Recall far back ({quantity}): most in {}, least in {}{}.",
            says(best),
            says(worst),
            baseline.unwrap_or_default()
        ))
    };
    at_longest.filter_map(words).collect()
}
