//! Entries that depend on the distance only, with the row's own maximum (the diagonal's entry) as reference.

use super::{Counts, HeadQuestion, HorizonError, ROWS_MAX};

/// The furthest distance looked at.
const FAR: f64 = 1e300;

/// Keys added one by one beyond a sequence without a blind pair.
const STEPPED_BEYOND: u64 = 4_096;

/// First whole number from 0 at which a monotone predicate holds; `None` if it does not hold for any `f64`. Beyond 2^53, where
/// not every whole number is an `f64`, the first representable one.
pub(crate) fn first_whole(holds: impl Fn(f64) -> bool) -> Option<f64> {
    if holds(0.0) {
        return Some(0.0);
    }
    let (mut below, mut above) = (0.0_f64, 1.0_f64);
    while !holds(above) {
        below = above;
        above *= 2.0;
        if !above.is_finite() {
            return None;
        }
    }
    loop {
        let middle = (below + (above - below) / 2.0).floor();
        if middle <= below || middle >= above {
            return Some(above);
        }
        if holds(middle) {
            above = middle;
        } else {
            below = middle;
        }
    }
}

/// `1 + 2 + ... + n`, for `n = top - first + 1` rows that see `1 .. n` blind keys each; 0 if `first > top`.
fn triangle(first_blind: f64, first_row: u64, rows_end: u64) -> u128 {
    // sum over i in [first_row, rows_end) of max(0, i - D + 1), with D a whole number.
    if first_blind >= rows_end as f64 {
        return 0;
    }
    let first = first_blind as u64;
    let upto = |rows: u64| -> u128 {
        // Rows D .. rows contribute 1 ..= rows - D.
        let n = u128::from(rows.saturating_sub(first));
        n * (n + 1) / 2
    };
    upto(rows_end) - upto(first_row)
}

/// The first blind distance in rows whose sum has the logarithm `ln_sum`.
fn first_blind(question: &HeadQuestion<'_>, diagonal: f64, ln_sum: f64) -> Option<f64> {
    let threshold = question.zero_gap(ln_sum);
    first_whole(|d| question.gap(diagonal, question.entry_at_distance(d)) > threshold)
}

pub(super) fn count(question: &HeadQuestion<'_>) -> Result<Counts, HorizonError> {
    let diagonal = question.entry_at_distance(0.0);
    if !question.plan.uses_row_sum(question.criterion) {
        let first = first_blind(question, diagonal, 0.0);
        return Ok(from_one_distance(question, first));
    }
    if question.causal {
        causal_with_sum(question, diagonal)
    } else {
        both_sides_with_sum(question, diagonal)
    }
}

/// Every row has the same first blind distance.
fn from_one_distance(question: &HeadQuestion<'_>, first: Option<f64>) -> Counts {
    let length = question.length;
    let distance = first.unwrap_or(f64::INFINITY);
    let one_side = triangle(distance, 0, length);
    let blind_last_row = blind_in_row(distance, length - 1);
    Counts {
        first_blind: first,
        last_visible: visible_in_row(distance, length - 1),
        blind_pairs: if question.causal {
            one_side
        } else {
            2 * one_side
        },
        blind_last_row,
        nan_rows: 0,
        ln_sum_last: 0.0,
    }
}

/// Keys at distances `first ..= row`.
fn blind_in_row(first: f64, row: u64) -> u64 {
    if first > row as f64 {
        0
    } else {
        row + 1 - first as u64
    }
}

fn visible_in_row(first: f64, row: u64) -> Option<u64> {
    if first > row as f64 {
        Some(row)
    } else {
        (first as u64).checked_sub(1)
    }
}

/// A row's sum, one key at a time, and the first blind distance that goes with it (which only shrinks as the sum grows).
struct GrowingSum<'a> {
    question: &'a HeadQuestion<'a>,
    diagonal: f64,
    sum: f64,
    /// Exact where it lies within a row that was looked at, else no less.
    first: f64,
    /// Whether adding keys has stopped to change the sum.
    settled: bool,
}

impl<'a> GrowingSum<'a> {
    fn new(question: &'a HeadQuestion<'a>, diagonal: f64) -> Self {
        GrowingSum {
            question,
            diagonal,
            sum: 0.0,
            first: first_blind(question, diagonal, 0.0).unwrap_or(f64::INFINITY),
            settled: false,
        }
    }

    fn add(&mut self, distance: u64) {
        let numerator = self.term(distance);
        let grown = self.sum + numerator;
        // Monotone terms: once one is lost, all later ones are.
        self.settled = grown == self.sum;
        self.sum = grown;
    }

    /// Logarithm of a sum of `exp(-gap)`: the plan's numerators contain its offset.
    fn ln_sum(&self, sum: f64) -> f64 {
        sum.ln() + self.question.plan.max_offset
    }

    fn term(&self, distance: u64) -> f64 {
        let entry = self.question.entry_at_distance(distance as f64);
        self.question.plan.numerator(self.diagonal, entry)
    }

