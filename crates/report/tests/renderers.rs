//! One snapshot a renderer, from fixed results: the documents people and programs read do not change by accident.
#![allow(clippy::unwrap_used)]

mod common;

use common::results;
use common::study::study;
use report::Distance;
use report::schema::{
    AlibiFacts, AuditHead, AuditPlanCertificate, AuditReport, AuditSummary, CheckRecord,
    DistanceBin, DtypeCount, Envelope, FindingRecord, FoldedTensor, HorizonHead, HorizonPlan,
    HorizonReport, HorizonSummary, InspectReport, LossInfo, MeasureHead, MeasurePlanEvidence,
    MeasureReport, MeasureSummary, ModelInfo, Outcome, PlanInfo, PlanStepInfo, SelfCheck, Severity,
    Skipped, TensorRow, TextInfo,
};
use report::text::{RenderText, TextOptions};
use snellen_report as report;

fn model() -> ModelInfo {
    ModelInfo {
        name: "tiny\u{1b}[2J".to_owned(),
        family: "bloom".to_owned(),
        path: Some("models/tiny".to_owned()),
        hash: Some("00ff".to_owned()),
        hash_covers: Some("everything".to_owned()),
        n_layers: Some(2),
        n_heads: Some(4),
        n_kv_heads: Some(4),
        head_width: Some(8),
        width: Some(32),
        vocab_size: Some(64),
        trained_length: Some(64),
        causal: true,
    }
}

fn plan(key: &str) -> PlanInfo {
    PlanInfo {
        plan: key.to_owned(),
        dtype: "f32".to_owned(),
        numerator_zero_nats: Some(103.972_077),
        weight_zero_nats: Some(103.972_077),
        steps: vec![PlanStepInfo {
            what: "exp".to_owned(),
            format: "f32".to_owned(),
            source: "IEEE 754".to_owned(),
        }],
    }
}

fn envelope(verb: &str) -> Envelope {
    let mut envelope = Envelope::new(verb, "0.1.0");
    envelope.model = Some(model());
    envelope.plan = Some("ieee".to_owned());
    envelope.length = Some(256);
    envelope
}

fn finding(code: &str, name: &str, severity: Severity, layer: u64, head: u64) -> FindingRecord {
    FindingRecord {
        code: code.to_owned(),
        name: name.to_owned(),
        severity,
        layer: Some(layer),
        head: Some(head),
        plan: Some("ieee".to_owned()),
        value: Some(0.625),
        threshold: Some(0.5),
        message: "Something happened that is worth a line of plain words long enough to be wrapped by the renderer."
            .to_owned(),
        next_command: Some("snellen explain SN001".to_owned()),
    }
}

fn outcome() -> Outcome {
    let mut findings: Vec<_> = (0..4)
        .map(|h| finding("SN003", "sink-head", Severity::Warning, 1, h))
        .collect();
    findings.push(finding("SN002", "position-collapse", Severity::Note, 0, 1));
    Outcome {
        findings,
        checks: vec![CheckRecord {
            code: "SN003".to_owned(),
            name: "sink-head".to_owned(),
            status: "checked".to_owned(),
            items: 8,
            reason: None,
            findings: 4,
        }],
        skipped: vec![Skipped {
            what: "SN004 dead-head".to_owned(),
            reason: "the text has 3 tokens".to_owned(),
        }],
        notes: vec!["a remark".to_owned()],
    }
}

fn horizon() -> HorizonReport {
    let head = |head: u64| {
        let first = [Some(150.0), Some(4.373e53), None][head as usize];
        let blind: u64 = [106, 0, 0][head as usize];
        HorizonHead {
            head,
            slope: 0.5_f64.powi(head as i32 + 1),
            effective_slope: 0.5_f64.powi(head as i32 + 1),
            first_blind_distance: first.and_then(Distance::new),
            first_blind_distance_reason: first.is_none().then(|| "clamped".to_owned()),
            last_visible_distance: Some(255 - blind),
            nan_rows: 0,
            nan_pairs: 0,
            pairs: 32_896,
            blind_pairs: u128::from(blind * (blind + 1) / 2),
            blind_share: (blind * (blind + 1) / 2) as f64 / 32_896.0,
            blind_last_row: blind,
            blind_share_last_row: Some(blind as f64 / 256.0),
            blind_share_last_row_reason: None,
            blind_share_last_row_continuous: Some(blind as f64 / 256.0),
            distinct_bias_last_20: [20, 20, 5][head as usize],
            distinct_bias_first_20: 20,
            distinct_bias_total: Some(256),
            longest_equal_run: Some(1),
            overflow_distance: None,
        }
    };
    let heads: Vec<_> = (0..3).map(head).collect();
    let one = |key: &str| HorizonPlan {
        info: plan(key),
        convention: "absolute".to_owned(),
        key_origin: "first key".to_owned(),
        bias_dtype: "f32".to_owned(),
        heads: heads.clone(),
        summary: HorizonSummary::of(&heads),
    };
    HorizonReport {
        envelope: envelope("horizon"),
        criterion: "plan".to_owned(),
        convention: "absolute".to_owned(),
        key_origin: "first key".to_owned(),
        bias_dtype: "f32".to_owned(),
        remedy: None,
        slopes: "press".to_owned(),
        bidirectional: false,
        summary: HorizonSummary::of(&heads),
        plans: vec![one("ieee"), one("ftz")],
        heads,
        outcome: Outcome {
            // of every layer, under one of the two plans
            findings: vec![FindingRecord {
                layer: None,
                ..finding("SN002", "position-collapse", Severity::Note, 0, 2)
            }],
            notes: vec!["a remark".to_owned()],
            ..Outcome::default()
        },
    }
}

