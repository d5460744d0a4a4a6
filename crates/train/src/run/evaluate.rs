//! Loss on held-out text, and recall by distance.

use serde::{Deserialize, Serialize};

use crate::data::recall::{Group, RecallTask};
use crate::data::shard::Tokens;
use crate::network::{Batch, Network, Workspace};
use crate::rng::{self, Stream};

/// Rows of an evaluation call.
const ROWS: usize = 4096;

/// Recall at distances `from .. to`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecallCell {
    /// `passkey` or `pair`.
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

/// Mean loss in nats of the first tokens of `held`, in sequences of `length` with fresh context each; and how many were predicted.
/// `None` where there is not one sequence.
pub(crate) fn held_loss(
    network: &Network,
    params: &[f32],
    held: &Tokens,
    length: usize,
    tokens_max: usize,
    work: &mut Workspace,
) -> Option<(f64, u64)> {
    let available = held.ids.len().saturating_sub(1) / length;
    let sequences = (tokens_max / length).max(1).min(available);
    if sequences == 0 {
        return None;
    }
    let per_call = (ROWS / length).max(1);
    let (mut total, mut count) = (0.0f64, 0u64);
    let mut first = 0;
    while first < sequences {
        let n = per_call.min(sequences - first);
        let mut text = Vec::new();
        held.ids
            .copy(first * length..(first + n) * length + 1, &mut text);
        let rows = n * length;
        let weights = vec![1.0; rows];
        let places: Vec<(usize, usize)> = (0..n).map(|s| (s * length, (s + 1) * length)).collect();
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

/// Edges of the distance bins of sequences of `length`: powers of two, and three quarters of the way between from 64 on.
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
    let edges = recall_edges(length);
    let mut cells: Vec<RecallCell> = ["passkey", "pair"]
        .iter()
        .flat_map(|task| {
            edges.windows(2).map(|pair| RecallCell {
                task: (*task).to_owned(),
                from: pair[0],
                to: pair[1],
                questions: 0,
                right: 0,
                loss: 0.0,
            })
        })
        .collect();
    let windows = held.ids.len().saturating_sub(1) / length;
    if windows == 0 {
        return Vec::new();
    }
    let per_call = (ROWS / length).max(1);
    let mut first = 0;
    while first < sequences {
        let n = per_call.min(sequences - first);
        let (mut ids, mut targets) = (Vec::new(), Vec::new());
        let mut groups = vec![Group::None; n * length];
        let mut questions = Vec::new();
        for s in 0..n {
            let start = ((first + s) % windows) * length;
            held.ids.copy(start..start + length, &mut ids);
            held.ids.copy(start + 1..start + length + 1, &mut targets);
            let rows = s * length..(s + 1) * length;
            let parts = [
                seed,
                rng::name("recall evaluation"),
                length as u64,
                (first + s) as u64,
            ];
            let mut stream = Stream::of(&parts);
            let asked = task.lay(
                &mut ids[rows.clone()],
                &mut targets[rows.clone()],
                &mut groups[rows.clone()],
                &mut stream,
            );
            questions.extend(asked.into_iter().map(|q| (s * length + q.row, q)));
        }
        let places: Vec<(usize, usize)> = (0..n).map(|s| (s * length, (s + 1) * length)).collect();
        let weights = vec![0.0; n * length];
        let rows: Vec<usize> = questions.iter().map(|(row, _)| *row).collect();
        let batch = Batch {
            ids: &ids,
            targets: &targets,
            weights: &weights,
            sequences: &places,
        };
        let logits = network.logits(params, &batch, &rows, work);
        for ((_, q), logits) in questions
            .iter()
            .zip(logits.chunks_exact(network.shape.vocab))
        {
            let name = if q.group == Group::Passkey {
                "passkey"
            } else {
                "pair"
            };
            let distance = q.distance as u64;
            let Some(cell) = cells
                .iter_mut()
                .find(|c| c.task == name && c.from <= distance && distance < c.to)
            else {
                continue;
            };
            let wanted = logits[q.answer as usize];
            let best = task
                .answers(q.group)
                .all(|id| id == q.answer || logits[id as usize] < wanted);
            let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = logits.iter().map(|z| f64::from(z - max).exp()).sum();
            cell.questions += 1;
            cell.right += u64::from(best);
            cell.loss += sum.ln() - f64::from(wanted - max);
        }
        first += n;
    }
    for cell in &mut cells {
        cell.loss /= cell.questions.max(1) as f64;
    }
    cells.retain(|cell| cell.questions > 0);
    cells
}
