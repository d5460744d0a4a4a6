//! The gradient of [`super::tiled`], in the same tiles: scores are computed again, nothing of a forward tile is kept.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::Shape;
use kernels::CapOrder;

use super::ops::{AttentionParams, BiasKind};
use super::tiled::{Call, Tile, by_row, cut};

/// Sums over tiles.
struct Sums<B: Backend> {
    /// `[n_kv_heads, n_keys, width]`
    dk: FloatTensor<B>,
    /// Like `dk`.
    dv: FloatTensor<B>,
    /// `[n_heads, n]`, if wanted.
    dbias: Option<FloatTensor<B>>,
}

/// Default body of [`super::ops::AttentionOps::attend_backward`]: gradients of queries, keys, values and bias.
pub(super) fn backward<B: Backend>(
    inputs: [FloatTensor<B>; 4],
    [out, lse, gradient]: [FloatTensor<B>; 3],
    params: &AttentionParams,
    bias_gradient: bool,
) -> [FloatTensor<B>; 4] {
    let s = params.shape;
    let bias_shape = inputs[3].shape();
    let [heads, entries] = [bias_shape[0], bias_shape[1]];
    let call = Call::<B>::new(inputs, params);
    let wanted = bias_gradient && params.bias == BiasKind::ByDistance;
    let mut sums = Sums {
        dk: call.zeros([s.n_kv_heads, s.n_keys, s.head_width]),
        dv: call.zeros([s.n_kv_heads, s.n_keys, s.head_width]),
        dbias: wanted.then(|| call.zeros([heads, entries])),
    };
    let mut dq = vec![];
    for segment in params.segments() {
        for tile in call.tiles(&segment) {
            let rows = |tensor: &FloatTensor<B>| {
                let n = tile.queries.len();
                let width = s.n_heads * s.head_width;
                let part = cut::<B, 2>(tensor.clone(), [tile.queries.clone(), 0..width]);
                let split = B::float_reshape(part, Shape::from([n, s.n_heads, s.head_width]));
                B::float_swap_dims(split, 0, 1)
            };
            let (out, gradient) = (rows(&out), rows(&gradient));
            let lse = cut::<B, 2>(lse.clone(), [0..s.n_heads, tile.queries.clone()]);
            let (part, more) = tile_gradient(&call, &tile, [out, lse, gradient], sums);
            dq.push(part);
            sums = more;
        }
    }
    let dq = match dq.len() {
        0 => call.zeros([s.n_queries, s.n_heads * s.head_width]),
        1 => dq.swap_remove(0),
        _ => B::float_cat(dq, 0),
    };
    let dbias = match sums.dbias {
        Some(dbias) => dbias,
        None => call.zeros([heads, entries]),
    };
    [dq, by_row::<B>(sums.dk), by_row::<B>(sums.dv), dbias]
}

/// The gradient of a tile's queries, `[rows, n_heads * width]`, and the sums with its part. `out` and `gradient` are
/// `[n_heads, rows, width]`, `lse` is `[n_heads, rows]`.
fn tile_gradient<B: Backend>(
    call: &Call<'_, B>,
    tile: &Tile,
    [out, lse, gradient]: [FloatTensor<B>; 3],
    mut sums: Sums<B>,
) -> (FloatTensor<B>, Sums<B>) {
    let s = call.params.shape;
    let (rows, keys) = (tile.queries.len(), tile.keys.len());
    let scores = call.scores(tile);
    let lse = B::float_reshape(lse, Shape::from([s.n_heads, rows, 1]));
    // With 0 in the place of minus infinity the weights of a row that sees nothing are exp(-1e30) = 0.
    let nothing = call.sees_nothing(lse.clone());
    let lse = B::float_mask_fill(lse, nothing, 0.0.into());
    let weights = B::float_exp(B::float_sub(scores.scores, lse));
    let grouped_gradient = call.grouped(gradient.clone(), s.head_width);
    let transposed = B::float_swap_dims(call.grouped(weights.clone(), keys), 1, 2);
    let dv = B::float_matmul(transposed, grouped_gradient);
    sums.dv = add::<B>(sums.dv, dv, tile);

    let delta = B::float_sum_dim(B::float_mul(gradient.clone(), out), 2);
    let dp = call.against(gradient, call.v.clone(), tile);
    let mut ds = B::float_mul(weights, B::float_sub(dp, delta));
    let order = s.soft_cap.map(|(_, order)| order);
    // d/dx of cap tanh(x / cap) is 1 - tanh(x / cap)^2.
    let slope = scores.tanh.map(|t| {
        let square = B::float_mul(t.clone(), t);
        B::float_add_scalar(B::float_neg(square), 1.0.into())
    });
    let capped = |ds: FloatTensor<B>, when: CapOrder| match &slope {
        Some(slope) if order == Some(when) => B::float_mul(ds, slope.clone()),
        _ => ds,
    };
    ds = capped(ds, CapOrder::AfterBias);
    sums.dbias = sums
        .dbias
        .map(|dbias| add_by_distance(call, dbias, ds.clone(), tile));
    ds = capped(ds, CapOrder::BeforeBias);
    let ds = call.grouped(B::float_mul_scalar(ds, s.scale.into()), keys);
    let k = cut::<B, 3>(
        call.k.clone(),
        [0..s.n_kv_heads, tile.keys.clone(), 0..s.head_width],
    );
    let q = cut::<B, 3>(
        call.q.clone(),
        [0..s.n_heads, tile.queries.clone(), 0..s.head_width],
    );
    let dk = B::float_matmul(
        B::float_swap_dims(ds.clone(), 1, 2),
        call.grouped(q, s.head_width),
    );
    sums.dk = add::<B>(sums.dk, dk, tile);
    let dq = B::float_matmul(ds, k);
    let dq = B::float_reshape(dq, Shape::from([s.n_heads, rows, s.head_width]));
    (by_row::<B>(dq), sums)
}

