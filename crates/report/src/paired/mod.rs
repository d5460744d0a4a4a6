//! Paired differences of two results that looked at the same things: the same prompts, documents or items.
//!
//! What both results have in common (which prompts are hard, which documents are long) drops out of a paired difference, so that its
//! interval is narrower than two intervals side by side suggest.

mod interval;

use crate::schema::{
    EvalReport, PairedDifference, PerplexityReport, ProbeCell, ProbeReport, TaskReport, TrainReport,
};
use audit::eval::Moments;
use interval::{newcombe, ratio_error, t_975};

/// The differences, and what could not be paired, in sentences.
#[derive(Debug, Default)]
pub(crate) struct Paired {
    pub(crate) differences: Vec<PairedDifference>,
    pub(crate) remarks: Vec<String>,
}

/// Two probes: the cells that both ran on the same prompts.
pub(crate) fn probes(a: &ProbeReport, b: &ProbeReport) -> Paired {
    let mut out = Paired::default();
    let (x, y) = (&a.settings, &b.settings);
    let mut differ = |what: &str, left: String, right: String| {
        if left != right {
            out.remarks
                .push(format!("{what}: {left} in A, {right} in B"));
        }
    };
    let version = |settings: &crate::schema::ProbeSettings| {
        format!("{} version {}", settings.task, settings.task_version)
    };
    differ("task", version(x), version(y));
    let facts = |control: bool| {
        if control {
            "left out, a control"
        } else {
            "in the prompts"
        }
    };
    differ(
        "facts",
        facts(x.control).to_owned(),
        facts(y.control).to_owned(),
    );
    differ("seed", x.seed.to_string(), y.seed.to_string());
    differ(
        "samples a cell",
        x.samples.to_string(),
        y.samples.to_string(),
    );
    differ("tokenizer", x.tokenizer.clone(), y.tokenizer.clone());
    let (mut all, mut unlike) = (Vec::new(), 0);
    for cell in &a.cells {
        let Some(other) = find(&b.cells, cell) else {
            continue;
        };
        if !same_prompts(cell, other) {
            unlike += 1;
            continue;
        }
        all.push((cell, other));
    }
    missing(
        &mut out,
        "A",
        b.cells
            .iter()
            .filter(|cell| find(&a.cells, cell).is_none())
            .count(),
    );
    missing(
        &mut out,
        "B",
        a.cells
            .iter()
            .filter(|cell| find(&b.cells, cell).is_none())
            .count(),
    );
    if unlike > 0 {
        out.remarks.push(format!(
            "{} of both ran on other prompts, so nothing pairs them",
            crate::summary::plural(unlike, "cell")
        ));
    }
    if all.is_empty() {
        return out;
    }
    let samples = |cells: &[(&ProbeCell, &ProbeCell)]| -> Vec<(bool, bool)> {
        let pairs = cells
            .iter()
            .flat_map(|(x, y)| x.results.iter().zip(&y.results));
        pairs.map(|(x, y)| (x.hit, y.hit)).collect()
    };
    let nats = |cells: &[(&ProbeCell, &ProbeCell)]| -> Vec<(f64, f64)> {
        let pairs = cells
            .iter()
            .flat_map(|(x, y)| x.results.iter().zip(&y.results));
        let both = pairs.filter_map(|(x, y)| x.log_probability.zip(y.log_probability));
        both.collect()
    };
    let mut add = |what: String, cells: &[(&ProbeCell, &ProbeCell)]| {
        out.differences
            .extend(shares(&what, "accuracy", &samples(cells)));
        out.differences
            .extend(means(&what, "log_probability", &nats(cells)));
    };
    add("all cells in both".to_owned(), &all);
    for (cell, other) in &all {
        let place = format!("length {} depth {}", cell.length, cell.depth);
        add(place, &[(cell, other)]);
    }
    out
}

fn find<'a>(cells: &'a [ProbeCell], cell: &ProbeCell) -> Option<&'a ProbeCell> {
    cells
        .iter()
        .find(|other| other.length == cell.length && other.depth == cell.depth)
}

/// The same keys in the same places of prompts of the same size: what a seed and a tokenizer decide.
fn same_prompts(a: &ProbeCell, b: &ProbeCell) -> bool {
    a.results.len() == b.results.len()
        && a.results.iter().zip(&b.results).all(|(x, y)| {
            (&x.key, x.prompt_tokens, x.needle_at, x.needle_tokens)
                == (&y.key, y.prompt_tokens, y.needle_at, y.needle_tokens)
        })
}

fn missing(out: &mut Paired, side: &str, cells: usize) {
    if cells > 0 {
        out.remarks.push(format!(
            "{} not measured in {side}, not compared",
            crate::summary::plural(cells as u64, "cell")
        ));
    }
}

