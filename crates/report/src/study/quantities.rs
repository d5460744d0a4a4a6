//! The numbers of one trial that are averaged over trials.

use crate::schema::{StudyCell, StudyMeasured, StudyResult, StudyTrial};

/// What a table compares its rows with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// The baseline's trials of the same seeds.
    Baseline,
    /// The same trials without the change.
    Unchanged,
    /// Nothing.
    Nothing,
}

/// A table, in the order of the report.
#[derive(Debug)]
pub(super) struct TableKind {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) compared: Compared,
}

pub(super) const TABLES: [TableKind; 8] = [
    TableKind {
        name: "recall",
        title: "Recall at distances of at least half the length",
        compared: Compared::Baseline,
    },
    TableKind {
        name: "loss",
        title: "Held-out loss, nats per token",
        compared: Compared::Baseline,
    },
    TableKind {
        name: "what-if",
        title: "The same finished models under another bias or with zeroing",
        compared: Compared::Unchanged,
    },
    TableKind {
        name: "recall-by-distance",
        title: "Recall by distance at the longest length",
        compared: Compared::Nothing,
    },
    TableKind {
        name: "blind",
        title: "Share of causal pairs whose weight is exactly zero, all heads",
        compared: Compared::Baseline,
    },
    TableKind {
        name: "blind-heads",
        title: "The same of every head",
        compared: Compared::Nothing,
    },
    TableKind {
        name: "horizon",
        title: "Horizon measured over horizon predicted, where both are known",
        compared: Compared::Nothing,
    },
    TableKind {
        name: "cost",
        title: "Cost; depends on the machine and on what else ran there",
        compared: Compared::Nothing,
    },
];

/// One number of one trial.
#[derive(Debug)]
pub(super) struct Value<'a> {
    pub(super) table: &'static str,
    pub(super) quantity: String,
    pub(super) change: Option<&'a str>,
    pub(super) trial: &'a StudyTrial,
    pub(super) value: f64,
}

/// Every number of every finished trial.
pub(super) fn all<'a>(done: &[&'a StudyTrial], baseline: Option<&str>) -> Vec<Value<'a>> {
    let mut values = Vec::new();
    for &trial in done {
        let Some(result) = &trial.result else {
            continue;
        };
        let mut of = Of {
            trial,
            values: &mut values,
        };
        of.measured(result);
        of.blind(result);
        of.horizons(result);
        let same = |other: &&&StudyTrial| {
            Some(other.variant.as_str()) == baseline && other.seed == trial.seed
        };
        of.cost(result, done.iter().find(same).copied());
    }
    values
}

struct Of<'a, 'v> {
    trial: &'a StudyTrial,
    values: &'v mut Vec<Value<'a>>,
}

