//! The answers of a cell.

use model::{ForwardOptions, KvCache, Model};
use numerics::PrecisionPlan;

use super::prefix::{Prefix, forward};
use super::prompt::{CellPrompts, Needle, Prompt};
use super::values::right_values;
use super::witness::{PlanWitness, Witness};
use crate::eval::{EvalError, TextCodec};

/// What became of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleResult {
    /// The values to be found, with commas between them.
    pub key: String,
    /// Whether the greedy answer gives all of them, see [`right_values`].
    pub hit: bool,
    /// How many of them it gives.
    pub values_right: usize,
    /// How many there are.
    pub values_asked: usize,
    /// The greedy answer as it came, up to where its last value ends or its room does.
    pub answer: String,
    /// `ln p` of the right answer, nats.
    pub log_probability: f64,
    /// Tokens of the right answer.
    pub answer_tokens: usize,
    /// Tokens that were likelier than the right answer's first.
    pub first_rank: u32,
    /// Most tokens that were likelier than one of the right answer's, given those before it.
    pub largest_rank: u32,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Index of the first token of the fact at the depth of the cell; in a control, where the fact would be.
    pub needle_at: usize,
    /// Tokens of that fact; 0 in a control.
    pub needle_tokens: usize,
    /// All facts, that one first.
    pub needles: Vec<Needle>,
}

/// What became of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct CellResult {
    /// One entry a sample.
    pub samples: Vec<SampleResult>,
    /// One entry a plan: what the heads saw of the facts that are asked for. Empty in a control, where there is nothing to be seen.
    pub witness: Vec<PlanWitness>,
}

/// Runs cells of one model, one after another. What they share is run once; the result of a cell does not depend on the others.
pub struct CellRunner<'a> {
    model: &'a Model,
    prefix: Prefix,
    witness: Option<Witness>,
}

impl<'a> CellRunner<'a> {
    /// A runner that watches nothing.
    #[must_use]
    pub fn new(model: &'a Model) -> Self {
        Self {
            model,
            prefix: Prefix::new(model),
            witness: None,
        }
    }

    /// Also tells which heads saw the facts under each plan. Plans must have been resolved for the model's family.
    #[must_use]
    pub fn watching(self, plans: &[PrecisionPlan]) -> Self {
        let witness = (!plans.is_empty()).then(|| Witness::new(self.model.spec(), plans));
        Self { witness, ..self }
    }

    /// Runs the samples of a cell: the shared beginning once, then each by itself, so that a sample's result does not depend on the
    /// others, on the number of threads or on what was run before.
    ///
    /// # Errors
    /// A model that is not causal, ids outside the vocabulary, and what the model reports.
    pub fn run(
        &mut self,
        codec: &dyn TextCodec,
        cell: &CellPrompts,
    ) -> Result<CellResult, EvalError> {
        let mut cache = self.prefix.begin(self.model, &cell.shared)?;
        let mut samples = Vec::with_capacity(cell.prompts.len());
        for prompt in &cell.prompts {
            samples.push(run_sample(self.model, codec, cell, prompt, &mut cache)?);
            self.watch(cell, prompt, &mut cache)?;
            cache.truncate(cell.shared.len());
        }
        let witness = self.witness.as_ref().map(Witness::take);
        Ok(CellResult {
            samples,
            witness: witness.unwrap_or_default(),
        })
    }

    /// Runs the last token of a prompt once more, observed.
    fn watch(
        &self,
        cell: &CellPrompts,
        prompt: &Prompt,
        cache: &mut KvCache,
    ) -> Result<(), EvalError> {
        let Some(witness) = &self.witness else {
            return Ok(());
        };
        let asked = prompt.needles.iter().filter(|needle| needle.asked);
        let keys: Vec<_> = asked.map(|n| n.at..n.at + n.tokens).collect();
        if keys.is_empty() {
            return Ok(());
        }
        cache.truncate(cell.shared.len() + prompt.rest.len() - 1);
        let options = ForwardOptions {
            cache: Some(cache),
            observer: Some(witness.observer(keys)),
            ..ForwardOptions::default()
        };
        let last = prompt.rest.last().copied();
        self.model.forward(last.as_slice(), options)?;
        Ok(())
    }
}

/// Runs the samples of one cell, see [`CellRunner::run`].
///
/// # Errors
/// As there.
pub fn run_cell(
    model: &Model,
    codec: &dyn TextCodec,
    cell: &CellPrompts,
) -> Result<Vec<SampleResult>, EvalError> {
    Ok(CellRunner::new(model).run(codec, cell)?.samples)
}

fn run_sample(
    model: &Model,
    codec: &dyn TextCodec,
    cell: &CellPrompts,
    prompt: &Prompt,
    cache: &mut KvCache,
) -> Result<SampleResult, EvalError> {
    let prompt_tokens = cell.shared.len() + prompt.rest.len();
    let answer = &prompt.answer;
    let n = answer.len();
    // the right answer is read along with the prompt: its scores, and the greedy choice after each of its tokens
    let given = [prompt.rest.as_slice(), &answer[..n - 1]].concat();
    let hidden = forward(model, cache, &given)?;
    let last = hidden.n_tokens();
    let scores = model.score(&hidden, last - n..last, answer)?;
    // greedy decoding walks along the right answer until it leaves it
    let same = scores
        .iter()
        .zip(answer)
        .take_while(|(score, id)| score.argmax == **id)
        .count();
    let mut said: Vec<u32> = answer[..same].to_vec();
    cache.truncate(prompt_tokens + same.min(n - 1));
    let mut next = match scores.get(same) {
        Some(score) => score.argmax,
        None => answer[n - 1],
    };
    if same == n {
        said.pop();
    }
    loop {
        said.push(next);
        let text = codec.decode(&said).map_err(EvalError::Input)?;
        let asked = prompt.values.len();
        if cell.values.complete(&text, asked) || said.len() == cell.answer_room {
            let right = right_values(cell.values, &text, &prompt.values, cell.any_order);
            let first = prompt.needles.first();
            return Ok(SampleResult {
                key: prompt.key(),
                hit: right == asked,
                values_right: right,
                values_asked: asked,
                answer: text,
                log_probability: -scores.iter().map(|s| f64::from(s.nats)).sum::<f64>(),
                answer_tokens: n,
                first_rank: scores[0].rank,
                largest_rank: scores.iter().map(|score| score.rank).max().unwrap_or(0),
                prompt_tokens,
                needle_at: first.map_or(cell.shared.len(), |needle| needle.at),
                needle_tokens: first.map_or(0, |needle| needle.tokens),
                needles: prompt.needles.clone(),
            });
        }
        let hidden = forward(model, cache, &[next])?;
        // the target does not matter: only the largest logit is wanted
        next = model.score(&hidden, 0..1, &[0])?[0].argmax;
    }
}
