//! The tensor operations in f32, as other devices run them, on the CPU backend: the lowest rung of the ladder.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Shape;

use super::ops::{AttentionParams, BiasKind};
use super::tiled::{self, tile_rows};
use super::tiled_backward;
use crate::flex::tensor_from;
use crate::op::{Bias, Case, cases, near, worst};

fn call(case: &Case) -> ([FlexTensor; 4], AttentionParams) {
    let s = case.shape;
    let tensor = |values: &[f32], rows: usize| {
        tensor_from(values.to_vec(), Shape::from([rows, values.len() / rows]))
    };
    let (kind, table) = match &case.bias {
        Bias::None => (BiasKind::None, tensor(&[0.0], 1)),
        Bias::ByKey(values) => (BiasKind::ByKey, tensor(values, s.n_heads)),
        Bias::ByDistance(values) => (BiasKind::ByDistance, tensor(values, s.n_heads)),
    };
    let params = AttentionParams {
        shape: s,
        bias: kind,
        key_valid: case.key_valid.clone().map(Into::into),
        documents: case.documents.clone().map(Into::into),
        observer: None,
        emulation: None,
    };
    let [q, k, v] = [
        (&case.q, s.n_queries),
        (&case.k, s.n_keys),
        (&case.v, s.n_keys),
    ]
    .map(|(values, rows)| tensor(values, rows));
    ([q, k, v, table], params)
}

fn values(tensor: &FlexTensor) -> Vec<f64> {
    let tensor = tensor.to_contiguous();
    let values = tensor.as_slice::<f32>().unwrap();
    values.iter().map(|&x| f64::from(x)).collect()
}

#[test]
fn in_f32_they_are_the_reference_up_to_rounding() {
    let mut errors = [0.0f64; 5];
    for case in cases() {
        let (inputs, params) = call(&case);
        let [q, k, v, bias] = inputs.clone();
        let (out, lse) = tiled::forward::<Flex>(q, k, v, bias, &params);
        let width = case.shape.n_heads * case.shape.head_width;
        let g = tensor_from(case.g.clone(), Shape::from([case.shape.n_queries, width]));
        let saved = [out.clone(), lse.clone(), g];
        let [dq, dk, dv, _] = tiled_backward::backward::<Flex>(inputs, saved, &params, true);
        let (true_out, true_lse) = case.truth();
        let mut clean = case.clone();
        for values in [&mut clean.k, &mut clean.v] {
            values
                .iter_mut()
                .filter(|x| x.is_nan())
                .for_each(|x| *x = 0.0);
        }
        let exact = clean.true_gradients();
        // Scores reach 100 nats, of which f32 rounds off 4e-6, and as much of a weight; gradients reach 60.
        for (i, (name, truth, got, tolerance)) in [
            ("out", &true_out, &out, 1e-5),
            ("lse", &true_lse, &lse, 1e-5),
            ("dq", &exact.dq, &dq, 1e-4),
            ("dk", &exact.dk, &dk, 1e-4),
            ("dv", &exact.dv, &dv, 1e-4),
        ]
        .into_iter()
        .enumerate()
        {
            let got = values(got);
            errors[i] = errors[i].max(worst(truth, &got));
            near(&format!("{}, {name}", case.name), truth, &got, tolerance);
        }
    }
    let shown = errors.map(|error| format!("{error:.1e}")).join(", ");
    eprintln!("largest errors of out, lse, dq, dk, dv: {shown}");
}

/// Scores of a tile are bounded, or linear in the number of keys where that is large.
#[test]
fn tiles_shrink_as_the_keys_grow() {
    for heads in [1, 8, 112] {
        for log in 0..20 {
            let n = 1usize << log;
            let scores = tile_rows(heads, n) * heads * n;
            assert!(scores <= (4 << 20).max(16 * heads * n), "{heads} {n}");
        }
    }
}
