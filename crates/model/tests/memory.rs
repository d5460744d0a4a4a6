//! The memory estimate against the peak resident size of this process. Alone in its binary, for the peak is the process's.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failed unwrap is a failed test; the figures are the point"
)]

mod common;

use std::sync::Arc;

use snellen_model::{
    ForwardOptions, MemoryRequest, Model, ModelSpec, Weight, WeightError, WeightRole, WeightSource,
    memory_estimate,
};

/// Makes weights anew at each request, so that nothing but the model holds them.
struct Made(ModelSpec);

impl WeightSource for Made {
    fn weight(&self, role: WeightRole) -> Result<Weight, WeightError> {
        let shape = self.0.weight_shape(role).unwrap();
        let n: usize = shape.iter().product();
        let data = (0..n).map(|i| (i % 17) as f32 * 0.003 - 0.02).collect();
        Ok(Weight { shape, data })
    }

    fn rows(&self, _: WeightRole, rows: std::ops::Range<usize>) -> Result<Weight, WeightError> {
        let shape = vec![rows.len(), self.0.width];
        let data = (0..rows.len() * self.0.width).map(|i| (i % 17) as f32 * 0.003 - 0.02);
        let data = data.collect();
        Ok(Weight { shape, data })
    }

    fn has_cheap_rows(&self) -> bool {
        true
    }
}

fn status(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

fn spec() -> ModelSpec {
    let mut spec = common::bloom();
    spec.name = "memory".into();
    spec.n_heads = 8;
    spec.n_kv_heads = 8;
    spec.head_width = 64;
    spec.width = 512;
    spec.vocab_size = 8_000;
    spec.block.mlp.hidden = 2048;
    spec.alibi.slopes = numerics::SlopeSchedule::Press.slopes(8).unwrap();
    spec
}

/// One test, because the peak is the process's: what takes least comes first.
#[test]
fn the_peak_is_that_of_a_layer_and_linear_in_the_length() {
    more_layers_take_no_more();
    the_estimate_is_near_the_peak_and_linear();
}

/// Weights are read layer by layer, and a layer is let go before the next.
fn more_layers_take_no_more() {
    let run = |n_layers| {
        let mut spec = spec();
        spec.n_layers = n_layers;
        let model = Model::new(spec.clone(), Arc::new(Made(spec))).unwrap();
        let ids: Vec<u32> = (0..64).collect();
        let hidden = model.forward(&ids, ForwardOptions::default()).unwrap();
        model.loss(&hidden, &ids).unwrap();
    };
    run(2);
    let few = status("VmHWM");
    run(24);
    let growth = status("VmHWM") - few;
    let request = MemoryRequest::new(64);
    let layer = memory_estimate(&spec(), &request).weights;
    eprintln!("24 layers instead of 2: {growth} bytes more, a layer is {layer}");
    // 22 layers more; what the allocator does not give back in between is less than one.
    assert!(growth < layer, "{growth} bytes for 22 layers of {layer}");
}

fn the_estimate_is_near_the_peak_and_linear() {
    let spec = spec();
    let model = Model::new(spec.clone(), Arc::new(Made(spec.clone()))).unwrap();
    let run = |n: u32| {
        let ids: Vec<u32> = (0..n).map(|i| i * 7 % 8_000).collect();
        let hidden = model.forward(&ids, ForwardOptions::default()).unwrap();
        model.loss(&hidden, &ids).unwrap();
    };
    // Starts the pool and touches the code.
    run(8);
    let before = status("VmRSS");
    for n in [1024u32, 4096] {
        run(n);
        let measured = status("VmHWM") - before;
        let estimate = memory_estimate(&spec, &MemoryRequest::new(n as usize)).peak;
        let mib = |bytes: u64| bytes / (1 << 20);
        eprintln!(
            "{n}: measured {} MiB, estimate {} MiB",
            mib(measured),
            mib(estimate)
        );
        // Never below by more than the allocator's rounding, never twice as much.
        assert!(
            estimate as f64 > 0.9 * measured as f64,
            "{n}: {measured} measured, {estimate} estimated"
        );
        assert!(
            (estimate as f64) < 1.7 * measured as f64,
            "{n}: {measured} measured, {estimate} estimated"
        );
    }
    let at = |n| memory_estimate(&spec, &MemoryRequest::new(n)).peak as f64;
    let growth = (at(65_536) - at(32_768)) / (at(32_768) - at(16_384));
    assert!((growth - 2.0).abs() < 0.05, "linear: {growth}");
}
