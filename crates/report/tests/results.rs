//! Probes, evaluations and training runs: the same numbers in every format, comparisons that pair, documents that were cut.
#![allow(clippy::unwrap_used)]

mod common;

use common::{RESULTS, counts, document, results, saved};
use report::heads::Cell;
use report::records::{Table, tables};
use report::schema::{PairReport, PairedDifference, ProbeArea, ProbeReport, ProbeScore};
use report::text::{RenderText as _, TextOptions};
use report::{Document, csv, figure, html, junit, markdown, npz, sarif};
use serde_json::{Value, json};
use snellen_report as report;
use std::io::Read as _;

fn all(table: &[Table], record: &str) -> Table {
    table
        .iter()
        .find(|one| one.record == record)
        .unwrap()
        .clone()
}

/// The value of a cell as the JSON document has it.
fn as_json(cell: &Cell) -> Value {
    match cell {
        Cell::Missing => Value::Null,
        Cell::Count(count) => u64::try_from(*count).unwrap().into(),
        Cell::Number(number) => (*number).into(),
        Cell::Flag(flag) => (*flag).into(),
        Cell::Word(word) => word.clone().into(),
    }
}

/// Every column of a table against the objects of a list in the JSON document that have a field of that name.
fn same_numbers(table: &Table, objects: &[Value], own: &[&str]) {
    assert_eq!(table.rows.len(), objects.len(), "{}", table.record);
    for (row, object) in table.rows.iter().zip(objects) {
        for (name, cell) in table.columns.iter().zip(row) {
            if !own.contains(name) {
                assert_eq!(as_json(cell), object[*name], "{} {name}", table.record);
            }
        }
    }
}

#[test]
fn tables_have_the_numbers_of_the_document() {
    let json = |verb: &str| serde_json::from_str::<Value>(&saved(verb)).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let probe = tables(&document("probe")).unwrap();
    let doc = json("probe");
    let mut cells = all(&probe, "cell");
    let change = cells
        .columns
        .iter()
        .position(|name| *name == "change")
        .unwrap();
    let changed = cells.rows.len();
    cells.rows.retain(|row| row[change] == Cell::Missing);
    assert_eq!(
        (cells.rows.len(), changed),
        (4, 6),
        "two cells were tried under a change"
    );
    same_numbers(&cells, &list(&doc["cells"]), &["change"]);
    let samples = list(&doc["cells"])
        .into_iter()
        .flat_map(|cell| list(&cell["results"]));
    same_numbers(
        &all(&probe, "sample"),
        &samples.collect::<Vec<_>>(),
        &["length", "depth", "true_depth", "sample"],
    );
    let eval = tables(&document("eval")).unwrap();
    let doc = &json("eval")["perplexity"];
    same_numbers(&all(&eval, "position"), &list(&doc["by_position"]), &[]);
    same_numbers(&all(&eval, "document"), &list(&doc["documents"]), &[]);
    same_numbers(&all(&eval, "text"), std::slice::from_ref(doc), &[]);
    let task = tables(&document("task")).unwrap();
    let doc = &json("task")["task"];
    same_numbers(&all(&task, "item"), &list(&doc["outcomes"]), &["item"]);
    assert_eq!(all(&task, "score").rows.len(), 4);
    let train = tables(&document("train")).unwrap();
    let doc = json("train");
    same_numbers(&all(&train, "step"), &list(&doc["steps"]), &[]);
    same_numbers(&all(&train, "held"), &list(&doc["held"]), &[]);
    same_numbers(
        &all(&train, "recall"),
        &list(&doc["recall"][0]["cells"]),
        &["step", "length"],
    );
    let heads = list(&doc["looks"])
        .into_iter()
        .flat_map(|look| list(&look["heads"]));
    same_numbers(
        &all(&train, "head"),
        &heads.collect::<Vec<_>>(),
        &["step", "length"],
    );
}

