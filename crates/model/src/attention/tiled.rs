//! Attention in tensor operations that every backend has: a tile of queries against all keys they see, tile after tile, so that
//! the scores of one tile are the largest thing that exists and memory grows linearly with the length.
//!
//! The bias is a table linear in the length, from which a tile takes its part by key or by `|query - key|`; no
//! `heads x length x length` tensor exists. Keys after a tile's last query are left out of its products, blocks that a
//! bias makes zero are not: skipping is the CPU kernel's.
//!
//! Hidden pairs get the finite score [`HIDDEN`], not minus infinity: shader languages may assume that there are no infinities.
//! Its weight is exactly 0 beside any score that matters; a row that sees nothing is found by its maximum.

use std::ops::Range;

use burn::backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{BoolDType, FloatDType, IntDType, Shape, Slice, TensorData};
use kernels::CapOrder;

use super::ops::{AttentionParams, BiasKind, Segment};

/// Score of a pair that no query sees, in nats; representable in every float type a device computes in but f16.
const HIDDEN: f64 = -1e30;
/// Below this a row's maximum says that it sees nothing, and so does its log-sum-exp.
const NOTHING: f64 = -1e29;

/// Scores of a tile: 4 million, 16 MiB of f32, as far as [`ROWS_LEAST`] allows.
const TILE_SCORES: usize = 4 << 20;
/// Rows of a tile at least: fewer would leave a device idle.
const ROWS_LEAST: usize = 16;
/// Rows of a tile at most: the causal triangle is computed in steps of a tile.
const ROWS_MOST: usize = 256;

/// Queries per tile. For very long sequences the scores of a tile are `16 * n_heads * n_keys`: linear.
pub(super) fn tile_rows(n_heads: usize, n_keys: usize) -> usize {
    (TILE_SCORES / (n_heads * n_keys).max(1)).clamp(ROWS_LEAST, ROWS_MOST)
}

/// Some rows and columns, everything in the leading dimensions.
pub(super) fn cut<B: Backend, const D: usize>(
    tensor: FloatTensor<B>,
    ranges: [Range<usize>; D],
) -> FloatTensor<B> {
    B::float_slice(tensor, &ranges.map(Slice::from))
}

/// A tile: rows of the queries and the keys any of them may see.
pub(super) struct Tile {
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
}

/// The inputs of a call, by head, on their device.
pub(super) struct Call<'a, B: Backend> {
    pub(super) params: &'a AttentionParams,
    /// `[n_heads, n_queries, width]`
    pub(super) q: FloatTensor<B>,
    /// `[n_kv_heads, n_keys, width]`, zero where a key is padding.
    pub(super) k: FloatTensor<B>,
    /// Like `k`.
    pub(super) v: FloatTensor<B>,
    /// `[n_heads, n]`
    bias: FloatTensor<B>,
    /// `[1, 1, n_keys]`, true where a key is padding.
    padding: Option<BoolTensor<B>>,
    device: Device<B>,
    pub(super) float: FloatDType,
    int: IntDType,
    pub(super) bool: BoolDType,
}

/// Scores of a tile, and what their gradients need.
pub(super) struct Scores<B: Backend> {
    /// `[n_heads, rows, keys]`, nats, with cap and bias; [`HIDDEN`] where a pair is.
    pub(super) scores: FloatTensor<B>,
    /// `tanh(x / cap)` of what was capped.
    pub(super) tanh: Option<FloatTensor<B>>,
}

/// `[rows, heads * width]` to `[heads, rows, width]`.
fn by_head<B: Backend>(tensor: FloatTensor<B>, heads: usize, width: usize) -> FloatTensor<B> {
    let rows = tensor.shape()[0];
    let split = B::float_reshape(tensor, Shape::from([rows, heads, width]));
    B::float_swap_dims(split, 0, 1)
}

/// `[heads, rows, width]` to `[rows, heads * width]`.
pub(super) fn by_row<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    let shape = tensor.shape();
    let rows = B::float_swap_dims(tensor, 0, 1);
    B::float_reshape(rows, Shape::from([shape[1], shape[0] * shape[2]]))
}

