//! Every pass over a tile against a loop over its pairs, on every instruction set.

use super::*;
use crate::common::{Bias, Case, shape};
use crate::forward::{AttentionOptions, attention_on};
use crate::lane_loops::LaneBias;
use crate::lanes::Isa;
use crate::observer::{AttentionObserver, HeadSink, ScoreRows};

/// Takes tiles and compares every pass with a loop over pairs.
#[derive(Debug)]
struct Comparing;

impl AttentionObserver for Comparing {
    fn begin(&self, _head: usize) -> Box<dyn HeadSink> {
        Box::new(Comparing)
    }
    fn finish(&self, _head: usize, _sink: Box<dyn HeadSink>) {}
    fn takes_tiles(&self) -> bool {
        true
    }
}

impl HeadSink for Comparing {
    fn rows(&mut self, _rows: &ScoreRows<'_>) {
        unreachable!("tiles are asked for");
    }
    fn tile(&mut self, tile: &ScoreTile<'_>) {
        compare(tile);
    }
}

const GAPS: [f32; 2] = [1.5, 6.0];
const VISIBLE: f32 = 8.0;
const RECENT: usize = 20;

fn compare(tile: &ScoreTile<'_>) {
    let n = tile.lanes;
    // One lane in five takes no part.
    let good = |lane: usize| lane < tile.n_rows && lane % 5 != 3;
    let seen = |lane: usize, key: usize| good(lane) && key <= tile.first_query + lane;
    let last_key: Vec<i32> = (0..n)
        .map(|lane| {
            if good(lane) {
                (tile.first_query + lane) as i32
            } else {
                -1
            }
        })
        .collect();
    let per_lane = |f: &dyn Fn(usize) -> f32| -> Vec<f32> {
        (0..n)
            .map(|lane| if good(lane) { f(lane) } else { 0.0 })
            .collect()
    };
    let max = per_lane(&|lane| tile.row_max[lane]);
    let share = per_lane(&|lane| 1.0 / tile.row_sum[lane]);
    let beyond = GAPS.map(|gap| per_lane(&|lane| gap + lane as f32 / 64.0));
    let rows = LaneRows {
        max: &max,
        share: &share,
        last_key: &last_key,
        beyond: [&beyond[0], &beyond[1]],
    };
    let (mut rows_at_once, mut row) = (vec![7.0; 3], Vec::new());
    let stride = tile.rows_into(&mut rows_at_once);
    for r in 0..tile.n_rows {
        tile.row_into(r, &mut row);
        assert_eq!(rows_at_once[r * stride..][..row.len()], row, "row {r}");
    }
    let mut sums = vec![0.0; tile.keys_end() + n];
    let mut expected = vec![0.0_f64; tile.keys_end() + n];
    for start in (0..tile.keys_end()).step_by(ScoreTile::BLOCK).rev() {
        let keys = start..(start + ScoreTile::BLOCK).min(tile.keys_end());
        let raw = tile.raw(keys.clone());
        let gap = |lane: usize, key: usize| {
            max[lane] - (raw[(key - start) * n + lane] + tile.bias_at(tile.first_query + lane, key))
        };
        // Differences from that of the first query to the tile's last key on.
        let nearest = tile.keys_end() - keys.end;
        let to = &mut sums[nearest..nearest + keys.len() - 1 + n];
        let block = tile.weigh(keys.clone(), true, &rows, to);
        let visible = tile.visible(keys.clone(), &rows, VISIBLE, RECENT);
        check_range(tile, &keys, &rows, &seen, &gap);
        check_beyond(tile, &keys, &rows, &seen, &gap);
        let mut weighted = vec![0.0_f64; n];
        let mut counts = [(keys.len() * n) as u64; 2];
        let (mut far, mut near, mut size) = (
            vec![f32::NEG_INFINITY; n],
            vec![f32::NEG_INFINITY; n],
            vec![0.0_f32; n],
        );
        for lane in 0..n {
            for key in keys.clone().filter(|&key| seen(lane, key)) {
                let gap = gap(lane, key);
                let weight = f64::from(-gap).exp();
                weighted[lane] += weight * f64::from(gap);
                let difference = tile.keys_end() - 1 - key + lane;
                expected[difference] += weight * f64::from(share[lane]);
                for i in 0..2 {
                    counts[i] -= u64::from(gap <= beyond[i][lane]);
                }
                let (score, distance) =
                    (raw[(key - start) * n + lane], tile.first_query + lane - key);
                if gap <= VISIBLE {
                    size[lane] = size[lane].max(score.abs());
                    match distance {
                        0 => {}
                        _ if distance < RECENT => near[lane] = near[lane].max(score),
                        _ => far[lane] = far[lane].max(score),
                    }
                }
            }
            let first = if seen(lane, start) {
                f64::from(-gap(lane, start)).exp() * f64::from(share[lane])
            } else {
                0.0
            };
            assert!((f64::from(block.first[lane]) - first).abs() <= 1e-6 * first);
            assert!((f64::from(block.gap[lane]) - weighted[lane]).abs() <= 1e-5);
        }
        assert_eq!(block.beyond, counts, "keys {keys:?} of {n} lanes");
        assert_eq!(&visible.far[..n], far);
        assert_eq!(&visible.near[..n], near);
        assert_eq!(&visible.size[..n], size);
        if start + ScoreTile::BLOCK <= tile.diagonal_from() && (0..n).all(good) {
            let again = tile.weigh(
                keys.clone(),
                false,
                &rows,
                &mut vec![0.0; keys.len() - 1 + n],
            );
            assert_eq!(again.beyond, counts);
        }
    }
    for (i, (sum, expected)) in sums.iter().zip(&expected).enumerate() {
        assert!(
            (f64::from(*sum) - expected).abs() <= 1e-5 * expected + 1e-9,
            "{i}: {sum} {expected}"
        );
    }
}

