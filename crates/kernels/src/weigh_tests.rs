//! Every pass over a tile against a loop over its pairs, on every instruction set.

use super::*;
use crate::common::{Bias, Case, shape};
use crate::forward::{AttentionOptions, attention_on};
use crate::lane_counts::{Below, CUTS, Cut};
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
const LIMITS: [f32; 2] = [0.05, 0.003];
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
    let mut turned = vec![7.0; 3];
    let stride = tile.rows_into(&mut turned);
    let raw = tile.raw(0..tile.keys_end());
    for row in 0..tile.n_rows {
        let expected = raw.iter().skip(row).step_by(n);
        let turned = &turned[row * stride..][..tile.keys_end()];
        assert!(turned.iter().eq(expected), "row {row}");
    }
    let mut gap_sums = vec![0.0_f64; n];
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
        let to = &mut sums[nearest..nearest + keys.len() + n];
        let block = tile.weigh(keys.clone(), &max, &share, LIMITS.map(Some), to);
        let visible = tile.visible(keys.clone(), &max, VISIBLE, RECENT, false);
        check_range(tile, &keys, (&max, &last_key), &seen, &gap);
        check_below(tile, &keys, (&max, &last_key), &seen);
        // Certain and uncertain: limits may be reached by a rounding.
        let mut counts = [[0_u64; 2]; 2];
        let mut all_seen = true;
        let (mut far, mut near, mut size) = (
            vec![f32::NEG_INFINITY; n],
            vec![f32::NEG_INFINITY; n],
            vec![0.0_f32; n],
        );
        for lane in 0..n {
            for key in keys.clone().filter(|&key| seen(lane, key)) {
                let gap = gap(lane, key);
                let weight = f64::from(-gap).exp();
                gap_sums[lane] += weight * f64::from(gap);
                let difference = tile.keys_end() - 1 - key + lane;
                expected[difference] += weight * f64::from(share[lane]);
                for (counts, limit) in counts.iter_mut().zip(LIMITS) {
                    let times = weight * f64::from(share[lane]) / f64::from(limit);
                    counts[0] += u64::from(times > 1.0 + 1e-5);
                    counts[1] += u64::from(times > 1.0 - 1e-5);
                }
                all_seen &= gap <= VISIBLE;
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
            let (first, nats) = if seen(lane, start) {
                let gap = f64::from(gap(lane, start));
                ((-gap).exp() * f64::from(share[lane]), gap)
            } else {
                (0.0, 0.0)
            };
            // Two exponentials and two products, and the gap in two parts that are rounded each.
            let unit = f64::from(f32::EPSILON) * (4.0 + nats);
            assert!((f64::from(block.first[lane]) - first).abs() <= unit * first);
        }
        for (i, [least, most]) in counts.into_iter().enumerate() {
            let found = block.reaching[i];
            assert!(
                least <= found && found <= most,
                "{found}, keys {keys:?} of {n}"
            );
            let mut one = [None; 2];
            one[i] = Some(LIMITS[i]);
            let again = tile.weigh(
                keys.clone(),
                &max,
                &share,
                one,
                &mut vec![0.0; keys.len() + n],
            );
            assert_eq!((again.reaching[i], again.reaching[1 - i]), (found, 0));
        }
        let mut looks = vec![visible];
        if all_seen {
            looks.push(tile.visible(keys.clone(), &max, VISIBLE, RECENT, true));
        }
        for visible in looks {
            for lane in (0..tile.lanes).filter(|&lane| good(lane)) {
                let found = [visible.far, visible.near, visible.size].map(|x| x[lane]);
                assert_eq!(found, [far[lane], near[lane], size[lane]], "lane {lane}");
            }
        }
    }
    for lane in (0..tile.lanes).filter(|&lane| good(lane)) {
        let found = f64::from(tile.row_gap[lane]);
        assert!(
            (found - gap_sums[lane]).abs() <= 1e-5 * (1.0 + gap_sums[lane]),
            "{found} {}",
            gap_sums[lane]
        );
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
    (max, last_key): (&[f32], &[i32]),
    seen: &dyn Fn(usize, usize) -> bool,
    gap: &dyn Fn(usize, usize) -> f32,
) {
    let (range, highs) = tile.range_of_pairs(keys.clone(), max, last_key);
    let (mut near, mut far) = (f32::INFINITY, f32::NEG_INFINITY);
    for lane in 0..tile.lanes {
        let mut high = f32::NEG_INFINITY;
        for key in keys.clone().filter(|&key| seen(lane, key)) {
            near = near.min(gap(lane, key));
            far = far.max(gap(lane, key));
            let score = tile.raw(key..key + 1)[lane] + tile.bias_at(tile.first_query + lane, key);
            high = high.max(score);
        }
        assert_eq!(highs[lane], high, "lane {lane}");
    }
    let raw = tile.raw(keys.clone()).iter();
    let size = raw.fold(0.0_f32, |size, x| size.max(x.abs()));
    let mut ranges = vec![range];
    if keys.end <= tile.diagonal_from() {
        tile.ranges(keys.clone(), max, last_key, &mut ranges);
        assert_eq!(ranges.len(), 2);
        let all = tile.highs(keys.clone());
        for lane in (0..tile.lanes).filter(|&lane| last_key[lane] >= 0) {
            assert_eq!(all[lane], highs[lane], "lane {lane}");
        }
    }
    for range in ranges {
        assert_eq!((range.near, range.far, range.raw), (near, far, size));
    }
}

