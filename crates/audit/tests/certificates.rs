//! Bounds and certificates against inputs that try to break them.

mod toy;

use std::collections::BTreeMap;
use std::path::PathBuf;

use model::{LayerRole, NormKind, QkNormExtent, Weight, WeightRole};
use numerics::emulate::{RowInput, emulate_row};
use numerics::plan::PlanName;
use numerics::{BiasFunction, BiasShape, CapOrder, Family, Format, PrecisionPlan, SoftCap};
use snellen_audit::{
    BoundMethod, BoundsOptions, CertificateInput, HeadBounds, HeadCertificate, ProjectionRounding, certify, static_bounds,
};
use toy::{Random, Toy, Weights, dot, worst_inputs};

const NORM_ONLY: BoundsOptions<'static> = BoundsOptions { keep: &|_, _| true, vocabulary_flops_max: 0.0 };

fn toys() -> Vec<Toy> {
    let plain = Toy::new(7);
    vec![
        plain.clone(),
        Toy { kind: NormKind::RmsNorm, norm_bias: false, qkv_bias: false, seed: 8, ..plain.clone() },
        Toy { slopes: vec![0.5; 4], n_kv_heads: 1, embedding_norm: true, seed: 9, ..plain.clone() },
        Toy { clip: Some(0.6), seed: 10, ..plain.clone() },
        Toy { clip: Some(60.0), seed: 11, ..plain.clone() },
        Toy { qk_norm: Some(QkNormExtent::PerHead), seed: 12, ..plain.clone() },
        Toy { qk_norm: Some(QkNormExtent::Full), kind: NormKind::RmsNorm, seed: 13, ..plain.clone() },
        Toy { width: 70, head_width: 20, vocab: 130, seed: 14, ..plain },
    ]
}

/// Every kind of head keeps its bounds for random and for the worst inputs.
#[test]
fn no_input_exceeds_the_bounds() {
    for toy in toys() {
        let (spec, weights) = (toy.spec(), toy.source());
        let bounds = static_bounds(&spec, &weights, &NORM_ONLY).unwrap();
        let mut random = Random(toy.seed);
        for head in &bounds {
            assert_eq!(head.method, BoundMethod::Norm);
            let kv = head.head / (spec.n_heads / spec.n_kv_heads);
            let (worst_query, worst_key) = worst_inputs(&weights, &spec, head.head, &mut random);
            let negative = |x: &[f64]| x.iter().map(|v| -v).collect::<Vec<_>>();
            let mut queries = vec![negative(&worst_query), worst_query];
            let mut keys = vec![negative(&worst_key), worst_key];
            for _ in 0..30 {
                let x: Vec<f64> = (0..spec.width).map(|_| random.normal()).collect();
                queries.push(toy::normalise(&x, &spec.block.norm));
                keys.push(queries.last().unwrap().clone());
            }
            let keys: Vec<_> = keys.iter().map(|n| weights.project(&spec, kv, false, n)).collect();
            let (mut largest, mut widest) = (0.0f64, 0.0f64);
            for query in &queries {
                let q = weights.project(&spec, head.head, true, query);
                let scores: Vec<f64> = keys.iter().map(|k| dot(&q, k) * head.scale).collect();
                let high = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let low = scores.iter().copied().fold(f64::INFINITY, f64::min);
                largest = largest.max(high).max(-low);
                widest = widest.max(high - low);
            }
            assert!(largest <= head.score_bound, "{toy:?}: {largest} > {}", head.score_bound);
            assert!(widest <= head.gap_bound, "{toy:?}: {widest} > {}", head.gap_bound);
            // The worst inputs are the answer for affine maps without biases; elsewhere the bound may be loose.
            let affine = toy.clip.is_none() && toy.qk_norm.is_none();
            if affine && !toy.norm_bias && !toy.qkv_bias {
                assert!(largest >= 0.999_99 * head.score_bound, "{toy:?}: {largest} of {}", head.score_bound);
                assert!(widest >= 0.999_99 * head.gap_bound, "{toy:?}: {widest} of {}", head.gap_bound);
            } else if affine || toy.clip == Some(60.0) {
                assert!(widest >= 0.5 * head.gap_bound, "{toy:?}: {widest} of {}", head.gap_bound);
            }
            assert!(head.score_deviation <= head.score_bound);
        }
    }
}

