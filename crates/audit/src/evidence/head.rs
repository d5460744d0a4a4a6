//! One head of one layer while it is observed: from tiles of scores to counts.

use std::sync::Arc;

use kernels::{ScoreRows, ScoreTile, SpareScores};
use numerics::{PrecisionPlan, ScaleOrder};

use crate::evidence::advantage::Advantage;
use crate::evidence::call::{Call, Group};
use crate::evidence::collector::Job;
use crate::evidence::distance::{OffsetCounts, Offsets, bin_counts, bin_masses, reach};
use crate::evidence::lanes::vectorize;
use crate::evidence::own::{INVISIBLE_NATS, OwnAttention};
use crate::evidence::plan::PlanCounts;
use crate::evidence::row::{Chunk, Row, assemble, count_pairs, cut};
use crate::evidence::scan::Real;
use crate::evidence::scored::{ScoredRow, gap_of, largest_raw, row_max, row_sum, visible_chunks};
use crate::evidence::tile::{TileScratch, take_tile};
use crate::evidence::types::HeadEvidence;

/// Everything counted about one head. Linear in the length; calls on the same head are merged.
#[derive(Clone, Debug)]
pub(crate) struct HeadCounts {
    pub(crate) offsets: Offsets,
    pub(crate) pairs: OffsetCounts,
    pub(crate) rows: u64,
    pub(crate) non_finite_rows: u64,
    pub(crate) own: OwnAttention,
    pub(crate) advantage: Advantage,
    pub(crate) plans: Vec<PlanCounts>,
}

impl HeadCounts {
    pub(crate) fn new(offsets: Offsets, plans: &[PrecisionPlan]) -> Self {
        Self {
            offsets,
            pairs: OffsetCounts::new(offsets),
            rows: 0,
            non_finite_rows: 0,
            own: OwnAttention::new(offsets),
            advantage: Advantage::new(offsets.length()),
            plans: plans
                .iter()
                .map(|plan| PlanCounts::new(plan, offsets))
                .collect(),
        }
    }

    /// Forgets everything counted, and keeps the memory for another head of the same collector.
    pub(crate) fn clear(&mut self) {
        self.pairs.clear();
        (self.rows, self.non_finite_rows) = (0, 0);
        self.own.clear();
        self.advantage = Advantage::new(self.offsets.length());
        for plan in &mut self.plans {
            plan.clear();
        }
    }

    /// Bytes of one of these while a layer runs, with the score tables of `n_plans` plans at their largest.
    pub(crate) fn bytes(length: u64, causal: bool, n_plans: u64) -> u64 {
        let offsets = if causal { length } else { 2 * length };
        // Pairs and every plan: runs, single pairs, pairs of tiles, 4 bytes an offset each, and of a plan runs that overflow; masses: 8;
        // tables: at most 24 a plan, own tables: 8; of a tile: its weights and its rows (48 a key each), masses and one row.
        offsets * (20 + 48 * n_plans + 8 + 4 * (2 * 48 + 4)) + Advantage::BYTES
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        assert_eq!(
            self.offsets, other.offsets,
            "calls of one collector share their length"
        );
        self.pairs.merge(&other.pairs);
        self.rows += other.rows;
        self.non_finite_rows += other.non_finite_rows;
        self.own.merge(&other.own);
        self.advantage.merge(&other.advantage);
        for (plan, more) in self.plans.iter_mut().zip(&other.plans) {
            plan.merge(more);
        }
    }

