//! The golden numbers of docs/NUMERICS.md. Every value names its section; none is regenerated here.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use snellen_numerics::{
    BiasForm, BiasFunction, BiasShape, Criterion, Family, Format, HeadHorizon, HorizonInput,
    PrecisionPlan, SlopeSchedule, horizon,
};

struct Ask<'a> {
    plan: &'a str,
    family: Family,
    criterion: Criterion,
    bias: BiasFunction,
    length: u64,
    causal: bool,
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Ask {
            plan: "ieee",
            family: Family::Custom,
            criterion: Criterion::Plan,
            bias: BiasFunction::linear(),
            length: 2048,
            causal: true,
        }
    }
}

impl Ask<'_> {
    fn slopes(&self, slopes: &[f64]) -> Vec<HeadHorizon> {
        let plan = PrecisionPlan::parse(self.plan, self.family).unwrap();
        self.plan_and_slopes(&plan, slopes)
    }

    fn plan_and_slopes(&self, plan: &PrecisionPlan, slopes: &[f64]) -> Vec<HeadHorizon> {
        horizon(&HorizonInput {
            slopes,
            scale_before: 1.0,
            bias: &self.bias,
            plan,
            criterion: self.criterion,
            length: self.length,
            causal: self.causal,
        })
        .unwrap()
    }

    fn heads(&self, n_heads: usize) -> Vec<HeadHorizon> {
        self.slopes(&press(n_heads))
    }
}

fn press(n_heads: usize) -> Vec<f64> {
    SlopeSchedule::Press.slopes(n_heads).unwrap()
}

fn mean(heads: &[HeadHorizon], value: impl Fn(&HeadHorizon) -> f64) -> f64 {
    heads.iter().map(value).sum::<f64>() / heads.len() as f64
}

fn blind_share(heads: &[HeadHorizon]) -> f64 {
    mean(heads, |h| h.blind_pairs as f64 / h.pairs as f64)
}

/// Agreement to the digits printed in the table: half a unit of the last one.
fn assert_percent(name: &str, got: f64, printed: f64, decimals: i32) {
    let half_unit = 0.5 * 10.0_f64.powi(-decimals) + 1e-9;
    assert!(
        (100.0 * got - printed).abs() <= half_unit,
        "{name}: expected {printed} %, got {} %",
        100.0 * got
    );
}

#[test]
fn published_table() {
    // docs/NUMERICS.md, Published table (arXiv 2608.03994); rule: exp flushed to zero in f32, plan ftz.
    let linear = Ask {
        plan: "ftz",
        ..Ask::default()
    }
    .heads(16);
    assert_eq!(linear[0].slope, 0.5_f64.sqrt());
    assert_eq!(linear[0].first_blind_distance, Some(124.0));
    assert_percent(
        "counted",
        mean(&linear, |h| h.blind_share_last_row),
        36.55,
        2,
    );
    assert_percent(
        "continuous",
        mean(&linear, |h| h.blind_share_last_row_continuous),
        36.57,
        2,
    );
    // 1 - (124 / 2048): keys at distances 124 to 2047.
    assert_eq!(linear[0].blind_last_row, 1924);

    let log = Ask {
        plan: "ftz",
        bias: BiasFunction::with_shape(BiasShape::Log),
        ..Ask::default()
    }
    .heads(16);
    let first = log[0].first_blind_distance.unwrap();
    assert!(
        (first / 4.373e53 - 1.0).abs() < 2e-4,
        "first blind {first:e}"
    );
    assert!(
        log.iter()
            .all(|h| h.blind_pairs == 0 && h.blind_last_row == 0)
    );
}

#[test]
fn shares_below_the_f32_threshold() {
    // docs/NUMERICS.md, Shares of blind pairs: plan ieee, criterion exp (-103.97).
    for (n_heads, at_2048, at_8192, touched) in [
        (12, 34.3, 59.7, [8, 10]),
        (16, 25.7, 49.1, [8, 12]),
        (32, 27.1, 50.6, [17, 25]),
    ] {
        for (length, share, touched) in [(2048, at_2048, touched[0]), (8192, at_8192, touched[1])] {
            let heads = Ask {
                length,
                ..Ask::default()
            }
            .heads(n_heads);
            assert_percent(
                &format!("{n_heads} heads at {length}"),
                blind_share(&heads),
                share,
                1,
            );
            let with_blind = heads.iter().filter(|h| h.blind_pairs > 0).count();
            assert_eq!(with_blind, touched, "{n_heads} heads at {length}");
        }
    }
}