/// A clamp that never acts changes nothing; one that does gives `clip^2 * head_width` at the most.
#[test]
fn clamps_tighten_the_bounds() {
    let loose = static_bounds(&Toy::new(3).spec(), &Toy::new(3).source(), &NORM_ONLY).unwrap();
    let never = Toy { clip: Some(1e4), ..Toy::new(3) };
    let never = static_bounds(&never.spec(), &never.source(), &NORM_ONLY).unwrap();
    let tight = Toy { clip: Some(0.25), ..Toy::new(3) };
    let tight = static_bounds(&tight.spec(), &tight.source(), &NORM_ONLY).unwrap();
    for ((loose, never), tight) in loose.iter().zip(&never).zip(&tight) {
        assert_eq!((loose.score_bound, loose.gap_bound), (never.score_bound, never.gap_bound));
        let most = 0.25 * 0.25 * 4.0 * tight.scale;
        assert!(tight.score_bound <= most * (1.0 + 1e-12) && tight.gap_bound <= 2.0 * tight.score_bound);
    }
}

/// The deviation of isotropic inputs, by sampling.
#[test]
fn deviation_is_that_of_random_directions() {
    let toy = Toy { width: 64, head_width: 8, ..Toy::new(21) };
    let (spec, weights) = (toy.spec(), toy.source());
    let head = &static_bounds(&spec, &weights, &NORM_ONLY).unwrap()[1];
    let mut random = Random(5);
    let mut sphere = || {
        let x: Vec<f64> = (0..spec.width).map(|_| random.normal()).collect();
        toy::normalise(&x, &spec.block.norm)
    };
    let (n_queries, n_keys) = (300, 100);
    let mut variance = 0.0;
    for _ in 0..n_queries {
        let q = weights.project(&spec, 1, true, &sphere());
        let scores: Vec<f64> = (0..n_keys).map(|_| dot(&q, &weights.project(&spec, 1, false, &sphere())) * head.scale).collect();
        let mean = scores.iter().sum::<f64>() / n_keys as f64;
        variance += scores.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / ((n_keys - 1) * n_queries) as f64;
    }
    // 300 queries: the variance is good to about 4 standard errors of 5 %, the width correction w / (w - 1) is 2 %.
    let ratio = variance.sqrt() / head.score_deviation;
    assert!((ratio - 1.0).abs() < 0.1, "{ratio}");
}

/// Layer 0 by its vocabulary: equal to the maximum over all pairs of tokens, definition by definition.
#[test]
fn vocabulary_bound_is_the_maximum_over_tokens() {
    for toy in toys() {
        let (spec, weights) = (toy.spec(), toy.source());
        let exact = static_bounds(&spec, &weights, &BoundsOptions::default()).unwrap();
        let norm = static_bounds(&spec, &weights, &NORM_ONLY).unwrap();
        for (exact, norm) in exact.iter().zip(&norm) {
            assert_eq!(exact.method, BoundMethod::Vocabulary);
            assert_eq!((exact.norm_score_bound, exact.norm_gap_bound), (norm.score_bound, norm.gap_bound));
            let kv = exact.head / (spec.n_heads / spec.n_kv_heads);
            let tokens: Vec<_> = (0..spec.vocab_size).map(|t| weights.token(&spec, t)).collect();
            let keys: Vec<_> = tokens.iter().map(|n| weights.project(&spec, kv, false, n)).collect();
            let (mut largest, mut widest) = (0.0f64, 0.0f64);
            for n in &tokens {
                let q = weights.project(&spec, exact.head, true, n);
                let scores = keys.iter().map(|k| dot(&q, k) * exact.scale);
                let (low, high) = scores.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), s| (low.min(s), high.max(s)));
                largest = largest.max(high).max(-low);
                widest = widest.max(high - low);
            }
            let close = |bound: f64, truth: f64| bound >= truth && bound - truth <= 1e-8 * (1.0 + truth);
            assert!(close(exact.score_bound, largest), "{toy:?}: {} {largest}", exact.score_bound);
            assert!(close(exact.gap_bound, widest), "{toy:?}: {} {widest}", exact.gap_bound);
            assert!(largest <= norm.score_bound && widest <= norm.gap_bound);
        }
    }
}

