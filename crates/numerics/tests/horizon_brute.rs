//! The closed forms against the emulation, pair by pair, for every plan, family, dtype, remedy, criterion and mask.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use snellen_numerics::{
    BiasForm, BiasFunction, Criterion, Family, HeadHorizon, HorizonInput, PlanName, PrecisionPlan,
    RowInput, emulate_row_with, horizon,
};

/// What enumeration finds.
#[derive(Debug, PartialEq)]
struct Enumerated {
    blind_pairs: u128,
    pairs: u128,
    blind_last_row: u64,
    first_blind: Option<f64>,
    last_visible: Option<u64>,
    nan_rows: u64,
}

fn enumerate(input: &HorizonInput<'_>, head: usize) -> Enumerated {
    let length = input.length as usize;
    let raw_scores = vec![0.0; length];
    let mut found = Enumerated {
        blind_pairs: 0,
        pairs: 0,
        blind_last_row: 0,
        first_blind: None,
        last_visible: None,
        nan_rows: 0,
    };
    for query in 0..length {
        let n_keys = if input.causal { query + 1 } else { length };
        let row = emulate_row_with(
            input.plan,
            &RowInput {
                raw_scores: &raw_scores[..n_keys],
                scale: input.scale_before,
                head,
                slope: input.slopes[head],
                bias: input.bias,
                query,
                causal: input.causal,
                length,
            },
            input.criterion,
        );
        found.pairs += n_keys as u128;
        found.blind_last_row = 0;
        if row.weights.iter().any(|w| w.is_nan()) {
            found.nan_rows += 1;
            continue;
        }
        for (key, weight) in row.weights.iter().enumerate() {
            let distance = query.abs_diff(key);
            if *weight == 0.0 {
                found.blind_last_row += 1;
                let d = distance as f64;
                found.first_blind = Some(found.first_blind.map_or(d, |first| first.min(d)));
            } else {
                found.last_visible = found.last_visible.max(Some(distance as u64));
            }
        }
        found.blind_pairs += u128::from(found.blind_last_row);
    }
    found
}

fn check(input: &HorizonInput<'_>, context: &str) {
    let heads: Vec<HeadHorizon> = match horizon(input) {
        Ok(heads) => heads,
        Err(error) => panic!("{context}: {error}"),
    };
    for (head, got) in heads.iter().enumerate() {
        let truth = enumerate(input, head);
        let counted = Enumerated {
            blind_pairs: got.blind_pairs,
            pairs: got.pairs,
            blind_last_row: got.blind_last_row,
            // Of longer sequences there is nothing to compare with.
            first_blind: got.first_blind_distance.filter(|_| got.blind_pairs > 0),
            last_visible: got.last_visible_distance,
            nan_rows: got.nan_rows,
        };
        assert_eq!(counted, truth, "{context}, slope {}", input.slopes[head]);
    }
}

fn remedies() -> Vec<BiasFunction> {
    [
        "none",
        "log",
        "sqrt",
        "nope",
        "clamp=-12",
        "clamp=-90",
        "cap=5",
        "cap-after=9",
        "cap-after=60",
        "interpolate=0.5",
        "clamp=-30+log+cap=4",
        "sqrt+cap-after=30",
    ]
    .iter()
    .map(|text| BiasFunction::parse_remedy(text).unwrap().bias)
    .collect()
}

fn every_plan(mut with: impl FnMut(&PrecisionPlan, &str)) {
    for name in PlanName::ALL {
        for dtype in name.dtypes() {
            let mut seen: Vec<PrecisionPlan> = Vec::new();
            for family in Family::ALL {
                let Ok(plan) = PrecisionPlan::build(name, *dtype, family) else {
                    continue;
                };
                // Families that a runtime treats alike need no second look.
                let mut bare = plan.clone();
                bare.steps.clear();
                if !seen.contains(&bare) {
                    seen.push(bare);
                    with(&plan, &format!("{}:{dtype} {family}", name.name()));
                }
            }
        }
    }
}

const CRITERIA: [Criterion; 3] = [Criterion::Plan, Criterion::Exp, Criterion::Weight];

