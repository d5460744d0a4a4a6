//! The inner loops: plain, branch-free passes over short slices that the compiler turns into vector code.
//!
//! All of them are inlined into [`crate::evidence::head`], which runs them under the widest instruction set of the machine.
//! The order of every sum is fixed, so the width does not change a bit.

/// Keys of one chunk. A chunk is the unit in which pairs are decided together: if its largest possible score is below a
/// threshold all its pairs are, and no exponential is taken. 64 keys amortise the decision; wider chunks would straddle
/// thresholds more often.
pub(crate) const CHUNK: usize = 64;

const LANES: usize = 16;

/// The carrier of entries and gaps: `f32`, in which runtimes subtract the maximum, or `f64` for idealised plans.
pub(crate) trait Real: Copy + PartialOrd {
    const ZERO: Self;
    const LOWEST: Self;
    /// Exact where the value is an entry of this carrier.
    fn of(value: f64) -> Self;
    fn of_f32(value: f32) -> Self;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    /// One rounding, as in the runtime.
    fn minus(self, other: Self) -> Self;
    /// The largest value not above `threshold`: `gap > floor(threshold)` says the same as `gap > threshold`.
    fn floor(threshold: f64) -> Self;
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const LOWEST: Self = f64::NEG_INFINITY;

    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn of_f32(value: f32) -> Self {
        f64::from(value)
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self - other
    }

    #[inline(always)]
    fn floor(threshold: f64) -> Self {
        threshold
    }
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const LOWEST: Self = f32::NEG_INFINITY;

    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }

    #[inline(always)]
    fn of_f32(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self - other
    }

    #[inline(always)]
    fn floor(threshold: f64) -> Self {
        let nearest = threshold as f32;
        if f64::from(nearest) > threshold {
            nearest.next_down()
        } else {
            nearest
        }
    }
}

/// Smallest and largest value; NaNs are passed over. Empty slices give `(inf, -inf)`.
#[inline(always)]
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
    for (i, &value) in lanes.remainder().iter().enumerate() {
        low[i] = if value < low[i] { value } else { low[i] };
        high[i] = if value > high[i] { value } else { high[i] };
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            low[i] = if low[i + width] < low[i] {
                low[i + width]
            } else {
                low[i]
            };
            high[i] = if high[i + width] > high[i] {
                high[i + width]
            } else {
                high[i]
            };
        }
    }
    (low[0], high[0])
}

/// Largest value, at least `floor`.
#[inline(always)]
pub(crate) fn largest<T: Real>(values: &[T], floor: T) -> T {
    let mut high = [floor; LANES];
    let mut lanes = values.chunks_exact(LANES);
    for lane in &mut lanes {
        for i in 0..LANES {
            high[i] = if lane[i] > high[i] { lane[i] } else { high[i] };
        }
    }
    let rest = lanes.remainder().iter().chain(&high);
    rest.fold(
        floor,
        |most, &value| if value > most { value } else { most },
    )
}

/// `out[k] = exp(-gaps[k])`, within [`kernels::exp::EXP_ULPS_MAX`].
#[inline(always)]
pub(crate) fn exp_of_gaps<T: Real>(gaps: &[T], out: &mut [f32]) {
    for (out, &gap) in out.iter_mut().zip(gaps) {
        *out = -gap.to_f32();
    }
    kernels::exp::exp_in_place(out);
}

/// Gap in a product with its own weight, whatever is left of it: an infinite gap has weight 0.
pub(crate) const GAP_MAX: f32 = 128.0;

/// Sum in a fixed order that does not depend on the machine.
#[inline(always)]
pub(crate) fn sum(values: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; 8];
    let mut chunks = values.chunks_exact(8);
    for chunk in &mut chunks {
        for i in 0..8 {
            lanes[i] += f64::from(chunk[i]);
        }
    }
    for (i, &value) in chunks.remainder().iter().enumerate() {
        lanes[i] += f64::from(value);
    }
    tree(lanes)
}

