//! Evidence against a plain loop over all pairs: `numerics::emulate_row` for blindness, an f64 softmax for the rest.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Head, Recording, record};
use numerics::{
    Criterion, Family, PlanName, PrecisionPlan, RowInput, emulate_row, emulate_row_with,
};
use snellen_audit::evidence::{Evidence, PlanEvidence, distance_edges};

/// Blind pairs of a head by a loop over all pairs: numerator, weight, own rule; and the own rule's by distance.
struct Brute {
    numerator: u64,
    weight: u64,
    blind_by_distance: Vec<u64>,
    pairs_by_distance: Vec<u64>,
    /// Sums to 1; empty if every row overflows.
    mass_by_distance: Vec<f64>,
}

fn brute(recording: &Recording, head: &Head, plan: &PrecisionPlan) -> Brute {
    let n = head.rows.len();
    let mut brute = Brute {
        numerator: 0,
        weight: 0,
        blind_by_distance: vec![0; n],
        pairs_by_distance: vec![0; n],
        mass_by_distance: vec![0.0; n],
    };
    for (query, raw) in head.rows.iter().enumerate() {
        let raw: Vec<f64> = raw
            .iter()
            .map(|&raw| f64::from(raw) / f64::from(recording.scale))
            .collect();
        let input = RowInput {
            raw_scores: &raw,
            scale: f64::from(recording.scale),
            head: head.index,
            slope: head.slope,
            bias: &recording.bias,
            query,
            causal: recording.causal,
            length: n,
        };
        let zeros =
            |weights: &[f64]| weights.iter().filter(|&&weight| weight == 0.0).count() as u64;
        brute.numerator += zeros(&emulate_row_with(plan, &input, Criterion::Exp).weights);
        brute.weight += zeros(&emulate_row_with(plan, &input, Criterion::Weight).weights);
        let row = emulate_row(plan, &input);
        for (key, &weight) in row.weights.iter().enumerate() {
            brute.pairs_by_distance[query.abs_diff(key)] += 1;
            brute.blind_by_distance[query.abs_diff(key)] += u64::from(weight == 0.0);
            if row.max.is_finite() {
                brute.mass_by_distance[query.abs_diff(key)] += weight / row.divisor;
            }
        }
    }
    let total: f64 = brute.mass_by_distance.iter().sum();
    for mass in &mut brute.mass_by_distance {
        *mass /= total;
    }
    brute
}

