//! Inputs that break careless kernels.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use common::{Bias, Case, shape};

const N: usize = 150;
const W: usize = 16;

fn row(x: &[f32], t: usize) -> &[f32] {
    &x[t * W..(t + 1) * W]
}

#[test]
fn a_huge_key_takes_all_the_weight() {
    for at in [0, 63, 64, 90, 149] {
        let mut case = Case::random(shape(N, 1, W), 1);
        // Every query has the same component along the key, so its score is +4e4 for all of them.
        for t in 0..N {
            case.q[t * W] = 4.0;
        }
        case.k[at * W..(at + 1) * W].fill(0.0);
        case.k[at * W] = 4e4;
        case.check(&format!("huge key at {at}"));
        let (out, _) = case.run();
        for t in at..N {
            assert_eq!(row(&out, t), row(&case.v, at), "row {t}");
        }
    }
}

#[test]
fn a_sink_found_last_rescales_everything_before_it() {
    let mut case = Case::random(shape(N, 1, W), 2);
    for t in 0..N {
        case.q[t * W] = 1.0;
    }
    case.k[0] = 4.0 * 40.0;
    case.check("sink at key 0");
}

#[test]
fn equal_scores_average_the_values() {
    let mut case = Case::random(shape(N, 1, W), 3);
    case.q.fill(0.0);
    case.bias = Bias::None;
    case.check("equal scores");
    let (_, lse) = case.run();
    for (t, l) in lse.iter().enumerate() {
        // ln of the count: one rounding of an f64 logarithm of an f32 sum of at most N ones.
        assert!(
            (f64::from(*l) - ((t + 1) as f64).ln()).abs() <= f64::from(*l) * common::U,
            "row {t}: {l}"
        );
    }
}

/// A weight is exactly 0 from the distance at which its exponential rounds to 0, and not before.
#[test]
fn weights_vanish_at_the_threshold_of_f32() {
    let n = 300;
    let mut case = Case::random(shape(n, 1, 1), 4);
    case.q.fill(0.0);
    let slope = 0.5;
    case.bias = Bias::ByDistance((0..n).map(|d| (-slope * d as f64) as f32).collect());
    // First distance with exp = 0: docs/NUMERICS.md, First blind distances, slope 0.5, f32.
    for (distance, zero) in [(206, false), (207, false), (208, true), (209, true)] {
        case.v.fill(0.0);
        case.v[n - 1 - distance] = 1e23;
        let (out, _) = case.run();
        assert_eq!(
            out[n - 1] == 0.0,
            zero,
            "distance {distance}: {}",
            out[n - 1]
        );
    }
}

#[test]
fn a_bias_of_minus_infinity_hides() {
    // As an f16 bias does when it overflows.
    let mut case = Case::random(shape(N, 1, W), 5).by_key();
    if let Bias::ByKey(values) = &mut case.bias {
        values[..100].fill(f32::NEG_INFINITY);
    }
    case.check("bias -inf");
    let (out, lse) = case.run();
    for (t, &l) in lse[..100].iter().enumerate() {
        assert_eq!(row(&out, t), [0.0; W], "row {t}");
        assert_eq!(l, f32::NEG_INFINITY, "row {t}");
    }
}

#[test]
fn rows_that_see_nothing_are_zero() {
    for causal in [true, false] {
        let mut case = Case::random(shape(N, 1, W), 6);
        case.shape.causal = causal;
        case.key_valid = Some(vec![false; N]);
        let (out, lse) = case.run();
        assert!(out.iter().all(|x| x.to_bits() == 0));
        assert!(lse.iter().all(|&x| x == f32::NEG_INFINITY));
        let mut none = case.clone();
        none.key_valid = None;
        none.shape.n_keys = 0;
        let (out, lse) = none.run();
        assert!(out.iter().all(|x| x.to_bits() == 0));
        assert!(lse.iter().all(|&x| x == f32::NEG_INFINITY));
    }
}

#[test]
fn nan_reaches_only_the_rows_that_see_it() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 50, 64, 130, 149] {
            for value in [false, true] {
                let mut case = Case::random(shape(N, 1, W), 7);
                let (clean, _) = case.run();
                let target = if value { &mut case.v } else { &mut case.k };
                target[at * W + 3] = bad;
                let (out, _) = case.run();
                for t in 0..at {
                    assert_eq!(
                        row(&clean, t),
                        row(&out, t),
                        "bad {bad} at {at}, row {t} before it changed"
                    );
                }
                if bad.is_nan() {
                    for t in at..N {
                        let hit = if value {
                            &row(&out, t)[3..4]
                        } else {
                            row(&out, t)
                        };
                        assert!(
                            hit.iter().all(|x| x.is_nan()),
                            "row {t} sees a NaN at {at} and hides it: {hit:?}"
                        );
                    }
                }
            }
        }
    }
    let mut case = Case::random(shape(N, 1, W), 8);
    let (clean, _) = case.run();
    case.q[77 * W] = f32::NAN;
    let (out, lse) = case.run();
    assert!(row(&out, 77).iter().all(|x| x.is_nan()) && lse[77].is_nan());
    for t in (0..N).filter(|t| *t != 77) {
        assert_eq!(row(&clean, t), row(&out, t), "row {t}");
    }
}

#[test]
fn garbage_in_padding_stays_there() {
    let mut case = Case::random(shape(N, 2, W), 9);
    case.key_valid = Some((0..N).map(|j| j >= 40 && j != 77).collect());
    let (clean, clean_lse) = case.run();
    for j in (0..40).chain([77]) {
        case.k[j * 2 * W..(j + 1) * 2 * W].fill(f32::NAN);
        case.v[j * 2 * W..(j + 1) * 2 * W].fill(f32::INFINITY);
    }
    let (out, lse) = case.run();
    assert_eq!(common::bits(&clean), common::bits(&out));
    assert_eq!(common::bits(&clean_lse), common::bits(&lse));
}

#[test]
fn extreme_values_neither_overflow_nor_vanish() {
    for size in [1e-30, 1e-6, 1e6, 1e20] {
        let mut case = Case::random(shape(N, 1, W), 10);
        for v in &mut case.v {
            *v *= size;
        }
        case.check(&format!("values of size {size:e}"));
    }
}

#[test]
#[should_panic(expected = "key_valid has 3 entries for 150 keys")]
fn a_wrong_size_names_itself() {
    let mut case = Case::random(shape(N, 1, W), 11);
    case.key_valid = Some(vec![true; 3]);
    case.run();
}
