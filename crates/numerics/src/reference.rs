//! Softmax of one row in f64, with any bias: what every plan approximates.

use crate::bias::BiasFunction;

/// Weights and log-sum-exp of one row.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceRow {
    /// Exact entries `score + bias` in nats; minus infinity where masked.
    pub scores: Vec<f64>,
    /// Softmax of the entries, f64.
    pub weights: Vec<f64>,
    /// Largest entry.
    pub max: f64,
    /// `ln sum exp(entry)`.
    pub log_sum_exp: f64,
}

/// The row of query `query` against keys `0 .. raw_scores.len()`: entries `bias.combine(q.k * scale, distance)` and their
/// softmax, all in f64. `slope` is the effective slope. Keys after the query are masked if `causal`. A row without any key has
/// no weights above 0 and a log-sum-exp of minus infinity.
pub fn softmax_row(
    raw_scores: &[f64],
    scale: f64,
    head: usize,
    slope: f64,
    bias: &BiasFunction,
    query: usize,
    causal: bool,
) -> ReferenceRow {
    let scores: Vec<f64> = raw_scores
        .iter()
        .enumerate()
        .map(|(key, raw)| {
            if causal && key > query {
                f64::NEG_INFINITY
            } else {
                bias.combine(head, slope, raw * scale, query as f64 - key as f64)
            }
        })
        .collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        return ReferenceRow {
            weights: vec![0.0; scores.len()],
            scores,
            max,
            log_sum_exp: f64::NEG_INFINITY,
        };
    }
    let numerators: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f64 = numerators.iter().sum();
    ReferenceRow {
        weights: numerators.iter().map(|n| n / sum).collect(),
        scores,
        max,
        log_sum_exp: max + sum.ln(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_to_one_and_follow_the_bias() {
        let row = softmax_row(&[0.0; 5], 1.0, 0, 0.5, &BiasFunction::linear(), 3, true);
        assert!((row.weights.iter().sum::<f64>() - 1.0).abs() < 1e-15);
        assert_eq!(row.weights[4], 0.0);
        // Neighbouring keys differ by exp(slope).
        assert!((row.weights[3] / row.weights[2] - 0.5_f64.exp()).abs() < 1e-15);
        let expected = (1.0 + (-0.5_f64).exp() + (-1.0_f64).exp() + (-1.5_f64).exp()).ln();
        assert!((row.log_sum_exp - expected).abs() < 1e-15);
    }

    #[test]
    fn no_keys_no_weights() {
        let row = softmax_row(&[], 1.0, 0, 0.5, &BiasFunction::linear(), 0, true);
        assert!(row.weights.is_empty() && row.log_sum_exp == f64::NEG_INFINITY);
    }
}
