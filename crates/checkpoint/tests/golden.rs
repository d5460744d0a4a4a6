//! Whole forward passes against reference implementations, through the files as those implementations saved them.
//!
//! `goldens/` (committed, recipe `goldens/make_goldens.py`, transformers 5.24.0): two rows of 320 tokens, the second left-padded, and
//! one cached step. `../shared/data`: longer checks, skipped visibly where that folder is absent.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failed unwrap is a failed test; distances are worth seeing"
)]

mod support;

use std::any::Any;
use std::path::Path;
use std::sync::{Arc, Mutex};

use kernels::{AttentionObserver, HeadSink, ScoreRows};
use model::{ForwardOptions, KvCache, LayerObserver, Model};
use snellen_checkpoint::open;
use snellen_checkpoint::safetensors::{Dtype, TensorFile};
use support::{assert_close, golden, shared};

/// Attention maps of every layer and head: `[layer][head][query][key]`, keys after the query 0.
#[derive(Clone, Debug, Default)]
struct Maps(Arc<Mutex<Vec<Map>>>);

/// Layer and head, and the rows of the map.
type Map = ((usize, usize), Vec<Vec<f32>>);

#[derive(Debug)]
struct LayerMaps {
    layer: usize,
    maps: Maps,
}

struct HeadMap(Vec<Vec<f32>>);

impl LayerObserver for Maps {
    fn layer(&self, layer: usize) -> Option<Arc<dyn AttentionObserver>> {
        Some(Arc::new(LayerMaps {
            layer,
            maps: self.clone(),
        }))
    }
}

impl AttentionObserver for LayerMaps {
    fn begin(&self, _head: usize) -> Box<dyn HeadSink> {
        Box::new(HeadMap(Vec::new()))
    }

    fn finish(&self, head: usize, sink: Box<dyn HeadSink>) {
        let sink: Box<dyn Any> = sink;
        let map = sink.downcast::<HeadMap>().unwrap();
        self.maps
            .0
            .lock()
            .unwrap()
            .push(((self.layer, head), map.0));
    }
}

impl HeadSink for HeadMap {
    fn rows(&mut self, rows: &ScoreRows<'_>) {
        for row in rows.iter() {
            let mut scores = vec![0.0; row.keys.len()];
            row.scores_into(&mut scores);
            let mut weights: Vec<f32> = scores
                .iter()
                .map(|&s| {
                    if s == f32::NEG_INFINITY {
                        0.0
                    } else {
                        (s - row.lse).exp()
                    }
                })
                .collect();
            weights.resize(rows.n_keys, 0.0);
            self.0.push(weights);
        }
    }
}

impl Maps {
    fn take(&self) -> Vec<Map> {
        let mut maps = std::mem::take(&mut *self.0.lock().unwrap());
        maps.sort_by_key(|(key, _)| *key);
        maps
    }
}

struct Golden(TensorFile);

impl Golden {
    fn floats(&self, name: &str) -> Vec<f32> {
        let tensor = self.0.header().tensor(name).unwrap();
        let mut values = Vec::new();
        self.0
            .widen(tensor, 0..tensor.elements() as usize, &mut values)
            .unwrap();
        values
    }

    fn integers(&self, name: &str) -> Vec<i64> {
        let tensor = self.0.header().tensor(name).unwrap();
        let file = std::fs::read(self.0.path()).unwrap();
        let begin = self.0.header().data_begin();
        let bytes = &file[(begin + tensor.begin) as usize..(begin + tensor.end) as usize];
        match tensor.dtype {
            Dtype::I32 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|&b| i64::from(i32::from_le_bytes(b)))
                .collect(),
            Dtype::I64 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|&b| i64::from_le_bytes(b))
                .collect(),
            other => panic!("{name} is {other:?}"),
        }
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        self.integers(name)
            .into_iter()
            .map(|i| u32::try_from(i).unwrap())
            .collect()
    }
}

fn load(folder: &Path) -> Model {
    let checkpoint = open(folder).unwrap();
    let spec = checkpoint.runnable().unwrap().clone();
    Model::new(spec, Arc::new(checkpoint)).unwrap()
}

