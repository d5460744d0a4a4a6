//! One head's queries or keys as an affine image of a ball, and the score bounds of two such images.
//!
//! A norm hands the projection `x = gamma * n + beta` with `|n| <= sqrt(width)` whatever the text (the epsilon only shrinks n);
//! after LayerNorm also `sum(n) = 0`. So `q = W x + b = W' n + b'` with
//!
//! * `W' = W diag(gamma)`, less the mean of each row after LayerNorm: what is taken away meets `sum(n) = 0`,
//! * `b' = W beta + b`,
//!
//! and likewise for keys. Everything after that needs only the Gram matrices of the two W', `head_width` squared each.

use model::{NormKind, Weight};
use numerics::Format;

use super::linalg::{GramBound, Matrix, dot, gamma, largest_singular_value_upper, norm, up};

/// The norm in front of a projection.
#[derive(Clone, Copy, Debug)]
pub(super) struct NormOutput<'a> {
    /// Whether the mean is taken out.
    pub(super) kind: NormKind,
    /// Gain, `[width]`.
    pub(super) gain: &'a [f32],
    /// Shift, `[width]`.
    pub(super) shift: Option<&'a [f32]>,
}

/// Queries or keys of one head: `{ W' n + b' : |n| <= radius }`.
#[derive(Clone, Debug)]
pub(super) struct Side {
    gram: GramBound,
    /// b', `[head_width]`.
    bias: Vec<f64>,
    /// Upper bound of what b' is off by, Euclidean.
    bias_error: f64,
    radius: f64,
    /// Products summed for one channel.
    n_terms: usize,
    /// Upper bound of the norm of `|W| |x| + |b|`, magnitudes taken entry by entry: what errors of the sum scale with.
    magnitude: f64,
    /// Upper bound of the norm of `W d` over every d with `|d_j| <= |x_j|`, and of `|q|`: what errors of x and q scale with.
    operand: f64,
}

impl Side {
    /// From the rows of one head, `[head_width, width]`, and its bias. `None` if a number is not finite.
    pub(super) fn new(rows: &[f32], bias: Option<&[f32]>, before: &NormOutput<'_>) -> Option<Self> {
        let width = before.gain.len();
        let head_width = rows.len() / width;
        let (folded, sums) = pulp::Arch::new().dispatch(Fold { rows, before });
        let given = |c: usize| bias.map_or(0.0, |b| f64::from(b[c]));
        let shifted: Vec<f64> = (0..head_width).map(|c| sums.shift[c] + given(c)).collect();
        let shift_magnitude: Vec<f64> = (0..head_width)
            .map(|c| sums.shift_magnitude[c] + given(c).abs())
            .collect();
        let mut side = Self {
            gram: GramBound::new(&folded),
            bias_error: up(norm(&shift_magnitude) * gamma(width + 2)),
            bias: shifted,
            radius: up((width as f64).sqrt()),
            n_terms: width,
            magnitude: 0.0,
            operand: 0.0,
        };
        let finite = sums.gain_squares.is_finite() && shift_magnitude.iter().all(|x| x.is_finite());
        if !(finite && side.gram.trace.is_finite()) {
            return None;
        }
        let shift_norm = norm(&shift_magnitude);
        let slack = 1.0 + gamma(width + head_width + 16);
        side.magnitude = up(sums.gain_squares.sqrt() * slack * side.radius + shift_norm);
        // W diag(gamma) = W' + mean 1^T.
        let mean_part = norm(&sums.means) * side.radius;
        side.operand =
            up(up(side.gram.spectral_norm_quick() + mean_part) * side.radius + shift_norm);
        Some(side)
    }

    /// From a norm of the queries or keys themselves: `q = gain * n + shift`, over `n_channels` channels of which the head
    /// has the given ones.
    pub(super) fn normed(output: &NormOutput<'_>, n_channels: usize) -> Option<Self> {
        let head_width = output.gain.len();
        let mut identity = vec![0.0f32; head_width * head_width];
        identity
            .iter_mut()
            .step_by(head_width + 1)
            .for_each(|x| *x = 1.0);
        // A norm over more channels than the head's does not fix the head's own mean.
        let kind = if n_channels == head_width {
            output.kind
        } else {
            NormKind::RmsNorm
        };
        let mut side = Self::new(&identity, None, &NormOutput { kind, ..*output })?;
        let grown = up((n_channels as f64).sqrt() / (head_width as f64).sqrt());
        side.radius = up(side.radius * grown);
        side.magnitude = up(side.magnitude * grown);
        side.operand = up(side.operand * grown);
        side.n_terms = n_channels;
        Some(side)
    }

