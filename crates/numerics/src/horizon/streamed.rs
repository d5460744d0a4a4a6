//! Kernels with a running maximum that do not meet the row's maximum first. A key is weighed against the maximum when its
//! block was visited; what is gathered is scaled down at every later rise. So it can be lost at the cast (far below its own
//! block's maximum) or in the accumulator (far below the final one), and the two need not meet in one distance.

use super::{Counts, HeadQuestion, HorizonError, ROWS_MAX, relative};
use crate::emulate::rescale;
use crate::plan::{BlockOrder, PrecisionPlan, RowOrder, RowPlace};

/// Steps into blocks that one head may take (a few seconds).
const BLOCK_STEPS_MAX: u64 = 40 * ROWS_MAX;

/// Stands for the logarithm of a rescaling that is exactly 0; larger than any real sum of logarithms.
const LOST: f64 = 1e15;

/// Further than this from a threshold, in nats, no rounding decides: numerators are accurate to far better, but a subnormal
/// probability may be rounded up by a factor of nearly 2 (ln 2 = 0.69) before it is scaled down.
const MARGIN_CAST: f64 = 0.01;
const MARGIN_ACCUMULATOR: f64 = 0.75;

/// When a weight is lost, with the thresholds at hand.
struct Loss<'a> {
    plan: &'a PrecisionPlan,
    cast_zero: f64,
    accumulator_zero: f64,
}

impl<'a> Loss<'a> {
    fn new(plan: &'a PrecisionPlan) -> Self {
        Loss {
            plan,
            cast_zero: plan.numerator_zero_nats(),
            accumulator_zero: plan.accumulator_zero_nats(),
        }
    }

    /// Surely not lost, by thresholds alone.
    fn is_clear(&self, gap: f64, decay: f64) -> bool {
        gap < self.cast_zero - MARGIN_CAST
            && gap + decay < self.accumulator_zero - MARGIN_ACCUMULATOR
    }

    /// Whether a key's weight is 0 once its cast numerator has been scaled by `exp(-decay)`.
    fn is_lost(&self, max: f64, entry: f64, decay: f64) -> bool {
        let gap = max - entry;
        if self.is_clear(gap, decay) {
            return false;
        }
        if gap > self.cast_zero + MARGIN_CAST
            || gap + decay > self.accumulator_zero + MARGIN_ACCUMULATOR
        {
            return true;
        }
        let plan = self.plan;
        let weight = plan
            .probability
            .round_with(plan.numerator(max, entry), plan.probability_underflow);
        weight == 0.0 || plan.accumulator.round(weight * (-decay).exp()) == 0.0
    }

    /// Whether the newest key of a block, whose weight was 1 there, is lost.
    fn is_block_lost(&self, decay: f64) -> bool {
        if (decay - self.accumulator_zero).abs() > MARGIN_CAST {
            return decay > self.accumulator_zero;
        }
        self.plan.accumulator.round((-decay).exp()) == 0.0
    }

    /// How many of the first keys of ascending entries are lost.
    fn lost_in(&self, entries: &[f64], max: f64, decay: f64) -> usize {
        match entries.first() {
            Some(first) if self.is_clear(max - first, decay) => 0,
            _ => entries.partition_point(|entry| self.is_lost(max, *entry, decay)),
        }
    }
}

/// `-ln` of the rescaling from one maximum to a higher one. Its f32 rounding (3e-8 nats) is left out; what is exact is whether
/// it is 0.
fn decay_of_rise(plan: &PrecisionPlan, old_max: f64, new_max: f64) -> f64 {
    let rise = new_max - old_max;
    if rise > 80.0 && rescale(plan, old_max, new_max) == 0.0 {
        LOST
    } else {
        rise
    }
}

struct Tally {
    counts: Counts,
}

impl Tally {
    fn new() -> Self {
        Tally {
            counts: Counts {
                first_blind: None,
                last_visible: None,
                blind_pairs: 0,
                blind_last_row: 0,
                nan_rows: 0,
                ln_sum_last: 0.0,
            },
        }
    }

    fn blind_at(&mut self, distance: u64) {
        let distance = distance as f64;
        let first = &mut self.counts.first_blind;
        *first = Some(first.map_or(distance, |first| first.min(distance)));
    }

