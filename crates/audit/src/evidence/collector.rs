//! The observer that a forward pass carries.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernels::{AttentionObserver, HeadSink, ScoreRows, ScoreTile, SpareScores};
use model::{LayerObserver, ModelSpec};
use numerics::PrecisionPlan;

use crate::evidence::call::{Call, CallKey};
use crate::evidence::distance::Offsets;
use crate::evidence::head::{HeadCounts, HeadObserver, Scratch};
use crate::evidence::rules::PlanRules;
use crate::evidence::types::{Evidence, HeadEvidence, distance_edges};

/// What to gather.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvidenceOptions {
    /// Most tokens a sequence may have, padding not counted. Longer ones are a mistake of the caller and panic.
    pub length: usize,
    /// Layers to observe; `None` for all. The others run unobserved.
    pub layers: Option<Vec<usize>>,
    /// Heads to observe; `None` for all.
    pub heads: Option<Vec<usize>>,
    /// Whether more than one forward call will be made (several sequences, or a prefill in chunks). Counts of every head
    /// are then kept until the end: `bytes_per_head` times layers times heads.
    pub several_calls: bool,
    /// Count row by row, every score, as encoders and padded sequences are counted anyway: several times slower, the same
    /// counts. What the way by tiles is tested against.
    pub row_by_row: bool,
}

/// What every observer of one collector shares.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) spec: ModelSpec,
    pub(crate) plans: Vec<PrecisionPlan>,
    /// One for each plan.
    pub(crate) rules: Vec<PlanRules>,
    /// The smallest threshold of any row under each plan, nats.
    pub(crate) lowest: Vec<f64>,
    pub(crate) offsets: Offsets,
    pub(crate) edges: Vec<u64>,
    pub(crate) causal: bool,
    options: EvidenceOptions,
    state: Mutex<State>,
    /// The last call by tiles of each head.
    calls: Mutex<BTreeMap<usize, (CallKey, Arc<Call>)>>,
    /// Memory of heads that are done: fresh memory from the system would cost more than what is done in it.
    spare: Mutex<Spare>,
}

#[derive(Debug, Default)]
struct Spare {
    scratch: Vec<Scratch>,
    /// Not cleared.
    counts: Vec<HeadCounts>,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<(usize, usize), HeadCounts>,
    done: BTreeMap<(usize, usize), HeadEvidence>,
    calls: BTreeMap<usize, usize>,
}

impl Job {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere does not make counts wrong: a head is entered whole or not at all.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn calls(&self) -> MutexGuard<'_, BTreeMap<usize, (CallKey, Arc<Call>)>> {
        // Whole calls go in.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        // What a panic interrupted has not come back.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gathers evidence on every head while a model runs; give it to [`model::ForwardOptions`] and ask for [`Evidence`] at the
/// end.
///
/// The result does not depend on the number of threads: a head is observed by one sink in ascending query order, and calls
/// are merged in the order in which they were made.
#[derive(Clone)]
pub struct EvidenceCollector {
    job: Arc<Job>,
}

impl fmt::Debug for EvidenceCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvidenceCollector")
            .field("options", &self.job.options)
            .finish_non_exhaustive()
    }
}

impl EvidenceCollector {
    /// A collector for one model. Plans must have been resolved for the model's family.
    #[must_use]
    pub fn new(spec: &ModelSpec, plans: Vec<PrecisionPlan>, options: EvidenceOptions) -> Self {
        let causal = spec.alibi.convention.causal;
        let plans: Vec<PrecisionPlan> = plans
            .into_iter()
            .map(|plan| plan.for_head_width(spec.head_width))
            .collect();
        let rules: Vec<PlanRules> = plans.iter().map(PlanRules::new).collect();
        let lowest = |rules: &PlanRules| rules.lowest(options.length);
        let job = Job {
            spec: spec.clone(),
            lowest: rules.iter().map(lowest).collect(),
            rules,
            plans,
            offsets: Offsets::new(options.length, causal),
            edges: distance_edges(options.length),
            causal,
            options,
            state: Mutex::default(),
            calls: Mutex::default(),
            spare: Mutex::default(),
        };
        Self { job: Arc::new(job) }
    }

    /// Bytes that one head takes while its layer runs; as many heads as there are threads run at a time, and all heads of a
    /// layer are kept until it is done.
    #[must_use]
    pub fn bytes_per_head(length: u64, causal: bool, n_plans: u64) -> u64 {
        HeadCounts::bytes(length, causal, n_plans)
    }

