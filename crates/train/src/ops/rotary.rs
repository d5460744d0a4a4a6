//! Rotary position embedding (RoPE), a baseline without ALiBi: pairs of channels `c`, `c + width/2` of queries and keys are turned
//! by `position * base^(-2c/width)` (Su et al. 2021, in the half-split order of GPT-NeoX).

use rayon::prelude::*;

/// Turns the queries and keys inside rows of `[q, k, v]`, each `n_heads * head_width` wide. `positions` gives the position of
/// every row. `sign` is 1 forward and -1 backward (the transposed rotation).
pub(crate) fn rotate(
    qkv: &mut [f32],
    positions: &[u32],
    n_heads: usize,
    head_width: usize,
    base: f32,
    sign: f32,
) {
    let width = n_heads * head_width;
    let half = head_width / 2;
    qkv.par_chunks_exact_mut(3 * width)
        .zip(positions)
        .for_each(|(row, &position)| {
            for c in 0..half {
                let frequency = f64::from(base).powf(-2.0 * c as f64 / head_width as f64);
                let (sin, cos) = (f64::from(position) * frequency).sin_cos();
                let (sin, cos) = (sin as f32 * sign, cos as f32);
                for head in 0..2 * n_heads {
                    let at = head * head_width + c;
                    let (a, b) = (row[at], row[at + half]);
                    row[at] = a * cos - b * sin;
                    row[at + half] = a * sin + b * cos;
                }
            }
        });
}
