//! Counting under the plans of one group, from tiles; see [`crate::evidence::plan`] for the same from rows.

use std::ops::Range;

use kernels::{BandCounts, ScoreTile, sum_by_difference, sum_shares_by_difference};
use numerics::{Format, MaxReference};

use super::criteria::{Above, Criteria, Found, floors};
use super::{Block, Carrier, Lanes, PAD, TileScratch, flush_mass, group};
use crate::evidence::collector::Job;
use crate::evidence::head::{Group, HeadCounts};
use crate::evidence::lanes::LaneTable;
use crate::evidence::plan::{PlanRules, UNSUMMED_NATS};
use crate::evidence::plan_mass::WeightRounding;
use crate::evidence::scan::{CHUNK, exp_of_gaps};

/// Room for roundings where two bounds are compared, nats.
pub(super) const ROOM_NATS: f64 = 1e-3;

/// One tile under the plans of one group.
pub(super) struct Taker<'a> {
    pub(super) counts: &'a mut HeadCounts,
    pub(super) job: &'a Job,
    pub(super) group: &'a Group,
    pub(super) table: &'a LaneTable,
    pub(super) tile: &'a ScoreTile<'a>,
    /// Bound on the difference between a gap of this group and of the forward pass, nats.
    pub(super) slack: f64,
    /// Largest gap of any pair that was computed, nats.
    pub(super) far: f64,
    pub(super) is_own: bool,
}

