//! What is known of one head under one plan, whatever the verb.

use super::HeadPlace;
use crate::document::Document;
use crate::number::{Distance, short};
use crate::schema::{AuditHead, AuditReport, HorizonReport, MeasureHead, MeasureReport, PlanInfo};

/// A distance worth a mark.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mark {
    pub(super) name: String,
    /// Tokens.
    pub(super) at: f64,
    /// Shape: 0 circle, 1 square, 2 diamond, 3 triangle.
    pub(super) shape: usize,
}

/// Distances of which something is said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Zone {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) class: &'static str,
    pub(super) text: &'static str,
}

/// Attention by distance.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bins {
    /// First and last distance of each.
    pub(super) edges: Vec<(f64, f64)>,
    /// Share of the attention.
    pub(super) mass: Vec<f64>,
    /// Whether `mass` is under the plan's own roundings.
    pub(super) own: bool,
    /// Share of the pairs that are blind.
    pub(super) blind: Vec<f64>,
    /// The plan that `blind` is under.
    pub(super) counted_under: String,
}

/// Everything that is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    pub(super) plan: String,
    /// Tokens looked at.
    pub(super) length: f64,
    /// Effective slope, nats a token.
    pub(super) slope: f64,
    /// Gap beyond which the numerator is zero, nats.
    pub(super) tau: Option<f64>,
    /// Largest difference of two scores, nats.
    pub(super) gap: Option<f64>,
    /// Whether the bias is not the plain linear one.
    pub(super) remedy: bool,
    pub(super) marks: Vec<Mark>,
    pub(super) zones: Vec<Zone>,
    pub(super) bins: Option<Bins>,
}

/// One entry a plan; empty where the result has no such head. Of two results, those of each with its letter.
pub(super) fn of(document: &Document, place: HeadPlace) -> Vec<Facts> {
    match document {
        Document::Horizon(report) => horizon(report, place),
        Document::Audit(report) => audit(report, place),
        Document::Measure(report) => measure(report, place),
        Document::Pair(pair) => {
            let mut out = Vec::new();
            for (letter, side) in [("A", &pair.a), ("B", &pair.b)] {
                out.extend(of(side, place).into_iter().map(|mut facts| {
                    facts.plan = format!("{} ({letter}, {})", facts.plan, side.verb());
                    facts
                }));
            }
            out
        }
        _ => Vec::new(),
    }
}

/// A distance in as few characters as it needs.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)] // up to 2^53
pub(super) fn tokens(distance: f64) -> String {
    if distance < 9e15 {
        (distance.round() as u64).to_string()
    } else {
        short(distance)
    }
}

#[allow(clippy::cast_precision_loss)] // tokens
fn length(length: Option<u64>) -> f64 {
    length.unwrap_or(2048) as f64
}

fn push(marks: &mut Vec<Mark>, name: &str, at: Option<f64>, shape: usize) {
    marks.extend(at.map(|at| Mark {
        name: name.to_owned(),
        at,
        shape,
    }));
}

fn far(distance: Option<Distance>) -> Option<f64> {
    distance.map(Distance::tokens)
}

#[allow(clippy::cast_precision_loss)] // tokens
fn near(distance: Option<u64>) -> Option<f64> {
    distance.map(|distance| distance as f64)
}

fn zone(from: f64, to: f64, class: &'static str, text: &'static str) -> Zone {
    Zone {
        from,
        to,
        class,
        text,
    }
}

fn horizon(report: &HorizonReport, place: HeadPlace) -> Vec<Facts> {
    // the result is the same in every layer
    if place.layer.is_some() {
        return Vec::new();
    }
    let plans = report.plans.iter().filter_map(|plan| {
        let head = plan.heads.iter().find(|head| head.head == place.head)?;
        let first = far(head.first_blind_distance);
        let mut marks = Vec::new();
        push(&mut marks, "first blind, by the bias", first, 3);
        push(
            &mut marks,
            "last visible within the length",
            near(head.last_visible_distance),
            1,
        );
        push(
            &mut marks,
            "stored bias overflows from",
            far(head.overflow_distance),
            2,
        );
        let end = first.unwrap_or(f64::MAX);
        Some(Facts {
            plan: plan.info.plan.clone(),
            length: length(report.envelope.length),
            slope: head.effective_slope,
            tau: plan.info.numerator_zero_nats,
            remedy: report.remedy.is_some(),
            marks,
            zones: vec![
                zone(0.0, end, "zone-seen", "seen"),
                zone(end, f64::MAX, "zone-blind", "blind by the bias alone"),
            ],
            ..Facts::default()
        })
    });
    plans.collect()
}