#[test]
fn csv_and_arrays_have_every_record() {
    for verb in RESULTS {
        let document = document(verb);
        let tables = tables(&document).unwrap();
        let text = csv::render(&document).unwrap();
        let rows: usize = tables.iter().map(|table| table.rows.len()).sum();
        assert_eq!(text.lines().count(), rows + 1, "{verb}");
        for table in &tables {
            let lines = text
                .lines()
                .filter(|line| line.split(',').next() == Some(table.record));
            assert_eq!(lines.count(), table.rows.len(), "{verb} {}", table.record);
        }
        let bytes = npz::render(&document).unwrap().unwrap();
        let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
        let columns: usize = tables.iter().map(|table| table.columns.len()).sum();
        assert_eq!(archive.len(), columns, "{verb}");
        let name = format!("{}_{}.npy", tables[0].record, tables[0].columns[0]);
        let mut data = Vec::new();
        archive
            .by_name(&name)
            .unwrap()
            .read_to_end(&mut data)
            .unwrap();
        assert!(
            data.ends_with(&match &tables[0].rows.last().unwrap()[0] {
                Cell::Count(count) => u64::try_from(*count).unwrap().to_le_bytes().to_vec(),
                Cell::Number(number) => number.to_le_bytes().to_vec(),
                Cell::Word(word) => u32::from(word.chars().last().unwrap())
                    .to_le_bytes()
                    .to_vec(),
                other => panic!("{other:?}"),
            })
        );
    }
}

#[test]
fn a_result_without_checks_has_no_verdict_in_any_format() {
    for verb in RESULTS {
        let document = document(verb);
        assert_eq!(junit::render(&document, &counts), None, "{verb}");
        assert_eq!(sarif::render(&document).unwrap(), None, "{verb}");
        for text in [
            markdown::render(&document),
            html::render(&document).unwrap().unwrap(),
            document.render_text(&TextOptions::default()),
        ] {
            assert!(
                !text.contains("None in") && !text.contains("none in"),
                "{verb}"
            );
        }
    }
}

/// Counts, interval and trained length are words of the picture; what has no value is a question mark; no colour is needed.
#[test]
fn pictures_are_readable_without_colour() {
    let picture = figure::render(&document("probe"), &figure::Chosen::Everything).unwrap();
    for part in [
        ">4/4<",
        ">3/4<",
        ">0/4<",
        ">51\u{2013}100%<",
        "trained at 512",
        ">depth<",
    ] {
        assert!(picture.contains(part), "{part}");
    }
    let picture = figure::render(&document("train"), &figure::Chosen::Everything).unwrap();
    for part in [
        "training text",
        "held-out text",
        "passkey answers",
        "Recall by distance",
        ">60.0%<",
    ] {
        assert!(picture.contains(part), "{part}");
    }
    let mut measured = document("measure");
    let Document::Measure(report) = &mut measured else {
        panic!("a measurement");
    };
    for plan in report.heads[0].plans.values_mut() {
        plan.blind_share = None;
    }
    let picture = figure::render(&measured, &figure::Chosen::Everything).unwrap();
    assert!(picture.contains(">?<") && picture.contains("class=\"absent\""));
    for outside in ["href", "<script", "url(", "@import", "<image"] {
        assert!(!picture.contains(outside), "{outside}");
    }
}

fn pair(a: impl Into<Document>, b: impl Into<Document>) -> PairReport {
    PairReport::new("0.1.0", a.into(), b.into())
}

fn find<'a>(pair: &'a PairReport, what: &str, quantity: &str) -> &'a PairedDifference {
    let mut found = pair.paired.iter();
    found
        .find(|one| one.what == what && one.quantity == quantity)
        .unwrap_or_else(|| panic!("{what} {quantity}: {:#?}", pair.paired))
}

/// The probe with every sample found.
fn solved() -> ProbeReport {
    let mut probe = results::probe();
    for cell in &mut probe.cells {
        for sample in &mut cell.results {
            sample.hit = true;
            sample.log_probability = sample.log_probability.map(|nats| nats + 0.25);
        }
        cell.score = ProbeScore::of(&cell.results);
        cell.what_if.clear();
    }
    probe.all = ProbeArea::of(&probe.cells, |_| true).unwrap();
    let inside = probe.inside_trained_length.map_or(0, |part| part.cells);
    let trained = probe.cells[inside as usize - 1].length;
    probe.inside_trained_length = ProbeArea::of(&probe.cells, |cell| cell.length <= trained);
    probe.beyond_trained_length = ProbeArea::of(&probe.cells, |cell| cell.length > trained);
    probe
}

