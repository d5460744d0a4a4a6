//! What is fixed while one call on one head is observed: the tables of its score paths, and which plans share them.

use std::ops::Range;
use std::sync::Arc;

use kernels::{ScoreRows, ScoreTile, SpareScores};
use numerics::{Format, MaxReference, PrecisionPlan, RowPlace, ScoreSpec};

use crate::evidence::collector::Job;
use crate::evidence::lanes::LaneTable;
use crate::evidence::plan_mass::changes_mass;
use crate::evidence::row::{Chunk, cut, valid_runs};
use crate::evidence::rules::{CAST_NATS, LN_SUM_ERROR, UNSUMMED_NATS};
use crate::evidence::scan::CHUNK;
use crate::evidence::slack::Slack;
use crate::evidence::table::ScoreTable;

/// Plans that compute the same entries, and those entries.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) table: ScoreTable,
    /// The same for tiles, where there is such a form.
    pub(crate) lanes: Option<LaneTable>,
    /// Indices into the job's plans. The first group is this tool's own forward pass, and may have none.
    pub(crate) plans: Vec<usize>,
    /// Those whose numerators are f32 or wider: sums of narrower ones are others for each plan, and taken row by row.
    pub(crate) wide: Vec<usize>,
    /// The others.
    pub(crate) narrow: Vec<usize>,
    pub(crate) slack: Slack,
    /// The forward pass itself.
    is_own: bool,
    /// Largest gap that decides anything, nats.
    pub(crate) most: f64,
    /// The sums of its rows are those of the forward pass: its entries differ from those by f32 roundings only.
    pub(crate) shares_sum: bool,
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
            wide: Vec::new(),
            narrow: Vec::new(),
            slack,
            most: UNSUMMED_NATS,
            shares_sum,
            is_own: own.is_none(),
            has_mass: false,
        }
    }

    /// How far the logarithm of a row's sum may be off, nats. `raw_max`: the largest absolute raw score that the row sees.
    #[inline(always)]
    pub(crate) fn sum_error(&self, raw_max: f32) -> f64 {
        if self.shares_sum && !self.is_own {
            self.slack.nats(raw_max, UNSUMMED_NATS).max(LN_SUM_ERROR)
        } else {
            LN_SUM_ERROR
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
    pub(crate) n_keys: usize,
    /// Keys before the first valid one: sequences are counted from there.
    pub(crate) pad: usize,
    pub(crate) runs: Vec<Range<usize>>,
    pub(crate) step: usize,
    pub(crate) groups: Vec<Group>,
    /// Scores that no count needs one by one.
    pub(crate) spare: Option<SpareScores>,
}

impl Call {
    pub(crate) fn of_rows(job: &Job, layer: usize, rows: &ScoreRows<'_>) -> Self {
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
    pub(crate) fn of_tile(job: &Job, layer: usize, tile: &ScoreTile<'_>) -> Arc<Self> {
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

    /// Where a row is; `query` is counted like its keys.
    pub(crate) fn place(&self, job: &Job, query: usize) -> RowPlace {
        RowPlace {
            query,
            length: self.n_keys - self.pad,
            causal: job.causal,
        }
    }

    /// Cuts one row of a tile as rows are cut.
    pub(crate) fn cut(&self, query: usize, raw: &[f32], chunks: &mut Vec<Chunk>) -> u64 {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || cut(query, raw, raw.len(), &self.runs, self.step, chunks),
        )
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
            let group = &mut groups[group];
            group.plans.push(index);
            let is_narrow = plan.exp.format.significand_bits() < Format::F32.significand_bits();
            let kind = if is_narrow {
                &mut group.narrow
            } else {
                &mut group.wide
            };
            kind.push(index);
            group.has_mass |= changes_mass(plan);
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
        let error = group.sum_error(RAW_MAX);
        let (_, threshold) = job.rules[plan].thresholds(1.0, error).ends();
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
