//! Observers: what they see, and that seeing changes nothing.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::any::Any;
use std::sync::Mutex;

use common::{Bias, Case, bits, run, shape};
use snellen_kernels::exp::exp_in_place;
use snellen_kernels::{AttentionObserver, CapOrder, HeadSink, ScoreRows};

/// One row as it was seen.
#[derive(Clone, Debug)]
struct Row {
    query: usize,
    scores: Vec<f32>,
    raw: Vec<f32>,
    bias: Vec<f32>,
    visible: Vec<bool>,
    max: f32,
    lse: f32,
}

#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<(usize, Vec<Row>)>>);

#[derive(Default)]
struct Rows(usize, Vec<Row>);

impl AttentionObserver for Recorder {
    fn begin(&self, head: usize) -> Box<dyn HeadSink> {
        Box::new(Rows(head, vec![]))
    }
    fn finish(&self, head: usize, sink: Box<dyn HeadSink>) {
        let any: Box<dyn Any> = sink;
        let rows = any.downcast::<Rows>().unwrap();
        self.0.lock().unwrap().push((head, rows.1));
    }
}

impl HeadSink for Rows {
    fn rows(&mut self, rows: &ScoreRows<'_>) {
        assert_eq!(self.0, rows.head);
        for row in rows.iter() {
            let n = row.keys.len();
            let mut scores = vec![f32::NAN; n];
            row.scores_into(&mut scores);
            for key in row.keys.clone() {
                assert_eq!(
                    row.bias(key).to_bits(),
                    rows.bias_at(row.query, key).to_bits()
                );
            }
            self.1.push(Row {
                query: row.query,
                scores,
                raw: row.raw.to_vec(),
                bias: row.keys.clone().map(|key| row.bias(key)).collect(),
                visible: row.keys.clone().map(|key| row.sees(key)).collect(),
                max: row.max,
                lse: row.lse,
            });
            assert_eq!(
                row.n_visible(),
                self.1
                    .last()
                    .unwrap()
                    .visible
                    .iter()
                    .filter(|v| **v)
                    .count()
            );
        }
    }
}

fn observe(case: &Case) -> Vec<Vec<Row>> {
    let recorder = Recorder::default();
    let (out, lse) = run(&case.input(), Some(&recorder));
    let (plain, plain_lse) = case.run();
    assert_eq!(bits(&plain), bits(&out), "observing changed the output");
    assert_eq!(
        bits(&plain_lse),
        bits(&lse),
        "observing changed the log-sum-exp"
    );
    let mut heads = recorder.0.into_inner().unwrap();
    heads.sort_by_key(|(head, _)| *head);
    assert_eq!(
        heads.iter().map(|(head, _)| *head).collect::<Vec<_>>(),
        (0..case.shape.n_heads).collect::<Vec<_>>()
    );
    for (head, rows) in &heads {
        for (t, row) in rows.iter().enumerate() {
            assert_eq!(row.query, case.shape.query_offset + t, "order");
            assert_eq!(
                row.lse.to_bits(),
                lse[head * case.shape.n_queries + t].to_bits()
            );
        }
        assert_eq!(rows.len(), case.shape.n_queries);
    }
    heads.into_iter().map(|(_, rows)| rows).collect()
}

fn cases() -> Vec<(&'static str, Case)> {
    let n = 130;
    let base = Case::random(shape(n, 3, 20), 1);
    let mut wide = Case::random(shape(n, 3, 20), 2);
    wide.shape.causal = false;
    let mut capped = base.clone();
    capped.shape.soft_cap = Some((3.0, CapOrder::BeforeBias));
    let mut capped_after = base.clone();
    capped_after.shape.soft_cap = Some((3.0, CapOrder::AfterBias));
    let mut padded = base.clone().by_key();
    padded.key_valid = Some((0..n).map(|j| j >= 70 && j % 5 != 0).collect());
    let mut decode = shape(3, 2, 20);
    (decode.n_keys, decode.query_offset) = (90, 87);
    let mut plain = base.clone();
    plain.bias = Bias::None;
    let mut shared = shape(100, 4, 8);
    shared.n_kv_heads = 2;
    vec![
        ("causal", base),
        ("bidirectional", wide),
        ("cap before", capped),
        ("cap after", capped_after),
        ("padded, by key", padded),
        ("decode", Case::random(decode, 3)),
        ("no bias", plain),
        ("shared heads", Case::random(shared, 4)),
    ]
}

