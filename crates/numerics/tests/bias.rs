//! Bias functions: published distances, T5's buckets as `transformers` computes them, and properties of every combination.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use proptest::prelude::*;
use snellen_numerics::bias::t5_bucket;
use snellen_numerics::{
    BiasFunction, BiasShape, CapOrder, Format, SlopeSchedule, SoftCap, Underflow,
    exp_zero_threshold,
};

const LINEAR: BiasShape = BiasShape::Linear;

/// The value of a bias at a distance, for head 0.
fn at(shape: BiasShape, slope: f64, distance: f64) -> f64 {
    BiasFunction::with_shape(shape).bias(0, slope, distance)
}

#[test]
fn shapes_by_hand() {
    assert_eq!(at(LINEAR, 0.5, 6.0), -3.0);
    assert_eq!(at(LINEAR, 0.5, -6.0), -3.0);
    assert_eq!(at(BiasShape::Log, 0.5, 0.0), 0.0);
    assert_eq!(at(BiasShape::Log, 0.5, 7.0), -0.5 * 8.0_f64.ln());
    assert_eq!(at(BiasShape::Sqrt, 0.5, 9.0), -1.5);
    assert_eq!(at(BiasShape::None, 0.5, 9.0), 0.0);
    let kerple = BiasShape::KerpleLog {
        p: vec![1.0, 2.0],
        a: vec![1.0, 3.0],
    };
    assert_eq!(
        BiasFunction::with_shape(kerple).bias(1, 99.0, 5.0),
        -2.0 * 16.0_f64.ln()
    );
    // The diagonal's bias is +0 whatever the shape, so that it cannot turn a sum into -0.
    for shape in [LINEAR, BiasShape::Log, BiasShape::Sqrt, BiasShape::None] {
        assert!(at(shape, 0.5, 0.0).is_sign_positive());
    }
}

#[test]
fn remedies_by_hand() {
    let plain = BiasFunction::linear();
    assert_eq!(
        BiasFunction {
            clamp: Some(-12.0),
            ..plain.clone()
        }
        .bias(0, 0.5, 100.0),
        -12.0
    );
    assert_eq!(
        BiasFunction {
            interpolation: 0.25,
            ..plain.clone()
        }
        .bias(0, 0.5, 8.0),
        -1.0
    );
    let cap = |order| BiasFunction {
        soft_cap: Some(SoftCap { cap: 30.0, order }),
        ..BiasFunction::linear()
    };
    let before = cap(CapOrder::BeforeBias).combine(0, 0.5, 60.0, 8.0);
    let after = cap(CapOrder::AfterBias).combine(0, 0.5, 60.0, 8.0);
    assert_eq!(before, 30.0 * 2.0_f64.tanh() - 4.0);
    assert_eq!(after, 30.0 * (56.0_f64 / 30.0).tanh());
    assert_eq!(plain.combine(0, 0.5, 60.0, 8.0), 56.0);
}

/// docs/NUMERICS.md, Published table: 16 heads, steepest slope 2^-0.5, tau = ln(2^-126).
#[test]
fn published_first_blind_distances() {
    let tau = exp_zero_threshold(Format::F32, Underflow::Flush);
    let m = SlopeSchedule::Press.slopes(16).unwrap()[0];
    assert_eq!(
        BiasFunction::linear().first_distance_below(0, m, tau),
        Some(124.0)
    );
    let log = BiasFunction::with_shape(BiasShape::Log);
    let distance = log.first_distance_below(0, m, tau).unwrap();
    assert!((distance / 4.373e53 - 1.0).abs() < 2e-4, "{distance:e}");
}

/// docs/NUMERICS.md, First blind distances: slope against the first distance whose exponential is 0 in f32.
#[test]
fn golden_first_distances_in_f32() {
    let tau = exp_zero_threshold(Format::F32, Underflow::Gradual);
    for (log2_slope, expected) in [
        (-0.25, 124.0),
        (-0.5, 148.0),
        (-1.0, 208.0),
        (-4.0, 1664.0),
        (-8.0, 26617.0),
    ] {
        let m = 2.0_f64.powf(log2_slope);
        let got = BiasFunction::linear().first_distance_below(0, m, tau);
        assert_eq!(got, Some(expected), "slope 2^{log2_slope}");
    }
    // https://github.com/NVIDIA/TensorRT-Model-Connect/pull/32: Falcon with head width 64 divides the bias by 8.
    assert_eq!(
        BiasFunction::linear().first_distance_below(0, 2.0_f64.powf(-0.25) / 8.0, tau),
        Some(990.0)
    );
}