#[test]
fn shares_when_flushed_and_in_f16() {
    // docs/NUMERICS.md, Shares of blind pairs: 16 heads, causal mean, last row. Flushed: plan ftz. The numerator in f16 with
    // gradual underflow (-17.33): plan ieee:f16, criterion exp. Normalised f16 weights give more, see the CSV test.
    let rows = [
        ("ftz", 2048, 28.5, 36.6),
        ("ftz", 8192, 52.2, 60.9),
        ("ftz", 32768, 76.8, 85.5),
        ("ieee:f16", 2048, 56.2, 65.1),
        ("ieee:f16", 8192, 80.6, 88.5),
        ("ieee:f16", 32768, 94.5, 97.1),
    ];
    for (plan, length, share, last_row) in rows {
        let heads = Ask {
            plan,
            length,
            ..Ask::default()
        }
        .heads(16);
        assert_percent(
            &format!("{plan} at {length}"),
            blind_share(&heads),
            share,
            1,
        );
        let name = format!("{plan} at {length}, last row");
        // The flushed last row at 2048 is the published 36.6, by the continuous formula.
        let got = if plan == "ftz" {
            mean(&heads, |h| h.blind_share_last_row_continuous)
        } else {
            mean(&heads, |h| h.blind_share_last_row)
        };
        assert_percent(&name, got, last_row, 1);
    }
}

#[test]
fn first_distances_by_slope() {
    // docs/NUMERICS.md, First blind distances: exp = 0, f32; weight = 0, f32; the same flushed; cast to bf16; cast to f16.
    let slopes = [0.5_f64.powf(0.25), 0.5_f64.sqrt(), 0.5, 0.0625, 0.00390625];
    let columns: [(&str, Criterion, [f64; 5]); 5] = [
        (
            "ieee",
            Criterion::Exp,
            [124.0, 148.0, 208.0, 1664.0, 26617.0],
        ),
        (
            "ieee",
            Criterion::Weight,
            [124.0, 148.0, 206.0, 1619.0, 25197.0],
        ),
        (
            "ftz",
            Criterion::Weight,
            [104.0, 123.0, 173.0, 1353.0, 20939.0],
        ),
        (
            "hf-eager:bf16",
            Criterion::Plan,
            [110.0, 131.0, 184.0, 1442.0, 22358.0],
        ),
        (
            "hf-eager:f16",
            Criterion::Plan,
            [20.0, 24.0, 33.0, 233.0, 3017.0],
        ),
    ];
    for (plan, criterion, expected) in columns {
        let heads = Ask {
            plan,
            criterion,
            length: 32768,
            ..Ask::default()
        }
        .slopes(&slopes);
        let got: Vec<f64> = heads
            .iter()
            .map(|h| h.first_blind_distance.unwrap())
            .collect();
        assert_eq!(got, expected, "{plan} {criterion:?}");
    }
}

#[test]
fn two_criteria_differ() {
    // docs/NUMERICS.md, Zero criteria: slope 0.5, f32: 208 and 206 tokens.
    let hf = |criterion| {
        Ask {
            plan: "hf-eager",
            criterion,
            ..Ask::default()
        }
        .slopes(&[0.5])[0]
            .first_blind_distance
    };
    assert_eq!(hf(Criterion::Exp), Some(208.0));
    assert_eq!(hf(Criterion::Plan), Some(206.0));
}

#[test]
fn both_directions() {
    // docs/NUMERICS.md, Both directions: slope 0.5, length 1024.
    let ask = |causal| {
        Ask {
            length: 1024,
            causal,
            criterion: Criterion::Exp,
            ..Ask::default()
        }
        .slopes(&[0.5])[0]
            .clone()
    };
    let (encoder, decoder) = (ask(false), ask(true));
    assert_eq!((encoder.blind_pairs, encoder.pairs), (666_672, 1_048_576));
    assert_eq!((decoder.blind_pairs, decoder.pairs), (333_336, 524_800));
}

