//! Certificates against inputs and roundings that try to break them, and the one trained ALiBi decoder there is.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(
    clippy::print_stderr,
    reason = "a skipped test says so; a measurement prints what it measured"
)]

mod toy;

use std::collections::BTreeMap;
use std::path::PathBuf;

use model::{LayerRole, Weight, WeightRole};
use numerics::emulate::{RowInput, emulate_row};
use numerics::plan::PlanName;
use numerics::{
    BiasFunction, BiasShape, CapOrder, Family, Format, MaxReference, PrecisionPlan, SlopeRule,
    SoftCap,
};
use snellen_audit::{
    BoundMethod, BoundsOptions, CertificateInput, HeadBounds, HeadCertificate, ProjectionRounding,
    certify, certify_all, static_bounds,
};
use toy::{NORM_ONLY, Random, Toy, Weights, dot, worst_inputs};

fn head(slope: f64, gap: f64) -> HeadBounds {
    HeadBounds {
        layer: 0,
        head: 0,
        slope,
        effective_slope: slope,
        scale: 0.125,
        score_bound: gap / 2.0,
        gap_bound: gap,
        norm_score_bound: gap / 2.0,
        norm_gap_bound: gap,
        score_deviation: 0.0,
        method: BoundMethod::Norm,
        rounding: ProjectionRounding::EXACT,
        token_roundings: 0.0,
    }
}

fn certificate(
    bounds: &HeadBounds,
    plan: &str,
    bias: &BiasFunction,
    length: u64,
) -> HeadCertificate {
    let plan = PrecisionPlan::parse(plan, Family::Custom).unwrap();
    certify(
        bounds,
        &CertificateInput {
            plan: &plan,
            bias,
            length,
            causal: true,
        },
    )
}

/// Without content all three distances are those of docs/NUMERICS.md, First blind distances: exp = 0, less 1.
#[test]
fn without_content_the_three_distances_are_the_golden_ones() {
    let linear = BiasFunction::linear();
    for (log2_slope, f32_first) in [
        (-0.25, 124),
        (-0.5, 148),
        (-1.0, 208),
        (-4.0, 1664),
        (-8.0, 26617),
    ] {
        let found = certificate(
            &head(f64::powf(2.0, log2_slope), 0.0),
            "ieee",
            &linear,
            2048,
        );
        let three = [
            found.guaranteed_visible,
            found.expected_horizon,
            found.certified_horizon,
        ];
        assert_eq!(three, [Some(f32_first - 1); 3], "{found:?}");
        assert_eq!(found.reason, None);
    }
    // Weight criterion, slope 0.5: weight = 0 from 206 (f32), 184 (bf16), 33 (f16). The sum is 2.54, at least 1 for any input:
    // so blindness is proved later, from 208, 186, 35; visibility to within the rounding of the smallest numbers.
    for (plan, first, proved) in [
        ("hf-eager:f32", 206, 208),
        ("hf-eager:bf16", 184, 186),
        ("hf-eager:f16", 33, 35),
    ] {
        let found = certificate(&head(0.5, 0.0), plan, &linear, 512);
        let visible = found.guaranteed_visible.unwrap();
        assert!(visible < first && visible + 2 >= first, "{plan}: {found:?}");
        assert!(
            found.certified_horizon.unwrap() <= proved,
            "{plan}: {found:?}"
        );
        assert!(
            (first - 1).abs_diff(found.expected_horizon.unwrap()) <= 1,
            "{plan}: {found:?}"
        );
    }
}

