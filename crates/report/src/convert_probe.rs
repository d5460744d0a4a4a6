//! What `audit::probe` found, in the words of the schema.

use crate::number::finite;
use crate::schema::{
    ProbeArea, ProbeCell, ProbeHeadSight, ProbeNeedle, ProbePrompt, ProbePromptCell, ProbeSample,
    ProbeScore, ProbeWhatIf, ProbeWitness,
};
use audit::eval::{Moments, wilson};
use audit::probe::{
    CellPrompts, HeadSight, Needle, PlanWitness, SampleResult, Sight, WhatIf, area,
};

/// Ids of a prompt that are kept.
const FIRST_IDS: usize = 10;

impl From<&SampleResult> for ProbeSample {
    fn from(sample: &SampleResult) -> Self {
        Self {
            key: sample.key.clone(),
            hit: sample.hit,
            values_right: sample.values_right as u64,
            values_asked: sample.values_asked as u64,
            answer: sample.answer.clone(),
            log_probability: finite(sample.log_probability),
            answer_tokens: sample.answer_tokens as u64,
            first_rank: sample.first_rank.into(),
            largest_rank: sample.largest_rank.into(),
            prompt_tokens: sample.prompt_tokens as u64,
            needle_at: sample.needle_at as u64,
            needle_tokens: sample.needle_tokens as u64,
            needles: sample.needles.iter().map(ProbeNeedle::from).collect(),
            prompt_hash: String::new(),
        }
    }
}

impl From<&Needle> for ProbeNeedle {
    fn from(needle: &Needle) -> Self {
        Self {
            value: needle.value.clone(),
            at: needle.at as u64,
            tokens: needle.tokens as u64,
            asked: needle.asked,
        }
    }
}

impl From<&HeadSight> for ProbeHeadSight {
    fn from(head: &HeadSight) -> Self {
        Self {
            layer: head.layer as u64,
            head: head.head as u64,
            weight: finite(head.weight),
            distance: head.distance as u64,
            sight: head.sight.name().to_owned(),
            samples_seen: head.samples_seen as u64,
        }
    }
}

impl From<&PlanWitness> for ProbeWitness {
    fn from(witness: &PlanWitness) -> Self {
        let count = |sight| {
            witness
                .heads
                .iter()
                .filter(|head| head.sight == sight)
                .count() as u64
        };
        Self {
            plan: witness.plan.clone(),
            heads: witness.heads.len() as u64,
            seen: count(Sight::Seen),
            sub_ulp: count(Sight::SubUlp),
            blind: count(Sight::Blind),
            by_head: witness.heads.iter().map(ProbeHeadSight::from).collect(),
        }
    }
}

impl ProbePromptCell {
    /// The prompts of a cell; `hash` is the BLAKE3 hash of a prompt's ids.
    #[must_use]
    pub fn new(cell: &CellPrompts, hash: impl Fn(&[u32]) -> String) -> Self {
        let prompts = cell.prompts.iter().map(|prompt| ProbePrompt {
            key: prompt.key(),
            prompt_tokens: (cell.shared.len() + prompt.rest.len()) as u64,
            answer_tokens: prompt.answer.len() as u64,
            prompt_hash: hash(&cell.ids(prompt)),
            needles: prompt.needles.iter().map(ProbeNeedle::from).collect(),
        });
        Self {
            length: cell.length as u64,
            depth: cell.depth,
            true_depth: cell.true_depth,
            shared_tokens: cell.shared.len() as u64,
            answer_room: cell.answer_room as u64,
            first_ids: first_ids(cell),
            prompts: prompts.collect(),
        }
    }
}

fn first_ids(cell: &CellPrompts) -> Vec<u32> {
    let rest = cell.prompts.first().map(|prompt| &prompt.rest);
    let ids = cell.shared.iter().chain(rest.into_iter().flatten());
    ids.take(FIRST_IDS).copied().collect()
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
    /// A cell and its samples, without hashes of the prompts and what the heads saw.
    #[must_use]
    pub fn new(prompts: &CellPrompts, samples: &[SampleResult]) -> Self {
        let results: Vec<ProbeSample> = samples.iter().map(ProbeSample::from).collect();
        Self {
            length: prompts.length as u64,
            depth: prompts.depth,
            true_depth: prompts.true_depth,
            score: ProbeScore::of(&results),
            what_if: Vec::new(),
            causes: Vec::new(),
            first_ids: first_ids(prompts),
            witness: Vec::new(),
            results,
        }
    }

    /// Adds what the samples became under a change, and judges whether that tells a cause.
    pub fn add_what_if(&mut self, change: &WhatIf, samples: &[SampleResult]) {
        let samples: Vec<ProbeSample> = samples.iter().map(ProbeSample::from).collect();
        let score = ProbeScore::of(&samples);
        let tests = change.tests().to_owned();
        if score.accuracy_low > self.score.accuracy_high && !self.causes.contains(&tests) {
            self.causes.push(tests.clone());
        }
        self.what_if.push(ProbeWhatIf {
            change: change.name().to_owned(),
            tests,
            score,
        });
    }

    /// With the hash of every prompt, as [`ProbePromptCell::new`] takes it.
    #[must_use]
    pub fn hashed(mut self, prompts: &CellPrompts, hash: impl Fn(&[u32]) -> String) -> Self {
        for (result, prompt) in self.results.iter_mut().zip(&prompts.prompts) {
            result.prompt_hash = hash(&prompts.ids(prompt));
        }
        self
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(hit: bool) -> SampleResult {
        SampleResult {
            key: "1".into(),
            hit,
            values_right: usize::from(hit),
            values_asked: 1,
            answer: String::new(),
            log_probability: -1.0,
            answer_tokens: 1,
            first_rank: 0,
            largest_rank: 0,
            prompt_tokens: 9,
            needle_at: 1,
            needle_tokens: 2,
            needles: Vec::new(),
        }
    }

    #[test]
    fn a_change_that_finds_much_more_is_a_cause() {
        let samples = |hits| -> Vec<SampleResult> { (0..20).map(|n| sample(n < hits)).collect() };
        let prompts = CellPrompts {
            length: 10,
            depth: 0.5,
            true_depth: None,
            shared: vec![],
            prompts: vec![],
            answer_room: 1,
            values: audit::probe::ValueKind::Number,
            any_order: false,
        };
        let mut cell = ProbeCell::new(&prompts, &samples(2));
        // intervals overlap
        cell.add_what_if(&WhatIf::parse("slopes/2").unwrap(), &samples(5));
        assert!(cell.causes.is_empty());
        cell.add_what_if(&WhatIf::parse("clamp=-12").unwrap(), &samples(20));
        cell.add_what_if(&WhatIf::parse("clamp=-10").unwrap(), &samples(20));
        assert_eq!(cell.causes, ["bias"]);
        cell.add_what_if(&WhatIf::parse("interpolate=0.5").unwrap(), &samples(19));
        assert_eq!(cell.what_if.len(), 4);
    }
}