#[test]
fn position_collapse() {
    // docs/NUMERICS.md, Position collapse: slope 2^-0.25, by key position, product in f32 then cast, last 20 keys, f16 / bf16.
    let slope = [0.5_f64.powf(0.25)];
    let table = [
        (1024, 20, 5),
        (2048, 17, 3),
        (4096, 9, 2),
        (8192, 5, 1),
        (16384, 3, 1),
        (32768, 2, 1),
    ];
    for (length, f16, bf16) in table {
        for (plan, expected) in [("ieee:f16", f16), ("ieee:bf16", bf16), ("ieee:f32", 20)] {
            let head = &Ask {
                plan,
                family: Family::Bloom,
                length,
                ..Ask::default()
            }
            .slopes(&slope)[0];
            assert_eq!(head.distinct_bias_last_20, expected, "{plan} at {length}");
        }
    }
}

#[test]
fn collapse_over_8192_keys() {
    // docs/NUMERICS.md, Position collapse: distinct over the whole 8192, 3965 / 880; longest run 1 / 5 / 39, last 20 keys
    // 20 / 5 / 1.
    let slope = press(32)[0];
    assert!((slope - 0.5_f64.powf(0.25)).abs() < 1e-15);
    let ask = |dtype| {
        let plan = PrecisionPlan::parse("ieee", Family::Bloom)
            .unwrap()
            .with_bias_storage(dtype);
        Ask {
            length: 8192,
            ..Ask::default()
        }
        .plan_and_slopes(&plan, &[slope])[0]
            .clone()
    };
    let (f32, f16, bf16) = (ask(Format::F32), ask(Format::F16), ask(Format::Bf16));
    assert_eq!(
        [
            f32.distinct_bias_total,
            f16.distinct_bias_total,
            bf16.distinct_bias_total
        ],
        [Some(8192), Some(3965), Some(880)]
    );
    assert_eq!(
        [
            f32.longest_equal_run,
            f16.longest_equal_run,
            bf16.longest_equal_run
        ],
        [Some(1), Some(5), Some(39)]
    );
    assert_eq!(
        [
            f32.distinct_bias_last_20,
            f16.distinct_bias_last_20,
            bf16.distinct_bias_last_20
        ],
        [20, 5, 1]
    );
    // The exponents do not move with the storage of an idealised plan's bias.
    assert_eq!(f32.first_blind_distance, bf16.first_blind_distance);
}

#[test]
fn collapse_moves_with_the_form() {
    // docs/NUMERICS.md, Position collapse: bf16, length 8192, head 0 of 32: absolute, last 20 keys 1 value; relative,
    // last 20 keys 20, first 20 keys 1.
    let ask = |form| {
        let plan = PrecisionPlan::parse("ieee:bf16", Family::Bloom)
            .unwrap()
            .with_bias_form(form);
        let head = Ask {
            length: 8192,
            ..Ask::default()
        }
        .plan_and_slopes(&plan, &press(32)[..1])[0]
            .clone();
        (head.distinct_bias_last_20, head.distinct_bias_first_20)
    };
    assert_eq!(ask(BiasForm::KeyPosition).0, 1);
    assert_eq!(ask(BiasForm::Relative), (20, 1));
}

#[test]
fn f16_overflow() {
    // docs/NUMERICS.md, Overflow: f16 bias overflows from distance 77,917 at slope 2^-0.25.
    let head = &Ask {
        plan: "ieee:f16",
        ..Ask::default()
    }
    .slopes(&[0.5_f64.powf(0.25)])[0];
    assert_eq!(head.overflow_distance, Some(77_917.0));
    let wide = &Ask {
        plan: "ieee:bf16",
        ..Ask::default()
    }
    .slopes(&[0.5_f64.powf(0.25)])[0];
    assert_eq!(wide.overflow_distance, None);
}

#[test]
fn bloom_in_f16_is_nan_from_here() {
    // docs/NUMERICS.md, Overflow: NaN from key position ceil(65520 / slope). 65520 / 2^-0.5 is 92,659.3, and the product rounds
    // below 65520 up to and including key 92,659: the first infinity is at 92,660. (92,658, as sometimes printed, is 65519 /
    // slope.)
    let length = 100_000;
    let head = &Ask {
        plan: "hf-eager:f16",
        family: Family::Bloom,
        length,
        ..Ask::default()
    }
    .slopes(&press(16)[..1])[0];
    let slope = f64::from(press(16)[0] as f32);
    let by_formula = (65520.0 / slope).ceil();
    assert_eq!(head.overflow_distance, Some(by_formula));
    assert_eq!(by_formula, 92_660.0);
    assert_eq!(head.nan_rows, length - 92_660);
    assert_eq!(head.blind_last_row, 0, "NaN is not blindness");
}