fn check_below(
    tile: &ScoreTile<'_>,
    keys: &Range<usize>,
    (max, last_key): (&[f32], &[i32]),
    seen: &dyn Fn(usize, usize) -> bool,
) {
    let n = tile.lanes;
    let gaps = GAPS.map(|gap| (0..n).map(|lane| gap + lane as f32 / 64.0).collect());
    let [low, high]: [Vec<f32>; 2] = gaps;
    // Scores below bounds that are surely below no other.
    let bound =
        |gaps: &[f32]| -> Vec<f32> { max.iter().zip(gaps).map(|(m, gap)| m - gap).collect() };
    let (from_low, from_high) = (bound(&low), bound(&high));
    let cuts = [(&from_low, &from_high), (&from_high, &from_high)]
        .map(|(below, surely)| Cut { below, surely });
    // The bias in the form in which a caller has it.
    let table: Vec<f32> = (0..keys.len() - 1 + n)
        .map(|i| (tile.first_query + 1 + i).saturating_sub(keys.end) as f32)
        .collect();
    let by_key: Vec<f32> = keys.clone().map(|key| (key % 7) as f32).collect();
    let biases = [
        None,
        Some(LaneBias::ByDifference(&table)),
        Some(LaneBias::ByKey(&by_key)),
    ];
    for bias in biases {
        let last = bias.is_none().then_some(last_key);
        let mut below = [Below::default(); CUTS];
        let mut by_difference = vec![0; keys.len() + n];
        let mut doubts = Vec::new();
        for (j, key) in keys.clone().enumerate() {
            for lane in 0..n {
                let raw = tile.raw(key..key + 1)[lane];
                let score = match bias {
                    None if !seen(lane, key) => continue,
                    None => raw + tile.bias_at(tile.first_query + lane, key),
                    Some(LaneBias::ByKey(bias)) => raw + bias[j],
                    Some(LaneBias::ByDifference(bias)) => raw + bias[keys.len() - 1 - j + lane],
                };
                for (below, cut) in below.iter_mut().zip(&cuts) {
                    below.pairs += u64::from(score < cut.below[lane]);
                    below.in_doubt |= score < cut.below[lane] && score >= cut.surely[lane];
                }
                if score < from_low[lane] {
                    by_difference[keys.len() - 1 - j + lane] += 1;
                    if score >= from_high[lane] {
                        doubts.push((key, lane));
                    }
                }
            }
        }
        let mut ones = vec![0; keys.len() + n];
        let found = tile.below(keys.clone(), bias, last, &cuts, Some(&mut ones));
        assert_eq!(found, below, "keys {keys:?} of {n} lanes");
        assert_eq!(ones, by_difference);
        let mut found = tile.in_doubt(keys.clone(), bias, last, cuts[0]);
        found.sort_unstable();
        assert_eq!(found, doubts);
    }
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