    /// Upper bound of the magnitude of every channel, after a clamp.
    fn channel_bounds(&self, clip: Option<f64>) -> Vec<f64> {
        let channels = self.bias.iter().enumerate();
        let bounds = channels
            .map(|(c, b)| up(self.radius * self.gram.row_norm(c) + b.abs() + self.bias_error));
        bounds.map(|x| clip.map_or(x, |clip| x.min(clip))).collect()
    }

    fn is_clipped_by(&self, clip: Option<f64>) -> bool {
        clip.is_some_and(|clip| self.channel_bounds(None).iter().any(|x| *x > clip))
    }

    /// Upper bound of `|q|` by the spectral norm, tight.
    fn norm_bound(&self) -> f64 {
        up(self.gram.spectral_norm() * self.radius + norm(&self.bias) + self.bias_error)
    }
}

/// Sums that folding the norm into a weight gives on the way.
struct FoldSums {
    /// Row means that were taken out, `[head_width]`.
    means: Vec<f64>,
    /// `W beta`, `[head_width]`.
    shift: Vec<f64>,
    /// `|W| |beta|`, `[head_width]`.
    shift_magnitude: Vec<f64>,
    /// `|W diag(gamma)|_F^2`.
    gain_squares: f64,
}

/// Rows handled together: a cache line of f64, so that reading follows the rows and writing fills whole lines.
const LANES: usize = 8;

/// Makes `W'^T: [width, head_width]` from the rows of W.
///
/// `w * gamma` is exact (24 + 24 bits); the mean may be any number, as it meets `sum(n) = 0`; the subtraction rounds once,
/// which [`GramBound::new`] accounts for. A type and not a closure for the reason given at `linalg::Accumulate`.
struct Fold<'a> {
    /// `[head_width, width]`.
    rows: &'a [f32],
    before: &'a NormOutput<'a>,
}

impl pulp::NullaryFnOnce for Fold<'_> {
    type Output = (Matrix, FoldSums);

    #[inline(always)]
    fn call(self) -> Self::Output {
        let Self { rows, before } = self;
        let width = before.gain.len();
        let head_width = rows.len() / width;
        let mut folded = Matrix::zeros(width, head_width);
        let mut sums = FoldSums {
            means: Vec::new(),
            shift: Vec::new(),
            shift_magnitude: Vec::new(),
            gain_squares: 0.0,
        };
        for first in (0..head_width).step_by(LANES) {
            let n_lanes = LANES.min(head_width - first);
            let lane_rows: [&[f32]; LANES] = std::array::from_fn(|lane| {
                &rows[(first + lane.min(n_lanes - 1)) * width..][..width]
            });
            let (mut total, mut squares) = ([0.0f64; LANES], [0.0f64; LANES]);
            let (mut shift, mut magnitude) = ([0.0f64; LANES], [0.0f64; LANES]);
            for j in 0..width {
                let gain = f64::from(before.gain[j]);
                let beta = before.shift.map_or(0.0, |beta| f64::from(beta[j]));
                let w: [f64; LANES] = std::array::from_fn(|lane| f64::from(lane_rows[lane][j]));
                let gained = w.map(|w| w * gain);
                for lane in 0..LANES {
                    total[lane] += gained[lane];
                    squares[lane] += gained[lane] * gained[lane];
                    shift[lane] += w[lane] * beta;
                    magnitude[lane] += (w[lane] * beta).abs();
                }
                folded.row_mut(j)[first..first + n_lanes].copy_from_slice(&gained[..n_lanes]);
            }
            if before.kind == NormKind::RmsNorm {
                total = [0.0; LANES];
            }
            let means = total.map(|total| total / width as f64);
            sums.means.extend_from_slice(&means[..n_lanes]);
            sums.shift.extend_from_slice(&shift[..n_lanes]);
            sums.shift_magnitude
                .extend_from_slice(&magnitude[..n_lanes]);
            sums.gain_squares += squares[..n_lanes].iter().sum::<f64>();
        }
        if before.kind == NormKind::LayerNorm {
            for j in 0..width {
                let row = folded.row_mut(j).iter_mut();
                row.zip(&sums.means).for_each(|(w, mean)| *w -= mean);
            }
        }
        (folded, sums)
    }
}

