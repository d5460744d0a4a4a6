//! Counting under the plans of one group, from tiles; see [`crate::evidence::plan`] for the same from rows.

use std::ops::Range;

use kernels::{Below, CUTS, ScoreTile, sum_by_difference, sum_shares_by_difference};
use numerics::MaxReference;

use super::criteria::{Above, Compared, Criteria, Found};
use super::doubt::Doubt;
use super::streamed::cut_blocks;
use super::{Block, Carrier, Lanes, TileScratch, differences, flush_mass, group};
use crate::evidence::call::Group;
use crate::evidence::collector::Job;
use crate::evidence::head::HeadCounts;
use crate::evidence::lanes::LaneTable;
use crate::evidence::plan_mass::WeightRounding;
use crate::evidence::rules::{PlanRules, UNSUMMED_NATS};
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
    /// Bound on the difference between a gap of this group and of the forward pass, nats, for gaps that decide anything.
    pub(super) slack: f64,
    /// Largest absolute raw score of any pair that was computed, nats.
    pub(super) raw_max: f32,
    /// Largest gap of any pair that was computed, nats.
    pub(super) far: f64,
    /// Largest absolute raw score that any row sees, nats.
    pub(super) seen_max: f32,
    pub(super) is_own: bool,
}

impl Taker<'_> {
    /// Takes every plan of the group; those that have to go row by row are pushed to `left`.
    #[inline(always)]
    pub(super) fn take<T: Carrier, const W: usize>(
        &mut self,
        lanes: &mut Lanes<W>,
        buffers: &mut TileScratch,
        left: &mut Vec<usize>,
    ) {
        let mut max = None;
        let group = self.group;
        left.extend(&group.narrow);
        let tiles = &group.wide;
        if tiles.is_empty() {
            return;
        }
        let has_mass = tiles
            .iter()
            .any(|&plan| self.counts.plans[plan].mass.is_some());
        if !self.group.shares_sum || has_mass {
            max = Some(self.maximum::<T, W>(tiles, lanes, buffers));
            if lanes.n_good == 0 {
                return;
            }
            self.sums::<T, W>(max.as_ref().expect("just set"), lanes, buffers);
        }
        for &plan in tiles {
            let rules = self.job.rules[plan];
            if self.counts.plans[plan].mass.is_some() {
                self.mass(plan, lanes, buffers);
            }
            match self.job.plans[plan].max_reference {
                MaxReference::Final => {
                    self.count(plan, &rules, true, &mut max, lanes, buffers);
                }
                MaxReference::Running { key_block, order } => {
                    if self.can_stream(key_block, &rules) {
                        self.count(plan, &rules, false, &mut max, lanes, buffers);
                        let whole = cut_blocks(key_block, buffers);
                        self.each_order(plan, &rules, key_block, order, lanes, buffers);
                        if let Some(whole) = whole {
                            buffers.blocks = whole;
                        }
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
                    lanes.ln_sum[lane] = sums[lane].ln();
                }
            }
            lanes.find_ends();
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
            let mass = &mut buffers.mass[differences::<W>(self.tile, keys)];
            if let Some(plain) = plain {
                sum_shares_by_difference(W, weights, &share, plain, mass);
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
        let n_sums = (self.tile.first_query + W)
            .saturating_sub(oldest)
            .min(length);
        flush_mass(&mut mass.by_offset, &mut buffers.mass, length, n_sums);
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
        // Of the row where it is largest.
        let error = self.group.sum_error(self.seen_max);
        let skipped = 0..self.tile.proven_zero_before;
        if skipped.is_empty() && self.far + self.slack + ROOM_NATS < self.job.lowest[plan] {
            return;
        }
        let [own, below, above, numerator, weight] =
            rules.thresholds_of_lanes(&lanes.sum_ends, &lanes.ln_sum_ends, error);
        // A larger sum never raises a threshold.
        let by_own = (own[1].min(below[1]), above[0]);
        let (numerator, weight) = ((numerator[1], numerator[0]), (weight[1], weight[0]));
        let (mut least, mut most) = (numerator.0.min(weight.0), numerator.1.max(weight.1));
        if by_own_rule {
            (least, most) = (least.min(by_own.0), most.max(by_own.1));
        }
        let room = self.slack + ROOM_NATS;
        let mut criteria = Criteria::new(rules, by_own_rule, [by_own, numerator, weight]);
        // From the last to the first, so that what is blind in a row joins into one run.
        let mut blind = Ranges::default();
        blind.extend(&skipped);
        let mut whole = lanes.pairs(&skipped);
        let mut straddling = std::mem::take(&mut buffers.straddling);
        straddling.clear();
        for (index, block) in buffers.blocks.iter().enumerate() {
            let ends = (f64::from(block.near) - room, f64::from(block.far) + room);
            if ends.0 > most {
                whole += lanes.pairs(&block.keys);
                blind.extend(&block.keys);
            } else if ends.1 > least {
                criteria.meet(ends);
                straddling.push((index, ends));
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
            buffers.straddling = straddling;
            return;
        }
        criteria.find_bounds(rules, &self.compared(max.as_ref(), lanes), lanes, error);
        let mut found = Found::default();
        // Blocks that are blind whole.
        let mut blind = Ranges::default();
        let mut counters = self.counts.plans[plan]
            .by_offset
            .take_tiles(self.job.offsets);
        for &(index, ends) in &straddling {
            let block = buffers.blocks[index].clone();
            let look = criteria.look(ends);
            let mut below = [Below::default(); CUTS];
            let to = &mut counters[differences::<W>(self.tile, &block.keys)];
            if !look.cuts().is_empty() {
                let to = look.by_own_rule.then_some(&mut *to);
                below = self.count_below::<W>(&block, look.cuts(), lanes, buffers, to);
            }
            let pairs = lanes.pairs(&block.keys);
            if let Above::All = criteria.count(&look, pairs, &below, &mut found) {
                blind.extend(&block.keys);
            }
            for cut in (0..CUTS).filter(|&cut| below[cut].in_doubt) {
                let doubt = Doubt {
                    block: &block,
                    rules,
                    max: max.as_ref(),
                };
                self.settle(
                    &criteria, &look, cut, &doubt, lanes, buffers, &mut found, to,
                );
            }
        }
        let counts = &mut self.counts.plans[plan];
        counts.by_offset.put_tiles(counters);
        counts.numerator += found.numerator;
        counts.weight += found.weight;
        counts.blind += found.own;
        counts.undecided += found.undecided;
        self.add_runs(plan, &blind, lanes);
        buffers.straddling = straddling;
    }

    /// The scores that are compared with bounds: those of the forward pass, or the plan's own, of which `max` are the largest.
    #[inline(always)]
    fn compared<T: Carrier, const W: usize>(
        &self,
        max: Option<&[T; W]>,
        lanes: &Lanes<W>,
    ) -> Compared<'_, W> {
        let mut compared = [0.0; W];
        match max {
            Some(max) if !self.by_forward() => {
                for lane in 0..W {
                    compared[lane] = max[lane].to_f64();
                }
            }
            _ => {
                for lane in 0..W {
                    compared[lane] = f64::from(lanes.max[lane]);
                }
            }
        }
        let slack = self
            .stands_in()
            .then_some((&self.group.slack, self.raw_max));
        Compared::new(compared, slack, lanes)
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
