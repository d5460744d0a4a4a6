//! A finished run looked at again: losses and recall at any length, under its own bias or another, and the content margins that
//! its recall rests on.

use serde::{Deserialize, Serialize};

use super::evaluate::{self, Asked, RecallCell};
use super::trained::Trained;
use crate::attention::AttentionRule;
use crate::data::recall::{Group, RecallTask};
use crate::data::shard::{self, Tokens};
use crate::error::TrainError;
use crate::network::{Network, Workspace};
use crate::ops::dot;
use crate::shape::Position;

/// Keys that a question's answer is compared with: the last ones before it and its own.
const RECENT: usize = 20;

/// Most sequences that are laid out to reach a number of questions.
const SEQUENCES_MAX: usize = 1 << 20;

/// Loss on held-out text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldLoss {
    /// Mean, nats per token.
    pub loss: f64,
    /// Tokens predicted.
    pub tokens: u64,
}

/// Recall at one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecallScore {
    /// Sequences that were asked in.
    pub sequences: u64,
    /// By task and distance.
    pub cells: Vec<RecallCell>,
}

/// What content offers the answer of a question in one head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadMargin {
    /// `passkey`, `pair` or `needle`.
    pub task: String,
    /// Layer.
    pub layer: u64,
    /// Head.
    pub head: u64,
    /// Slope, where there are slopes; nats per token.
    pub slope: Option<f64>,
    /// Questions, all at least 20 tokens from their answer.
    pub questions: u64,
    /// Mean over questions of the answer's score without bias less the best such score among the last 20 keys, nats.
    pub margin: f64,
    /// Standard deviation of it over questions; `None` below two.
    pub deviation: Option<f64>,
    /// Mean weight on the answer at distances below a quarter of the length: which heads read it where all can see it.
    pub near_weight: Option<f64>,
    /// First distance at which the bias outweighs the margin, tokens; `None` where it never does, 0 where there is no margin.
    pub predicted_horizon: Option<f64>,
}

/// A finished run and its held-out text.
#[derive(Debug)]
pub struct Evaluation {
    trained: Trained,
    held: Tokens,
    task: Option<RecallTask>,
    work: Workspace,
    /// (length, questions) and the sequences that hold them: looked for once.
    counted: Vec<((usize, u64), usize)>,
}

impl Evaluation {
    /// Reads the held-out text of a run.
    ///
    /// # Errors
    /// A token file that cannot be read or is not the one the run knew.
    pub fn new(trained: Trained) -> Result<Self, TrainError> {
        let path = &trained.config.data.held;
        let held = shard::read(path)?;
        if held.hash != trained.record.held_hash {
            return Err(TrainError::file(path, "is not the file the run began with"));
        }
        let vocab = held.description.vocab as usize;
        let hash = &trained.record.tokenizer_hash;
        let task = RecallTask::of_run(&trained.config, vocab, hash)?;
        Ok(Self {
            task,
            trained,
            held,
            work: Workspace::new(),
            counted: Vec::new(),
        })
    }

    /// The run.
    pub fn trained(&self) -> &Trained {
        &self.trained
    }

    /// Ids of held-out sequence `number` of `length` tokens; `None` beyond the end of the text.
    pub fn text(&self, number: usize, length: usize) -> Option<Vec<u32>> {
        let mut ids = Vec::with_capacity(length);
        let first = number.checked_mul(length)?;
        (first + length <= self.held.ids.len())
            .then(|| self.held.ids.copy(first..first + length, &mut ids))?;
        Some(ids)
    }

    /// The run's network, or the same with another position scheme or rule.
    pub fn network(&self, position: Option<Position>, rule: Option<AttentionRule>) -> Network {
        let own = &self.trained.network;
        Network::new(
            own.shape,
            position.unwrap_or_else(|| own.position.clone()),
            rule.unwrap_or_else(|| own.rule.clone()),
        )
    }

    /// Mean loss of about `tokens` held-out tokens in sequences of `length`, fresh context each; `None` where the text is shorter.
    pub fn held_loss(
        &mut self,
        network: &Network,
        length: usize,
        tokens: usize,
    ) -> Option<HeldLoss> {
        let (params, mask) = (&self.trained.params, self.trained.config.data.document_mask);
        let work = &mut self.work;
        let found = evaluate::held_loss(network, params, &self.held, length, tokens, mask, work);
        found.map(|(loss, tokens)| HeldLoss { loss, tokens })
    }

