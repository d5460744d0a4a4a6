//! Counting the blind pairs of one head under one plan.
//!
//! Per chunk of keys the gap of every pair lies between two bounds. Mostly both are on the same side of the threshold and
//! the whole chunk is decided at once; only chunks that straddle it are looked at pair by pair. The counts are the same as
//! those of a loop over all pairs, because the bounds are computed with the same monotone roundings as the entries.

mod streamed;

pub(crate) use streamed::{decay_of_rises, is_lost};

use numerics::plan::MaxReference;
use numerics::{Format, PrecisionPlan};

use crate::evidence::distance::{OffsetCounts, Offsets, bin_counts};
use crate::evidence::plan_mass::{FlushingCast, PlanMass, changes_mass};
use crate::evidence::rules::PlanRules;
use crate::evidence::scan::{CHUNK, Real, add_above, count_above, exp_of_gaps, sum, to_gaps};
use crate::evidence::scored::ScoredRow;
use crate::evidence::types::PlanEvidence;

/// Counts of one head under one plan.
#[derive(Clone, Debug)]
pub(crate) struct PlanCounts {
    pub(crate) numerator: u64,
    pub(crate) weight: u64,
    pub(crate) blind: u64,
    pub(crate) undecided: u64,
    pub(crate) non_finite_rows: u64,
    /// Pairs of those rows; `None` without such a row.
    non_finite: Option<Box<OffsetCounts>>,
    pub(crate) by_offset: OffsetCounts,
    /// Where the plan's roundings can change it.
    pub(crate) mass: Option<PlanMass>,
}

impl PlanCounts {
    pub(crate) fn new(plan: &PrecisionPlan, offsets: Offsets) -> Self {
        Self {
            numerator: 0,
            weight: 0,
            blind: 0,
            undecided: 0,
            non_finite_rows: 0,
            non_finite: None,
            by_offset: OffsetCounts::new(offsets),
            mass: changes_mass(plan).then(|| PlanMass::new(offsets)),
        }
    }

