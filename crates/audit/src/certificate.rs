//! Certified distances: how far a head sees, and from where on it is blind, for every text.
//!
//! For a query `i` let `e_j = score_j + b(d_j)` be the entry of key `j` at distance `d_j`, and let G bound the difference of
//! two scores of one query ([`crate::bounds`]). The gap of a pair is the row's maximum less its entry.
//!
//! * *Visible*: no entry exceeds the pair's by more than `G + max b - b(d)`. While that is at most the plan's threshold the
//!   weight is not zero. Where the plan divides by the row's sum before a cast, what counts is gap plus ln(sum), which is
//!   `ln sum_k exp(e_k - e_j) <= G + ln sum_k exp(b(d_k)) - b(d)`: better than the ln(length) one would otherwise allow.
//! * *Blind*: the query's own key is always visible to it, at distance 0, so the gap is at least `b(0) - b(d) - G`. Once that
//!   exceeds the threshold the weight is zero, for any text. (A sum of weights is at least 1, its largest member.)
//!
//! Kernels that stream weigh a key against the maximum *so far*. That maximum is never above the row's own, so the first bound
//! stands. Blocks visited newest first put the query's own key in the first block, so the second stands too, for past keys;
//! otherwise only the accumulator, scaled down to the final maximum, makes a far key vanish, and its threshold is used.
//!
//! Every rounding is slack on the safe side: of the norm and the projections ([`crate::bounds::ProjectionRounding`]), of the
//! plan's own entries ([`numerics::PrecisionPlan::score_error_nats`]), and of its exponential. What `numerics::emulate` leaves
//! out is left out here: the order in which a runtime adds up `q.k`, the row's sum and `P V`, and repeated rounding in an
//! accumulator below its smallest normal number.

mod entry;
mod expected;
mod limits;

use numerics::{BiasFunction, PrecisionPlan};
use rayon::prelude::*;

use crate::bounds::HeadBounds;
use entry::Entries;
use limits::Limits;

/// Beyond this the whole numbers of f64 have gaps; no sequence is that long.
const DISTANCE_MAX: u64 = (1 << 53) - 1;

/// What a certificate is asked about.
#[derive(Clone, Copy, Debug)]
pub struct CertificateInput<'a> {
    /// Runtime and dtype.
    pub plan: &'a PrecisionPlan,
    /// The model's bias, with the remedies to be tried on top.
    pub bias: &'a BiasFunction,
    /// Sequence length, tokens. What depends on it (rounding of key positions, the row's sum) is taken at this length, or
    /// at the certified distance where that is longer.
    pub length: u64,
    /// Whether keys after the query are masked.
    pub causal: bool,
}

/// What the weights prove about one head under one plan. Distances in tokens; `guaranteed_visible <= expected_horizon <=
/// certified_horizon` where they exist.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadCertificate {
    /// No pair up to this distance, itself included, is blind, whatever the text. `None`: not even the query's own key is
    /// guaranteed a weight.
    pub guaranteed_visible: Option<u64>,
    /// Inputs of random direction (docs/NUMERICS.md, Certificates): half of the pairs of average content are blind beyond this
    /// distance. A typical value, not a proof. `None`: at no distance.
    pub expected_horizon: Option<u64>,
    /// Every pair beyond this distance is blind, whatever the text. `None`: cannot be proved of any distance.
    pub certified_horizon: Option<u64>,
    /// No pair is ever blind at any distance (a clamp, a cap, no bias); `guaranteed_visible` is then `length - 1`.
    pub always_visible: bool,
    /// Why one of the three is missing.
    pub reason: Option<String>,
}

