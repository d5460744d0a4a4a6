//! Kernels with a running maximum that do not meet the row's maximum first. A key is weighed against the maximum when its
//! block was visited; what is gathered is scaled down at every later rise. So it can be lost at the cast (far below its own
//! block's maximum) or in the accumulator (far below the final one), and the two need not meet in one distance.

use super::{Counts, HeadQuestion, HorizonError, ROWS_MAX, relative};
use crate::plan::{BlockOrder, PrecisionPlan, RowOrder, RowPlace};

/// Stands for the logarithm of a rescaling that is exactly 0: more than any accumulator holds, and small enough that sums of many keep
/// their digits.
const LOST: f64 = 256.0;

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
        weight == 0.0 || plan.accumulator.round(weight * plan.factor_of_decay(decay)) == 0.0
    }

    /// Whether the newest key of a block, whose weight was 1 there, is lost.
    fn is_block_lost(&self, decay: f64) -> bool {
        if (decay - self.accumulator_zero).abs() > MARGIN_CAST {
            return decay > self.accumulator_zero;
        }
        self.plan
            .accumulator
            .round(self.plan.factor_of_decay(decay))
            == 0.0
    }

    /// How many of the first keys of descending entries are not lost.
    fn visible_in(&self, entries: &[f64], max: f64, decay: f64) -> usize {
        match entries.last() {
            Some(last) if self.is_clear(max - last, decay) => entries.len(),
            _ => entries.partition_point(|entry| !self.is_lost(max, *entry, decay)),
        }
    }

    /// How many of the first keys of ascending entries are lost.
    fn lost_in(&self, entries: &[f64], max: f64, decay: f64) -> usize {
        match entries.first() {
            Some(first) if self.is_clear(max - first, decay) => 0,
            _ => entries.partition_point(|entry| self.is_lost(max, *entry, decay)),
        }
    }
}

