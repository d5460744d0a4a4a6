//! The sections of each verb.

use super::{Entry, Room, Section, Table, Text};
use crate::number::{percent, short};
use crate::schema::{
    DocumentLoss, EvalReport, MeanLoss, PairReport, PositionLoss, ProbeCell, ProbeReport,
    TrainReport,
};
use crate::summary::{amount, cause, change, plural};

fn or<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

/// A depth in percent with the digits it has.
fn depth(depth: f64) -> String {
    format!("{}%", crate::figure::share(depth))
}

fn range(low: Option<f64>, high: Option<f64>) -> String {
    low.zip(high).map_or_else(
        || "none".to_owned(),
        |(low, high)| format!("{} to {}", percent(low), percent(high)),
    )
}

pub(super) fn probe(report: &ProbeReport, room: Room) -> Vec<Section> {
    let row = |cell: &ProbeCell| {
        let score = &cell.score;
        let mut ranks: Vec<u64> = cell.results.iter().map(|one| one.first_rank).collect();
        ranks.sort_unstable();
        [
            cell.length.to_string(),
            depth(cell.depth),
            or(cell.true_depth.map(depth)),
            format!("{} of {}", score.hits, score.samples),
            or(score.accuracy.map(percent)),
            range(score.accuracy_low, score.accuracy_high),
            or(score.log_probability.map(short)),
            or(ranks.get(ranks.len() / 2)),
        ]
        .map(Text::from)
        .to_vec()
    };
    let cells = Section {
        title: "Numbers, by length and depth".to_owned(),
        lead: vec![
            "Found: the first integer of the greedy answer is the key. ln p: mean log-probability of the right answer, nats. Rank: \
             tokens that were likelier than its first, the middle of the samples."
                .to_owned(),
        ],
        table: Table {
            columns: vec![
                ("length", true),
                ("depth", true),
                ("true depth", true),
                ("found", true),
                ("share", true),
                ("95 % interval", true),
                ("ln p", true),
                ("rank", true),
            ],
            rows: report.cells.iter().map(row).collect(),
        },
        ..Section::default()
    };
    vec![failures(report, room), changes(report), cells]
}

/// The cells with misses: what was asked for, what came, and why.
fn failures(report: &ProbeReport, room: Room) -> Section {
    let missed = |cell: &&(usize, &ProbeCell)| cell.1.score.hits < cell.1.score.samples;
    let cells: Vec<_> = report.cells.iter().enumerate().collect();
    let cells: Vec<_> = cells.iter().filter(missed).collect();
    let entry = |(index, cell): &(usize, &ProbeCell)| {
        let misses: Vec<_> = cell.results.iter().filter(|one| !one.hit).collect();
        let rows = misses.iter().take(room.rows).map(|one| {
            vec![
                Text::Plain(one.key.clone()),
                Text::Raw(one.answer.clone()),
                or(one.log_probability.map(short)).into(),
                one.first_rank.to_string().into(),
                one.needle_at.to_string().into(),
            ]
        });
        Entry {
            id: format!("cell-{index}"),
            line: format!(
                "length {}, depth {}: {} of {} missed",
                cell.length,
                depth(cell.depth),
                misses.len(),
                cell.score.samples
            ),
            body: vec![cause(report, cell)],
            table: Table {
                columns: vec![
                    ("key", true),
                    ("answer as it came", false),
                    ("ln p", true),
                    ("rank", true),
                    ("fact at token", true),
                ],
                rows: rows.collect(),
            },
        }
    };
    Section {
        title: format!("Failures: {}", plural(cells.len() as u64, "cell")),
        entries: cells
            .iter()
            .take(room.entries)
            .map(|one| entry(one))
            .collect(),
        rest: (cells.len() > room.entries).then(|| {
            format!(
                "{} of {} cells with misses; CSV and JSON have all.",
                room.entries,
                cells.len()
            )
        }),
        ..Section::default()
    }
}