/// The certificate of one head under one plan.
#[must_use]
pub fn certify(bounds: &HeadBounds, input: &CertificateInput<'_>) -> HeadCertificate {
    if let Some(reason) = refusal(bounds, input) {
        return HeadCertificate {
            guaranteed_visible: None,
            expected_horizon: None,
            certified_horizon: None,
            always_visible: false,
            reason: Some(reason),
        };
    }
    let entries = Entries::new(bounds, input);
    let limits = Limits::new(input.plan, input.length, input.causal);
    let visible = |d: u64| entries.is_visible(d, &limits);
    let blind = |d: u64| entries.is_blind(d, &limits);
    let last = input.length.max(1) - 1;
    let (first_hidden, first_blind) = match entries.constant_from() {
        // A table may go up and down; beyond its last bucket it is constant.
        Some(end) => (
            (0..=end).find(|&d| !visible(d)),
            (0..=end).rev().take_while(|&d| blind(d)).last(),
        ),
        None => (first(last, |d| !visible(d)), first(last, blind)),
    };
    let always_visible = first_hidden.is_none();
    let guaranteed_visible = match first_hidden {
        None => Some(last),
        Some(d) => d.checked_sub(1),
    };
    // At distance 0 the gap bound is negative: never blind.
    let certified_horizon = first_blind.and_then(|d| d.checked_sub(1));
    let expected = expected::horizon(bounds, input, &entries);
    let expected_horizon = expected
        .map(|d| d.max(guaranteed_visible.unwrap_or(0)))
        .map_or(certified_horizon, |d| {
            Some(d.min(certified_horizon.unwrap_or(u64::MAX)))
        })
        .filter(|_| !always_visible);
    let mut certificate = HeadCertificate {
        guaranteed_visible,
        expected_horizon,
        certified_horizon,
        always_visible,
        reason: None,
    };
    certificate.reason = reason(&certificate, &entries, &limits, last);
    certificate
}

/// [`certify`] for many heads, over rayon's threads; in the order given.
#[must_use]
pub fn certify_all(bounds: &[HeadBounds], input: &CertificateInput<'_>) -> Vec<HeadCertificate> {
    bounds.par_iter().map(|head| certify(head, input)).collect()
}

/// The smallest distance for which a predicate holds that, once true, stays true; looked for beyond `last` too.
fn first(last: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = if holds(last) {
        (0, last)
    } else {
        let mut low = last;
        loop {
            if low >= DISTANCE_MAX {
                return None;
            }
            let high = (low.max(1) * 2).min(DISTANCE_MAX);
            if holds(high) {
                break (low + 1, high);
            }
            low = high;
        }
    };
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(high)
}

/// Why nothing at all can be said.
fn refusal(bounds: &HeadBounds, input: &CertificateInput<'_>) -> Option<String> {
    if !(bounds.score_bound.is_finite() && bounds.gap_bound.is_finite()) {
        return Some("the weights do not bound this head's scores".to_owned());
    }
    if !bounds
        .rounding
        .nats(entry::activation_format(input.plan))
        .is_finite()
    {
        return Some("rounding of the projections cannot be bounded at this width".to_owned());
    }
    if let Err(error) = input.bias.validate(bounds.head + 1) {
        return Some(format!("the bias function is not valid: {error}"));
    }
    let is_table = matches!(input.bias.shape, numerics::BiasShape::T5Buckets { .. });
    let falls = input.bias.is_monotone() && bounds.slope >= 0.0;
    if !(is_table || falls) {
        return Some("the bias grows with the distance".to_owned());
    }
    None
}

fn reason(
    certificate: &HeadCertificate,
    entries: &Entries<'_>,
    limits: &Limits,
    last: u64,
) -> Option<String> {
    if certificate.always_visible {
        return Some(
            "no pair is ever blind: the bias stays above the plan's threshold at every distance"
                .to_owned(),
        );
    }
    let nothing_beyond = certificate.certified_horizon.is_none();
    let nothing_below = certificate.guaranteed_visible.is_none();
    if !nothing_beyond && !nothing_below {
        return None;
    }
    let rounding = 2.0 * entries.plan_error(last);
    if !rounding.is_finite() {
        return Some(
            "a score or a bias can leave its format at this length under this plan".to_owned(),
        );
    }
    let gap = entries.gap();
    if nothing_below {
        let nats = limits.smallest_visible();
        return Some(format!(
            "scores may differ by {gap:.1} nats and rounding by {rounding:.1}, more than the {nats:.1} nats the plan can hold"
        ));
    }
    Some("the bias does not reach the plan's threshold at any distance, or its rounding under this plan outgrows it".to_owned())
}
