//! How far the gaps of one score path can be from those of another for the same raw scores.

/// Unit of rounding of f32.
pub(crate) const F32_UNIT: f64 = 1.0 / 16_777_216.0;

/// Biases up to these, nats, are compared by themselves: roundings of larger ones are larger, and their pairs beyond every threshold.
const NEAR_NATS: [f64; 3] = [128.0, 256.0, 1024.0];

/// How far the gaps of two tables can differ for the same raw scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slack {
    /// Over the pairs with biases up to [`NEAR_NATS`]; `None` where the bias says nothing about the gap.
    within: [Option<Apart>; 3],
    all: Apart,
    /// Roundings of an entry in both tables, relative to the largest raw score plus the largest bias.
    relative: f64,
}

/// How far two tables of biases differ.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Apart {
    /// Largest difference, nats, once a constant for each query is taken off.
    bias: f64,
    /// Largest absolute bias.
    bias_max: f64,
}

impl Apart {
    /// Of tables of a distance each, as far as `own_bias` is at most `nats`.
    fn within(nats: f64, bias: &[f64], own_bias: &[f64]) -> Self {
        let pairs = || bias.iter().zip(own_bias);
        let constant = pairs().next_back().map_or(0.0, |(a, b)| a - b);
        let near = |b: f64, value: f64| if b.abs() <= nats { value } else { 0.0 };
        Self {
            bias: largest_size(pairs().map(|(&a, &b)| near(b, a - b - constant))),
            bias_max: largest_size(pairs().map(|(&a, &b)| near(b, a.abs().max(b.abs())))),
        }
    }
}

impl Slack {
    /// `relative`: roundings of an entry in both tables. Of each table the bias in nats at every index, and whether that is by key.
    pub(crate) fn new(
        relative: f64,
        (bias, by_key): (&[f64], bool),
        (own_bias, own_by_key): (&[f64], bool),
    ) -> Self {
        let largest = |values: &[f64]| largest_size(values.iter().copied());
        let all = Apart {
            bias: deviation(bias, by_key, own_bias, own_by_key),
            bias_max: largest(bias).max(largest(own_bias)),
        };
        // Only there does a bias say how far away a pair is.
        let by_distance = !by_key && !own_by_key && own_bias.last() == Some(&0.0);
        let falls = own_bias.iter().fold(true, |falls, b| falls & (*b <= 0.0));
        let is_near = by_distance && falls && all.bias < 1.0;
        Self {
            within: NEAR_NATS.map(|nats| is_near.then(|| Apart::within(nats, bias, own_bias))),
            all,
            relative,
        }
    }

    /// Bound on the difference of two gaps, nats, given the largest absolute raw score: entry and maximum may be off in opposite
    /// directions. A millionth of a nat for what is subnormal in f16, and for the f32 subtraction. It holds for gaps up to `most`; pairs
    /// for which it does not are further away in both tables.
    pub(crate) fn nats(&self, raw_max: f32, most: f64) -> f64 {
        // A row's maximum is no less than its own score, and a bias of more than this takes a pair further than `most` below that.
        let bias_most = most + 2.0 * f64::from(raw_max) + 16.0;
        let near = NEAR_NATS.iter().position(|nats| bias_most <= *nats);
        let apart = near.and_then(|near| self.within[near]).unwrap_or(self.all);
        let most = f64::from(raw_max) + apart.bias_max;
        let slack =
            2.0 * (apart.bias + self.relative * 1.001 * most) + F32_UNIT * 2.0 * most + 1e-6;
        if slack.is_nan() { f64::INFINITY } else { slack }
    }
}

/// Largest difference of two bias tables up to a constant for each query; infinite if it cannot be told.
fn deviation(a: &[f64], a_by_key: bool, b: &[f64], b_by_key: bool) -> f64 {
    if a.len() != b.len() || a.is_empty() {
        return f64::INFINITY;
    }
    let last = a.len() - 1;
    let constant = a[last] - b[last];
    let apart = largest_size(a.iter().zip(b).map(|(a, b)| a - b - constant));
    if a_by_key == b_by_key || last == 0 {
        return apart;
    }
    // One by key, one by distance: they agree up to a constant as far as both are straight lines.
    let slope = (b[last] - b[0]) / last as f64;
    let line = |i: usize| b[0] + slope * i as f64;
    let bent = largest_size(b.iter().enumerate().map(|(i, x)| x - line(i)));
    apart + 2.0 * bent
}

/// Largest absolute value; infinite if there is a NaN. Without a branch for each, so that it vectorises.
fn largest_size(values: impl Iterator<Item = f64>) -> f64 {
    let (mut largest, mut some_nan) = (0.0_f64, false);
    for x in values {
        let size = x.abs();
        largest = if size > largest { size } else { largest };
        some_nan |= x.is_nan();
    }
    if some_nan { f64::INFINITY } else { largest }
}
