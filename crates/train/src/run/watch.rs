//! A look at every head on fixed held-out text: what it cannot see, how far it reaches, where its gradient comes from.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::attention::{Attention, RowWeights};
use crate::network::{Batch, Network, Workspace};

/// One head at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadWatch {
    /// Layer.
    pub layer: u64,
    /// Head.
    pub head: u64,
    /// Causal pairs.
    pub pairs: u64,
    /// Pairs whose weight is exactly zero under the run's rule.
    pub blind_pairs: u64,
    /// Distance within which 90 % of the weight lies, tokens.
    pub reach_90: u64,
    /// Mean weight on key 0 over the queries after the first.
    pub key0_mass: f64,
    /// Share of the absolute score gradient in each distance bin; sums to 1 unless there is no gradient at all.
    pub gradient_share: Vec<f64>,
    /// Sum of the absolute score gradients of blind pairs: exactly 0.
    pub blind_gradient: f64,
}

/// What a look found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WatchReport {
    /// Upper edges of the distance bins, exclusive.
    pub(super) edges: Vec<u64>,
    /// All heads.
    pub(super) heads: Vec<HeadWatch>,
}

/// Looks at all heads on one sequence. Leaves a gradient step's buffers in `work`.
pub(crate) fn look(
    network: &Network,
    params: &[f32],
    ids: &[u32],
    targets: &[u32],
    work: &mut Workspace,
) -> WatchReport {
    let (shape, n) = (network.shape, ids.len());
    let weights = vec![1.0 / n as f32; n];
    let sequences = [(0, n)];
    let batch = Batch {
        ids,
        targets,
        weights: &weights,
        sequences: &sequences,
    };
    let mut gradient = vec![0.0; network.layout.len()];
    let d_attended = network.attention_gradients(params, &batch, &mut gradient, work);
    let bias = network.bias(params, n);
    let attention = Attention {
        heads: shape.heads,
        head_width: shape.head_width(),
        bias: &bias,
        rule: &network.rule,
        sequences: &sequences,
    };
    let mut edges: Vec<u64> = (0..)
        .map(|k| 1u64 << k)
        .take_while(|e| *e < n as u64)
        .collect();
    edges.push(n as u64);
    let tasks: Vec<(usize, usize)> = (0..shape.layers)
        .flat_map(|layer| (0..shape.heads).map(move |head| (layer, head)))
        .collect();
    let heads = tasks
        .par_iter()
        .map(|&(layer, head)| {
            look_at_head(
                &attention,
                &work.kept[layer].qkv,
                &d_attended[layer],
                layer,
                head,
                &edges,
            )
        })
        .collect();
    WatchReport { edges, heads }
}

fn look_at_head(
    attention: &Attention<'_>,
    qkv: &[f32],
    d_attended: &[f32],
    layer: usize,
    head: usize,
    edges: &[u64],
) -> HeadWatch {
    let (w, n) = (attention.head_width, attention.sequences[0].1);
    let width = attention.heads * w;
    let rule = attention.row_rule(head);
    let packed = attention.packed(qkv, 0, head);
    let mut row = RowWeights::default();
    let mut mass = vec![0.0f64; n];
    let mut gradient = vec![0.0f64; n];
    let (mut blind, mut key0, mut blind_gradient) = (0u64, 0.0f64, 0.0f64);
    for query in 0..n {
        rule.row(
            query,
            packed.part(0, query),
            |j| packed.part(1, j),
            &mut row,
        );
        let d = &d_attended[query * width + head * w..][..w];
        let dots: Vec<f64> = (0..=query)
            .map(|j| {
                let v = packed.part(2, j);
                d.iter()
                    .zip(v)
                    .map(|(a, b)| f64::from(*a) * f64::from(*b))
                    .sum()
            })
            .collect();
        let mean: f64 = row
            .weights
            .iter()
            .zip(&dots)
            .map(|(p, d)| f64::from(*p) * d)
            .sum();
        for (j, &p) in row.weights.iter().enumerate() {
            let p = f64::from(p);
            let score_gradient = (p * (dots[j] - mean) * f64::from(row.slope_of_cap[j])).abs();
            mass[query - j] += p;
            gradient[query - j] += score_gradient;
            if p == 0.0 {
                blind += 1;
                blind_gradient += score_gradient;
            }
        }
        if query > 0 {
            key0 += f64::from(row.weights[0]);
        }
    }
    let total: f64 = mass.iter().sum();
    let mut so_far = 0.0;
    let reach_90 = mass
        .iter()
        .position(|m| {
            so_far += m;
            so_far >= 0.9 * total
        })
        .unwrap_or(0);
    let all: f64 = gradient.iter().sum();
    let mut from = 0;
    let gradient_share = edges
        .iter()
        .map(|&to| {
            let part: f64 = gradient[from..to as usize].iter().sum();
            from = to as usize;
            if all > 0.0 { part / all } else { 0.0 }
        })
        .collect();
    HeadWatch {
        layer: layer as u64,
        head: head as u64,
        pairs: (n as u64) * (n as u64 + 1) / 2,
        blind_pairs: blind,
        reach_90: reach_90 as u64,
        key0_mass: key0 / (n.max(2) - 1) as f64,
        gradient_share,
        blind_gradient,
    }
}