fn changes(report: &ProbeReport) -> Section {
    let rows = report.cells.iter().flat_map(|cell| {
        cell.what_if.iter().map(|changed| {
            vec![
                cell.length.to_string().into(),
                depth(cell.depth).into(),
                Text::Plain(changed.change.clone()),
                format!("{} of {}", cell.score.hits, cell.score.samples).into(),
                format!("{} of {}", changed.score.hits, changed.score.samples).into(),
                or(cell.score.log_probability.map(short)).into(),
                or(changed.score.log_probability.map(short)).into(),
            ]
        })
    });
    Section {
        title: "Cells with misses under another bias".to_owned(),
        table: Table {
            columns: vec![
                ("length", true),
                ("depth", true),
                ("change", false),
                ("found before", true),
                ("found", true),
                ("ln p before", true),
                ("ln p", true),
            ],
            rows: rows.collect(),
        },
        ..Section::default()
    }
}

const LOSS: [(&str, bool); 4] = [
    ("tokens", true),
    ("nats a token", true),
    ("standard error", true),
    ("perplexity", true),
];

fn loss(loss: &MeanLoss) -> [Text; 4] {
    [
        loss.tokens.to_string(),
        or(loss.nats_per_token.map(short)),
        or(loss.standard_error_nats.map(short)),
        or(loss.perplexity.map(short)),
    ]
    .map(Text::from)
}

pub(super) fn eval(report: &EvalReport) -> Vec<Section> {
    let mut out = Vec::new();
    if let Some(perplexity) = &report.perplexity {
        let columns = |first: &[&'static str]| {
            let first = first.iter().map(|name| (*name, true));
            first.chain(LOSS).collect()
        };
        let position = |bin: &PositionLoss| {
            let name = if bin.from == bin.to {
                bin.from.to_string()
            } else {
                format!("{} to {}", bin.from, bin.to)
            };
            [Text::from(name)]
                .into_iter()
                .chain(loss(&bin.loss))
                .collect()
        };
        out.push(Section {
            title: "Numbers, by tokens of context".to_owned(),
            table: Table {
                columns: columns(&["context"]),
                rows: perplexity.by_position.iter().map(position).collect(),
            },
            ..Section::default()
        });
        let document = |one: &DocumentLoss| {
            let place = [one.document.to_string(), one.length.to_string()].map(Text::from);
            place.into_iter().chain(loss(&one.loss)).collect()
        };
        out.push(Section {
            title: "By document".to_owned(),
            table: Table {
                columns: columns(&["document", "length"]),
                rows: perplexity.documents.iter().map(document).collect(),
            },
            ..Section::default()
        });
    }
    if let Some(task) = &report.task {
        let mut rows: Vec<Vec<Text>> = crate::figure::scores(task)
            .iter()
            .map(|(name, score)| {
                vec![
                    (*name).into(),
                    or(score.value.map(percent)).into(),
                    or(score.standard_error.map(percent)).into(),
                ]
            })
            .collect();
        if let Some(chance) = task.chance {
            rows.push(vec!["chance".into(), percent(chance).into(), "none".into()]);
        }
        if let Some(nats) = task.gold_nats {
            rows.push(vec![
                "nats of the right answer".into(),
                short(nats).into(),
                or(task.gold_nats_standard_error.map(short)).into(),
            ]);
        }
        out.push(Section {
            title: "Numbers".to_owned(),
            table: Table {
                columns: vec![("score", false), ("value", true), ("standard error", true)],
                rows,
            },
            ..Section::default()
        });
    }
    out
}