#[test]
fn bounds_do_not_depend_on_threads_and_keep_indices() {
    let toy = Toy { n_layers: 3, slopes: vec![0.5, 0.25, 0.125, 0.0625], vocab: 150, ..Toy::new(31) };
    let (spec, weights) = (toy.spec(), toy.source());
    let with = |threads: usize, options: &BoundsOptions<'_>| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| static_bounds(&spec, &weights, options).unwrap())
    };
    let all = with(1, &BoundsOptions::default());
    assert_eq!(all, with(2, &BoundsOptions::default()));
    assert_eq!(all, with(8, &BoundsOptions::default()));
    assert_eq!(all.len(), 12);
    let some = with(2, &BoundsOptions { keep: &|layer, head| layer == 2 && head % 2 == 1, ..BoundsOptions::default() });
    let places: Vec<_> = some.iter().map(|b| (b.layer, b.head)).collect();
    assert_eq!(places, [(2, 1), (2, 3)]);
    assert_eq!(some[1], all[11]);
}

#[test]
fn weights_that_are_not_finite_or_missing_are_named() {
    let toy = Toy::new(1);
    let mut weights = toy.source();
    let role = WeightRole::Layer(0, LayerRole::KeyWeight);
    weights.0.get_mut(&role).unwrap().data[30] = f32::NAN;
    let error = static_bounds(&toy.spec(), &weights, &NORM_ONLY).unwrap_err();
    assert_eq!(error.to_string(), "layer 0 key weight: element [1, 6] is NaN, 1 values in all are not finite");
    weights.0.remove(&role);
    let error = static_bounds(&toy.spec(), &weights, &NORM_ONLY).unwrap_err();
    assert!(error.to_string().starts_with("layer 0 key weight: missing"), "{error}");
}

// ---- certificates ----

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
    }
}

fn certificate(bounds: &HeadBounds, plan: &str, bias: &BiasFunction, length: u64) -> HeadCertificate {
    let plan = PrecisionPlan::parse(plan, Family::Custom).unwrap();
    certify(bounds, &CertificateInput { plan: &plan, bias, length, causal: true })
}

/// Without content all three distances are the table of NUMERICS.md ("Golden counts"): first distance with exp = 0, less 1.
#[test]
fn without_content_the_three_distances_are_the_golden_ones() {
    let linear = BiasFunction::linear();
    for (log2_slope, f32_first) in [(-0.25, 124), (-0.5, 148), (-1.0, 208), (-4.0, 1664), (-8.0, 26617)] {
        let found = certificate(&head(f64::powf(2.0, log2_slope), 0.0), "ieee", &linear, 2048);
        let three = [found.guaranteed_visible, found.expected_horizon, found.certified_horizon];
        assert_eq!(three, [Some(f32_first - 1); 3], "{found:?}");
        assert_eq!(found.reason, None);
    }
    // Weight criterion, slope 0.5: weight = 0 from 206 (f32), 184 (bf16), 33 (f16). The sum is 2.54, at least 1 for any input:
    // so blindness is proved later, from 208, 186, 35; visibility to within the rounding of the smallest numbers.
    for (plan, first, proved) in [("hf-eager:f32", 206, 208), ("hf-eager:bf16", 184, 186), ("hf-eager:f16", 33, 35)] {
        let found = certificate(&head(0.5, 0.0), plan, &linear, 512);
        let visible = found.guaranteed_visible.unwrap();
        assert!(visible < first && visible + 2 >= first, "{plan}: {found:?}");
        assert!(found.certified_horizon.unwrap() <= proved, "{plan}: {found:?}");
        assert!((first - 1).abs_diff(found.expected_horizon.unwrap()) <= 1, "{plan}: {found:?}");
    }
}

#[test]
fn remedies_change_the_certificate_as_they_should() {
    let bounds = head(0.5, 10.0);
    let linear = certificate(&bounds, "ftz", &BiasFunction::linear(), 1024);
    // tau = -87.3365: (87.3365 -+ 10) / 0.5 = 154.67, 194.67.
    assert_eq!((linear.guaranteed_visible, linear.certified_horizon), (Some(154), Some(194)));
    let clamp = BiasFunction { clamp: Some(-12.0), ..BiasFunction::linear() };
    let clamped = certificate(&bounds, "ftz", &clamp, 1024);
    assert!(clamped.always_visible);
    assert_eq!((clamped.guaranteed_visible, clamped.certified_horizon), (Some(1023), None));
    assert!(clamped.reason.unwrap().starts_with("no pair is ever blind"));
    // exp(77.3365 / 0.5) - 1 = 1.5e67: farther than whole numbers reach.
    let log = certificate(&bounds, "ftz", &BiasFunction::with_shape(BiasShape::Log), 1024);
    assert!(log.always_visible && log.certified_horizon.is_none());
    // A cap before the bias bounds the gap by twice itself; one after bounds every gap.
    let capped = |cap, order| BiasFunction { soft_cap: Some(SoftCap { cap, order }), ..BiasFunction::linear() };
    let before = certificate(&bounds, "ftz", &capped(2.0, CapOrder::BeforeBias), 1024);
    assert_eq!((before.guaranteed_visible, before.certified_horizon), (Some(166), Some(182)));
    assert!(certificate(&bounds, "ftz", &capped(43.0, CapOrder::AfterBias), 1024).always_visible);
    assert!(!certificate(&bounds, "ftz", &capped(44.0, CapOrder::AfterBias), 1024).always_visible);
    assert!(certificate(&bounds, "ftz", &BiasFunction::with_shape(BiasShape::None), 64).always_visible);
}

