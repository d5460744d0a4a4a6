//! Documents that were changed by hand: what cannot be is refused in one line that names the field.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod counts;

use common::saved;
use serde_json::{Value, json};
use snellen_report::Document;

/// The saved result of `verb` with the value at a JSON pointer replaced must be refused, naming the field and what was expected.
fn refused(verb: &str, pointer: &str, value: Value, parts: [&str; 2]) {
    let mut doc: Value = serde_json::from_str(&saved(verb)).unwrap();
    let place = doc.pointer_mut(pointer);
    *place.unwrap_or_else(|| panic!("{verb} has no {pointer}")) = value;
    let error = Document::from_json(&doc.to_string())
        .expect_err(pointer)
        .to_string();
    for part in parts {
        assert!(error.contains(part), "{verb} {pointer}: {error}");
    }
    assert!(
        !error.contains('\n') && error.contains("was cut or changed"),
        "{error}"
    );
}

#[test]
fn an_evaluation_whose_lists_do_not_add_up_is_refused() {
    let mut doc: Value = serde_json::from_str(&saved("eval")).unwrap();
    doc["perplexity"]["documents"].as_array_mut().unwrap().pop();
    let error = Document::from_json(&doc.to_string())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("perplexity.documents.tokens: expected 99 in all"),
        "{error}"
    );
    refused(
        "eval",
        "/perplexity/by_position/0/tokens",
        json!(4),
        ["perplexity.by_position.tokens", "99 in all"],
    );
    refused(
        "eval",
        "/perplexity/by_position/1/from",
        json!(1),
        ["perplexity.by_position", "ascending order"],
    );
    refused(
        "eval",
        "/perplexity/documents/1/document",
        json!(7),
        ["perplexity.documents", "document 1 next"],
    );
    refused(
        "eval",
        "/perplexity/documents/0/tokens",
        json!(1000),
        ["perplexity.documents.tokens", "at most"],
    );
    refused(
        "eval",
        "/perplexity/nats_per_token",
        json!(-1.0),
        ["perplexity.nats_per_token", "no negative number"],
    );
}

#[test]
fn a_task_whose_scores_are_not_those_of_its_items_is_refused() {
    refused(
        "task",
        "/task/acc/value",
        json!(1.5),
        ["task.acc.value", "a share from 0 to 1"],
    );
    refused(
        "task",
        "/task/acc/value",
        json!(0.015625),
        ["task.acc.value", "outcomes are right"],
    );
    refused(
        "task",
        "/task/items_available",
        json!(1),
        ["task.items", "at most items_available"],
    );
}

#[test]
fn a_probe_whose_counts_contradict_one_another_is_refused() {
    refused(
        "probe",
        "/cells/0/results/0/hit",
        json!(false),
        ["results.hit", "as hits says"],
    );
    refused(
        "probe",
        "/cells/0/accuracy_low",
        json!(1.25),
        ["cells (length 256, depth 0)", "an interval around"],
    );
    refused(
        "probe",
        "/all/hits",
        json!(3),
        ["cells.hits", "as all.hits says"],
    );
    refused(
        "probe",
        "/cells/2/depth",
        json!(2.0),
        ["depth", "a share from 0 to 1"],
    );
    refused(
        "probe",
        "/cells/0/witness/0/seen",
        json!(9),
        ["witness", "as witness.heads says"],
    );
}

#[test]
fn heads_and_runs_with_impossible_numbers_are_refused() {
    refused(
        "measure",
        "/heads/0/plans/ieee/blind_pairs",
        json!(1e9 as u64),
        ["plans.ieee.blind_pairs", "at most pairs"],
    );
    refused(
        "measure",
        "/heads/0/plans/ieee/blind_share",
        json!(-0.5),
        ["blind_share", "a share from 0 to 1"],
    );
    refused(
        "measure",
        "/heads/0/plans/ieee/mass_by_distance",
        json!([1.0]),
        ["mass_by_distance", "2 entries"],
    );
    refused(
        "horizon",
        "/plans/0/heads/0/blind_share",
        json!(7.0),
        ["blind_share", "a share from 0 to 1"],
    );
    refused(
        "train",
        "/recall/0/cells/0/right",
        json!(21),
        ["right", "at most questions, 20"],
    );
    refused(
        "train",
        "/looks/0/heads/1/blind_share",
        json!(2.0),
        ["head 1).blind_share", "a share"],
    );
}
