//! The answers of a cell.

use model::{ForwardOptions, KvCache, Model};

use super::matching::first_integer;
use super::prompt::{CellPrompts, Prompt};
use crate::eval::{EvalError, TextCodec};

/// What became of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleResult {
    /// The number to be found.
    pub key: String,
    /// Whether the first integer of the greedy answer is the key.
    pub hit: bool,
    /// The greedy answer as it came, up to where its first integer ends or its room does.
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
    /// Index of the fact's first token.
    pub needle_at: usize,
    /// Tokens of the fact.
    pub needle_tokens: usize,
}

/// Runs the samples of a cell: the shared beginning once, then each by itself, so that a sample's result does not depend on the
/// others, on the number of threads or on what was run before.
///
/// # Errors
/// A model that is not causal, ids outside the vocabulary, and what the model reports.
pub fn run_cell(
    model: &Model,
    codec: &dyn TextCodec,
    cell: &CellPrompts,
) -> Result<Vec<SampleResult>, EvalError> {
    let mut cache = KvCache::new(model.spec());
    forward(model, &mut cache, &cell.shared)?;
    let mut results = Vec::with_capacity(cell.prompts.len());
    for prompt in &cell.prompts {
        results.push(run_sample(model, codec, cell, prompt, &mut cache)?);
        cache.truncate(cell.shared.len());
    }
    Ok(results)
}

fn forward(model: &Model, cache: &mut KvCache, ids: &[u32]) -> Result<model::Hidden, EvalError> {
    let options = ForwardOptions {
        cache: Some(cache),
        ..ForwardOptions::default()
    };
    Ok(model.forward(ids, options)?)
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
        let ended = first_integer(&text).is_some_and(|integer| !text.ends_with(integer));
        if ended || said.len() == cell.answer_room {
            return Ok(SampleResult {
                key: prompt.key.clone(),
                hit: first_integer(&text) == Some(&prompt.key),
                answer: text,
                log_probability: -scores.iter().map(|s| f64::from(s.nats)).sum::<f64>(),
                answer_tokens: n,
                first_rank: scores[0].rank,
                largest_rank: scores.iter().map(|score| score.rank).max().unwrap_or(0),
                prompt_tokens,
                needle_at: cell.shared.len(),
                needle_tokens: prompt.needle_tokens,
            });
        }
        let hidden = forward(model, cache, &[next])?;
        // the target does not matter: only the largest logit is wanted
        next = model.score(&hidden, 0..1, &[0])?[0].argmax;
    }
}