    /// Everything gathered so far.
    #[must_use]
    pub fn finish(&self) -> Evidence {
        let state = self.job.state();
        let mut heads = state.done.clone();
        for (&(layer, head), counts) in &state.open {
            heads.insert((layer, head), counts.finish(&self.job, layer, head));
        }
        Evidence {
            length: self.job.options.length,
            calls: state.calls.values().copied().max().unwrap_or(0),
            causal: self.job.causal,
            edges: self.job.edges.clone(),
            plans: self
                .job
                .plans
                .iter()
                .map(|plan| plan.key().to_owned())
                .collect(),
            heads: heads.into_values().collect(),
        }
    }
}

impl LayerObserver for EvidenceCollector {
    fn layer(&self, layer: usize) -> Option<Arc<dyn AttentionObserver>> {
        let wanted = self
            .job
            .options
            .layers
            .as_ref()
            .is_none_or(|layers| layers.contains(&layer));
        wanted.then(|| {
            Arc::new(LayerSinks {
                job: Arc::clone(&self.job),
                layer,
            }) as Arc<dyn AttentionObserver>
        })
    }

    fn layer_done(&self, layer: usize) {
        let mut state = self.job.state();
        *state.calls.entry(layer).or_default() += 1;
        if self.job.options.several_calls {
            return;
        }
        let heads: Vec<_> = state
            .open
            .range((layer, 0)..(layer + 1, 0))
            .map(|(&key, _)| key)
            .collect();
        for (layer, head) in heads {
            let counts = state
                .open
                .remove(&(layer, head))
                .expect("the key was just seen");
            let evidence = counts.finish(&self.job, layer, head);
            self.job.spare().counts.push(counts);
            let earlier = state.done.insert((layer, head), evidence);
            assert!(
                earlier.is_none(),
                "a second call needs EvidenceOptions::several_calls"
            );
        }
    }
}

/// The sinks of one layer.
#[derive(Debug)]
struct LayerSinks {
    job: Arc<Job>,
    layer: usize,
}

impl AttentionObserver for LayerSinks {
    fn takes_tiles(&self) -> bool {
        !self.job.options.row_by_row
    }

    fn begin(&self, head: usize) -> Box<dyn HeadSink> {
        let wanted = self
            .job
            .options
            .heads
            .as_ref()
            .is_none_or(|heads| heads.contains(&head));
        let observer = wanted.then(|| {
            let mut spare = self.job.spare();
            let (scratch, counts) = (spare.scratch.pop(), spare.counts.pop());
            drop(spare);
            let counts = counts.map(|mut counts| {
                counts.clear();
                counts
            });
            HeadObserver::new(
                self.layer,
                counts.unwrap_or_else(|| HeadCounts::new(self.job.offsets, &self.job.plans)),
                scratch.unwrap_or_default(),
            )
        });
        Box::new(Sink {
            job: Arc::clone(&self.job),
            observer,
        })
    }

    fn finish(&self, head: usize, sink: Box<dyn HeadSink>) {
        let sink: Box<dyn Any> = sink;
        let sink = sink.downcast::<Sink>().expect("the sink that `begin` gave");
        let Some(observer) = sink.observer else {
            return;
        };
        let (counts, scratch) = observer.into_parts();
        self.job.spare().scratch.push(scratch);
        let mut state = self.job.state();
        match state.open.get_mut(&(self.layer, head)) {
            Some(earlier) => {
                earlier.merge(&counts);
                self.job.spare().counts.push(counts);
            }
            None => {
                state.open.insert((self.layer, head), counts);
            }
        }
    }
}

struct Sink {
    job: Arc<Job>,
    observer: Option<HeadObserver>,
}

impl HeadSink for Sink {
    fn rows(&mut self, rows: &ScoreRows<'_>) {
        if let Some(observer) = &mut self.observer {
            observer.rows(&self.job, rows);
        }
    }

    fn tile(&mut self, tile: &ScoreTile<'_>) {
        if let Some(observer) = &mut self.observer {
            observer.tile(&self.job, tile);
        }
    }

    fn spare_scores(&self) -> Option<SpareScores> {
        match &self.observer {
            Some(observer) => observer.spare_scores(),
            // Nobody looks.
            None => Some(SpareScores {
                gap: 0.0,
                raw_max: f32::MAX,
            }),
        }
    }
}
