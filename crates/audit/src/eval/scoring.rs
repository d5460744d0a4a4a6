//! Log-likelihood of the alternatives of an item.
//!
//! As lm-evaluation-harness does it: the log-likelihood of an alternative is the sum over its tokens; plain accuracy compares sums,
//! normalised accuracy compares sums over the number of characters (`acc_norm`) or UTF-8 bytes (`acc_bytes`) of the choice, the
//! delimiter not counted. Among equals the first wins. Nothing is cut: a model with a position bias runs any length.
//!
//! The tokens that all alternatives begin with are run once and their keys and values reused.

use model::{ForwardOptions, KvCache, Model};

use super::boundary::{Pair, split_pair};
use super::items::Item;
use super::statistics::Moments;
use super::{EvalError, TextCodec};

/// How likely one alternative is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlternativeScore {
    /// `ln p(continuation | context)`, nats.
    pub log_likelihood: f64,
    /// Tokens of the continuation.
    pub tokens: usize,
    /// Characters (code points) of the continuation without the delimiter.
    pub characters: usize,
    /// UTF-8 bytes of the same.
    pub bytes: usize,
    /// Whether a greedy decoder would have said exactly this.
    pub greedy: bool,
    /// Whether the tokenizer merged over the boundary, see `boundary` in this module.
    pub merged: bool,
}

/// What became of one item.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemScore {
    /// One entry an alternative; a last word has one.
    pub alternatives: Vec<AlternativeScore>,
    /// Index of the right alternative.
    pub gold: usize,
    /// Index of the likeliest.
    pub predicted: usize,
    /// Index of the likeliest by character; `None` where the alternatives end in the same continuation.
    pub predicted_by_character: Option<usize>,
    /// Index of the likeliest by byte.
    pub predicted_by_byte: Option<usize>,
    /// Whether it counts as right.
    pub correct: bool,
    /// Tokens of the longest sequence that was run.
    pub tokens_max: usize,
}

/// Means over the items of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskScore {
    /// Share that is right.
    pub accuracy: Moments,
    /// Share that is right when normalised by characters; empty where that does not apply.
    pub accuracy_by_character: Moments,
    /// Share that is right when normalised by bytes.
    pub accuracy_by_byte: Moments,
    /// `-ln p` of the right alternative, nats an item.
    pub gold_nats: Moments,
    /// One entry an item, in order.
    pub items: Vec<ItemScore>,
}

/// Scores every item. `delimiter` goes between context and continuation; `prefix` is an id put before everything. `done` is called
/// after each item.
///
/// # Errors
/// As [`score_item`], with the item's number, counted from 1.
pub fn score_task(
    model: &Model,
    codec: &dyn TextCodec,
    items: &[Item],
    delimiter: &str,
    prefix: Option<u32>,
    done: &dyn Fn(),
) -> Result<TaskScore, EvalError> {
    let mut task = TaskScore::default();
    for (index, item) in items.iter().enumerate() {
        let score = score_item(model, codec, item, delimiter, prefix)
            .map_err(|error| EvalError::Input(format!("item {}: {error}", index + 1)))?;
        let share = |right: bool| f64::from(u8::from(right));
        let gold = score.gold;
        task.accuracy.add(share(score.correct));
        let by_character = score.predicted_by_character.map(|at| share(at == gold));
        task.accuracy_by_character.extend(by_character);
        let by_byte = score.predicted_by_byte.map(|at| share(at == gold));
        task.accuracy_by_byte.extend(by_byte);
        task.gold_nats.add(-score.alternatives[gold].log_likelihood);
        task.items.push(score);
        done();
    }
    Ok(task)
}