/// Two evaluations: the documents of one text, or the items of one task.
pub(crate) fn evaluations(a: &EvalReport, b: &EvalReport) -> Paired {
    let mut out = Paired::default();
    match ((&a.perplexity, &b.perplexity), (&a.task, &b.task)) {
        ((Some(x), Some(y)), _) => {
            let hash =
                |report: &EvalReport| report.envelope.text.as_ref().map(|text| text.hash.clone());
            if hash(a) != hash(b) {
                out.remarks.push(
                    "the ids of the two texts differ, so their losses are not paired: a loss a token compares models of one \
                     tokenizer on one text"
                        .to_owned(),
                );
                return out;
            }
            if (x.length, x.stride) != (y.length, y.stride) {
                out.remarks.push(format!(
                    "windows: {} tokens every {} in A, {} every {} in B: the tokens are predicted from other contexts",
                    x.length, x.stride, y.length, y.stride
                ));
            }
            losses(&mut out, x, y);
        }
        (_, (Some(x), Some(y))) => scores(&mut out, x, y),
        _ => out
            .remarks
            .push("one is of a text and one of a task: nothing is compared".to_owned()),
    }
    out
}

fn losses(out: &mut Paired, a: &PerplexityReport, b: &PerplexityReport) {
    let same = |x: &crate::schema::DocumentLoss, y: &crate::schema::DocumentLoss| {
        (x.document, x.loss.tokens) == (y.document, y.loss.tokens)
    };
    let pairs: Vec<_> = a.documents.iter().zip(&b.documents).collect();
    let paired = a.documents.len() == b.documents.len() && pairs.iter().all(|(x, y)| same(x, y));
    let mut all = plain(
        "all tokens",
        "nats_per_token",
        a.all.nats_per_token,
        b.all.nats_per_token,
        "no interval: the predicted tokens of the documents differ",
    );
    if paired {
        let known: Vec<(f64, f64, f64)> = pairs
            .iter()
            .filter_map(|(x, y)| {
                let n = x.loss.tokens as f64;
                Some((n, x.loss.nats_per_token? * n, y.loss.nats_per_token? * n))
            })
            .collect();
        all.units = known.len() as u64;
        all.method = "no interval: one document has no spread".to_owned();
        if let (true, Some(change)) = (known.len() > 1, all.change) {
            let half = ratio_error(&known, change) * t_975(known.len() as u64 - 1);
            (all.change_low, all.change_high) = (Some(change - half), Some(change + half));
            all.method = "Student's t over documents, ratio estimator".to_owned();
        }
    }
    out.differences.push(all);
    for bin in &a.by_position {
        let other = b
            .by_position
            .iter()
            .find(|other| (other.from, other.to) == (bin.from, bin.to));
        if let Some(other) = other {
            out.differences.push(plain(
                &format!("{} to {} tokens of context", bin.from, bin.to),
                "nats_per_token",
                bin.loss.nats_per_token,
                other.loss.nats_per_token,
                "no interval: losses of single tokens are not kept",
            ));
        }
    }
    if paired && pairs.len() > 1 {
        for (x, y) in pairs {
            out.differences.push(plain(
                &format!("document {}", x.document),
                "nats_per_token",
                x.loss.nats_per_token,
                y.loss.nats_per_token,
                "no interval: losses of single tokens are not kept",
            ));
        }
    }
}

fn scores(out: &mut Paired, a: &TaskReport, b: &TaskReport) {
    if a.hash != b.hash {
        out.remarks
            .push("the two tasks are different files, so their items are not paired".to_owned());
        return;
    }
    if a.delimiter != b.delimiter || a.prefix_token != b.prefix_token {
        out.remarks
            .push("delimiter or prefix token differ between A and B".to_owned());
    }
    if a.outcomes.len() != b.outcomes.len() || a.outcomes.is_empty() {
        let n = |task: &TaskReport| match task.outcomes.len() {
            0 => format!("none of {} kept by that version", task.items),
            n => n.to_string(),
        };
        out.remarks.push(format!(
            "items: {} in A, {} in B, so they are not paired",
            n(a),
            n(b)
        ));
        return;
    }
    let both = || a.outcomes.iter().zip(&b.outcomes);
    let all = crate::summary::plural(a.outcomes.len() as u64, "item");
    out.differences.extend(shares(
        &all,
        "acc",
        &both()
            .map(|(x, y)| (x.correct, y.correct))
            .collect::<Vec<_>>(),
    ));
    let by_character =
        both().filter_map(|(x, y)| x.correct_by_character.zip(y.correct_by_character));
    out.differences
        .extend(shares(&all, "acc_norm", &by_character.collect::<Vec<_>>()));
    let by_byte = both().filter_map(|(x, y)| x.correct_by_byte.zip(y.correct_by_byte));
    out.differences
        .extend(shares(&all, "acc_bytes", &by_byte.collect::<Vec<_>>()));
    let gold = both().filter_map(|(x, y)| x.gold_nats.zip(y.gold_nats));
    out.differences
        .extend(means(&all, "gold_nats", &gold.collect::<Vec<_>>()));
}

