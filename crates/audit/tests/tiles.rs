//! Evidence from tiles against evidence row by row: the same counts, masses to the rounding of f32.
#![allow(clippy::unwrap_used)]

mod common;

use common::{WIDTH, queries_and_keys, run_with, spec};
use model::LayerObserver;
use numerics::{Family, PlanName, PrecisionPlan, SlopeRule};
use snellen_audit::evidence::{Evidence, EvidenceCollector, EvidenceOptions, HeadEvidence};

/// Queries and keys of one call, `[n, heads * WIDTH]`.
struct Case {
    name: String,
    family: Family,
    slopes: Vec<f64>,
    n: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    /// Queries read at a time.
    chunk: usize,
    padding: usize,
}

impl Case {
    fn random(family: Family, slopes: &[f64], n: usize, spread: f32, seed: u64) -> Self {
        let (q, k) = queries_and_keys(slopes.len(), n, spread, seed);
        Self {
            name: format!("{family}, {n} tokens, spread {spread}"),
            family,
            slopes: slopes.to_vec(),
            n,
            q,
            k,
            chunk: n,
            padding: 0,
        }
    }

    fn named(mut self, name: &str) -> Self {
        self.name = format!("{}, {name}", self.name);
        self
    }

    /// Channels of one token.
    fn row(&self) -> usize {
        self.slopes.len() * WIDTH
    }

    fn key(&mut self, key: usize) -> &mut [f32] {
        let row = self.row();
        &mut self.k[key * row..(key + 1) * row]
    }

    fn observe(&self, plans: &[PrecisionPlan], row_by_row: bool, lanes: usize) -> Evidence {
        let spec = spec(self.family, &self.slopes);
        let options = EvidenceOptions {
            length: self.n,
            several_calls: self.chunk < self.n,
            row_by_row,
            ..EvidenceOptions::default()
        };
        let collector = EvidenceCollector::new(&spec, plans.to_vec(), options);
        let valid: Vec<bool> = (0..self.n).map(|key| key >= self.padding).collect();
        for start in (0..self.n).step_by(self.chunk) {
            let end = (start + self.chunk).min(self.n);
            let valid = (self.padding > 0).then_some(&valid[..end]);
            let observer = collector.layer(0).unwrap();
            let (q, k) = (&self.q, &self.k);
            run_with(&spec, q, k, start, end, valid, &*observer, lanes);
            collector.layer_done(0);
        }
        collector.finish()
    }
}

/// Sums of at most a tile of f32 weights, each within an ulp, in another order: 2^-24 times 48 additions and as many again for the
/// weights and shares, relative to masses that sum to 1.
const MASS: f64 = 100.0 / 16_777_216.0;

fn same(name: &str, a: &HeadEvidence, b: &HeadEvidence) {
    let label = format!("{name}, head {} (slope {})", a.head, a.slope);
    assert_eq!(
        (a.rows, a.non_finite_rows, a.pairs, &a.pairs_by_distance),
        (b.rows, b.non_finite_rows, b.pairs, &b.pairs_by_distance),
        "{label}"
    );
    assert_eq!(a.max_score, b.max_score, "{label}");
    assert_eq!(a.advantage, b.advantage, "{label}");
    assert_eq!(a.share_below_bf16_ulp, b.share_below_bf16_ulp, "{label}");
    assert_eq!(a.share_below_f32_ulp, b.share_below_f32_ulp, "{label}");
    let near = |what: &str, a: f64, b: f64, tolerance: f64| {
        assert!((a - b).abs() <= tolerance, "{label}: {what} {a} {b}");
    };
    for (bin, (a, b)) in a
        .mass_by_distance
        .iter()
        .zip(&b.mass_by_distance)
        .enumerate()
    {
        near(&format!("mass in bin {bin}"), *a, *b, MASS);
    }
    let numbers = |head: &HeadEvidence| {
        [head.entropy_nats, head.key0_mass, head.key0_baseline].map(|x| x.unwrap_or(-1.0))
    };
    for (a, b) in numbers(a).into_iter().zip(numbers(b)) {
        near("entropy or key 0", a, b, 16.0 * MASS);
    }
    for (a, b) in a.plans.iter().zip(&b.plans) {
        let label = format!("{label}, plan {}", a.plan);
        assert_eq!(
            (
                a.blind_pairs,
                a.blind_numerator,
                a.blind_weight,
                a.undecided_pairs,
                (a.non_finite_rows, a.non_finite_pairs),
                a.first_blind_distance,
                a.last_visible_distance,
                &a.blind_by_distance,
            ),
            (
                b.blind_pairs,
                b.blind_numerator,
                b.blind_weight,
                b.undecided_pairs,
                (b.non_finite_rows, b.non_finite_pairs),
                b.first_blind_distance,
                b.last_visible_distance,
                &b.blind_by_distance,
            ),
            "{label}"
        );
        assert_eq!(a.pairs, b.pairs, "{label}");
        for (a, b) in a.mass_by_distance.iter().zip(&b.mass_by_distance) {
            assert!((a - b).abs() <= MASS, "{label}: mass {a} {b}");
        }
    }
}