    /// The first distance at which a longer sequence would have a blind pair, when rows of `from` keys on each of `sides` sides
    /// have none. Keys are added one by one for a while; then the sum is integrated over ever wider stretches (trapezoids of
    /// 10 % of the distance: relative error of the sum, so error of the threshold in nats, about `0.1^2 / 12` for a power law
    /// of exponent near 1). `None` if the numbers end first.
    fn beyond(&mut self, from: u64, sides: f64) -> Option<f64> {
        let own = self.term(0);
        let mut distance = from;
        let stepped_end = from + STEPPED_BEYOND;
        while !self.settled && distance < stepped_end {
            self.add(distance);
            self.look(sides * self.sum - (sides - 1.0) * own, distance);
            if self.first <= distance as f64 {
                return Some(self.first);
            }
            distance += 1;
        }
        self.first = self.first_for(sides * self.sum - (sides - 1.0) * own, self.first);
        let mut far = distance as f64;
        while !self.settled && far < FAR {
            let next = (far * 1.1).ceil();
            let term = |d: f64| {
                let entry = self.question.entry_at_distance(d);
                self.question.plan.numerator(self.diagonal, entry)
            };
            let grown = self.sum + (next - far) * (term(far) + term(next)) / 2.0;
            self.settled = grown == self.sum;
            self.sum = grown;
            self.first = self.first_for(sides * self.sum - (sides - 1.0) * own, self.first);
            if self.first <= next {
                return Some(self.first.max(far));
            }
            far = next;
        }
        Some(self.first).filter(|first| self.settled && first.is_finite())
    }

    /// Finds the first blind distance of a row of the given sum whose furthest key is `furthest` away, if it lies within: far out it
    /// moves by very many keys from row to row, and nothing asks where it is.
    fn look(&mut self, sum: f64, furthest: u64) {
        let furthest = furthest as f64;
        if self.first <= furthest || self.is_blind(furthest, self.threshold(sum)) {
            self.first = self.first_for(sum, self.first);
        }
    }

    fn threshold(&self, sum: f64) -> f64 {
        self.question.zero_gap(self.ln_sum(sum))
    }

    fn is_blind(&self, distance: f64, threshold: f64) -> bool {
        let entry = self.question.entry_at_distance(distance);
        self.question.gap(self.diagonal, entry) > threshold
    }

    /// First blind distance for a row of the given sum; it is `start` at most.
    fn first_for(&self, sum: f64, start: f64) -> f64 {
        let threshold = self.threshold(sum);
        let blind = |distance: f64| self.is_blind(distance, threshold);
        if !start.is_finite() {
            return if blind(FAR) {
                first_whole(blind).unwrap_or(f64::INFINITY)
            } else {
                start
            };
        }
        // It only shrinks, and mostly by little: double steps downwards, then bisect.
        let (mut above, mut step) = (start, 1.0);
        let mut below = loop {
            if above == 0.0 {
                return 0.0;
            }
            // Far out a step of 1 is lost in the rounding of `f64`.
            let lower = (above - step).min(above.next_down()).floor().max(0.0);
            if !blind(lower) {
                break lower;
            }
            above = lower;
            step *= 2.0;
        };
        loop {
            let middle = (below + (above - below) / 2.0).floor();
            if middle <= below || middle >= above {
                return above;
            }
            if blind(middle) {
                above = middle;
            } else {
                below = middle;
            }
        }
    }
}

fn causal_with_sum(question: &HeadQuestion<'_>, diagonal: f64) -> Result<Counts, HorizonError> {
    let length = question.length;
    let mut growing = GrowingSum::new(question, diagonal);
    let mut blind_pairs = 0_u128;
    let mut last_visible = None;
    let mut row = 0;
    while row < length && !growing.settled {
        if row >= ROWS_MAX {
            return Err(
                question.rows_error("the sums of rows still grow, so rows are stepped through")
            );
        }
        growing.add(row);
        growing.look(growing.sum, row);
        blind_pairs += u128::from(blind_in_row(growing.first, row));
        last_visible = last_visible.max(visible_in_row(growing.first, row));
        row += 1;
    }
    let ln_sum_last = growing.ln_sum(growing.sum);
    growing.first = growing.first_for(growing.sum, growing.first);
    blind_pairs += triangle(growing.first, row, length);
    last_visible = last_visible.max(visible_in_row(growing.first, length - 1));
    let blind_last_row = blind_in_row(growing.first, length - 1);
    let first_blind = if growing.first <= (length - 1) as f64 {
        Some(growing.first)
    } else {
        growing.beyond(row, 1.0)
    };
    Ok(Counts {
        first_blind,
        last_visible,
        blind_pairs,
        blind_last_row,
        nan_rows: 0,
        ln_sum_last,
    })
}

