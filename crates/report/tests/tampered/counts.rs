//! Shares, sums, bins, certificates and findings that do not follow from what stands beside them.

use serde_json::{Value, json};
use snellen_report::Document;

use crate::common::saved;
use crate::refused;

/// Numbers that no text gives.
#[test]
fn numbers_of_a_head_beyond_their_range_are_refused() {
    let head = |field: &str| format!("/heads/0/{field}");
    for (pointer, value) in [
        (head("reach_50"), json!(100_000)),
        (head("reach_99"), json!(0)),
        (head("plans/ieee/first_blind_distance"), json!(100_000)),
        (head("plans/ieee/last_visible_distance"), json!(100_000)),
        (head("mean_distance"), json!(1e9)),
        (head("share_below_f32_ulp"), json!(3.0)),
        (head("entropy_nats"), json!(-1.0)),
        (head("entropy_nats"), json!(1e9)),
        (head("max_score"), json!(-1.0)),
        (head("advantage_recent_max"), json!(1e9)),
        (head("layer"), json!(99)),
        ("/loss/nats_per_token".to_owned(), json!(-3.0)),
        ("/loss/perplexity".to_owned(), json!(2.0)),
    ] {
        let key = pointer.rsplit('/').next().unwrap();
        refused("measure", &pointer, value, [key, "expected"]);
    }
}

/// A share is that of its counts, and counts of the whole are those of the parts.
#[test]
fn shares_and_sums_that_do_not_follow_from_their_counts_are_refused() {
    let of = |verb: &str, pointer: &str, value: Value, expected: &str| {
        let key = pointer.rsplit('/').next().unwrap();
        refused(verb, pointer, value, [key, expected]);
    };
    let plan = "/heads/0/plans/ieee";
    let at = |field: &str| format!("{plan}/{field}");
    of(
        "measure",
        &at("blind_share"),
        json!(0.4),
        "expected 0.5, as 500 of 1000 give, found 0.4",
    );
    of("measure", &at("blind_share"), Value::Null, "expected 0.5");
    // what the share was made of
    refused(
        "measure",
        &at("blind_pairs"),
        json!(499),
        ["blind_share", "expected 0.499"],
    );
    of(
        "measure",
        &at("blind_numerator"),
        json!(1001),
        "at most pairs, 1000",
    );
    of(
        "measure",
        &at("blind_weight"),
        json!(1001),
        "at most pairs, 1000",
    );
    of(
        "measure",
        &at("undecided_pairs"),
        json!(1001),
        "at most pairs, 1000",
    );
    of(
        "measure",
        &at("first_blind_distance"),
        Value::Null,
        "a distance, as blind_pairs says",
    );
    of(
        "measure",
        "/heads/2/plans/ieee/first_blind_distance",
        json!(7),
        "expected null",
    );
    of(
        "measure",
        "/heads/0/mass_by_distance/1/pairs",
        json!(743),
        "1000 in all, as plans.ieee.pairs says",
    );
    of(
        "measure",
        "/heads/0/mass_by_distance/1/blind_pairs",
        json!(5),
        "500 in all, as plans.ieee.blind_pairs says",
    );
    of(
        "measure",
        "/heads/0/mass_by_distance/1/mass",
        json!(0.25),
        "expected 1 in all, found 0.75",
    );
    refused(
        "measure",
        &at("mass_by_distance/0"),
        json!(0.5),
        ["plans.ieee.mass_by_distance", "1 in all"],
    );
    refused(
        "measure",
        &at("mass_by_distance/0"),
        json!(-0.25),
        ["plans.ieee.mass_by_distance", "no negative number"],
    );
    of(
        "measure",
        &at("total_variation"),
        json!(0.125),
        "expected 0.25, found 0.125",
    );
    of(
        "measure",
        "/heads/0/key0_excess",
        json!(0.75),
        "expected 0.73, found 0.75",
    );
    of(
        "measure",
        "/heads/0/key0_excess",
        Value::Null,
        "expected 0.73, found null",
    );
    let sum = |field: &str| format!("/summary/plans/ieee/{field}");
    of(
        "measure",
        &sum("pairs"),
        json!(5000),
        "6000, as the heads say",
    );
    of(
        "measure",
        &sum("blind_pairs"),
        json!(0),
        "540, as the heads say",
    );
    of(
        "measure",
        &sum("heads_touched"),
        json!(0),
        "3, as the heads say",
    );
    of(
        "measure",
        &sum("blind_share"),
        json!(0.0),
        "as 540 of 6000 give",
    );
    of("measure", "/plans/0/plan", json!("ftz"), "plans");

    let head = "/plans/0/heads/0";
    let at = |field: &str| format!("{head}/{field}");
    of(
        "horizon",
        &at("blind_share"),
        json!(0.25),
        "as 5671 of 32896 give",
    );
    of(
        "horizon",
        &at("blind_pairs"),
        json!(32897),
        "at most the pairs that have a weight, 32896",
    );
    of(
        "horizon",
        &at("nan_pairs"),
        json!(32897),
        "at most pairs, 32896",
    );
    of(
        "horizon",
        &at("blind_share_last_row"),
        json!(0.25),
        "as 106 of 256 give",
    );
    of(
        "horizon",
        "/plans/1/summary/blind_share",
        json!(0.25),
        "summary",
    );
    of(
        "horizon",
        "/plans/1/summary/blind_share_last_row",
        json!(0.25),
        "summary",
    );
    of(
        "horizon",
        "/plans/1/summary/heads_touched",
        json!(0),
        "as the heads say",
    );
    refused(
        "horizon",
        "/heads/0/slope",
        json!(0.75),
        ["heads and summary", "first plan, ieee"],
    );
    refused(
        "horizon",
        "/summary/heads_touched",
        json!(0),
        ["heads and summary", "first plan, ieee"],
    );

    of(
        "train",
        "/recall/0/cells/1/accuracy",
        json!(0.75),
        "as 12 of 20 give",
    );
    of(
        "train",
        "/looks/0/blind_share",
        json!(0.5),
        "as 40 of 400 give",
    );
    of(
        "train",
        "/looks/0/heads/1/blind_share",
        json!(0.5),
        "as 20 of 100 give",
    );
    refused(
        "train",
        "/looks/0/heads/1/pairs",
        json!(200),
        ["heads (layer 0, head 1).blind_share", "20 of 200"],
    );
    refused(
        "train",
        "/looks/0/heads/0/pairs",
        json!(50),
        ["heads.pairs", "400 in all"],
    );
}

