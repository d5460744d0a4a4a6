//! Two results side by side: compared head by head, or shown together.
#![allow(clippy::unwrap_used)]

mod common;

use common::{document, embedded};
use report::schema::PairReport;
use report::{Document, csv, html, markdown, sarif};
use serde_json::Value;
use snellen_report as report;

#[test]
fn two_results_are_compared_head_by_head() {
    let Document::Measure(before) = document("measure") else {
        panic!("a measurement");
    };
    let mut after = before.clone();
    let cured = after.heads[0].plans.get_mut("ieee").unwrap();
    cured.blind_pairs = 0;
    cured.blind_share = Some(0.0);
    cured.first_blind_distance = None;
    after.heads.pop();
    // of heads that both looked at
    let gone = after.outcome.findings.remove(1);
    let mut new = gone.clone();
    (new.layer, new.head) = (Some(0), Some(2));
    after.outcome.findings.push(new.clone());
    let kept = before.outcome.findings.len() as u64 - 1;
    let pair = PairReport::new("0.1.0", before.into(), after.into());
    assert!(pair.comparable);
    assert_eq!(pair.heads.len(), 5);
    let first = &pair.heads[0].quantities;
    assert_eq!(first["blind_share"].change, Some(-0.5));
    assert_eq!(
        (
            first["first_blind_distance"].a,
            first["first_blind_distance"].b
        ),
        (Some(120.0), None)
    );
    assert_eq!(first["first_blind_distance"].change, None);
    let sum = pair
        .summary
        .iter()
        .find(|sum| sum.quantity == "first_blind_distance")
        .unwrap();
    assert_eq!((sum.heads_lost, sum.heads_same), (1, 4));
    assert_eq!(
        (&pair.findings_new, &pair.findings_gone, pair.findings_kept),
        (&vec![new.clone()], &vec![gone], kept)
    );
    assert!(
        pair.differences
            .iter()
            .any(|line| line.contains("1 head not measured in B"))
    );
    let document = Document::from(pair);
    assert_eq!(document.judged(), [&new], "only what is new counts");
    let log: Value = serde_json::from_str(&sarif::render(&document).unwrap().unwrap()).unwrap();
    let states: Vec<&str> = log["runs"][0]["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["baselineState"].as_str().unwrap())
        .collect();
    assert_eq!(states.iter().filter(|state| **state == "new").count(), 1);
    assert_eq!(states.iter().filter(|state| **state == "absent").count(), 1);
    insta::assert_snapshot!("pair_md", markdown::render(&document));
    insta::assert_snapshot!("pair_text", {
        use report::text::RenderText as _;
        document.render_text(&report::text::TextOptions {
            width: 90,
            color: false,
            ascii: false,
        })
    });
    insta::assert_snapshot!("pair_csv", csv::render(&document).unwrap());
}

#[test]
fn results_of_two_verbs_are_shown_together() {
    let pair = PairReport::new("0.1.0", document("audit"), document("measure"));
    assert!(!pair.comparable && pair.heads.is_empty());
    let document = Document::from(pair);
    assert!(!document.judged().is_empty(), "the findings of both count");
    let page = html::render(&document).unwrap().unwrap();
    assert_eq!(embedded(&page)["a"]["verb"], "audit");
    assert_eq!(embedded(&page)["b"]["verb"], "measure");
}

fn text(pair: PairReport, width: usize) -> String {
    use report::text::{RenderText as _, TextOptions};
    let options = TextOptions {
        width,
        color: false,
        ascii: false,
    };
    Document::from(pair).render_text(&options)
}

/// A difference is one line of 80 columns, from what it is over to its interval; on a wide page whether it is clear too. No page folds.
#[test]
fn paired_differences_are_a_line_each() {
    let pairs = || {
        let both = [
            document("probe"),
            document("eval"),
            document("task"),
            document("train"),
        ];
        both.map(|one| PairReport::new("0.1.0", one.clone(), one))
    };
    for pair in pairs() {
        let shown = text(pair.clone(), 80);
        for one in &pair.paired {
            let line = shown
                .lines()
                .filter(|line| line.trim_start().starts_with(&one.what));
            let ends =
                line.map(|line| line.split_whitespace().count() - one.what.split(' ').count());
            // A, B, change, and an interval of three words or a dash; then whether it is clear
            let words = if one.change_low.is_some() {
                6..=7
            } else {
                4..=5
            };
            assert!(ends.clone().count() > 0, "{}: {shown}", one.what);
            assert!(
                ends.into_iter().any(|n| words.contains(&n)),
                "{}: {shown}",
                one.what
            );
        }
    }
    for width in [40, 60, 80, 100] {
        for pair in pairs() {
            let shown = text(pair, width);
            let wide = shown.lines().filter(|line| line.chars().count() > width);
            assert_eq!(wide.collect::<Vec<_>>(), [""; 0], "{width}");
        }
    }
    let wide = text(
        PairReport::new("0.1.0", document("probe"), document("probe")),
        100,
    );
    assert!(
        wide.contains("clear\n") && !wide.contains("too narrow"),
        "{wide}"
    );
}

/// Layer and head become one word where the names of plans leave no room.
#[test]
fn changes_of_heads_are_a_line_each() {
    let text_of_before = report::json::render(&document("measure"))
        .unwrap()
        .replace("\"ieee\"", "\"megatron-deepspeed:f16\"")
        .replace("\"entropy_nats\": 1.25", "\"entropy_nats\": 0.000234567");
    let before = Document::from_json(&text_of_before).unwrap();
    let Document::Measure(mut after) = before.clone() else {
        panic!("a measurement");
    };
    for head in &mut after.heads {
        head.advantage_diagonal_max = Some(-0.000_123_456);
        head.entropy_nats = Some(0.000_123_456);
    }
    let pair = PairReport::new("0.1.0", before, after.into());
    let narrow = text(pair.clone(), 80);
    assert!(narrow.contains("  head  plan "), "{narrow}");
    let line = narrow.lines().find(|line| line.contains("L1H2"));
    let line = line.unwrap_or_else(|| panic!("{narrow}"));
    assert!(
        line.contains("megatron-deepspeed:f16") && line.contains("-0.0001235"),
        "{line}"
    );
    assert!(text(pair, 100).contains("  layer  head  plan "));
}

/// A saved comparison that lost what decides its exit code, or whose changes are not those of its numbers, is refused.
#[test]
fn a_pair_that_contradicts_its_sides_is_refused() {
    let Document::Measure(before) = document("measure") else {
        panic!("a measurement");
    };
    let mut after = before.clone();
    after.outcome.findings[0].head = Some(2);
    after.outcome.findings[0].layer = Some(0);
    after.heads[0].entropy_nats = Some(1.5);
    let pair = PairReport::new("0.1.0", before.into(), after.into());
    assert_eq!((pair.findings_new.len(), pair.findings_gone.len()), (1, 0));
    let whole = serde_json::to_value(Document::from(pair)).unwrap();
    Document::from_json(&whole.to_string()).unwrap();
    for (pointer, value, part) in [
        (
            "/comparable",
            Value::Bool(false),
            "comparable: expected true, as the verbs",
        ),
        (
            "/findings_new",
            Value::Array(Vec::new()),
            "findings_new: expected SN003 sink-head, as a and b say",
        ),
        (
            "/findings_kept",
            0.into(),
            "findings_kept: expected 4, as a and b say, found 0",
        ),
        (
            "/heads/0/quantities/entropy_nats/change",
            0.into(),
            "(layer 0, head 0).entropy_nats.change: expected 0.25, found 0",
        ),
    ] {
        let mut doc = whole.clone();
        *doc.pointer_mut(pointer).unwrap() = value;
        let error = Document::from_json(&doc.to_string())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(part) && !error.contains('\n'),
            "{pointer}: {error}"
        );
    }
}
