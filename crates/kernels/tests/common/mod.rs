//! Shared by the tests: inputs from a seed, and tolerances that are derived and not guessed.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file is a crate of its own and uses its own part"
)]

use snellen_kernels::{
    AttentionInput, AttentionObserver, AttentionShape, BiasTable, CapOrder, Heads, attention,
    reference,
};

/// Rounding unit of f32.
pub const U: f64 = 1.0 / (1_u64 << 24) as f64;

/// An absolute tolerance with the reason for its size.
#[derive(Clone, Debug)]
pub struct Tolerance {
    pub abs: f64,
    pub why: String,
}

impl Tolerance {
    /// Panics with the worst element unless all of `got` are within the tolerance of `expected`. Infinities and NaN must
    /// be equal in kind.
    pub fn check(&self, what: &str, expected: &[f64], got: &[f32]) {
        assert_eq!(expected.len(), got.len(), "{what}: lengths");
        let mut worst = (0, -1.0);
        for (i, (&e, &g)) in expected.iter().zip(got).enumerate() {
            let distance = if e.is_nan() && g.is_nan() || e == f64::from(g) {
                0.0
            } else {
                let d = (e - f64::from(g)).abs();
                if d.is_nan() { f64::INFINITY } else { d }
            };
            if distance > worst.1 {
                worst = (i, distance);
            }
        }
        assert!(
            expected.is_empty() || worst.1 <= self.abs,
            "{what}: worst at {}: expected {:e}, got {:e}, distance {:e} > {:e} ({})",
            worst.0,
            expected[worst.0],
            got[worst.0],
            worst.1,
            self.abs,
            self.why
        );
    }

    /// The same with a multiple of the room.
    pub fn times(&self, factor: f64) -> Self {
        Self {
            abs: self.abs * factor,
            why: format!("{factor} times: {}", self.why),
        }
    }
}

/// Everything an attention call reads, owned.
#[derive(Clone, Debug)]
pub struct Case {
    pub shape: AttentionShape,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub bias: Bias,
    pub key_valid: Option<Vec<bool>>,
}

/// An owned [`BiasTable`].
#[derive(Clone, Debug)]
pub enum Bias {
    None,
    ByKey(Vec<f32>),
    ByDistance(Vec<f32>),
}

/// Uniform numbers in [-1, 1) from a linear congruential generator (Knuth's MMIX constants).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def0)
    }
    pub fn uniform(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }
    pub fn vec(&mut self, n: usize, size: f32) -> Vec<f32> {
        (0..n).map(|_| self.uniform() * size).collect()
    }
}

/// Causal, one head per key head, scale `1 / sqrt(width)`, no cap.
pub fn shape(n: usize, n_heads: usize, width: usize) -> AttentionShape {
    AttentionShape {
        n_queries: n,
        n_keys: n,
        n_heads,
        n_kv_heads: n_heads,
        head_width: width,
        query_offset: 0,
        causal: true,
        scale: 1.0 / (width as f32).sqrt(),
        soft_cap: None,
    }
}

/// Slopes `2^(-8(h+1)/H)`.
pub fn slopes(n_heads: usize) -> Vec<f64> {
    (0..n_heads)
        .map(|h| 2.0_f64.powf(-8.0 * (h + 1) as f64 / n_heads as f64))
        .collect()
}

impl Case {
    /// Random q, k, v with scores of a few nats, and the linear bias by distance.
    pub fn random(shape: AttentionShape, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (w, s) = (shape.head_width, shape);
        let q = random.vec(s.n_queries * s.n_heads * w, 2.5);
        let k = random.vec(s.n_keys * s.n_kv_heads * w, 2.5);
        let v = random.vec(s.n_keys * s.n_kv_heads * w, 1.0);
        let n = s.n_keys.max(s.query_offset + s.n_queries);
        let bias = slopes(s.n_heads)
            .iter()
            .flat_map(|m| (0..n).map(move |d| (-m * d as f64) as f32))
            .collect();
        Self {
            shape,
            q,
            k,
            v,
            bias: Bias::ByDistance(bias),
            key_valid: None,
        }
    }