    /// Reduces the counts to the numbers of a report.
    pub(crate) fn finish(&self, job: &Job, layer: usize, head: usize) -> HeadEvidence {
        let alibi = &job.spec.alibi;
        let slope = alibi.slopes[head];
        let bias_scale = match alibi.convention.scale_order {
            ScaleOrder::BiasAfterScale => 1.0,
            ScaleOrder::BiasBeforeScale => f64::from(job.spec.score_scale(layer)),
        };
        let pairs = self.pairs.by_distance(self.offsets);
        let total: u64 = pairs.iter().sum();
        let mass = self.offsets.fold(self.own.mass.iter().copied());
        let rows = self.rows as f64;
        let some = |value: f64| (self.rows > 0).then_some(value);
        let key0 = |value: f64| {
            (job.causal && self.own.key0_rows > 0).then(|| value / self.own.key0_rows as f64)
        };
        let mean_mass: Vec<f64> = mass
            .iter()
            .map(|mass| if self.rows > 0 { mass / rows } else { 0.0 })
            .collect();
        let mean_distance: f64 = mean_mass
            .iter()
            .enumerate()
            .map(|(distance, mass)| distance as f64 * mass)
            .sum();
        let own_mass = bin_masses(&mean_mass, &job.edges);
        let [reach_50, reach_90, reach_99] = reach(&mass, [0.50, 0.90, 0.99]);
        let plans = self.plans.iter().zip(&job.plans);
        HeadEvidence {
            layer,
            head,
            slope,
            effective_slope: slope * bias_scale * alibi.bias.interpolation,
            rows: self.rows,
            non_finite_rows: self.non_finite_rows,
            pairs: total,
            plans: plans
                .map(|(counts, plan)| {
                    counts.finish(plan.key(), self.offsets, &pairs, &job.edges, &own_mass)
                })
                .collect(),
            pairs_by_distance: bin_counts(&pairs, &job.edges),
            mass_by_distance: own_mass,
            reach_50,
            reach_90,
            reach_99,
            mean_distance: some(mean_distance),
            entropy_nats: some(self.own.entropy_sum / rows),
            key0_mass: key0(self.own.key0_sum),
            key0_baseline: key0(self.own.key0_uniform_sum),
            max_score: some(f64::from(self.own.max_score)),
            share_below_bf16_ulp: some(self.own.below_bf16 as f64 / total as f64),
            share_below_f32_ulp: some(self.own.below_f32 as f64 / total as f64),
            advantage: self.advantage.finish(head, slope * bias_scale, &alibi.bias),
        }
    }
}

/// Buffers that go from head to head.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) chunks: Vec<Chunk>,
    visible: Vec<Chunk>,
    bounds: Vec<(f64, f64)>,
    weights: Vec<f32>,
    /// Largest absolute raw score that the row at hand sees, nats.
    pub(crate) seen_max: f32,
    pub(crate) tile: TileScratch,
}

/// Observes one head during one call.
#[derive(Debug)]
pub(crate) struct HeadObserver {
    layer: usize,
    counts: HeadCounts,
    call: Option<Arc<Call>>,
    scratch: Scratch,
}

impl HeadObserver {
    /// `counts` are empty; `scratch` may be that of another head.
    pub(crate) fn new(layer: usize, counts: HeadCounts, scratch: Scratch) -> Self {
        Self {
            layer,
            counts,
            call: None,
            scratch,
        }
    }

    /// The counts, and the buffers for the next head.
    pub(crate) fn into_parts(self) -> (HeadCounts, Scratch) {
        (self.counts, self.scratch)
    }

    /// Takes the next rows.
    pub(crate) fn rows(&mut self, job: &Job, rows: &ScoreRows<'_>) {
        if rows.n_keys == 0 {
            return;
        }
        let layer = self.layer;
        let call = self
            .call
            .get_or_insert_with(|| Arc::new(Call::of_rows(job, layer, rows)));
        assert_eq!(call.n_keys, rows.n_keys, "one call, one number of keys");
        let (counts, scratch) = (&mut self.counts, &mut self.scratch);
        // The same source for every instruction set: what is inlined below is compiled for each.
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || take_rows(counts, job, call, rows, scratch),
        );
    }

    /// Which scores of the next tile need not be there.
    pub(crate) fn spare_scores(&self) -> Option<SpareScores> {
        self.call.as_ref()?.spare
    }

    /// Takes the next tile.
    pub(crate) fn tile(&mut self, job: &Job, tile: &ScoreTile<'_>) {
        let layer = self.layer;
        let call = self
            .call
            .get_or_insert_with(|| Call::of_tile(job, layer, tile));
        assert_eq!(call.n_keys, tile.n_keys, "one call, one number of keys");
        let (counts, scratch) = (&mut self.counts, &mut self.scratch);
        match tile.lanes {
            8 => take_tile_of::<8>(counts, job, call, tile, scratch),
            16 => take_tile_of::<16>(counts, job, call, tile, scratch),
            48 => take_tile_of::<48>(counts, job, call, tile, scratch),
            lanes => unreachable!("a tile of {lanes} lanes"),
        }
    }
}

/// [`take_tile`] for one width.
fn take_tile_of<const W: usize>(
    counts: &mut HeadCounts,
    job: &Job,
    call: &Call,
    tile: &ScoreTile<'_>,
    scratch: &mut Scratch,
) {
    vectorize::<W>(
        #[inline(always)]
        || take_tile::<W>(counts, job, call, tile, scratch),
    );
}