/// Tolerances: 1e-5 in probability and 1e-4 in logits. The largest difference is printed.
fn against_transformers(family: &str) {
    let folder = golden(family);
    let model = load(&folder);
    let golden = Golden(TensorFile::open(&folder.join("golden.safetensors")).unwrap());
    let (ids, mask) = (golden.ids("input_ids"), golden.integers("attention_mask"));
    let rows: Vec<usize> = golden
        .integers("rows")
        .into_iter()
        .map(|r| usize::try_from(r).unwrap())
        .collect();
    let (logits, attn) = (golden.floats("logits"), golden.floats("attn"));
    let (step_ids, step_logits) = (golden.ids("step_ids"), golden.floats("step_logits"));
    let (length, vocab) = (ids.len() / 2, step_logits.len() / 2);
    let (layers, heads) = (model.spec().n_layers, model.spec().n_heads);
    let (mut worst_logit, mut worst_weight) = (0f32, 0f32);
    for sequence in 0..2 {
        let ids = &ids[sequence * length..(sequence + 1) * length];
        let valid: Vec<bool> = mask[sequence * length..(sequence + 1) * length]
            .iter()
            .map(|&m| m == 1)
            .collect();
        let first_real = valid.iter().position(|&v| v).unwrap();
        let maps = Maps::default();
        let mut cache = KvCache::new(model.spec());
        let options = ForwardOptions {
            cache: Some(&mut cache),
            observer: Some(Arc::new(maps.clone())),
            key_valid: Some(&valid),
            progress: None,
        };
        let hidden = model.forward(ids, options).unwrap();
        let maps = maps.take();
        for (i, &row) in rows
            .iter()
            .enumerate()
            .filter(|&(_, &row)| row >= first_real)
        {
            let found = model.logits(&hidden, row..row + 1).unwrap();
            let at = (sequence * rows.len() + i) * vocab;
            let what = format!("{family} sequence {sequence} row {row} logits");
            let distance = assert_close(&what, &found, &logits[at..at + vocab], 1e-4);
            worst_logit = worst_logit.max(distance);
            for ((layer, head), map) in &maps {
                let at = (((layer * 2 + sequence) * heads + head) * rows.len() + i) * length;
                let what =
                    format!("{family} sequence {sequence} layer {layer} head {head} row {row}");
                let distance = assert_close(&what, &map[row], &attn[at..at + length], 1e-5);
                worst_weight = worst_weight.max(distance);
            }
        }
        assert_eq!(maps.len(), layers * heads);
        let step = ForwardOptions {
            cache: Some(&mut cache),
            ..ForwardOptions::default()
        };
        let hidden = model.forward(&step_ids[sequence..=sequence], step).unwrap();
        let found = model.logits(&hidden, 0..1).unwrap();
        assert_close(
            &format!("{family} sequence {sequence} step"),
            &found,
            &step_logits[sequence * vocab..(sequence + 1) * vocab],
            1e-4,
        );
    }
    eprintln!("{family}: logits within {worst_logit:e}, probabilities within {worst_weight:e}");
}

#[test]
fn bloom() {
    against_transformers("bloom");
}

#[test]
fn bloom_post_norm_residual() {
    against_transformers("bloom_post_norm_residual");
}

#[test]
fn mpt() {
    against_transformers("mpt");
}

#[test]
fn falcon() {
    against_transformers("falcon");
}

/// The fixtures of the shared data: 200 tokens, all rows.
fn against_fixture(name: &str) {
    let Some(folder) = shared(&format!("fixtures/{name}")) else {
        return;
    };
    let model = load(&folder);
    let golden = Golden(TensorFile::open(&folder.join("golden.safetensors")).unwrap());
    let ids = golden.ids("input_ids");
    let maps = Maps::default();
    let options = ForwardOptions {
        observer: Some(Arc::new(maps.clone())),
        ..ForwardOptions::default()
    };
    let hidden = model.forward(&ids, options).unwrap();
    let logits = assert_close(
        &format!("{name} logits"),
        &model.logits(&hidden, 0..ids.len()).unwrap(),
        &golden.floats("logits"),
        1e-5,
    );
    let attn = golden.floats("attn");
    let size = ids.len() * ids.len();
    let maps = maps.take();
    assert_eq!(maps.len(), model.spec().n_layers * model.spec().n_heads);
    let mut weights = 0f32;
    for (i, (place, map)) in maps.iter().enumerate() {
        let distance = assert_close(
            &format!("{name} {place:?}"),
            &map.concat(),
            &attn[i * size..(i + 1) * size],
            1e-5,
        );
        weights = weights.max(distance);
    }
    eprintln!("{name}: logits within {logits:e}, probabilities within {weights:e}");
    if golden
        .0
        .header()
        .tensor("logits_hf_eager_doubled")
        .is_some()
    {
        let doubled = golden.floats("logits_hf_eager_doubled");
        let once = golden.floats("logits");
        let largest = doubled
            .iter()
            .zip(&once)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        assert!(
            largest > 0.1,
            "the doubled bias of the eager path must be visible, or this golden tells nothing: {largest}"
        );
    }
}

#[test]
fn fixture_bloom() {
    against_fixture("tiny_bloom");
}

#[test]
fn fixture_mpt() {
    against_fixture("tiny_mpt");
}

#[test]
fn fixture_falcon() {
    against_fixture("tiny_falcon");
}