/// Scores one item.
///
/// # Errors
/// A context without tokens when there is no prefix, ids outside the vocabulary, and what the tokenizer or the model reports.
pub fn score_item(
    model: &Model,
    codec: &dyn TextCodec,
    item: &Item,
    delimiter: &str,
    prefix: Option<u32>,
) -> Result<ItemScore, EvalError> {
    let (texts, gold): (Vec<(&str, &str)>, usize) = match item {
        Item::LastWord {
            context,
            continuation,
        } => (vec![(context, continuation)], 0),
        Item::Choices {
            query,
            choices,
            gold,
        } => (
            choices
                .iter()
                .map(|c| (query.as_str(), c.as_str()))
                .collect(),
            *gold,
        ),
        Item::ContextOptions {
            options,
            continuation,
            gold,
        } => (
            options
                .iter()
                .map(|o| (o.as_str(), continuation.as_str()))
                .collect(),
            *gold,
        ),
    };
    let mut pairs = Vec::with_capacity(texts.len());
    for (context, continuation) in &texts {
        let mut pair = split_pair(codec, context, &format!("{delimiter}{continuation}"))?;
        if let Some(prefix) = prefix {
            pair.context.insert(0, prefix);
        }
        if pair.context.is_empty() {
            return Err(EvalError::Input(
                "the context has no tokens to predict from; give a prefix token".into(),
            ));
        }
        pairs.push(pair);
    }
    let scores = log_likelihoods(model, &pairs)?;
    let alternatives: Vec<AlternativeScore> = scores
        .into_iter()
        .zip(pairs.iter().zip(&texts))
        .map(
            |((log_likelihood, greedy), (pair, (_, text)))| AlternativeScore {
                log_likelihood,
                tokens: pair.continuation.len(),
                characters: text.chars().count(),
                bytes: text.len(),
                greedy,
                merged: pair.merged,
            },
        )
        .collect();
    let best = |by: fn(&AlternativeScore) -> usize| {
        #[allow(clippy::cast_precision_loss)] // lengths of texts
        let value = |a: &AlternativeScore| a.log_likelihood / by(a) as f64;
        first_largest(alternatives.iter().map(value))
    };
    let predicted = best(|_| 1);
    let choices = matches!(item, Item::Choices { .. });
    let correct = match item {
        Item::LastWord { .. } => alternatives[0].greedy,
        _ => predicted == gold,
    };
    Ok(ItemScore {
        gold,
        predicted,
        predicted_by_character: choices.then(|| best(|a| a.characters)),
        predicted_by_byte: choices.then(|| best(|a| a.bytes)),
        correct,
        tokens_max: pairs
            .iter()
            .map(|pair| pair.context.len() + pair.continuation.len() - 1)
            .max()
            .unwrap_or(0),
        alternatives,
    })
}

/// Index of the largest value, the first among equals.
fn first_largest(values: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (index, value) in values.enumerate() {
        if value > best.1 {
            best = (index, value);
        }
    }
    best.0
}

/// Log-likelihood of each continuation, and whether greedy decoding would say it.
fn log_likelihoods(model: &Model, pairs: &[Pair]) -> Result<Vec<(f64, bool)>, EvalError> {
    // the last token predicts nothing; at least one token is left to every alternative, and the row that predicts its first
    let inputs: Vec<Vec<u32>> = pairs
        .iter()
        .map(|pair| {
            let (_, but_last) = pair.continuation.split_last().unwrap_or((&0, &[]));
            [pair.context.as_slice(), but_last].concat()
        })
        .collect();
    let shared = shared_prefix(&inputs, pairs);
    // one alternative shares with nobody
    let reuse = pairs.len() > 1 && shared > 0 && model.spec().alibi.convention.causal;
    let shared = if reuse { shared } else { 0 };
    let mut cache = KvCache::new(model.spec());
    if reuse {
        let options = ForwardOptions {
            cache: Some(&mut cache),
            ..ForwardOptions::default()
        };
        model.forward(&inputs[0][..shared], options)?;
    }
    let mut out = Vec::with_capacity(pairs.len());
    for (pair, input) in pairs.iter().zip(&inputs) {
        let options = ForwardOptions {
            cache: reuse.then_some(&mut cache),
            ..ForwardOptions::default()
        };
        let hidden = model.forward(&input[shared..], options)?;
        cache.truncate(shared);
        let first = pair.context.len() - 1 - shared;
        let rows = first..first + pair.continuation.len();
        let scores = model.score(&hidden, rows, &pair.continuation)?;
        let log_likelihood = -scores.iter().map(|s| f64::from(s.nats)).sum::<f64>();
        let says = |(score, id): (&model::TokenScore, &u32)| score.argmax == *id;
        out.push((
            log_likelihood,
            scores.iter().zip(&pair.continuation).all(says),
        ));
    }
    Ok(out)
}

/// Tokens that all inputs begin with, short of the last token of the shortest context.
fn shared_prefix(inputs: &[Vec<u32>], pairs: &[Pair]) -> usize {
    let Some((first, rest)) = inputs.split_first() else {
        return 0;
    };
    let most = pairs.iter().map(|pair| pair.context.len() - 1).min();
    let same = |other: &Vec<u32>| first.iter().zip(other).take_while(|(a, b)| a == b).count();
    rest.iter().map(same).chain(most).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(context: &[u32], continuation: &[u32]) -> Pair {
        Pair {
            context: context.to_vec(),
            continuation: continuation.to_vec(),
            merged: false,
        }
    }

    #[test]
    fn the_shared_prefix_leaves_the_row_that_predicts_first() {
        let pairs = [pair(&[1, 2, 3], &[4, 5]), pair(&[1, 2, 3], &[4, 6])];
        let inputs = vec![vec![1, 2, 3, 4], vec![1, 2, 3, 4]];
        assert_eq!(shared_prefix(&inputs, &pairs), 2);
        let pairs = [pair(&[1, 2, 3], &[4]), pair(&[1, 9, 3], &[4])];
        assert_eq!(shared_prefix(&[vec![1, 2, 3], vec![1, 9, 3]], &pairs), 1);
    }

    #[test]
    fn the_first_of_equals_wins() {
        assert_eq!(first_largest([-2.0, -1.0, -1.0].into_iter()), 1);
        assert_eq!(first_largest([f64::NAN, -1.0].into_iter()), 1);
    }
}
