//! How much a grid will take, said before it is run and once more when its first cell gives the rate.

use crate::progress::Talk;
use ::audit::probe::CellPrompts;
use model::ModelSpec;
use std::time::Duration;

/// A rest shorter than this is not worth a line.
const SAID_FROM: Duration = Duration::from_secs(20);

/// A run of fewer tokens than this is over before a line about it is read.
const SAID_FROM_TOKENS: u64 = 50_000;

/// Tokens and arithmetic of the cells that are left.
#[derive(Clone, Debug)]
pub(super) struct Effort {
    /// Multiply-adds of the layers' weights for one token.
    weights: f64,
    /// Multiply-adds of attention for one pair of tokens.
    pair: f64,
    cells: Vec<Cost>,
    /// Longest beginning that some earlier cell has run.
    run: usize,
}

#[derive(Clone, Copy, Debug)]
struct Cost {
    tokens: u64,
    work: f64,
}

impl Effort {
    #[allow(clippy::cast_precision_loss)] // an estimate
    pub(super) fn new(spec: &ModelSpec) -> Self {
        let mlp = spec.block.mlp.hidden * if spec.block.mlp.gated { 3 } else { 2 };
        let attention = 2 * spec.query_width() + 2 * spec.kv_width();
        Self {
            weights: (spec.n_layers * spec.width * (mlp + attention)) as f64,
            pair: (spec.n_layers * 2 * spec.query_width()) as f64,
            cells: Vec::new(),
            run: 0,
        }
    }

    /// Adds the next cell.
    pub(super) fn add(&mut self, cell: &CellPrompts) {
        let shared = cell.shared.len();
        let mut cost = Cost {
            tokens: 0,
            work: 0.0,
        };
        self.charge(&mut cost, self.run.min(shared), shared);
        for prompt in &cell.prompts {
            self.charge(&mut cost, shared, shared + prompt.rest.len());
        }
        self.run = self.run.max(shared);
        self.cells.push(cost);
    }

    #[allow(clippy::cast_precision_loss)] // an estimate
    fn charge(&self, cost: &mut Cost, from: usize, to: usize) {
        let tokens = (to - from) as f64;
        cost.tokens += (to - from) as u64;
        cost.work += tokens * (self.weights + self.pair * (from + to) as f64 / 2.0);
    }

    /// Tokens of all cells, the beginnings that they share counted once.
    pub(super) fn tokens(&self) -> u64 {
        self.cells.iter().map(|cell| cell.tokens).sum()
    }

    /// Says how many samples there are to run, where that is worth a line.
    pub(super) fn announce(&self, left: &[usize], samples: usize, talk: Talk) {
        let tokens: u64 = left.iter().map(|&cell| self.cells[cell].tokens).sum();
        if tokens < SAID_FROM_TOKENS {
            return;
        }
        talk.say(&format!(
            "estimate: {} of {} to run, {} through the model",
            report::text::plural(left.len() as u64, "cell"),
            report::text::plural(samples as u64, "sample"),
            report::text::plural(tokens, "token"),
        ));
    }

    /// Says how long the cells `left` will take, by the time that cell `done` took, where that is worth a line.
    pub(super) fn forecast(&self, done: usize, took: Duration, left: &[usize], talk: Talk) {
        let work: f64 = left.iter().map(|&cell| self.cells[cell].work).sum();
        let rest = took.mul_f64((work / self.cells[done].work.max(1.0)).min(1e9));
        if rest >= SAID_FROM {
            talk.say(&format!(
                "estimate: about {} for {} more, by the rate of the first; --what-if takes as long again where something is missed",
                duration(rest),
                report::text::plural(left.len() as u64, "cell"),
            ));
        }
    }
}

/// `40 s`, `12 min`, `3.5 h`.
fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{}.{} h", seconds / 3600, seconds % 3600 / 360),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_in_the_unit_one_thinks_in() {
        for (seconds, said) in [(40, "40 s"), (130, "2 min"), (12_600, "3.5 h")] {
            assert_eq!(duration(Duration::from_secs(seconds)), said);
        }
    }
}
