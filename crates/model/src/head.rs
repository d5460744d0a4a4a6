//! From the residual stream to logits, losses and ranks, in blocks of the vocabulary: no full row of logits is kept unless
//! the caller asks for rows of logits.

use std::ops::Range;

use burn::tensor::Tensor;
use rayon::prelude::*;

use crate::error::ModelError;
use crate::forward::{Hidden, Model};
use crate::layer::{chunks, rows};
use crate::math;

/// Rows of the stream per matrix product.
pub(crate) const ROWS: usize = 512;

/// Vocabulary rows per block: 2048, so that a block of logits has 4 MiB and is still in the cache when it is summed (8192 rows
/// cost a sixth of the rate); fewer for a stream so wide that a block of the table would pass 32 MiB.
pub(crate) fn block_rows(width: usize) -> usize {
    (8 * 1024 * 1024 / width).clamp(256, 2048)
}

/// How well a token was predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenScore {
    /// `-ln p`, nats.
    pub nats: f32,
    /// Number of tokens with a larger logit: 0 for the token a greedy decoder picks.
    pub rank: u32,
    /// The token a greedy decoder picks: largest logit, smallest id among equals.
    pub argmax: u32,
}

/// Next-token loss of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// `-ln p(ids[t + 1] | ids[..=t])` for `t` in `0..n - 1`, nats.
    pub nats_per_token: Vec<f32>,
}

impl Loss {
    /// Mean over all predicted tokens, nats per token; `None` when there are none.
    pub fn mean(&self) -> Option<f64> {
        let n = self.nats_per_token.len();
        let sum: f64 = self.nats_per_token.iter().map(|&x| f64::from(x)).sum();
        (n > 0).then(|| sum / n as f64)
    }
}

/// Running state of one row while the vocabulary passes by.
#[derive(Clone, Copy)]
struct RowState {
    max: f32,
    argmax: u32,
    /// `sum(exp(z - max))`
    sum: f64,
    target: u32,
    target_logit: f32,
    larger: u32,
}

impl RowState {
    fn new(target: u32, target_logit: f32) -> Self {
        Self {
            max: f32::NEG_INFINITY,
            argmax: 0,
            sum: 0.0,
            target,
            target_logit,
            larger: 0,
        }
    }

    /// Takes in the logits of ids `first..`.
    fn add(&mut self, first: u32, logits: &[f32]) {
        let max = math::max(logits);
        if max > self.max {
            let at = logits.iter().position(|&z| z == max).unwrap_or(0);
            self.argmax = first + at as u32;
            self.sum *= f64::from(self.max - max).exp();
            self.max = max;
        }
        // NaN logits make the sum NaN, as they should.
        self.sum += math::sum_exp(logits, self.max);
        let threshold = self.target_logit;
        let larger = logits.iter().map(|&z| u32::from(z > threshold));
        self.larger += larger.sum::<u32>();
        let own = self.target.checked_sub(first).map(|i| i as usize);
        if let Some(&z) = own.and_then(|i| logits.get(i)) {
            // The logit to compare with came from a dot product of its own and may differ from this one in the last place:
            // a token is never larger than itself.
            self.larger -= u32::from(z > threshold);
            self.target_logit = z;
        }
    }

    fn score(&self) -> TokenScore {
        let log_sum = f64::from(self.max) + self.sum.ln();
        TokenScore {
            nats: (log_sum - f64::from(self.target_logit)) as f32,
            rank: self.larger,
            argmax: self.argmax,
        }
    }
}

impl Model {
    /// Logits of some tokens of the stream, `[rows, vocab_size]` row-major: `4 * rows * vocab_size` bytes.
    ///
    /// # Errors
    /// Rows outside the stream, or what the weight source reports.
    pub fn logits(&self, hidden: &Hidden, rows: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let vocab = self.spec.vocab_size;
        self.check_rows(hidden, &rows)?;
        let (first, n) = (rows.start, rows.len());
        let mut out = vec![0f32; n * vocab];
        self.for_logit_blocks(hidden, rows, |range, ids, block| {
            let start = range.start - first;
            let targets = out[start * vocab..].chunks_exact_mut(vocab);
            for (row, target) in block.chunks_exact(ids.len()).zip(targets) {
                target[ids.clone()].copy_from_slice(row);
            }
        })?;
        Ok(out)
    }