/// Row `i` has the distances `0 ..= i` before it and `1 ..= length - 1 - i` after it.
fn both_sides_with_sum(question: &HeadQuestion<'_>, diagonal: f64) -> Result<Counts, HorizonError> {
    let length = question.length;
    let mut growing = GrowingSum::new(question, diagonal);
    // prefix[n] = sum over distances 0 ..= n, as far as it changes.
    let mut prefix = Vec::new();
    while (prefix.len() as u64) < length && !growing.settled {
        if prefix.len() as u64 >= ROWS_MAX {
            return Err(
                question.rows_error("the sums of rows still grow, so rows are stepped through")
            );
        }
        growing.add(prefix.len() as u64);
        prefix.push(growing.sum);
    }
    let settled_at = prefix.len() as u64 - 1;
    let one_side = |n: u64| prefix[n.min(settled_at) as usize];
    let own = prefix[0];
    let row_sum = |row: u64| one_side(row) + one_side(length - 1 - row) - own;
    let (mut blind_pairs, mut last_visible) = (0_u128, None);
    let mut row = 0;
    let half = length.div_ceil(2);
    let mut ln_sum_last = 0.0;
    let mut blind_last_row = 0;
    while row < half && row <= settled_at {
        let mirrored = length - 1 - row;
        // Sums grow towards the middle, so the first blind distance shrinks.
        growing.look(row_sum(row), mirrored);
        let first = growing.first;
        // Distance 0 belongs to one side only.
        let blind = blind_in_row(first, row) + blind_in_row(first.max(1.0), mirrored);
        let copies = if row == mirrored { 1 } else { 2 };
        blind_pairs += u128::from(blind) * copies;
        last_visible = last_visible.max(visible_in_row(first, mirrored));
        if row == 0 {
            ln_sum_last = growing.ln_sum(row_sum(0));
            blind_last_row = blind_in_row(first, length - 1);
        }
        row += 1;
    }
    if row < length - row {
        let first = growing.first_for(row_sum(row), growing.first);
        growing.first = first;
        // All rows left share one sum; both sides count the same by symmetry.
        blind_pairs +=
            triangle(first, row, length - row) + triangle(first.max(1.0), row, length - row);
        last_visible = last_visible.max(visible_in_row(first, length - 1 - row));
    }
    let seen = blind_pairs > 0;
    let first_blind = if seen {
        smallest_blind(question, row_sum, half, settled_at)
    } else {
        growing.beyond(prefix.len() as u64, 2.0)
    };
    Ok(Counts {
        first_blind,
        last_visible,
        blind_pairs,
        blind_last_row,
        nan_rows: 0,
        ln_sum_last,
    })
}

/// The smallest blind distance that really occurs: a middle row has a smaller first blind distance, but also fewer far keys.
fn smallest_blind(
    question: &HeadQuestion<'_>,
    row_sum: impl Fn(u64) -> f64,
    half: u64,
    settled_at: u64,
) -> Option<f64> {
    let mut growing = GrowingSum::new(question, question.entry_at_distance(0.0));
    let mut smallest = None;
    for row in 0..half.min(settled_at + 2) {
        let furthest = question.length - 1 - row;
        growing.look(row_sum(row), furthest);
        if growing.first <= furthest as f64 {
            smallest = Some(growing.first);
        }
    }
    smallest
}

/// What [`super::Counts::first_blind`] would be were the bias stored relative to the query: for key-position plans whose sequence is
/// too short to have a blind pair.
pub(super) fn first_beyond(question: &HeadQuestion<'_>) -> Option<f64> {
    let plan = question
        .plan
        .clone()
        .with_bias_form(crate::convention::BiasForm::Relative);
    let relative = HeadQuestion {
        plan: &plan,
        spec: question.spec,
        criterion: question.criterion,
        length: question.length,
        causal: question.causal,
    };
    count(&relative)
        .ok()?
        .first_blind
        .filter(|first| *first >= question.length as f64)
}

/// `1 - x / length` with `x` the real distance at which the exact bias reaches the plan's zero gap; `None` for a bias that is
/// not monotone.
pub(super) fn continuous_share(question: &HeadQuestion<'_>, ln_sum: f64) -> Option<f64> {
    if ln_sum.is_nan() {
        return None;
    }
    let slope = question
        .plan
        .effective_slope(question.spec.slope, question.spec.scale);
    let entry = |d: f64| {
        question
            .spec
            .bias
            .combine(question.spec.head, slope, 0.0, d)
    };
    let diagonal = entry(0.0);
    let threshold = question.zero_gap(ln_sum);
    let blind = |d: f64| diagonal - entry(d) > threshold;
    let length = question.length as f64;
    if !blind(length) {
        return Some(0.0);
    }
    let (mut below, mut above) = (0.0, length);
    for _ in 0..100 {
        let middle = below + (above - below) / 2.0;
        if blind(middle) {
            above = middle;
        } else {
            below = middle;
        }
    }
    Some(1.0 - above / length)
}
