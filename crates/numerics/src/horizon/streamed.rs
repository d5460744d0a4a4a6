//! Kernels with a running maximum that do not meet the row's maximum first. A key is weighed against the maximum when its
//! block was visited; what is gathered is scaled down at every later rise. So it can be lost at the cast (far below its own
//! block's maximum) or in the accumulator (far below the final one), and the two need not meet in one distance.

use super::{Counts, HeadQuestion, HorizonError, ROWS_MAX, relative};
use crate::emulate::rescale;
use crate::plan::{BlockOrder, PrecisionPlan};

/// Steps into blocks that one head may take (about 10 seconds).
const BLOCK_STEPS_MAX: u64 = 10 * ROWS_MAX;

/// Stands for the logarithm of a rescaling that is exactly 0; larger than any real sum of logarithms.
const LOST: f64 = 1e15;

/// Whether a key's weight is 0 once its cast numerator has been scaled by `exp(-decay)`.
fn is_lost(plan: &PrecisionPlan, max: f64, entry: f64, decay: f64) -> bool {
    let numerator = plan.numerator(max, entry);
    let weight = plan
        .probability
        .round_with(numerator, plan.probability_underflow);
    weight == 0.0 || decay >= LOST || plan.accumulator.round(weight * (-decay).exp()) == 0.0
}

/// `-ln` of the rescaling from one maximum to a higher one.
fn decay_of_rise(plan: &PrecisionPlan, old_max: f64, new_max: f64) -> f64 {
    let factor = rescale(plan, old_max, new_max);
    if factor == 0.0 { LOST } else { -factor.ln() }
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
        let blind = lost_in(plan, &entries[start..end], max, 0.0);
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
        let own_blind = lost_in(plan, &entries[own_start..=row], max, 0.0);
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
            let all_lost = decay[..own].partition_point(|d| {
                let since = total - d;
                since >= LOST || plan.accumulator.round((-since).exp()) == 0.0
            });
            if all_lost > 0 {
                blind += (all_lost * key_block) as u64;
                tally.blind_at(query + 1 - (all_lost * key_block) as u64);
            }
            // Then blocks that lose more than at their cast, until one does not.
            let mut block = all_lost;
            while block < own {
                let start = block * key_block;
                let end = start + key_block;
                let lost = lost_in(
                    plan,
                    &entries[start..end],
                    entries[end - 1],
                    total - decay[block],
                );
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

/// How many of the first keys of ascending entries are lost.
fn lost_in(plan: &PrecisionPlan, entries: &[f64], max: f64, decay: f64) -> usize {
    entries.partition_point(|entry| is_lost(plan, max, *entry, decay))
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
    let entries: Vec<f64> = (0..length)
        .map(|distance| question.entry_at_distance(distance as f64))
        .collect();
    let n = entries.len();
    let entry = |row: usize, key: usize| entries[row.abs_diff(key)];
    let mut tally = Tally::new();
    let mut steps = 0_u64;
    for row in 0..n {
        let end = if question.causal { row + 1 } else { n };
        let own = row / key_block;
        let n_blocks = end.div_ceil(key_block);
        let bounds = |block: usize| (block * key_block, ((block + 1) * key_block).min(end));
        // Largest entry of a block: its key nearest to the query.
        let block_max = |block: usize| {
            let (start, stop) = bounds(block);
            entry(row, row.clamp(start, stop - 1))
        };
        // Before the query's own block the maximum rises with every block, after it no more. So a block visited before it is
        // weighed against its own maximum and scaled down at every block until there; one visited after, against the diagonal.
        let mut blind = 0_u64;
        let diagonal = entries[0];
        let (ahead, behind): (Vec<usize>, Vec<usize>) = match order {
            BlockOrder::OldestFirst => ((0..own).rev().collect(), (own..n_blocks).collect()),
            BlockOrder::NewestFirst => ((own + 1..n_blocks).collect(), (0..=own).rev().collect()),
        };
        let mut decay = 0.0;
        let mut later_max = diagonal;
        let mut lost_from_here = false;
        for block in ahead {
            steps += 1;
            let max = block_max(block);
            decay += decay_of_rise(plan, max, later_max);
            later_max = max;
            if !lost_from_here {
                lost_from_here = decay >= LOST || plan.accumulator.round((-decay).exp()) == 0.0;
            }
            let (start, stop) = bounds(block);
            if lost_from_here {
                // This block and all further ones on this side.
                let (from, to) = match order {
                    BlockOrder::OldestFirst => (0, stop),
                    BlockOrder::NewestFirst => (start, end),
                };
                blind += (to - from) as u64;
                tally.blind_at(row.clamp(from, to - 1).abs_diff(row) as u64);
                break;
            }
            blind += side(&mut tally, plan, &entries, row, start, stop, max, decay);
        }
        for block in behind {
            steps += 1;
            let (start, stop) = bounds(block);
            if start <= row && row < stop {
                blind += side(
                    &mut tally,
                    plan,
                    &entries,
                    row,
                    start,
                    row + 1,
                    diagonal,
                    0.0,
                );
                if row + 1 < stop {
                    blind += side(
                        &mut tally,
                        plan,
                        &entries,
                        row,
                        row + 1,
                        stop,
                        diagonal,
                        0.0,
                    );
                }
            } else {
                blind += side(&mut tally, plan, &entries, row, start, stop, diagonal, 0.0);
            }
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

/// Blind keys among `start .. stop`, all on one side of the query (which may be the first or last of them).
#[allow(
    clippy::too_many_arguments,
    reason = "one inner step, called from one place"
)]
fn side(
    tally: &mut Tally,
    plan: &PrecisionPlan,
    entries: &[f64],
    row: usize,
    start: usize,
    stop: usize,
    max: f64,
    decay: f64,
) -> u64 {
    // Distances of this side, nearest first; entries fall with the distance.
    let (near, far) = if stop <= row + 1 {
        (row - (stop - 1), row - start)
    } else {
        (start - row, stop - 1 - row)
    };
    let visible = entries[near..=far].partition_point(|entry| !is_lost(plan, max, *entry, decay));
    let first_blind = near + visible;
    if first_blind <= far {
        tally.blind_at(first_blind as u64);
    }
    if visible > 0 {
        tally.visible_at((first_blind - 1) as u64);
    }
    (far + 1 - first_blind) as u64
}