#[test]
fn two_probes_are_compared_sample_by_sample() {
    let compared = pair(results::probe(), solved());
    let all = find(&compared, "all cells in both", "accuracy");
    assert_eq!((all.units, all.only_a, all.only_b), (16, Some(0), Some(8)));
    assert_eq!(
        (all.a, all.b, all.change),
        (Some(0.5), Some(1.0), Some(0.5))
    );
    assert!(all.is_clear() && all.change_low.unwrap() > 0.0);
    let nats = find(&compared, "all cells in both", "log_probability");
    // every pair changed by the same amount, so its interval has no width
    assert!((nats.change.unwrap() - 0.25).abs() < 1e-12 && nats.is_clear());
    let one = find(&compared, "length 256 depth 1", "accuracy");
    assert_eq!((one.units, one.only_b, one.is_clear()), (4, Some(1), false));
    let document = Document::from(compared);
    insta::assert_snapshot!("pair_probe_csv", csv::render(&document).unwrap());
    insta::assert_snapshot!("pair_probe_md", markdown::render(&document));
    insta::assert_snapshot!(
        "pair_probe_text",
        document.render_text(&TextOptions::default())
    );
    assert_eq!(junit::render(&document, &counts), None);
    assert_eq!(
        report::json::render(&document)
            .map(|text| Document::from_json(&text).unwrap())
            .unwrap(),
        document
    );
}

#[test]
fn cells_that_one_probe_lacks_or_ran_otherwise_are_said() {
    let mut other = results::probe();
    other.cells.remove(3);
    other.cells[0].results[0].key = "other".to_owned();
    let compared = pair(results::probe(), other);
    let text = compared.render_text(&TextOptions::default());
    assert!(text.contains("1 cell not measured in B"), "{text}");
    assert!(
        text.contains("1 cell of both ran on other prompts"),
        "{text}"
    );
    assert_eq!(find(&compared, "all cells in both", "accuracy").units, 8);
    let mut reseeded = results::probe();
    reseeded.settings.seed = 6;
    for sample in reseeded.cells.iter_mut().flat_map(|cell| &mut cell.results) {
        sample.key.push('6');
    }
    let compared = pair(results::probe(), reseeded);
    assert!(compared.paired.is_empty());
    for text in [
        compared.render_text(&TextOptions::default()),
        csv::render(&compared.clone().into()).unwrap(),
        markdown::render(&compared.into()),
    ] {
        assert!(
            text.contains("seed: 5 in A, 6 in B") && text.contains("other prompts"),
            "{text}"
        );
    }
}

#[test]
fn two_evaluations_are_compared_by_document_and_by_item() {
    let mut better = results::eval();
    let perplexity = better.perplexity.as_mut().unwrap();
    perplexity.all.nats_per_token = Some(3.25);
    for one in &mut perplexity.documents {
        one.loss.nats_per_token = one.loss.nats_per_token.map(|nats| nats - 0.25);
    }
    let compared = pair(results::eval(), better.clone());
    let all = find(&compared, "all tokens", "nats_per_token");
    assert_eq!((all.units, all.change), (3, Some(-0.25)));
    // the documents agree on the change, however much they differ in loss
    assert!(all.is_clear() && (all.change_high.unwrap() - all.change_low.unwrap()).abs() < 1e-12);
    assert_eq!(
        find(&compared, "document 1", "nats_per_token").change,
        Some(-0.25)
    );
    better.envelope.text.as_mut().unwrap().hash = "else".to_owned();
    let compared = pair(results::eval(), better);
    assert!(compared.paired.is_empty());
    assert!(
        compared
            .render_text(&TextOptions::default())
            .contains("the ids of the two texts differ")
    );

    let mut right = results::task();
    for outcome in &mut right.task.as_mut().unwrap().outcomes {
        outcome.correct = true;
    }
    let compared = pair(results::task(), right.clone());
    let acc = find(&compared, "8 items", "acc");
    assert_eq!(
        (acc.units, acc.only_a, acc.only_b, acc.change),
        (8, Some(0), Some(4), Some(0.5))
    );
    assert_eq!(find(&compared, "8 items", "gold_nats").change, Some(0.0));
    right.task.as_mut().unwrap().outcomes.clear();
    let compared = pair(results::task(), right);
    assert!(compared.paired.is_empty());
    let text = compared.render_text(&TextOptions::default());
    assert!(text.contains("not paired"), "{text}");
    assert!(
        pair(results::task(), results::eval())
            .differences
            .iter()
            .any(|line| line.contains("nothing is compared"))
    );
}

