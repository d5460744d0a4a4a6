//! A study in every format: the same numbers, what is missing said, pictures that need no colour.
#![allow(clippy::unwrap_used)]

mod common;

use common::document;
use common::study::study;
use report::text::{RenderText as _, TextOptions};
use report::{Document, csv, figure, html, json, markdown};
use serde_json::Value;
use snellen_report as report;

#[test]
fn every_format_has_the_numbers_of_the_document() {
    let (report, document) = (study(), document("study"));
    let table = csv::render(&document).unwrap();
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows = report.tables.iter().flat_map(|table| table.rows.iter());
    for (line, row) in lines.zip(rows) {
        // the trials are last and hold no comma; quantities are in quotes
        let line = line.replace(", ", ";");
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |name: &str| cells[names.iter().position(|n| *n == name).unwrap()];
        let number = |name: &str| (cell(name) != "NA").then(|| cell(name).parse::<f64>().unwrap());
        let difference = row.difference.as_ref();
        assert_eq!(number("mean"), Some(row.mean));
        assert_eq!((number("low"), number("high")), (row.low, row.high));
        assert_eq!(number("difference"), difference.map(|d| d.mean));
        assert_eq!(number("difference_low"), difference.and_then(|d| d.low));
        assert_eq!(number("p"), difference.and_then(|d| d.p));
        assert_eq!(
            number("p_corrected"),
            difference.and_then(|d| d.p_corrected)
        );
        assert_eq!(cell("trials").trim_matches('"'), row.trials.join(" "));
    }
    assert_eq!(
        table.lines().count(),
        1 + report.tables.iter().map(|t| t.rows.len()).sum::<usize>()
    );
    // what people read has the same digits in all forms
    let text = document.render_text(&TextOptions::default());
    let (page, md) = (
        html::render(&document).unwrap().unwrap(),
        markdown::render(&document),
    );
    for row in report
        .tables
        .iter()
        .find(|t| t.name == "loss")
        .unwrap()
        .rows
        .iter()
    {
        let shown = format!("{:.3}", row.mean);
        for (form, where_from) in [(&text, "text"), (&page, "html"), (&md, "md")] {
            assert!(form.contains(&shown), "{shown} in {where_from}");
        }
    }
}

#[test]
fn a_missing_p_value_says_why() {
    let document = document("study");
    for text in [
        document.render_text(&TextOptions::default()),
        markdown::render(&document),
        html::render(&document).unwrap().unwrap(),
    ] {
        assert!(
            text.contains("all equal: every seed shows the same difference"),
            "{text}"
        );
        assert!(text.contains("step 7: the loss is not finite"));
        assert!(
            text.contains("at least 48")
                && text.contains("never ends")
                && text.contains("not known")
        );
    }
}

#[test]
fn forests_are_drawn_and_are_readable_without_colour() {
    let picture = figure::render(&document("study"), &figure::Chosen::Everything).unwrap();
    for part in [
        "Recall at distances of at least half the length",
        "pair, length 128",
        ">log+clamp<",
        ">clamp=-12<",
        ">unchanged<",
        "The dashed line is the mean of linear",
        "Recall by distance at the longest length: pair",
    ] {
        assert!(picture.contains(part), "{part}");
    }
    // the same figures are in the page
    let page = html::render(&document("study")).unwrap().unwrap();
    assert_eq!(
        page.matches("<figure>").count(),
        picture.matches("role=\"group\"").count()
    );
}

#[test]
fn two_studies_are_not_said_to_have_new_findings() {
    let pair = report::PairReport::new("0.1.0", document("study"), document("study"));
    let text = Document::from(pair).render_text(&TextOptions::default());
    assert!(
        !text.contains("findings new") && text.contains("nothing in them pairs"),
        "{text}"
    );
    assert!(text.contains("A is slopes or zeros"), "{text}");
}

#[test]
fn a_study_whose_numbers_contradict_one_another_is_refused() {
    let saved: Value = serde_json::from_str(&json::render(&document("study")).unwrap()).unwrap();
    let refused = |change: &dyn Fn(&mut Value), part: &str| {
        let mut doc = saved.clone();
        change(&mut doc);
        let error = Document::from_json(&doc.to_string())
            .unwrap_err()
            .to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    };
    refused(
        &|doc| doc["tables"][0]["rows"][0]["n"] = 7.into(),
        "values: expected 7 entries",
    );
    refused(
        &|doc| doc["tables"][0]["rows"][0]["low"] = 1e9.into(),
        "expected an interval around",
    );
    refused(
        &|doc| doc["tables"][0]["comparisons"] = 99.into(),
        "rows with p",
    );
}
