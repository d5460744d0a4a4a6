//! Tables against the definition of an entry.

use super::*;
use crate::evidence::distance::Offsets;
use crate::evidence::row::{assemble, cut, valid_runs};
use numerics::{Family, RowPlace, SoftCap};

/// Every plan, family and a few biases: the same bits as the scalar definition, and bounds that hold.
#[test]
fn entries_equal_the_scalar_score_of_every_plan() {
    let n = 150;
    let mut seed = 1_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((seed >> 40) as f32 / (1 << 24) as f32 - 0.5) * 20.0
    };
    let biases = [
        BiasFunction::linear(),
        BiasFunction {
            clamp: Some(-12.0),
            ..BiasFunction::linear()
        },
        BiasFunction::with_shape(BiasShape::Log),
        BiasFunction {
            soft_cap: Some(SoftCap {
                cap: 15.0,
                order: CapOrder::AfterBias,
            }),
            ..BiasFunction::linear()
        },
        BiasFunction {
            soft_cap: Some(SoftCap {
                cap: 15.0,
                order: CapOrder::BeforeBias,
            }),
            ..BiasFunction::linear()
        },
    ];
    let mut tried = 0;
    for family in Family::ALL {
        for name in numerics::plan::PlanName::ALL {
            for &dtype in name.dtypes() {
                let Ok(plan) = PrecisionPlan::build(name, dtype, family) else {
                    continue;
                };
                for bias in &biases {
                    let causal = family.convention().causal;
                    let spec = ScoreSpec {
                        bias,
                        head: 0,
                        slope: 0.17,
                        scale: 0.125,
                        causal,
                        length: n as u64,
                    };
                    let table = ScoreTable::of_plan(&plan, &spec);
                    let path = plan.score_path(&spec);
                    let capped = |raw: f64| match bias.soft_cap {
                        Some(cap) if cap.order == CapOrder::BeforeBias => cap.apply(raw),
                        _ => raw,
                    };
                    let query = 100;
                    let end = if causal { query + 1 } else { n };
                    let raw: Vec<f32> = (0..end)
                        .map(|_| capped(f64::from(random())) as f32)
                        .collect();
                    let mut chunks = Vec::new();
                    let pairs = cut(query, &raw, end, &valid_runs(n, None), CHUNK, &mut chunks);
                    let place = RowPlace {
                        query,
                        length: n,
                        causal,
                    };
                    let row = assemble(Offsets::new(n, causal), place, &raw, &chunks, pairs);
                    let mut bounds = Vec::new();
                    if table.is_wide() {
                        table.bounds::<f64>(&row, &mut bounds);
                    } else {
                        table.bounds::<f32>(&row, &mut bounds);
                    }
                    for (chunk, &(low, high)) in chunks.iter().zip(&bounds) {
                        let mut scores = vec![0.0; chunk.len()];
                        if table.is_wide() {
                            table.entries(&row, chunk, &mut scores);
                        } else {
                            let mut narrow = vec![0.0_f32; chunk.len()];
                            table.entries(&row, chunk, &mut narrow);
                            scores = narrow.into_iter().map(f64::from).collect();
                        }
                        for (key, score) in chunk.keys().zip(scores) {
                            let expected = path.entry_scaled(raw[key], query, key);
                            assert_eq!(
                                score,
                                expected,
                                "{family} {} {bias:?} key {key}",
                                plan.key()
                            );
                            assert!(
                                low <= score && score <= high,
                                "{family} {} {bias:?} key {key}",
                                plan.key()
                            );
                        }
                    }
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 1000, "only {tried} combinations");
}