#[test]
fn heads_that_one_result_did_not_look_at_are_neither_new_nor_gone() {
    let Document::Measure(whole) = document("measure") else {
        panic!("a measurement");
    };
    let mut partial = whole.clone();
    partial.heads.retain(|head| head.layer == 0);
    partial
        .outcome
        .findings
        .retain(|finding| finding.layer == Some(0));
    let lost = whole
        .outcome
        .findings
        .iter()
        .filter(|finding| finding.layer == Some(1))
        .count();
    assert!(lost > 0);
    for (a, b) in [(partial.clone(), whole.clone()), (whole, partial)] {
        let compared = pair(a, b);
        assert!(compared.findings_new.is_empty() && compared.findings_gone.is_empty());
        let (in_a, in_b) = (
            &compared.findings_not_measured_in_a,
            &compared.findings_not_measured_in_b,
        );
        assert_eq!(in_a.len() + in_b.len(), lost);
        let side = if in_a.is_empty() { "B" } else { "A" };
        let document = Document::from(compared);
        assert!(
            document.judged().is_empty(),
            "what was not looked at before is not new"
        );
        for text in [
            document.render_text(&TextOptions::default()),
            csv::render(&document).unwrap(),
            markdown::render(&document),
            html::render(&document).unwrap().unwrap(),
        ] {
            assert!(text.contains(&format!("not measured in {side}")), "{text}");
        }
    }
}

#[test]
fn results_of_different_verbs_and_models_say_so() {
    let compared = pair(document("audit"), document("measure"));
    for text in [
        compared.render_text(&TextOptions::default()),
        csv::render(&compared.into()).unwrap(),
    ] {
        assert!(text.contains("A is of audit and B of measure"), "{text}");
    }
    let Document::Measure(mut other) = document("measure") else {
        panic!("a measurement");
    };
    other.envelope.model.as_mut().unwrap().name = "other".to_owned();
    let compared = pair(document("measure"), other);
    for text in [
        compared.render_text(&TextOptions::default()),
        csv::render(&compared.into()).unwrap(),
    ] {
        assert!(text.contains("other in B"), "{text}");
    }
}

/// A cell whose lists and sums do not agree is refused, and so is a sum over cells that is not theirs.
#[test]
fn a_probe_whose_cells_were_changed_is_refused() {
    let whole: Value = serde_json::from_str(&saved("probe")).unwrap();
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 7] = [
        ("results", |doc| {
            drop(doc["cells"][0]["results"].as_array_mut().unwrap().pop())
        }),
        ("hits", |doc| {
            let hit = &mut doc["cells"][0]["results"][0]["hit"];
            *hit = (!hit.as_bool().unwrap()).into();
        }),
        ("log_probability", |doc| {
            doc["cells"][0]["results"][0]["log_probability"] = (-77.0).into();
        }),
        ("cells.hits", |doc| {
            doc["cells"][1] = doc["cells"][0].clone()
        }),
        ("all.hits", |doc| doc["all"]["hits"] = 0.into()),
        ("all.area_under_accuracy", |doc| {
            doc["all"]["area_under_accuracy"] = 0.123.into()
        }),
        ("what_if", |doc| {
            let cells = doc["cells"].as_array_mut().unwrap().iter_mut();
            let mut changed = cells.filter(|cell| !cell["what_if"].as_array().unwrap().is_empty());
            changed.next().unwrap()["what_if"][0]["hits"] = 1000.into();
        }),
    ];
    for (wanted, change) in changes {
        let mut doc = whole.clone();
        change(&mut doc);
        let error = Document::from_json(&doc.to_string())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(wanted) && error.contains("changed"),
            "{wanted}: {error}"
        );
    }
}

/// A list that lost its entries is refused, and a result over nothing has no clean verdict.
#[test]
fn a_document_that_was_cut_is_refused() {
    for (verb, list) in [
        ("audit", "heads"),
        ("measure", "heads"),
        ("probe", "cells"),
        ("train", "steps"),
    ] {
        let mut doc: Value = serde_json::from_str(&saved(verb)).unwrap();
        doc[list] = Value::Array(Vec::new());
        let error = Document::from_json(&doc.to_string())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("was cut or changed") && error.contains(list),
            "{error}"
        );
    }
    let mut doc: Value = serde_json::from_str(&saved("measure")).unwrap();
    doc["heads"] = Value::Array(Vec::new());
    doc["findings"] = Value::Array(Vec::new());
    doc["checks"][0]["findings"] = 0.into();
    doc["summary"] = json!({"heads": 0, "plans": {}});
    let empty = Document::from_json(&doc.to_string()).unwrap();
    let xml = junit::render(&empty, &counts).unwrap();
    assert!(
        xml.contains("nothing was measured") && xml.contains("skipped=\"1\""),
        "{xml}"
    );
    for text in [
        markdown::render(&empty),
        html::render(&empty).unwrap().unwrap(),
    ] {
        assert!(
            text.contains("Nothing was measured") && !text.contains("None in"),
            "{text}"
        );
    }
}