fn audit() -> AuditReport {
    let head = |index: u64| {
        let certificate = AuditPlanCertificate {
            guaranteed_visible: Some(Distance::from(40 * (index + 1))),
            expected_horizon: (index % 4 != 3).then(|| Distance::from(100 * (index % 4 + 1))),
            certified_horizon: (index % 4 != 3).then(|| Distance::from(200 * (index % 4 + 1))),
            always_visible: false,
            reason: (index % 4 == 3).then(|| "slope 0".to_owned()),
        };
        AuditHead {
            layer: index / 4,
            head: index % 4,
            slope: 0.25,
            effective_slope: 0.25,
            score_bound: Some(12.5),
            gap_bound: Some(25.0),
            score_deviation: Some(1.5),
            method: "norm".to_owned(),
            guaranteed_visible: certificate.guaranteed_visible,
            expected_horizon: certificate.expected_horizon,
            certified_horizon: certificate.certified_horizon,
            always_visible: certificate.always_visible,
            certificate_reason: certificate.reason.clone(),
            plans: [
                ("ieee".to_owned(), certificate.clone()),
                ("ftz".to_owned(), certificate),
            ]
            .into(),
        }
    };
    let heads: Vec<_> = (0..8).map(head).collect();
    AuditReport {
        envelope: envelope("audit"),
        plans: vec![plan("ieee"), plan("ftz")],
        summary: AuditSummary::of(&heads, 256),
        heads,
        outcome: outcome(),
    }
}

fn measure() -> MeasureReport {
    let head = |index: u64| {
        let blind = [500, 20, 0, 0][(index % 4) as usize];
        let evidence = MeasurePlanEvidence {
            non_finite_rows: 0,
            non_finite_pairs: 0,
            pairs: 1000,
            blind_pairs: blind,
            blind_numerator: blind,
            blind_weight: blind,
            undecided_pairs: 0,
            blind_share: Some(blind as f64 / 1000.0),
            first_blind_distance: (blind > 0).then_some(120),
            last_visible_distance: Some(200),
            mass_by_distance: vec![0.25, 0.75],
            total_variation: Some(0.25),
        };
        MeasureHead {
            layer: index / 4,
            head: index % 4,
            slope: 0.25,
            effective_slope: 0.25,
            plans: [("ieee".to_owned(), evidence)].into(),
            reach_50: Some(2),
            reach_90: Some(10 + index),
            reach_99: None,
            entropy_nats: Some(1.25),
            key0_mass: Some(0.75),
            key0_baseline: Some(0.02),
            key0_excess: Some(0.73),
            mean_distance: Some(3.5),
            max_score: Some(7.5),
            share_below_bf16_ulp: Some(0.5),
            share_below_f32_ulp: Some(0.25),
            advantage_diagonal_max: Some(5.0),
            advantage_diagonal_p99: Some(3.0),
            advantage_recent_max: None,
            advantage_recent_p99: None,
            effective_horizon: Distance::new(20.0),
            effective_horizon_p99: Distance::new(12.0),
            mass_by_distance: vec![
                DistanceBin {
                    from: 0,
                    to: 0,
                    mass: 0.5,
                    pairs: 256,
                    blind_pairs: 0,
                },
                DistanceBin {
                    from: 1,
                    to: 255,
                    mass: 0.5,
                    pairs: 744,
                    blind_pairs: blind,
                },
            ],
        }
    };
    // a filter left out layer 0 head 3 and layer 1 head 0: original indices stay
    let heads: Vec<_> = (0..8)
        .filter(|index| *index != 3 && *index != 4)
        .map(head)
        .collect();
    let mut envelope = envelope("measure");
    envelope.text = Some(TextInfo {
        source: "text.txt".to_owned(),
        tokens: 256,
        tokens_available: 300,
        hash: "ab".to_owned(),
        tokenizer: "tokenizer.json".to_owned(),
        tokenizer_hash: Some("cd".to_owned()),
    });
    MeasureReport {
        envelope,
        plans: vec![plan("ieee")],
        loss: Some(LossInfo {
            nats_per_token: Some(2.7),
            perplexity: Some(14.88),
            tokens: 255,
        }),
        summary: MeasureSummary::of(&heads),
        heads,
        outcome: outcome(),
    }
}