impl<'a, B: Backend> Call<'a, B> {
    pub(super) fn new([q, k, v, bias]: [FloatTensor<B>; 4], params: &'a AttentionParams) -> Self {
        // Either would need scores back on the host; refusing beats silence. `Model::forward` says so before this is reached.
        assert!(
            params.observer.is_none() && params.emulation.is_none(),
            "attention is observed and emulated by the CPU kernels alone"
        );
        let s = params.shape;
        let device = q.device();
        let settings = get_or_init_device_settings::<B>(&device);
        let float: FloatDType = q.dtype().into();
        let padding = params.key_valid.as_ref().map(|valid| {
            let hidden: Vec<bool> = valid.iter().map(|valid| !valid).collect();
            let data = TensorData::new(hidden, [1, 1, s.n_keys]);
            B::bool_from_data(data.convert_dtype(settings.bool_dtype.into()), &device)
        });
        let keys = |tensor| {
            let tensor = by_head::<B>(tensor, s.n_kv_heads, s.head_width);
            match &padding {
                // Not even a NaN in padding may reach a sum.
                Some(padding) => {
                    let mask = B::bool_swap_dims(padding.clone(), 1, 2);
                    let shape = [s.n_kv_heads, s.n_keys, s.head_width];
                    let mask = B::bool_expand(mask, Shape::from(shape));
                    B::float_mask_fill(tensor, mask, 0.0.into())
                }
                None => tensor,
            }
        };
        let (k, v) = (keys(k), keys(v));
        Self {
            params,
            q: by_head::<B>(q, s.n_heads, s.head_width),
            k,
            v,
            bias,
            padding,
            device,
            float,
            int: settings.int_dtype,
            bool: settings.bool_dtype,
        }
    }

    /// The tiles of a segment, in order.
    pub(super) fn tiles(&self, segment: &Segment) -> impl Iterator<Item = Tile> {
        let s = self.params.shape;
        let keys = segment.keys.clone();
        let rows = tile_rows(s.n_heads, keys.len());
        let queries = segment.queries.clone();
        let (first_key, last_key) = (keys.start, keys.end);
        queries.clone().step_by(rows).map(move |start| {
            let end = (start + rows).min(queries.end);
            // Documents have no offset, so a row's own key is its number in both cases.
            let visible = if s.causal {
                last_key.min(s.query_offset + end)
            } else {
                last_key
            };
            Tile {
                queries: start..end,
                keys: first_key..visible,
            }
        })
    }

    /// Products of a tile of queries, `[n_heads, rows, width]`, with its keys: `[n_heads, rows, keys]`. Heads that share keys are
    /// rows of one product.
    pub(super) fn against(
        &self,
        rows: FloatTensor<B>,
        keys: FloatTensor<B>,
        tile: &Tile,
    ) -> FloatTensor<B> {
        let s = self.params.shape;
        let n = tile.queries.len();
        let keys = cut::<B, 3>(keys, [0..s.n_kv_heads, tile.keys.clone(), 0..s.head_width]);
        let rows = self.grouped(rows, s.head_width);
        let product = B::float_matmul(rows, B::float_swap_dims(keys, 1, 2));
        B::float_reshape(product, Shape::from([s.n_heads, n, tile.keys.len()]))
    }

    /// `[n_heads, rows, c]` to `[n_kv_heads, heads of the group * rows, c]`.
    pub(super) fn grouped(&self, tensor: FloatTensor<B>, c: usize) -> FloatTensor<B> {
        let s = self.params.shape;
        let rows = tensor.shape()[1];
        let group = s.n_heads / s.n_kv_heads;
        B::float_reshape(tensor, Shape::from([s.n_kv_heads, group * rows, c]))
    }

    /// Query minus key in tokens, `[rows, keys]`.
    fn differences(&self, tile: &Tile) -> IntTensor<B> {
        let count = |range: Range<usize>, shape: [usize; 2]| {
            let range = range.start as i64..range.end as i64;
            let numbers = B::int_arange(range, &self.device, self.int);
            B::int_reshape(numbers, Shape::from(shape))
        };
        let offset = self.params.shape.query_offset;
        let (rows, keys) = (tile.queries.len(), tile.keys.len());
        let queries = offset + tile.queries.start..offset + tile.queries.end;
        B::int_sub(
            count(queries, [rows, 1]),
            count(tile.keys.clone(), [1, keys]),
        )
    }

    /// The bias of a tile, `[n_heads, rows or 1, keys]`.
    fn tile_bias(&self, tile: &Tile, differences: &IntTensor<B>) -> Option<FloatTensor<B>> {
        let heads = self.params.shape.n_heads;
        let (rows, keys) = (tile.queries.len(), tile.keys.len());
        match self.params.bias {
            BiasKind::None => None,
            BiasKind::ByKey => {
                let part = cut::<B, 2>(self.bias.clone(), [0..heads, tile.keys.clone()]);
                Some(B::float_reshape(part, Shape::from([heads, 1, keys])))
            }
            BiasKind::ByDistance => {
                let distances = B::int_abs(differences.clone());
                let flat = B::int_reshape(distances, Shape::from([rows * keys]));
                let values = B::float_select(self.bias.clone(), 1, flat);
                Some(B::float_reshape(values, Shape::from([heads, rows, keys])))
            }
        }
    }