/// Sum of `weights[k] * gaps[k]`, same order. The product is rounded to f32: 6e-8 of the result.
#[inline(always)]
pub(crate) fn weighted_gap<T: Real>(weights: &[f32], gaps: &[T]) -> f64 {
    let mut weighted = [0.0_f64; 8];
    let n = weights.len().min(gaps.len());
    let (weights, gaps) = (&weights[..n], &gaps[..n]);
    let mut weight_chunks = weights.chunks_exact(8);
    let mut gap_chunks = gaps.chunks_exact(8);
    for (weight, gap) in (&mut weight_chunks).zip(&mut gap_chunks) {
        for i in 0..8 {
            weighted[i] += f64::from(weight[i] * gap[i].to_f32().min(GAP_MAX));
        }
    }
    let rest = weight_chunks.remainder().iter().zip(gap_chunks.remainder());
    for (i, (&weight, &gap)) in rest.enumerate() {
        weighted[i] += f64::from(weight * gap.to_f32().min(GAP_MAX));
    }
    tree(weighted)
}

#[inline(always)]
fn tree(lanes: [f64; 8]) -> f64 {
    ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6]))
        + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]))
}

/// `entries[k] = reference - entries[k]`, one rounding each.
#[inline(always)]
pub(crate) fn to_gaps<T: Real>(entries: &mut [T], reference: T) {
    for entry in entries {
        *entry = reference.minus(*entry);
    }
}

/// Number of gaps above a threshold.
#[inline(always)]
pub(crate) fn count_above<T: Real>(gaps: &[T], threshold: T) -> u64 {
    let mut count = 0_u32;
    for &gap in gaps {
        count += u32::from(gap > threshold);
    }
    u64::from(count)
}

/// Adds 1 to the counter of every gap above a threshold; returns how many.
#[inline(always)]
pub(crate) fn add_above<T: Real>(gaps: &[T], threshold: T, counters: &mut [u32]) -> u64 {
    let mut count = 0_u32;
    for (&gap, counter) in gaps.iter().zip(counters) {
        let above = u32::from(gap > threshold);
        *counter += above;
        count += above;
    }
    u64::from(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_max_of_every_length() {
        for n in 1..100_usize {
            let values: Vec<f32> = (0..n)
                .map(|k| ((k * 37 + 11) % 101) as f32 - 50.0)
                .collect();
            let low = values.iter().copied().fold(f32::INFINITY, f32::min);
            let high = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(min_max(&values), (low, high), "length {n}");
            assert_eq!(largest(&values, -60.0), high);
            assert_eq!(largest(&values, 60.0), 60.0);
        }
        assert_eq!(min_max(&[]), (f32::INFINITY, f32::NEG_INFINITY));
    }

    #[test]
    fn sums_take_every_element() {
        for n in 0..40_usize {
            let weights: Vec<f32> = (0..n).map(|k| k as f32 + 1.0).collect();
            let mut gaps: Vec<f64> = (0..n).map(|k| -(k as f64)).collect();
            to_gaps(&mut gaps, 2.0);
            let expected: f64 = (0..n).map(|k| (k as f64 + 1.0) * (2.0 + k as f64)).sum();
            assert_eq!(weighted_gap(&weights, &gaps), expected);
            assert_eq!(sum(&weights), (n * (n + 1) / 2) as f64);
            assert_eq!(count_above(&gaps, 4.5), n.saturating_sub(3) as u64);
            let mut counters = vec![1; n];
            assert_eq!(
                add_above(&gaps, 4.5, &mut counters),
                n.saturating_sub(3) as u64
            );
            assert_eq!(
                counters.iter().sum::<u32>() as usize,
                n + n.saturating_sub(3)
            );
        }
    }

    #[test]
    fn floors_decide_as_the_threshold_does() {
        for threshold in [103.972_077_083_991_79, 17.328_679_513_998_633, 0.1, 2.0] {
            let floor = <f32 as Real>::floor(threshold);
            assert!(f64::from(floor) <= threshold && f64::from(floor.next_up()) > threshold);
        }
    }
}