fn check(evidence: &Evidence, recording: &Recording, plans: &[PrecisionPlan], label: &str) -> u64 {
    let mut blind = 0;
    for head in &recording.heads {
        let n = head.rows.len();
        // The last edge is the length the collector was made for, padding included.
        let edges = distance_edges(evidence.length);
        let found = evidence.head(0, head.index).unwrap();
        for plan in plans {
            let label = format!("{label}, slope {}, plan {}", head.slope, plan.key());
            let found = found.plan(plan.key()).unwrap();
            let brute = brute(recording, head, plan);
            let pairs: u64 = brute.pairs_by_distance.iter().sum();
            let total: u64 = brute.blind_by_distance.iter().sum();
            assert_eq!(found.pairs, pairs, "{label}");
            // Only pairs within 2^-16 nats of the threshold may be decided otherwise, and they must be next to none: entries
            // are spread over tens of nats or, in 16 bits, sit on a grid that avoids the thresholds.
            assert!(
                found.undecided_pairs <= pairs / 10_000,
                "{label}: {} undecided",
                found.undecided_pairs
            );
            let off = found.undecided_pairs;
            let near = |a: u64, b: u64| a.abs_diff(b) <= off;
            assert!(
                near(found.blind_pairs, total),
                "{label}: {} blind, {total} expected",
                found.blind_pairs
            );
            // The bare criteria have no undecided count of their own. In fp8 numerators and sum are so coarse that a quotient
            // can hit the limit of flushing exactly, where the closed-form threshold calls it zero: one row in some hundreds.
            let near = |a: u64, b: u64| a.abs_diff(b) <= off + pairs / 20_000;
            assert!(
                near(found.blind_numerator, brute.numerator),
                "{label}: numerators {} {}",
                found.blind_numerator,
                brute.numerator
            );
            assert!(
                near(found.blind_weight, brute.weight),
                "{label}: weights {} {}",
                found.blind_weight,
                brute.weight
            );
            let within = |edge: &[u64]| {
                let (from, to) = ((edge[0] as usize).min(n), (edge[1] as usize).min(n));
                brute.mass_by_distance[from..to].iter().sum::<f64>()
            };
            let mass: Vec<f64> = edges.windows(2).map(within).collect();
            // A plan that only casts its probabilities repeats the head's histogram: each weight is half an ulp of bf16 off,
            // 2^-9. Elsewhere an f32 exponential may round a weight to the neighbour: an ulp of fp8 E5M2, 2^-2, in few of
            // hundreds of weights.
            for (bin, (&got, &expected)) in found.mass_by_distance.iter().zip(&mass).enumerate() {
                assert!(
                    (got - expected).abs() <= 2.0_f64.powi(-8) * expected + 2.0_f64.powi(-12),
                    "{label}: mass {got} in bin {bin}, {expected} expected"
                );
            }
            let variation: f64 = mass
                .iter()
                .zip(&evidence.head(0, head.index).unwrap().mass_by_distance)
                .map(|(a, b)| (a - b).abs() / 2.0)
                .sum();
            let got = found.total_variation.unwrap();
            assert!(
                (got - variation).abs() <= 2.0_f64.powi(-8),
                "{label}: total variation {got}, {variation} expected"
            );
            if off == 0 {
                let bins: Vec<u64> = edges
                    .windows(2)
                    .map(|edge| {
                        brute.blind_by_distance
                            [(edge[0] as usize).min(n)..(edge[1] as usize).min(n)]
                            .iter()
                            .sum()
                    })
                    .collect();
                assert_eq!(found.blind_by_distance, bins, "{label}");
                let first = brute
                    .blind_by_distance
                    .iter()
                    .position(|&count| count > 0)
                    .map(|d| d as u64);
                let last = (0..n)
                    .rev()
                    .find(|&d| brute.blind_by_distance[d] < brute.pairs_by_distance[d])
                    .map(|d| d as u64);
                assert_eq!(found.first_blind_distance, first, "{label}");
                assert_eq!(found.last_visible_distance, last, "{label}");
            }
            blind += total;
        }
    }
    blind
}

/// Every plan of every family: the same pairs are blind as in the step-by-step emulation.
#[test]
fn blind_pairs_equal_the_emulation_under_every_plan() {
    let mut plans_tried = 0;
    for family in Family::ALL {
        let plans: Vec<PrecisionPlan> = PlanName::ALL
            .into_iter()
            .flat_map(|name| {
                name.dtypes()
                    .iter()
                    .map(move |&dtype| PrecisionPlan::build(name, dtype, family))
            })
            .flatten()
            .collect();
        let slopes = [0.75, 0.21, 0.0625];
        let (evidence, recording) = record(family, &slopes, 300, 2.0, None, &plans, 7);
        let blind = check(&evidence, &recording, &plans, family.name());
        assert!(
            blind > 0,
            "{family}: nothing was blind, so nothing was tested"
        );
        plans_tried += plans.len();
    }
    assert!(plans_tried > 200, "only {plans_tried}");
}

/// Rises of the running maximum by 87 to 104 nats scale by a subnormal number, where a runtime's rescaling does not flush.
#[test]
fn blind_pairs_equal_the_emulation_after_rises_that_scale_by_subnormal_numbers() {
    for (family, spread) in [(Family::Custom, 0.5), (Family::Bloom, 2.0)] {
        let plans: Vec<_> = ["hf-sdpa", "hf-sdpa:bf16", "hf-sdpa:f16"]
            .iter()
            .map(|spec| PrecisionPlan::parse(spec, family).unwrap())
            .collect();
        let (evidence, recording) = record(family, &[0.5, 0.38], 790, spread, None, &plans, 5);
        assert!(check(&evidence, &recording, &plans, family.name()) > 0);
    }
}

