//! Running the cells of a grid.

use super::effort::Effort;
use super::grid::Grid;
use super::results::Results;
use super::{failed, hash_ids};
use crate::args::GlobalArgs;
use crate::commands::ids::Codec;
use crate::failure::Failure;
use ::audit::probe::{CellPrompts, CellRunner, PromptBuilder, WhatIf, run_cell};
use checkpoint::Checkpoint;
use model::{Model, ModelSpec};
use numerics::PrecisionPlan;
use report::schema::{ProbeCell, ProbeWitness};
use std::sync::Arc;
use std::time::Instant;

/// What every cell needs.
pub(super) struct Runner<'a> {
    pub(super) checkpoint: &'a Arc<Checkpoint>,
    pub(super) codec: &'a Codec,
    pub(super) spec: &'a ModelSpec,
    /// Whether all weights stay in memory.
    pub(super) keep: bool,
    pub(super) changes: &'a [WhatIf],
    /// Under which the heads' sight of the fact is computed.
    pub(super) plans: &'a [PrecisionPlan],
}

impl Runner<'_> {
    /// The cells of the grid, those that `results` holds read from there and the others run and added.
    pub(super) fn grid(
        &self,
        grid: &Grid,
        builder: &PromptBuilder<'_>,
        mut results: Results,
        effort: Effort,
        global: &GlobalArgs,
    ) -> Result<Vec<ProbeCell>, Failure> {
        let model = self.model(self.spec.clone())?;
        let mut runner = CellRunner::new(&model).watching(self.plans);
        let places: Vec<(usize, f64)> = grid.places().collect();
        let mut left: Vec<usize> = (0..places.len())
            .filter(|&cell| {
                results
                    .find(places[cell].0 as u64, places[cell].1)
                    .is_none()
            })
            .collect();
        effort.announce(&left, grid.samples, global.talk());
        let bar = global.talk().bar("cells", places.len() as u64);
        let (mut cells, mut rate_known) = (Vec::with_capacity(places.len()), false);
        for (index, &(length, depth)) in places.iter().enumerate() {
            let cell = match results.find(length as u64, depth) {
                Some(cell) => cell.clone(),
                None => {
                    let begun = Instant::now();
                    let prompts = builder.cell(length, depth, grid.samples).map_err(failed)?;
                    let cell = results.add(&self.cell(&mut runner, &prompts)?)?;
                    left.retain(|&other| other != index);
                    if !std::mem::replace(&mut rate_known, true) {
                        effort.forecast(index, begun.elapsed(), &left, global.talk());
                    }
                    cell
                }
            };
            cells.push(cell);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(cells)
    }

    fn model(&self, spec: ModelSpec) -> Result<Model, Failure> {
        Model::new(spec, self.checkpoint.clone())
            .map(|model| model.keep_weights(self.keep))
            .map_err(|error| Failure::error(error.to_string()))
    }

    /// Runs a cell, and where something was missed, again under each change.
    fn cell(
        &self,
        runner: &mut CellRunner<'_>,
        prompts: &CellPrompts,
    ) -> Result<ProbeCell, Failure> {
        let result = runner.run(self.codec, prompts).map_err(failed)?;
        let mut cell = ProbeCell::new(prompts, &result.samples).hashed(prompts, hash_ids);
        cell.witness = result.witness.iter().map(ProbeWitness::from).collect();
        if cell.score.hits == cell.score.samples {
            return Ok(cell);
        }
        for change in self.changes {
            let spec = change.apply(self.spec, prompts.length).map_err(failed)?;
            // dropped after the cell: one changed model is in memory at a time
            let mut changed = self.model(spec)?;
            if let Some(plan) = change.plan() {
                changed = changed.under_plan(plan.clone());
            }
            let samples = run_cell(&changed, self.codec, prompts).map_err(failed)?;
            cell.add_what_if(change, &samples);
        }
        Ok(cell)
    }
}