pub(super) fn train(report: &TrainReport) -> Vec<Section> {
    let held = report.held.iter().map(|one| {
        let step = report.steps.iter().find(|step| step.step == one.step);
        [
            one.step.to_string(),
            one.length.to_string(),
            short(one.nats_per_token),
            or(step.map(|step| short(step.text))),
            or(step.map(|step| short(step.learning_rate))),
            or(step.map(|step| short(step.gradient_norm))),
        ]
        .map(Text::from)
        .to_vec()
    });
    let held = Section {
        title: "Held-out loss".to_owned(),
        table: Table {
            columns: vec![
                ("step", true),
                ("length", true),
                ("held-out nats", true),
                ("training nats", true),
                ("learning rate", true),
                ("gradient norm", true),
            ],
            rows: held.collect(),
        },
        ..Section::default()
    };
    let recall = report.recall.last().map(|last| {
        let rows = last.cells.iter().map(|one| {
            vec![
                Text::Plain(one.task.clone()),
                format!("{} to {}", one.from, one.to).into(),
                format!("{} of {}", one.right, one.questions).into(),
                or(one.accuracy.map(percent)).into(),
                range(one.accuracy_low, one.accuracy_high).into(),
                short(one.nats).into(),
            ]
        });
        Section {
            title: format!("Recall after step {}", last.step),
            table: Table {
                columns: vec![
                    ("task", false),
                    ("distance", true),
                    ("right", true),
                    ("share", true),
                    ("95 % interval", true),
                    ("nats", true),
                ],
                rows: rows.collect(),
            },
            ..Section::default()
        }
    });
    let heads = report.looks.last().map(|look| {
        let mut heads: Vec<_> = look.heads.iter().collect();
        heads.sort_by(|a, b| {
            let blind = |head: &crate::schema::TrainHead| head.blind_share.unwrap_or(0.0);
            blind(b).total_cmp(&blind(a))
        });
        let rows = heads.iter().map(|head| {
            [
                format!("layer {} head {}", head.layer, head.head),
                or(head.blind_share.map(percent)),
                head.reach_90.to_string(),
                percent(head.key0_mass),
            ]
            .map(Text::from)
            .to_vec()
        });
        Section {
            title: format!("Heads after step {}, most blind first", look.step),
            table: Table {
                columns: vec![
                    ("head", false),
                    ("blind pairs", true),
                    ("reach of 90 %", true),
                    ("on key 0", true),
                ],
                rows: rows.collect(),
            },
            ..Section::default()
        }
    });
    [Some(held), recall, heads].into_iter().flatten().collect()
}

pub(super) fn paired(pair: &PairReport) -> Section {
    let rows = pair.paired.iter().map(|one| {
        let interval = one.change_low.zip(one.change_high);
        vec![
            Text::Plain(one.what.clone()),
            one.quantity.replace('_', " ").into(),
            or(one.a.map(|value| amount(one, value))).into(),
            or(one.b.map(|value| amount(one, value))).into(),
            or(one.change.map(|value| change(one, value))).into(),
            interval
                .map_or_else(
                    || "none".to_owned(),
                    |(low, high)| format!("{} to {}", change(one, low), change(one, high)),
                )
                .into(),
            match (interval, one.is_clear(), one.change) {
                (None, ..) => "not known",
                (_, false, _) => "● no",
                (_, true, Some(change)) if change > 0.0 => "▲ yes, up",
                _ => "▼ yes, down",
            }
            .into(),
            one.units.to_string().into(),
        ]
    });
    let mut methods: Vec<&str> = Vec::new();
    for one in &pair.paired {
        if !methods.contains(&one.method.as_str()) {
            methods.push(&one.method);
        }
    }
    Section {
        title: "Paired differences".to_owned(),
        lead: vec![format!(
            "Clear: the 95 % interval excludes no change; one interval in twenty does by chance. {}.",
            methods.join("; ")
        )],
        table: Table {
            columns: vec![
                ("over", false),
                ("quantity", false),
                ("A", true),
                ("B", true),
                ("change", true),
                ("95 % interval", true),
                ("clear", false),
                ("pairs", true),
            ],
            rows: rows.collect(),
        },
        ..Section::default()
    }
}
