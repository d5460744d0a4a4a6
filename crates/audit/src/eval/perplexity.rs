//! Loss of a text over windows, by position and by document.
//!
//! A window is run by itself, from position 0 of its own: what a token is predicted from is what lies before it in its window. With
//! a stride below the length, windows overlap and every token but the first of a document is predicted exactly once, from at least
//! `length - stride` tokens where the document has them (the sliding window; stride 1 gives every token all the context there is).
//! With a stride equal to the length the windows are disjoint blocks, and the first token of each has nothing to be predicted from.

use model::{ForwardOptions, KvCache, Model};

use std::num::NonZeroUsize;

use super::EvalError;
use super::statistics::Moments;

/// How a text is cut into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    length: usize,
    stride: usize,
}

/// One window of a document, in token indices of that document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First token that is run.
    pub start: usize,
    /// One past the last token that is run.
    pub end: usize,
    /// First token that is predicted; all up to `end` are.
    pub first_target: usize,
}

impl Windows {
    /// Windows of `length` tokens that begin `stride` tokens apart.
    ///
    /// # Errors
    /// A length below 2, in which nothing is predicted, and a stride of 0 or beyond the length, which leaves tokens out.
    pub fn new(length: usize, stride: usize) -> Result<Self, EvalError> {
        if length < 2 {
            return Err(EvalError::Input(format!(
                "a window of {length} token predicts nothing; expected a length of at least 2"
            )));
        }
        if stride == 0 || stride > length {
            return Err(EvalError::Input(format!(
                "stride {stride}: expected 1 to the window's length, {length}; a longer one would leave tokens out"
            )));
        }
        Ok(Self { length, stride })
    }

    /// Tokens of a window.
    #[must_use]
    pub fn length(self) -> usize {
        self.length
    }

    /// Tokens between the beginnings of two windows.
    #[must_use]
    pub fn stride(self) -> usize {
        self.stride
    }

    /// The windows of a document of `n` tokens; none where nothing can be predicted.
    pub fn of(self, n: usize) -> impl Iterator<Item = Window> {
        let mut done = 0;
        (0..n)
            .step_by(self.stride)
            .map_while(move |start| {
                if done == n {
                    return None;
                }
                let end = n.min(start + self.length);
                let first_target = done.max(start + 1);
                done = end;
                Some(Window {
                    start,
                    end,
                    first_target,
                })
            })
            .filter(|window| window.first_target < window.end)
    }
}

/// Losses of the tokens that had about as much context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionBin {
    /// Fewest tokens of context in the bin: a power of two.
    pub from: usize,
    /// Most tokens of context in the bin.
    pub to: usize,
    /// Losses, nats.
    pub nats: Moments,
}

/// Losses of one document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DocumentScore {
    /// Tokens of the document.
    pub tokens: usize,
    /// Losses, nats.
    pub nats: Moments,
}

/// Losses of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextScore {
    /// All predicted tokens, nats.
    pub nats: Moments,
    /// By the number of tokens a prediction was made from.
    pub positions: Vec<PositionBin>,
    /// One entry a document, in order.
    pub documents: Vec<DocumentScore>,
}

impl TextScore {
    fn add(&mut self, context: usize, nats: f64) {
        self.nats.add(nats);
        let bin = context.ilog2() as usize;
        while self.positions.len() <= bin {
            let from = 1 << self.positions.len();
            self.positions.push(PositionBin {
                from,
                to: 2 * from - 1,
                nats: Moments::default(),
            });
        }
        self.positions[bin].nats.add(nats);
        if let Some(document) = self.documents.last_mut() {
            document.nats.add(nats);
        }
    }

    /// Standard error of the mean loss with documents as the unit: tokens of one document are not independent of one another.
    /// The ratio estimator (Cochran, Sampling Techniques, section 6.3) over `k` documents with losses `s_i` of `t_i` tokens:
    /// `sqrt(k / (k - 1) * sum((s_i - mean t_i)^2)) / sum(t_i)`. `None` below two documents with predictions.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counts
    pub fn standard_error_by_document(&self) -> Option<f64> {
        let mean = self.nats.mean()?;
        let scored = self.documents.iter().filter(|d| d.nats.n() > 0);
        let (mut k, mut squares) = (0u64, 0.0);
        for document in scored {
            k += 1;
            squares += (document.nats.sum() - mean * document.nats.n() as f64).powi(2);
        }
        let factor = k as f64 / k.saturating_sub(1) as f64;
        (k > 1).then(|| (factor * squares).sqrt() / self.nats.n() as f64)
    }
}

