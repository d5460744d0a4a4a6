//! Attention of 16 causal heads of width 64 with press slopes: `cargo bench -p snellen-kernels`.
//!
//! One thread. For rates against a matrix product, and ratios from one run, see the example `attention_rate`.

use divan::Bencher;
use snellen_kernels::{
    AttentionInput, AttentionOptions, AttentionShape, BiasTable, Gradients, Heads,
    attention_backward_with, attention_with,
};

const HEADS: usize = 16;
const WIDTH: usize = 64;

fn main() {
    divan::main();
}

/// One call's memory.
struct Call {
    n: usize,
    qkv: Vec<f32>,
    bias: Vec<f32>,
    out: Vec<f32>,
    lse: Vec<f32>,
    d_out: Vec<f32>,
    gradients: [Vec<f32>; 3],
}

impl Call {
    fn new(n: usize) -> Self {
        let mut state = 1_u64;
        let mut number = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1_u64 << 22) as f32 - 2.0
        };
        let len = n * HEADS * WIDTH;
        let bias = (0..HEADS * n).map(|i| {
            let slope = 2.0_f32.powf(-((i / n + 1) as f32) / 2.0);
            -slope * (i % n) as f32
        });
        Self {
            n,
            qkv: (0..3 * len).map(|_| number()).collect(),
            bias: bias.collect(),
            out: vec![0.0; len],
            lse: vec![0.0; n * HEADS],
            d_out: (0..len).map(|_| number()).collect(),
            gradients: std::array::from_fn(|_| vec![0.0; len]),
        }
    }

    fn run(&mut self, skip: bool, backward: bool) {
        let part = |i: usize| Heads {
            data: &self.qkv,
            offset: i * HEADS * WIDTH,
            row_stride: 3 * HEADS * WIDTH,
            head_stride: WIDTH,
        };
        let input = AttentionInput {
            shape: AttentionShape {
                n_queries: self.n,
                n_keys: self.n,
                n_heads: HEADS,
                n_kv_heads: HEADS,
                head_width: WIDTH,
                query_offset: 0,
                causal: true,
                scale: 0.125,
                soft_cap: None,
            },
            q: part(0),
            k: part(1),
            v: part(2),
            bias: BiasTable::ByDistance { values: &self.bias },
            key_valid: None,
        };
        let options = AttentionOptions {
            skip,
            ..AttentionOptions::default()
        };
        attention_with(&input, &options, &mut self.out, &mut self.lse, None);
        if backward {
            let [dq, dk, dv] = &mut self.gradients;
            let mut to = Gradients {
                dq,
                dk,
                dv,
                dbias: None,
            };
            let (out, lse) = (&self.out, &self.lse);
            attention_backward_with(&input, &options, out, lse, &self.d_out, &mut to);
        }
    }
}

fn bench(bencher: Bencher<'_, '_>, n: usize, skip: bool, backward: bool) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let pool = pool.expect("a pool of one thread");
    let mut call = Call::new(n);
    bencher.bench_local(|| pool.install(|| call.run(skip, backward)));
}

#[divan::bench(args = [512, 2048, 8192], sample_count = 9)]
fn forward(bencher: Bencher<'_, '_>, n: usize) {
    bench(bencher, n, true, false);
}

#[divan::bench(args = [512, 2048, 8192], sample_count = 9)]
fn forward_without_skipping(bencher: Bencher<'_, '_>, n: usize) {
    bench(bencher, n, false, false);
}

#[divan::bench(args = [512, 2048], sample_count = 9)]
fn forward_and_backward(bencher: Bencher<'_, '_>, n: usize) {
    bench(bencher, n, true, true);
}