fn inspect() -> InspectReport {
    let row = |name: &str| TensorRow {
        name: name.to_owned(),
        shape: vec![96, 32],
        dtype: "BF16".to_owned(),
        bytes: 6144,
        file: Some("model.safetensors".to_owned()),
    };
    let tensors = vec![
        row("h.0.attn.weight"),
        row("h.1.attn.weight"),
        row("evil\nname"),
    ];
    InspectReport {
        envelope: envelope("inspect"),
        alibi: AlibiFacts {
            form: "key-position".to_owned(),
            key_origin: "zero".to_owned(),
            scale_order: "after-scale".to_owned(),
            storage: None,
            score_scale: Some(0.353_553_39),
            slope_rule: "press".to_owned(),
            slopes: vec![0.25, 0.0625],
            effective_slopes: vec![0.25, 0.0625],
        },
        self_check: vec![
            SelfCheck {
                check: "slopes are not zero".to_owned(),
                holds: Some(true),
                detail: "2 of 2".to_owned(),
            },
            SelfCheck {
                check: "weights".to_owned(),
                holds: None,
                detail: "none here".to_owned(),
            },
        ],
        parameters: Some(9216),
        tensor_bytes: Some(18432),
        dtypes: vec![DtypeCount {
            dtype: "BF16".to_owned(),
            tensors: 3,
            parameters: 9216,
        }],
        tensors_folded: FoldedTensor::fold(&tensors),
        tensors,
        outcome: Outcome {
            notes: vec!["bias rounded".to_owned()],
            ..Outcome::default()
        },
    }
}

const NARROW: TextOptions = TextOptions {
    width: 80,
    color: false,
    ascii: false,
};

#[test]
fn text_of_every_verb() {
    insta::assert_snapshot!("horizon", horizon().render_text(&NARROW));
    insta::assert_snapshot!("horizon_slopes", horizon().render_slopes());
    insta::assert_snapshot!("inspect", inspect().render_text(&NARROW));
    insta::assert_snapshot!("audit", audit().render_text(&NARROW));
    insta::assert_snapshot!("measure", measure().render_text(&NARROW));
    insta::assert_snapshot!(
        "measure_ascii",
        measure().render_text(&TextOptions {
            ascii: true,
            ..NARROW
        })
    );
    insta::assert_snapshot!("probe", results::probe().render_text(&NARROW));
    insta::assert_snapshot!("eval", results::eval().render_text(&NARROW));
    insta::assert_snapshot!("task", results::task().render_text(&NARROW));
    insta::assert_snapshot!("train", results::train().render_text(&NARROW));
    insta::assert_snapshot!("study", study().render_text(&NARROW));
    insta::assert_snapshot!(
        "train_ascii",
        results::train().render_text(&TextOptions {
            ascii: true,
            width: 60,
            ..NARROW
        })
    );
}

#[test]
fn json_of_every_verb() {
    insta::assert_snapshot!("horizon_json", report::json::render(&horizon()).unwrap());
    insta::assert_snapshot!("inspect_json", report::json::render(&inspect()).unwrap());
    insta::assert_snapshot!("audit_json", report::json::render(&audit()).unwrap());
    insta::assert_snapshot!("measure_json", report::json::render(&measure()).unwrap());
    insta::assert_snapshot!(
        "probe_json",
        report::json::render(&results::probe()).unwrap()
    );
    insta::assert_snapshot!("eval_json", report::json::render(&results::eval()).unwrap());
    insta::assert_snapshot!("task_json", report::json::render(&results::task()).unwrap());
    insta::assert_snapshot!(
        "train_json",
        report::json::render(&results::train()).unwrap()
    );
    insta::assert_snapshot!("study_json", report::json::render(&study()).unwrap());
}

