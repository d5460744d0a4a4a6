//! Calls of the attention operation with everything it can be given, and their truth in f64.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(unreachable_pub, reason = "a module of test binaries")]

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use kernels::reference::{self, ReferenceGradients};
use kernels::{AttentionInput, AttentionShape, BiasTable, CapOrder, Heads};
use numerics::{BiasFunction, BiasShape, SlopeSchedule};
use snellen_model::{AttentionBias, AttentionCall, DeviceKind};

use crate::common::Random;

#[derive(Clone)]
pub enum Bias {
    None,
    ByKey(Vec<f32>),
    ByDistance(Vec<f32>),
}

/// Everything an attention call reads.
#[derive(Clone)]
pub struct Case {
    pub name: String,
    pub shape: AttentionShape,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub bias: Bias,
    pub key_valid: Option<Vec<bool>>,
    pub documents: Option<Vec<usize>>,
    /// Gradient of the output.
    pub g: Vec<f32>,
}

pub fn shape(n: usize, n_heads: usize, head_width: usize) -> AttentionShape {
    AttentionShape {
        n_queries: n,
        n_keys: n,
        n_heads,
        n_kv_heads: n_heads,
        head_width,
        query_offset: 0,
        causal: true,
        scale: 1.0 / (head_width as f32).sqrt(),
        soft_cap: None,
    }
}

pub fn slopes(n_heads: usize) -> Vec<f64> {
    SlopeSchedule::Press.slopes(n_heads).unwrap()
}

impl Case {
    /// Random q, k, v with scores of a few nats, and the linear bias by distance.
    pub fn new(name: &str, shape: AttentionShape, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut vec = |n: usize, size: f32| (0..n).map(|_| random.unit() * size).collect();
        let (rows, keys) = (
            shape.n_queries * shape.n_heads * shape.head_width,
            shape.n_keys * shape.n_kv_heads * shape.head_width,
        );
        let (q, k, v, g) = (
            vec(rows, 2.5),
            vec(keys, 2.5),
            vec(keys, 1.0),
            vec(rows, 1.0),
        );
        let case = Self {
            name: name.to_owned(),
            shape,
            q,
            k,
            v,
            bias: Bias::None,
            key_valid: None,
            documents: None,
            g,
        };
        case.bias(&BiasFunction::linear())
    }

    /// Distances of a table.
    pub fn distances(&self) -> usize {
        self.shape
            .n_keys
            .max(self.shape.query_offset + self.shape.n_queries)
    }

    pub fn bias(mut self, bias: &BiasFunction) -> Self {
        let n = self.distances();
        let heads = slopes(self.shape.n_heads).into_iter().enumerate();
        let rows = heads
            .flat_map(|(head, slope)| (0..n).map(move |d| bias.bias(head, slope, d as f64) as f32));
        self.bias = Bias::ByDistance(rows.collect());
        self
    }

    pub fn by_key(mut self) -> Self {
        let n = self.shape.n_keys;
        let heads = slopes(self.shape.n_heads).into_iter();
        let rows = heads.flat_map(|m| (0..n).map(move |j| (m * j as f64) as f32));
        self.bias = Bias::ByKey(rows.collect());
        self
    }

    /// Queries and keys of every document.
    pub fn segments(&self) -> Vec<Range<usize>> {
        let Some(starts) = &self.documents else {
            return vec![];
        };
        let ends = starts.iter().skip(1).copied().chain([self.shape.n_keys]);
        starts
            .iter()
            .copied()
            .zip(ends)
            .map(|(a, b)| a..b)
            .collect()
    }

    /// The call of a document alone.
    fn document(&self, range: &Range<usize>) -> Self {
        let s = self.shape;
        let rows =
            |values: &[f32], width: usize| values[range.start * width..range.end * width].to_vec();
        let (row, kv_row) = (s.n_heads * s.head_width, s.n_kv_heads * s.head_width);
        let mut shape = s;
        (shape.n_queries, shape.n_keys) = (range.len(), range.len());
        Self {
            name: self.name.clone(),
            shape,
            q: rows(&self.q, row),
            k: rows(&self.k, kv_row),
            v: rows(&self.v, kv_row),
            bias: match &self.bias {
                Bias::ByKey(values) => Bias::ByKey(
                    values
                        .chunks_exact(s.n_keys)
                        .flat_map(|row| row[range.clone()].to_vec())
                        .collect(),
                ),
                other => other.clone(),
            },
            key_valid: self.key_valid.as_ref().map(|v| v[range.clone()].to_vec()),
            documents: None,
            g: rows(&self.g, row),
        }
    }