#[test]
fn every_plan_remedy_criterion_and_mask() {
    let remedies = remedies();
    // Steep slopes, so that short rows go blind; the odd ones are not exact in 16 bits.
    let slopes = [0.37, 2.9, 21.3];
    every_plan(|plan, name| {
        for bias in &remedies {
            for criterion in CRITERIA {
                for (length, causal) in [(71, true), (45, false)] {
                    let input = HorizonInput {
                        slopes: &slopes,
                        scale_before: 0.3,
                        bias,
                        plan,
                        criterion,
                        length,
                        causal,
                    };
                    check(
                        &input,
                        &format!("{name} {bias} {criterion:?} length {length} causal {causal}"),
                    );
                }
            }
        }
    });
}

#[test]
fn plain_bias_at_lengths_with_several_blocks() {
    let bias = BiasFunction::linear();
    let slopes = [0.5_f64.powf(0.25), 0.17, 0.0625];
    every_plan(|plan, name| {
        for criterion in CRITERIA {
            for (length, causal) in [
                (1, true),
                (2, false),
                (384, true),
                (530, true),
                (270, false),
            ] {
                let input = HorizonInput {
                    slopes: &slopes,
                    scale_before: 0.125,
                    bias: &bias,
                    plan,
                    criterion,
                    length,
                    causal,
                };
                check(
                    &input,
                    &format!("{name} {criterion:?} length {length} causal {causal}"),
                );
            }
        }
    });
}

#[test]
fn longer_rows_of_the_streaming_plans() {
    // 512-key blocks: three of them, and a row's own block only partly full.
    let bias = BiasFunction::linear();
    for (spec, family) in [
        ("hf-sdpa:f32", Family::Falcon),
        ("hf-sdpa:bf16", Family::Bloom),
        ("hf-sdpa:f16", Family::Bloom),
        ("hf-sdpa:f32", Family::Custom),
        ("vllm-triton:f16", Family::Bloom),
        ("vllm-triton:bf16", Family::Bloom),
        ("vllm-triton:f32", Family::Bloom),
    ] {
        let plan = PrecisionPlan::parse(spec, family).unwrap();
        let input = HorizonInput {
            slopes: &[0.06, 0.25],
            scale_before: 1.0,
            bias: &bias,
            plan: &plan,
            criterion: Criterion::Plan,
            length: 1900,
            causal: true,
        };
        check(&input, &format!("{spec} {family}"));
    }
}

#[test]
fn overrides_change_the_scores_of_real_plans() {
    let bias = BiasFunction::linear();
    fn input<'a>(bias: &'a BiasFunction, plan: &'a PrecisionPlan) -> HorizonInput<'a> {
        HorizonInput {
            slopes: &[0.5, 0.05],
            scale_before: 1.0,
            bias,
            plan,
            criterion: Criterion::Plan,
            length: 600,
            causal: true,
        }
    }
    let base = PrecisionPlan::parse("hf-eager:bf16", Family::Mpt).unwrap();
    for form in [BiasForm::KeyPosition, BiasForm::Relative] {
        for storage in snellen_numerics::Format::ALL {
            let plan = base.clone().with_bias_form(form).with_bias_storage(storage);
            check(&input(&bias, &plan), &format!("MPT {form:?} {storage}"));
        }
    }
    let coarse = base
        .clone()
        .with_bias_storage(snellen_numerics::Format::Fp8E5m2);
    let (fine, coarse) = (
        horizon(&input(&bias, &base)).unwrap(),
        horizon(&input(&bias, &coarse)).unwrap(),
    );
    assert_ne!(fine[0].blind_pairs, coarse[0].blind_pairs);
    assert!(!base.shares_scores_with(&base.clone().with_bias_form(BiasForm::Relative)));
}

#[test]
fn a_bias_that_is_not_monotone_is_enumerated() {
    let table = vec![vec![0.0, -3.0, 2.0, -200.0, -1.0, -150.0, 4.0, -90.0]];
    let bias = BiasFunction::with_shape(snellen_numerics::BiasShape::T5Buckets {
        n_buckets: 8,
        max_distance: 32,
        bidirectional: false,
        table,
    });
    assert!(!bias.is_monotone());
    let plan = PrecisionPlan::parse("ieee", Family::Custom).unwrap();
    let input = HorizonInput {
        slopes: &[0.5],
        scale_before: 1.0,
        bias: &bias,
        plan: &plan,
        criterion: Criterion::Plan,
        length: 120,
        causal: true,
    };
    check(&input, "T5");
    assert!(horizon(&input).unwrap()[0].blind_pairs > 0);
    assert!(
        horizon(&HorizonInput {
            length: 1 << 20,
            ..input
        })
        .is_err()
    );
}