/// Every document reads back as the type that wrote it, and writes the same shape again. (Not compared bit by bit:
/// serde_json's quick float reader may be off in the last place.)
#[test]
fn documents_read_back() {
    fn keys(value: &serde_json::Value) -> Vec<String> {
        match value {
            serde_json::Value::Object(map) => {
                let inner = |(key, value): (&String, &serde_json::Value)| {
                    keys(value)
                        .into_iter()
                        .map(move |path| format!("{key}.{path}"))
                        .collect::<Vec<_>>()
                };
                map.iter().flat_map(inner).collect()
            }
            serde_json::Value::Array(items) => items.iter().flat_map(keys).collect(),
            serde_json::Value::Number(_) => vec!["number".to_owned()],
            other => vec![other.to_string()],
        }
    }
    fn check<T: serde::Serialize + serde::de::DeserializeOwned>(report: &T) {
        let text = report::json::render(report).unwrap();
        let back: T = serde_json::from_str(&text).unwrap();
        let again = report::json::render(&back).unwrap();
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(keys(&parse(&again)), keys(&parse(&text)));
    }
    check(&horizon());
    check(&measure());
    check(&audit());
    check(&inspect());
    check(&results::probe());
    check(&results::eval());
    check(&results::task());
    check(&results::train());
    check(&study());
}

#[test]
fn hostile_names_reach_no_terminal() {
    for text in [
        inspect().render_text(&NARROW),
        audit().render_text(&NARROW),
        measure().render_text(&NARROW),
    ] {
        assert!(
            !text.contains('\u{1b}'),
            "an escape sequence from a name was printed raw"
        );
    }
    let inspected = inspect().render_text(&NARROW);
    assert!(inspected.contains(r"evil\u{a}name"), "{inspected}");
}

#[test]
fn colour_changes_no_character() {
    let plain = measure().render_text(&NARROW);
    let coloured = measure().render_text(&TextOptions {
        color: true,
        ..NARROW
    });
    assert_ne!(plain, coloured);
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some(start) = rest.find('\u{1b}') {
        stripped.push_str(&rest[..start]);
        let end = rest[start..].find('m').unwrap() + start + 1;
        rest = &rest[end..];
    }
    stripped.push_str(rest);
    assert_eq!(stripped, plain);
}

#[test]
fn a_clean_verdict_is_never_given_over_nothing() {
    let mut empty = measure();
    empty.heads.clear();
    empty.outcome.findings.clear();
    let text = empty.render_text(&NARROW);
    assert!(!text.contains("none in"), "{text}");
}

/// Nothing is wider than the terminal but commands, which are there to be copied. Numbers as long as they get in practice.
#[test]
fn every_line_fits_the_width() {
    let mut measured = measure();
    let mut audited = audit();
    let mut inspected = inspect();
    let mut asked = horizon();
    for head in &mut measured.heads {
        head.slope = 0.003_906_25;
        head.effective_slope = 0.003_906_25;
        (head.reach_50, head.reach_90, head.reach_99) = (Some(12_345), Some(15_000), Some(16_000));
        for plan in head.plans.values_mut() {
            plan.first_blind_distance = Some(16_123);
            plan.last_visible_distance = Some(16_383);
        }
    }
    for head in &mut audited.heads {
        head.certified_horizon = Distance::new(123_456_789.0);
    }
    inspected.alibi.slopes = vec![0.003_906_25; 32];
    inspected.alibi.effective_slopes = vec![0.000_488_281; 32];
    inspected.tensors_folded[0].pattern =
        "transformer.h.N.self_attention.query_key_value.weight".to_owned();
    inspected.tensors_folded[0].shape = vec![250_880, 1024];
    for plan in &mut asked.plans {
        for head in &mut plan.heads {
            head.effective_slope /= 8.0;
            head.blind_pairs = 499_999_500_000;
            head.overflow_distance = Distance::new(77_917.0);
        }
    }
    for width in [40, 60, 80, 100] {
        let options = TextOptions { width, ..NARROW };
        for text in [
            measured.render_text(&options),
            audited.render_text(&options),
            inspected.render_text(&options),
            asked.render_text(&options),
            results::probe().render_text(&options),
            results::eval().render_text(&options),
            results::task().render_text(&options),
            results::train().render_text(&options),
            study().render_text(&options),
        ] {
            let too_wide: Vec<_> = text
                .lines()
                .filter(|line| line.chars().count() > width && !line.contains("next: "))
                .collect();
            assert!(too_wide.is_empty(), "{width}: {too_wide:#?}");
        }
    }
    let narrow = measured.render_text(&NARROW);
    assert!(narrow.contains("too narrow for: last seen"), "{narrow}");
}