fn check_range(
    tile: &ScoreTile<'_>,
    keys: &Range<usize>,
    rows: &LaneRows<'_>,
    seen: &dyn Fn(usize, usize) -> bool,
    gap: &dyn Fn(usize, usize) -> f32,
) {
    let range = tile.range(keys.clone(), rows);
    let (mut near, mut far) = (f32::INFINITY, f32::NEG_INFINITY);
    for lane in 0..tile.lanes {
        let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
        for key in keys.clone().filter(|&key| seen(lane, key)) {
            near = near.min(gap(lane, key));
            far = far.max(gap(lane, key));
            let score = tile.raw(key..key + 1)[lane] + tile.bias_at(tile.first_query + lane, key);
            (low, high) = (low.min(score), high.max(score));
        }
        assert_eq!(
            (range.low[lane], range.high[lane]),
            (low, high),
            "lane {lane}"
        );
    }
    assert_eq!((range.near, range.far), (near, far));
    let raw = tile.raw(keys.clone()).iter();
    let size = raw.fold(0.0_f32, |size, x| size.max(x.abs()));
    assert_eq!(range.raw, size);
}

fn check_beyond(
    tile: &ScoreTile<'_>,
    keys: &Range<usize>,
    rows: &LaneRows<'_>,
    seen: &dyn Fn(usize, usize) -> bool,
    gap: &dyn Fn(usize, usize) -> f32,
) {
    let n = tile.lanes;
    let gaps = [
        rows.beyond[0],
        rows.beyond[1],
        rows.max,
        rows.share,
        rows.beyond[0],
    ];
    let mut bits = [[7; ScoreTile::BLOCK]; 5];
    tile.beyond(
        keys.clone(),
        None,
        rows.max,
        Some(rows.last_key),
        &gaps,
        &mut bits,
    );
    // The bias in the form in which a caller has it.
    let table: Vec<f32> = (0..keys.len() - 1 + n)
        .map(|i| (tile.first_query + 1 + i).saturating_sub(keys.end) as f32)
        .collect();
    let by_key: Vec<f32> = keys.clone().map(|key| (key % 7) as f32).collect();
    let mut others = [[7; ScoreTile::BLOCK]; 2];
    let biases = [LaneBias::ByDifference(&table), LaneBias::ByKey(&by_key)];
    for (bias, out) in biases.into_iter().zip(&mut others) {
        let out = std::slice::from_mut(out);
        tile.beyond(keys.clone(), Some(bias), rows.max, None, &gaps[..1], out);
    }
    for (j, key) in keys.clone().enumerate() {
        for lane in 0..n {
            for (bits, gaps) in bits.iter().zip(gaps) {
                let expected = seen(lane, key) && gap(lane, key) > gaps[lane];
                assert_eq!(bits[j] >> lane & 1 == 1, expected, "key {key}, lane {lane}");
            }
            let raw = tile.raw(key..key + 1)[lane];
            let biases = [table[keys.len() - 1 - j + lane], by_key[j]];
            for (bits, bias) in others.iter().zip(biases) {
                let expected = rows.max[lane] - (raw + bias) > gaps[0][lane];
                assert_eq!(bits[j] >> lane & 1 == 1, expected, "key {key}, lane {lane}");
            }
        }
    }
    assert!(
        bits.iter()
            .chain(&others)
            .flatten()
            .all(|bits| bits >> (n - 1) <= 1)
    );
}

#[test]
fn tiles_are_weighed_as_pairs_on_every_instruction_set() {
    let by_distance = Case::random(shape(333, 2, 24), 1);
    let by_key = Case::random(shape(200, 1, 16), 2).by_key();
    let mut none = Case::random(shape(150, 1, 16), 3);
    none.bias = Bias::None;
    for &isa in Isa::available() {
        for case in [
            &by_distance,
            &by_key,
            &none,
            &Case::random(shape(5, 1, 8), 4),
        ] {
            let s = case.shape;
            let mut out = vec![0.0; s.n_queries * s.n_heads * s.head_width];
            let mut lse = vec![0.0; s.n_queries * s.n_heads];
            let options = AttentionOptions {
                skip: false,
                ..AttentionOptions::default()
            };
            attention_on(
                isa,
                &case.input(),
                &options,
                &mut out,
                &mut lse,
                Some(&Comparing),
            );
        }
    }
}
