//! Observers that take tiles see what observers of rows see, and change nothing either.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::any::Any;
use std::sync::Mutex;

use common::{Bias, Case, bits, run, shape};
use snellen_kernels::{AttentionObserver, HeadSink, ScoreRows, ScoreTile, SpareScores};

/// Head, query, raw scores, maximum, sum, log-sum-exp.
type Row = (usize, usize, Vec<f32>, [f32; 3]);

/// Keeps every row, handed over as rows or as tiles.
#[derive(Debug, Default)]
struct Recorder {
    tiles: bool,
    /// Scores further below the maximum need not be there.
    spare: Option<f32>,
    rows: Mutex<Vec<Row>>,
    /// Of tiles: some of the rows, with the scores that were left out.
    whole: Mutex<Vec<Row>>,
}

#[derive(Default)]
struct Sink {
    spare: Option<f32>,
    rows: Vec<Row>,
    /// Some of them, with the scores that were left out.
    whole: Vec<Row>,
    /// Keys that were not computed.
    skipped: usize,
}

impl AttentionObserver for Recorder {
    fn begin(&self, _head: usize) -> Box<dyn HeadSink> {
        Box::new(Sink {
            spare: self.spare,
            ..Sink::default()
        })
    }
    fn finish(&self, _head: usize, sink: Box<dyn HeadSink>) {
        let any: Box<dyn Any> = sink;
        let sink = any.downcast::<Sink>().unwrap();
        if self.spare.is_some() {
            assert!(sink.skipped > 0, "nothing was left out");
        }
        self.rows.lock().unwrap().extend(sink.rows);
        self.whole.lock().unwrap().extend(sink.whole);
    }
    fn takes_tiles(&self) -> bool {
        self.tiles
    }
}

impl HeadSink for Sink {
    fn rows(&mut self, rows: &ScoreRows<'_>) {
        for row in rows.iter() {
            let numbers = [row.max, row.sum, row.lse];
            self.rows
                .push((rows.head, row.query, row.raw.to_vec(), numbers));
        }
    }

    fn tile(&mut self, tile: &ScoreTile<'_>) {
        self.skipped += tile.proven_zero_before;
        let from = tile.proven_zero_before;
        for start in (from..tile.diagonal_from()).step_by(ScoreTile::BLOCK) {
            let ends = tile.ends(start);
            let keys = start..(start + ScoreTile::BLOCK).min(tile.keys_end());
            let raw = tile.raw(keys.clone());
            for lane in 0..tile.n_rows {
                let query = tile.first_query + lane;
                let mut expected = [f32::INFINITY, f32::NEG_INFINITY].repeat(2);
                for (key, raw) in keys.clone().zip(raw.chunks(tile.lanes)) {
                    let score = raw[lane] + tile.bias_at(query, key);
                    for (i, x) in [raw[lane], score].into_iter().enumerate() {
                        expected[2 * i] = expected[2 * i].min(x);
                        expected[2 * i + 1] = expected[2 * i + 1].max(x);
                    }
                }
                let got = [ends.raw_low, ends.raw_high, ends.low, ends.high].map(|x| x[lane]);
                assert_eq!(got.to_vec(), expected, "block {start}, lane {lane}");
            }
        }
        let (mut kept, mut whole) = (Vec::new(), Vec::new());
        let stride = tile.rows_into(&mut kept);
        whole.resize(tile.keys_end() * tile.lanes, 0.0);
        tile.raw_of_keys(0..tile.lanes, 0, 1, tile.keys_end(), &mut whole);
        for (first, step) in [(0, 5), (3, 16), (tile.keys_end() - 1, 1)] {
            let n = tile.keys_end().saturating_sub(first).div_ceil(step);
            let mut some = vec![0.0; n * tile.lanes];
            let all = whole.chunks(tile.lanes).skip(first).step_by(step);
            let all = all.collect::<Vec<_>>().concat();
            tile.raw_of_keys(0..tile.lanes, first, step, n, &mut some);
            assert_eq!(some, all, "{first}, {step}");
            let lanes = tile.n_rows / 3..tile.n_rows;
            some.fill(f32::NAN);
            tile.raw_of_keys(lanes.clone(), first, step, n, &mut some);
            for (some, all) in some.chunks(tile.lanes).zip(all.chunks(tile.lanes)) {
                assert_eq!(some[lanes.clone()], all[lanes.clone()]);
            }
        }
        for lane in 0..tile.n_rows {
            let query = tile.first_query + lane;
            let row = &kept[lane * stride..][..=query];
            for (key, raw) in row.iter().enumerate().take(from) {
                assert_eq!(*raw, f32::NEG_INFINITY, "query {query}, key {key}");
            }
            let numbers = [tile.row_max, tile.row_sum, tile.row_lse].map(|x| x[lane]);
            self.rows.push((tile.head, query, row.to_vec(), numbers));
            let row = whole.iter().skip(lane).step_by(tile.lanes);
            let row = row.take(query + 1).copied().collect();
            self.whole.push((tile.head, query, row, numbers));
        }
    }

