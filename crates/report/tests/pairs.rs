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
