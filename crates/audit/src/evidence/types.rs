//! The numbers themselves. Distances are in tokens, exponents and scores in nats, counts are `u64`.

/// Everything measured on one text.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Most tokens a sequence may have had: the length the collector was made for.
    pub length: usize,
    /// Forward calls that were observed: one a sequence, or one a chunk of a sequence read in chunks.
    pub calls: usize,
    /// `false` for encoders: distances are then `abs(i - j)` and every valid key is a pair.
    pub causal: bool,
    /// Edges of the distance bins, `0, 1, 2, 4, 8, ..., length`: bin `b` holds distances `edges[b]..edges[b + 1]`.
    pub edges: Vec<u64>,
    /// Plans, as the user wrote them, in the order of [`HeadEvidence::plans`].
    pub plans: Vec<String>,
    /// One entry per (layer, head) that was observed, ordered by layer, then head.
    pub heads: Vec<HeadEvidence>,
}

impl Evidence {
    /// The evidence of one head, if it was observed.
    #[must_use]
    pub fn head(&self, layer: usize, head: usize) -> Option<&HeadEvidence> {
        self.heads
            .iter()
            .find(|evidence| evidence.layer == layer && evidence.head == head)
    }
}

/// What one head of one layer did. `Option` is `None` where there is nothing to measure (no pairs, one token, an encoder's
/// first key).
#[derive(Clone, Debug, PartialEq)]
pub struct HeadEvidence {
    /// Layer in the checkpoint's own order.
    pub layer: usize,
    /// Head in the checkpoint's own order.
    pub head: usize,
    /// ALiBi slope `m` of this head, before any scale the family puts on the bias.
    pub slope: f64,
    /// Slope as it acts on the scaled score, nats per token.
    pub effective_slope: f64,
    /// Query rows with at least one pair.
    pub rows: u64,
    /// Rows left out of everything below because a score in them was NaN or infinite.
    pub non_finite_rows: u64,
    /// Pairs inside the mask: `T (T + 1) / 2` for one causal sequence of `T` tokens without padding.
    pub pairs: u64,
    /// Pairs by distance bin (see [`Evidence::edges`]).
    pub pairs_by_distance: Vec<u64>,
    /// One entry per plan, in the order of [`Evidence::plans`].
    pub plans: Vec<PlanEvidence>,
    /// Attention mass by distance bin, mean over rows: sums to 1.
    pub mass_by_distance: Vec<f64>,
    /// Smallest distance within which half of the mass lies.
    pub reach_50: Option<u64>,
    /// Smallest distance within which 90 % of the mass lies.
    pub reach_90: Option<u64>,
    /// Smallest distance within which 99 % of the mass lies.
    pub reach_99: Option<u64>,
    /// Mean distance of the mass, tokens.
    pub mean_distance: Option<f64>,
    /// Entropy of a row's weights, mean over rows, nats.
    pub entropy_nats: Option<f64>,
    /// Weight on key 0, mean over the queries `i >= 1`. With left padding key 0 is the first valid key. `None` for encoders.
    pub key0_mass: Option<f64>,
    /// What uniform attention would put there: the mean of `1 / (keys seen)` over the same queries, `(H(T) - 1) / (T - 1)`.
    pub key0_baseline: Option<f64>,
    /// Largest absolute scaled content score `|q.k| * scale` of any pair that f32 attention sees (weight not exactly zero), before
    /// the bias, nats. The static bound `score_bound` bounds it.
    pub max_score: Option<f64>,
    /// Share of pairs whose weight is below `2^-9` of the row sum: a bf16 output cannot show them. A pair within a few roundings of
    /// f32 of the limit can fall on either side.
    pub share_below_bf16_ulp: Option<f64>,
    /// The same for `2^-24`: an f32 accumulation cannot show them.
    pub share_below_f32_ulp: Option<f64>,
    /// What content offered against distance.
    pub advantage: ContentAdvantage,
}

impl HeadEvidence {
    /// Key-0 mass less what uniform attention would put there; `None` where either is.
    #[must_use]
    pub fn key0_excess(&self) -> Option<f64> {
        Some(self.key0_mass? - self.key0_baseline?)
    }

    /// The evidence under one plan, by its key.
    #[must_use]
    pub fn plan(&self, key: &str) -> Option<&PlanEvidence> {
        self.plans.iter().find(|plan| plan.plan == key)
    }
}