impl Taker<'_> {
    /// Takes every plan of the group; those that have to go row by row are pushed to `left`.
    #[inline(always)]
    pub(super) fn take<T: Carrier, const W: usize>(
        &mut self,
        mut lanes: Lanes<W>,
        buffers: &mut TileScratch,
        left: &mut Vec<usize>,
    ) {
        let mut max = None;
        // A sum of numerators below f32 is another for each plan.
        let narrow = |plan: usize| {
            self.job.plans[plan].exp.format.significand_bits() < Format::F32.significand_bits()
        };
        let (rows, tiles): (Vec<usize>, Vec<usize>) =
            self.group.plans.iter().partition(|&&plan| narrow(plan));
        left.extend(rows);
        if tiles.is_empty() {
            return;
        }
        let has_mass = tiles
            .iter()
            .any(|&plan| self.counts.plans[plan].mass.is_some());
        if !self.group.shares_sum || has_mass {
            max = Some(self.maximum::<T, W>(&tiles, &mut lanes, buffers));
            if lanes.n_good == 0 {
                return;
            }
            self.sums::<T, W>(max.as_ref().expect("just set"), &mut lanes, buffers);
        }
        for &plan in &tiles {
            let rules = self.job.rules[plan];
            if self.counts.plans[plan].mass.is_some() {
                self.mass(plan, &lanes, buffers);
            }
            match self.job.plans[plan].max_reference {
                MaxReference::Final => {
                    self.count(plan, &rules, true, &mut max, &mut lanes, buffers);
                }
                MaxReference::Running { key_block, order } => {
                    if self.can_stream(key_block, &rules) {
                        self.count(plan, &rules, false, &mut max, &mut lanes, buffers);
                        self.streamed(plan, &rules, key_block, order, &lanes, buffers);
                    } else {
                        left.push(plan);
                    }
                }
            }
        }
    }

    /// Whether a block adds to the sums of this group.
    fn is_live(&self, block: &Block) -> bool {
        f64::from(block.near) - self.slack <= UNSUMMED_NATS
    }

    /// Sums of the group's own numerators, which are kept for the masses. The order is that of the rows: f32 within a block, key
    /// after key, f64 over blocks.
    #[inline(always)]
    fn sums<T: Carrier, const W: usize>(
        &self,
        max: &[T; W],
        lanes: &mut Lanes<W>,
        buffers: &mut TileScratch,
    ) {
        let keys = self.tile.keys_end().next_multiple_of(CHUNK) * W;
        let mut weights = std::mem::take(&mut buffers.weights);
        if weights.len() < keys {
            weights.resize(keys, 0.0);
        }
        let mut sums = [0.0_f64; W];
        let mut narrow = *max;
        for index in 0..buffers.blocks.len() {
            let block = buffers.blocks[index].clone();
            if !self.is_live(&block) {
                continue;
            }
            let to = &mut weights[block.keys.start * W..block.keys.end * W];
            let rounded = self.table.rounded::<W>(self.tile.first_query, &block.keys);
            if let (Some(entries), Some(max)) = (rounded, T::narrow(&mut narrow)) {
                let mut in_block = [0.0_f32; W];
                let (tile, last) = (self.tile, &lanes.last_key);
                tile.weigh_rounded(block.keys, &entries, last, &*max, to, &mut in_block);
                for lane in 0..W {
                    sums[lane] += f64::from(in_block[lane]);
                }
                continue;
            }
            let gaps = self.gaps::<T, W>(&block, lanes, max, buffers);
            if block.hidden {
                lanes.hide(&block.keys, T::of(f64::INFINITY), gaps);
            }
            exp_of_gaps(gaps, to);
            if W.is_multiple_of(16) {
                add_block::<W, 16>(to, &mut sums);
            } else {
                add_block::<W, 8>(to, &mut sums);
            }
        }
        if !self.group.shares_sum {
            for lane in 0..W {
                if lanes.good[lane] {
                    lanes.sum[lane] = sums[lane];
                }
            }
        }
        buffers.weights = weights;
    }

    /// Adds the mass under a plan's roundings.
    #[inline(always)]
    fn mass<const W: usize>(&mut self, plan: usize, lanes: &Lanes<W>, buffers: &mut TileScratch) {
        let rounding = WeightRounding::new(&self.job.plans[plan]);
        let mut share = [0.0_f32; W];
        for lane in lanes.alive() {
            share[lane] = (1.0 / lanes.sum[lane]) as f32;
        }
        let plain = rounding.plain_quotient();
        let mut oldest = self.tile.keys_end();
        for block in buffers.blocks.iter().filter(|block| self.is_live(block)) {
            let keys = &block.keys;
            oldest = oldest.min(keys.start);
            let weights = &buffers.weights[keys.start * W..keys.end * W];
            let nearest = PAD + self.tile.first_query + 1 - keys.end;
            let mass = &mut buffers.mass[nearest..nearest + keys.len() - 1 + W];
            if let Some(plain) = plain {
                sum_shares_by_difference(W, weights, &share, plain.of_lanes(), mass);
                continue;
            }
            let terms = &mut buffers.terms[..keys.len() * W];
            round_weights::<W>(&rounding, weights, &share, terms);
            sum_by_difference(W, terms, mass);
        }
        let mass = self.counts.plans[plan]
            .mass
            .as_mut()
            .expect("the caller has looked");
        let length = self.job.offsets.length();
        let differences = (self.tile.first_query + W)
            .saturating_sub(oldest)
            .min(length);
        flush_mass(&mut mass.by_offset, &mut buffers.mass, length, differences);
    }

    /// Counts by each row's own maximum: the two named criteria, and the plan's own rule if it is one of that kind.
    #[inline(always)]
    fn count<T: Carrier, const W: usize>(
        &mut self,
        plan: usize,
        rules: &PlanRules,
        by_own_rule: bool,
        max: &mut Option<[T; W]>,
        lanes: &mut Lanes<W>,
        buffers: &mut TileScratch,
    ) {
        let error = self.group.sum_error;
        let skipped = 0..self.tile.proven_zero_before;
        if skipped.is_empty() && self.far + self.slack + ROOM_NATS < self.job.lowest[plan] {
            return;
        }
        let (least_sum, most_sum) = lanes.sums();
        let ends = [least_sum, most_sum].map(|sum| {
            let thresholds = rules.thresholds(sum, error);
            if by_own_rule {
                thresholds.ends()
            } else {
                let (a, b) = (thresholds.numerator, thresholds.weight);
                (a.min(b), a.max(b))
            }
        });
        let least = ends[0].0.min(ends[1].0) - self.slack - ROOM_NATS;
        let most = ends[0].1.max(ends[1].1) + self.slack + ROOM_NATS;
        // From the last to the first, so that what is blind in a row joins into one run.
        let mut blind = Ranges::default();
        blind.extend(&skipped);
        let mut whole = lanes.pairs(&skipped);
        let mut straddling = Vec::new();
        for (index, block) in buffers.blocks.iter().enumerate() {
            if f64::from(block.near) > most {
                whole += lanes.pairs(&block.keys);
                blind.extend(&block.keys);
            } else if f64::from(block.far) > least {
                straddling.push(index);
            }
        }
        let counts = &mut self.counts.plans[plan];
        counts.numerator += whole;
        counts.weight += whole;
        if by_own_rule {
            counts.blind += whole;
            self.add_runs(plan, &blind, lanes);
        }
        if straddling.is_empty() {
            return;
        }
        let thresholds = rules.thresholds_of_lanes(&lanes.sum, error);
        let slack = self.stands_in().then_some(self.slack);
        let criteria = Criteria::new(&thresholds, slack, by_own_rule, lanes);
        let mut found = Found::default();
        // Blocks that are blind whole, and the oldest key of those that are counted pair by pair.
        let (mut blind, mut oldest) = (Ranges::default(), self.tile.keys_end());
        let first = self.job.offsets.base(self.tile.first_query);
        for index in straddling {
            let block = buffers.blocks[index].clone();
            let ends = (
                f64::from(block.near) - self.slack - ROOM_NATS,
                f64::from(block.far) + self.slack + ROOM_NATS,
            );
            let look = criteria.look(ends);
            let mut ones = look.by_own_rule.then(Ones::new);
            let mut in_bands = BandCounts::default();
            if !look.bands().is_empty() {
                let to = ones.as_mut().map(|ones| ones.of::<W>(&block.keys));
                in_bands =
                    self.count_bands::<T, W>(plan, &block, look.bands(), max, lanes, buffers, to);
            }
            let pairs = lanes.pairs(&block.keys);
            match criteria.count(&look, pairs, &in_bands, &mut found) {
                Some(Above::None) => {}
                Some(Above::All) => blind.extend(&block.keys),
                Some(Above::Counted(_)) => {
                    let counts = &mut self.counts.plans[plan].by_offset;
                    if let Some(ones) = ones {
                        ones.add_to::<W>(first, &block.keys, counts.all_singles_mut());
                    }
                }
                None => {
                    if max.is_none() {
                        // Groups that share the sums have finite biases, so no lane is dropped.
                        *max = Some(self.maximum::<T, W>(&[plan], lanes, buffers));
                    }
                    let max = max.as_ref().expect("just set");
                    oldest = oldest.min(block.keys.start);
                    let exact = floors::<T, W>(&thresholds);
                    let mut by_difference = std::mem::take(&mut buffers.blind);
                    let mut terms = std::mem::take(&mut buffers.terms);
                    let ones = &mut terms[..block.keys.len() * W];
                    let nearest = PAD + self.tile.first_query + 1 - block.keys.end;
                    let counters = &mut by_difference[nearest..nearest + block.keys.len() - 1 + W];
                    let gaps = self.gaps::<T, W>(&block, lanes, max, buffers);
                    found.count_all::<T, W>(gaps, &exact, by_own_rule, ones, counters);
                    (buffers.blind, buffers.terms) = (by_difference, terms);
                }
            }
        }
        let counts = &mut self.counts.plans[plan];
        counts.numerator += found.numerator;
        counts.weight += found.weight;
        counts.blind += found.own;
        counts.undecided += found.undecided;
        self.add_runs(plan, &blind, lanes);
        if by_own_rule && oldest < self.tile.keys_end() {
            self.flush_blind::<W>(plan, oldest, buffers);
        }
    }

    /// Counts every pair of some ranges of keys by distance.
    pub(super) fn add_runs<const W: usize>(
        &mut self,
        plan: usize,
        ranges: &Ranges,
        lanes: &Lanes<W>,
    ) {
        let counts = &mut self.counts.plans[plan].by_offset;
        for keys in &ranges.0 {
            lanes.add_runs(self.job.offsets, self.tile.first_query, keys, counts);
        }
    }

    /// Adds the blind pairs by difference to those of the plan, and clears them.
    pub(super) fn flush_blind<const W: usize>(
        &mut self,
        plan: usize,
        oldest: usize,
        buffers: &mut TileScratch,
    ) {
        let length = self.job.offsets.length();
        let differences = (self.tile.first_query + W)
            .saturating_sub(oldest)
            .min(length);
        let counts = &mut self.counts.plans[plan].by_offset;
        let to = counts
            .singles_mut(length - differences..length)
            .iter_mut()
            .rev();
        for (to, from) in to.zip(&mut buffers.blind[PAD..PAD + differences]) {
            *to += *from as u32;
            *from = 0.0;
        }
    }
}