    pub(crate) fn clear(&mut self) {
        (self.numerator, self.weight, self.blind) = (0, 0, 0);
        (self.undecided, self.non_finite_rows) = (0, 0);
        self.non_finite = None;
        self.by_offset.clear();
        if let Some(mass) = &mut self.mass {
            mass.clear();
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.numerator += other.numerator;
        self.weight += other.weight;
        self.blind += other.blind;
        self.undecided += other.undecided;
        self.non_finite_rows += other.non_finite_rows;
        match (&mut self.non_finite, &other.non_finite) {
            (Some(pairs), Some(more)) => pairs.merge(more),
            (None, Some(_)) => self.non_finite.clone_from(&other.non_finite),
            (_, None) => {}
        }
        self.by_offset.merge(&other.by_offset);
        if let (Some(mass), Some(more)) = (&mut self.mass, &other.mass) {
            mass.merge(more);
        }
    }

    /// Takes a row whose scores overflow under the plan: its pairs, by offset, are neither blind nor seen.
    #[cold]
    pub(crate) fn overflow(
        &mut self,
        offsets: Offsets,
        runs: impl IntoIterator<Item = std::ops::Range<usize>>,
    ) {
        self.non_finite_rows += 1;
        let pairs = self
            .non_finite
            .get_or_insert_with(|| Box::new(OffsetCounts::new(offsets)));
        for run in runs {
            pairs.add_run(run);
        }
    }

    /// Takes one row. `weights` holds `exp(entry - max)` of the chunks that are not negligible.
    #[inline(always)]
    pub(crate) fn row<T: Real>(
        &mut self,
        plan: &PrecisionPlan,
        rules: &PlanRules,
        offsets: Offsets,
        scored: &ScoredRow<'_>,
        weights: &[f32],
    ) {
        if !scored.max.is_finite() {
            let row = scored.row;
            let runs = row.chunks.iter().map(|chunk| row.offsets(chunk));
            return self.overflow(offsets, runs);
        }
        let scored = &ScoredRow {
            sum: sum_as_held::<T>(plan, scored),
            ..*scored
        };
        if let Some(mass) = &mut self.mass {
            mass.row(plan, scored, weights);
        }
        match plan.max_reference {
            MaxReference::Final => self.whole_row::<T>(rules, scored),
            MaxReference::Running { key_block, order } => {
                self.final_criteria::<T>(rules, scored);
                self.streamed::<T>(plan, rules, scored, key_block, order);
            }
        }
    }

    /// The plan's own rule against the row's maximum, and the two named criteria.
    #[inline(always)]
    fn whole_row<T: Real>(&mut self, rules: &PlanRules, scored: &ScoredRow<'_>) {
        let thresholds = rules.thresholds(scored.sum, scored.sum_error);
        let (least, most) = thresholds.ends();
        let (least, most) = (T::floor(least), T::floor(most));
        let [own, below, above, numerator, weight] = [
            thresholds.own,
            thresholds.below,
            thresholds.above,
            thresholds.numerator,
            thresholds.weight,
        ]
        .map(T::floor);
        let max = T::of(scored.max);
        let mut run = Run::default();
        let mut gaps = [T::ZERO; CHUNK];
        for (chunk, &(low, high)) in scored.row.chunks.iter().zip(scored.bounds) {
            let pairs = chunk.len() as u64;
            if max.minus(T::of(low)) <= least {
                continue;
            }
            if max.minus(T::of(high)) > most {
                self.numerator += pairs;
                self.weight += pairs;
                self.blind += pairs;
                run.extend(scored.row.offsets(chunk), &mut self.by_offset);
                continue;
            }
            let gaps = &mut gaps[..chunk.len()];
            scored.table.entries(scored.row, chunk, gaps);
            to_gaps(gaps, max);
            self.numerator += count_above(gaps, numerator);
            self.weight += count_above(gaps, weight);
            self.undecided += count_above(gaps, below) - count_above(gaps, above);
            let counters = self.by_offset.singles_mut(scored.row.offsets(chunk));
            self.blind += add_above(gaps, own, counters);
        }
        run.finish(&mut self.by_offset);
    }

    /// The two named criteria, which use the row's own maximum under every plan.
    #[inline(always)]
    fn final_criteria<T: Real>(&mut self, rules: &PlanRules, scored: &ScoredRow<'_>) {
        let numerator = T::floor(rules.numerator);
        let weight = T::floor(rules.weight.gap(scored.sum));
        let (least, most) = if numerator < weight {
            (numerator, weight)
        } else {
            (weight, numerator)
        };
        let max = T::of(scored.max);
        let mut gaps = [T::ZERO; CHUNK];
        for (chunk, &(low, high)) in scored.row.chunks.iter().zip(scored.bounds) {
            if max.minus(T::of(low)) <= least {
                continue;
            }
            if max.minus(T::of(high)) > most {
                self.numerator += chunk.len() as u64;
                self.weight += chunk.len() as u64;
                continue;
            }
            let gaps = &mut gaps[..chunk.len()];
            scored.table.entries(scored.row, chunk, gaps);
            to_gaps(gaps, max);
            self.numerator += count_above(gaps, numerator);
            self.weight += count_above(gaps, weight);
        }
    }

    /// The numbers of the plan; `pairs` by distance.
    pub(crate) fn finish(
        &self,
        key: &str,
        offsets: Offsets,
        pairs: &[u64],
        edges: &[u64],
        own_mass: &[f64],
    ) -> PlanEvidence {
        let blind = self.by_offset.by_distance(offsets);
        let non_finite = match &self.non_finite {
            Some(pairs) => pairs.by_distance(offsets),
            None => Vec::new(),
        };
        let counted = |distance: usize| {
            pairs[distance] - non_finite.get(distance).copied().unwrap_or_default()
        };
        let (mass, total_variation) = match &self.mass {
            Some(mass) => mass.finish(offsets, edges, own_mass),
            None => (own_mass.to_vec(), Some(0.0)),
        };
        PlanEvidence {
            plan: key.to_owned(),
            pairs: pairs.iter().sum(),
            blind_pairs: self.blind,
            blind_numerator: self.numerator,
            blind_weight: self.weight,
            blind_by_distance: bin_counts(&blind, edges),
            first_blind_distance: blind
                .iter()
                .position(|&count| count > 0)
                .map(|distance| distance as u64),
            last_visible_distance: (0..pairs.len())
                .rev()
                .find(|&distance| counted(distance) > blind[distance])
                .map(|distance| distance as u64),
            undecided_pairs: self.undecided,
            non_finite_rows: self.non_finite_rows,
            non_finite_pairs: non_finite.iter().sum(),
            mass_by_distance: mass,
            total_variation,
        }
    }
}

/// The row's sum as the plan holds it. Numerators of 24 bits or more leave it alone; where `exp` itself is
/// rounded to 16 or 8 bits the sum is that of the rounded numerators.
#[inline(always)]
fn sum_as_held<T: Real>(plan: &PrecisionPlan, scored: &ScoredRow<'_>) -> f64 {
    let format = plan.exp.format;
    if format.significand_bits() >= Format::F32.significand_bits() {
        return scored.sum;
    }
    let cast = FlushingCast::new(format, plan.exp.underflow);
    let offset = plan.max_offset;
    let mut total = 0.0;
    let (mut gaps, mut terms) = ([T::ZERO; CHUNK], [0.0_f32; CHUNK]);
    for (chunk, &(_, high)) in scored.row.chunks.iter().zip(scored.bounds) {
        if scored.max - high > plan.exp_zero_nats() {
            continue;
        }
        let (gaps, terms) = (&mut gaps[..chunk.len()], &mut terms[..chunk.len()]);
        scored.table.entries(scored.row, chunk, gaps);
        to_gaps(gaps, T::of(scored.max + offset));
        exp_of_gaps(gaps, terms);
        for term in terms.iter_mut() {
            *term = cast.apply(*term);
        }
        total += sum(terms);
    }
    total * offset.exp()
}

/// Joins neighbouring chunks into one run.
#[derive(Default)]
struct Run {
    open: Option<std::ops::Range<usize>>,
}

impl Run {
    fn extend(&mut self, offsets: std::ops::Range<usize>, counts: &mut OffsetCounts) {
        match &mut self.open {
            Some(open) if open.end == offsets.start => open.end = offsets.end,
            _ => {
                if let Some(open) = self.open.replace(offsets) {
                    counts.add_run(open);
                }
            }
        }
    }

    fn finish(self, counts: &mut OffsetCounts) {
        if let Some(open) = self.open {
            counts.add_run(open);
        }
    }
}
