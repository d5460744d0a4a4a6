//! Figures of two results: what changed head by head, or over what both looked at; then the figures of each.

use super::Figure;
use super::forest::{Estimate, Forest, Panel};
use super::svg::{Svg, number};
use crate::document::Document;
use crate::number::{percent, short};
use crate::schema::{Difference, HeadDifference, PairReport, PairedDifference};
use crate::summary::plural;
use std::collections::BTreeSet;

/// Differences that are drawn; the tables have all.
const ROWS_MAX: usize = 60;

/// The figures.
pub(super) fn figures(pair: &PairReport, width: f64) -> Vec<Figure> {
    let quantity = match &pair.a {
        Document::Horizon(_) => "blind_share_last_row",
        Document::Audit(_) => "expected_horizon",
        _ => "blind_share",
    };
    let mut out = changes(pair, quantity, width);
    out.extend(differences(pair).draw(width));
    out.extend(lettered("A", &pair.a, width));
    out.extend(lettered("B", &pair.b, width));
    out
}

/// The figures of one of two results, with its letter.
pub(crate) fn lettered(letter: &str, side: &Document, width: f64) -> Vec<Figure> {
    with_letter(letter, super::figures(side, width))
}

/// Figures of one of two results.
pub(super) fn with_letter(letter: &str, mut figures: Vec<Figure>) -> Vec<Figure> {
    for figure in &mut figures {
        figure.title = format!("{letter}: {}", figure.title);
        figure.label = format!("{letter}: {}", figure.label);
    }
    figures
}

/// What became of a quantity in every head, a chart a plan; empty where the two are not compared head by head.
pub(super) fn changes(pair: &PairReport, quantity: &str, width: f64) -> Vec<Figure> {
    let has = |head: &HeadDifference| head.quantities.contains_key(quantity);
    if !pair.heads.iter().any(has) {
        return Vec::new();
    }
    let mut plans: Vec<(&Option<String>, &Option<String>)> = Vec::new();
    for head in &pair.heads {
        if !plans.contains(&(&head.plan_a, &head.plan_b)) {
            plans.push((&head.plan_a, &head.plan_b));
        }
    }
    plans
        .into_iter()
        .filter_map(|(a, b)| {
            let is = |head: &&HeadDifference| (&head.plan_a, &head.plan_b) == (a, b);
            let heads: Vec<&HeadDifference> = pair.heads.iter().filter(is).collect();
            let name = |plan: &Option<String>| plan.clone().unwrap_or_else(|| "no plan".to_owned());
            let under = if a == b {
                name(a)
            } else {
                format!("{} and {}", name(a), name(b))
            };
            let title = format!("Change of {quantity} from A to B, under {under}");
            change(&heads, quantity, title, width)
        })
        .collect()
}

