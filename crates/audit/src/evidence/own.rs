//! What a head does in this tool's own f32 attention: where its mass lies, how spread it is, how much of it cannot be seen.

use std::f64::consts::LN_2;

use crate::evidence::distance::Offsets;
use crate::evidence::rules::UNSUMMED_NATS;
use crate::evidence::scan::{CHUNK, Real, count_above, to_gaps};
use crate::evidence::scored::ScoredRow;

/// Half an ulp of 1 in bf16, and its negated logarithm, nats: a term below it cannot change a bf16 output.
pub(crate) const HALF_BF16_ULP: (f32, f64) = (1.0 / 512.0, 9.0 * LN_2);

/// The same for f32.
pub(crate) const HALF_F32_ULP: (f32, f64) = (1.0 / 16_777_216.0, 24.0 * LN_2);

/// Gap, nats, above which this tool's own f32 attention gives a weight of exactly 0: the kernel's own threshold, `ln(2^-150)`.
pub(crate) const INVISIBLE_NATS: f32 = 103.972_084;

/// Accumulates over rows.
#[derive(Clone, Debug)]
pub(crate) struct OwnAttention {
    /// Mass by offset.
    pub(crate) mass: Vec<f64>,
    pub(crate) entropy_sum: f64,
    pub(crate) key0_sum: f64,
    pub(crate) key0_uniform_sum: f64,
    /// Rows after their first key.
    pub(crate) key0_rows: u64,
    pub(crate) below_bf16: u64,
    pub(crate) below_f32: u64,
    pub(crate) max_score: f32,
}

impl OwnAttention {
    pub(crate) fn new(offsets: Offsets) -> Self {
        Self::over(vec![0.0; offsets.len()])
    }

    pub(crate) fn clear(&mut self) {
        let mut mass = std::mem::take(&mut self.mass);
        mass.fill(0.0);
        *self = Self::over(mass);
    }

    /// Nothing yet; `mass` is zero.
    fn over(mass: Vec<f64>) -> Self {
        Self {
            mass,
            entropy_sum: 0.0,
            key0_sum: 0.0,
            key0_uniform_sum: 0.0,
            key0_rows: 0,
            below_bf16: 0,
            below_f32: 0,
            max_score: 0.0,
        }
    }

    /// Takes one row. `weights` holds `exp(score - max)` of every key that is not negligible and 0 for the others;
    /// `gap_sum` is the sum of weight times gap.
    #[inline(always)]
    pub(crate) fn row(&mut self, scored: &ScoredRow<'_>, weights: &[f32], gap_sum: f64) {
        let row = scored.row;
        let share = 1.0 / scored.sum;
        let ln_sum = scored.sum.ln();
        self.entropy_sum += ln_sum + gap_sum * share;
        if row.query() > row.first_key {
            self.key0_rows += 1;
            self.key0_sum += f64::from(weights[row.first_key]) * share;
            self.key0_uniform_sum += 1.0 / row.pairs as f64;
        }
        // The own forward pass is f32.
        let (bf16, f32) = (
            <f32 as Real>::floor(HALF_BF16_ULP.1 - ln_sum),
            <f32 as Real>::floor(HALF_F32_ULP.1 - ln_sum),
        );
        let max = scored.max as f32;
        let mut gaps = [0.0_f32; CHUNK];
        for (chunk, &(low, high)) in row.chunks.iter().zip(scored.bounds) {
            let nearest = max - high as f32;
            if f64::from(nearest) <= UNSUMMED_NATS {
                let mass = &mut self.mass[row.offsets(chunk)];
                for (mass, &weight) in mass.iter_mut().zip(&weights[chunk.keys()]) {
                    *mass += f64::from(weight) * share;
                }
            }
            if max - low as f32 <= bf16 {
                continue;
            }
            let pairs = chunk.len() as u64;
            if nearest > f32 {
                self.below_bf16 += pairs;
                self.below_f32 += pairs;
                continue;
            }
            let gaps = &mut gaps[..chunk.len()];
            scored.table.entries(row, chunk, gaps);
            to_gaps(gaps, max);
            self.below_bf16 += count_above(gaps, bf16);
            self.below_f32 += count_above(gaps, f32);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mass, more) in self.mass.iter_mut().zip(&other.mass) {
            *mass += more;
        }
        self.entropy_sum += other.entropy_sum;
        self.key0_sum += other.key0_sum;
        self.key0_uniform_sum += other.key0_uniform_sum;
        self.key0_rows += other.key0_rows;
        self.below_bf16 += other.below_bf16;
        self.below_f32 += other.below_f32;
        self.max_score = self.max_score.max(other.max_score);
    }
}