/// Large scores move the maximum away from the diagonal and make running maxima rise late.
#[test]
fn blind_pairs_equal_the_emulation_with_large_scores() {
    for (family, specs) in [
        (
            Family::Bloom,
            vec![
                "ftz",
                "ieee",
                "hf-eager",
                "hf-eager:bf16",
                "hf-eager:f16",
                "vllm-triton:f16",
                "hf-sdpa:bf16",
                "flash-attn2:f16",
                "flex-attention",
            ],
        ),
        (
            Family::Falcon,
            vec![
                "f64",
                "hf-eager",
                "hf-sdpa",
                "hf-sdpa:bf16",
                "flash-attn2:bf16",
                "vllm-paged:f16",
            ],
        ),
        (
            Family::JinaBert,
            vec!["hf-eager:f16", "ftz", "flex-attention:f16", "vllm-triton"],
        ),
    ] {
        let plans: Vec<_> = specs
            .iter()
            .map(|spec| PrecisionPlan::parse(spec, family).unwrap())
            .collect();
        let (evidence, recording) = record(family, &[0.5, 0.1], 700, 12.0, None, &plans, 11);
        let blind = check(&evidence, &recording, &plans, family.name());
        assert!(blind > 0);
    }
}

/// Left padding: masked keys are not pairs, and positions count from the first real token.
#[test]
fn padding_is_not_a_pair() {
    for family in [
        Family::Bloom,
        Family::Mpt,
        Family::Falcon,
        Family::Refact,
        Family::Jais,
    ] {
        let specs = ["ieee", "hf-eager", "hf-eager:f16", "hf-eager:bf16"];
        let plans: Vec<_> = specs
            .iter()
            .map(|spec| PrecisionPlan::parse(spec, family).unwrap())
            .collect();
        let (padded, recording) = record(family, &[0.75, 0.3], 260, 2.0, Some(43), &plans, 3);
        assert_eq!(recording.heads[0].rows.len(), 260 - 43);
        let blind = check(&padded, &recording, &plans, family.name());
        assert!(blind > 0);
    }
}

/// Mass, reach, entropy, key 0, shares and extremes against an f64 softmax of the recorded scores.
#[test]
fn attention_statistics_equal_an_f64_softmax() {
    for (family, pad) in [
        (Family::Bloom, None),
        (Family::Custom, None),
        (Family::Custom, Some(20)),
        (Family::JinaBert, None),
    ] {
        let (evidence, recording) = record(family, &[0.5, 0.02], 333, 3.0, pad, &[], 5);
        for head in &recording.heads {
            let n = head.rows.len();
            let found = evidence.head(0, head.index).unwrap();
            let mut mass = vec![0.0_f64; n];
            let (mut entropy, mut key0, mut uniform, mut below9, mut below24, mut largest) =
                (0.0, 0.0, 0.0, 0_u64, 0_u64, 0.0_f64);
            let mut pairs = 0_u64;
            for (query, scores) in head.scores.iter().enumerate() {
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                for (key, score) in scores.iter().enumerate() {
                    let weight = (score - max).exp() / sum;
                    mass[query.abs_diff(key)] += weight / n as f64;
                    entropy -= if weight > 0.0 {
                        weight * weight.ln() / n as f64
                    } else {
                        0.0
                    };
                    below9 += u64::from(weight < 2.0_f64.powi(-9));
                    below24 += u64::from(weight < 2.0_f64.powi(-24));
                    pairs += 1;
                }
                if query > 0 {
                    key0 += (scores[0] - max).exp() / sum / (n - 1) as f64;
                    uniform += 1.0 / (query as f64 + 1.0) / (n - 1) as f64;
                }
                largest = head.rows[query]
                    .iter()
                    .fold(largest, |largest, raw| largest.max(f64::from(raw.abs())));
            }
            // f32 exponentials are good to 3e-7 relative; a mean of them is no worse.
            let near = |a: f64, b: f64, what: &str| {
                assert!(
                    (a - b).abs() <= 1e-6 * (1.0 + b.abs()),
                    "{family} {what}: {a} {b}"
                )
            };
            for (bin, edge) in evidence.edges.windows(2).enumerate() {
                let within: f64 = mass
                    .iter()
                    .take(n)
                    .skip(edge[0] as usize)
                    .take((edge[1] - edge[0]) as usize)
                    .sum();
                near(found.mass_by_distance[bin], within, "mass");
            }
            near(found.entropy_nats.unwrap(), entropy, "entropy");
            let mean: f64 = mass.iter().enumerate().map(|(d, m)| d as f64 * m).sum();
            near(found.mean_distance.unwrap(), mean, "mean distance");
            for (q, reach) in [
                (0.5, found.reach_50),
                (0.9, found.reach_90),
                (0.99, found.reach_99),
            ] {
                let reach = reach.unwrap() as usize;
                let within: f64 = mass[..=reach].iter().sum();
                assert!(
                    within >= q - 1e-6 && within - mass[reach] <= q + 1e-6,
                    "{family} reach {q}: {reach}"
                );
            }
            assert_eq!(found.max_score, Some(largest));
            if recording.causal {
                near(found.key0_mass.unwrap(), key0, "key 0");
                near(found.key0_baseline.unwrap(), uniform, "baseline");
            } else {
                assert_eq!(found.key0_mass, None);
            }
            let share = |count: u64| count as f64 / pairs as f64;
            // A weight within 1e-6 of the limit may fall on either side.
            assert!(
                (found.share_below_bf16_ulp.unwrap() - share(below9)).abs() <= 2.0 / pairs as f64
            );
            assert!(
                (found.share_below_f32_ulp.unwrap() - share(below24)).abs() <= 2.0 / pairs as f64
            );
            assert_eq!((found.pairs, found.rows), (pairs, n as u64));
        }
    }
}