#[test]
fn some_biases_never_pass_a_threshold() {
    let tau = exp_zero_threshold(Format::F32, Underflow::Flush);
    let linear = BiasFunction::linear();
    assert_eq!(linear.first_distance_below(0, 0.0, tau), None);
    assert_eq!(
        BiasFunction::with_shape(BiasShape::None).first_distance_below(0, 0.5, tau),
        None
    );
    assert_eq!(
        BiasFunction {
            clamp: Some(-87.0),
            ..linear.clone()
        }
        .first_distance_below(0, 0.5, tau),
        None
    );
    assert_eq!(
        BiasFunction {
            clamp: Some(-88.0),
            ..linear.clone()
        }
        .first_distance_below(0, 0.5, tau),
        Some(175.0)
    );
    // e^(87.3 * 256) is beyond any f64.
    assert_eq!(
        BiasFunction::with_shape(BiasShape::Log).first_distance_below(0, 1.0 / 256.0, tau),
        None
    );
    // The bias of the diagonal is 0: below anything positive, not below 0.
    assert_eq!(linear.first_distance_below(0, 0.5, 0.1), Some(0.0));
    assert_eq!(linear.first_distance_below(0, 0.5, 0.0), Some(1.0));
    assert_eq!(linear.first_distance_below(0, 0.5, f64::NAN), None);
    assert_eq!(linear.first_distance_below(0, 0.5, f64::NEG_INFINITY), None);
}

#[test]
fn a_cap_after_the_bias_bounds_equal_content_and_one_before_does_not() {
    let tau = exp_zero_threshold(Format::F16, Underflow::Gradual);
    let capped = |cap, order| BiasFunction {
        soft_cap: Some(SoftCap { cap, order }),
        ..BiasFunction::linear()
    };
    let first = |cap, order| capped(cap, order).first_equal_content_distance_below(0, 0.5, tau);
    assert_eq!(first(17.0, CapOrder::AfterBias), None);
    assert_eq!(first(17.0, CapOrder::BeforeBias), Some(35.0));
    // 20 atanh(17.3287 / 20) / 0.5 = 52.7.
    assert_eq!(first(20.0, CapOrder::AfterBias), Some(53.0));
    // The bias itself does not know of the cap.
    assert_eq!(
        capped(17.0, CapOrder::AfterBias).first_distance_below(0, 0.5, tau),
        Some(35.0)
    );
}

/// `tests/goldens/t5_buckets.txt`, written by `t5_buckets.py` beside it: 16 configurations, distances -4096 to 4096.
#[test]
fn t5_buckets_equal_transformers() {
    let golden = include_str!("goldens/t5_buckets.txt");
    let mut n_configurations = 0;
    for line in golden.lines().filter(|line| !line.starts_with('#')) {
        let (head, runs) = line.split_once(':').unwrap();
        let config: Vec<usize> = head
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        let runs: Vec<(i32, usize)> = runs
            .split_whitespace()
            .map(|run| run.split_once('=').unwrap())
            .map(|(start, bucket)| (start.parse().unwrap(), bucket.parse().unwrap()))
            .collect();
        for (i, (start, bucket)) in runs.iter().enumerate() {
            let end = runs.get(i + 1).map_or(4097, |next| next.0);
            for distance in *start..end {
                let got = t5_bucket(f64::from(distance), config[0], config[1], config[2] == 1);
                assert_eq!(got, *bucket, "{config:?} at distance {distance}");
            }
        }
        n_configurations += 1;
    }
    assert_eq!(n_configurations, 16);
    assert_eq!(t5_bucket(4e53, 32, 128, false), 31);
}

fn t5(table: Vec<f64>) -> BiasFunction {
    BiasFunction::with_shape(BiasShape::T5Buckets {
        n_buckets: table.len(),
        max_distance: 64,
        bidirectional: false,
        table: vec![table],
    })
}