fn check(case: &Case, plans: &[PrecisionPlan]) -> u64 {
    let rows = case.observe(plans, true, 16);
    // Tiles of the widest vectors, and of those with 8 lanes; the same where the processor has no others.
    let narrow = case.observe(plans, false, 8);
    let tiles = case.observe(plans, false, 16);
    for (name, tiles) in [("narrow", &narrow), ("wide", &tiles)] {
        assert_eq!(tiles.heads.len(), case.slopes.len());
        for (a, b) in tiles.heads.iter().zip(&rows.heads) {
            same(&format!("{}, {name}", case.name), a, b);
        }
    }
    let plans = tiles.heads.iter().flat_map(|head| &head.plans);
    plans.map(|plan| plan.blind_pairs).sum()
}

fn plans(family: Family, specs: &[&str]) -> Vec<PrecisionPlan> {
    specs
        .iter()
        .filter_map(|spec| PrecisionPlan::parse(spec, family).ok())
        .collect()
}

const SPECS: [&str; 12] = [
    "f64",
    "ieee",
    "ftz",
    "ieee:f16",
    "hf-eager",
    "hf-eager:f16",
    "hf-eager:bf16",
    "hf-sdpa",
    "flash-attn2:f16",
    "flex-attention",
    "vllm-triton",
    "llama-cpp-cpu",
];

/// Every plan of every family whose attention is causal; encoders go row by row either way.
#[test]
fn every_plan_counts_the_same() {
    for family in Family::ALL {
        let plans: Vec<PrecisionPlan> = PlanName::ALL
            .into_iter()
            .flat_map(|name| {
                let dtypes = name.dtypes().iter();
                dtypes.map(move |&dtype| PrecisionPlan::build(name, dtype, family))
            })
            .flatten()
            .collect();
        let case = Case::random(family, &[0.75, 0.21, 0.03], 290, 2.0, 3);
        assert!(check(&case, &plans) > 0, "{family}: nothing was blind");
    }
}

/// A runtime that uses other slopes than the configuration's has blind pairs of its own.
#[test]
fn plans_with_other_slopes_count_the_same() {
    for family in [Family::Mpt, Family::Jais] {
        let case = Case::random(family, &[0.3, 0.06], 400, 2.0, 4).named("other slopes");
        let steeper = |plan: PrecisionPlan| {
            let rule = SlopeRule {
                power: 0.5,
                factor: 1.5,
                ..SlopeRule::CONFIGURED
            };
            plan.with_slope_rule(rule, "a test")
        };
        let plans = plans(family, &SPECS);
        let configured = check(&case, &plans);
        let other = check(&case, &plans.into_iter().map(steeper).collect::<Vec<_>>());
        assert!(other > configured, "{family}: {configured} {other}");
    }
}

#[test]
fn long_rows_and_steep_heads_count_the_same() {
    for family in [Family::Bloom, Family::Custom, Family::Falcon] {
        let case = Case::random(family, &[0.8, 0.3, 0.05, 0.004], 1100, 1.5, 5);
        assert!(check(&case, &plans(family, &SPECS)) > 0);
        let case = Case::random(family, &[0.7, 0.02], 700, 12.0, 6).named("large scores");
        assert!(check(&case, &plans(family, &SPECS)) > 0);
    }
}