#[test]
fn remedies_change_the_certificate_as_they_should() {
    let bounds = head(0.5, 10.0);
    let linear = certificate(&bounds, "ftz", &BiasFunction::linear(), 1024);
    // tau = -87.3365: (87.3365 -+ 10) / 0.5 = 154.67, 194.67.
    assert_eq!(
        (linear.guaranteed_visible, linear.certified_horizon),
        (Some(154), Some(194))
    );
    let clamp = BiasFunction {
        clamp: Some(-12.0),
        ..BiasFunction::linear()
    };
    let clamped = certificate(&bounds, "ftz", &clamp, 1024);
    assert!(clamped.always_visible);
    assert_eq!(
        (clamped.guaranteed_visible, clamped.certified_horizon),
        (Some(1023), None)
    );
    assert!(clamped.reason.unwrap().starts_with("no pair is ever blind"));
    // exp(77.3365 / 0.5) - 1 = 1.5e67: farther than whole numbers reach.
    let log = certificate(
        &bounds,
        "ftz",
        &BiasFunction::with_shape(BiasShape::Log),
        1024,
    );
    assert!(log.always_visible && log.certified_horizon.is_none());
    // A cap before the bias bounds the gap by twice itself; one after bounds every gap.
    let capped = |cap, order| BiasFunction {
        soft_cap: Some(SoftCap { cap, order }),
        ..BiasFunction::linear()
    };
    let before = certificate(&bounds, "ftz", &capped(2.0, CapOrder::BeforeBias), 1024);
    assert_eq!(
        (before.guaranteed_visible, before.certified_horizon),
        (Some(166), Some(182))
    );
    assert!(certificate(&bounds, "ftz", &capped(43.0, CapOrder::AfterBias), 1024).always_visible);
    assert!(!certificate(&bounds, "ftz", &capped(44.0, CapOrder::AfterBias), 1024).always_visible);
    assert!(
        certificate(
            &bounds,
            "ftz",
            &BiasFunction::with_shape(BiasShape::None),
            64
        )
        .always_visible
    );
}

#[test]
fn what_cannot_be_certified_says_why() {
    let wide = certificate(&head(0.5, 300.0), "ieee", &BiasFunction::linear(), 1024);
    assert_eq!(wide.guaranteed_visible, None);
    assert_eq!(wide.certified_horizon, Some(807)); // (103.97 + 300) / 0.5 = 807.9
    assert!(wide.reason.unwrap().contains("300.0 nats"));
    let unbounded = certificate(
        &head(0.5, f64::INFINITY),
        "ieee",
        &BiasFunction::linear(),
        1024,
    );
    assert_eq!(
        (
            unbounded.guaranteed_visible,
            unbounded.expected_horizon,
            unbounded.certified_horizon
        ),
        (None, None, None)
    );
    assert_eq!(
        unbounded.reason.unwrap(),
        "the weights do not bound this head's scores"
    );
    // BLOOM in f16: the bias of key 131008 and above is infinite.
    let plan = PrecisionPlan::parse("hf-eager:f16", Family::Bloom).unwrap();
    let bias = BiasFunction::linear();
    let far = certify(
        &head(0.5, 1.0),
        &CertificateInput {
            plan: &plan,
            bias: &bias,
            length: 200_000,
            causal: true,
        },
    );
    assert_eq!(far.certified_horizon, None);
    assert!(far.reason.unwrap().contains("leave its format"));
}

#[test]
fn expected_horizon_agrees_with_simulation() {
    for (deviation, slope) in [(2.0, 0.5), (6.0, 0.1), (0.5, 1.0)] {
        let bounds = HeadBounds {
            score_deviation: deviation,
            ..head(slope, 60.0)
        };
        let found = certificate(&bounds, "ftz", &BiasFunction::linear(), 2048);
        let mut random = Random(17);
        let mut maxima: Vec<f64> = (0..2000)
            .map(|_| {
                (0..2048)
                    .map(|k| deviation * random.normal() - slope * f64::from(k))
                    .fold(f64::NEG_INFINITY, f64::max)
            })
            .collect();
        maxima.sort_by(f64::total_cmp);
        // The median of 2000 samples is good to 1.25 * deviation / sqrt(2000), four times that is 0.12 deviations.
        let simulated = (87.3365 - maxima[1000]) / slope;
        let expected = found.expected_horizon.unwrap() as f64;
        assert!(
            (simulated - expected).abs() <= 0.12 * deviation / slope + 1.0,
            "{deviation} {slope}: {simulated} {expected}"
        );
        assert!(found.guaranteed_visible.unwrap() < found.expected_horizon.unwrap());
        assert!(found.expected_horizon.unwrap() < found.certified_horizon.unwrap());
    }
}