#[test]
fn t5_tables_may_go_up_and_down() {
    let falling = t5((0..16).map(|b| -f64::from(b)).collect());
    assert!(falling.is_monotone());
    // Bucket 8 begins at 8, bucket 9 at 11 (golden file, 16 buckets to 64).
    assert_eq!(falling.first_distance_below(0, 0.0, -8.5), Some(11.0));
    assert_eq!(falling.first_distance_below(0, 0.0, -15.0), None);
    let mut dip = vec![0.0; 16];
    dip[3] = -5.0;
    let dip = t5(dip);
    assert!(!dip.is_monotone());
    assert_eq!(dip.first_distance_below(0, 0.0, -1.0), Some(3.0));
    assert_eq!(dip.bias(0, 0.0, 4.0), 0.0);
}

#[test]
fn monotone_or_not() {
    let kerple = |p, a| {
        BiasFunction::with_shape(BiasShape::KerpleLog {
            p: vec![p],
            a: vec![a],
        })
    };
    assert!(kerple(1.0, 0.5).is_monotone());
    assert!(!kerple(-1.0, 0.5).is_monotone());
    assert!(BiasFunction::linear().is_monotone());
    assert!(
        !BiasFunction {
            interpolation: -1.0,
            ..BiasFunction::linear()
        }
        .is_monotone()
    );
}

#[test]
fn validation_names_the_fault() {
    let fault = |bias: BiasFunction| bias.validate(2).unwrap_err().to_string();
    assert_eq!(BiasFunction::linear().validate(2), Ok(()));
    assert!(
        fault(BiasFunction {
            clamp: Some(3.0),
            ..BiasFunction::linear()
        })
        .contains("clamp")
    );
    assert!(
        fault(BiasFunction {
            interpolation: 0.0,
            ..BiasFunction::linear()
        })
        .contains("interpolation")
    );
    let cap = SoftCap {
        cap: -1.0,
        order: CapOrder::AfterBias,
    };
    assert!(
        fault(BiasFunction {
            soft_cap: Some(cap),
            ..BiasFunction::linear()
        })
        .contains("soft cap")
    );
    let kerple = BiasShape::KerpleLog {
        p: vec![1.0],
        a: vec![1.0, 1.0],
    };
    assert!(fault(BiasFunction::with_shape(kerple)).contains("expected 2 values"));
    assert!(fault(t5(vec![0.0; 16])).contains("2 heads by 16 buckets"));
}

fn any_shape() -> impl Strategy<Value = BiasShape> {
    let table = prop::collection::vec(-20.0_f64..5.0, 16);
    prop_oneof![
        Just(BiasShape::None),
        Just(BiasShape::Linear),
        Just(BiasShape::Log),
        Just(BiasShape::Sqrt),
        (0.0_f64..4.0, 0.0_f64..10.0).prop_map(|(p, a)| BiasShape::KerpleLog {
            p: vec![p],
            a: vec![a]
        }),
        (table, any::<bool>()).prop_map(|(table, bidirectional)| BiasShape::T5Buckets {
            n_buckets: 16,
            max_distance: 100,
            bidirectional,
            table: vec![table],
        }),
    ]
}

fn any_cap() -> impl Strategy<Value = SoftCap> {
    let order = prop_oneof![Just(CapOrder::BeforeBias), Just(CapOrder::AfterBias)];
    (0.5_f64..100.0, order).prop_map(|(cap, order)| SoftCap { cap, order })
}

/// Every combination of shape, clamp, cap and interpolation.
fn any_bias() -> impl Strategy<Value = BiasFunction> {
    (
        any_shape(),
        prop::option::of(-200.0_f64..-0.1),
        prop::option::of(any_cap()),
        0.01_f64..2.0,
    )
        .prop_map(|(shape, clamp, soft_cap, interpolation)| BiasFunction {
            shape,
            clamp,
            soft_cap,
            interpolation,
        })
}

/// Slopes of every size, 0 among them.
fn any_slope() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), (-16.0_f64..1.0).prop_map(f64::exp2)]
}

