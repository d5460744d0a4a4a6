//! What `audit::probe` found, in the words of the schema.

use crate::number::finite;
use crate::schema::{ProbeArea, ProbeCell, ProbeSample, ProbeScore};
use audit::eval::{Moments, wilson};
use audit::probe::{CellPrompts, SampleResult, area};

impl From<&SampleResult> for ProbeSample {
    fn from(sample: &SampleResult) -> Self {
        Self {
            key: sample.key.clone(),
            hit: sample.hit,
            answer: sample.answer.clone(),
            log_probability: finite(sample.log_probability),
            answer_tokens: sample.answer_tokens as u64,
            first_rank: sample.first_rank.into(),
            largest_rank: sample.largest_rank.into(),
            prompt_tokens: sample.prompt_tokens as u64,
            needle_at: sample.needle_at as u64,
            needle_tokens: sample.needle_tokens as u64,
        }
    }
}

impl ProbeScore {
    /// Sums up samples.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counts
    pub fn of<'a>(samples: impl IntoIterator<Item = &'a ProbeSample>) -> Self {
        let (mut hits, mut n, mut nats) = (0, 0, Moments::default());
        for sample in samples {
            n += 1;
            hits += u64::from(sample.hit);
            nats.extend(sample.log_probability);
        }
        let interval = wilson(hits, n);
        Self {
            samples: n,
            hits,
            accuracy: (n > 0).then(|| hits as f64 / n as f64),
            accuracy_low: interval.map(|interval| interval.low),
            accuracy_high: interval.map(|interval| interval.high),
            log_probability: nats.mean(),
            log_probability_standard_error: nats.standard_error(),
        }
    }
}

impl ProbeCell {
    /// A cell and its samples.
    #[must_use]
    pub fn new(prompts: &CellPrompts, samples: &[SampleResult]) -> Self {
        let results: Vec<ProbeSample> = samples.iter().map(ProbeSample::from).collect();
        Self {
            length: prompts.length as u64,
            depth: prompts.depth,
            true_depth: prompts.true_depth,
            score: ProbeScore::of(&results),
            what_if: Vec::new(),
            results,
        }
    }
}

impl ProbeArea {
    /// Sums up the cells that `belongs` picks; `None` where it picks none.
    #[must_use]
    pub fn of(cells: &[ProbeCell], belongs: impl Fn(&ProbeCell) -> bool) -> Option<Self> {
        let chosen: Vec<&ProbeCell> = cells.iter().filter(|cell| belongs(cell)).collect();
        let point = |cell: &&ProbeCell| {
            let length = usize::try_from(cell.length).unwrap_or(usize::MAX);
            Some((length, cell.depth, cell.score.accuracy?))
        };
        let points: Vec<_> = chosen.iter().filter_map(point).collect();
        (!chosen.is_empty()).then(|| Self {
            cells: chosen.len() as u64,
            area_under_accuracy: area(&points),
            score: ProbeScore::of(chosen.iter().flat_map(|cell| &cell.results)),
        })
    }
}