/// [`PrecisionPlan::decay_of_rise`] as a number that can be added and taken off again.
fn decay_of_rise(plan: &PrecisionPlan, old_max: f64, new_max: f64) -> f64 {
    plan.decay_of_rise(old_max, new_max).min(LOST)
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

    /// Of `n` keys from distance `near` on the first `visible` are visible; the number of the others.
    fn distances(&mut self, near: usize, visible: usize, n: usize) -> u64 {
        if visible < n {
            self.blind_at((near + visible) as u64);
        }
        if visible > 0 {
            self.visible_at((near + visible - 1) as u64);
        }
        (n - visible) as u64
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

/// Entries of the distance, any order of blocks, with or without a causal mask: a bisection or two a row, and one in each block visited
/// before the query's own, for every distance that the nearest of those may have.
pub(super) fn count_by_row(
    question: &HeadQuestion<'_>,
    key_block: usize,
    order: BlockOrder,
) -> Result<Counts, HorizonError> {
    let length = question.length;
    if length > ROWS_MAX {
        return Err(question.rows_error("blocks of keys are stepped through row by row"));
    }
    let n = length as usize;
    let loss = Loss::new(question.plan);
    // The last block of a sequence is looked at as if it were whole.
    let entries: Vec<f64> = (0..n + key_block)
        .map(|distance| question.entry_at_distance(distance as f64))
        .collect();
    let mut before = vec![Before::new(); key_block + 1];
    let mut tally = Tally::new();
    for row in 0..n {
        let end = if question.causal { row + 1 } else { n };
        let own = row / key_block * key_block..((row / key_block + 1) * key_block).min(end);
        let order = order.of_row(RowPlace {
            query: row,
            length: n,
            causal: question.causal,
        });
        // Before the query's own block the maximum rises with every block, after it no more. So a block visited before it is
        // weighed against its own maximum (its key nearest to the query) and scaled down at every block until there; one
        // visited after, against the diagonal. Of those before, how many keys, and how far the nearest is.
        let (n_before, nearest, against_diagonal) = match order {
            RowOrder::From(first) => (
                own.start - first,
                row + 1 - own.start,
                [0..first, own.start..row + 1, row + 1..end],
            ),
            RowOrder::NewestFirst => (
                end - own.end,
                own.end - row,
                [0..0, 0..row + 1, row + 1..own.end],
            ),
        };
        let mut blind = 0;
        for keys in against_diagonal {
            if !keys.is_empty() {
                blind += count_side(&mut tally, &loss, &entries, row, keys);
            }
        }
        if n_before > 0 {
            let blocks = &mut before[nearest];
            blocks.look(&loss, &entries, key_block, nearest, n_before);
            blind += blocks.count(&mut tally, key_block, nearest, n_before);
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

/// Blind keys among `keys`, all on one side of the query (which may be the first or last of them), against the diagonal.
fn count_side(
    tally: &mut Tally,
    loss: &Loss<'_>,
    entries: &[f64],
    row: usize,
    keys: std::ops::Range<usize>,
) -> u64 {
    // Distances of this side, nearest first; entries fall with the distance.
    let (near, far) = if keys.end <= row + 1 {
        (row + 1 - keys.end, row - keys.start)
    } else {
        (keys.start - row, keys.end - 1 - row)
    };
    let visible = loss.visible_in(&entries[near..=far], entries[0], 0.0);
    tally.distances(near, visible, keys.len())
}

/// What is lost of the blocks visited before the query's own, from the nearest on: the same for every row that is as far from it.
#[derive(Clone)]
struct Before {
    /// After so many whole blocks.
    after: Vec<Lost>,
    /// `-ln` of the factor that scales the last of them down.
    decay: f64,
    /// The next block and all further ones are lost.
    is_lost: bool,
}

/// Keys that are lost in some blocks, and the distances of the nearest one that is, and of the furthest that is not.
#[derive(Clone, Copy)]
struct Lost {
    keys: u32,
    nearest: Option<u32>,
    furthest_visible: Option<u32>,
}

impl Before {
    fn new() -> Self {
        Self {
            after: vec![Lost {
                keys: 0,
                nearest: None,
                furthest_visible: None,
            }],
            decay: 0.0,
            is_lost: false,
        }
    }

    /// Looks at the blocks that hold the first `keys` keys, the nearest of which is `nearest` away.
    fn look(
        &mut self,
        loss: &Loss<'_>,
        entries: &[f64],
        key_block: usize,
        nearest: usize,
        keys: usize,
    ) {
        while !self.is_lost && (self.after.len() - 1) * key_block < keys {
            let done = self.after.len() - 1;
            let near = nearest + done * key_block;
            let later_max = entries[if done == 0 { 0 } else { near - key_block }];
            let max = entries[near];
            self.decay += decay_of_rise(loss.plan, max, later_max);
            if loss.is_block_lost(self.decay) {
                self.is_lost = true;
                return;
            }
            let visible = loss.visible_in(&entries[near..near + key_block], max, self.decay);
            let mut lost = self.after[done];
            if visible < key_block {
                lost.keys += (key_block - visible) as u32;
                lost.nearest = lost.nearest.or(Some((near + visible) as u32));
            }
            if visible > 0 {
                lost.furthest_visible = Some((near + visible - 1) as u32);
            }
            self.after.push(lost);
        }
    }

    /// Blind keys among the first `keys`, whose blocks have been looked at.
    fn count(&self, tally: &mut Tally, key_block: usize, nearest: usize, keys: usize) -> u64 {
        let whole = (keys / key_block).min(self.after.len() - 1);
        let lost = self.after[whole];
        if let Some(distance) = lost.nearest {
            tally.blind_at(u64::from(distance));
        }
        if let Some(distance) = lost.furthest_visible {
            tally.visible_at(u64::from(distance));
        }
        let left = keys - whole * key_block;
        if left == 0 {
            return u64::from(lost.keys);
        }
        // What is visible of a block are its nearest keys, also of one that the sequence cuts off.
        let visible = match self.after.get(whole + 1) {
            Some(next) => (key_block - (next.keys - lost.keys) as usize).min(left),
            None => 0,
        };
        u64::from(lost.keys) + tally.distances(nearest + whole * key_block, visible, left)
    }
}
