//! One head of one layer while it is observed: from tiles of scores to counts.

use std::ops::Range;
use std::sync::Arc;

use kernels::{ScoreRows, ScoreTile, SpareScores};
use numerics::{MaxReference, PrecisionPlan, ScaleOrder, ScoreSpec};

use crate::evidence::advantage::Advantage;
use crate::evidence::collector::Job;
use crate::evidence::distance::{OffsetCounts, Offsets, bin_counts, bin_masses, reach};
use crate::evidence::lanes::{LaneTable, vectorize};
use crate::evidence::own::{INVISIBLE_NATS, OwnAttention};
use crate::evidence::plan::{CAST_NATS, LN_SUM_ERROR, PlanCounts, ScoredRow, UNSUMMED_NATS};
use crate::evidence::plan_mass::changes_mass;
use crate::evidence::row::{Chunk, Row, assemble, count_pairs, cut, valid_runs};
use crate::evidence::scan::{CHUNK, Real, exp_of_gaps, largest, to_gaps, weighted_gap};
use crate::evidence::table::{ScoreTable, Slack};
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
        // Pairs and every plan: 8 + 4 bytes an offset; masses: 8; tables: at most 24 a plan, own tables: 8; of a tile: its
        // weights and its rows (48 a key each), masses, counts and one row.
        offsets * (20 + 44 * n_plans + 8 + 4 * (2 * 48 + 4)) + Advantage::BYTES
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
            reach_50: reach(&mass, 0.50),
            reach_90: reach(&mass, 0.90),
            reach_99: reach(&mass, 0.99),
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

/// Plans that compute the same entries, and those entries.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) table: ScoreTable,
    /// The same for tiles, where there is such a form.
    pub(crate) lanes: Option<LaneTable>,
    /// Indices into the job's plans. The first group is this tool's own forward pass, and may have none.
    pub(crate) plans: Vec<usize>,
    pub(crate) slack: Slack,
    /// Largest gap that decides anything, nats.
    pub(crate) most: f64,
    /// The sums of its rows are those of the forward pass: its entries differ from those by f32 roundings only.
    pub(crate) shares_sum: bool,
    /// How far the logarithm of a sum may be off, nats.
    pub(crate) sum_error: f64,
    /// Some plan needs the mass under its own roundings.
    pub(crate) has_mass: bool,
}

impl Group {
    fn new(table: ScoreTable, own: Option<&ScoreTable>) -> Self {
        let slack = table.slack(own.unwrap_or(&table));
        let apart = slack.nats(RAW_MAX, UNSUMMED_NATS);
        let shares_sum = own.is_none() || apart < SUM_APART_NATS;
        Self {
            lanes: table.lane_table(),
            table,
            plans: Vec::new(),
            slack,
            most: UNSUMMED_NATS,
            shares_sum,
            sum_error: if shares_sum && own.is_some() {
                apart.max(LN_SUM_ERROR)
            } else {
                LN_SUM_ERROR
            },
            has_mass: false,
        }
    }
}

/// Largest absolute raw score, nats, for which gaps of two tables are compared in advance.
pub(crate) const RAW_MAX: f32 = 256.0;

/// Entries nearer than this to those of the forward pass, nats, share its sums.
const SUM_APART_NATS: f64 = 1.0 / 512.0;

/// What a call by tiles depends on, beside its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallKey {
    n_keys: usize,
    /// Bits of the layer's scale.
    scale: u32,
    /// Bits of the last query's bias on the first key and on its own.
    bias: [u32; 2],
}

/// What is fixed for the duration of a call.
#[derive(Debug)]
pub(crate) struct Call {
    n_keys: usize,
    /// Keys before the first valid one: sequences are counted from there.
    pad: usize,
    runs: Vec<Range<usize>>,
    step: usize,
    pub(crate) groups: Vec<Group>,
    /// Scores that no count needs one by one.
    spare: Option<SpareScores>,
}

impl Call {
    fn of_rows(job: &Job, layer: usize, rows: &ScoreRows<'_>) -> Self {
        let pad = rows
            .key_valid
            .and_then(|valid| valid.iter().position(|&ok| ok))
            .unwrap_or(0);
        let runs = valid_runs(rows.n_keys - pad, rows.key_valid.map(|valid| &valid[pad..]));
        Self::new(job, layer, rows.head, rows.n_keys, pad, runs, |length| {
            ScoreTable::own(rows, pad, length)
        })
    }