#[inline(always)]
fn take_rows(
    counts: &mut HeadCounts,
    job: &Job,
    call: &Call,
    rows: &ScoreRows<'_>,
    scratch: &mut Scratch,
) {
    for index in 0..rows.n_rows {
        let view = rows.row(index);
        // A query that is padding has no pairs.
        if rows.key_valid.is_some_and(|valid| !valid[view.query]) {
            continue;
        }
        let (query, raw) = (view.query - call.pad, &view.raw[call.pad..]);
        let pairs = cut(
            query,
            raw,
            raw.len(),
            &call.runs,
            call.step,
            &mut scratch.chunks,
        );
        if pairs == 0 {
            continue;
        }
        if !view.max.is_finite() || !view.lse.is_finite() {
            counts.non_finite_rows += 1;
            continue;
        }
        let chunks = std::mem::take(&mut scratch.chunks);
        let place = call.place(job, query);
        let row = assemble(job.offsets, place, raw, &chunks, pairs);
        counts.take(job, call, &row, f64::from(view.sum), scratch);
        scratch.chunks = chunks;
    }
}

impl HeadCounts {
    /// `sum` is that of the forward pass.
    #[inline(always)]
    fn take(&mut self, job: &Job, call: &Call, row: &Row<'_>, sum: f64, scratch: &mut Scratch) {
        self.rows += 1;
        count_pairs(row, &mut self.pairs);
        for (index, group) in call.groups.iter().enumerate() {
            self.take_group(job, group, &group.plans, row, sum, scratch, index == 0);
        }
    }

    /// [`HeadCounts::take_group`] from code that is not compiled for the machine's instruction set.
    #[allow(clippy::too_many_arguments, reason = "one row and where it goes")]
    pub(crate) fn take_one(
        &mut self,
        job: &Job,
        group: &Group,
        plans: &[usize],
        row: &Row<'_>,
        sum: f64,
        scratch: &mut Scratch,
        own: bool,
    ) {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || self.take_group(job, group, plans, row, sum, scratch, own),
        );
    }

    /// Takes one row under some plans of a group; `own`: and what the forward pass itself does.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "one row and where it goes")]
    fn take_group(
        &mut self,
        job: &Job,
        group: &Group,
        plans: &[usize],
        row: &Row<'_>,
        sum: f64,
        scratch: &mut Scratch,
        own: bool,
    ) {
        let keys = scratch.weights.len().max(row.raw.len());
        scratch.weights.resize(keys, 0.0);
        if group.table.is_wide() {
            self.take_plans::<f64>(job, group, plans, row, sum, scratch, own);
        } else {
            self.take_plans::<f32>(job, group, plans, row, sum, scratch, own);
        }
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "as above")]
    fn take_plans<T: Real>(
        &mut self,
        job: &Job,
        group: &Group,
        plans: &[usize],
        row: &Row<'_>,
        sum: f64,
        scratch: &mut Scratch,
        own: bool,
    ) {
        let table = &group.table;
        table.bounds::<T>(row, &mut scratch.bounds);
        let max = row_max::<T>(table, row, &scratch.bounds);
        let (mut sum, mut gap_sum) = (sum, 0.0);
        if own || group.has_mass || !group.shares_sum {
            let sums = row_sum(table, row, &scratch.bounds, max, &mut scratch.weights);
            gap_sum = sums.1;
            if !group.shares_sum {
                sum = sums.0;
            }
        }
        let scored = ScoredRow {
            row,
            table,
            bounds: &scratch.bounds,
            max: max.to_f64(),
            sum,
            sum_error: group.sum_error(scratch.seen_max),
        };
        if own {
            let visible = &mut scratch.visible;
            visible_chunks(&scored, visible);
            scratch.seen_max = largest_raw(visible);
            self.own.max_score = self.own.max_score.max(scratch.seen_max);
            self.own.row(&scored, &scratch.weights, gap_sum);
            self.advantage
                .row(row, visible, |key| gap_of(&scored, key) <= INVISIBLE_NATS);
        }
        for &plan in plans {
            let (plans, rules) = (&job.plans[plan], &job.rules[plan]);
            let counts = &mut self.plans[plan];
            counts.row::<T>(plans, rules, job.offsets, &scored, &scratch.weights);
        }
    }
}