/// Blind pairs of one block by difference, as the kernel's passes count them.
pub(super) struct Ones([f32; ScoreTile::BLOCK + ScoreTile::LANES_MAX]);

impl Ones {
    pub(super) fn new() -> Self {
        Self([0.0; _])
    }

    /// The counters of the keys `keys` for `W` lanes.
    pub(super) fn of<const W: usize>(&mut self, keys: &Range<usize>) -> &mut [f32] {
        &mut self.0[..keys.len() - 1 + W]
    }

    /// Adds them to counts by offset. `first` is the offset of key 0 in lane 0, which is one further than that in lane 1; offsets
    /// may lie outside `counts` where nothing was counted.
    #[inline(always)]
    pub(super) fn add_to<const W: usize>(
        mut self,
        first: usize,
        keys: &Range<usize>,
        counts: &mut [u32],
    ) {
        // The smallest difference is that of the last key in lane 0, and has the largest offset.
        let ones = self.of::<W>(keys);
        let end = first + keys.end;
        let (from, to) = (end.saturating_sub(counts.len()), ones.len().min(end));
        let counts = counts[end - to..end - from].iter_mut().rev();
        for (count, one) in counts.zip(&ones[from..to]) {
            // From 2^23 on the last digits of a float are a whole number: a conversion that vectorises.
            *count += (one + 8_388_608.0).to_bits() & 0xffff;
        }
    }
}