    /// That of the layer before, if it is the same: its tables take as long as a few tiles.
    fn of_tile(job: &Job, layer: usize, tile: &ScoreTile<'_>) -> Arc<Self> {
        let last = tile.n_keys - 1;
        let key = CallKey {
            n_keys: tile.n_keys,
            scale: job.spec.score_scale(layer).to_bits(),
            bias: [0, last].map(|key| tile.bias_at(last, key).to_bits()),
        };
        if let Some((known, call)) = job.calls().get(&tile.head)
            && *known == key
        {
            return Arc::clone(call);
        }
        let runs = valid_runs(tile.n_keys, None);
        let call = Self::new(job, layer, tile.head, tile.n_keys, 0, runs, |length| {
            ScoreTable::of_bias(length, true, None, |query, key| tile.bias_at(query, key))
        });
        let call = Arc::new(call);
        job.calls().insert(tile.head, (key, Arc::clone(&call)));
        call
    }

    fn new(
        job: &Job,
        layer: usize,
        head: usize,
        all_keys: usize,
        pad: usize,
        runs: Vec<Range<usize>>,
        own: impl Fn(usize) -> ScoreTable,
    ) -> Self {
        let n_keys = all_keys - pad;
        assert!(
            n_keys <= job.offsets.length(),
            "a sequence of {n_keys} tokens reached a collector made for {}",
            job.offsets.length()
        );
        let mut groups = vec![Group::new(own(n_keys), None)];
        let spec = ScoreSpec {
            bias: &job.spec.alibi.bias,
            head,
            slope: job.spec.alibi.slopes[head],
            scale: f64::from(job.spec.score_scale(layer)),
            causal: job.causal,
            length: n_keys as u64,
        };
        for (index, plan) in job.plans.iter().enumerate() {
            let known = groups.iter().position(|group| {
                group
                    .plans
                    .first()
                    .is_some_and(|&other| plan.shares_scores_with(&job.plans[other]))
            });
            let group = known.unwrap_or_else(|| {
                let table = ScoreTable::of_plan(plan, &spec);
                groups
                    .iter()
                    .position(|group| group.table.same_entries(&table))
                    .unwrap_or_else(|| {
                        let group = Group::new(table, Some(&groups[0].table));
                        groups.push(group);
                        groups.len() - 1
                    })
            });
            groups[group].plans.push(index);
            groups[group].has_mass |= changes_mass(plan);
        }
        for group in &mut groups {
            group.most = largest_gap(job, group);
        }
        Self {
            n_keys: all_keys,
            pad,
            runs,
            step: chunk_step(&job.plans),
            spare: spare_scores(&groups),
            groups,
        }
    }
}

/// The largest gap that decides anything under the plans of a group, nats: what is neither summed nor counted lies beyond.
fn largest_gap(job: &Job, group: &Group) -> f64 {
    let mut most = UNSUMMED_NATS;
    for &plan in &group.plans {
        // The smallest sum is 1, and its thresholds are the largest.
        let (_, threshold) = job.rules[plan].thresholds(1.0, group.sum_error).ends();
        most = most.max(threshold);
        if let MaxReference::Running { .. } = job.plans[plan].max_reference {
            most = most.max(job.plans[plan].accumulator_zero_nats() + CAST_NATS);
        }
    }
    most
}

/// Gaps beyond every threshold, with room for the roundings of every table.
fn spare_scores(groups: &[Group]) -> Option<SpareScores> {
    let mut gap = 0.0_f64;
    for group in groups {
        group.lanes.as_ref()?;
        gap = gap.max(group.most + group.slack.nats(RAW_MAX, group.most) + 0.01);
    }
    gap.is_finite().then_some(SpareScores {
        gap: (gap as f32).next_up(),
        raw_max: RAW_MAX,
    })
}

/// Keys per chunk: blocks of streaming plans must be whole chunks.
fn chunk_step(plans: &[PrecisionPlan]) -> usize {
    plans
        .iter()
        .fold(CHUNK, |step, plan| match plan.max_reference {
            MaxReference::Final => step,
            MaxReference::Running { key_block, .. } => gcd(step, key_block),
        })
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Buffers that go from head to head.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) chunks: Vec<Chunk>,
    visible: Vec<Chunk>,
    bounds: Vec<(f64, f64)>,
    weights: Vec<f32>,
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
        let row = assemble(job.offsets, query, raw, &chunks, pairs);
        counts.take(job, call, &row, f64::from(view.sum), scratch);
        scratch.chunks = chunks;
    }
}

