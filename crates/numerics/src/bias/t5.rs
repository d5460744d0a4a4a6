//! T5's relative position buckets.

/// The bucket of a key at `distance` (query minus key, tokens; negative for a later key).
///
/// The formula of `transformers` (`T5Attention._relative_position_bucket`), with its `f32` logarithm: half of the buckets
/// hold one distance each, the others grow logarithmically up to `max_distance`; with `bidirectional` the upper half of the
/// buckets is for later keys, without it later keys share bucket 0.
pub fn t5_bucket(
    distance: f64,
    n_buckets: usize,
    max_distance: usize,
    bidirectional: bool,
) -> usize {
    let (n_side, offset, magnitude) = if bidirectional {
        let n_side = n_buckets / 2;
        (
            n_side,
            if distance < 0.0 { n_side } else { 0 },
            distance.abs(),
        )
    } else {
        (n_buckets, 0, distance.max(0.0))
    };
    let max_exact = n_side / 2;
    if magnitude < max_exact as f64 {
        return offset + magnitude as usize;
    }
    let span = (max_distance as f64 / max_exact as f64).ln() as f32;
    let steps = (magnitude as f32 / max_exact as f32).ln() / span * (n_side - max_exact) as f32;
    // `as` saturates, so distances beyond any table end in the last bucket too.
    offset + max_exact.saturating_add(steps as usize).min(n_side - 1)
}