/// Ascending ranges of keys, neighbours joined.
#[derive(Default)]
pub(super) struct Ranges(pub(super) Vec<Range<usize>>);

impl Ranges {
    pub(super) fn extend(&mut self, keys: &Range<usize>) {
        match self.0.last_mut() {
            Some(last) if last.end == keys.start => last.end = keys.end,
            _ if keys.is_empty() => {}
            _ => self.0.push(keys.clone()),
        }
    }
}

/// Adds the sum of each lane's weights: f32 within the block, key after key. `G` lanes at a time, in registers.
#[inline(always)]
fn add_block<const W: usize, const G: usize>(weights: &[f32], sums: &mut [f64; W]) {
    for from in (0..W).step_by(G) {
        let mut in_block = [0.0_f32; G];
        for key in 0..weights.len() / W {
            let weight: &[f32; G] = group(&weights[key * W + from..]);
            for lane in 0..G {
                in_block[lane] += weight[lane];
            }
        }
        for lane in 0..G {
            sums[from + lane] += f64::from(in_block[lane]);
        }
    }
}

/// Rounds weights, `[keys, W]`.
#[inline(always)]
fn round_weights<const W: usize>(
    rounding: &WeightRounding,
    weights: &[f32],
    share: &[f32; W],
    out: &mut [f32],
) {
    let rows = weights.as_chunks::<W>().0.iter();
    for (weights, out) in rows.zip(out.as_chunks_mut::<W>().0) {
        for lane in 0..W {
            out[lane] = if share[lane] > 0.0 {
                rounding.weight(weights[lane], share[lane])
            } else {
                0.0
            };
        }
    }
}