#[test]
fn adversarial_inputs_count_the_same() {
    let random = || Case::random(Family::Custom, &[0.6, 0.05], 500, 1.5, 8);
    let plans = plans(Family::Custom, &SPECS);
    let mut cases = Vec::new();
    // A sink: key 0 scores 40 nats with every query.
    let mut sink = random().named("sink");
    let (row, width) = (sink.row(), WIDTH);
    for query in sink.q.chunks_mut(width) {
        query[0] = 8.0;
    }
    for key in sink.k.chunks_mut(width) {
        key[0] = 0.0;
    }
    for head in sink.k[..row].chunks_mut(width) {
        head[0] = 20.0;
    }
    cases.push(sink);
    let mut equal = random().named("equal scores");
    equal.k.fill(0.0);
    cases.push(equal);
    let mut huge = random().named("one huge key");
    huge.key(130).fill(60.0);
    cases.push(huge);
    let mut low = random().named("one key far below");
    low.q.iter_mut().for_each(|x| *x = x.abs());
    low.key(77).fill(-500.0);
    cases.push(low);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut key = random().named(&format!("{bad} in a key"));
        key.key(203)[3] = bad;
        cases.push(key);
        let mut query = random().named(&format!("{bad} in two queries"));
        for at in [100, 321] {
            query.q[at * row + 5] = bad;
        }
        cases.push(query);
    }
    let mut positive = random().named("minus infinity in a positive channel");
    positive.q.iter_mut().for_each(|x| *x = x.abs() + 0.1);
    positive.key(64)[2] = f32::NEG_INFINITY;
    cases.push(positive);
    let mut chunks = random().named("read in chunks");
    chunks.chunk = 77;
    cases.push(chunks);
    let mut padded = random().named("left padding");
    padded.padding = 45;
    cases.push(padded);
    for case in &cases {
        check(case, &plans);
    }
}

/// Scores that f32 holds and f16 does not: rows with an infinite one are neither blind nor seen.
#[test]
fn rows_that_overflow_under_a_plan_are_counted_apart() {
    let mut case = Case::random(Family::Custom, &[0.3, 0.02], 400, 1.5, 9).named("overflow");
    case.q.iter_mut().for_each(|x| *x *= 1.5e4);
    let plans = plans(Family::Custom, &["ieee", "hf-eager:f16"]);
    check(&case, &plans);
    let evidence = case.observe(&plans, false, 16);
    for head in &evidence.heads {
        let [ieee, half] = &head.plans[..] else {
            panic!("two plans");
        };
        assert_eq!((ieee.non_finite_rows, ieee.non_finite_pairs), (0, 0));
        assert!(half.non_finite_rows > 0 && half.non_finite_rows < head.rows);
        let counted = half.pairs - half.non_finite_pairs;
        assert!(half.non_finite_pairs >= half.non_finite_rows && half.blind_pairs <= counted);
        let share = half.blind_pairs as f64 / counted as f64;
        assert_eq!(half.blind_share(), Some(share));
    }
    case.q.iter_mut().for_each(|x| *x *= 1e3);
    let evidence = case.observe(&plans, false, 16);
    let half = &evidence.heads[0].plans[1];
    let first_rows = half.pairs - half.non_finite_pairs;
    assert!(first_rows < 10, "{first_rows} pairs in finite rows");
    if let Some(last) = half.last_visible_distance {
        assert!(last < 5, "{last} tokens away in a finite row");
    }
}

#[test]
fn short_sequences_count_the_same() {
    for n in [
        1, 2, 7, 8, 9, 16, 17, 24, 25, 47, 48, 49, 63, 64, 65, 72, 97, 129,
    ] {
        for family in [Family::Bloom, Family::Custom] {
            let case = Case::random(family, &[0.9, 0.2], n, 4.0, n as u64);
            check(&case, &plans(family, &SPECS));
        }
    }
}

/// Rows of one tile may go over their blocks in different orders: squares of a block mask are no multiple of a tile.
#[test]
fn orders_that_change_within_a_tile_count_the_same() {
    let specs = [
        "flex-attention",
        "flex-attention:f16",
        "flex-attention:bf16",
    ];
    for n in [128, 200, 256, 384, 400, 513] {
        for (slopes, spread) in [([0.8, 0.1], 1.5), ([0.3, 0.02], 9.0)] {
            let case = Case::random(Family::Custom, &slopes, n, spread, n as u64);
            let blind = check(&case.named("a block mask"), &plans(Family::Custom, &specs));
            assert!(blind > 0, "{n} tokens");
        }
    }
}

/// Scores from a fraction of a nat to hundreds, slopes from steep to nearly flat, and as many keys as it happens.
#[test]
fn many_inputs_count_the_same() {
    let families = [Family::Bloom, Family::Mpt, Family::Falcon, Family::Custom];
    for seed in 0..12_u64 {
        let of = |n: u64, step: u64| (seed * step + 7) % n;
        let family = families[of(4, 1) as usize];
        let slopes = [0.9 / (1 + of(13, 5)) as f64, 0.11 / (1 + of(29, 3)) as f64];
        let spread = [0.3, 1.0, 2.5, 5.0, 9.0, 20.0][of(6, 11) as usize];
        let case = Case::random(family, &slopes, 90 + of(701, 97) as usize, spread, seed);
        check(&case.named("a sweep"), &plans(family, &SPECS));
    }
}
