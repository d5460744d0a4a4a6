//! Precision plans: reading them, what they resolve to, their zero rules, and their scores on the fast path.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use snellen_numerics::{
    BiasForm, BiasFunction, BiasPlacement, BiasShape, BlockOrder, Criterion, Family, Format,
    KeyOrigin, MaxReference, PlanName, PrecisionPlan, RowInput, ScaleOrder, ScoreSpec, emulate_row,
    plan_names, reference,
};

/// Numbers without structure, the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[-1, 1)`.
    fn signed(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

fn every_plan(mut with: impl FnMut(&PrecisionPlan, &str)) {
    for name in PlanName::ALL {
        for dtype in name.dtypes() {
            for family in Family::ALL {
                if let Ok(plan) = PrecisionPlan::build(name, *dtype, family) {
                    with(&plan, &format!("{}:{dtype} {family}", name.name()));
                }
            }
        }
    }
}

fn remedies() -> Vec<BiasFunction> {
    let mut all: Vec<BiasFunction> = [
        "none",
        "log",
        "sqrt",
        "nope",
        "clamp=-12",
        "cap=5",
        "cap-after=9",
        "interpolate=0.3",
        "clamp=-30+log+cap=4",
    ]
    .iter()
    .map(|text| BiasFunction::parse_remedy(text).unwrap().bias)
    .collect();
    all.push(BiasFunction::with_shape(BiasShape::T5Buckets {
        n_buckets: 8,
        max_distance: 32,
        bidirectional: true,
        table: vec![vec![0.3, -1.7, 2.1, -9.3, 0.25, -0.6, 1.9, -4.4]],
    }));
    all
}

#[test]
fn names_and_keys() {
    assert_eq!(plan_names().len(), 13);
    for name in plan_names() {
        let parsed = PrecisionPlan::parse(name, Family::Bloom);
        if *name == "flash-attn2" {
            let error = parsed.unwrap_err().to_string();
            assert!(
                error.contains("flash-attn2:f16") && error.contains("flash-attn2:bf16"),
                "{error}"
            );
            continue;
        }
        let plan = parsed.unwrap();
        assert_eq!(plan.key(), *name);
        assert!(!plan.steps.is_empty(), "{name} has steps");
        assert!(
            plan.steps.iter().all(|step| !step.source.is_empty()),
            "{name} has sources"
        );
    }
    // f32 when not said; the key is what the user wrote.
    let plan = PrecisionPlan::parse("ftz", Family::Bloom).unwrap();
    assert_eq!((plan.dtype, plan.key()), (Format::F32, "ftz"));
    let plan = PrecisionPlan::parse(" hf-eager:bfloat16 ", Family::Bloom).unwrap();
    assert_eq!(
        (plan.dtype, plan.key()),
        (Format::Bf16, "hf-eager:bfloat16")
    );
    // llama.cpp's cache is f16.
    let plan = PrecisionPlan::parse("llama-cpp-cpu", Family::Bloom).unwrap();
    assert_eq!((plan.dtype, plan.key()), (Format::F16, "llama-cpp-cpu"));
}

#[test]
fn refusals_say_what_to_write() {
    let error = |spec: &str, family| PrecisionPlan::parse(spec, family).unwrap_err().to_string();
    assert!(
        error("flash-attn2:f32", Family::Bloom)
            .contains("write flash-attn2:f16 or flash-attn2:bf16")
    );
    assert!(error("f64:f32", Family::Bloom).contains("f64:f64"));
    assert!(error("ieee:f7", Family::Bloom).contains("unknown dtype \"f7\""));
    assert!(error("hf-eager:fp8-e4m3", Family::Bloom).contains("hf-eager:f32"));
    assert!(error("nonsense", Family::Bloom).contains("llama-cpp-cuda-fa"));
    assert!(error("llama-cpp-cuda-fa:bf16", Family::Bloom).contains("llama-cpp-cuda-fa:f16"));
    assert!(error("llama-cpp-cpu", Family::Falcon).contains("refuses Falcon"));
}

#[test]
fn families_differ_under_eager() {
    let plan = |spec, family| PrecisionPlan::parse(spec, family).unwrap();
    let bloom = plan("hf-eager:bf16", Family::Bloom);
    assert_eq!(
        (bloom.sum, bloom.bias.storage, bloom.bias.form),
        (Format::Bf16, Format::Bf16, BiasForm::KeyPosition)
    );
    let mpt = plan("hf-eager:bf16", Family::Mpt);
    assert_eq!(
        (mpt.sum, mpt.bias.storage, mpt.raw_score),
        (Format::F32, Format::F32, Format::Bf16)
    );
    let falcon = plan("hf-eager:f32", Family::Falcon);
    assert_eq!(
        (falcon.bias_multiplicity, falcon.placement),
        (2, BiasPlacement::BeforeScale)
    );
    assert_eq!(
        (falcon.bias.position, falcon.bias.product),
        (Format::Bf16, Format::Bf16)
    );
    assert_eq!(plan("hf-sdpa:f32", Family::Falcon).bias_multiplicity, 1);
    let jais = plan("hf-eager:bf16", Family::Jais);
    assert_eq!(
        (jais.slope, jais.bias.form),
        (Format::Bf16, BiasForm::Relative)
    );
}

#[test]
fn thresholds_of_the_runtimes() {
    // docs/NUMERICS.md, Thresholds: what runtimes do.
    let nats = |spec: &str| {
        let plan = PrecisionPlan::parse(spec, Family::Mpt).unwrap();
        (plan.numerator_zero_nats(), plan.weight_zero_nats())
    };
    let near =
        |got: f64, expected: f64| assert!((got - expected).abs() < 0.006, "{got} {expected}");
    near(nats("f64").0, 745.13);
    near(nats("ieee").0, 103.97);
    near(nats("ieee:bf16").0, 92.88);
    near(nats("ftz").0, 87.34);
    near(nats("ftz:bf16").0, 87.34);
    near(nats("ieee:f16").0, 17.33);
    near(nats("hf-eager:f32").0, 103.97);
    near(nats("hf-eager:f32").1.unwrap(), 103.97);
    near(nats("hf-eager:bf16").1.unwrap(), 92.88);
    near(nats("hf-eager:f16").1.unwrap(), 17.33);
    near(nats("hf-sdpa:f32").0, 86.99);
    near(nats("hf-sdpa:bf16").0, 87.34);
    near(nats("hf-sdpa:f16").0, 17.33);
    near(nats("flash-attn2:f16").0, 17.33);
    near(nats("flash-attn2:bf16").0, 87.34);
    near(nats("llama-cpp-cpu").1.unwrap(), 17.33);
    near(nats("llama-cpp-cpu").0, 103.97);
    near(nats("llama-cpp-cuda-fa").0, 15.25);
    near(nats("vllm-paged:f16").1.unwrap(), 17.33);
    assert_eq!(nats("flash-attn2:f16").1, None);
    // https://github.com/tensorflow/tensorflow/issues/36514, as plans: exp(-103.5) is kept, exp(-104) is not;
    // flushed, exp(-87.4) is not.
    let ieee = PrecisionPlan::parse("ieee", Family::Custom).unwrap();
    assert!(!ieee.is_zero(103.5, 0.0) && ieee.is_zero(104.0, 0.0));
    let ftz = PrecisionPlan::parse("ftz", Family::Custom).unwrap();
    assert!(!ftz.is_zero(87.0, 0.0) && ftz.is_zero(87.4, 0.0));
}

#[test]
fn block_orders() {
    let order = |spec| match PrecisionPlan::parse(spec, Family::Bloom)
        .unwrap()
        .max_reference
    {
        MaxReference::Running { order, .. } => Some(order),
        MaxReference::Final => None,
    };
    assert_eq!(order("flash-attn2:f16"), Some(BlockOrder::NewestFirst));
    assert_eq!(order("vllm-triton:f16"), Some(BlockOrder::OldestFirst));
    assert_eq!(order("hf-sdpa"), Some(BlockOrder::OldestFirst));
    assert_eq!(order("hf-eager"), None);
}

/// Gaps of many sums against those of one: the same to the roundings of two logarithms.
#[test]
fn zero_rules_of_many_sums() {
    every_plan(|plan, name| {
        for criterion in [Criterion::Plan, Criterion::Weight] {
            let rule = plan.zero_rule(criterion);
            for first in [1.0, 1.3, 7.0, 333.25, 65_536.5] {
                let sums: [f64; 4] = std::array::from_fn(|i| first * (1.0 + 0.37 * i as f64));
                let near = sums.map(|sum| sum * (1.0 + 1e-6));
                let gaps = rule.gaps([&sums, &near], &sums.map(f64::ln));
                for (sums, gaps) in [sums, near].iter().zip(gaps) {
                    for (&sum, gap) in sums.iter().zip(gaps) {
                        let expected = rule.gap(sum);
                        if let Some(bounds) = rule.bounds(first) {
                            let [low, high] = bounds.of(sum.ln());
                            let holds = low <= expected && expected <= high;
                            assert!(
                                holds && high - low < 8e-6,
                                "{name}: {low} {expected} {high}"
                            );
                        }
                        assert!(
                            (gap - expected).abs() <= 1e-14 * (1.0 + expected.abs()),
                            "{name}, {criterion:?}, sum {sum}: {gap}, {expected} expected"
                        );
                    }
                }
            }
        }
    });
}

/// The zero rule against the emulation, with random content. They may disagree only where the rounding of the exponential
/// decides: the gap differs from the limit by less than a few f32 ulps of the gap, plus the half ulp by which the numerator
/// can be rounded where it is a normal number.
#[test]
fn zero_rule_and_emulation() {
    let mut random = Random(7);
    let bias = BiasFunction::linear();
    let length = 96;
    let mut compared = 0_u64;
    let mut on_edge = 0_u64;
    every_plan(|plan, name| {
        if matches!(plan.max_reference, MaxReference::Running { .. }) {
            // One block or the newest first with the diagonal's content: see the horizon tests for the rest.
            return;
        }
        for slope in [0.21, 0.9, 1.7] {
            for spread in [0.0, 2.0, 30.0] {
                let raw_scores: Vec<f64> = (0..length)
                    .map(|_| f64::from((spread * random.signed()) as f32))
                    .collect();
                let row = emulate_row(
                    plan,
                    &RowInput {
                        raw_scores: &raw_scores,
                        scale: 0.5,
                        head: 0,
                        slope,
                        bias: &bias,
                        query: length - 1,
                        causal: true,
                        length,
                    },
                );
                let gaps: Vec<f64> = row
                    .scores
                    .iter()
                    .map(|s| plan.rounded_gap(row.max, *s))
                    .collect();
                let ln_sum = gaps.iter().map(|gap| (-gap).exp()).sum::<f64>().ln();
                let limit = plan.zero_gap(Criterion::Plan, ln_sum);
                // Sum and numerator are rounded once each; a narrow exponential format rounds its sum coarsely.
                let band = 4.0 * Format::F32.ulp(limit)
                    + 2.0 * plan.accumulator.unit_roundoff()
                    + 2.0 * plan.exp.format.unit_roundoff().min(1e-3);
                for (gap, weight) in gaps.iter().zip(&row.weights) {
                    compared += 1;
                    if (gap - limit).abs() <= band {
                        on_edge += 1;
                        continue;
                    }
                    assert_eq!(
                        plan.is_zero(*gap, ln_sum),
                        *weight == 0.0,
                        "{name} slope {slope} gap {gap} limit {limit} weight {weight}"
                    );
                }
            }
        }
    });
    assert!(
        on_edge * 1000 < compared,
        "{on_edge} of {compared} pairs left out"
    );
}

#[test]
fn score_path_is_the_score_bit_for_bit() {
    let mut random = Random(11);
    let length = 40_usize;
    every_plan(|plan, name| {
        for bias in &remedies() {
            for (causal, scale) in [
                (true, 0.125),
                (true, 0.108_253_175_473_054_83),
                (false, 0.2),
            ] {
                let spec = ScoreSpec {
                    bias,
                    head: 0,
                    slope: 0.734,
                    scale,
                    causal,
                    length: length as u64,
                };
                let path = plan.score_path(&spec);
                for query in [0, 17, length - 1] {
                    let n_keys = if causal { query + 1 } else { length };
                    let raw: Vec<f32> = (0..n_keys)
                        .map(|_| (60.0 * random.signed()) as f32)
                        .collect();
                    let raw_scores: Vec<f64> = raw.iter().map(|r| f64::from(*r)).collect();
                    let row = emulate_row(
                        plan,
                        &RowInput {
                            raw_scores: &raw_scores,
                            scale,
                            head: 0,
                            slope: 0.734,
                            bias,
                            query,
                            causal,
                            length,
                        },
                    );
                    let mut exact = vec![0.0_f64; n_keys];
                    path.row_f64(&raw, query, 0, &mut exact);
                    let mut narrow = vec![0.0_f32; n_keys];
                    path.row(&raw, query, 0, &mut narrow);
                    let scaled: Vec<f32> = if scale == 0.125 && bias.soft_cap.is_none() {
                        raw.iter().map(|r| r * 0.125).collect()
                    } else {
                        Vec::new()
                    };
                    for key in 0..n_keys {
                        let context = || {
                            format!(
                                "{name} {bias} causal {causal} scale {scale} query {query} key {key}"
                            )
                        };
                        assert_eq!(
                            exact[key].to_bits(),
                            row.scores[key].to_bits(),
                            "{}",
                            context()
                        );
                        assert_eq!(
                            narrow[key].to_bits(),
                            (row.scores[key] as f32).to_bits(),
                            "{}",
                            context()
                        );
                        // A scale that is a power of two loses nothing.
                        if let Some(scaled) = scaled.get(key) {
                            assert_eq!(
                                path.entry_scaled(*scaled, query, key).to_bits(),
                                row.scores[key].to_bits(),
                                "{}",
                                context()
                            );
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn score_error_bound_holds() {
    let mut random = Random(5);
    every_plan(|plan, name| {
        for bias in &remedies() {
            for (slope, length, causal) in [
                (0.734, 300_u64, true),
                (0.003, 5000, true),
                (0.2, 700, false),
            ] {
                let scale = 0.108_253_175_473_054_83;
                let spec = ScoreSpec {
                    bias,
                    head: 0,
                    slope,
                    scale,
                    causal,
                    length,
                };
                let score_bound = 20.0;
                let bound = plan.score_error_nats(&spec, score_bound);
                assert!(bound >= 0.0);
                let effective = plan.effective_slope(slope, scale);
                for _ in 0..60 {
                    let query = random.next() % length;
                    let key = if causal {
                        random.next() % (query + 1)
                    } else {
                        random.next() % length
                    };
                    let raw = score_bound / scale * random.signed();
                    let exact = if plan.bias_form(bias, causal) == BiasForm::KeyPosition
                        && !plan.idealised
                    {
                        let position = key as f64
                            + match plan.bias.origin {
                                snellen_numerics::KeyOrigin::Zero => 0.0,
                                snellen_numerics::KeyOrigin::One => 1.0,
                                snellen_numerics::KeyOrigin::LengthEnd => 1.0 - length as f64,
                            };
                        let linear = if bias.shape == BiasShape::None {
                            0.0
                        } else {
                            effective * bias.interpolation * position
                        };
                        match bias.soft_cap {
                            None => raw * scale + linear,
                            Some(cap) if cap.order == snellen_numerics::CapOrder::BeforeBias => {
                                cap.apply(raw * scale) + linear
                            }
                            Some(cap) => cap.apply(raw * scale + linear),
                        }
                    } else {
                        // Outside the ALiBi family the slope does not enter, but the multiplicity does.
                        let distance = query as f64 - key as f64;
                        match bias.shape {
                            BiasShape::T5Buckets { .. } => {
                                raw * scale
                                    + f64::from(plan.bias_multiplicity)
                                        * bias.bias(0, effective, distance)
                            }
                            _ if plan.bias_multiplicity > 1 && bias.clamp.is_some() => continue,
                            _ => bias.combine(0, effective, raw * scale, distance),
                        }
                    };
                    let got = plan.score(&spec, raw, query, key);
                    let error = (got - exact).abs();
                    assert!(
                        error <= bound,
                        "{name} {bias} slope {slope} query {query} key {key}: error {error} above the bound {bound}"
                    );
                }
            }
        }
    });
}

#[test]
fn score_error_is_infinite_where_a_format_overflows() {
    let bias = BiasFunction::linear();
    let spec = |length| ScoreSpec {
        bias: &bias,
        head: 0,
        slope: 0.5,
        scale: 1.0,
        causal: true,
        length,
    };
    let plan = PrecisionPlan::parse("hf-eager:f16", Family::Bloom).unwrap();
    assert!(plan.score_error_nats(&spec(2048), 10.0).is_finite());
    assert_eq!(plan.score_error_nats(&spec(1 << 18), 10.0), f64::INFINITY);
}

#[test]
fn f64_plan_is_the_reference() {
    let mut random = Random(3);
    let raw: Vec<f64> = (0..200).map(|_| 9.0 * random.signed()).collect();
    let plan = PrecisionPlan::parse("f64", Family::Custom).unwrap();
    for bias in &remedies() {
        let truth = reference::softmax_row(&raw, 0.3, 0, 0.4, bias, 150, true);
        let row = emulate_row(
            &plan,
            &RowInput {
                raw_scores: &raw,
                scale: 0.3,
                head: 0,
                slope: 0.4,
                bias,
                query: 150,
                causal: true,
                length: 200,
            },
        );
        for (weight, expected) in row.weights.iter().zip(&truth.weights) {
            assert!((weight / row.divisor - expected).abs() <= 1e-15, "{bias}");
        }
    }
}

/// The streaming kernels give the same attention as a whole-row softmax, up to their formats.
#[test]
fn streaming_changes_weights_little() {
    let mut random = Random(9);
    let raw: Vec<f64> = (0..300).map(|_| 3.0 * random.signed()).collect();
    let bias = BiasFunction::linear();
    for spec in [
        "flash-attn2:f16",
        "flash-attn2:bf16",
        "vllm-triton:f16",
        "flex-attention:bf16",
        "hf-sdpa:f32",
    ] {
        let plan = PrecisionPlan::parse(spec, Family::Custom).unwrap();
        for causal in [true, false] {
            let row = emulate_row(
                &plan,
                &RowInput {
                    raw_scores: &raw,
                    scale: 1.0,
                    head: 0,
                    slope: 0.3,
                    bias: &bias,
                    query: 211,
                    causal,
                    length: 300,
                },
            );
            let truth = reference::softmax_row(&raw, 1.0, 0, 0.3, &bias, 211, causal);
            let u = plan.probability.unit_roundoff();
            for (weight, expected) in row.weights.iter().zip(&truth.weights) {
                // Relative rounding of the probability, f32 errors of the entries (up to 100 nats), and what underflows.
                let tolerance = (u + 1e-4) * expected + 2.0_f64.powi(-24);
                assert!(
                    (weight / row.divisor - expected).abs() <= tolerance,
                    "{spec} causal {causal}: {weight} {expected}"
                );
            }
        }
    }
}

/// A described decoder that scales its bias with the score is one with flatter slopes: exactly so where the scale is a power of two.
#[test]
fn a_bias_that_is_described_as_scaled_has_the_slopes_times_the_scale() {
    let mut random = Random(31);
    let bias = BiasFunction::linear();
    let (scale, slope, length) = (0.125, 0.7, 300_usize);
    let raw: Vec<f64> = (0..length).map(|_| 24.0 * random.signed()).collect();
    let mut scaled = Family::Custom.convention();
    scaled.scale_order = ScaleOrder::BiasBeforeScale;
    for name in PlanName::ALL {
        for &dtype in name.dtypes() {
            let Ok(plain) = PrecisionPlan::build(name, dtype, Family::Custom) else {
                continue;
            };
            let described = plain.clone().with_model_convention(Family::Custom, &scaled);
            assert_eq!(described.key(), plain.key());
            assert_eq!(
                described.effective_slope(slope, scale),
                plain.effective_slope(slope * scale, scale)
            );
            let row = |plan: &PrecisionPlan, slope: f64| {
                let input = RowInput {
                    raw_scores: &raw,
                    scale,
                    head: 0,
                    slope,
                    bias: &bias,
                    query: length - 1,
                    causal: true,
                    length,
                };
                emulate_row(plan, &input)
            };
            let (a, b) = (row(&described, slope), row(&plain, slope * scale));
            assert_eq!(a.scores, b.scores, "{}", plain.key());
            assert_eq!(a.weights, b.weights, "{}", plain.key());
            let far = row(&described, slope).scores[0] - row(&described, 0.0).scores[0];
            let expected = -slope * scale * (length - 1) as f64;
            // From a key-position bias of 0 on the last key.
            let last = a.scores[length - 1] - row(&described, 0.0).scores[length - 1];
            assert!(
                (far - last - expected).abs() < 1.0,
                "{}: {far} {last}",
                plain.key()
            );
        }
    }
}

/// Where a runtime forms the bias as the model does, it follows the description; where it has its own form, it keeps it.
#[test]
fn a_described_form_is_that_of_runtimes_that_have_none_of_their_own() {
    let mut described = Family::Custom.convention();
    described.form = BiasForm::KeyPosition;
    described.key_origin = KeyOrigin::One;
    let path = |text: &str, family: Family| {
        let plan = PrecisionPlan::parse(text, family).unwrap();
        let bias = plan.with_model_convention(family, &described).bias;
        (bias.form, bias.origin)
    };
    let own = (BiasForm::KeyPosition, KeyOrigin::One);
    for text in ["ieee", "hf-eager:bf16", "hf-sdpa:f16"] {
        assert_eq!(path(text, Family::Custom), own, "{text}");
    }
    for text in ["flex-attention", "vllm-paged", "llama-cpp-cpu"] {
        assert_eq!(path(text, Family::Custom).0, BiasForm::Relative, "{text}");
    }
    assert_eq!(path("ieee", Family::Jais), own);
    assert_eq!(path("hf-eager:bf16", Family::Jais).0, BiasForm::Relative);
}

/// Weights that are zero under the plan although the numerator against the final maximum is not, and the other way round.
#[test]
fn old_keys_first_keeps_far_keys() {
    // vLLM's Triton kernel in f16, slope 0.25: a key 100 tokens back is 25 nats below the maximum, beyond f16, but it was
    // weighed against its own tile.
    let bias = BiasFunction::linear();
    let raw = vec![0.0; 128];
    let weights = |spec| {
        let plan = PrecisionPlan::parse(spec, Family::Bloom).unwrap();
        emulate_row(
            &plan,
            &RowInput {
                raw_scores: &raw,
                scale: 1.0,
                head: 0,
                slope: 0.25,
                bias: &bias,
                query: 127,
                causal: true,
                length: 128,
            },
        )
        .weights
    };
    assert!(weights("vllm-triton:f16")[27] > 0.0);
    assert_eq!(weights("flash-attn2:f16")[27], 0.0);
}

#[test]
fn overflow_gives_nan_rows() {
    let bias = BiasFunction::linear();
    let plan = PrecisionPlan::parse("hf-eager:f16", Family::Bloom).unwrap();
    let length = 700;
    let raw = vec![0.0; length];
    let row = |query: usize| {
        emulate_row(
            &plan,
            &RowInput {
                raw_scores: &raw[..=query],
                scale: 1.0,
                head: 0,
                slope: 100.0,
                bias: &bias,
                query,
                causal: true,
                length,
            },
        )
        .weights
    };
    // 100 * 655 = 65500 is below 65520, 100 * 656 is not.
    assert!(row(655).iter().all(|w| !w.is_nan()));
    assert!(row(656).iter().any(|w| w.is_nan()));
}

/// Scoring a row is the inner loop of gathering evidence: it must cost a few cycles a pair, not an emulation.
#[test]
fn rows_agree_with_entries_at_every_offset() {
    let mut random = Random(21);
    let bias = BiasFunction::linear();
    let length = 67_usize;
    every_plan(|plan, name| {
        let spec = ScoreSpec {
            bias: &bias,
            head: 0,
            slope: 0.41,
            scale: 0.25,
            causal: true,
            length: length as u64,
        };
        let path = plan.score_path(&spec);
        let raw: Vec<f32> = (0..length)
            .map(|_| (40.0 * random.signed()) as f32)
            .collect();
        let scaled: Vec<f32> = raw.iter().map(|r| r * 0.25).collect();
        for (query, first, last) in [
            (66, 0, 67),
            (66, 13, 40),
            (30, 5, 31),
            (9, 9, 10),
            (9, 3, 3),
        ] {
            let mut from_raw = vec![0.0; last - first];
            let mut from_scaled = vec![0.0; last - first];
            path.row(&raw[first..last], query, first, &mut from_raw);
            path.row_scaled(&scaled[first..last], query, first, &mut from_scaled);
            for (offset, key) in (first..last).enumerate() {
                let entry = plan.score(&spec, f64::from(raw[key]), query as u64, key as u64) as f32;
                assert_eq!(
                    from_raw[offset].to_bits(),
                    entry.to_bits(),
                    "{name} {query} {key}"
                );
                assert_eq!(
                    from_scaled[offset].to_bits(),
                    entry.to_bits(),
                    "{name} {query} {key}"
                );
            }
        }
    });
}

/// What torch 2.15's CPU SDPA does with rows of several 512-key blocks. Recipe (run once): q = 0, k = 0, attn_mask = -m d,
/// V one-hot times a constant, last query; f32 with V = 1, f16 with V = 2^15 so that the cast of the output hides nothing.
#[test]
fn sdpa_blocks_as_torch_has_them() {
    let bias = BiasFunction::linear();
    let first_zero = |spec: &str, slope: f64, length: usize| {
        let plan = PrecisionPlan::parse(spec, Family::Custom).unwrap();
        let row = emulate_row(
            &plan,
            &RowInput {
                raw_scores: &vec![0.0; length],
                scale: 1.0,
                head: 0,
                slope,
                bias: &bias,
                query: length - 1,
                causal: true,
                length,
            },
        );
        row.weights.iter().rev().position(|w| *w == 0.0)
    };
    // One block: the flush of the vector exp. torch: 174 in f32, 175 in bf16, 35 in f16.
    assert_eq!(first_zero("hf-sdpa:f32", 0.5, 400), Some(174));
    assert_eq!(first_zero("hf-sdpa:bf16", 0.5, 400), Some(175));
    assert_eq!(first_zero("hf-sdpa:f16", 0.5, 400), Some(35));
    // Steep slope, several blocks: the rescaling itself flushes. torch: 174, 348.
    assert_eq!(first_zero("hf-sdpa:f32", 0.5, 2048), Some(174));
    assert_eq!(first_zero("hf-sdpa:f32", 0.25, 2048), Some(348));
    // 1/16: 93.7 nats at the far end, past the flush, yet nothing is lost, since each block met its own maximum. torch: none.
    assert_eq!(first_zero("hf-sdpa:f32", 0.0625, 1500), None);
    // The last block has 52 keys; 278 keys back into the one before, its oldest are 17.4 nats below its newest. torch: 330.
    assert_eq!(first_zero("hf-sdpa:f16", 0.0625, 2100), Some(330));
}

/// FlashAttention-2 takes 128 keys a block at head width 64 and 64 at 128; no other plan depends on the width.
#[test]
fn flash_blocks_follow_the_head_width() {
    let block = |plan: PrecisionPlan| match plan.max_reference {
        MaxReference::Running { key_block, .. } => Some(key_block),
        MaxReference::Final => None,
    };
    let flash = PrecisionPlan::parse("flash-attn2:f16", Family::Bloom).unwrap();
    assert_eq!(block(flash.clone().for_head_width(64)), Some(128));
    assert_eq!(block(flash.clone().for_head_width(128)), Some(64));
    assert_eq!(flash.clone().for_head_width(64), flash);
    let other = PrecisionPlan::parse("vllm-triton:f16", Family::Bloom).unwrap();
    assert_eq!(other.clone().for_head_width(256), other);
}