/// What a certificate claims: for random weights, random and adversarial inputs and every plan, no pair beyond the certified
/// horizon is non-zero and none within the guaranteed distance is zero.
#[test]
fn no_input_breaks_a_certificate_under_any_plan() {
    let length = 192usize;
    let mut seen: BTreeMap<(String, &str), (u64, u64)> = BTreeMap::new();
    for family in [
        Family::Custom,
        Family::Bloom,
        Family::Falcon,
        Family::Mpt,
        Family::Jais,
        Family::JinaBert,
    ] {
        for name in PlanName::ALL {
            for &dtype in name.dtypes() {
                let Ok(plan) = PrecisionPlan::build(name, dtype, family) else {
                    continue;
                };
                let rule = SlopeRule {
                    power: 0.5,
                    factor: 1.5,
                    ..SlopeRule::CONFIGURED
                };
                let other = plan.clone().with_slope_rule(rule, "a test");
                challenge(&other, family, &BiasFunction::linear(), length);
                for (shape, bias) in shapes() {
                    let counted = challenge(&plan, family, &bias, length);
                    let total = seen
                        .entry((format!("{}:{}", name.name(), dtype.name()), shape))
                        .or_default();
                    total.0 += counted.0;
                    total.1 += counted.1;
                }
            }
        }
    }
    // Not vacuous: under every plan, with the plain bias, pairs were proved visible and pairs were proved blind.
    for ((plan, shape), (visible, blind)) in &seen {
        if *shape == "linear" {
            assert!(
                *visible > 0 && *blind > 0,
                "{plan}: {visible} visible, {blind} blind pairs tested"
            );
        }
    }
    for shape in ["log", "sqrt", "t5", "kerple", "cap", "cap-after", "clamp"] {
        let tested: u64 = seen
            .iter()
            .filter(|((_, s), _)| *s == shape)
            .map(|(_, (visible, _))| visible)
            .sum();
        assert!(tested > 1000, "{shape}: {tested} visible pairs tested");
    }
    for shape in ["log", "sqrt", "t5", "kerple", "cap"] {
        let tested: u64 = seen
            .iter()
            .filter(|((_, s), _)| *s == shape)
            .map(|(_, (_, blind))| blind)
            .sum();
        assert!(tested > 1000, "{shape}: {tested} blind pairs tested");
    }
}

fn shapes() -> Vec<(&'static str, BiasFunction)> {
    let linear = BiasFunction::linear();
    let cap = |cap, order| Some(SoftCap { cap, order });
    vec![
        ("linear", linear.clone()),
        ("log", BiasFunction::with_shape(BiasShape::Log)),
        ("sqrt", BiasFunction::with_shape(BiasShape::Sqrt)),
        (
            "clamp",
            BiasFunction {
                clamp: Some(-5.0),
                interpolation: 0.5,
                ..linear.clone()
            },
        ),
        (
            "cap",
            BiasFunction {
                soft_cap: cap(1.5, CapOrder::BeforeBias),
                ..linear.clone()
            },
        ),
        (
            "cap-after",
            BiasFunction {
                soft_cap: cap(30.0, CapOrder::AfterBias),
                ..linear
            },
        ),
        (
            "kerple",
            BiasFunction::with_shape(BiasShape::KerpleLog {
                p: vec![4.0, 40.0],
                a: vec![1.0, 20.0],
            }),
        ),
        (
            "t5",
            BiasFunction::with_shape(BiasShape::T5Buckets {
                n_buckets: 16,
                max_distance: 64,
                bidirectional: true,
                // Up and down, ending far below every threshold but f64's.
                table: vec![
                    (0..16)
                        .map(|b| [1.0, -3.0][b % 2] - if b % 8 >= 6 { 150.0 } else { 0.0 })
                        .collect();
                    2
                ],
            }),
        ),
    ]
}

