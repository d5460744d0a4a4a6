//! The fast forward pass.

use crate::input::AttentionInput;
use crate::observer::{AttentionObserver, ScoreRows};

/// Attention of `input`: `out` is `[n_queries, n_heads * head_width]`, `lse` is `[n_heads, n_queries]` (log of the sum
/// of the exponentials of a row's scores, nats).
///
/// Rows that see no key, or only scores of `-inf`, give zeros and an lse of `-inf`. NaN reaches the rows that see it.
///
/// # Panics
/// If a slice does not have the size that `input.shape` states.
pub fn attention(
    input: &AttentionInput<'_>,
    out: &mut [f32],
    lse: &mut [f32],
    observer: Option<&dyn AttentionObserver>,
) {
    let s = input.shape;
    let (o, l) = crate::reference::attention(input);
    for (a, b) in out.iter_mut().zip(o) {
        *a = b as f32;
    }
    for (a, b) in lse.iter_mut().zip(l) {
        *a = b as f32;
    }
    let Some(observer) = observer else { return };
    for head in 0..s.n_heads {
        let mut sink = observer.begin(head);
        for row in 0..s.n_queries {
            let mut raw = vec![0.0; s.n_keys];
            let q = input.q.row(row, head, s.head_width);
            for (key, r) in raw.iter_mut().enumerate() {
                let k = input.k.row(key, s.kv_head(head), s.head_width);
                *r = q.iter().zip(k).map(|(a, b)| a * b).sum::<f32>() * s.scale;
            }
            let scores = crate::reference::scores(input, head, row);
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max) as f32;
            let l = [lse[head * s.n_queries + row]];
            let bias = input.bias.head(head, s.n_heads);
            sink.rows(&ScoreRows::of_tile(
                &s,
                head,
                row,
                s.n_keys,
                &raw,
                &[max],
                &l,
                input.key_valid,
                bias,
            ));
        }
        observer.finish(head, sink);
    }
}