    fn visible_at(&mut self, distance: u64) {
        self.counts.last_visible = self.counts.last_visible.max(Some(distance));
    }

    /// A run of blind keys `from .. to` and visible keys `to .. end`, all at or before `query`.
    fn run(&mut self, query: u64, from: u64, to: u64, end: u64) -> u64 {
        if to > from {
            self.blind_at(query - (to - 1));
        }
        if end > to {
            self.visible_at(query - to);
        }
        to - from
    }
}

/// Key-position bias, causal mask, oldest block first: entries, and with them everything inside a full block, are the same for
/// every row.
pub(super) fn count_by_key(
    question: &HeadQuestion<'_>,
    key_block: usize,
) -> Result<Counts, HorizonError> {
    let length = question.length;
    if length > ROWS_MAX {
        return Err(question
            .rows_error("a rounded bias of the key's position is stepped through key by key"));
    }
    let plan = question.plan;
    let loss = Loss::new(plan);
    let entries: Vec<f64> = (0..length).map(|key| question.entry_at_key(key)).collect();
    let n_full = entries.len() / key_block;
    // Of each full block: blind keys at its cast alone, and the total decay from block 0 to it.
    let mut cast_blind = Vec::with_capacity(n_full);
    let mut cast_blind_before = vec![0_u64];
    let mut decay = Vec::with_capacity(n_full);
    for block in 0..n_full {
        let start = block * key_block;
        let end = start + key_block;
        let max = entries[end - 1];
        let blind = loss.lost_in(&entries[start..end], max, 0.0);
        cast_blind.push(blind);
        cast_blind_before.push(cast_blind_before[block] + blind as u64);
        decay.push(if block == 0 {
            0.0
        } else {
            decay[block - 1] + decay_of_rise(plan, entries[start - 1], max)
        });
    }
    // Distance from the newest cast-blind key of the block to the block's end, the smallest over blocks up to here, is what
    // a row adds its own offset to; it does not change along a linear bias, so the newest block decides.
    let mut tally = Tally::new();
    for row in 0..entries.len() {
        let max = entries[row];
        if !max.is_finite() {
            tally.counts.nan_rows = length - row as u64;
            tally.counts.blind_last_row = 0;
            tally.counts.ln_sum_last = f64::NAN;
            break;
        }
        let query = row as u64;
        let own = row / key_block;
        let own_start = own * key_block;
        let own_blind = loss.lost_in(&entries[own_start..=row], max, 0.0);
        let mut blind = tally.run(
            query,
            own_start as u64,
            (own_start + own_blind) as u64,
            query + 1,
        );
        if own > 0 {
            let rise = decay_of_rise(plan, entries[own_start - 1], max);
            let total = decay[own - 1] + rise;
            // Blocks whose newest key is lost are lost altogether.
            let all_lost = decay[..own].partition_point(|d| loss.is_block_lost(total - d));
            if all_lost > 0 {
                blind += (all_lost * key_block) as u64;
                tally.blind_at(query + 1 - (all_lost * key_block) as u64);
            }
            // Then blocks that lose more than at their cast, until one does not.
            let mut block = all_lost;
            while block < own {
                let start = block * key_block;
                let end = start + key_block;
                let lost =
                    loss.lost_in(&entries[start..end], entries[end - 1], total - decay[block]);
                blind += tally.run(query, start as u64, (start + lost) as u64, end as u64);
                block += 1;
                if lost == cast_blind[block - 1] {
                    break;
                }
            }
            if block < own {
                blind += cast_blind_before[own] - cast_blind_before[block];
                // The nearest of them is in the newest such block.
                if let Some(newest) = (block..own).rev().find(|b| cast_blind[*b] > 0) {
                    let key = newest * key_block + cast_blind[newest] - 1;
                    tally.blind_at(query - key as u64);
                }
            }
        }
        tally.counts.blind_pairs += u128::from(blind);
        tally.counts.blind_last_row = blind;
    }
    let mut counts = tally.counts;
    if counts.first_blind.is_none() && counts.nan_rows == 0 {
        counts.first_blind = relative::first_beyond(question);
    }
    Ok(counts)
}