    /// How well tokens were predicted: `targets[i]` is scored by the logits of token `rows.start + i` of the stream.
    ///
    /// # Errors
    /// Rows outside the stream, as many targets as rows missing, an id outside the vocabulary, or what the weight source
    /// reports.
    pub fn score(
        &self,
        hidden: &Hidden,
        rows: Range<usize>,
        targets: &[u32],
    ) -> Result<Vec<TokenScore>, ModelError> {
        self.check_rows(hidden, &rows)?;
        self.check_ids(targets)?;
        if targets.len() != rows.len() {
            return Err(ModelError::Input(format!(
                "{} targets for {} rows",
                targets.len(),
                rows.len()
            )));
        }
        let mut states = self.start(hidden, &rows, targets)?;
        let first = rows.start;
        self.for_logit_blocks(hidden, rows, |range, ids, block| {
            let states = &mut states[range.start - first..range.end - first];
            let logits = block.par_chunks_exact(ids.len());
            let pairs = states.par_iter_mut().zip(logits);
            pairs.for_each(|(state, logits)| state.add(ids.start as u32, logits));
        })?;
        Ok(states.iter().map(RowState::score).collect())
    }

    /// Loss of every token but the first; `ids` are those the stream was computed from. Padding is scored like anything else:
    /// leave those entries out.
    ///
    /// # Errors
    /// As [`Model::score`].
    pub fn loss(&self, hidden: &Hidden, ids: &[u32]) -> Result<Loss, ModelError> {
        if ids.len() != hidden.n_tokens() {
            return Err(ModelError::Input(format!(
                "{} ids for a stream of {} tokens",
                ids.len(),
                hidden.n_tokens()
            )));
        }
        let scores = match ids {
            [] | [_] => Vec::new(),
            [_, targets @ ..] => self.score(hidden, 0..targets.len(), targets)?,
        };
        let nats_per_token = scores.iter().map(|score| score.nats).collect();
        Ok(Loss { nats_per_token })
    }

    /// Rows with the logits of their targets, each a dot product in f64.
    fn start(
        &self,
        hidden: &Hidden,
        range: &Range<usize>,
        targets: &[u32],
    ) -> Result<Vec<RowState>, ModelError> {
        let mut states = Vec::with_capacity(targets.len());
        for part in chunks(targets.len(), ROWS) {
            let targets = &targets[part.clone()];
            let table = self.store.gather(self.store.head_role(), targets)?;
            let x = rows(
                &hidden.rows,
                range.start + part.start..range.start + part.end,
            );
            let (x, table) = (values(x), values(table));
            let width = self.spec.width;
            let pairs = x.chunks_exact(width).zip(table.chunks_exact(width));
            states.extend(pairs.zip(targets).map(|((x, w), &target)| {
                let products = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
                let mut logit = [products.sum::<f64>() as f32];
                self.finish_logits(&mut logit);
                RowState::new(target, logit[0])
            }));
        }
        Ok(states)
    }

    /// Calls `f` with (rows of the stream, ids, logits `[rows, ids]`) until all are covered. The table is read once.
    fn for_logit_blocks(
        &self,
        hidden: &Hidden,
        range: Range<usize>,
        mut f: impl FnMut(Range<usize>, Range<usize>, &[f32]),
    ) -> Result<(), ModelError> {
        let block_rows = block_rows(self.spec.width);
        let role = self.store.head_role();
        let n_products = range.len().div_ceil(ROWS);
        self.store
            .for_blocks(role, block_rows, n_products, |ids, table| {
                for part in chunks(range.len(), ROWS) {
                    let part = range.start + part.start..range.start + part.end;
                    let mut logits = values(rows(&hidden.rows, part.clone()).matmul(table.clone()));
                    self.finish_logits(&mut logits);
                    f(part, ids.clone(), &logits);
                }
                Ok(())
            })
    }

    /// Scale and soft cap.
    fn finish_logits(&self, logits: &mut [f32]) {
        let head = &self.spec.head;
        if head.logit_scale != 1.0 {
            logits.par_iter_mut().for_each(|z| *z *= head.logit_scale);
        }
        if let Some(cap) = head.soft_cap {
            logits
                .par_iter_mut()
                .for_each(|z| *z = cap * (*z / cap).tanh());
        }
    }

    fn check_rows(&self, hidden: &Hidden, rows: &Range<usize>) -> Result<(), ModelError> {
        let n = hidden.n_tokens();
        if rows.start <= rows.end && rows.end <= n {
            return Ok(());
        }
        Err(ModelError::Input(format!(
            "rows {}..{} of a stream of {n} tokens",
            rows.start, rows.end
        )))
    }
}

fn values(tensor: Tensor<2>) -> Vec<f32> {
    tensor
        .into_data()
        .try_into_vec()
        .expect("the forward pass is f32")
}