/// Tests two heads of one toy under one plan; returns how many pairs were proved visible and proved blind (and held to it).
fn challenge(
    plan: &PrecisionPlan,
    family: Family,
    bias: &BiasFunction,
    length: usize,
) -> (u64, u64) {
    let threshold = plan
        .numerator_zero_nats()
        .min(plan.weight_zero_nats().unwrap_or(f64::INFINITY));
    let toy = Toy::new(41);
    // Slopes for which the threshold lies inside the sequence; Falcon's are divided by the root of the head width.
    let flatten = match bias.shape {
        BiasShape::Log => (length as f64).ln() / length as f64,
        BiasShape::Sqrt => 1.0 / (length as f64).sqrt(),
        _ => 1.0,
    };
    let per_token = 1.0 / (length as f64 * flatten * plan.effective_slope(1.0, 0.5));
    // Streaming kernels may lose a far key only in the accumulator.
    let last = match plan.max_reference {
        MaxReference::Final => threshold,
        MaxReference::Running { .. } => plan.accumulator_zero_nats(),
    };
    let toy = Toy {
        family,
        weight_scale: 0.045,
        slopes: vec![2.0 * threshold * per_token, 5.0 * last * per_token],
        ..toy
    };
    let (spec, weights) = (toy.spec(), toy.source());
    let causal = family.convention().causal;
    let bounds = static_bounds(&spec, &weights, &NORM_ONLY).unwrap();
    let mut tested = (0, 0);
    for head in &bounds {
        let input = CertificateInput {
            plan,
            bias,
            length: length as u64,
            causal,
        };
        let found = certify(head, &input);
        if let (Some(visible), Some(horizon)) = (found.guaranteed_visible, found.certified_horizon)
        {
            assert!(visible <= horizon, "{}: {found:?}", plan.key());
            let expected = found.expected_horizon.unwrap();
            assert!(
                (visible..=horizon).contains(&expected),
                "{}: {found:?}",
                plan.key()
            );
        }
        for raw in raw_rows(&weights, &toy, head, length) {
            let query = if causal { length - 1 } else { length / 2 };
            let row = RowInput {
                raw_scores: &raw,
                scale: head.scale,
                head: head.head,
                slope: head.slope,
                bias,
                query,
                causal,
                length,
            };
            let emulated = emulate_row(plan, &row);
            for (key, weight) in emulated.weights.iter().enumerate() {
                let distance = query.abs_diff(key) as u64;
                if found.guaranteed_visible.is_some_and(|d| distance <= d) {
                    assert!(
                        *weight > 0.0,
                        "{} {family}: blind at {distance}: {found:?} {bias:?}",
                        plan.key()
                    );
                    tested.0 += u64::from(distance > 0);
                }
                if found.certified_horizon.is_some_and(|d| distance > d) {
                    assert!(
                        *weight == 0.0,
                        "{} {family}: {weight} at {distance}: {found:?} {bias:?}",
                        plan.key()
                    );
                    tested.1 += 1;
                }
            }
        }
    }
    tested
}

/// Rows of raw scores of one query: random keys; near keys best and far keys worst; the reverse.
fn raw_rows(weights: &Weights, toy: &Toy, head: &HeadBounds, length: usize) -> Vec<Vec<f64>> {
    let spec = toy.spec();
    let mut random = Random(head.head as u64 + 99);
    let (query, best) = worst_inputs(weights, &spec, head.head, &mut random);
    let worst: Vec<f64> = best.iter().map(|x| -x).collect();
    let q = weights.project(&spec, head.head, true, &query);
    let raw = |n: &[f64]| dot(&q, &weights.project(&spec, head.head, false, n));
    let (high, low) = (raw(&best), raw(&worst));
    let random_keys = (0..length).map(|_| {
        let x: Vec<f64> = (0..spec.width).map(|_| random.normal()).collect();
        raw(&toy::normalise(&x, &spec.block.norm))
    });
    let random_keys: Vec<f64> = random_keys.collect();
    let middle = length / 2;
    let split = |near: f64, far: f64| -> Vec<f64> {
        (0..length)
            .map(|key| {
                if key.abs_diff(middle) < 2 || key + 2 >= length {
                    near
                } else {
                    far
                }
            })
            .collect()
    };
    vec![random_keys, split(high, low), split(low, high)]
}

