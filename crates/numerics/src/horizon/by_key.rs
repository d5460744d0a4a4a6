//! A rounded bias of the key's position under a causal mask: the row's maximum is the diagonal's entry, rounding is monotone,
//! so the blind keys of a row are the first so many, and their number moves little from row to row.

use super::{Counts, HeadQuestion, HorizonError, ROWS_MAX, relative};

pub(super) fn count(question: &HeadQuestion<'_>) -> Result<Counts, HorizonError> {
    let length = question.length;
    if length > ROWS_MAX {
        return Err(question
            .rows_error("a rounded bias of the key's position is stepped through key by key"));
    }
    let entries: Vec<f64> = (0..length).map(|key| question.entry_at_key(key)).collect();
    let uses_sum = question.plan.uses_row_sum(question.criterion);
    let fixed = question.zero_gap(0.0);
    let mut counts = Counts {
        first_blind: None,
        last_visible: None,
        blind_pairs: 0,
        blind_last_row: 0,
        nan_rows: 0,
        ln_sum_last: 0.0,
    };
    let mut sum = 0.0;
    let mut n_blind = 0_usize;
    for row in 0..entries.len() {
        let max = entries[row];
        if !max.is_finite() {
            // infinity - infinity is NaN, in this row and all later ones.
            counts.nan_rows = length - row as u64;
            counts.blind_last_row = 0;
            counts.ln_sum_last = f64::NAN;
            break;
        }
        let threshold = if uses_sum {
            let carried = if row == 0 {
                0.0
            } else {
                sum * (entries[row - 1] - max).exp()
            };
            sum = carried + 1.0;
            counts.ln_sum_last = sum.ln();
            question.zero_gap(counts.ln_sum_last)
        } else {
            fixed
        };
        let blind = |key: usize| question.gap(max, entries[key]) > threshold;
        while n_blind < row && blind(n_blind) {
            n_blind += 1;
        }
        while n_blind > 0 && !blind(n_blind - 1) {
            n_blind -= 1;
        }
        counts.blind_pairs += n_blind as u128;
        counts.blind_last_row = n_blind as u64;
        if n_blind > 0 {
            let nearest = (row + 1 - n_blind) as f64;
            counts.first_blind = Some(
                counts
                    .first_blind
                    .map_or(nearest, |first: f64| first.min(nearest)),
            );
        }
        counts.last_visible = counts.last_visible.max(Some((row - n_blind) as u64));
    }
    if counts.first_blind.is_none() && counts.nan_rows == 0 {
        counts.first_blind = relative::first_beyond(question);
    }
    Ok(counts)
}