    /// The linear bias in key-position form, `m * key`.
    pub fn by_key(mut self) -> Self {
        let n = self.shape.n_keys;
        let values = slopes(self.shape.n_heads)
            .iter()
            .flat_map(|m| (0..n).map(move |j| (m * j as f64) as f32))
            .collect();
        self.bias = Bias::ByKey(values);
        self
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

    pub fn run(&self) -> (Vec<f32>, Vec<f32>) {
        run(&self.input(), None)
    }

    pub fn tolerances(&self) -> (Tolerance, Tolerance) {
        tolerances(&self.input())
    }

    /// Compares the fast path with the f64 reference.
    pub fn check(&self, what: &str) {
        let (out, lse) = self.run();
        let (expected, expected_lse) = reference::attention(&self.input());
        let (t_out, t_lse) = self.tolerances();
        t_lse.check(&format!("{what}, lse"), &expected_lse, &lse);
        t_out.check(&format!("{what}, out"), &expected, &out);
    }
}

pub fn run(
    input: &AttentionInput<'_>,
    observer: Option<&dyn AttentionObserver>,
) -> (Vec<f32>, Vec<f32>) {
    let s = input.shape;
    // Poisoned, so that an element that is never written shows.
    let mut out = vec![f32::from_bits(0x7fc0_dead); s.n_queries * s.n_heads * s.head_width];
    let mut lse = vec![f32::from_bits(0x7fc0_dead); s.n_heads * s.n_queries];
    attention(input, &mut out, &mut lse, observer);
    (out, lse)
}

pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Worst-case f32 error of `out` and `lse` against exact arithmetic, first order in the rounding unit `u`:
///
/// * a score is off by at most `delta = u (width + 1) max sum |q c * k c| scale` (the chain of multiply-adds and the scale)
///   plus `2 u max |score|` (adding the bias, subtracting the maximum), plus 8 u of the cap where a cap is used;
/// * a weight then by the factor `1 + delta`, plus 2 u of the exponential;
/// * a sum over keys by `u (64 + 3 n / 64)`: chains of one block, then one rescaling and addition per block;
/// * the quotient doubles that (numerator and denominator), and rounds once.
pub fn tolerances(input: &AttentionInput<'_>) -> (Tolerance, Tolerance) {
    let s = input.shape;
    let (mut size, mut score) = (0.0_f64, 0.0_f64);
    for head in 0..s.n_heads {
        for row in 0..s.n_queries {
            let q = input.q.row(row, head, s.head_width);
            let scores = reference::scores(input, head, row);
            for (key, x) in scores.iter().enumerate().filter(|(_, x)| x.is_finite()) {
                let k = input.k.row(key, s.kv_head(head), s.head_width);
                let sum: f64 = q.iter().zip(k).map(|(&a, &b)| f64::from(a * b).abs()).sum();
                size = size.max(sum * f64::from(s.scale));
                score = score.max(x.abs());
            }
        }
    }
    let value = input
        .v
        .data
        .iter()
        .filter(|v| v.is_finite())
        .fold(0.0_f64, |a, &v| a.max(f64::from(v).abs()));
    let cap = match s.soft_cap {
        Some((cap, CapOrder::BeforeBias | CapOrder::AfterBias)) => 8.0 * f64::from(cap),
        None => 0.0,
    };
    let delta = U * ((s.head_width + 1) as f64 * size + 2.0 * score + cap);
    let sums = U * (64.0 + 3.0 * s.n_keys.div_ceil(64) as f64);
    let why = format!(
        "width {}, keys {}, sum |q k| {size:.3e}, |score| {score:.3e}, |v| {value:.3e}",
        s.head_width, s.n_keys
    );
    (
        Tolerance {
            abs: value * (2.0 * (delta + 2.0 * U + sums) + U),
            why: why.clone(),
        },
        Tolerance {
            abs: delta + 2.0 * U + sums + U * (score + 20.0),
            why,
        },
    )
}

/// Gradients in f64 with names and tolerances: dq, dk, dv, dbias. `g` is the gradient of the output, at most 1 in size.
///
/// A weight is off by the factor `1 + e` with `e` the errors of score and log-sum-exp; products over channels add `u` per
/// channel; sums over keys and queries add `u` per addition in a block or tile and per block or tile. All that is relative to
/// the sums of absolute values. `delta` inherits the absolute error of the output besides.
pub fn exact_gradients(case: &Case, g: &[f32]) -> [(&'static str, Vec<f64>, Tolerance); 4] {
    let (input, s) = (case.input(), case.shape);
    let exact = reference::attention_backward(&input, g);
    let size = reference::attention_backward_magnitudes(&input, g);
    let (t_out, t_lse) = case.tolerances();
    let rows = s.n_queries.max(s.n_keys) as f64;
    let relative = 2.0 * t_lse.abs + U * (3.0 * s.head_width as f64 + 128.0 + rows / 16.0 + 16.0);
    let delta = t_out.abs * s.head_width as f64;
    let largest = |x: &[f64]| x.iter().fold(0.0_f64, |a, x| a.max(x.abs()));
    let input_size = |x: &[f32]| {
        x.iter()
            .filter(|x| x.is_finite())
            .fold(0.0_f64, |a, &x| a.max(f64::from(x).abs()))
    };
    let scale = f64::from(s.scale);
    let of = |name, exact, size: &[f64], extra| {
        let abs = relative * largest(size) + extra;
        let why = format!(
            "relative {relative:.2e}, size {:.2e}, delta {extra:.2e}",
            largest(size)
        );
        (name, exact, Tolerance { abs, why })
    };
    // Weights of a row sum to 1, of a key to at most the number of rows.
    let (for_q, for_k) = (
        scale * input_size(&case.k),
        scale * input_size(&case.q) * rows,
    );
    [
        of("dq", exact.dq, &size.dq, delta * for_q),
        of("dk", exact.dk, &size.dk, delta * for_k),
        of("dv", exact.dv, &size.dv, 0.0),
        of("dbias", exact.dbias, &size.dbias, delta * rows),
    ]
}
