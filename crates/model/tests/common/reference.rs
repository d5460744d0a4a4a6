//! The same models in f64 scalar loops: every formula written from the families' definitions, attention over whole rows.

use numerics::{BiasForm, BiasShape, CapOrder, Format, KeyOrigin, ScaleOrder};
use snellen_model::{
    Activation, Arrangement, LayerRole as Role, ModelSpec, NormKind, NormSpec, QkNormExtent,
    ResidualFrom, WeightRole,
};

use super::RandomWeights;

type Matrix = Vec<Vec<f64>>;

struct Reference<'a> {
    spec: &'a ModelSpec,
    weights: &'a RandomWeights,
}

impl Reference<'_> {
    fn vector(&self, role: WeightRole) -> Option<Vec<f64>> {
        let weight = self.weights.weights.get(&role)?;
        Some(super::wide(&weight.data))
    }

    /// `[out][in]`
    fn matrix(&self, role: WeightRole) -> Option<Matrix> {
        let weight = self.weights.weights.get(&role)?;
        let rows = weight.data.chunks(weight.shape[1]);
        Some(rows.map(super::wide).collect())
    }

    fn linear(&self, layer: usize, weight: Role, bias: Role, x: &Matrix) -> Matrix {
        let w = self.matrix(WeightRole::Layer(layer, weight)).unwrap();
        let b = self.vector(WeightRole::Layer(layer, bias));
        let apply = |x: &Vec<f64>| {
            let mut y: Vec<f64> = w.iter().map(|w| dot(w, x)).collect();
            if let Some(b) = &b {
                y.iter_mut().zip(b).for_each(|(y, b)| *y += b);
            }
            y
        };
        x.iter().map(apply).collect()
    }

    fn norm(&self, spec: &NormSpec, weight: WeightRole, bias: WeightRole, x: &Matrix) -> Matrix {
        let w = self.vector(weight).unwrap();
        let b = self.vector(bias);
        assert_eq!(b.is_some(), spec.has_bias);
        let one = |x: &[f64]| -> Vec<f64> {
            let n = x.len() as f64;
            let mean = match spec.kind {
                NormKind::LayerNorm => x.iter().sum::<f64>() / n,
                NormKind::RmsNorm => 0.0,
            };
            let var = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            let scale = 1.0 / (var + f64::from(spec.eps)).sqrt();
            let y = x.iter().zip(&w).map(|(x, w)| (x - mean) * scale * w);
            match &b {
                Some(b) => y.zip(b).map(|(y, b)| y + b).collect(),
                None => y.collect(),
            }
        };
        let groups = |row: &Vec<f64>| row.chunks(w.len()).flat_map(one).collect();
        x.iter().map(groups).collect()
    }

    fn layer_norm(&self, layer: usize, weight: Role, bias: Role, x: &Matrix) -> Matrix {
        let (weight, bias) = (
            WeightRole::Layer(layer, weight),
            WeightRole::Layer(layer, bias),
        );
        self.norm(&self.spec.block.norm, weight, bias, x)
    }

    /// Score plus bias of a pair, from the raw dot product.
    fn entry(
        &self,
        layer: usize,
        head: usize,
        dot: f64,
        i: usize,
        j: usize,
        valid: &[bool],
    ) -> f64 {
        let spec = self.spec;
        let mut scale = f64::from(spec.block.attention.scale);
        if spec.block.attention.inverse_layer_scale {
            scale /= layer as f64 + 1.0;
        }
        let convention = &spec.alibi.convention;
        let function = &spec.alibi.bias;
        let mut slope = spec.alibi.slopes[head];
        let plain = function.shape == BiasShape::Linear
            && function.clamp.is_none()
            && function.interpolation == 1.0
            && function
                .soft_cap
                .is_none_or(|c| c.order == CapOrder::BeforeBias);
        let bias = if plain && convention.form == BiasForm::KeyPosition {
            let seen = valid[..=j].iter().filter(|v| **v).count() as f64;
            let position = match convention.key_origin {
                KeyOrigin::Zero => seen - 1.0,
                KeyOrigin::One => seen,
                KeyOrigin::LengthEnd => j as f64 - (valid.len() as f64 - 1.0),
            };
            let mut bias = slope * position;
            if convention.storage.is_some() {
                // Falcon: bf16(bf16(m) * bf16(j))
                bias = Format::Bf16.round(Format::Bf16.round(slope) * Format::Bf16.round(position));
            }
            if convention.scale_order == ScaleOrder::BiasBeforeScale {
                bias *= scale;
            }
            bias
        } else {
            if convention.scale_order == ScaleOrder::BiasBeforeScale {
                slope *= scale;
            }
            function.bias(head, slope, i.abs_diff(j) as f64)
        };
        let score = dot * scale;
        match function.soft_cap {
            None => score + bias,
            Some(c) if c.order == CapOrder::BeforeBias => c.cap * (score / c.cap).tanh() + bias,
            Some(c) => c.cap * ((score + bias) / c.cap).tanh(),
        }
    }

    fn attention(&self, layer: usize, x: &Matrix, valid: &[bool]) -> Matrix {
        let spec = self.spec;
        let (n, d) = (x.len(), spec.head_width);
        let project = |weight, bias| {
            let mut y = self.linear(layer, weight, bias, x);
            if let Some(c) = spec.block.attention.clip_qkv {
                let c = f64::from(c);
                y.iter_mut().flatten().for_each(|y| *y = y.clamp(-c, c));
            }
            y
        };
        let mut q = project(Role::QueryWeight, Role::QueryBias);
        let mut k = project(Role::KeyWeight, Role::KeyBias);
        let v = project(Role::ValueWeight, Role::ValueBias);
        if let Some(qk) = &spec.block.attention.qk_norm {
            let at = |role| WeightRole::Layer(layer, role);
            q = self.norm(
                &qk.norm,
                at(Role::QueryNormWeight),
                at(Role::QueryNormBias),
                &q,
            );
            k = self.norm(&qk.norm, at(Role::KeyNormWeight), at(Role::KeyNormBias), &k);
            let width = self.vector(at(Role::KeyNormWeight)).unwrap().len();
            let full = qk.extent == QkNormExtent::Full;
            assert_eq!(width, if full { spec.kv_width() } else { d });
        }
        let mut out = vec![vec![0.0; spec.n_heads * d]; n];
        for head in 0..spec.n_heads {
            let kv = head / (spec.n_heads / spec.n_kv_heads);
            for i in 0..n {
                let last = if spec.alibi.convention.causal {
                    i
                } else {
                    n - 1
                };
                let keys: Vec<usize> = (0..=last).filter(|&j| valid[j]).collect();
                let q = &q[i][head * d..(head + 1) * d];
                let entry = |&j: &usize| {
                    let k = &k[j][kv * d..(kv + 1) * d];
                    self.entry(layer, head, dot(q, k), i, j, valid)
                };
                let scores: Vec<f64> = keys.iter().map(entry).collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                for (s, &j) in scores.iter().zip(&keys) {
                    let weight = (s - max).exp() / sum;
                    for c in 0..d {
                        out[i][head * d + c] += weight * v[j][kv * d + c];
                    }
                }
            }
        }
        match spec.block.attention.output {
            Some(_) => self.linear(layer, Role::OutputWeight, Role::OutputBias, &out),
            None => out,
        }
    }

    fn mlp(&self, layer: usize, x: &Matrix) -> Matrix {
        let mlp = &self.spec.block.mlp;
        let act = |x: f64| match mlp.activation {
            Activation::GeluTanh => {
                0.5 * x
                    * (1.0
                        + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
            }
            Activation::GeluErf => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::Relu => x.max(0.0),
        };
        let mut hidden = self.linear(layer, Role::UpWeight, Role::UpBias, x);
        if mlp.gated {
            let gate = self.linear(layer, Role::GateWeight, Role::GateBias, x);
            let pairs = hidden.iter_mut().flatten().zip(gate.iter().flatten());
            pairs.for_each(|(h, g)| *h *= act(*g));
        } else {
            hidden.iter_mut().flatten().for_each(|h| *h = act(*h));
        }
        self.linear(layer, Role::DownWeight, Role::DownBias, &hidden)
    }

    fn block(&self, layer: usize, x: &Matrix, valid: &[bool]) -> Matrix {
        let block = &self.spec.block;
        let n1 = self.layer_norm(layer, Role::Norm1Weight, Role::Norm1Bias, x);
        let attended = self.attention(layer, &n1, valid);
        let base = match block.attention_residual {
            ResidualFrom::Input => x,
            ResidualFrom::Norm => &n1,
        };
        let middle = add(base, &attended);
        match block.arrangement {
            Arrangement::Sequential => {
                let n2 = self.layer_norm(layer, Role::Norm2Weight, Role::Norm2Bias, &middle);
                let out = self.mlp(layer, &n2);
                match block.mlp_residual {
                    ResidualFrom::Input => add(&middle, &out),
                    ResidualFrom::Norm => add(&n2, &out),
                }
            }
            Arrangement::Parallel { shared_norm: true } => add(&middle, &self.mlp(layer, &n1)),
            Arrangement::Parallel { shared_norm: false } => {
                let n2 = self.layer_norm(layer, Role::Norm2Weight, Role::Norm2Bias, x);
                add(&middle, &self.mlp(layer, &n2))
            }
        }
    }
}

