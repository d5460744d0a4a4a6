//! One block. Everything but attention goes through in row chunks, so that temporaries do not grow with the length.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Tensor;
use kernels::{AttentionObserver, AttentionShape};
use numerics::PrecisionPlan;

use crate::attention::{self, AttentionBias, AttentionCall, Emulation};
use crate::cache::{LayerKv, buffer};
use crate::ops::{self, FinishParams};
use crate::spec::{Arrangement, ModelSpec, ResidualFrom};
use crate::store::LayerWeights;

/// What a block needs to know about the sequence.
pub(crate) struct Sequence {
    /// Tokens before this call.
    pub(crate) past: usize,
    /// Tokens of this call.
    pub(crate) n: usize,
    /// Rows to allocate in a key/value buffer that is too small.
    pub(crate) kv_capacity: usize,
    /// Per key, past ones included; `None`: all real.
    pub(crate) key_valid: Option<Arc<[bool]>>,
    /// The plan that attention is computed under; `None`: the f32 kernel.
    pub(crate) plan: Option<Arc<PrecisionPlan>>,
}

/// Rows of a chunk: at most 512, fewer where a row of the widest temporary is so wide that a chunk of it would pass 16 MiB.
/// Constant for a model, so that results do not depend on anything else.
pub(crate) fn chunk_rows(spec: &ModelSpec) -> usize {
    let widest = spec
        .block
        .mlp
        .hidden
        .max(spec.width)
        .max(spec.query_width());
    (4 * 1024 * 1024 / widest).clamp(16, 512)
}

/// The row ranges of `n` rows.
pub(crate) fn chunks(n: usize, rows: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n)
        .step_by(rows)
        .map(move |start| start..(start + rows).min(n))
}

/// Rows of a matrix, as a view.
pub(crate) fn rows(x: &Tensor<2>, range: Range<usize>) -> Tensor<2> {
    let width = x.dims()[1];
    x.clone().slice([range, 0..width])
}

/// Writes rows of a matrix, in place when no view of it is alive.
pub(crate) fn set_rows(x: Tensor<2>, range: Range<usize>, values: Tensor<2>) -> Tensor<2> {
    let width = x.dims()[1];
    x.slice_assign([range, 0..width], values)
}

/// Runs block `layer` on the residual stream `x`, `[n, width]`, appending its keys and values to `kv`.
#[allow(
    clippy::too_many_arguments,
    reason = "one call site; every argument is a different thing"
)]
pub(crate) fn run(
    spec: &ModelSpec,
    layer: usize,
    weights: &LayerWeights,
    mut x: Tensor<2>,
    sequence: &Sequence,
    kv: &mut LayerKv,
    bias: AttentionBias,
    observer: Option<Arc<dyn AttentionObserver>>,
) -> Tensor<2> {
    let attended = attend(spec, layer, weights, &x, sequence, kv, bias, observer);
    let block = &spec.block;
    for range in chunks(sequence.n, chunk_rows(spec)) {
        let input = rows(&x, range.clone());
        let needs_norm1 = block.attention_residual == ResidualFrom::Norm
            || block.arrangement == Arrangement::Parallel { shared_norm: true };
        let norm1 = needs_norm1.then(|| weights.norm1.apply(input.clone()));
        let residual = match (block.attention_residual, &norm1) {
            (ResidualFrom::Norm, Some(norm1)) => norm1.clone(),
            _ => input.clone(),
        };
        let heads = rows(&attended, range.clone());
        let middle = match &weights.output {
            Some(output) => output.apply(heads, FinishParams::default(), None, Some(residual)),
            None => ops::finish(heads, None, None, Some(residual), FinishParams::default()),
        };
        let norm2 = |x: Tensor<2>| match &weights.norm2 {
            Some(norm) => norm.apply(x),
            None => unreachable!("only a block with a shared norm has no second one"),
        };
        let (normed, residual) = match block.arrangement {
            Arrangement::Sequential => {
                let normed = norm2(middle.clone());
                match block.mlp_residual {
                    ResidualFrom::Input => (normed, middle),
                    ResidualFrom::Norm => (normed.clone(), normed),
                }
            }
            Arrangement::Parallel { shared_norm: true } => {
                (norm1.clone().expect("computed for a shared norm"), middle)
            }
            Arrangement::Parallel { shared_norm: false } => (norm2(input.clone()), middle),
        };
        // The views of `x` must be gone before it is written to, or it would be copied.
        drop((input, norm1));
        let output = mlp(spec, weights, normed, residual);
        x = set_rows(x, range, output);
    }
    x
}

/// `residual + down(act(up(x)))`, or with a gate.
fn mlp(spec: &ModelSpec, weights: &LayerWeights, x: Tensor<2>, residual: Tensor<2>) -> Tensor<2> {
    let plain = FinishParams::default();
    let activate = FinishParams {
        activation: Some(spec.block.mlp.activation),
        ..plain
    };
    let hidden = match &weights.gate {
        Some(gate) => {
            let gate = gate.apply(x.clone(), activate, None, None);
            weights.up.apply(x, plain, Some(gate), None)
        }
        None => weights.up.apply(x, activate, None, None),
    };
    weights.down.apply(hidden, plain, None, Some(residual))
}

/// Concatenated heads, `[n, n_heads * head_width]`.
#[allow(clippy::too_many_arguments, reason = "as `run`")]
fn attend(
    spec: &ModelSpec,
    layer: usize,
    weights: &LayerWeights,
    x: &Tensor<2>,
    sequence: &Sequence,
    kv: &mut LayerKv,
    bias: AttentionBias,
    observer: Option<Arc<dyn AttentionObserver>>,
) -> Tensor<2> {
    let rules = &spec.block.attention;
    let (past, n) = (sequence.past, sequence.n);
    let project = FinishParams {
        clamp: rules.clip_qkv,
        activation: None,
    };
    let mut queries = buffer(n, spec.query_width(), &x.device());
    for range in chunks(n, chunk_rows(spec)) {
        let normed = weights.norm1.apply(rows(x, range.clone()));
        let q = weights.query.apply(normed.clone(), project, None, None);
        let k = weights.key.apply(normed.clone(), project, None, None);
        let v = weights.value.apply(normed, project, None, None);
        let q = weights.query_norm.iter().fold(q, |q, norm| norm.apply(q));
        let k = weights.key_norm.iter().fold(k, |k, norm| norm.apply(k));
        queries = set_rows(queries, range.clone(), q);
        kv.write(past + range.start, sequence.kv_capacity, k, v);
    }
    let (keys, values) = kv.read(past + n);
    let soft_cap = spec.alibi.bias.soft_cap.map(|cap| {
        let order = match cap.order {
            numerics::CapOrder::BeforeBias => kernels::CapOrder::BeforeBias,
            numerics::CapOrder::AfterBias => kernels::CapOrder::AfterBias,
        };
        (cap.cap as f32, order)
    });
    let call = AttentionCall {
        shape: AttentionShape {
            n_queries: n,
            n_keys: past + n,
            n_heads: spec.n_heads,
            n_kv_heads: spec.n_kv_heads,
            head_width: spec.head_width,
            query_offset: past,
            causal: spec.alibi.convention.causal,
            scale: spec.score_scale(layer),
            soft_cap,
        },
        bias,
        key_valid: sequence.key_valid.clone(),
        documents: None,
    };
    let emulation = sequence.plan.clone().map(|plan| {
        Arc::new(Emulation {
            plan,
            slopes: spec.alibi.slopes.clone(),
            bias: spec.alibi.bias.clone(),
        })
    });
    attention::watched([queries, keys, values], &call, observer, emulation)
}