impl Call {
    /// Cuts one row of a tile as rows are cut.
    pub(crate) fn cut(&self, query: usize, raw: &[f32], chunks: &mut Vec<Chunk>) -> u64 {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || cut(query, raw, raw.len(), &self.runs, self.step, chunks),
        )
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
            sum_error: group.sum_error,
        };
        if own {
            let visible = &mut scratch.visible;
            visible_chunks(&scored, visible);
            self.own.scores(visible);
            self.own.row(&scored, &scratch.weights, gap_sum);
            self.advantage
                .row(row, visible, |key| gap_of(&scored, key) <= INVISIBLE_NATS);
        }
        for &plan in plans {
            let (plans, rules) = (&job.plans[plan], &job.rules[plan]);
            self.plans[plan].row::<T>(plans, rules, &scored, &scratch.weights);
        }
    }
}

/// Gap of one pair in f32.
#[inline(always)]
fn gap_of(scored: &ScoredRow<'_>, key: usize) -> f32 {
    let chunk = Chunk {
        start: key,
        end: key + 1,
        low: 0.0,
        high: 0.0,
    };
    let mut entry = [0.0_f32];
    scored.table.entries(scored.row, &chunk, &mut entry);
    scored.max as f32 - entry[0]
}

/// The chunks of a row that hold pairs whose f32 weight is not exactly zero, with the extremes of their raw scores.
#[inline(always)]
fn visible_chunks(scored: &ScoredRow<'_>, visible: &mut Vec<Chunk>) {
    visible.clear();
    let max = scored.max as f32;
    let mut gaps = [0.0_f32; CHUNK];
    for (chunk, &(low, high)) in scored.row.chunks.iter().zip(scored.bounds) {
        if max - low as f32 <= INVISIBLE_NATS {
            visible.push(*chunk);
            continue;
        }
        if max - high as f32 > INVISIBLE_NATS {
            continue;
        }
        let gaps = &mut gaps[..chunk.len()];
        scored.table.entries(scored.row, chunk, gaps);
        to_gaps(gaps, max);
        let mut seen = Chunk {
            low: f32::INFINITY,
            high: f32::NEG_INFINITY,
            ..*chunk
        };
        for (&gap, &raw) in gaps.iter().zip(scored.row.scores(chunk)) {
            if gap <= INVISIBLE_NATS {
                seen.low = seen.low.min(raw);
                seen.high = seen.high.max(raw);
            }
        }
        if seen.low <= seen.high {
            visible.push(seen);
        }
    }
}

/// Largest entry of a row: only chunks that could hold it are looked at, nearest keys first.
#[inline(always)]
fn row_max<T: Real>(table: &ScoreTable, row: &Row<'_>, bounds: &[(f64, f64)]) -> T {
    let floor = bounds
        .iter()
        .fold(f64::NEG_INFINITY, |floor, bounds| floor.max(bounds.0));
    let mut max = T::LOWEST;
    let mut entries = [T::ZERO; CHUNK];
    for (chunk, &(_, high)) in row.chunks.iter().zip(bounds).rev() {
        if high > max.to_f64() && high >= floor {
            let entries = &mut entries[..chunk.len()];
            table.entries(row, chunk, entries);
            max = largest(entries, max);
        }
    }
    max
}

/// Sum of `exp(entry - max)`, sum of the same times the gap, and the terms themselves by key. Chunks whose terms are all
/// negligible are passed over, their weights left alone but for the row's first key. The first sum is taken in f32 key after key
/// over every aligned block of [`CHUNK`] keys, and in f64 over those: the order of [`crate::evidence::tile`].
#[inline(always)]
fn row_sum<T: Real>(
    table: &ScoreTable,
    row: &Row<'_>,
    bounds: &[(f64, f64)],
    max: T,
    weights: &mut [f32],
) -> (f64, f64) {
    weights[row.first_key] = 0.0;
    let (mut total, mut gap_sum) = (0.0, 0.0);
    let (mut block, mut in_block) = (0, 0.0_f32);
    let mut gaps = [T::ZERO; CHUNK];
    for (chunk, &(_, high)) in row.chunks.iter().zip(bounds) {
        if max.minus(T::of(high)).to_f64() > UNSUMMED_NATS {
            continue;
        }
        if chunk.start / CHUNK != block {
            total += f64::from(in_block);
            (block, in_block) = (chunk.start / CHUNK, 0.0);
        }
        let gaps = &mut gaps[..chunk.len()];
        let weights = &mut weights[chunk.keys()];
        table.entries(row, chunk, gaps);
        to_gaps(gaps, max);
        exp_of_gaps(gaps, weights);
        in_block = weights.iter().fold(in_block, |sum, weight| sum + weight);
        gap_sum += weighted_gap(weights, gaps);
    }
    (total + f64::from(in_block), gap_sum)
}
