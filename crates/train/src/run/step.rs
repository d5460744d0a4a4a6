//! One step: its sequences, its gradient, its update.

use super::metrics::Metric;
use super::trainer::Trainer;
use crate::config::Stage;
use crate::data::recall::Group;
use crate::data::sampler::Sampler;
use crate::network::{Batch, Workspace};
use crate::optimiser::global_norm;
use crate::rng::{self, Stream};

impl Trainer {
    /// Stage of a step (from 1), and how many steps of it came before.
    fn stage(&self, step: u64) -> (usize, Stage, u64) {
        let mut before = 0;
        for (index, stage) in self.stages.iter().enumerate() {
            if step <= before + stage.steps {
                return (index, *stage, step - before - 1);
            }
            before += stage.steps;
        }
        unreachable!("step {step} of {}", self.total)
    }

    /// Computes a step; `Err` says what was not finite, and then parameters are as before.
    pub(super) fn one_step(
        &mut self,
        step: u64,
        gradient: &mut [f32],
        work: &mut Workspace,
    ) -> Result<Metric, String> {
        let schedule = &self.config.schedule;
        let (index, stage, within) = self.stage(step);
        let samples = self.samples(index, stage, within);
        let per_micro = samples.len().div_ceil(schedule.micro_batches);
        let mut counts = [0u64; GROUPS];
        for sample in &samples {
            for group in &sample.groups {
                if let Some(at) = group_index(*group) {
                    counts[at] += 1;
                }
            }
        }
        gradient.fill(0.0);
        let mut sums = [0.0f64; GROUPS];
        for (micro, samples) in samples.chunks(per_micro).enumerate() {
            let (mut ids, mut targets, mut weights) = (Vec::new(), Vec::new(), Vec::new());
            let (mut sequences, mut groups) = (Vec::new(), Vec::new());
            for sample in samples {
                let first = ids.len();
                ids.extend_from_slice(&sample.ids);
                targets.extend_from_slice(&sample.targets);
                groups.extend_from_slice(&sample.groups);
                let mut from = first;
                for &end in &sample.ends {
                    sequences.push((from, first + end));
                    from = first + end;
                }
            }
            // Normalised by the tokens of the whole step, not of this part.
            weights.extend(
                groups.iter().map(|group| {
                    group_index(*group).map_or(0.0, |at| 1.0 / counts[at].max(1) as f32)
                }),
            );
            let batch = Batch {
                ids: &ids,
                targets: &targets,
                weights: &weights,
                sequences: &sequences,
            };
            let key = rng::hash(&[self.config.seed, rng::name("dropout"), step, micro as u64]);
            let losses = self.network.step(&self.params, &batch, key, gradient, work);
            for (loss, group) in losses.iter().zip(&groups) {
                if let Some(at) = group_index(*group) {
                    sums[at] += f64::from(*loss);
                }
            }
        }
        let mean = |at: usize| (counts[at] > 0).then(|| sums[at] / counts[at] as f64);
        let loss: f64 = (0..GROUPS).filter_map(mean).sum();
        if !loss.is_finite() {
            return Err(format!("the loss is {loss}"));
        }
        let norm = global_norm(gradient);
        if !norm.is_finite() {
            return Err(format!("the norm of the gradient is {norm}"));
        }
        let optimiser = self.config.optimiser;
        let scale = if optimiser.clip > 0.0 && norm > optimiser.clip {
            optimiser.clip / norm
        } else {
            1.0
        };
        let lr = self.config.learning_rate(step, self.total);
        let table = &self.network.layout.params;
        optimiser.update(
            &mut self.params,
            gradient,
            &mut self.moments,
            table,
            step,
            lr,
            scale,
        );
        Ok(Metric::Step {
            step,
            length: stage.length as u64,
            tokens: step * self.config.schedule.tokens_per_step as u64,
            loss,
            text: mean(0).unwrap_or(0.0),
            passkey: mean(1),
            pair: mean(2),
            needle: mean(3),
            lr,
            gradient_norm: norm,
        })
    }

    /// The sequences of a step.
    fn samples(&self, index: usize, stage: Stage, within: u64) -> Vec<Sample> {
        let n = self.config.schedule.tokens_per_step / stage.length;
        let seed = rng::hash(&[self.config.seed, rng::name("order"), index as u64]);
        // Checked when the run was planned.
        let Ok(sampler) = Sampler::new(self.train.ids.len(), stage.length, seed, "") else {
            unreachable!("a stage longer than the data")
        };
        (0..n as u64)
            .map(|i| {
                let number = within * n as u64 + i;
                let start = sampler.start(number);
                let mut ids = Vec::with_capacity(stage.length + 1);
                self.train
                    .ids
                    .copy(start..start + stage.length + 1, &mut ids);
                let mut targets = ids[1..].to_vec();
                ids.truncate(stage.length);
                let mut groups = vec![Group::Text; stage.length];
                if let Some(task) = &self.task {
                    let mut stream = Stream::of(&[seed, rng::name("recall"), number]);
                    task.lay(&mut ids, &mut targets, &mut groups, &mut stream);
                }
                let mut ends = Vec::new();
                if self.config.data.document_mask {
                    ends.extend(self.train.ends_inside(start, stage.length));
                }
                ends.push(stage.length);
                Sample {
                    ids,
                    targets,
                    groups,
                    ends,
                }
            })
            .collect()
    }
}

/// One sequence of a step.
struct Sample {
    ids: Vec<u32>,
    targets: Vec<u32>,
    groups: Vec<Group>,
    /// Ends of the parts attention stays in, the last one the sequence's own.
    ends: Vec<usize>,
}

/// Groups with a mean loss of their own: the text, and every task.
const GROUPS: usize = 1 + Group::ASKED.len();

fn group_index(group: Group) -> Option<usize> {
    match group {
        Group::None => None,
        Group::Text => Some(0),
        asked => asked.asked().map(|at| at + 1),
    }
}
