//! Numbers of `measure` that no text can give: distances beyond the text, reaches out of order, a negative entropy.

use super::ranges::{Checked, not_negative, share};
use super::{broken, place};
use crate::schema::{LossInfo, MeasureHead, MeasureReport};

/// What f32 masses may be off.
const OFF: f64 = 1e-4;

pub(super) fn heads(report: &MeasureReport) -> Checked {
    let model = report.envelope.model.as_ref();
    let layers = model.and_then(|model| model.n_layers);
    let heads = model.and_then(|model| model.n_heads);
    for head in &report.heads {
        below("heads.layer", Some(head.layer), "n_layers", layers)?;
        below("heads.head", Some(head.head), "n_heads", heads)?;
        let what = place(head.layer, head.head);
        distances(&what, report.envelope.length, head)?;
        attention(&what, report.envelope.length, head)?;
    }
    report.loss.as_ref().map_or(Ok(()), loss)
}

/// Whether an index or a distance is below what bounds it.
fn below(what: &str, value: Option<u64>, of: &str, bound: Option<u64>) -> Checked {
    match value.zip(bound) {
        Some((value, bound)) if value >= bound => {
            Err(broken(what, format!("less than {of}, {bound}"), value))
        }
        _ => Ok(()),
    }
}

fn distances(what: &str, length: Option<u64>, head: &MeasureHead) -> Checked {
    let reaches = [
        ("reach_50", head.reach_50),
        ("reach_90", head.reach_90),
        ("reach_99", head.reach_99),
    ];
    for (field, reach) in reaches {
        below(&format!("{what}.{field}"), reach, "length", length)?;
    }
    for pair in reaches.windows(2) {
        let [(less, near), (more, far)] = [pair[0], pair[1]];
        if let (Some(near), Some(far)) = (near, far)
            && near > far
        {
            let expected = format!("at least {less}, {near}");
            return Err(broken(format!("{what}.{more}"), expected, far));
        }
    }
    for (plan, own) in &head.plans {
        for (field, distance) in [
            ("first_blind_distance", own.first_blind_distance),
            ("last_visible_distance", own.last_visible_distance),
        ] {
            let what = format!("{what}.plans.{plan}.{field}");
            below(&what, distance, "length", length)?;
        }
    }
    let what = format!("{what}.mean_distance");
    not_negative(&what, head.mean_distance)?;
    at_most(
        &what,
        head.mean_distance,
        length.map(|length| length as f64),
    )
}

fn attention(what: &str, length: Option<u64>, head: &MeasureHead) -> Checked {
    for (field, value) in [
        ("share_below_bf16_ulp", head.share_below_bf16_ulp),
        ("share_below_f32_ulp", head.share_below_f32_ulp),
        ("key0_baseline", head.key0_baseline),
    ] {
        share(&format!("{what}.{field}"), value)?;
    }
    not_below(&format!("{what}.key0_mass"), head.key0_mass)?;
    at_most(&format!("{what}.key0_mass"), head.key0_mass, Some(1.0))?;
    let entropy = format!("{what}.entropy_nats");
    not_below(&entropy, head.entropy_nats)?;
    // That of equal weights.
    let most = length.map(|length| (length.max(1) as f64).ln());
    at_most(&entropy, head.entropy_nats, most)?;
    not_negative(&format!("{what}.max_score"), head.max_score)?;
    // The best recent score is no less than the query's own.
    let recent = format!("{what}.advantage_recent_max");
    match (head.advantage_recent_max, head.advantage_diagonal_max) {
        (Some(recent_max), Some(most)) => at_most(&recent, Some(recent_max), Some(most)),
        (Some(recent_max), None) => Err(broken(&recent, "null", recent_max)),
        (None, _) => Ok(()),
    }
}

/// No less than 0, but for what f32 may be off.
fn not_below(what: &str, value: Option<f64>) -> Checked {
    match value {
        Some(value) if value < -OFF => Err(broken(what, "no negative number", value)),
        _ => Ok(()),
    }
}

fn at_most(what: &str, value: Option<f64>, most: Option<f64>) -> Checked {
    match value.zip(most) {
        Some((value, most)) if value > most + OFF * (1.0 + most.abs()) => {
            Err(broken(what, format!("at most {most}"), value))
        }
        _ => Ok(()),
    }
}

fn loss(loss: &LossInfo) -> Checked {
    not_negative("loss.nats_per_token", loss.nats_per_token)?;
    let expected = loss.nats_per_token.map(f64::exp);
    match (expected, loss.perplexity) {
        (Some(expected), Some(found)) if (found / expected - 1.0).abs() > OFF => {
            Err(broken("loss.perplexity", expected, found))
        }
        _ => Ok(()),
    }
}