/// The same sequence read whole and in chunks, and seen by one thread or several, gives the same counts.
#[test]
fn chunks_and_threads_do_not_matter() {
    let plans: Vec<_> = ["ftz", "hf-eager:f16", "vllm-triton"]
        .iter()
        .map(|spec| PrecisionPlan::parse(spec, Family::Custom).unwrap())
        .collect();
    let slopes = [0.75, 0.3, 0.1, 0.02];
    let (whole, _) = record(Family::Custom, &slopes, 200, 2.0, None, &plans, 9);
    for threads in [1, 2, 8] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let (again, _) =
            pool.install(|| record(Family::Custom, &slopes, 200, 2.0, None, &plans, 9));
        assert_eq!(
            format!("{whole:?}"),
            format!("{again:?}"),
            "{threads} threads"
        );
    }
    let chunked = common::record_in_chunks(Family::Custom, &slopes, 200, 2.0, &plans, 9, 7);
    assert_eq!(chunked.calls, 200_usize.div_ceil(7));
    for (a, b) in whole.heads.iter().zip(&chunked.heads) {
        // Masses are summed tile by tile in f32, and other chunks are other tiles. Everything else is equal.
        let without_mass = |plans: &[PlanEvidence]| -> Vec<PlanEvidence> {
            let mut plans = plans.to_vec();
            for plan in &mut plans {
                plan.mass_by_distance.clear();
                plan.total_variation = None;
            }
            plans
        };
        assert_eq!(without_mass(&a.plans), without_mass(&b.plans));
        for (a, b) in a.plans.iter().zip(&b.plans) {
            for (a, b) in a.mass_by_distance.iter().zip(&b.mass_by_distance) {
                assert!((a - b).abs() < 100.0 / 16_777_216.0, "{a} {b}");
            }
        }
        assert_eq!(
            (a.pairs, a.rows, a.reach_99, a.max_score),
            (b.pairs, b.rows, b.reach_99, b.max_score)
        );
        assert_eq!(a.advantage, b.advantage);
        assert!((a.entropy_nats.unwrap() - b.entropy_nats.unwrap()).abs() < 1e-5);
    }
}

/// Lengths at which everything degenerates.
#[test]
fn one_and_two_tokens() {
    let plans = vec![PrecisionPlan::parse("ieee", Family::Bloom).unwrap()];
    for n in [1, 2] {
        let (evidence, _) = record(Family::Bloom, &[0.5], n, 1.0, None, &plans, 1);
        let head = &evidence.heads[0];
        assert_eq!(head.pairs, (n * (n + 1) / 2) as u64);
        assert_eq!(head.reach_50, Some(0));
        assert_eq!(head.plans[0].blind_pairs, 0);
        assert_eq!(head.plans[0].first_blind_distance, None);
        assert_eq!(head.plans[0].last_visible_distance, Some(n as u64 - 1));
        assert_eq!(head.key0_mass.is_some(), n > 1);
        assert_eq!(head.advantage.largest_over_recent, None);
    }
}