/// `sum` with a tile's `[n_kv_heads, keys, width]` added to the rows of its keys; in place, for nobody else holds it.
fn add<B: Backend>(sum: FloatTensor<B>, part: FloatTensor<B>, tile: &Tile) -> FloatTensor<B> {
    let shape = sum.shape();
    let ranges = [0..shape[0], tile.keys.clone(), 0..shape[2]];
    let part = B::float_add(cut::<B, 3>(sum.clone(), ranges.clone()), part);
    B::float_slice_assign(sum, &ranges.map(burn::tensor::Slice::from), part)
}

/// Adds score gradients `[n_heads, rows, keys]` to a table by distance, summed over all pairs of a distance.
///
/// Rows are turned around and padded by `rows` zeros; read again with rows one element shorter, row `r` has moved by `r`, so that
/// a column holds pairs of one difference: column `c` that of `query of the last row - first key - c`.
fn add_by_distance<B: Backend>(
    call: &Call<'_, B>,
    table: FloatTensor<B>,
    ds: FloatTensor<B>,
    tile: &Tile,
) -> FloatTensor<B> {
    let s = call.params.shape;
    let (rows, keys) = (tile.queries.len(), tile.keys.len());
    let wide = keys + rows;
    let turned = B::float_flip(ds, &[1]);
    let padded = B::float_cat(vec![turned, call.zeros([s.n_heads, rows, rows])], 2);
    let flat = B::float_reshape(padded, Shape::from([s.n_heads, rows * wide]));
    let flat = cut::<B, 2>(flat, [0..s.n_heads, 0..rows * (wide - 1)]);
    let moved = B::float_reshape(flat, Shape::from([s.n_heads, rows, wide - 1]));
    let sums = B::float_reshape(
        B::float_sum_dim(moved, 1),
        Shape::from([s.n_heads, wide - 1]),
    );
    // The largest difference, in column 0; columns beyond it are keys after their query.
    let largest = s.query_offset + tile.queries.end - 1 - tile.keys.start;
    let past = (largest + 1).min(wide - 1);
    let smallest = largest + 1 - past;
    let behind = B::float_flip(cut::<B, 2>(sums.clone(), [0..s.n_heads, 0..past]), &[1]);
    let table = add_columns::<B>(table, behind, smallest);
    if s.causal || past == wide - 1 {
        return table;
    }
    let ahead = cut::<B, 2>(sums, [0..s.n_heads, past..wide - 1]);
    add_columns::<B>(table, ahead, 1)
}

/// Adds `[n_heads, n]` to columns `first ..` of a table.
fn add_columns<B: Backend>(
    table: FloatTensor<B>,
    part: FloatTensor<B>,
    first: usize,
) -> FloatTensor<B> {
    let shape = part.shape();
    let ranges = [0..shape[0], first..first + shape[1]];
    let sum = B::float_add(cut::<B, 2>(table.clone(), ranges.clone()), part);
    B::float_slice_assign(table, &ranges.map(burn::tensor::Slice::from), sum)
}