/// Logits `[n * vocab]`.
pub fn logits(
    spec: &ModelSpec,
    weights: &RandomWeights,
    ids: &[u32],
    valid: Option<&[bool]>,
) -> Vec<f64> {
    let r = Reference { spec, weights };
    let all = vec![true; ids.len()];
    let valid = valid.unwrap_or(&all);
    let table = r.matrix(WeightRole::Embedding).unwrap();
    let scale = f64::from(spec.embedding.scale);
    let embed = |id: &u32| table[*id as usize].iter().map(|x| x * scale).collect();
    let mut x: Matrix = ids.iter().map(embed).collect();
    if let Some(norm) = &spec.embedding.norm {
        x = r.norm(
            norm,
            WeightRole::EmbeddingNormWeight,
            WeightRole::EmbeddingNormBias,
            &x,
        );
    }
    for layer in 0..spec.n_layers {
        x = r.block(layer, &x, valid);
    }
    if let Some(norm) = &spec.final_norm {
        x = r.norm(
            norm,
            WeightRole::FinalNormWeight,
            WeightRole::FinalNormBias,
            &x,
        );
    }
    let head = if spec.head.tied {
        table
    } else {
        r.matrix(WeightRole::Head).unwrap()
    };
    let logit = |x: &Vec<f64>, w: &Vec<f64>| {
        let z = dot(x, w) * f64::from(spec.head.logit_scale);
        match spec.head.soft_cap {
            Some(c) => f64::from(c) * (z / f64::from(c)).tanh(),
            None => z,
        }
    };
    x.iter()
        .flat_map(|x| head.iter().map(move |w| logit(x, w)).collect::<Vec<_>>())
        .collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(a: &Matrix, b: &Matrix) -> Matrix {
    let row = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| a + b).collect();
    a.iter().zip(b).map(row).collect()
}

/// erf by composite Simpson quadrature of its definition, error far below f32.
fn erf(x: f64) -> f64 {
    let end = x.abs().min(7.0);
    let n = 400;
    let h = end / f64::from(n);
    let f = |i: i32| (-(f64::from(i) * h).powi(2)).exp();
    let inner: f64 = (1..n)
        .map(|i| if i % 2 == 1 { 4.0 * f(i) } else { 2.0 * f(i) })
        .sum();
    x.signum() * (f(0) + inner + f(n)) * h / 3.0 * std::f64::consts::FRAC_2_SQRT_PI
}