    pub fn input(&self) -> AttentionInput<'_> {
        let s = self.shape;
        AttentionInput {
            shape: s,
            q: Heads::packed(&self.q, s.n_heads, s.head_width),
            k: Heads::packed(&self.k, s.n_kv_heads, s.head_width),
            v: Heads::packed(&self.v, s.n_kv_heads, s.head_width),
            bias: match &self.bias {
                Bias::None => BiasTable::None,
                Bias::ByKey(values) => BiasTable::ByKey { values },
                Bias::ByDistance(values) => BiasTable::ByDistance { values },
            },
            key_valid: self.key_valid.as_deref(),
        }
    }

    /// The truth: output and log-sum-exp.
    pub fn truth(&self) -> (Vec<f64>, Vec<f64>) {
        let segments = self.segments();
        if segments.is_empty() {
            return reference::attention(&self.input());
        }
        let s = self.shape;
        let mut out = vec![];
        let mut lse = vec![0.0; s.n_heads * s.n_queries];
        for range in segments {
            let (own, own_lse) = reference::attention(&self.document(&range).input());
            out.extend(own);
            for (head, values) in own_lse.chunks_exact(range.len()).enumerate() {
                let at = head * s.n_queries;
                lse[at + range.start..at + range.end].copy_from_slice(values);
            }
        }
        (out, lse)
    }

    /// The truth: gradients of `sum(out * g)`.
    pub fn true_gradients(&self) -> ReferenceGradients {
        let segments = self.segments();
        if segments.is_empty() {
            return reference::attention_backward(&self.input(), &self.g);
        }
        let n = self.distances();
        let mut all = ReferenceGradients {
            dq: vec![],
            dk: vec![],
            dv: vec![],
            dbias: vec![0.0; self.shape.n_heads * n],
        };
        for range in segments {
            let document = self.document(&range);
            let own = reference::attention_backward(&document.input(), &document.g);
            all.dq.extend(own.dq);
            all.dk.extend(own.dk);
            all.dv.extend(own.dv);
            let rows = own.dbias.chunks_exact(range.len());
            for (to, from) in all.dbias.chunks_exact_mut(n).zip(rows) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
            }
        }
        all
    }

    /// q, k, v and the bias table as tensors.
    pub fn tensors(
        &self,
        device: &Device,
        dtype: FloatDType,
    ) -> ([Tensor<2>; 3], Option<Tensor<2>>) {
        let s = self.shape;
        let tensor = |values: &[f32], rows: usize| {
            let width = values.len() / rows;
            let data = TensorData::new(values.to_vec(), [rows, width]);
            Tensor::<2>::from_data(data, device).cast(dtype)
        };
        let table = match &self.bias {
            Bias::None => None,
            Bias::ByKey(values) | Bias::ByDistance(values) => Some(tensor(values, s.n_heads)),
        };
        (
            [
                tensor(&self.q, s.n_queries),
                tensor(&self.k, s.n_keys),
                tensor(&self.v, s.n_keys),
            ],
            table,
        )
    }

    /// The call with a bias table, which must be there if the case has one.
    pub fn call(&self, table: Option<Tensor<2>>) -> AttentionCall {
        AttentionCall {
            shape: self.shape,
            bias: match (&self.bias, table) {
                (Bias::ByKey(_), Some(table)) => AttentionBias::ByKey(table),
                (Bias::ByDistance(_), Some(table)) => AttentionBias::ByDistance(table),
                _ => AttentionBias::None,
            },
            key_valid: self.key_valid.clone().map(Arc::from),
            documents: self.documents.clone().map(Arc::from),
        }
    }
}

/// Every bias function of `numerics`, by name, for as many heads as a table needs.
pub fn bias_functions(n_heads: usize) -> Vec<(&'static str, BiasFunction)> {
    let shape = BiasFunction::with_shape;
    let heads = |f: fn(usize) -> f64| (0..n_heads).map(f).collect::<Vec<f64>>();
    vec![
        ("none", shape(BiasShape::None)),
        ("linear", BiasFunction::linear()),
        ("log", shape(BiasShape::Log)),
        ("sqrt", shape(BiasShape::Sqrt)),
        (
            "kerple",
            shape(BiasShape::KerpleLog {
                p: heads(|h| 0.5 + h as f64),
                a: heads(|h| 0.1 * (h + 1) as f64),
            }),
        ),
        (
            "t5",
            shape(BiasShape::T5Buckets {
                n_buckets: 8,
                max_distance: 32,
                bidirectional: false,
                table: (0..n_heads)
                    .map(|h| (0..8).map(|b| ((h * 8 + b) as f64 * 0.7).sin()).collect())
                    .collect(),
            }),
        ),
        (
            "clamp and interpolation",
            BiasFunction {
                clamp: Some(-6.0),
                interpolation: 0.5,
                ..BiasFunction::linear()
            },
        ),
    ]
}