/// Whole distances of every magnitude.
fn any_distance() -> impl Strategy<Value = f64> {
    (0.0_f64..40.0).prop_map(|log2| log2.exp2().floor())
}

/// The whole number before `d`, where `f64` has it, else the `f64` before.
fn before(d: f64) -> f64 {
    if d <= 2.0_f64.powi(53) {
        d - 1.0
    } else {
        d.next_down()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn parts_compose(bias in any_bias(), m in any_slope(), score in -50.0_f64..50.0, d in any_distance()) {
        prop_assert_eq!(bias.validate(1), Ok(()));
        let bare = BiasFunction::with_shape(bias.shape.clone());
        let slopeless = matches!(bias.shape, BiasShape::KerpleLog { .. });
        let scaled = if slopeless {
            // KERPLE's `p` takes the factor; one more rounding than a slope does.
            bare.bias(0, m, d) * bias.interpolation
        } else {
            bare.bias(0, m * bias.interpolation, d)
        };
        let expected = bias.clamp.map_or(scaled, |floor| scaled.max(floor));
        let got = bias.bias(0, m, d);
        prop_assert!((got - expected).abs() <= 4.0 * Format::F64.ulp(expected), "{} and {}", got, expected);
        let combined = match bias.soft_cap {
            None => score + got,
            Some(SoftCap { cap, order: CapOrder::BeforeBias }) => cap * (score / cap).tanh() + got,
            Some(SoftCap { cap, order: CapOrder::AfterBias }) => cap * ((score + got) / cap).tanh(),
        };
        prop_assert_eq!(bias.combine(0, m, score, d), combined);
    }

    #[test]
    fn monotone_functions_never_rise(bias in any_bias(), m in any_slope(), a in any_distance(), b in any_distance()) {
        if bias.is_monotone() {
            let (near, far) = if a <= b { (a, b) } else { (b, a) };
            prop_assert!(bias.bias(0, m, far) <= bias.bias(0, m, near));
            prop_assert!(bias.combine(0, m, 1.0, far) <= bias.combine(0, m, 1.0, near));
        }
    }

    /// The first distance is below, and the one before is not; if there is none, nothing is below.
    #[test]
    fn the_first_distance_is_the_first(bias in any_bias(), m in any_slope(), exponent in -150.0_f64..1.0, d in any_distance()) {
        match bias.first_distance_below(0, m, exponent) {
            Some(first) => {
                prop_assert!(first >= 0.0 && first.fract() == 0.0);
                prop_assert!(bias.bias(0, m, first) < exponent, "not below at {}", first);
                prop_assert!(first == 0.0 || bias.bias(0, m, before(first)) >= exponent, "below before {}", first);
                prop_assert!(d >= first || bias.bias(0, m, d) >= exponent, "below already at {}", d);
            }
            None => {
                prop_assert!(bias.bias(0, m, d) >= exponent);
                prop_assert!(bias.bias(0, m, f64::MAX) >= exponent);
            }
        }
        match bias.first_equal_content_distance_below(0, m, exponent) {
            Some(first) => {
                prop_assert!(bias.combine(0, m, 0.0, first) < exponent);
                prop_assert!(first == 0.0 || bias.combine(0, m, 0.0, before(first)) >= exponent);
                prop_assert!(d >= first || bias.combine(0, m, 0.0, d) >= exponent);
            }
            None => prop_assert!(bias.combine(0, m, 0.0, d) >= exponent),
        }
    }

    /// Interpolation multiplies the horizon of a linear bias by the inverse of its factor.
    #[test]
    fn interpolation_stretches_the_horizon(m in (-12.0_f64..0.0).prop_map(f64::exp2), log2_factor in 1_i32..8) {
        let tau = -100.3;
        let stretched = BiasFunction { interpolation: 2.0_f64.powi(-log2_factor), ..BiasFunction::linear() };
        let plain = BiasFunction::linear().first_distance_below(0, m, tau).unwrap();
        let long = stretched.first_distance_below(0, m, tau).unwrap();
        let factor = 2.0_f64.powi(log2_factor);
        // The plain horizon is rounded up to a whole token before it is stretched.
        prop_assert!(long <= plain * factor && long > (plain - 1.0) * factor);
    }
}
