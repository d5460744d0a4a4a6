//! Which heads had the fact within sight where the answer is due.
//!
//! The last token of a prompt is run once more by itself, on the keys and values that the cache holds, and watched: one row of scores a
//! head, so that memory stays linear in the length and no answer changes. Each row is then computed under each plan, with its
//! roundings ([`numerics::emulate_entries`]).

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernels::{AttentionObserver, HeadSink, RowView, ScoreRows};
use model::{LayerObserver, ModelSpec};
use numerics::{Criterion, PrecisionPlan, RowPlace, ScoreSpec, emulate_entries};

/// What a head makes of the fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    /// Every weight on it is exactly zero.
    Blind,
    /// Not zero, and at most half an ulp of 1 in the plan's output format (`2^-p`, `p` the bits of its significand): among values of
    /// one size it cannot change the output.
    SubUlp,
    /// A weight above that.
    Seen,
}

impl Sight {
    /// `seen`, `sub-ulp` or `blind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blind => "blind",
            Self::SubUlp => "sub-ulp",
            Self::Seen => "seen",
        }
    }
}

/// What one head saw of the fact from the place where the answer is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadSight {
    /// Layer.
    pub layer: usize,
    /// Head in its layer.
    pub head: usize,
    /// Largest weight on a token of the fact, as a share of the row's, over all samples.
    pub weight: f64,
    /// Distance, tokens, to the token that has it; to the nearest token of the fact where all weights are zero.
    pub distance: usize,
    /// What that weight is worth.
    pub sight: Sight,
    /// Samples in which the fact was seen.
    pub samples_seen: usize,
}

/// What the heads saw under one plan, by layer, then head.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanWitness {
    /// Key of the plan.
    pub plan: String,
    /// One entry a head.
    pub heads: Vec<HeadSight>,
}

/// Watches the last row of a forward call, of as many calls as there are samples.
#[derive(Clone, Debug)]
pub(super) struct Witness(Arc<Job>);

#[derive(Debug)]
struct Job {
    spec: ModelSpec,
    plans: Vec<PrecisionPlan>,
    /// Keys of the fact.
    needles: Mutex<Vec<Range<usize>>>,
    /// One entry a plan, for every (layer, head).
    heads: Mutex<BTreeMap<(usize, usize), Vec<HeadSight>>>,
}

/// A panic elsewhere leaves whole entries.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Witness {
    /// Plans must have been resolved for the model's family.
    pub(super) fn new(spec: &ModelSpec, plans: &[PrecisionPlan]) -> Self {
        let plans = plans.iter().cloned();
        Self(Arc::new(Job {
            spec: spec.clone(),
            plans: plans
                .map(|plan| plan.for_head_width(spec.head_width))
                .collect(),
            needles: Mutex::default(),
            heads: Mutex::default(),
        }))
    }

    /// An observer of one call, whose keys of the fact are `needles`.
    pub(super) fn observer(&self, needles: Vec<Range<usize>>) -> Arc<dyn LayerObserver> {
        *lock(&self.0.needles) = needles;
        Arc::new(self.clone())
    }

    /// What was seen in all calls since the last time.
    pub(super) fn take(&self) -> Vec<PlanWitness> {
        let heads = std::mem::take(&mut *lock(&self.0.heads));
        let plans = self.0.plans.iter().enumerate();
        let of_plan = |(index, plan): (usize, &PrecisionPlan)| PlanWitness {
            plan: plan.key().to_owned(),
            heads: heads.values().map(|plans| plans[index]).collect(),
        };
        plans.map(of_plan).collect()
    }
}

impl LayerObserver for Witness {
    fn layer(&self, layer: usize) -> Option<Arc<dyn AttentionObserver>> {
        let job = Arc::clone(&self.0);
        Some(Arc::new(LayerWatch { job, layer }))
    }
}

#[derive(Debug)]
struct LayerWatch {
    job: Arc<Job>,
    layer: usize,
}

impl AttentionObserver for LayerWatch {
    fn begin(&self, head: usize) -> Box<dyn HeadSink> {
        Box::new(Sink {
            job: Arc::clone(&self.job),
            layer: self.layer,
            head,
            seen: Vec::new(),
        })
    }

    fn finish(&self, head: usize, sink: Box<dyn HeadSink>) {
        let sink: Box<dyn Any> = sink;
        let Ok(sink) = sink.downcast::<Sink>() else {
            return;
        };
        let mut heads = lock(&self.job.heads);
        match heads.get_mut(&(self.layer, head)) {
            Some(earlier) => {
                for (earlier, new) in earlier.iter_mut().zip(&sink.seen) {
                    earlier.merge(new);
                }
            }
            None => {
                heads.insert((self.layer, head), sink.seen);
            }
        }
    }
}

impl HeadSight {
    /// Samples come in a fixed order, so that of equal weights the earliest stays.
    fn merge(&mut self, new: &Self) {
        let samples_seen = self.samples_seen + new.samples_seen;
        if new.weight > self.weight {
            *self = *new;
        }
        self.samples_seen = samples_seen;
    }
}

struct Sink {
    job: Arc<Job>,
    layer: usize,
    head: usize,
    seen: Vec<HeadSight>,
}

impl HeadSink for Sink {
    fn rows(&mut self, rows: &ScoreRows<'_>) {
        if let Some(last) = rows.n_rows.checked_sub(1) {
            let row = rows.row(last);
            let plans = self.job.plans.iter();
            self.seen = plans.map(|plan| self.sight(plan, &row)).collect();
        }
    }
}

impl Sink {
    fn sight(&self, plan: &PrecisionPlan, row: &RowView<'_>) -> HeadSight {
        let spec = &self.job.spec;
        let path = plan.score_path(&ScoreSpec {
            bias: &spec.alibi.bias,
            head: self.head,
            slope: spec.alibi.slopes[self.head],
            scale: f64::from(spec.score_scale(self.layer)),
            causal: spec.alibi.convention.causal,
            length: row.keys.len() as u64,
        });
        let entries = row.raw.iter().enumerate();
        let entries = entries.map(|(key, &raw)| path.entry_scaled(raw, row.query, key));
        let place = RowPlace {
            query: row.query,
            length: row.keys.len(),
            causal: spec.alibi.convention.causal,
        };
        let emulated = emulate_entries(plan, entries.collect(), place, Criterion::Plan);
        let mut weight = 0.0;
        let needles = lock(&self.job.needles);
        let keys = needles.iter().cloned().flatten();
        let mut distance = keys
            .clone()
            .map(|key| row.query - key)
            .min()
            .unwrap_or_default();
        for key in keys {
            let share = emulated.weights[key] / emulated.divisor;
            if share > weight {
                (weight, distance) = (share, row.query - key);
            }
        }
        let half_ulp = 2f64.powi(-(plan.output.significand_bits() as i32));
        let sight = match weight {
            0.0 => Sight::Blind,
            _ if weight <= half_ulp => Sight::SubUlp,
            _ => Sight::Seen,
        };
        HeadSight {
            layer: self.layer,
            head: self.head,
            weight,
            distance,
            sight,
            samples_seen: usize::from(sight == Sight::Seen),
        }
    }
}