/// Bounds of one head's scores, nats.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScoreBounds {
    pub(super) score: f64,
    pub(super) gap: f64,
    pub(super) deviation: f64,
    pub(super) rounding: ProjectionRounding,
}

impl ScoreBounds {
    /// Weights so large that f64 overflows.
    pub(super) const UNBOUNDED: Self = Self {
        score: f64::INFINITY,
        gap: f64::INFINITY,
        deviation: f64::INFINITY,
        rounding: ProjectionRounding {
            scale: f64::INFINITY,
            n_terms: 0,
            query: SideRounding::UNBOUNDED,
            key: SideRounding::UNBOUNDED,
        },
    };
}

/// How far a score may be from the exact one because x, q and k were themselves computed in a format.
///
/// `|dq| <= e A + 5 u S`, where A bounds `|W||x| + |b|`, S bounds `|W d|` for relative errors d of x, `e` is the error of sums
/// of `n_terms` products in f32 (the norm's own sums included) and u the unit roundoff of the format that holds x and q: three
/// roundings in the norm, one of `W x`, one of the sum with b. Then
/// `|d(q.k)| <= |dq| |k| + |q| |dk| + |dq| |dk|`. Weights are taken as the runtime holds them.
///
/// One thing is left out: LayerNorm's mean is assumed to be good to the format's precision *relative to the standard deviation*
/// of the residual stream, not only to its magnitude. A stream whose mean exceeds its deviation a thousandfold breaks that, and
/// breaks the model too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProjectionRounding {
    scale: f64,
    n_terms: usize,
    query: SideRounding,
    key: SideRounding,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct SideRounding {
    magnitude: f64,
    operand: f64,
    norm: f64,
}

impl SideRounding {
    const EXACT: Self = Self {
        magnitude: 0.0,
        operand: 0.0,
        norm: 0.0,
    };
    const UNBOUNDED: Self = Self {
        magnitude: f64::INFINITY,
        operand: f64::INFINITY,
        norm: f64::INFINITY,
    };

    fn error(&self, accumulation: f64, roundoff: f64) -> f64 {
        accumulation * self.magnitude + 5.0 * roundoff * self.operand
    }
}

impl ProjectionRounding {
    /// Queries and keys exact: for bounds that come from elsewhere.
    pub const EXACT: Self = Self {
        scale: 0.0,
        n_terms: 0,
        query: SideRounding::EXACT,
        key: SideRounding::EXACT,
    };

    /// Nats between the score of queries and keys held in `format` (sums in f32) and the exact score, at most. Formats wider
    /// than f32 count as f32.
    #[must_use]
    pub fn nats(&self, format: Format) -> f64 {
        self.nats_after(format, 0.0)
    }

    /// [`ProjectionRounding::nats`] where the input of the norm is off too, by `input` unit roundoffs of its deviation (root mean
    /// square): the norm's result before its gain then moves by at most `2 t / (1 - t)` of its own bound, `t` being that error.
    #[must_use]
    pub fn nats_after(&self, format: Format, input: f64) -> f64 {
        let f32_roundoff = Format::F32.unit_roundoff();
        let terms = (2 * self.n_terms + 8) as f64 * f32_roundoff;
        let roundoff = format.unit_roundoff().max(f32_roundoff);
        let off = input * roundoff;
        if terms >= 1.0 || off.is_nan() || off > 0.5 {
            return f64::INFINITY;
        }
        let accumulation = terms / (1.0 - terms);
        let moved = 2.0 * off / (1.0 - off);
        let error = |side: &SideRounding| side.error(accumulation, roundoff) + moved * side.operand;
        let (query, key) = (error(&self.query), error(&self.key));
        up(self.scale * (query * self.key.norm + self.query.norm * key + query * key))
    }
}