/// Which way a change goes: 1 sees more, -1 less, 0 the same; `None` where one of the two is missing.
fn way(quantity: &str, difference: &Difference) -> Option<i8> {
    let Some(change) = difference.change else {
        return (difference.a.is_none() && difference.b.is_none()).then_some(0);
    };
    // of blind pairs, bounds and attention on the first token less is better, of distances more
    let less = ["blind", "key0", "score"];
    let less = less.iter().any(|start| quantity.starts_with(start));
    let up = if less { -1 } else { 1 };
    Some(if change > 0.0 {
        up
    } else if change < 0.0 {
        -up
    } else {
        0
    })
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)] // rows and columns
fn change(heads: &[&HeadDifference], quantity: &str, title: String, width: f64) -> Option<Figure> {
    let columns: BTreeSet<u64> = heads.iter().map(|head| head.head).collect();
    let layers: BTreeSet<Option<u64>> = heads.iter().map(|head| head.layer).collect();
    let (columns, layers): (Vec<u64>, Vec<Option<u64>>) =
        (columns.into_iter().collect(), layers.into_iter().collect());
    if columns.is_empty() {
        return None;
    }
    let left = 64.0;
    let pitch = ((width - left - 4.0) / columns.len() as f64)
        .floor()
        .clamp(10.0, 44.0);
    let pitch_y = pitch.min(26.0);
    let mut svg = Svg::new();
    svg.styled_text(left - 8.0, 13.0, "end", "axis", "layer");
    let every = (24.0 / pitch).ceil().max(1.0) as usize;
    for (column, head) in columns.iter().enumerate().step_by(every) {
        let x = left + (column as f64 + 0.5) * pitch;
        svg.styled_text(x, 13.0, "middle", "axis", &head.to_string());
    }
    let every = (13.0 / pitch_y).ceil().max(1.0) as usize;
    for (row, layer) in layers.iter().enumerate().step_by(every) {
        let label = layer.map_or("all".to_owned(), |layer| layer.to_string());
        let y = 22.0 + (row as f64 + 0.5) * pitch_y + 4.0;
        svg.styled_text(left - 8.0, y, "end", "axis", &label);
    }
    let largest = heads
        .iter()
        .filter_map(|head| head.quantities.get(quantity)?.change)
        .fold(0.0_f64, |most, change| most.max(change.abs()));
    let [mut more, mut less, mut same, mut unknown] = [0_usize; 4];
    for head in heads {
        let Some(difference) = head.quantities.get(quantity) else {
            continue;
        };
        let at = |of: Option<usize>, pitch: f64| (of.unwrap_or(0) as f64 + 0.5) * pitch;
        let x = left + at(columns.iter().position(|c| *c == head.head), pitch);
        let y = 22.0 + at(layers.iter().position(|l| *l == head.layer), pitch_y);
        let size = difference
            .change
            .map_or(0.0, |change| change.abs() / largest.max(f64::MIN_POSITIVE));
        let half = (pitch_y / 2.0 - 1.0) * (0.35 + 0.65 * size);
        let triangle = |up: f64| {
            format!(
                "M{} {}h{}l{} {}z",
                number(x - half),
                number(y + up * half),
                number(2.0 * half),
                number(-half),
                number(-2.0 * up * half)
            )
        };
        match way(quantity, difference) {
            Some(1) => {
                more += 1;
                svg.path("c7", &triangle(1.0));
            }
            Some(-1) => {
                less += 1;
                svg.path("c0", &triangle(-1.0));
            }
            Some(_) => {
                same += 1;
                svg.path(
                    "dot2",
                    &format!(
                        "M{} {}a2 2 0 1 0 4 0a2 2 0 1 0 -4 0z",
                        number(x - 2.0),
                        number(y)
                    ),
                );
            }
            None => {
                unknown += 1;
                svg.styled_text(x, y + 4.0, "middle", "axis", "?");
            }
        }
    }
    let counts = format!(
        "Of {}, {more} see more in B, {less} less, {same} the same, {unknown} cannot be compared",
        plural(heads.len() as u64, "head")
    );
    Some(Figure {
        label: format!("{title}: {counts}"),
        title,
        caption: format!(
            "▲ B sees more, ▼ B sees less, • the same, ? one of the two is missing. The larger the triangle, the larger the change; the largest \
             is {}. {counts}.",
            if quantity.contains("share") {
                percent(largest)
            } else {
                short(largest)
            }
        ),
        role: "img",
        width: (left + columns.len() as f64 * pitch + 4.0).max(240.0),
        height: 22.0 + layers.len() as f64 * pitch_y + 4.0,
        body: svg.finish(),
    })
}

/// Paired differences of probes and evaluations, B less A.
fn differences(pair: &PairReport) -> Forest {
    let mut rows: Vec<String> = Vec::new();
    let mut quantities: Vec<&str> = Vec::new();
    for difference in &pair.paired {
        if !rows.contains(&difference.what) && rows.len() < ROWS_MAX {
            rows.push(difference.what.clone());
        }
        if !quantities.contains(&difference.quantity.as_str()) {
            quantities.push(&difference.quantity);
        }
    }
    let panels = quantities.into_iter().map(|quantity| {
        let of = |what: &String| {
            let is = |d: &&PairedDifference| d.quantity == quantity && d.what == *what;
            let found = pair.paired.iter().find(is)?;
            Some(Estimate {
                value: found.change?,
                interval: found.change_low.zip(found.change_high),
                clear: found.is_clear(),
            })
        };
        Panel {
            title: format!("change of {quantity}"),
            share: pair
                .paired
                .iter()
                .any(|d| d.quantity == quantity && d.is_share()),
            limits: None,
            mark: Some(0.0),
            estimates: rows.iter().map(of).collect(),
        }
    });
    let panels: Vec<Panel> = panels.collect();
    let all: BTreeSet<&str> = pair.paired.iter().map(|d| d.what.as_str()).collect();
    let rest = if all.len() > rows.len() {
        format!(
            " The first {} of {} are drawn; CSV and JSON have all.",
            rows.len(),
            all.len()
        )
    } else {
        String::new()
    };
    Forest {
        title: "What changed from A to B, in pairs".to_owned(),
        caption: format!(
            "A mark is B less A over what both looked at, the number beside it the same, whiskers its 95 % interval; a diamond: the interval \
             excludes zero, the dashed line; ? it cannot be compared.{rest}"
        ),
        rows,
        panels,
    }
}