    fn spare_scores(&self) -> Option<SpareScores> {
        Some(SpareScores {
            gap: self.spare?,
            raw_max: 256.0,
        })
    }
}

fn observe(case: &Case, recorder: &Recorder) -> Vec<Row> {
    let (out, lse) = run(&case.input(), Some(recorder));
    let (plain, plain_lse) = case.run();
    assert_eq!(bits(&plain), bits(&out), "observing changed the output");
    assert_eq!(bits(&plain_lse), bits(&lse));
    let mut rows = recorder.rows.lock().unwrap().clone();
    rows.sort_by_key(|row| (row.0, row.1));
    rows
}

fn cases() -> Vec<Case> {
    let mut shared = shape(100, 4, 8);
    shared.n_kv_heads = 2;
    let mut chunk = shape(70, 2, 20);
    (chunk.n_keys, chunk.query_offset) = (190, 120);
    vec![
        Case::random(shape(1, 1, 16), 1),
        Case::random(shape(300, 2, 64), 2),
        Case::random(shape(333, 1, 20), 3).by_key(),
        Case::random(shared, 4),
        Case::random(chunk, 5),
    ]
}

#[test]
fn tiles_hold_what_rows_hold() {
    for (i, case) in cases().iter().enumerate() {
        let rows = observe(case, &Recorder::default());
        let tiles = Recorder {
            tiles: true,
            ..Recorder::default()
        };
        assert!(rows == observe(case, &tiles), "case {i}");
        for whole in tiles.whole.into_inner().unwrap() {
            assert!(rows.contains(&whole), "case {i}");
        }
    }
}

/// With a steep bias the oldest blocks are left out, but only scores that are further down than the observer said.
#[test]
fn only_spare_scores_are_left_out() {
    let mut case = Case::random(shape(900, 1, 16), 7);
    case.bias = Bias::ByDistance((0..900).map(|distance| -(distance as f32)).collect());
    let all = observe(&case, &Recorder::default());
    for gap in [0.0, 130.0, 250.0] {
        let some = Recorder {
            tiles: true,
            spare: Some(gap),
            ..Recorder::default()
        };
        for (all, some) in all.iter().zip(observe(&case, &some)) {
            assert_eq!((all.0, all.1, all.3), (some.0, some.1, some.3));
            for (key, (&raw, &kept)) in all.2.iter().zip(&some.2).enumerate() {
                if kept == f32::NEG_INFINITY {
                    let score = raw - (all.1 - key) as f32;
                    let below = all.3[0] - score;
                    assert!(
                        below > 103.97_f32.max(gap),
                        "query {}, key {key}: {below}",
                        all.1
                    );
                } else {
                    assert_eq!(raw.to_bits(), kept.to_bits());
                }
            }
        }
        let whole = some.whole.into_inner().unwrap();
        assert!(whole.len() > 700);
        for (head, query, row, _) in whole {
            let all = all.iter().find(|all| (all.0, all.1) == (head, query));
            assert_eq!(bits(&all.unwrap().2), bits(&row), "query {query}");
        }
    }
}