impl<'a> Of<'a, '_> {
    fn add(
        &mut self,
        table: &'static str,
        quantity: String,
        change: Option<&'a str>,
        value: Option<f64>,
    ) {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            return;
        };
        self.values.push(Value {
            table,
            quantity,
            change,
            trial: self.trial,
            value,
        });
    }

    fn measured(&mut self, result: &'a StudyResult) {
        let changed = |length: u64| {
            let is = |m: &&StudyMeasured| m.change.is_some() && m.length == length;
            result.measured.iter().any(|m| is(&m))
        };
        let longest = result.measured.iter().map(|m| m.length).max();
        for measured in &result.measured {
            let length = measured.length;
            let change = measured.change.as_deref();
            let mut tables = Vec::new();
            if change.is_none() {
                tables.push(("recall", "loss"));
            }
            if changed(length) {
                tables.push(("what-if", "what-if"));
            }
            for (recall, loss) in tables {
                for task in tasks(&measured.recall) {
                    let far = |cell: &StudyCell| cell.task == task && 2 * cell.from >= length;
                    let share = share(measured.recall.iter().filter(|cell| far(cell)));
                    self.add(recall, format!("{task}, length {length}"), change, share);
                }
                let quantity = format!("loss, length {length}");
                self.add(loss, quantity, change, measured.loss);
            }
            if change.is_none() && Some(length) == longest {
                for cell in &measured.recall {
                    let quantity = format!("{}, {} to {}", cell.task, cell.from, cell.to);
                    self.add("recall-by-distance", quantity, None, share([cell]));
                }
            }
        }
    }

    fn blind(&mut self, result: &'a StudyResult) {
        let mut seen: Vec<(&str, u64)> = Vec::new();
        for head in &result.blind {
            let key = (head.plan.as_str(), head.length);
            if !seen.contains(&key) {
                seen.push(key);
            }
        }
        for (plan, length) in seen {
            let here = || {
                let heads = result.blind.iter();
                heads.filter(move |h| h.plan == plan && h.length == length)
            };
            let of = |blind: u64, pairs: u64| ratio(blind as f64, pairs as f64);
            let all = of(
                here().map(|head| head.blind_pairs).sum(),
                here().map(|head| head.pairs).sum(),
            );
            self.add("blind", format!("{plan}, length {length}"), None, all);
            for head in here() {
                let place = format!("layer {} head {}", head.layer, head.head);
                let quantity = format!("{plan}, length {length}, {place}");
                let share = of(head.blind_pairs, head.pairs);
                self.add("blind-heads", quantity, None, share);
            }
        }
    }

    fn horizons(&mut self, result: &'a StudyResult) {
        for horizon in &result.horizons {
            let bounded = !horizon.measured_unbounded && !horizon.predicted_unbounded;
            let (Some(measured), Some(predicted), true) =
                (horizon.measured, horizon.predicted, bounded)
            else {
                continue;
            };
            let value = ratio(measured as f64, predicted.tokens());
            self.add("horizon", horizon.task.clone(), None, value);
        }
    }

    fn cost(&mut self, result: &'a StudyResult, baseline: Option<&StudyTrial>) {
        let cost = &self.trial.cost;
        let steps = result.steps as f64;
        let rate = cost.training_seconds.and_then(|s| ratio(steps, s));
        self.add("cost", "steps per second".to_owned(), None, rate);
        let seconds = cost.training_seconds;
        self.add("cost", "seconds of training".to_owned(), None, seconds);
        let cpu = cost.training_cpu_seconds;
        self.add("cost", "CPU seconds of training".to_owned(), None, cpu);
        let Some(base) = baseline else {
            return;
        };
        let per_step = |trial: &StudyTrial, seconds: Option<f64>| {
            let steps = trial.result.as_ref().map(|r| r.steps as f64)?;
            ratio(seconds?, steps)
        };
        let relative = |seconds: fn(&StudyTrial) -> Option<f64>| {
            let mine = per_step(self.trial, seconds(self.trial))?;
            ratio(mine, per_step(base, seconds(base))?)
        };
        let cpu = relative(|trial| trial.cost.training_cpu_seconds);
        let time = relative(|trial| trial.cost.training_seconds);
        let name = "CPU time per step over the baseline's";
        self.add("cost", name.to_owned(), None, cpu);
        self.add(
            "cost",
            "time per step over the baseline's".to_owned(),
            None,
            time,
        );
    }
}

/// Tasks in the order in which they stand.
fn tasks(cells: &[StudyCell]) -> Vec<String> {
    let mut tasks: Vec<String> = Vec::new();
    for cell in cells {
        if !tasks.contains(&cell.task) {
            tasks.push(cell.task.clone());
        }
    }
    tasks
}

/// Right answers over questions of some cells together.
fn share<'c>(cells: impl IntoIterator<Item = &'c StudyCell>) -> Option<f64> {
    let (mut right, mut questions) = (0, 0);
    for cell in cells {
        right += cell.right;
        questions += cell.questions;
    }
    ratio(right as f64, questions as f64)
}

fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}