fn audit(report: &AuditReport, place: HeadPlace) -> Vec<Facts> {
    let is = |head: &&AuditHead| Some(head.layer) == place.layer && head.head == place.head;
    let Some(head) = report.heads.iter().find(is) else {
        return Vec::new();
    };
    let of = |info: &PlanInfo| {
        let own = head.plans.get(&info.plan)?;
        let (seen, blind) = (far(own.guaranteed_visible), far(own.certified_horizon));
        let mut marks = Vec::new();
        push(&mut marks, "guaranteed visible up to", seen, 1);
        push(
            &mut marks,
            "expected blind past",
            far(own.expected_horizon),
            2,
        );
        push(&mut marks, "certified blind past", blind, 3);
        let seen = if own.always_visible {
            f64::MAX
        } else {
            seen.unwrap_or(0.0)
        };
        let blind = blind.unwrap_or(f64::MAX);
        Some(Facts {
            plan: info.plan.clone(),
            length: length(report.envelope.length),
            slope: head.effective_slope,
            tau: info.numerator_zero_nats,
            gap: head.gap_bound,
            marks,
            zones: vec![
                zone(0.0, seen, "zone-seen", "seen, for any text"),
                zone(seen, blind, "zone-open", "depends on the text"),
                zone(blind, f64::MAX, "zone-blind", "blind, for any text"),
            ],
            ..Facts::default()
        })
    };
    report.plans.iter().filter_map(of).collect()
}

fn measure(report: &MeasureReport, place: HeadPlace) -> Vec<Facts> {
    let is = |head: &&MeasureHead| Some(head.layer) == place.layer && head.head == place.head;
    let Some(head) = report.heads.iter().find(is) else {
        return Vec::new();
    };
    let of = |info: &PlanInfo| {
        let own = head.plans.get(&info.plan)?;
        let (first, last) = (
            near(own.first_blind_distance),
            near(own.last_visible_distance),
        );
        let mut marks = Vec::new();
        push(
            &mut marks,
            "half of the attention within",
            near(head.reach_50),
            0,
        );
        push(&mut marks, "nine tenths within", near(head.reach_90), 0);
        push(&mut marks, "first blind pair observed", first, 3);
        push(&mut marks, "last pair seen", last, 1);
        push(
            &mut marks,
            "effective horizon, content",
            far(head.effective_horizon),
            2,
        );
        let first = first.unwrap_or(f64::MAX);
        let none = first.max(last.unwrap_or(0.0) + 1.0);
        let zones = own.blind_share.map_or(Vec::new(), |_| {
            vec![
                zone(0.0, first, "zone-seen", "every pair seen"),
                zone(first, none, "zone-open", "some pairs seen"),
                zone(none, f64::MAX, "zone-blind", "none seen"),
            ]
        });
        Some(Facts {
            plan: info.plan.clone(),
            length: length(report.envelope.length),
            slope: head.effective_slope,
            tau: info.numerator_zero_nats,
            marks,
            zones,
            bins: bins(report, head, &own.mass_by_distance),
            ..Facts::default()
        })
    };
    report.plans.iter().filter_map(of).collect()
}

#[allow(clippy::cast_precision_loss)] // pairs and tokens
fn bins(report: &MeasureReport, head: &MeasureHead, own: &[f64]) -> Option<Bins> {
    let bins = &head.mass_by_distance;
    let counted_under = report.plans.first()?.plan.clone();
    let under_plan = !bins.is_empty() && own.len() == bins.len();
    (!bins.is_empty()).then(|| Bins {
        edges: bins
            .iter()
            .map(|bin| (bin.from as f64, bin.to as f64))
            .collect(),
        mass: if under_plan {
            own.to_vec()
        } else {
            bins.iter().map(|bin| bin.mass).collect()
        },
        own: under_plan,
        blind: bins
            .iter()
            .map(|bin| bin.blind_pairs as f64 / (bin.pairs.max(1)) as f64)
            .collect(),
        counted_under,
    })
}
