//! Whole models on other devices: refused where this build or machine has none, else near the CPU.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failed unwrap is a failed test; a skipped test says so"
)]

mod common;

use std::sync::Arc;

use common::{Random, bloom, build, mpt};
use kernels::AttentionObserver;
use snellen_model::{DeviceKind, ForwardOptions, KvCache, LayerObserver};

#[derive(Debug)]
struct Watch;

impl LayerObserver for Watch {
    fn layer(&self, _: usize) -> Option<Arc<dyn AttentionObserver>> {
        None
    }
}

#[test]
fn a_device_that_is_not_there_is_named() {
    for kind in DeviceKind::ALL {
        let there = build(&bloom(), 1).0.on(kind);
        if kind == DeviceKind::Cpu {
            assert!(there.is_ok());
        } else if !kind.is_built() {
            let error = there.err().unwrap().to_string();
            let expected = format!("device {}: built without feature {0}", kind.name());
            assert!(error.starts_with(&expected), "{error}");
            assert!(kind.devices().is_empty());
        } else if kind.devices().is_empty() {
            let error = there.err().unwrap().to_string();
            assert!(error.contains("none found on this machine"), "{error}");
        }
    }
}

#[test]
fn models_on_a_device_agree_with_the_cpu() {
    for kind in DeviceKind::ALL.into_iter().skip(1) {
        if kind.devices().is_empty() {
            eprintln!("SKIPPED: {} (not built, or no device)", kind.name());
            continue;
        }
        for spec in [bloom(), mpt()] {
            let ids = Random(3).ids(90, spec.vocab_size);
            let mut valid = vec![true; 90];
            valid[..4].fill(false);
            let losses = |kind| {
                let model = build(&spec, 2).0.on(kind).unwrap();
                let options = ForwardOptions {
                    key_valid: Some(&valid),
                    ..ForwardOptions::default()
                };
                let hidden = model.forward(&ids, options).unwrap();
                let mut losses = model.loss(&hidden, &ids).unwrap().nats_per_token;
                // In pieces with a cache.
                let model = model.keep_weights(true);
                let mut cache = KvCache::new(&spec);
                for piece in ids.chunks(40) {
                    let options = ForwardOptions {
                        cache: Some(&mut cache),
                        ..ForwardOptions::default()
                    };
                    let hidden = model.forward(piece, options).unwrap();
                    losses.extend(model.loss(&hidden, piece).unwrap().nats_per_token);
                }
                losses
            };
            let (here, there) = (losses(DeviceKind::Cpu), losses(kind));
            assert_eq!(here.len(), there.len());
            let pairs = here.iter().zip(&there).skip(4);
            let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            eprintln!(
                "{} on {}: losses differ by {worst:.1e} nats",
                spec.name,
                kind.name()
            );
            // Losses are about 5 nats of logits up to 20 through two layers in f32.
            assert!(worst < 1e-4, "{worst}");
            let model = build(&spec, 2).0.on(kind).unwrap();
            let options = ForwardOptions {
                observer: Some(Arc::new(Watch)),
                ..ForwardOptions::default()
            };
            let error = model.forward(&ids, options).unwrap_err().to_string();
            assert!(
                error.contains("observed and emulated on the cpu alone"),
                "{error}"
            );
        }
    }
}