/// The scores an observer forms are those of the softmax: their maximum is the row's, bit for bit, and the weights rebuilt
/// from them give the output.
#[test]
fn rows_hold_what_the_softmax_saw() {
    for (name, case) in cases() {
        let s = case.shape;
        let (out, _) = case.run();
        let (t_out, _) = case.tolerances();
        for (head, rows) in observe(&case).iter().enumerate() {
            for (t, row) in rows.iter().enumerate() {
                let max = row.scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                assert_eq!(max, row.max, "{name}: head {head} row {t}");
                if max == f32::NEG_INFINITY {
                    assert!(
                        row.lse == max && row.visible.iter().all(|v| !v),
                        "{name}: head {head} row {t}"
                    );
                    continue;
                }
                let mut p: Vec<f32> = row.scores.iter().map(|x| x - row.max).collect();
                exp_in_place(&mut p);
                let sum: f64 = p.iter().map(|&p| f64::from(p)).sum();
                let expected: Vec<f64> = (0..s.head_width)
                    .map(|c| {
                        let v = |key: usize| {
                            case.v[(key * s.n_kv_heads + s.kv_head(head)) * s.head_width + c]
                        };
                        p.iter()
                            .enumerate()
                            .map(|(key, &p)| f64::from(p) * f64::from(v(key)))
                            .sum::<f64>()
                            / sum
                    })
                    .collect();
                let at = (t * s.n_heads + head) * s.head_width;
                t_out.check(
                    &format!("{name}: head {head} row {t}"),
                    &expected,
                    &out[at..at + s.head_width],
                );
            }
        }
    }
}

#[test]
fn raw_scores_are_scaled_products_without_bias() {
    for (name, case) in cases() {
        let s = case.shape;
        let input = case.input();
        let (_, t_lse) = case.tolerances();
        for (head, rows) in observe(&case).iter().enumerate() {
            for (t, row) in rows.iter().enumerate() {
                assert_eq!(row.raw.len(), s.visible_keys(t));
                let (mut expected, mut got) = (vec![], vec![]);
                for key in 0..row.raw.len() {
                    let table = match &case.bias {
                        Bias::None => 0.0,
                        Bias::ByKey(values) => values[head * s.n_keys + key],
                        Bias::ByDistance(values) => {
                            values[head * (values.len() / s.n_heads) + row.query.abs_diff(key)]
                        }
                    };
                    assert_eq!(
                        row.bias[key].to_bits(),
                        table.to_bits(),
                        "{name}: bias of {t}, {key}"
                    );
                    if !row.visible[key] {
                        assert_eq!(row.scores[key], f32::NEG_INFINITY);
                        continue;
                    }
                    let mut raw =
                        snellen_kernels::reference::dot(&input, head, t, key) * f64::from(s.scale);
                    if let Some((cap, CapOrder::BeforeBias)) = s.soft_cap {
                        raw = f64::from(cap) * (raw / f64::from(cap)).tanh();
                    }
                    expected.push(raw);
                    got.push(row.raw[key]);
                }
                t_lse.check(&format!("{name}: head {head} row {t}"), &expected, &got);
            }
        }
    }
}

/// Many tiles and blocks; only the bits matter here.
#[test]
fn observing_a_long_sequence_changes_nothing() {
    let case = Case::random(shape(1000, 2, 64), 9);
    assert_eq!(observe(&case)[1].len(), 1000);
}