/// Sums of a hostile document do not overflow while they are compared.
#[test]
fn counts_near_the_largest_are_compared() {
    refused(
        "measure",
        "/summary/plans/ieee/pairs",
        json!(u64::MAX),
        ["summary.plans.ieee.pairs", "6000"],
    );
    let mut text = saved("horizon");
    text = text.replace("\"pairs\": 32896", &format!("\"pairs\": {}", u128::MAX));
    text = text.replace("\"blind_pairs\": 5671", "\"blind_pairs\": 0");
    text = text.replace("0.17239178015564202", "0.0");
    let error = Document::from_json(&text).unwrap_err().to_string();
    assert!(error.contains("below 2^128 in all"), "{error}");
}

#[test]
fn certificates_that_contradict_their_sums_are_refused() {
    let of =
        |pointer: &str, value: Value, parts: [&str; 2]| refused("audit", pointer, value, parts);
    of(
        "/summary/heads_certified_blind",
        json!(0),
        ["summary.heads_certified_blind", "as the heads say"],
    );
    of(
        "/summary/heads_expected_blind",
        json!(0),
        ["summary.heads_expected_blind", "as the heads say"],
    );
    of(
        "/summary/heads_guaranteed_visible",
        json!(8),
        ["summary.heads_guaranteed_visible", "as the heads say"],
    );
    of(
        "/heads/0/certified_horizon",
        json!(300),
        [
            "heads (layer 0, head 0)",
            "the certificate under the first plan",
        ],
    );
    of(
        "/heads/0/plans/ftz/certified_horizon",
        json!(3),
        [
            "plans.ftz.certified_horizon",
            "at least guaranteed_visible, 40",
        ],
    );
    of(
        "/heads/0/plans/ftz/always_visible",
        json!(true),
        [
            "plans.ftz.certified_horizon",
            "null, as always_visible says",
        ],
    );
    of(
        "/plans/1/plan",
        json!("hf-eager"),
        ["heads (layer 0, head 0).plans", "the document's plans"],
    );
}

/// Findings that are gone must not read as a clean result.
#[test]
fn findings_are_those_that_the_checks_counted() {
    for verb in ["audit", "measure"] {
        refused(
            verb,
            "/findings",
            json!([]),
            [
                "findings (SN003)",
                "4 in all, as checks.findings says, found 0",
            ],
        );
        refused(
            verb,
            "/checks/0/findings",
            json!(0),
            ["findings (SN003)", "0 in all"],
        );
    }
}

#[test]
fn a_head_that_is_there_twice_is_refused() {
    for (verb, list) in [
        ("audit", "/heads"),
        ("measure", "/heads"),
        ("horizon", "/plans/0/heads"),
    ] {
        let mut doc: Value = serde_json::from_str(&saved(verb)).unwrap();
        let heads = doc.pointer_mut(list).unwrap().as_array_mut().unwrap();
        heads[1] = heads[0].clone();
        let error = Document::from_json(&doc.to_string())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("heads: ") && error.contains("is there twice"),
            "{error}"
        );
    }
}