    /// Scores of a tile.
    pub(super) fn scores(&self, tile: &Tile) -> Scores<B> {
        let s = self.params.shape;
        let (rows, keys) = (tile.queries.len(), tile.keys.len());
        let q = cut::<B, 3>(
            self.q.clone(),
            [0..s.n_heads, tile.queries.clone(), 0..s.head_width],
        );
        let products = self.against(q, self.k.clone(), tile);
        let mut scores = B::float_mul_scalar(products, s.scale.into());
        let differences = self.differences(tile);
        let mut bias = self.tile_bias(tile, &differences);
        let mut tanh = None;
        let mut add = |scores: FloatTensor<B>| match bias.take() {
            Some(bias) => B::float_add(scores, bias),
            None => scores,
        };
        if s.soft_cap
            .is_none_or(|(_, order)| order == CapOrder::AfterBias)
        {
            scores = add(scores);
        }
        if let Some((cap, _)) = s.soft_cap {
            let t = B::float_tanh(B::float_div_scalar(scores, cap.into()));
            scores = B::float_mul_scalar(t.clone(), cap.into());
            tanh = Some(t);
        }
        // Nothing is left to add where the bias came before the cap.
        scores = add(scores);
        let whole = Shape::from([s.n_heads, rows, keys]);
        let mut hide = |mask: BoolTensor<B>| {
            let mask = B::bool_expand(mask, whole.clone());
            let hidden = scores.clone();
            scores = B::float_mask_fill(hidden, mask, HIDDEN.into());
        };
        if s.causal {
            let future = B::int_lower_elem(differences, 0.into(), self.bool);
            hide(B::bool_reshape(future, Shape::from([1, rows, keys])));
        }
        if let Some(padding) = &self.padding {
            let range = [0..1, 0..1, tile.keys.clone()].map(Slice::from);
            hide(B::bool_slice(padding.clone(), &range));
        }
        Scores { scores, tanh }
    }

    /// True where a maximum or a log-sum-exp is that of a row which sees nothing.
    pub(super) fn sees_nothing(&self, values: FloatTensor<B>) -> BoolTensor<B> {
        B::float_lower_elem(values, NOTHING.into(), self.bool)
    }

    /// A tensor of zeros.
    pub(super) fn zeros<const D: usize>(&self, shape: [usize; D]) -> FloatTensor<B> {
        B::float_zeros(Shape::from(shape), &self.device, self.float)
    }
}

/// Default body of [`super::ops::AttentionOps::attend`].
pub(super) fn forward<B: Backend>(
    q: FloatTensor<B>,
    k: FloatTensor<B>,
    v: FloatTensor<B>,
    bias: FloatTensor<B>,
    params: &AttentionParams,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let call = Call::<B>::new([q, k, v, bias], params);
    let s = params.shape;
    let (mut outs, mut sums) = (vec![], vec![]);
    for segment in params.segments() {
        for tile in call.tiles(&segment) {
            let (out, lse) = attend_tile(&call, &tile);
            outs.push(out);
            sums.push(lse);
        }
    }
    let join = |mut parts: Vec<FloatTensor<B>>, dim| match parts.len() {
        1 => parts.swap_remove(0),
        _ => B::float_cat(parts, dim),
    };
    if outs.is_empty() {
        return (
            call.zeros([s.n_queries, s.n_heads * s.head_width]),
            call.zeros([s.n_heads, s.n_queries]),
        );
    }
    (join(outs, 0), join(sums, 1))
}

/// Output `[rows, n_heads * width]` and log-sum-exp `[n_heads, rows]` of a tile.
fn attend_tile<B: Backend>(call: &Call<'_, B>, tile: &Tile) -> (FloatTensor<B>, FloatTensor<B>) {
    let s = call.params.shape;
    let rows = tile.queries.len();
    let scores = call.scores(tile).scores;
    let max = B::float_max_dim(scores.clone(), 2);
    let nothing = call.sees_nothing(max.clone());
    let weights = B::float_exp(B::float_sub(scores, max.clone()));
    let sum = B::float_sum_dim(weights.clone(), 2);
    let values = cut::<B, 3>(
        call.v.clone(),
        [0..s.n_kv_heads, tile.keys.clone(), 0..s.head_width],
    );
    let out = B::float_matmul(call.grouped(weights, tile.keys.len()), values);
    let out = B::float_reshape(out, Shape::from([s.n_heads, rows, s.head_width]));
    let out = B::float_div(out, sum.clone());
    let lse = B::float_add(max, B::float_log(sum));
    // Padding alone can hide every key of a row.
    let (out, lse) = if call.params.key_valid.is_some() {
        let wide = B::bool_expand(nothing.clone(), out.shape());
        (
            B::float_mask_fill(out, wide, 0.0.into()),
            B::float_mask_fill(lse, nothing, f64::NEG_INFINITY.into()),
        )
    } else {
        (out, lse)
    };
    let lse = B::float_reshape(lse, Shape::from([s.n_heads, rows]));
    (by_row::<B>(out), lse)
}