/// Entries of the distance, any order of blocks, with or without a causal mask: one step a row and block, with bisection
/// inside it; rows stop at the first block that is lost altogether.
pub(super) fn count_by_row(
    question: &HeadQuestion<'_>,
    key_block: usize,
    order: BlockOrder,
) -> Result<Counts, HorizonError> {
    let length = question.length;
    if length > ROWS_MAX {
        return Err(question.rows_error("blocks of keys are stepped through row by row"));
    }
    let plan = question.plan;
    let loss = Loss::new(plan);
    let entries: Vec<f64> = (0..length)
        .map(|distance| question.entry_at_distance(distance as f64))
        .collect();
    let n = entries.len();
    let diagonal = entries[0];
    let mut tally = Tally::new();
    let mut steps = 0_u64;
    for row in 0..n {
        let end = if question.causal { row + 1 } else { n };
        let own = row / key_block;
        let own_keys = own * key_block..((own + 1) * key_block).min(end);
        let order = order.of_row(RowPlace {
            query: row,
            length: n,
            causal: question.causal,
        });
        // Before the query's own block the maximum rises with every block, after it no more. So a block visited before it is
        // weighed against its own maximum (its key nearest to the query) and scaled down at every block until there; one
        // visited after, against the diagonal.
        let (n_before, against_diagonal) = match order {
            RowOrder::From(first) => (
                own - first / key_block,
                [0..first, own_keys.start..row + 1, row + 1..end],
            ),
            RowOrder::NewestFirst => (
                end.div_ceil(key_block) - 1 - own,
                [0..0, 0..row + 1, row + 1..own_keys.end],
            ),
        };
        let mut blind = 0;
        for keys in against_diagonal {
            if !keys.is_empty() {
                blind += count_side(&mut tally, &loss, &entries, row, keys, diagonal, 0.0);
            }
        }
        let mut decay = 0.0;
        let mut later_max = diagonal;
        for step in 1..=n_before {
            steps += 1;
            // Its key nearest to the query, and where its side ends.
            let (keys, nearest, side) = match order {
                RowOrder::From(first) => {
                    let start = (own - step) * key_block;
                    let stop = start + key_block;
                    (start..stop, stop - 1, first..stop)
                }
                RowOrder::NewestFirst => {
                    let start = (own + step) * key_block;
                    (start..(start + key_block).min(end), start, start..end)
                }
            };
            let max = entries[row.abs_diff(nearest)];
            decay += decay_of_rise(plan, max, later_max);
            later_max = max;
            if loss.is_block_lost(decay) {
                // This block and all further ones on this side.
                blind += side.len() as u64;
                tally.blind_at(row.abs_diff(nearest) as u64);
                break;
            }
            blind += count_side(&mut tally, &loss, &entries, row, keys, max, decay);
        }
        if steps > BLOCK_STEPS_MAX {
            return Err(HorizonError::new(format!(
                "length {length}: this plan keeps a running maximum over blocks of {key_block} keys, which takes more than {BLOCK_STEPS_MAX} steps for this bias; use a shorter length or another plan"
            )));
        }
        tally.counts.blind_pairs += u128::from(blind);
        tally.counts.blind_last_row = blind;
    }
    let mut counts = tally.counts;
    if counts.first_blind.is_none() {
        counts.first_blind = relative::first_beyond(question);
    }
    Ok(counts)
}

/// Blind keys among `keys`, all on one side of the query (which may be the first or last of them).
fn count_side(
    tally: &mut Tally,
    loss: &Loss<'_>,
    entries: &[f64],
    row: usize,
    keys: std::ops::Range<usize>,
    max: f64,
    decay: f64,
) -> u64 {
    // Distances of this side, nearest first; entries fall with the distance.
    let (near, far) = if keys.end <= row + 1 {
        (row + 1 - keys.end, row - keys.start)
    } else {
        (keys.start - row, keys.end - 1 - row)
    };
    if loss.is_clear(max - entries[far], decay) {
        tally.visible_at(far as u64);
        return 0;
    }
    let visible = entries[near..=far].partition_point(|entry| !loss.is_lost(max, *entry, decay));
    let first_blind = near + visible;
    if first_blind <= far {
        tally.blind_at(first_blind as u64);
    }
    if visible > 0 {
        tally.visible_at((first_blind - 1) as u64);
    }
    (far + 1 - first_blind) as u64
}
