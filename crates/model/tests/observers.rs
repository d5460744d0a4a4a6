//! What must not change the output: observers and the number of threads.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::sync::{Arc, Mutex};

use common::{Random, all, build};
use kernels::{AttentionObserver, HeadSink, ScoreRows};
use snellen_model::{ForwardOptions, KvCache, LayerObserver, Model, ModelSpec};

/// What a head's sink reported.
#[derive(Clone, Debug)]
struct Seen {
    layer: usize,
    head: usize,
    rows: usize,
    /// Worst |sum of weights - 1|.
    worst: f64,
}

/// Sums weights of every row, to see that the scores and the log-sum-exp it is shown belong together.
#[derive(Debug, Default)]
struct Watch {
    seen: Arc<Mutex<Vec<Seen>>>,
    done: Mutex<Vec<usize>>,
}

#[derive(Debug)]
struct WatchLayer {
    layer: usize,
    seen: Arc<Mutex<Vec<Seen>>>,
}

struct Sink {
    rows: usize,
    worst: f64,
}

impl LayerObserver for Watch {
    fn layer(&self, layer: usize) -> Option<Arc<dyn AttentionObserver>> {
        // Layer 1 passes unobserved.
        let seen = self.seen.clone();
        (layer != 1).then(|| Arc::new(WatchLayer { layer, seen }) as _)
    }

    fn layer_done(&self, layer: usize) {
        self.done.lock().unwrap().push(layer);
    }
}

impl AttentionObserver for WatchLayer {
    fn begin(&self, _head: usize) -> Box<dyn HeadSink> {
        Box::new(Sink {
            rows: 0,
            worst: 0.0,
        })
    }

    fn finish(&self, head: usize, sink: Box<dyn HeadSink>) {
        let sink: Box<dyn std::any::Any> = sink;
        let sink = sink.downcast::<Sink>().unwrap();
        let seen = Seen {
            layer: self.layer,
            head,
            rows: sink.rows,
            worst: sink.worst,
        };
        self.seen.lock().unwrap().push(seen);
    }
}

impl HeadSink for Sink {
    fn rows(&mut self, rows: &ScoreRows<'_>) {
        for row in rows.iter() {
            let mut scores = vec![0.0; row.keys.len()];
            row.scores_into(&mut scores);
            let weights = scores.iter().map(|s| f64::from(s - row.lse).exp());
            self.worst = self.worst.max((weights.sum::<f64>() - 1.0).abs());
            self.rows += 1;
        }
    }
}

fn logits(model: &Model, ids: &[u32], observer: Option<Arc<dyn LayerObserver>>) -> Vec<u32> {
    let options = ForwardOptions {
        observer,
        ..ForwardOptions::default()
    };
    let hidden = model.forward(ids, options).unwrap();
    let loss = model.loss(&hidden, ids).unwrap().nats_per_token;
    let logits = model.logits(&hidden, 0..ids.len()).unwrap();
    loss.iter().chain(&logits).map(|x| x.to_bits()).collect()
}

#[test]
fn observers_see_everything_and_change_no_bit() {
    for spec in all() {
        let (model, _) = build(&spec, 5);
        let ids = Random(3).ids(130, spec.vocab_size);
        let watch = Arc::new(Watch::default());
        let plain = logits(&model, &ids, None);
        assert_eq!(
            logits(&model, &ids, Some(watch.clone())),
            plain,
            "{}",
            spec.name
        );
        let mut seen = watch.seen.lock().unwrap().clone();
        seen.sort_by_key(|s| (s.layer, s.head));
        let heads: Vec<_> = seen.iter().map(|s| (s.layer, s.head, s.rows)).collect();
        let expected: Vec<_> = (0..spec.n_heads).map(|h| (0, h, 130)).collect();
        assert_eq!(
            heads, expected,
            "{}: every head of layer 0 once, all rows",
            spec.name
        );
        assert!(
            seen.iter().all(|s| s.worst < 1e-5),
            "{}: {seen:?}",
            spec.name
        );
        assert_eq!(*watch.done.lock().unwrap(), [0, 1]);
    }
}

/// A spec wide and long enough for every parallel path: products above burn's threshold for threads (192^3 multiplications),
/// several row chunks, several tasks in the elementwise loops.
fn large() -> ModelSpec {
    let mut spec = common::bloom();
    spec.name = "large".into();
    spec.head_width = 48;
    spec.width = 6 * 48;
    spec.vocab_size = 3000;
    spec.block.mlp.hidden = 1100;
    spec
}

#[test]
fn one_two_and_eight_threads_give_the_same_bytes() {
    let mut specs = all();
    specs.push(large());
    for spec in specs {
        let (model, _) = build(&spec, 13);
        let n = if spec.name == "large" { 700 } else { 90 };
        let ids = Random(5).ids(n, spec.vocab_size);
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| {
                let whole = logits(&model, &ids, None);
                let mut cache = KvCache::new(&spec);
                let mut last = Vec::new();
                for part in ids.chunks(n / 2) {
                    let options = ForwardOptions {
                        cache: Some(&mut cache),
                        ..ForwardOptions::default()
                    };
                    let hidden = model.forward(part, options).unwrap();
                    last.extend(hidden.to_vec().iter().map(|x| x.to_bits()));
                }
                (whole, last)
            })
        };
        let one = run(1);
        assert!(run(2) == one, "{}: 2 threads", spec.name);
        assert!(run(8) == one, "{}: 8 threads", spec.name);
    }
}

#[test]
fn progress_is_told_after_each_layer() {
    let (model, _) = build(&common::bloom(), 1);
    let told = Mutex::new(Vec::new());
    let tell = |layer| told.lock().unwrap().push(layer);
    let options = ForwardOptions {
        progress: Some(&tell),
        ..ForwardOptions::default()
    };
    model.forward(&[1, 2], options).unwrap();
    assert_eq!(*told.lock().unwrap(), [0, 1]);
}