#[test]
fn what_cannot_be_certified_says_why() {
    let wide = certificate(&head(0.5, 300.0), "ieee", &BiasFunction::linear(), 1024);
    assert_eq!(wide.guaranteed_visible, None);
    assert_eq!(wide.certified_horizon, Some(807)); // (103.97 + 300) / 0.5 = 807.9
    assert!(wide.reason.unwrap().contains("300.0 nats"));
    let unbounded = certificate(&head(0.5, f64::INFINITY), "ieee", &BiasFunction::linear(), 1024);
    assert_eq!((unbounded.guaranteed_visible, unbounded.expected_horizon, unbounded.certified_horizon), (None, None, None));
    assert_eq!(unbounded.reason.unwrap(), "the weights do not bound this head's scores");
    // BLOOM in f16: the bias of key 131008 and above is infinite.
    let plan = PrecisionPlan::parse("hf-eager:f16", Family::Bloom).unwrap();
    let bias = BiasFunction::linear();
    let far = certify(&head(0.5, 1.0), &CertificateInput { plan: &plan, bias: &bias, length: 200_000, causal: true });
    assert_eq!(far.certified_horizon, None);
    assert!(far.reason.unwrap().contains("leave its format"));
}

#[test]
fn expected_horizon_agrees_with_simulation() {
    for (deviation, slope) in [(2.0, 0.5), (6.0, 0.1), (0.5, 1.0)] {
        let bounds = HeadBounds { score_deviation: deviation, ..head(slope, 60.0) };
        let found = certificate(&bounds, "ftz", &BiasFunction::linear(), 2048);
        let mut random = Random(17);
        let mut maxima: Vec<f64> = (0..2000)
            .map(|_| (0..2048).map(|k| deviation * random.normal() - slope * f64::from(k)).fold(f64::NEG_INFINITY, f64::max))
            .collect();
        maxima.sort_by(f64::total_cmp);
        // The median of 2000 samples is good to 1.25 * deviation / sqrt(2000), four times that is 0.12 deviations.
        let simulated = (87.3365 - maxima[1000]) / slope;
        let expected = found.expected_horizon.unwrap() as f64;
        assert!((simulated - expected).abs() <= 0.12 * deviation / slope + 1.0, "{deviation} {slope}: {simulated} {expected}");
        assert!(found.guaranteed_visible.unwrap() < found.expected_horizon.unwrap());
        assert!(found.expected_horizon.unwrap() < found.certified_horizon.unwrap());
    }
}

