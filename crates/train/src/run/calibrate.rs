//! What a step costs on this machine, by doing a few.

use std::time::Instant;

use super::plan::RunPlan;
use crate::network::{Batch, Workspace};
use crate::optimiser::Moments;

/// Token rows of a timed call at most, where a sequence is not longer.
const ROWS_MAX: usize = 4096;

/// A first call that took longer is not repeated: what is warmed up no longer matters.
const LONG_SECONDS: f64 = 2.0;

/// Measured cost at one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageCost {
    /// Tokens of a sequence.
    pub length: usize,
    /// Seconds of a training step.
    pub step_seconds: f64,
    /// Seconds of a forward pass over one token.
    pub token_seconds: f64,
}

impl RunPlan {
    /// Times real steps of fresh parameters at each stage's length (forward, backward, update), and forward passes at `lengths`
    /// as well. A long step is timed in part: a few thousand token rows of it.
    pub fn calibrate(&self, lengths: &[usize]) -> Vec<StageCost> {
        let mut all: Vec<usize> = self.stages.iter().map(|stage| stage.length).collect();
        let trained = all.len();
        all.extend(
            lengths
                .iter()
                .filter(|&&length| length < self.held.ids.len()),
        );
        let layout = &self.network.layout;
        let mut state = State {
            params: layout.initial(
                &self.network.shape,
                &self.network.position,
                self.config.model.init.unwrap_or_default(),
                self.config.seed,
            ),
            gradient: vec![0.0; layout.len()],
            moments: Moments::new(layout.len()),
            work: Workspace::new(),
        };
        let mut costs: Vec<StageCost> = Vec::new();
        for (at, &length) in all.iter().enumerate() {
            if costs.iter().all(|cost| cost.length != length) {
                costs.push(self.cost(length, at < trained, &mut state));
            }
        }
        costs
    }

    fn cost(&self, length: usize, step: bool, state: &mut State) -> StageCost {
        let tokens = self.config.schedule.tokens_per_step;
        let rows = (ROWS_MAX.min(tokens) / length).max(1) * length;
        let (mut ids, mut targets) = (Vec::new(), Vec::new());
        for at in (0..rows).step_by(length) {
            let start = at % (self.held.ids.len() - length).max(1);
            self.held.ids.copy(start..start + length, &mut ids);
            self.held
                .ids
                .copy(start + 1..start + length + 1, &mut targets);
        }
        let weights = vec![1.0 / rows as f32; rows];
        let places: Vec<(usize, usize)> = (0..rows)
            .step_by(length)
            .map(|at| (at, at + length))
            .collect();
        let batch = Batch {
            ids: &ids,
            targets: &targets,
            weights: &weights,
            sequences: &places,
        };
        let forward = least(|| {
            self.network.losses(&state.params, &batch, &mut state.work);
        });
        let share = tokens as f64 / rows as f64;
        let step_seconds = if step {
            let both = least(|| {
                let (gradient, work) = (&mut state.gradient, &mut state.work);
                self.network.step(&state.params, &batch, 0, gradient, work);
            });
            let table = &self.network.layout.params;
            let update = least(|| {
                self.config.optimiser.update(
                    &mut state.params,
                    &state.gradient,
                    &mut state.moments,
                    table,
                    1,
                    1e-6,
                    1.0,
                );
            });
            both * share + update
        } else {
            0.0
        };
        StageCost {
            length,
            step_seconds,
            token_seconds: forward / rows as f64,
        }
    }
}

struct State {
    params: Vec<f32>,
    gradient: Vec<f32>,
    moments: Moments,
    work: Workspace,
}

/// Least seconds of three calls; of one, where that is long.
fn least(mut call: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let began = Instant::now();
        call();
        let seconds = began.elapsed().as_secs_f64();
        best = best.min(seconds);
        if seconds > LONG_SECONDS {
            break;
        }
    }
    best
}