/// Bounds of `scale * q.k` over all queries and keys, of its change from key to key, and its deviation for isotropic inputs.
///
/// * score: `scale (sigma r_q r_k + r_q |W_q'^T b_k| + r_k |W_k'^T b_q| + |b_q.b_k|)`, sigma the largest singular value of
///   `W_q'^T W_k'`;
/// * gap: two keys differ by `W_k' (n - n')` with `|n - n'| <= 2 r_k`, and the key bias cancels:
///   `2 scale r_k (sigma r_q + |W_k'^T b_q|)`;
/// * where a clamp may act the map is no longer affine: then the norms of q and k, and their channels one by one, each
///   bounded by the clamp too;
/// * deviation over the keys of a random query, for n of unit variance per channel:
///   `scale sqrt(trace(G_q G_k) + b_q^T G_k b_q)`, the clamp not counted.
pub(super) fn score_bounds(query: &Side, key: &Side, scale: f32, clip: Option<f32>) -> ScoreBounds {
    let scale = f64::from(scale).abs();
    let clip = clip.map(f64::from);
    let clipped = query.is_clipped_by(clip) || key.is_clipped_by(clip);
    let (score, gap) = if clipped {
        clipped_bounds(query, key, clip)
    } else {
        affine_bounds(query, key)
    };
    let (score, gap) = (up(score * scale), up(gap * scale));
    let key_spread = dot(&query.bias, &key.gram.gram.times(&query.bias)).max(0.0);
    let products = (0..query.bias.len()).map(|i| dot(query.gram.gram.row(i), key.gram.gram.row(i)));
    let deviation = scale * (products.sum::<f64>().max(0.0) + key_spread).sqrt();
    let clip_norm = clip.map_or(f64::INFINITY, |clip| {
        up(clip * (query.bias.len() as f64).sqrt())
    });
    let rounding = |side: &Side| SideRounding {
        magnitude: side.magnitude,
        operand: side.operand,
        norm: side.operand.min(clip_norm),
    };
    ScoreBounds {
        score,
        gap: gap.min(2.0 * score),
        deviation: deviation.min(score),
        rounding: ProjectionRounding {
            scale,
            n_terms: query.n_terms.max(key.n_terms),
            query: rounding(query),
            key: rounding(key),
        },
    }
}

fn affine_bounds(query: &Side, key: &Side) -> (f64, f64) {
    let sigma = largest_singular_value_upper(&query.gram, &key.gram);
    let key_shift = query.gram.seminorm(&key.bias, key.bias_error);
    let query_shift = key.gram.seminorm(&query.bias, query.bias_error);
    let (query_norm, key_norm) = (norm(&query.bias), norm(&key.bias));
    let biases = dot(&query.bias, &key.bias).abs()
        + gamma(query.bias.len() + 4) * query_norm * key_norm
        + query.bias_error * (key_norm + key.bias_error)
        + key.bias_error * query_norm;
    let (r_q, r_k) = (query.radius, key.radius);
    let product = sigma * r_q * r_k;
    let score = up(product + r_q * key_shift + r_k * query_shift + biases);
    let gap = up(2.0 * (product + r_k * query_shift));
    (score, gap)
}

fn clipped_bounds(query: &Side, key: &Side, clip: Option<f64>) -> (f64, f64) {
    let (q, k) = (query.channel_bounds(clip), key.channel_bounds(clip));
    // Two clamped keys differ by no more than the unclamped ones, and by no more than twice the clamp.
    let twice = clip.map_or(f64::INFINITY, |clip| 2.0 * clip);
    let channels = 0..key.bias.len();
    let spread: Vec<f64> = channels
        .map(|c| up(2.0 * key.radius * key.gram.row_norm(c)).min(twice))
        .collect();
    let slack = 1.0 + gamma(q.len() + 4);
    let query_norm = query.norm_bound().min(norm(&q));
    let key_norm = key.norm_bound().min(norm(&k));
    let spread_norm = up(2.0 * key.radius * key.gram.spectral_norm()).min(norm(&spread));
    let score = (query_norm * key_norm).min(dot(&q, &k) * slack);
    let gap = (query_norm * spread_norm).min(dot(&q, &spread) * slack);
    (up(score), up(gap))
}

/// The rows of one head of a projection weight `[n_heads * head_width, width]`.
pub(super) fn head_rows(weight: &Weight, head: usize, head_width: usize) -> &[f32] {
    let width = weight.shape[1];
    &weight.data[head * head_width * width..][..head_width * width]
}