/// The property of the issue: for random weights, random and adversarial inputs and every plan, no pair beyond the certified
/// horizon is non-zero and none within the guaranteed distance is zero.
#[test]
fn no_input_breaks_a_certificate_under_any_plan() {
    let length = 192usize;
    let mut seen: BTreeMap<(String, &str), (u64, u64)> = BTreeMap::new();
    for family in [Family::Custom, Family::Bloom, Family::Falcon, Family::Mpt, Family::Jais, Family::JinaBert] {
        for name in PlanName::ALL {
            for &dtype in name.dtypes() {
                let Ok(plan) = PrecisionPlan::build(name, dtype, family) else { continue };
                for (shape, bias) in shapes() {
                    let counted = challenge(&plan, family, &bias, length);
                    let total = seen.entry((format!("{}:{}", name.name(), dtype.name()), shape)).or_default();
                    total.0 += counted.0;
                    total.1 += counted.1;
                }
            }
        }
    }
    // Not vacuous: under every plan, with the plain bias, pairs were proved visible and pairs were proved blind.
    for ((plan, shape), (visible, blind)) in &seen {
        if *shape == "linear" {
            assert!(*visible > 0 && *blind > 0, "{plan}: {visible} visible, {blind} blind pairs tested");
        }
    }
    for shape in ["log", "sqrt", "t5", "kerple", "cap", "cap-after", "clamp"] {
        let tested: u64 = seen.iter().filter(|((_, s), _)| *s == shape).map(|(_, (visible, _))| visible).sum();
        assert!(tested > 1000, "{shape}: {tested} visible pairs tested");
    }
    for shape in ["log", "sqrt", "t5", "kerple", "cap"] {
        let tested: u64 = seen.iter().filter(|((_, s), _)| *s == shape).map(|(_, (_, blind))| blind).sum();
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
        ("clamp", BiasFunction { clamp: Some(-5.0), interpolation: 0.5, ..linear.clone() }),
        ("cap", BiasFunction { soft_cap: cap(1.5, CapOrder::BeforeBias), ..linear.clone() }),
        ("cap-after", BiasFunction { soft_cap: cap(30.0, CapOrder::AfterBias), ..linear }),
        ("kerple", BiasFunction::with_shape(BiasShape::KerpleLog { p: vec![4.0, 40.0], a: vec![1.0, 20.0] })),
        (
            "t5",
            BiasFunction::with_shape(BiasShape::T5Buckets {
                n_buckets: 16,
                max_distance: 64,
                bidirectional: true,
                // Up and down, ending far below every threshold but f64's.
                table: vec![(0..16).map(|b| [1.0, -3.0][b % 2] - if b % 8 >= 6 { 150.0 } else { 0.0 }).collect(); 2],
            }),
        ),
    ]
}