    /// Recall by distance at `length`, in as many sequences as hold `questions` questions of every task at distances of at least
    /// half the length. `None` without recall tasks or where the text is shorter than one sequence.
    pub fn recall(
        &mut self,
        network: &Network,
        length: usize,
        questions: u64,
    ) -> Option<RecallScore> {
        let wanted = (length, questions);
        let known = self.counted.iter().find(|(key, _)| *key == wanted);
        let sequences = match known {
            Some((_, sequences)) => *sequences,
            None => {
                let sequences = self.sequences_for(length, questions)?;
                self.counted.push((wanted, sequences));
                sequences
            }
        };
        let mut work = std::mem::take(&mut self.work);
        let found = self.recall_in(network, length, sequences, &mut work);
        self.work = work;
        found
    }

    fn recall_in(
        &self,
        network: &Network,
        length: usize,
        sequences: usize,
        work: &mut Workspace,
    ) -> Option<RecallScore> {
        let params = &self.trained.params;
        let edges = half_octaves(length);
        let cells = self
            .asked(length)?
            .recall(network, params, sequences, &edges, work);
        Some(RecallScore {
            sequences: sequences as u64,
            cells,
        })
    }

    fn asked(&self, length: usize) -> Option<Asked<'_>> {
        let asked = Asked {
            task: self.task.as_ref()?,
            held: &self.held,
            length,
            seed: self.trained.config.seed,
        };
        (asked.windows() > 0).then_some(asked)
    }

    /// Sequences that hold `questions` far questions of every task; found by laying out the tasks, which runs no network.
    fn sequences_for(&self, length: usize, questions: u64) -> Option<usize> {
        let asked = self.asked(length)?;
        let asks = self.task.as_ref()?.asks();
        let mut wanted = asks.map(|asks| if asks { questions } else { 0 });
        for number in 0..SEQUENCES_MAX {
            for (_, q) in asked.batch(number..number + 1).questions {
                if 2 * q.distance >= length
                    && let Some(at) = q.group.asked()
                {
                    wanted[at] = wanted[at].saturating_sub(1);
                }
            }
            if wanted == [0; 3] {
                return Some(number + 1);
            }
        }
        Some(SEQUENCES_MAX)
    }

    /// What content offers the answers of `sequences` sequences of `length`, by task, layer and head, under the run's own bias.
    /// `None` without recall tasks or where the text is shorter than one sequence.
    pub fn margins(&mut self, length: usize, sequences: usize) -> Option<Vec<HeadMargin>> {
        let mut work = std::mem::take(&mut self.work);
        let found = self.margins_in(length, sequences, &mut work);
        self.work = work;
        found
    }

    fn margins_in(
        &self,
        length: usize,
        sequences: usize,
        work: &mut Workspace,
    ) -> Option<Vec<HeadMargin>> {
        let asked = self.asked(length)?;
        let (network, params) = (&self.trained.network, &self.trained.params);
        let shape = &network.shape;
        let mut sums = vec![Sums::default(); Group::ASKED.len() * shape.layers * shape.heads];
        let mut first = 0;
        while first < sequences {
            let n = asked.per_call().min(sequences - first);
            let batch = asked.batch(first..first + n);
            let weights = vec![0.0; batch.ids.len()];
            network.forward(params, &batch.as_batch(&weights), None, work);
            for (row, question) in &batch.questions {
                let Some(task) = question.group.asked() else {
                    continue;
                };
                if question.distance < RECENT {
                    continue;
                }
                let start = row / length * length;
                for layer in 0..shape.layers {
                    for head in 0..shape.heads {
                        let look = Look {
                            network,
                            length,
                            start,
                            row: *row,
                            layer,
                            head,
                        };
                        let at = (task * shape.layers + layer) * shape.heads + head;
                        look.add(question.distance, work, &mut sums[at]);
                    }
                }
            }
            first += n;
        }
        let bias = network.bias(params, 1);
        let mut found = Vec::new();
        for (at, sums) in sums.iter().enumerate().filter(|(_, sums)| sums.n > 0) {
            let (rest, head) = (at / shape.heads, at % shape.heads);
            let slope = bias.slopes.get(head).copied();
            let slope = slope.filter(|_| !bias.table.is_empty());
            let margin = sums.margin / sums.n as f64;
            let predicted = if bias.table.is_empty() {
                None
            } else if margin <= 0.0 {
                Some(0.0)
            } else {
                let slope = slope.unwrap_or(0.0);
                bias.function.first_distance_below(head, slope, -margin)
            };
            let spread = sums.squares / sums.n as f64 - margin * margin;
            let deviation = (spread.max(0.0) * sums.n as f64 / (sums.n as f64 - 1.0)).sqrt();
            found.push(HeadMargin {
                task: Group::ASKED[rest / shape.layers].name().to_owned(),
                layer: (rest % shape.layers) as u64,
                head: head as u64,
                slope,
                questions: sums.n,
                margin,
                deviation: (sums.n > 1).then_some(deviation),
                near_weight: (sums.near > 0).then(|| sums.weight / sums.near as f64),
                predicted_horizon: predicted,
            });
        }
        Some(found)
    }
}

