//! Observers: evidence is gathered while attention runs, so that no attention matrix is ever kept.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;

use crate::input::{AttentionShape, CapOrder, HeadBias};
use crate::score_tile::ScoreTile;

/// Watches one attention call. Heads may run on different threads at the same time, each with its own sink.
pub trait AttentionObserver: Send + Sync + Debug {
    /// A new sink for query head `head`. Called once per head, before its first rows.
    fn begin(&self, head: usize) -> Box<dyn HeadSink>;
    /// Takes the sink back after the head's last row. Heads finish in no fixed order.
    fn finish(&self, head: usize, sink: Box<dyn HeadSink>);
    /// Whether every score inside the mask has to be there. If not, the oldest keys of a row may be missing where their
    /// weights are exactly zero in f32, gaps to the row's maximum above 103.97 nats: [`RowView::proven_zero_before`] says from where
    /// on a row is complete. An observer whose every threshold is below that loses nothing and gains much time.
    fn needs_all_scores(&self) -> bool {
        true
    }
    /// Whether the sinks of this observer take whole tiles ([`HeadSink::tile`]) where the call allows it: causal, without
    /// padding, without a soft cap. Other calls go to [`HeadSink::rows`] all the same.
    fn takes_tiles(&self) -> bool {
        false
    }
}

/// Scores that a sink can do without, see [`HeadSink::spare_scores`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpareScores {
    /// Scores provably more than this far below their row's maximum, nats. Less than 103.98 counts as 103.98.
    pub gap: f32,
    /// But only in blocks that provably hold no raw score larger than this in absolute value, nats.
    pub raw_max: f32,
}

/// Receives the scores of one head, a few rows at a time, in ascending query order.
pub trait HeadSink: Send + Any {
    /// The next rows. The slices live only for the call.
    fn rows(&mut self, rows: &ScoreRows<'_>);
    /// The next tile of queries, of an observer that [takes tiles](AttentionObserver::takes_tiles).
    fn tile(&mut self, _tile: &ScoreTile<'_>) {
        unreachable!("an observer that takes tiles has sinks that do");
    }
    /// Which scores of the next tile need not be computed; `None`: all are needed. Asked before every [`HeadSink::tile`].
    fn spare_scores(&self) -> Option<SpareScores> {
        None
    }
}

/// Scores of a few consecutive query rows of one head, with the row maxima and sums of the f32 forward pass.
#[derive(Clone, Copy, Debug)]
pub struct ScoreRows<'a> {
    /// Query head.
    pub head: usize,
    /// Key index of the first row's query (`query_offset` included).
    pub first_query: usize,
    /// Rows in this call; differs from call to call.
    pub n_rows: usize,
    /// Keys of the whole call.
    pub n_keys: usize,
    /// Elements from one row of `raw` to the next (at least `n_keys`).
    pub stride: usize,
    /// `[n_rows, stride]`: scaled `q . k` in nats WITHOUT bias, after a cap that comes before the bias. Only the visible
    /// keys of a row hold scores; the rest is unspecified. Prefer [`ScoreRows::row`].
    pub raw: &'a [f32],
    /// `[n_rows]`: largest score with bias, in nats; `-inf` for a row that sees nothing.
    pub row_max: &'a [f32],
    /// `[n_rows]`: sum of `exp(score - max)` as the forward pass holds it; 0 for a row that sees nothing.
    pub row_sum: &'a [f32],
    /// `[n_rows]`: logarithm of the sum of `exp(score)` in nats; `-inf` for a row that sees nothing.
    pub row_lse: &'a [f32],
    /// Whether later keys are hidden.
    pub causal: bool,
    /// `[n_keys]`, false for padding.
    pub key_valid: Option<&'a [bool]>,
    /// The soft cap, if any; one before the bias is already inside `raw`.
    pub soft_cap: Option<(f32, CapOrder)>,
    /// Keys before this one have weight exactly 0 in every row and were not computed: their scores are unspecified. 0 unless
    /// the observer does without some scores ([`AttentionObserver::needs_all_scores`]).
    pub proven_zero_before: usize,
    pub(crate) bias: HeadBias<'a>,
}