/// Tests two heads of one toy under one plan; returns how many pairs were proved visible and proved blind (and held to it).
fn challenge(plan: &PrecisionPlan, family: Family, bias: &BiasFunction, length: usize) -> (u64, u64) {
    let threshold = plan.numerator_zero_nats().min(plan.weight_zero_nats().unwrap_or(f64::INFINITY));
    let toy = Toy::new(41);
    // Slopes for which the threshold lies inside the sequence; Falcon's are divided by the root of the head width.
    let flatten = match bias.shape {
        BiasShape::Log => (length as f64).ln() / length as f64,
        BiasShape::Sqrt => 1.0 / (length as f64).sqrt(),
        _ => 1.0,
    };
    let per_token = threshold / (length as f64 * flatten * plan.effective_slope(1.0, 0.5));
    let toy = Toy { family, weight_scale: 0.045, slopes: vec![2.0 * per_token, 5.0 * per_token], ..toy };
    let (spec, weights) = (toy.spec(), toy.source());
    let causal = family.convention().causal;
    let bounds = static_bounds(&spec, &weights, &NORM_ONLY).unwrap();
    let mut tested = (0, 0);
    for head in &bounds {
        let input = CertificateInput { plan, bias, length: length as u64, causal };
        let found = certify(head, &input);
        if let (Some(visible), Some(horizon)) = (found.guaranteed_visible, found.certified_horizon) {
            assert!(visible <= horizon, "{}: {found:?}", plan.key());
            let expected = found.expected_horizon.unwrap();
            assert!((visible..=horizon).contains(&expected), "{}: {found:?}", plan.key());
        }
        for raw in raw_rows(&weights, &toy, head, length) {
            let query = if causal { length - 1 } else { length / 2 };
            let row = RowInput { raw_scores: &raw, scale: head.scale, head: head.head, slope: head.slope, bias, query, causal, length };
            let emulated = emulate_row(plan, &row);
            for (key, weight) in emulated.weights.iter().enumerate() {
                let distance = query.abs_diff(key) as u64;
                if found.guaranteed_visible.is_some_and(|d| distance <= d) {
                    assert!(*weight > 0.0, "{} {family}: blind at {distance}: {found:?} {bias:?}", plan.key());
                    tested.0 += u64::from(distance > 0);
                }
                if found.certified_horizon.is_some_and(|d| distance > d) {
                    assert!(*weight == 0.0, "{} {family}: {weight} at {distance}: {found:?} {bias:?}", plan.key());
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
    let mut raw = |n: &[f64]| dot(&q, &weights.project(&spec, head.head, false, n));
    let (high, low) = (raw(&best), raw(&worst));
    let random_keys = (0..length).map(|_| {
        let x: Vec<f64> = (0..spec.width).map(|_| random.normal()).collect();
        raw(&toy::normalise(&x, &spec.block.norm))
    });
    let random_keys: Vec<f64> = random_keys.collect();
    let middle = length / 2;
    let split = |near: f64, far: f64| -> Vec<f64> {
        (0..length).map(|key| if key.abs_diff(middle) < 2 || key + 2 >= length { near } else { far }).collect()
    };
    vec![random_keys, split(high, low), split(low, high)]
}

// ---- the one trained ALiBi decoder there is ----

fn shared_data() -> PathBuf {
    std::env::var_os("SNELLEN_SHARED_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    )
}

/// `data/README.md`: "Certified horizons of its first layer's head 0 (f32, norm bound): guaranteed visible to 58, provably
/// blind past 357."
#[test]
fn alilama_first_head() {
    let path = shared_data().join("models/alilama/alilama_batches_512_470K.safetensors");
    let Ok(bytes) = std::fs::read(&path) else {
        eprintln!("SKIPPED: {} not found", path.display());
        return;
    };
    let (spec, weights) = alilama(&bytes);
    let plan = PrecisionPlan::parse("ieee", Family::Custom).unwrap();
    let input = CertificateInput { plan: &plan, bias: &spec.alibi.bias, length: 128, causal: true };
    let norm = static_bounds(&spec, &weights, &NORM_ONLY).unwrap();
    let found = certify(&norm[0], &input);
    assert_eq!((found.guaranteed_visible, found.certified_horizon), (Some(58), Some(357)), "{:?}", norm[0]);
    // The values of a full SVD: G = 74.89761497860806, R = 37.69838077112737 (numpy 2, linalg.norm(Wq @ Wk.T ..., 2)).
    assert!((norm[0].gap_bound / 74.897_614_978_608_06 - 1.0).abs() < 2e-6, "{}", norm[0].gap_bound);
    assert!((norm[0].score_bound / 37.698_380_771_127_37 - 1.0).abs() < 2e-6, "{}", norm[0].score_bound);
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
        let floats = data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        Weight::new(shape.to_vec(), floats.collect())
    };
    let mut weights = BTreeMap::from([(WeightRole::Embedding, tensor("embed.weight", &[4000, 64]))]);
    for layer in 0..4 {
        for (role, name, shape) in [
            (LayerRole::Norm1Weight, "norm1.weight", vec![64]),
            (LayerRole::Norm1Bias, "norm1.bias", vec![64]),
            (LayerRole::QueryWeight, "MHSA.q.weight", vec![64, 64]),
            (LayerRole::KeyWeight, "MHSA.k.weight", vec![64, 64]),
        ] {
            weights.insert(WeightRole::Layer(layer, role), tensor(&format!("blocks.{layer}.{name}"), &shape));
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
        ..Toy::new(5)
    };
    let mut weights = toy.source();
    let one = weights.0.clone();
    for layer in 1..24 {
        for (role, weight) in &one {
            if let WeightRole::Layer(_, role) = role {
                weights.0.insert(WeightRole::Layer(layer, *role), weight.clone());
            }
        }
    }
    let spec = Toy { n_layers: 24, ..toy }.spec();
    let start = std::time::Instant::now();
    let bounds = static_bounds(&spec, &weights, &NORM_ONLY).unwrap();
    let bounded = start.elapsed();
    let plans = ["ieee", "ftz", "hf-eager:bf16"].map(|p| PrecisionPlan::parse(p, Family::Bloom).unwrap());
    let start = std::time::Instant::now();
    let mut found = Vec::new();
    for plan in &plans {
        let input = CertificateInput { plan, bias: &spec.alibi.bias, length: 2048, causal: true };
        found.extend(bounds.iter().map(|head| certify(head, &input)));
    }
    eprintln!("bounds of {} heads {bounded:?}, {} certificates {:?}", bounds.len(), found.len(), start.elapsed());
    eprintln!("{:?}\n{:?}\n{:?}", bounds[0], found[0], found[384 * 2]);
    for (format, name) in [(Format::F32, "f32"), (Format::F16, "f16"), (Format::Bf16, "bf16")] {
        eprintln!("{name}: projections move a score by up to {} nats", bounds[0].rounding.nats(format));
    }
    assert_eq!(bounds.len(), 384);
}
