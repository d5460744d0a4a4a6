//! One head of one layer while it is observed: from tiles of scores to counts.

use std::ops::Range;

use kernels::ScoreRows;
use numerics::{MaxReference, PrecisionPlan, ScaleOrder, ScoreSpec};

use crate::evidence::advantage::Advantage;
use crate::evidence::collector::Job;
use crate::evidence::distance::{OffsetCounts, Offsets, bin_counts, bin_masses, reach};
use crate::evidence::own::{NEGLIGIBLE_NATS, OwnAttention};
use crate::evidence::plan::{PlanCounts, ScoredRow, UNSUMMED_NATS};
use crate::evidence::row::{Chunk, Row, assemble, count_pairs, cut, valid_runs};
use crate::evidence::scan::{CHUNK, Real, exp_of_gaps, largest, sum_and_weighted_gap, to_gaps};
use crate::evidence::table::ScoreTable;
use crate::evidence::types::HeadEvidence;

/// Everything counted about one head. Linear in the length; calls on the same head are merged.
#[derive(Clone, Debug)]
pub(crate) struct HeadCounts {
    offsets: Offsets,
    pairs: OffsetCounts,
    rows: u64,
    non_finite_rows: u64,
    own: OwnAttention,
    advantage: Advantage,
    plans: Vec<PlanCounts>,
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

    /// Bytes of one of these while a layer runs, with the score tables of `n_plans` plans at their largest.
    pub(crate) fn bytes(length: u64, causal: bool, n_plans: u64) -> u64 {
        let offsets = if causal { length } else { 2 * length };
        // Pairs and every plan: 8 + 4 bytes an offset; masses: 8; tables: at most 12 a plan, own table and weights: 8.
        offsets * (20 + 32 * n_plans + 8) + Advantage::BYTES
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
struct Group {
    table: ScoreTable,
    /// Indices into the job's plans. The first group is this tool's own forward pass, and may have none.
    plans: Vec<usize>,
}

/// What is fixed for the duration of a call.
#[derive(Debug)]
struct Call {
    n_keys: usize,
    /// Keys before the first valid one: sequences are counted from there.
    pad: usize,
    runs: Vec<Range<usize>>,
    step: usize,
    groups: Vec<Group>,
}

impl Call {
    fn new(job: &Job, layer: usize, head: usize, rows: &ScoreRows<'_>) -> Self {
        let pad = rows
            .key_valid
            .and_then(|valid| valid.iter().position(|&ok| ok))
            .unwrap_or(0);
        let n_keys = rows.n_keys - pad;
        assert!(
            n_keys <= job.offsets.length(),
            "a sequence of {n_keys} tokens reached a collector made for {}",
            job.offsets.length()
        );
        let mut groups = vec![Group {
            table: ScoreTable::own(rows, pad),
            plans: Vec::new(),
        }];
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
                        groups.push(Group {
                            table,
                            plans: Vec::new(),
                        });
                        groups.len() - 1
                    })
            });
            groups[group].plans.push(index);
        }
        let runs = valid_runs(n_keys, rows.key_valid.map(|valid| &valid[pad..]));
        Self {
            n_keys: rows.n_keys,
            pad,
            runs,
            step: chunk_step(&job.plans),
            groups,
        }
    }
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

/// Buffers that live as long as the head runs.
#[derive(Debug, Default)]
struct Scratch {
    chunks: Vec<Chunk>,
    bounds: Vec<(f64, f64)>,
    weights: Vec<f32>,
}

/// Observes one head during one call.
#[derive(Debug)]
pub(crate) struct HeadObserver {
    layer: usize,
    pub(crate) counts: HeadCounts,
    call: Option<Call>,
    scratch: Scratch,
}

impl HeadObserver {
    pub(crate) fn new(job: &Job, layer: usize) -> Self {
        Self {
            layer,
            counts: HeadCounts::new(job.offsets, &job.plans),
            call: None,
            scratch: Scratch::default(),
        }
    }

    /// Takes the next rows.
    pub(crate) fn rows(&mut self, job: &Job, rows: &ScoreRows<'_>) {
        if rows.n_keys == 0 {
            return;
        }
        let layer = self.layer;
        let call = self
            .call
            .get_or_insert_with(|| Call::new(job, layer, rows.head, rows));
        assert_eq!(call.n_keys, rows.n_keys, "one call, one number of keys");
        let (counts, scratch) = (&mut self.counts, &mut self.scratch);
        // The same source for every instruction set: what is inlined below is compiled for each.
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || take_rows(counts, job, call, rows, scratch),
        );
    }
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
        counts.take(job, call, &row, scratch);
        scratch.chunks = chunks;
    }
}

impl HeadCounts {
    #[inline(always)]
    fn take(&mut self, job: &Job, call: &Call, row: &Row<'_>, scratch: &mut Scratch) {
        self.rows += 1;
        count_pairs(row, &mut self.pairs);
        self.own.scores(row);
        self.advantage.row(row);
        scratch
            .weights
            .resize(scratch.weights.len().max(row.raw.len()), 0.0);
        for (index, group) in call.groups.iter().enumerate() {
            if group.table.is_wide() {
                self.take_group::<f64>(job, group, row, scratch, false);
            } else {
                self.take_group::<f32>(job, group, row, scratch, index == 0);
            }
        }
    }

    #[inline(always)]
    fn take_group<T: Real>(
        &mut self,
        job: &Job,
        group: &Group,
        row: &Row<'_>,
        scratch: &mut Scratch,
        own: bool,
    ) {
        let table = &group.table;
        table.bounds::<T>(row, &mut scratch.bounds);
        let max = row_max::<T>(table, row, &scratch.bounds);
        let negligible = if own { NEGLIGIBLE_NATS } else { UNSUMMED_NATS };
        let (sum, gap_sum) = row_sum(
            table,
            row,
            &scratch.bounds,
            max,
            negligible,
            &mut scratch.weights,
        );
        let scored = ScoredRow {
            row,
            table,
            bounds: &scratch.bounds,
            max: max.to_f64(),
            ln_sum: sum.ln(),
        };
        if own {
            self.own.row(&scored, &scratch.weights, sum, gap_sum);
        }
        for &plan in &group.plans {
            self.plans[plan].row::<T>(&job.plans[plan], &scored, &scratch.weights);
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
/// negligible are passed over, their weights left alone but for the row's first key.
#[inline(always)]
fn row_sum<T: Real>(
    table: &ScoreTable,
    row: &Row<'_>,
    bounds: &[(f64, f64)],
    max: T,
    negligible: f64,
    weights: &mut [f32],
) -> (f64, f64) {
    weights[row.first_key] = 0.0;
    let (mut total, mut gap_sum) = (0.0, 0.0);
    let mut gaps = [T::ZERO; CHUNK];
    for (chunk, &(_, high)) in row.chunks.iter().zip(bounds) {
        if max.minus(T::of(high)).to_f64() > negligible {
            continue;
        }
        let gaps = &mut gaps[..chunk.len()];
        let weights = &mut weights[chunk.keys()];
        table.entries(row, chunk, gaps);
        to_gaps(gaps, max);
        exp_of_gaps(gaps, weights);
        let (sum, weighted) = sum_and_weighted_gap(weights, gaps);
        total += sum;
        gap_sum += weighted;
    }
    (total, gap_sum)
}
