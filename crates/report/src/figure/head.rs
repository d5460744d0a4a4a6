//! Figures of one head: where its attention lies and what it sees, by distance; and where slope times distance meets the threshold.

mod facts;

use super::Figure;
use super::scale::{Kind, Scale};
use super::svg::{Svg, number};
use crate::document::Document;
use crate::number::{percent, short};
use facts::{Bins, Facts, Zone, tokens};

/// A head of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadPlace {
    /// Layer; `None` for results that are the same in every layer.
    pub layer: Option<u64>,
    /// Head within the layer.
    pub head: u64,
}

impl std::fmt::Display for HeadPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.layer {
            Some(layer) => write!(f, "layer {layer}, head {}", self.head),
            None => write!(f, "head {}", self.head),
        }
    }
}

const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
/// Longest axis of distances, tokens: what lies beyond is at its end.
const FURTHEST_MAX: f64 = 1_099_511_627_776.0;

/// Two figures for each plan under which the head was looked at; `None` where the result has no such head.
pub(super) fn figures(document: &Document, place: HeadPlace, width: f64) -> Option<Vec<Figure>> {
    let facts = facts::of(document, place);
    let drawn = facts.iter().flat_map(|facts| {
        let mut figures = vec![by_distance(facts, place, width)];
        figures.extend(cause(facts, place, width));
        figures
    });
    (!facts.is_empty()).then(|| drawn.collect())
}

/// Attention and blindness by distance with the marks, and a strip that says what is seen.
fn by_distance(facts: &Facts, place: HeadPlace, width: f64) -> Figure {
    let mut marks = facts.marks.clone();
    marks.sort_by(|a, b| a.at.total_cmp(&b.at));
    let furthest = marks
        .iter()
        .map(|mark| mark.at.min(FURTHEST_MAX))
        .fold(facts.length.max(2.0) - 1.0, f64::max);
    let x = Scale::new(Kind::Log, 0.0, furthest, (LEFT, width - RIGHT));
    let mut svg = Svg::new();
    let mut y = 8.0;
    if let Some(bins) = &facts.bins {
        let most = bins.mass.iter().copied().fold(1e-9, f64::max);
        let mass: Vec<f64> = bins.mass.iter().map(|mass| mass / most).collect();
        y = panel(
            &mut svg,
            (y, 120.0),
            ("attention", &percent(most.min(1.0))),
            (bins, &mass),
            &x,
            "bar",
        );
        y = panel(
            &mut svg,
            (y, 70.0),
            ("blind", "100%"),
            (bins, &bins.blind),
            &x,
            "bar blind",
        );
    }
    let lanes = y + 4.0;
    for (lane, mark) in marks.iter().enumerate() {
        let at = x.at(mark.at);
        #[allow(clippy::cast_precision_loss)] // some marks
        let y = lanes + 10.0 + lane as f64 * 22.0;
        let text = format!("{} {}", mark.name, tokens(mark.at));
        #[allow(clippy::cast_precision_loss)] // some characters
        let fits = at + 10.0 + 6.8 * text.chars().count() as f64 <= width;
        svg.line("lane", (at, 8.0), (at, y));
        svg.marker(mark.shape, "dot3", at, y);
        let (anchor, shift) = if fits {
            ("start", 10.0)
        } else {
            ("end", -10.0)
        };
        svg.styled_text(at + shift, y + 4.0, anchor, "label", &text);
    }
    #[allow(clippy::cast_precision_loss)] // some marks
    let mut y = lanes + 22.0 * marks.len().max(1) as f64 + 4.0;
    y = strip(&mut svg, &facts.zones, y, &x, furthest);
    axis(&mut svg, &x, y, width);
    let words: Vec<String> = marks
        .iter()
        .map(|mark| format!("{} {}", mark.name, tokens(mark.at)))
        .collect();
    Figure {
        title: format!("{}: attention and blindness by distance, under {}", sentence(place), facts.plan),
        label: format!("Distances of {place} under {}: {}", facts.plan, words.join("; ")),
        caption: facts.bins.as_ref().map_or_else(
            || "The marks of this result, and what is seen. `snellen measure` shows where the attention lies.".to_owned(),
            |bins| {
                format!(
                    "Top: share of the attention in each bin of distances{}, against the fullest bin. Below: share of the bin's pairs that are blind \
                     under {}, the plan that is counted by distance. Then the marks, and what is seen.",
                    if bins.own { " under this plan" } else { ", before any plan's roundings" },
                    bins.counted_under
                )
            },
        ),
        role: "img",
        width,
        height: y + 38.0,
        body: svg.finish(),
    }
}