fn shared_data() -> PathBuf {
    std::env::var_os("SNELLEN_SHARED_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    )
}

/// docs/NUMERICS.md, Certificates: by the norm bound, f32, head 0 of the first layer is guaranteed visible to 58 and provably
/// blind past 357.
#[test]
fn alilama_first_head() {
    let path = shared_data().join("models/alilama/alilama_batches_512_470K.safetensors");
    let Ok(bytes) = std::fs::read(&path) else {
        eprintln!("SKIPPED: {} not found", path.display());
        return;
    };
    let (spec, weights) = alilama(&bytes);
    let plan = PrecisionPlan::parse("ieee", Family::Custom).unwrap();
    let input = CertificateInput {
        plan: &plan,
        bias: &spec.alibi.bias,
        length: 128,
        causal: true,
    };
    let norm = static_bounds(&spec, &weights, &NORM_ONLY).unwrap();
    let found = certify(&norm[0], &input);
    assert_eq!(
        (found.guaranteed_visible, found.certified_horizon),
        (Some(58), Some(357)),
        "{:?}",
        norm[0]
    );
    // The values of a full SVD: G = 74.89761497860806, R = 37.69838077112737 (numpy 2, linalg.norm(Wq @ Wk.T ..., 2)).
    assert!(
        (norm[0].gap_bound / 74.897_614_978_608_06 - 1.0).abs() < 2e-6,
        "{}",
        norm[0].gap_bound
    );
    assert!(
        (norm[0].score_bound / 37.698_380_771_127_37 - 1.0).abs() < 2e-6,
        "{}",
        norm[0].score_bound
    );
    let exact = static_bounds(&spec, &weights, &BoundsOptions::default()).unwrap();
    assert_eq!(exact.len(), 32);
    for (exact, norm) in exact.iter().zip(&norm) {
        let (exact_found, norm_found) = (certify(exact, &input), certify(norm, &input));
        assert_eq!(exact.method == BoundMethod::Vocabulary, exact.layer == 0);
        assert!(exact.gap_bound <= norm.gap_bound);
        assert!(exact_found.guaranteed_visible >= norm_found.guaranteed_visible);
        assert!(exact_found.certified_horizon <= norm_found.certified_horizon);
    }
}

fn alilama(bytes: &[u8]) -> (model::ModelSpec, Weights) {
    let toy = Toy {
        norm_bias: true,
        qkv_bias: false,
        n_kv_heads: 8,
        width: 64,
        head_width: 8,
        vocab: 4000,
        n_layers: 4,
        slopes: (1..=8).map(|h| 0.5f64.powi(h)).collect(),
        ..Toy::new(0)
    };
    let header_len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&bytes[8..8 + header_len]).unwrap();
    let tensor = |name: &str, shape: &[usize]| -> Weight {
        let entry = header.split(&format!("\"{name}\":")).nth(1).unwrap();
        let offsets = entry.split("\"data_offsets\":[").nth(1).unwrap();
        let start: usize = offsets.split(',').next().unwrap().trim().parse().unwrap();
        let n: usize = shape.iter().product();
        let data = &bytes[8 + header_len + start..][..4 * n];
        let floats = data
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        Weight::new(shape.to_vec(), floats.collect())
    };
    let mut weights =
        BTreeMap::from([(WeightRole::Embedding, tensor("embed.weight", &[4000, 64]))]);
    for layer in 0..4 {
        for (role, name, shape) in [
            (LayerRole::Norm1Weight, "norm1.weight", vec![64]),
            (LayerRole::Norm1Bias, "norm1.bias", vec![64]),
            (LayerRole::QueryWeight, "MHSA.q.weight", vec![64, 64]),
            (LayerRole::KeyWeight, "MHSA.k.weight", vec![64, 64]),
        ] {
            weights.insert(
                WeightRole::Layer(layer, role),
                tensor(&format!("blocks.{layer}.{name}"), &shape),
            );
        }
    }
    (toy.spec(), Weights(weights))
}

/// Run by hand: `cargo test -p snellen-audit --test certificates -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a check"]
fn time_of_bloom_560m() {
    let toy = Toy {
        width: 1024,
        head_width: 64,
        n_kv_heads: 16,
        vocab: 8,
        n_layers: 1,
        slopes: numerics::SlopeSchedule::Press.slopes(16).unwrap(),
        weight_scale: 0.02,
        weight_mean: 0.0,
        ..Toy::new(5)
    };
    let mut weights = toy.source();
    let one = weights.0.clone();
    for layer in 1..24 {
        for (role, weight) in &one {
            if let WeightRole::Layer(_, role) = role {
                weights
                    .0
                    .insert(WeightRole::Layer(layer, *role), weight.clone());
            }
        }
    }
    let spec = Toy {
        n_layers: 24,
        ..toy
    }
    .spec();
    let start = std::time::Instant::now();
    let bounds = static_bounds(&spec, &weights, &NORM_ONLY).unwrap();
    let bounded = start.elapsed();
    let plans =
        ["ieee", "ftz", "hf-eager:bf16"].map(|p| PrecisionPlan::parse(p, Family::Bloom).unwrap());
    let start = std::time::Instant::now();
    let mut found = Vec::new();
    for plan in &plans {
        let input = CertificateInput {
            plan,
            bias: &spec.alibi.bias,
            length: 2048,
            causal: true,
        };
        found.extend(certify_all(&bounds, &input));
    }
    eprintln!(
        "bounds of {} heads {bounded:?}, {} certificates {:?}",
        bounds.len(),
        found.len(),
        start.elapsed()
    );
    eprintln!("{:?}\n{:?}\n{:?}", bounds[0], found[0], found[384 * 2]);
    for (format, name) in [
        (Format::F32, "f32"),
        (Format::F16, "f16"),
        (Format::Bf16, "bf16"),
    ] {
        eprintln!(
            "{name}: projections move a score by up to {} nats",
            bounds[0].rounding.nats(format)
        );
    }
    assert_eq!(bounds.len(), 384);
}