#[test]
fn falcon_scales_its_bias() {
    // docs/NUMERICS.md, Falcon: 32 heads, head width 64: effective slope 0.8409 / 8 = 0.10511, first distance with exp = 0
    // in f32: 990.
    let slopes = press(32);
    let bias = BiasFunction::linear();
    let ask = |plan: &str, criterion| {
        let plan = PrecisionPlan::parse(plan, Family::Falcon).unwrap();
        horizon(&HorizonInput {
            slopes: &slopes[..1],
            scale_before: 0.125,
            bias: &bias,
            plan: &plan,
            criterion,
            length: 4096,
            causal: true,
        })
        .unwrap()[0]
            .clone()
    };
    let head = ask("ieee", Criterion::Exp);
    assert!((head.effective_slope - 0.105112).abs() < 1e-6);
    assert_eq!(head.first_blind_distance, Some(990.0));
    // docs/FAMILIES.md, Falcon: eager adds the bias twice, SDPA once.
    assert!((ask("hf-eager", Criterion::Plan).effective_slope - 2.0 * 0.105112).abs() < 2e-6);
    assert!((ask("hf-sdpa", Criterion::Plan).effective_slope - 0.105112).abs() < 1e-6);
    // The same slope in BLOOM: 124.
    assert_eq!(
        Ask::default().slopes(&slopes[..1])[0].first_blind_distance,
        Some(124.0)
    );
}

#[test]
fn runtimes_of_the_half_slope_head() {
    // docs/NUMERICS.md, First blind distances: 208 (f32), 174 (SDPA on the CPU), 35 (f16 numerators), 31 (llama.cpp CUDA).
    let first = |plan, family| {
        Ask {
            plan,
            family,
            length: 512,
            ..Ask::default()
        }
        .slopes(&[0.5])[0]
            .first_blind_distance
    };
    assert_eq!(first("ieee", Family::Custom), Some(208.0));
    assert_eq!(first("hf-sdpa", Family::Custom), Some(174.0));
    assert_eq!(first("flash-attn2:f16", Family::Custom), Some(35.0));
    assert_eq!(first("llama-cpp-cuda-fa", Family::Custom), Some(31.0));
    // docs/NUMERICS.md, Thresholds: bf16 SDPA at 87.25 is distance 175 on the mask's grid of 0.5 (torch 2.15, CPU, run).
    assert_eq!(first("hf-sdpa:bf16", Family::Custom), Some(175.0));
    // torch 2.15, CPU, run with V = 2^15 so that the output cast hides nothing: 35 for f16.
    assert_eq!(first("hf-sdpa:f16", Family::Custom), Some(35.0));
}

#[test]
fn very_long_sequences_cost_nothing() {
    let start = std::time::Instant::now();
    let length = 1 << 40;
    let heads = Ask {
        plan: "ftz:bf16",
        length,
        ..Ask::default()
    }
    .heads(16);
    let n = u128::from(length) - 124;
    assert_eq!(heads[0].blind_pairs, n * (n + 1) / 2);
    let eager = Ask {
        plan: "vllm-paged:bf16",
        length,
        ..Ask::default()
    }
    .heads(16);
    assert_eq!(eager[0].first_blind_distance, Some(131.0));
    // A loop over 2^40 rows would take hours.
    assert!(start.elapsed().as_secs() < 20);
}

#[test]
fn lengths_beyond_the_row_limit_are_refused() {
    let plan = PrecisionPlan::parse("hf-eager:bf16", Family::Bloom).unwrap();
    let bias = BiasFunction::linear();
    let input = HorizonInput {
        slopes: &[0.5],
        scale_before: 1.0,
        bias: &bias,
        plan: &plan,
        criterion: Criterion::Plan,
        length: 1 << 40,
        causal: true,
    };
    let error = horizon(&input).unwrap_err().to_string();
    assert!(error.contains("10000000 steps"), "{error}");
    assert!(horizon(&HorizonInput { length: 0, ..input }).is_err());
    assert!(
        horizon(&HorizonInput {
            slopes: &[f64::NAN],
            length: 8,
            ..input
        })
        .is_err()
    );
    assert!(
        horizon(&HorizonInput {
            slopes: &[-0.5],
            length: 8,
            ..input
        })
        .is_err()
    );
}