impl<'a> ScoreRows<'a> {
    /// The view of row `row` (0-based within this call).
    pub fn row(&self, row: usize) -> RowView<'a> {
        assert!(row < self.n_rows, "row {row} of {}", self.n_rows);
        let query = self.first_query + row;
        let end = if self.causal {
            (query + 1).min(self.n_keys)
        } else {
            self.n_keys
        };
        RowView {
            query,
            keys: 0..end,
            raw: &self.raw[row * self.stride..row * self.stride + end],
            max: self.row_max[row],
            sum: self.row_sum[row],
            lse: self.row_lse[row],
            key_valid: self.key_valid.map(|valid| &valid[..end]),
            proven_zero_before: self.proven_zero_before.min(end),
            soft_cap: self.soft_cap,
            bias: self.bias,
        }
    }

    /// All rows in ascending query order.
    pub fn iter(&self) -> impl Iterator<Item = RowView<'a>> + use<'a> {
        let rows = *self;
        (0..self.n_rows).map(move |row| rows.row(row))
    }

    /// Bias in nats of a pair inside the mask; both are key indices.
    pub fn bias_at(&self, query: usize, key: usize) -> f32 {
        self.bias.at(query, key)
    }

    /// Assembles the view for one tile.
    #[allow(
        clippy::too_many_arguments,
        reason = "one internal call site; a struct would repeat ScoreRows"
    )]
    pub(crate) fn of_tile(
        shape: &AttentionShape,
        head: usize,
        first_row: usize,
        stride: usize,
        raw: &'a [f32],
        row_max: &'a [f32],
        row_sum: &'a [f32],
        row_lse: &'a [f32],
        key_valid: Option<&'a [bool]>,
        bias: HeadBias<'a>,
        proven_zero_before: usize,
    ) -> Self {
        Self {
            head,
            first_query: shape.query_offset + first_row,
            n_rows: row_max.len(),
            n_keys: shape.n_keys,
            stride,
            raw,
            row_max,
            row_sum,
            row_lse,
            causal: shape.causal,
            key_valid,
            soft_cap: shape.soft_cap,
            proven_zero_before,
            bias,
        }
    }
}

/// One query row as an observer sees it.
#[derive(Clone, Debug)]
pub struct RowView<'a> {
    /// Key index of the query.
    pub query: usize,
    /// Keys inside the causal rule; always starts at 0. Padding inside the range is marked by `key_valid`.
    pub keys: Range<usize>,
    /// One score per key of `keys`: scaled `q . k` in nats without bias, after a cap that comes before the bias.
    pub raw: &'a [f32],
    /// Largest score with bias, in nats; `-inf` if the row sees nothing.
    pub max: f32,
    /// Sum of `exp(score - max)` as the forward pass holds it; 0 if the row sees nothing.
    pub sum: f32,
    /// Logarithm of the sum of `exp(score)`, in nats; `-inf` if the row sees nothing.
    pub lse: f32,
    /// One flag per key of `keys`, false for padding. `None`: all are real.
    pub key_valid: Option<&'a [bool]>,
    /// Keys before this one have weight exactly 0 and were not computed: their entries in `raw` are unspecified. 0 unless the
    /// observer does without some scores ([`AttentionObserver::needs_all_scores`]).
    pub proven_zero_before: usize,
    soft_cap: Option<(f32, CapOrder)>,
    bias: HeadBias<'a>,
}

impl RowView<'_> {
    /// Whether key `key` is inside the mask of this row.
    pub fn sees(&self, key: usize) -> bool {
        self.keys.contains(&key) && self.key_valid.is_none_or(|valid| valid[key])
    }

    /// Number of pairs of this row inside the mask.
    pub fn n_visible(&self) -> usize {
        match self.key_valid {
            None => self.keys.len(),
            Some(valid) => valid.iter().filter(|&&ok| ok).count(),
        }
    }

    /// Bias in nats of `key`, which must lie in `keys`.
    pub fn bias(&self, key: usize) -> f32 {
        self.bias.at(self.query, key)
    }

    /// Writes the bias of every key of `keys`, in nats. `out` has the length of `keys`.
    pub fn bias_into(&self, out: &mut [f32]) {
        assert_eq!(out.len(), self.keys.len(), "one bias per key");
        match self.bias {
            HeadBias::None => out.fill(0.0),
            HeadBias::ByKey(values) => out.copy_from_slice(&values[..out.len()]),
            HeadBias::ByDistance(values) => {
                let past = out.len().min(self.query + 1);
                let (behind, ahead) = out.split_at_mut(past);
                let nearest = self.query + 1 - past;
                for (o, &b) in behind.iter_mut().rev().zip(&values[nearest..]) {
                    *o = b;
                }
                for (o, &b) in ahead.iter_mut().zip(values.iter().skip(1)) {
                    *o = b;
                }
            }
        }
    }

    /// Writes the scores the softmax saw: raw plus bias, capped where the cap comes after the bias, `-inf` for
    /// padding and for keys before `proven_zero_before`, in nats. The same bits as in the forward pass. `out` has the length
    /// of `keys`.
    pub fn scores_into(&self, out: &mut [f32]) {
        self.bias_into(out);
        for (o, &raw) in out.iter_mut().zip(self.raw) {
            *o += raw;
        }
        if let Some((cap, CapOrder::AfterBias)) = self.soft_cap {
            crate::exp::soft_cap_in_place(out, cap);
        }
        out[..self.proven_zero_before].fill(f32::NEG_INFINITY);
        if let Some(valid) = self.key_valid {
            for (o, &ok) in out.iter_mut().zip(valid) {
                if !ok {
                    *o = f32::NEG_INFINITY;
                }
            }
        }
    }
}