/// Runs every window of every document and gathers the losses. `done` is called after each window.
///
/// # Errors
/// As [`Model::forward`].
pub fn score_documents(
    model: &Model,
    documents: &[Vec<u32>],
    windows: Windows,
    done: &dyn Fn(),
) -> Result<TextScore, EvalError> {
    score_documents_in_pieces(model, documents, windows, None, done)
}

/// [`score_documents`] with every window run in pieces of at most `piece` tokens (all at once without one), each on the keys and values
/// of those before it, as a server prefills and decodes. That changes the rounding of the model's matrix products and nothing else.
///
/// # Errors
/// As [`Model::forward`]; a model that is not causal cannot be run in pieces.
pub fn score_documents_in_pieces(
    model: &Model,
    documents: &[Vec<u32>],
    windows: Windows,
    piece: Option<NonZeroUsize>,
    done: &dyn Fn(),
) -> Result<TextScore, EvalError> {
    let mut score = TextScore::default();
    for ids in documents {
        score.documents.push(DocumentScore {
            tokens: ids.len(),
            nats: Moments::default(),
        });
        for window in windows.of(ids.len()) {
            score.run(model, ids, window, piece)?;
            done();
        }
    }
    Ok(score)
}

impl TextScore {
    fn run(
        &mut self,
        model: &Model,
        ids: &[u32],
        window: Window,
        piece: Option<NonZeroUsize>,
    ) -> Result<(), EvalError> {
        let mut cache = piece.map(|_| KvCache::new(model.spec()));
        let piece = piece.map_or(window.end - window.start, NonZeroUsize::get);
        for start in (window.start..window.end).step_by(piece) {
            let end = window.end.min(start + piece);
            let options = ForwardOptions {
                cache: cache.as_mut(),
                ..ForwardOptions::default()
            };
            let hidden = model.forward(&ids[start..end], options)?;
            // the row before a token predicts it
            let targets = window.first_target.max(start + 1)..window.end.min(end + 1);
            if targets.is_empty() {
                continue;
            }
            let rows = targets.start - 1 - start..targets.end - 1 - start;
            let scores = model.score(&hidden, rows, &ids[targets.clone()])?;
            for (target, token) in targets.zip(scores) {
                self.add(target - window.start, f64::from(token.nats));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_but_the_first_is_predicted_once() {
        for n in 0..40 {
            for length in 2..12 {
                for stride in 1..length {
                    let windows = Windows::new(length, stride).unwrap();
                    let mut next = 1;
                    for window in windows.of(n) {
                        assert!(window.end - window.start <= length);
                        assert!(window.first_target > window.start);
                        assert_eq!(window.first_target, next, "{n} {length} {stride}");
                        // at least length - stride tokens of context, where the document has them
                        let context = window.first_target - window.start;
                        assert!(window.start == 0 || context >= length - stride);
                        next = window.end;
                    }
                    assert_eq!(next, n.max(1), "{n} {length} {stride}");
                }
            }
        }
    }

    #[test]
    fn blocks_leave_out_their_first_token_only() {
        let windows = Windows::new(4, 4).unwrap();
        let targets: Vec<usize> = windows.of(10).flat_map(|w| w.first_target..w.end).collect();
        assert_eq!(targets, [1, 2, 3, 5, 6, 7, 9]);
    }

    #[test]
    fn impossible_windows_are_refused() {
        for (length, stride) in [(0, 1), (1, 1), (4, 0), (4, 5)] {
            assert!(Windows::new(length, stride).is_err(), "{length} {stride}");
        }
    }

    #[test]
    fn bins_are_powers_of_two_and_documents_are_clusters() {
        let mut score = TextScore::default();
        for losses in [[1.0, 3.0], [5.0, 7.0]] {
            score.documents.push(DocumentScore {
                tokens: 3,
                nats: Moments::default(),
            });
            for (context, nats) in (1..).zip(losses) {
                score.add(context, nats);
            }
        }
        let bins: Vec<_> = score
            .positions
            .iter()
            .map(|b| (b.from, b.to, b.nats.mean()))
            .collect();
        assert_eq!(bins, [(1, 1, Some(3.0)), (2, 3, Some(5.0))]);
        // mean 4; document sums 4 and 12, expected 8 each: sqrt(2 * 32) / 4
        assert_eq!(score.standard_error_by_document(), Some(2.0));
    }
}
