//! Loss on held-out text, and recall by distance.
//!
//! A finished run is looked at in the same ways, at any length, by [`super::Evaluation`].

use serde::{Deserialize, Serialize};

use crate::data::recall::{Group, Question, RecallTask};
use crate::data::shard::Tokens;
use crate::network::{Batch, Network, Workspace};
use crate::rng::{self, Stream};

/// Rows of an evaluation call.
const ROWS: usize = 4096;

/// Rows of a call over sequences of `length`: as many sequences as fit, at least one.
pub(super) fn rows_of_a_call(length: usize) -> usize {
    (ROWS / length).max(1) * length
}

/// Recall at distances `from .. to`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecallCell {
    /// `passkey`, `pair` or `needle`.
    pub task: String,
    /// Smallest distance, tokens.
    pub from: u64,
    /// Distance after the largest.
    pub to: u64,
    /// Questions.
    pub questions: u64,
    /// Answered right: the right token is the likeliest of its task's answers.
    pub right: u64,
    /// Mean loss of the right answer over the whole vocabulary, nats.
    pub loss: f64,
}

/// Mean loss in nats of the first tokens of `held`, in sequences of `length` with fresh context each, as in training with
/// `document_mask` in each document of them; and how many were predicted. `None` where there is not one sequence.
pub(crate) fn held_loss(
    network: &Network,
    params: &[f32],
    held: &Tokens,
    length: usize,
    tokens_max: usize,
    document_mask: bool,
    work: &mut Workspace,
) -> Option<(f64, u64)> {
    let available = held.ids.len().saturating_sub(1) / length;
    let sequences = (tokens_max / length).max(1).min(available);
    if sequences == 0 {
        return None;
    }
    let per_call = rows_of_a_call(length) / length;
    let (mut total, mut count) = (0.0f64, 0u64);
    let mut first = 0;
    while first < sequences {
        let n = per_call.min(sequences - first);
        let mut text = Vec::new();
        held.ids
            .copy(first * length..(first + n) * length + 1, &mut text);
        let rows = n * length;
        let weights = vec![1.0; rows];
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(n);
        for sequence in 0..n {
            let (begin, mut from) = (sequence * length, sequence * length);
            if document_mask {
                for end in held.ends_inside((first + sequence) * length, length) {
                    places.push((from, begin + end));
                    from = begin + end;
                }
            }
            places.push((from, begin + length));
        }
        let losses = network.losses(
            params,
            &Batch {
                ids: &text[..rows],
                targets: &text[1..],
                weights: &weights,
                sequences: &places,
            },
            work,
        );
        total += losses.iter().map(|l| f64::from(*l)).sum::<f64>();
        count += rows as u64;
        first += n;
    }
    Some((total / count as f64, count))
}

/// Edges of the distance bins of sequences of `length`: powers of two from 16 on, then the length.
pub(crate) fn recall_edges(length: usize) -> Vec<u64> {
    let mut edges = vec![1];
    let mut edge = 16;
    while edge < length as u64 {
        edges.push(edge);
        edge *= 2;
    }
    edges.push(length as u64);
    edges.dedup();
    edges
}

/// Recall over `sequences` sequences of `length` held-out tokens with tasks laid in, by distance. The tasks depend on `seed`, the
/// length and the sequence's number alone.
#[allow(clippy::too_many_arguments, reason = "one experiment")]
pub(crate) fn recall(
    network: &Network,
    params: &[f32],
    task: &RecallTask,
    held: &Tokens,
    length: usize,
    sequences: usize,
    seed: u64,
    work: &mut Workspace,
) -> Vec<RecallCell> {
    let asked = Asked {
        task,
        held,
        length,
        seed,
    };
    asked.recall(network, params, sequences, &recall_edges(length), work)
}

/// Questions laid into held-out text: what they are depends on the seed, the length and a sequence's number alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) task: &'a RecallTask,
    pub(crate) held: &'a Tokens,
    /// Tokens of a sequence.
    pub(crate) length: usize,
    pub(crate) seed: u64,
}

/// Some sequences with their questions.
#[derive(Debug, Default)]
pub(crate) struct AskedBatch {
    pub(crate) ids: Vec<u32>,
    pub(crate) targets: Vec<u32>,
    /// Row in the batch, and the question.
    pub(crate) questions: Vec<(usize, Question)>,
    pub(crate) places: Vec<(usize, usize)>,
}

