//! The inner loops: plain, branch-free passes over short slices that the compiler turns into vector code.

/// Keys of one chunk. A chunk is the unit in which pairs are decided together: if its largest possible score is below a
/// threshold all its pairs are, and no exponential is taken. 64 keys amortise the decision; wider chunks would straddle
/// thresholds more often.
pub(crate) const CHUNK: usize = 64;

const LANES: usize = 16;

/// Smallest and largest value; NaNs are passed over. Empty slices give `(inf, -inf)`.
pub(crate) fn min_max(values: &[f32]) -> (f32, f32) {
    let mut low = [f32::INFINITY; LANES];
    let mut high = [f32::NEG_INFINITY; LANES];
    let mut lanes = values.chunks_exact(LANES);
    for lane in &mut lanes {
        for i in 0..LANES {
            let value = lane[i];
            low[i] = if value < low[i] { value } else { low[i] };
            high[i] = if value > high[i] { value } else { high[i] };
        }
    }
    let (mut least, mut most) = (f32::INFINITY, f32::NEG_INFINITY);
    for &value in lanes.remainder().iter().chain(&low) {
        least = if value < least { value } else { least };
    }
    for &value in lanes.remainder().iter().chain(&high) {
        most = if value > most { value } else { most };
    }
    (least, most)
}

/// Coefficients of `2^f - 1 = f * p(f)` on `[-1/2, 1/2]`: the Taylor series of `exp(f ln 2)`, whose first dropped term is
/// `(ln2 / 2)^8 / 8! = 5.2e-9`, below half an f32 ulp of the result.
const EXP2: [f32; 7] = {
    const L: f64 = std::f64::consts::LN_2;
    [
        L as f32,
        (L * L / 2.0) as f32,
        (L * L * L / 6.0) as f32,
        (L * L * L * L / 24.0) as f32,
        (L * L * L * L * L / 120.0) as f32,
        (L * L * L * L * L * L / 720.0) as f32,
        (L * L * L * L * L * L * L / 5040.0) as f32,
    ]
};

/// `exp(-gap)` for gaps from 0 to 80 nats, within 3e-7 of the true value, relative. The range is reduced in f64, so that
/// the error does not grow with the gap.
#[inline(always)]
fn exp_of_minus(gap: f64) -> f32 {
    // Adding 1.5 * 2^52 rounds to the nearest whole number and leaves it in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let x = gap * -std::f64::consts::LOG2_E;
    let shifted = x + ROUND;
    let whole = shifted - ROUND;
    let f = (x - whole) as f32;
    let p = EXP2[6];
    let p = p * f + EXP2[5];
    let p = p * f + EXP2[4];
    let p = p * f + EXP2[3];
    let p = p * f + EXP2[2];
    let p = p * f + EXP2[1];
    let p = p * f + EXP2[0];
    let mantissa = p * f + 1.0;
    let exponent = (shifted.to_bits() as u32).wrapping_add(127) << 23;
    mantissa * f32::from_bits(exponent)
}

/// `out[k] = exp(scores[k] - max)`; gaps from 0; those above 80 nats count as 80.
pub(crate) fn exp_of_gaps(scores: &[f64], max: f64, out: &mut [f32]) {
    for (out, &score) in out.iter_mut().zip(scores) {
        *out = exp_of_minus((max - score).min(80.0));
    }
}

/// Sum in a fixed order that does not depend on the machine.
pub(crate) fn sum(values: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; 8];
    let mut chunks = values.chunks_exact(8);
    for chunk in &mut chunks {
        for i in 0..8 {
            lanes[i] += f64::from(chunk[i]);
        }
    }
    let tail: f64 = chunks.remainder().iter().map(|&value| f64::from(value)).sum();
    lanes.iter().sum::<f64>() + tail
}

/// `sum(weights[k] * (max - scores[k]))`, same order.
pub(crate) fn weighted_gap(weights: &[f32], scores: &[f64], max: f64) -> f64 {
    let mut lanes = [0.0_f64; 8];
    let n = weights.len().min(scores.len());
    let (weights, scores) = (&weights[..n], &scores[..n]);
    let whole = n / 8 * 8;
    for start in (0..whole).step_by(8) {
        for i in 0..8 {
            lanes[i] += f64::from(weights[start + i]) * (max - scores[start + i]);
        }
    }
    let tail: f64 = (whole..n).map(|k| f64::from(weights[k]) * (max - scores[k])).sum();
    lanes.iter().sum::<f64>() + tail
}

/// Number of scores whose gap to `reference` exceeds `threshold`.
pub(crate) fn count_above(scores: &[f64], reference: f64, threshold: f64) -> u64 {
    let mut count = 0_u64;
    for &score in scores {
        count += u64::from(reference - score > threshold);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_max_of_every_length() {
        for n in 1..100_usize {
            let values: Vec<f32> = (0..n).map(|k| ((k * 37 + 11) % 101) as f32 - 50.0).collect();
            let low = values.iter().copied().fold(f32::INFINITY, f32::min);
            let high = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(min_max(&values), (low, high), "length {n}");
        }
        assert_eq!(min_max(&[]), (f32::INFINITY, f32::NEG_INFINITY));
    }

    #[test]
    fn exponentials_are_within_the_stated_error() {
        let mut worst = (0.0, 0.0);
        for k in 0..800_000 {
            let gap = f64::from(k) * 1e-4;
            let mut out = [0.0];
            exp_of_gaps(&[100.0 - gap], 100.0, &mut out);
            let exact = (-(100.0_f64 - (100.0 - gap))).exp();
            let error = (f64::from(out[0]) / exact - 1.0).abs();
            if error > worst.0 {
                worst = (error, gap);
            }
        }
        assert!(worst.0 < 3e-7, "relative error {} at gap {}", worst.0, worst.1);
        let mut zero = [0.0];
        exp_of_gaps(&[5.0], 5.0, &mut zero);
        assert_eq!(zero, [1.0]);
    }

    #[test]
    fn sums_take_every_element() {
        for n in 0..40_usize {
            let weights: Vec<f32> = (0..n).map(|k| k as f32 + 1.0).collect();
            let scores: Vec<f64> = (0..n).map(|k| -(k as f64)).collect();
            let expected: f64 = (0..n).map(|k| (k as f64 + 1.0) * (2.0 + k as f64)).sum();
            assert_eq!(weighted_gap(&weights, &scores, 2.0), expected);
            assert_eq!(sum(&weights), (n * (n + 1) / 2) as f64);
            assert_eq!(count_above(&scores, 1.0, 3.5), n.saturating_sub(3) as u64);
        }
    }
}