#[derive(Clone, Default)]
struct Sums {
    n: u64,
    margin: f64,
    squares: f64,
    near: u64,
    weight: f64,
}

/// One head's row of a question after a forward pass.
struct Look<'a> {
    network: &'a Network,
    length: usize,
    /// First row of the sequence in the batch.
    start: usize,
    row: usize,
    layer: usize,
    head: usize,
}

impl Look<'_> {
    fn add(&self, distance: usize, work: &Workspace, sums: &mut Sums) {
        let shape = &self.network.shape;
        let (width, head_width) = (shape.width, shape.head_width());
        let qkv = &work.kept[self.layer].qkv;
        let part = |row: usize, which: usize| {
            &qkv[row * 3 * width + which * width + self.head * head_width..][..head_width]
        };
        let scale = 1.0 / (head_width as f32).sqrt();
        let score = |key: usize| f64::from(dot(part(self.row, 0), part(key, 1)) * scale);
        let answer = score(self.row - distance);
        let oldest = self.start.max((self.row + 1).saturating_sub(RECENT));
        let recent = (oldest..=self.row).map(score);
        let margin = answer - recent.fold(f64::NEG_INFINITY, f64::max);
        sums.n += 1;
        sums.margin += margin;
        sums.squares += margin * margin;
        if 4 * distance < self.length {
            sums.near += 1;
            let bias = self.bias(distance);
            let heads = self.start * shape.heads + self.head * self.length;
            let lse = work.kept[self.layer].lse[heads + self.row - self.start];
            sums.weight += (answer + bias - f64::from(lse)).exp();
        }
    }

    /// The fixed bias at a distance; learned ones are left out, as the weight is only used to tell heads apart.
    fn bias(&self, distance: usize) -> f64 {
        match &self.network.position {
            Position::Fixed { bias, slopes } => {
                bias.bias(self.head, slopes[self.head], distance as f64)
            }
            _ => 0.0,
        }
    }
}

/// Edges of the distance bins of sequences of `length`: 1, 16, then half octaves (24, 32, 48, 64, ...), then the length.
fn half_octaves(length: usize) -> Vec<u64> {
    let length = length as u64;
    let mut edges = vec![1];
    let mut edge = 16;
    while edge < length {
        edges.push(edge);
        if edge + edge / 2 < length {
            edges.push(edge + edge / 2);
        }
        edge *= 2;
    }
    edges.push(length);
    edges.dedup();
    edges
}

#[cfg(test)]
mod tests {
    use super::half_octaves;

    #[test]
    fn distance_bins_are_half_octaves() {
        assert_eq!(half_octaves(64), [1, 16, 24, 32, 48, 64]);
        assert_eq!(half_octaves(40), [1, 16, 24, 32, 40]);
        assert_eq!(half_octaves(16), [1, 16]);
        // half of an even power of two is an edge: far questions are whole bins
        assert!(half_octaves(1024).contains(&512));
    }
}