/// With a capital at its beginning.
fn sentence(place: HeadPlace) -> String {
    let text = place.to_string();
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

/// Bars over the bins; the y below them.
fn panel(
    svg: &mut Svg,
    (y, height): (f64, f64),
    (name, top): (&str, &str),
    (bins, shares): (&Bins, &[f64]),
    x: &Scale,
    class: &str,
) -> f64 {
    svg.styled_text(LEFT - 8.0, y + 10.0, "end", "axis", top);
    svg.styled_text(LEFT - 8.0, y + height / 2.0 + 4.0, "end", "axis", name);
    for (edges, share) in bins
        .edges
        .iter()
        .zip(shares)
        .filter(|(_, share)| **share > 0.0)
    {
        let (from, to) = (x.at(edges.0), x.at(edges.1 + 1.0));
        let bar = share.min(1.0) * height;
        svg.rect(
            class,
            from + 0.5,
            y + height - bar,
            (to - from - 1.0).max(1.0),
            bar,
        );
    }
    svg.line(
        "grid",
        (x.at(0.0), y + height),
        (x.at(f64::MAX), y + height),
    );
    y + height + 14.0
}

/// What is seen, open and blind; the y below.
fn strip(svg: &mut Svg, zones: &[Zone], y: f64, x: &Scale, furthest: f64) -> f64 {
    for zone in zones {
        let (from, to) = (x.at(zone.from), x.at(zone.to.min(furthest)));
        if to - from < 1.0 {
            continue;
        }
        svg.rect(zone.class, from, y, to - from, 12.0);
        #[allow(clippy::cast_precision_loss)] // some characters
        if to - from > 6.4 * zone.text.len() as f64 {
            svg.styled_text((from + to) / 2.0, y + 24.0, "middle", "axis", zone.text);
        }
    }
    if zones.is_empty() { y + 4.0 } else { y + 32.0 }
}

fn axis(svg: &mut Svg, x: &Scale, y: f64, width: f64) {
    svg.line("grid", (LEFT, y), (width - RIGHT, y));
    for tick in x.ticks(52.0) {
        svg.styled_text(x.at(tick), y + 15.0, "middle", "axis", &tokens(tick));
    }
    svg.styled_text(
        width - RIGHT,
        y + 31.0,
        "end",
        "axis",
        "distance in tokens, logarithmic",
    );
}

/// Bias against threshold; `None` where the bias is not linear, or no slope or threshold makes the two meet.
fn cause(facts: &Facts, place: HeadPlace, width: f64) -> Option<Figure> {
    let (tau, slope) = (facts.tau?, facts.slope);
    if facts.remedy || slope <= 0.0 {
        return None;
    }
    let (crossing, gap) = (tau / slope, facts.gap.unwrap_or(0.0));
    let furthest = facts
        .length
        .max((1.5 * (crossing + gap / slope)).min(FURTHEST_MAX));
    let highest = 1.6 * tau + gap.min(tau);
    let x = Scale::new(Kind::Log, 0.0, furthest, (LEFT, width - RIGHT));
    let y = Scale::new(Kind::Linear, 0.0, highest, (222.0, 12.0));
    let mut svg = Svg::new();
    if facts.gap.is_some() {
        let (top, bottom) = (y.at(tau + gap), y.at(tau - gap));
        svg.rect("band", LEFT, top, width - LEFT - RIGHT, bottom - top);
    }
    let mut d = String::new();
    for step in 0..=240 {
        let distance = (f64::from(step) / 240.0 * (1.0 + furthest).log2()).exp2() - 1.0;
        let end = slope * distance > highest;
        let (px, py) = if end {
            (x.at(highest / slope), y.at(highest))
        } else {
            (x.at(distance), y.at(slope * distance))
        };
        d.push_str(&format!(
            "{}{} {}",
            if d.is_empty() { 'M' } else { 'L' },
            number(px),
            number(py)
        ));
        if end {
            break;
        }
    }
    svg.path("line0", &d);
    svg.line("limit", (LEFT, y.at(tau)), (width - RIGHT, y.at(tau)));
    svg.styled_text(LEFT - 8.0, y.at(tau) + 4.0, "end", "axis", &short(tau));
    svg.styled_text(LEFT - 8.0, y.at(0.0) + 4.0, "end", "axis", "0 nats");
    svg.styled_text(
        LEFT + 6.0,
        y.at(tau) - 6.0,
        "start",
        "label",
        "tau: below this the weight is not zero",
    );
    let right = x.at(crossing) > 0.6 * width;
    let (anchor, dx, dy) = if right {
        ("end", -12.0, -8.0)
    } else {
        ("start", 12.0, 18.0)
    };
    svg.marker(2, "dot3", x.at(crossing), y.at(tau));
    let at = tokens(crossing.round());
    svg.styled_text(
        x.at(crossing) + dx,
        y.at(tau) + dy,
        anchor,
        "label",
        &format!("slope × distance reaches tau at {at}"),
    );
    axis(&mut svg, &x, y.at(0.0), width);
    let bounded = facts.gap.map_or(String::new(), |gap| {
        format!(
            "; the weights bound that difference to {} nats (shaded), so no text moves it by more than {} tokens",
            short(gap),
            tokens((gap / slope).round())
        )
    });
    Some(Figure {
        title: format!(
            "{}: what moves the horizon, under {}",
            sentence(place),
            facts.plan
        ),
        label: format!(
            "Bias of slope {} against tau of {} nats: they cross at distance {at}",
            short(slope),
            short(tau)
        ),
        caption: format!(
            "tau / slope = {} / {} = {at} tokens for a linear bias and equal content. Half the slope doubles it; a format with a larger tau moves it in \
             proportion; every nat by which a score stands above or below the row's largest moves it by 1 / slope = {} tokens{bounded}.",
            short(tau),
            short(slope),
            short(1.0 / slope)
        ),
        role: "img",
        width,
        height: 222.0 + 40.0,
        body: svg.finish(),
    })
}
