//! Counting under the plans of one group, from tiles; see [`crate::evidence::plan`] for the same from rows.

use std::ops::Range;

use kernels::ScoreTile;
use numerics::{Format, MaxReference};

use super::{Block, Carrier, Lanes, PAD, TileScratch, flush_mass, group};
use crate::evidence::collector::Job;
use crate::evidence::head::{Group, HeadCounts};
use crate::evidence::lanes::LaneTable;
use crate::evidence::plan::{PlanRules, UNSUMMED_NATS};
use crate::evidence::plan_mass::WeightRounding;
use crate::evidence::scan::{CHUNK, exp_of_gaps};

/// Room for roundings where two bounds are compared, nats.
const ROOM_NATS: f64 = 1e-3;

/// One tile under the plans of one group.
pub(super) struct Taker<'a> {
    pub(super) counts: &'a mut HeadCounts,
    pub(super) job: &'a Job,
    pub(super) group: &'a Group,
    pub(super) table: &'a LaneTable,
    /// The table of the forward pass.
    pub(super) own: &'a LaneTable,
    pub(super) tile: &'a ScoreTile<'a>,
    /// Bound on the difference between a gap of this group and of the forward pass, nats.
    pub(super) slack: f64,
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

    /// Largest entry of each lane; lanes without a finite one are counted and dropped.
    #[inline(always)]
    pub(super) fn maximum<T: Carrier, const W: usize>(
        &mut self,
        plans: &[usize],
        lanes: &mut Lanes<W>,
        buffers: &mut TileScratch,
    ) -> [T; W] {
        if self.is_own {
            return lanes.max.map(T::of_f32);
        }
        let mut max = [T::LOWEST; W];
        for index in 0..buffers.blocks.len() {
            let block = buffers.blocks[index].clone();
            // The gap of a largest entry is 0 here, so it is at most the slack in the forward pass.
            if f64::from(block.near) - self.slack > ROOM_NATS {
                continue;
            }
            for entry in self
                .entries::<T, W>(&block, lanes, buffers)
                .as_chunks::<W>()
                .0
            {
                for lane in 0..W {
                    max[lane] = if entry[lane] > max[lane] {
                        entry[lane]
                    } else {
                        max[lane]
                    };
                }
            }
        }
        for lane in 0..W {
            if lanes.good[lane] && !max[lane].to_f64().is_finite() {
                lanes.drop_lane(lane);
                for block in &mut buffers.blocks {
                    block.hidden = true;
                }
                for &plan in plans {
                    self.counts.plans[plan].non_finite_rows += 1;
                }
            }
        }
        max
    }

    /// Entries of a block, the lowest value where a pair is hidden.
    #[inline(always)]
    pub(super) fn entries<'b, T: Carrier, const W: usize>(
        &self,
        block: &Block,
        lanes: &Lanes<W>,
        buffers: &'b mut TileScratch,
    ) -> &'b mut [T] {
        let entries = &mut T::entries(buffers)[..block.keys.len() * W];
        let raw = self.tile.raw(block.keys.clone());
        self.table
            .entries::<T, W>(raw, self.tile.first_query, &block.keys, entries);
        if block.hidden {
            lanes.hide(&block.keys, T::LOWEST, entries);
        }
        entries
    }

    /// Gaps of a block, the lowest value where a pair is hidden: nothing counts there.
    #[inline(always)]
    pub(super) fn gaps<'b, T: Carrier, const W: usize>(
        &self,
        block: &Block,
        lanes: &Lanes<W>,
        max: &[T; W],
        buffers: &'b mut TileScratch,
    ) -> &'b mut [T] {
        let gaps = &mut T::entries(buffers)[..block.keys.len() * W];
        let raw = self.tile.raw(block.keys.clone());
        self.table
            .gaps::<T, W>(raw, self.tile.first_query, &block.keys, max, gaps);
        if block.hidden {
            lanes.hide(&block.keys, T::LOWEST, gaps);
        }
        gaps
    }

    /// [`Taker::gaps`] of the forward pass itself.
    #[inline(always)]
    fn own_gaps<'b, const W: usize>(
        &self,
        block: &Block,
        lanes: &Lanes<W>,
        buffers: &'b mut TileScratch,
    ) -> &'b mut [f32] {
        let gaps = &mut buffers.narrow[..block.keys.len() * W];
        let raw = self.tile.raw(block.keys.clone());
        self.own
            .gaps::<f32, W>(raw, self.tile.first_query, &block.keys, &lanes.max, gaps);
        if block.hidden {
            lanes.hide(&block.keys, f32::NEG_INFINITY, gaps);
        }
        gaps
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
        for index in 0..buffers.blocks.len() {
            let block = buffers.blocks[index].clone();
            if !self.is_live(&block) {
                continue;
            }
            let to = &mut weights[block.keys.start * W..block.keys.end * W];
            let gaps = self.gaps::<T, W>(&block, lanes, max, buffers);
            if block.hidden {
                lanes.hide(&block.keys, T::of(f64::INFINITY), gaps);
            }
            exp_of_gaps(gaps, to);
            let mut in_block = [0.0_f32; W];
            for weight in to.as_chunks::<W>().0 {
                for lane in 0..W {
                    in_block[lane] += weight[lane];
                }
            }
            for lane in 0..W {
                sums[lane] += f64::from(in_block[lane]);
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
        let mut oldest = self.tile.keys_end();
        for block in buffers.blocks.iter().filter(|block| self.is_live(block)) {
            let keys = &block.keys;
            oldest = oldest.min(keys.start);
            let weights = &buffers.weights[keys.start * W..keys.end * W];
            let nearest = PAD + self.tile.first_query + 1 - keys.end;
            let mass = &mut buffers.mass[nearest..nearest + keys.len() - 1 + W];
            add_mass::<W>(&rounding, weights, &share, mass);
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
        let skipped = 0..self.tile.proven_zero_before;
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
        let mut thresholds = [[0.0_f64; W]; 5];
        for lane in lanes.alive() {
            let t = rules.thresholds(lanes.sum[lane], error);
            for (to, from) in
                thresholds
                    .iter_mut()
                    .zip([t.own, t.below, t.above, t.numerator, t.weight])
            {
                to[lane] = from;
            }
        }
        let exact = thresholds.map(|lanes| lanes.map(T::floor));
        let guess = Guess::new(&thresholds, self.slack + ROOM_NATS, by_own_rule);
        let mut found = Found::default();
        let mut oldest = self.tile.keys_end();
        for index in straddling {
            let block = buffers.blocks[index].clone();
            oldest = oldest.min(block.keys.start);
            let mut by_difference = std::mem::take(&mut buffers.blind);
            let nearest = PAD + self.tile.first_query + 1 - block.keys.end;
            let counters = &mut by_difference[nearest..nearest + block.keys.len() - 1 + W];
            // Gaps of 64 bits take four times the work: only where those of the forward pass do not decide.
            let decided = self.table.is_wide() && {
                let gaps = self.own_gaps::<W>(&block, lanes, buffers);
                guess.count(gaps, counters, &mut found)
            };
            if !decided {
                if max.is_none() {
                    // Groups that share the sums have finite biases, so no lane is dropped.
                    *max = Some(self.maximum::<T, W>(&[plan], lanes, buffers));
                }
                let max = max.as_ref().expect("just set");
                let gaps = self.gaps::<T, W>(&block, lanes, max, buffers);
                if by_own_rule {
                    found.count_all::<T, W>(gaps, &exact, counters);
                } else {
                    found.count_named::<T, W>(gaps, &exact);
                }
            }
            buffers.blind = by_difference;
        }
        let counts = &mut self.counts.plans[plan];
        let [own, below, above, numerator, weight] = found.0;
        counts.numerator += numerator;
        counts.weight += weight;
        counts.blind += own;
        counts.undecided += below - above;
        if by_own_rule {
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
            for lane in lanes.alive() {
                let base = self.job.offsets.base(self.tile.first_query + lane);
                let end = lanes.seen_end(lane, keys);
                if end > keys.start {
                    counts.add_run(base + keys.start..base + end);
                }
            }
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
            *to += *from;
            *from = 0;
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

/// Pairs above the thresholds of their rows: by the plan's own rule, from where they are undecided and to where, of the numerator,
/// of the weight.
#[derive(Default)]
struct Found([u64; 5]);

/// Counts the gaps above `N` thresholds a lane; those above the first also by difference, if `counters` are given. `G` lanes at a
/// time over all keys, so that their counts stay in registers.
#[inline(always)]
fn count_above<T: Carrier, const W: usize, const G: usize, const N: usize>(
    gaps: &[T],
    thresholds: &[[T; W]; N],
    mut counters: Option<&mut [u32]>,
) -> [u64; N] {
    let mut counts = [0; N];
    let keys = gaps.len() / W;
    for from in (0..W).step_by(G) {
        let thresholds: [[T; G]; N] = std::array::from_fn(|i| *group(&thresholds[i][from..]));
        let mut found = [[0_u32; G]; N];
        for key in 0..keys {
            let gap: &[T; G] = group(&gaps[key * W + from..]);
            for i in 0..N {
                for lane in 0..G {
                    found[i][lane] += u32::from(gap[lane] > thresholds[i][lane]);
                }
            }
            if let Some(counters) = &mut counters {
                let counters: &mut [u32; G] = counters[keys - 1 - key + from..]
                    .first_chunk_mut()
                    .expect("one counter a lane");
                for lane in 0..G {
                    counters[lane] += u32::from(gap[lane] > thresholds[0][lane]);
                }
            }
        }
        for (count, found) in counts.iter_mut().zip(&found) {
            *count += found.iter().map(|&n| u64::from(n)).sum::<u64>();
        }
    }
    counts
}

/// [`count_above`] in groups of the widest vector that a tile of `W` lanes is made of.
#[inline(always)]
fn count_lanes<T: Carrier, const W: usize, const N: usize>(
    gaps: &[T],
    thresholds: &[[T; W]; N],
    counters: Option<&mut [u32]>,
) -> [u64; N] {
    if W.is_multiple_of(16) {
        count_above::<T, W, 16, N>(gaps, thresholds, counters)
    } else {
        count_above::<T, W, 8, N>(gaps, thresholds, counters)
    }
}

impl Found {
    #[inline(always)]
    fn count_all<T: Carrier, const W: usize>(
        &mut self,
        gaps: &[T],
        thresholds: &[[T; W]; 5],
        counters: &mut [u32],
    ) {
        let counts = count_lanes(gaps, thresholds, Some(counters));
        for (count, more) in self.0.iter_mut().zip(counts) {
            *count += more;
        }
    }

    #[inline(always)]
    fn count_named<T: Carrier, const W: usize>(
        &mut self,
        gaps: &[T],
        &[_, _, _, numerator, weight]: &[[T; W]; 5],
    ) {
        let counts = count_lanes(gaps, &[numerator, weight], None);
        self.0[3] += counts[0];
        self.0[4] += counts[1];
    }
}

/// Thresholds for gaps of the forward pass: certainly not above, and certainly above, those of the plan.
struct Guess<const W: usize> {
    /// By the plan's own rule, of the numerator, of the weight.
    low: [[f32; W]; 3],
    high: [[f32; W]; 3],
}

impl<const W: usize> Guess<W> {
    #[inline(always)]
    fn new(
        [own, below, above, numerator, weight]: &[[f64; W]; 5],
        slack: f64,
        by_own_rule: bool,
    ) -> Self {
        let low = |lanes: &[f64; W]| lanes.map(|gap| ((gap - slack) as f32).next_down());
        let high = |lanes: &[f64; W]| lanes.map(|gap| ((gap + slack) as f32).next_up());
        // A plan with another rule of its own counts nothing by this one.
        let never = [f32::INFINITY; W];
        let (own_low, own_high) = if by_own_rule {
            let least = std::array::from_fn(|lane| own[lane].min(below[lane]));
            (low(&least), high(above))
        } else {
            (never, never)
        };
        Self {
            low: [own_low, low(numerator), low(weight)],
            high: [own_high, high(numerator), high(weight)],
        }
    }

    /// Counts a block if no gap lies between the thresholds; says whether it did.
    #[inline(always)]
    fn count(&self, gaps: &[f32], counters: &mut [u32], found: &mut Found) -> bool {
        let low = count_lanes::<f32, W, 3>(gaps, &self.low, None);
        // Cheap to look ahead, dear to take back: by difference only once it is decided.
        if low != count_lanes::<f32, W, 3>(gaps, &self.high, None) {
            return false;
        }
        let [own, _, _] = self.high;
        if low[0] > 0 {
            count_lanes::<f32, W, 1>(gaps, &[own], Some(counters));
        }
        found.0[0] += low[0];
        found.0[3] += low[1];
        found.0[4] += low[2];
        true
    }
}

/// Adds rounded weights to the mass by difference; the last `W` values of `mass` belong to the first key.
#[inline(always)]
fn add_mass<const W: usize>(
    rounding: &WeightRounding,
    weights: &[f32],
    share: &[f32; W],
    mass: &mut [f32],
) {
    macro_rules! add {
        ($weight:expr) => {{
            let weight = $weight;
            let rows = weights.as_chunks::<W>().0;
            for (index, terms) in rows.iter().enumerate() {
                let mass: &mut [f32; W] = mass[rows.len() - 1 - index..]
                    .first_chunk_mut()
                    .expect("one value a lane");
                for lane in 0..W {
                    mass[lane] += weight(terms[lane], share[lane]);
                }
            }
        }};
    }
    use crate::evidence::table::Rounding;
    // One loop a rounding, so that nothing is decided per pair.
    match rounding.plain_quotient() {
        Some(Rounding::Keep) => add!(|numerator: f32, share: f32| numerator * share),
        Some(Rounding::Bf16) => {
            add!(|numerator: f32, share: f32| Rounding::Bf16.apply(numerator * share))
        }
        Some(Rounding::F16) => {
            add!(|numerator: f32, share: f32| Rounding::F16.apply(numerator * share))
        }
        None => add!(|numerator: f32, share: f32| if share > 0.0 {
            rounding.weight(numerator, share)
        } else {
            0.0
        }),
    }
}