/// Two training runs: the losses on held-out text that both took after the same step.
pub(crate) fn runs(a: &TrainReport, b: &TrainReport) -> Paired {
    let mut out = Paired::default();
    let mut differ = |what: &str, left: &str, right: &str| {
        if left != right {
            out.remarks
                .push(format!("{what}: {left} in A, {right} in B"));
        }
    };
    let (x, y) = (&a.run, &b.run);
    differ("position", &x.position, &y.position);
    differ("attention", &x.attention, &y.attention);
    differ("stages", &x.stages, &y.stages);
    let seed = |report: &TrainReport| report.envelope.seed.unwrap_or(0).to_string();
    differ("seed", &seed(a), &seed(b));
    if x.held_hash != y.held_hash {
        out.remarks
            .push("the held-out texts differ, so losses on them are not compared".to_owned());
        return out;
    }
    // the last first: an early lead is not the result
    for one in a.held.iter().rev() {
        let same = |other: &&crate::schema::TrainHeld| {
            (other.step, other.length, other.tokens) == (one.step, one.length, one.tokens)
        };
        if let Some(other) = b.held.iter().find(same) {
            out.differences.push(plain(
                &format!("held-out text after step {}", one.step),
                "nats_per_token",
                Some(one.nats_per_token),
                Some(other.nats_per_token),
                "no interval: one run of each",
            ));
        }
    }
    out
}

fn plain(
    what: &str,
    quantity: &str,
    a: Option<f64>,
    b: Option<f64>,
    method: &str,
) -> PairedDifference {
    PairedDifference {
        what: what.to_owned(),
        quantity: quantity.to_owned(),
        units: 0,
        a,
        b,
        change: a.zip(b).map(|(a, b)| b - a),
        change_low: None,
        change_high: None,
        only_a: None,
        only_b: None,
        method: method.to_owned(),
    }
}

/// Change of a share of paired yes-or-no outcomes; `None` of nothing.
fn shares(what: &str, quantity: &str, outcomes: &[(bool, bool)]) -> Option<PairedDifference> {
    let n = outcomes.len() as u64;
    let count =
        |of: &dyn Fn(&(bool, bool)) -> bool| outcomes.iter().filter(|o| of(o)).count() as u64;
    let both = count(&|(a, b)| *a && *b);
    let (only_a, only_b) = (count(&|(a, b)| *a && !*b), count(&|(a, b)| !*a && *b));
    let (low, high) = newcombe([both, only_a, only_b, n - both - only_a - only_b])?;
    let share = |hits: u64| hits as f64 / n as f64;
    let (a, b) = (share(both + only_a), share(both + only_b));
    Some(PairedDifference {
        units: n,
        change_low: Some(low),
        change_high: Some(high),
        only_a: Some(only_a),
        only_b: Some(only_b),
        ..plain(
            what,
            quantity,
            Some(a),
            Some(b),
            "Newcombe's method 10 for paired shares",
        )
    })
}

/// Change of a mean over pairs; `None` of nothing.
fn means(what: &str, quantity: &str, pairs: &[(f64, f64)]) -> Option<PairedDifference> {
    let changes: Moments = pairs.iter().map(|(a, b)| b - a).collect();
    let change = changes.mean()?;
    let mean = |values: Moments| values.mean();
    let n = changes.n();
    let half = changes.standard_error().map(|error| error * t_975(n - 1));
    let method = match half {
        Some(_) => "Student's t over pairs",
        None => "no interval: one pair has no spread",
    };
    Some(PairedDifference {
        units: n,
        change: Some(change),
        change_low: half.map(|half| change - half),
        change_high: half.map(|half| change + half),
        ..plain(
            what,
            quantity,
            mean(pairs.iter().map(|(a, _)| *a).collect()),
            mean(pairs.iter().map(|(_, b)| *b).collect()),
            method,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_means_is_paired() {
        let pairs: Vec<_> = (0..10)
            .map(|n| (f64::from(n), f64::from(n) + 1.0))
            .collect();
        let found = means("x", "y", &pairs).unwrap();
        // the spread of the values themselves does not count
        assert_eq!(
            (found.change, found.change_low, found.change_high),
            (Some(1.0), Some(1.0), Some(1.0))
        );
        assert_eq!(means("x", "y", &pairs[..1]).unwrap().change_low, None);
    }
}