/// What one head could and could not see under one precision plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanEvidence {
    /// Plan as the user wrote it, `NAME[:DTYPE]`.
    pub plan: String,
    /// Pairs inside the mask.
    pub pairs: u64,
    /// Pairs whose weight is exactly zero by the plan's own rule.
    pub blind_pairs: u64,
    /// Pairs whose bare numerator `exp(s - max)` is zero in the format of the plan's exponential, `max` the row's own.
    pub blind_numerator: u64,
    /// Pairs whose normalised weight `exp(s - max) / sum` is zero in the plan's probability format, whether or not the plan
    /// normalises before that cast.
    pub blind_weight: u64,
    /// Blind pairs by distance bin (see [`Evidence::edges`]).
    pub blind_by_distance: Vec<u64>,
    /// Smallest distance at which a blind pair was seen.
    pub first_blind_distance: Option<u64>,
    /// Largest distance at which a pair that is not blind was seen.
    pub last_visible_distance: Option<u64>,
    /// Pairs whose gap was so near the threshold (`2^-16` nats, or what the rounding of the row's sum moves it by) that a
    /// runtime which adds or exponentiates in another order may decide otherwise. What a streaming plan loses in its accumulator
    /// anyway is not among them.
    pub undecided_pairs: u64,
    /// Rows whose scores overflow under this plan, so that the runtime's weights are NaN: none of their pairs is counted
    /// as blind, and none as seen.
    pub non_finite_rows: u64,
    /// Pairs of those rows.
    pub non_finite_pairs: u64,
    /// Attention mass by distance bin under the plan's own roundings of bias, score, exponential and probability, mean over
    /// its finite rows: sums to 1. Weights are taken against the row's final maximum. Computed where those roundings can change it
    /// (scores below f32, a bias that is added twice, an exponential below f32, 8-bit probabilities); any other plan agrees with
    /// [`HeadEvidence::mass_by_distance`] to the rounding of f32 scores or, where only the probability is cast, to half an ulp of
    /// its format (2^-9 in bf16), and repeats it. Zeros where every row overflows.
    pub mass_by_distance: Vec<f64>,
    /// Total variation between that histogram and [`HeadEvidence::mass_by_distance`]: half the sum of the absolute differences
    /// of the bins, 0 to 1. Exactly 0 where the histogram is repeated; `None` where every row overflows.
    pub total_variation: Option<f64>,
}

impl PlanEvidence {
    /// Blind pairs over the pairs of finite rows; `None` without such pairs.
    #[must_use]
    pub fn blind_share(&self) -> Option<f64> {
        let pairs = self.pairs - self.non_finite_pairs;
        #[allow(
            clippy::cast_precision_loss,
            reason = "a share; pair counts stay below 2^53"
        )]
        (pairs > 0).then(|| self.blind_pairs as f64 / pairs as f64)
    }
}

/// How far content ever raised a distant score: the raw score of a pair over that of a near one in the same row, nats. The largest
/// values are over pairs that f32 attention sees (weight not exactly zero), the percentiles over a sample of all pairs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContentAdvantage {
    /// Largest raw score over the row's own diagonal, pairs with `d >= 1`, every row.
    pub largest_over_diagonal: Option<f64>,
    /// 99th percentile of the same over the sampled pairs.
    pub p99_over_diagonal: Option<f64>,
    /// Largest raw score, pairs with `d >= 20`, over the best raw score among the row's last 20 keys that f32 attention sees, its own among them in any case, every row.
    pub largest_over_recent: Option<f64>,
    /// 99th percentile of the same over the sampled pairs.
    pub p99_over_recent: Option<f64>,
    /// Pairs with `d >= 1` that entered the percentiles: all of them in texts below 182 tokens, 8 to 16 thousand in texts of up to 2048, four
    /// a token in longer ones, spread evenly over all pairs.
    pub sampled_pairs: u64,
    /// Width of a bin of the percentile's histogram, nats. The percentile is the upper edge of its bin.
    pub resolution: f64,
    /// Effective horizon, tokens: first distance at which the bias outweighs `largest_over_diagonal`. For linear ALiBi it is
    /// advantage / slope. `None` where the bias never does, or where there is no advantage to speak of.
    pub effective_horizon: Option<f64>,
    /// The same for `p99_over_diagonal`: what is typical rather than the best ever seen.
    pub effective_horizon_p99: Option<f64>,
}

/// Edges of the distance bins for sequences of `length` tokens: `0, 1, 2, 4, 8, ..., length`, powers of two below the
/// length and then the length. Lengths 0 and 1 give `[0, length]`.
#[must_use]
pub fn distance_edges(length: usize) -> Vec<u64> {
    let length = length as u64;
    let mut edges = vec![0];
    let mut edge = 1;
    while edge < length {
        edges.push(edge);
        edge *= 2;
    }
    if length > 0 {
        edges.push(length);
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_powers_of_two_and_then_the_length() {
        assert_eq!(distance_edges(200), [0, 1, 2, 4, 8, 16, 32, 64, 128, 200]);
        assert_eq!(distance_edges(8), [0, 1, 2, 4, 8]);
        assert_eq!(distance_edges(1), [0, 1]);
        assert_eq!(distance_edges(0), [0]);
    }
}