/// Calls with everything an operation can be given; some reach over several tiles of queries.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for n in [1, 2, 7, 65, 300] {
        cases.push(Case::new(&format!("length {n}"), shape(n, 2, 16), n as u64));
    }
    for (name, bias) in bias_functions(4) {
        let mut s = shape(70, 4, 8);
        cases.push(Case::new(&format!("bias {name}"), s, 5).bias(&bias));
        s.causal = false;
        cases.push(Case::new(&format!("bidirectional, bias {name}"), s, 6).bias(&bias));
    }
    cases.push(Case::new("by key", shape(70, 3, 8), 7).by_key());
    for kv in [1, 2, 3, 6] {
        let mut s = shape(40, 6, 8);
        s.n_kv_heads = kv;
        cases.push(Case::new(&format!("6 heads on {kv}"), s, 8));
    }
    for (n_queries, n_keys, offset, causal) in [
        (1, 100, 99, true),
        (30, 100, 70, true),
        (10, 50, 0, true),
        (30, 100, 20, false),
    ] {
        let mut s = shape(n_queries, 2, 16);
        (s.n_keys, s.query_offset, s.causal) = (n_keys, offset, causal);
        let name = format!("{n_queries} queries at {offset}, {n_keys} keys, causal {causal}");
        cases.push(Case::new(&name, s, 9));
    }
    for order in [CapOrder::BeforeBias, CapOrder::AfterBias] {
        let mut s = shape(50, 2, 16);
        s.soft_cap = Some((3.0, order));
        cases.push(Case::new(&format!("cap {order:?}"), s, 10));
    }
    for causal in [true, false] {
        let mut s = shape(60, 2, 16);
        s.causal = causal;
        // On the left, so that the first queries see nothing, and in the middle.
        let valid = |j: usize| j >= 5 && !(20..25).contains(&j);
        let mut case = Case::new(&format!("padding, causal {causal}"), s, 11);
        case.key_valid = Some((0..60).map(valid).collect());
        // Padding may hold anything.
        for values in [&mut case.k, &mut case.v] {
            values[3 * 32] = f32::NAN;
        }
        cases.push(case);
    }
    let mut case = Case::new("nothing but padding", shape(9, 2, 8), 12);
    case.key_valid = Some(vec![false; 9]);
    cases.push(case);
    for causal in [true, false] {
        let mut s = shape(300, 4, 8);
        (s.causal, s.n_kv_heads) = (causal, 2);
        let mut case = Case::new(&format!("documents, causal {causal}"), s, 13);
        case.documents = Some(vec![0, 1, 8, 280]);
        cases.push(case.clone());
        case.name += ", by key";
        cases.push(case.by_key());
    }
    cases
}

/// Panics unless all of `got` are near the truth; infinities must be equal.
pub fn near(what: &str, truth: &[f64], got: &[f64], tolerance: f64) {
    assert_eq!(truth.len(), got.len(), "{what}: lengths");
    for (i, (t, g)) in truth.iter().zip(got).enumerate() {
        let distance = if t == g { 0.0 } else { (t - g).abs() };
        assert!(
            distance <= tolerance,
            "{what}: element {i} is {g:e}, not {t:e}, off by {distance:e} > {tolerance:e}"
        );
    }
}

/// Largest distance of two equally long lists, infinities of one kind being equal.
pub fn worst(truth: &[f64], got: &[f64]) -> f64 {
    assert_eq!(truth.len(), got.len());
    let pairs = truth.iter().zip(got);
    let distances = pairs.map(|(t, g)| if t == g { 0.0 } else { (t - g).abs() });
    distances.fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a })
}

/// The values of a tensor in f64.
pub fn values(tensor: Tensor<2>) -> Vec<f64> {
    let data = tensor.into_data().convert::<f64>();
    data.try_into_vec().unwrap()
}

/// The first device of a kind, if there is one.
pub fn device(kind: DeviceKind) -> Option<Device> {
    kind.devices().into_iter().next()
}