impl Asked<'_> {
    /// Sequences that lie in the held-out text side by side; more are asked with other tasks in the same text.
    pub(crate) fn windows(&self) -> usize {
        self.held.ids.len().saturating_sub(1) / self.length
    }

    /// Sequences of one call.
    pub(crate) fn per_call(&self) -> usize {
        rows_of_a_call(self.length) / self.length
    }

    /// Sequence `number`, appended to `batch`.
    fn add(&self, number: usize, batch: &mut AskedBatch) {
        let length = self.length;
        let first = batch.ids.len();
        let start = (number % self.windows()) * length;
        let held = &self.held.ids;
        held.copy(start..start + length, &mut batch.ids);
        held.copy(start + 1..start + length + 1, &mut batch.targets);
        let parts = [
            self.seed,
            rng::name("recall evaluation"),
            length as u64,
            number as u64,
        ];
        let mut groups = vec![Group::None; length];
        let asked = self.task.lay(
            &mut batch.ids[first..],
            &mut batch.targets[first..],
            &mut groups,
            &mut Stream::of(&parts),
        );
        let asked = asked.into_iter().map(|q| (first + q.row, q));
        batch.questions.extend(asked);
        batch.places.push((first, first + length));
    }

    /// Sequences `numbers`; the held-out text holds at least one.
    pub(crate) fn batch(&self, numbers: std::ops::Range<usize>) -> AskedBatch {
        let mut batch = AskedBatch::default();
        numbers.for_each(|number| self.add(number, &mut batch));
        batch
    }

    /// Recall of the first `sequences` sequences in the distance bins of `edges`; cells without questions are left out.
    pub(crate) fn recall(
        &self,
        network: &Network,
        params: &[f32],
        sequences: usize,
        edges: &[u64],
        work: &mut Workspace,
    ) -> Vec<RecallCell> {
        let cell = |task: &str, pair: &[u64]| RecallCell {
            task: task.to_owned(),
            from: pair[0],
            to: pair[1],
            questions: 0,
            right: 0,
            loss: 0.0,
        };
        let mut cells: Vec<RecallCell> = Group::ASKED
            .iter()
            .flat_map(|task| edges.windows(2).map(|pair| cell(task.name(), pair)))
            .collect();
        if self.windows() == 0 {
            return Vec::new();
        }
        let mut first = 0;
        while first < sequences {
            let n = self.per_call().min(sequences - first);
            let asked = self.batch(first..first + n);
            let rows: Vec<usize> = asked.questions.iter().map(|(row, _)| *row).collect();
            let weights = vec![0.0; asked.ids.len()];
            let logits = network.logits(params, &asked.as_batch(&weights), &rows, work);
            let answers = logits.chunks_exact(network.shape.vocab);
            for ((_, question), logits) in asked.questions.iter().zip(answers) {
                self.judge(question, logits, &mut cells);
            }
            first += n;
        }
        for cell in &mut cells {
            cell.loss /= cell.questions.max(1) as f64;
        }
        cells.retain(|cell| cell.questions > 0);
        cells
    }

    /// Counts one answer in its cell.
    fn judge(&self, q: &Question, logits: &[f32], cells: &mut [RecallCell]) {
        let (name, distance) = (q.group.name(), q.distance as u64);
        let Some(cell) = cells
            .iter_mut()
            .find(|c| c.task == name && c.from <= distance && distance < c.to)
        else {
            return;
        };
        let wanted = logits[q.answer as usize];
        let mut others = self.task.answers(q.group).iter();
        let best = others.all(|&id| id == q.answer || logits[id as usize] < wanted);
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|z| f64::from(z - max).exp()).sum();
        cell.questions += 1;
        cell.right += u64::from(best);
        cell.loss += sum.ln() - f64::from(wanted - max);
    }
}

impl AskedBatch {
    /// The batch as a network takes it, with a weight for each row.
    pub(crate) fn as_batch<'a>(&'a self, weights: &'a [f32]) -> Batch<'a> {
        Batch {
            ids: &self.ids,
            targets: &self.targets,
            weights,
            sequences: &self.places,
        }
    }
}
