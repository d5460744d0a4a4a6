//! Every format from one fixed result for each verb: a snapshot of each, and the same numbers in all of them.
#![allow(clippy::unwrap_used)]

mod common;

use common::{RESULTS, VERBS, counts, document, embedded, saved};
use report::heads::{Cell, HeadTable};
use report::schema::PairReport;
use report::{Document, csv, figure, html, json, junit, markdown, npz, sarif};
use serde_json::Value;
use snellen_report as report;
use std::collections::BTreeMap;
use std::io::Read as _;

/// What the page says without its style and script, which have their own files.
fn page_text(page: &str) -> String {
    let mut out = page.to_owned();
    for (open, close) in [("<style>", "</style>"), ("<script>", "</script>")] {
        let start = out.find(open).unwrap() + open.len();
        let end = start + out[start..].find(close).unwrap();
        out.replace_range(start..end, "...");
    }
    // the hashes of both stand in the policy
    let start = out.find("script-src").unwrap();
    let end = start + out[start..].find("; base-uri").unwrap();
    out.replace_range(start..end, "...");
    out
}

#[test]
fn snapshots_of_every_format() {
    for verb in VERBS.into_iter().chain(RESULTS).chain(["study"]) {
        let document = document(verb);
        insta::assert_snapshot!(format!("{verb}_md"), markdown::render(&document));
        if let Some(table) = csv::render(&document) {
            insta::assert_snapshot!(format!("{verb}_csv"), table);
        }
    }
    let measure = document("measure");
    let mut log: Value = serde_json::from_str(&sarif::render(&measure).unwrap().unwrap()).unwrap();
    // the texts of the rules are the checks' own, which have their own page
    for rule in log["runs"][0]["tool"]["driver"]["rules"]
        .as_array_mut()
        .unwrap()
    {
        *rule = rule["id"].take();
    }
    insta::assert_snapshot!("measure_sarif", json::render(&log).unwrap());
    insta::assert_snapshot!("measure_junit", junit::render(&measure, &counts).unwrap());
    for verb in RESULTS.into_iter().chain(["study"]) {
        let page = html::render(&document(verb)).unwrap().unwrap();
        insta::assert_snapshot!(format!("{verb}_html"), page_text(&page));
        insta::assert_snapshot!(
            format!("{verb}_svg"),
            figure::render(&document(verb), &figure::Chosen::Everything).unwrap()
        );
    }
    for verb in ["horizon", "audit", "measure"] {
        insta::assert_snapshot!(
            format!("{verb}_svg"),
            figure::render(&document(verb), &figure::Chosen::Everything).unwrap()
        );
    }
    assert_eq!(
        figure::render(&document("inspect"), &figure::Chosen::Everything),
        None
    );
    insta::assert_snapshot!(
        "measure_html",
        page_text(&html::render(&measure).unwrap().unwrap())
    );
}

#[test]
fn a_saved_result_is_written_again_byte_for_byte() {
    for verb in VERBS.into_iter().chain(RESULTS).chain(["study"]) {
        let text = saved(verb);
        let again = json::render(&Document::from_json(&text).unwrap()).unwrap();
        assert_eq!(again, text, "{verb}");
    }
    let pair = Document::from(PairReport::new(
        "0.1.0",
        document("audit"),
        document("audit"),
    ));
    let text = json::render(&pair).unwrap();
    assert_eq!(Document::from_json(&text).unwrap(), pair);
}

#[test]
fn what_is_not_a_result_is_refused_in_one_line() {
    let newer = saved("audit").replacen("\"schema_version\": 1", "\"schema_version\": 2", 1);
    let other = saved("audit").replacen("\"name\": \"snellen\"", "\"name\": \"other\"", 1);
    let verb = saved("audit").replacen("\"verb\": \"audit\"", "\"verb\": \"guess\"", 1);
    let cut = saved("audit").replacen("\"heads\"", "\"haeds\"", 1);
    for (text, part) in [
        ("{", "not a result"),
        ("[1]", "not a result"),
        (newer.as_str(), "schema_version up to 1, found 2"),
        (other.as_str(), "written by snellen"),
        (verb.as_str(), "known: horizon"),
        (cut.as_str(), "missing field `heads`"),
    ] {
        let error = Document::from_json(text).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    }
}

/// Layer, head, plan and fields.
type JsonRow = (Option<u64>, u64, Option<String>, BTreeMap<String, Value>);

/// Every plain field of a head, under its plan, from the JSON document.
fn json_rows(verb: &str) -> Vec<JsonRow> {
    let doc: Value = serde_json::from_str(&saved(verb)).unwrap();
    let plain = |value: &Value| {
        let fields = value.as_object().unwrap().iter();
        let fields = fields.filter(|(name, value)| {
            !value.is_object()
                && !value.is_array()
                && !name.ends_with("reason")
                && *name != "layer"
                && *name != "head"
        });
        fields
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    let plans = doc["plans"].as_array();
    let mut rows = Vec::new();
    if verb == "horizon" {
        for plan in plans.unwrap() {
            for head in plan["heads"].as_array().unwrap() {
                let key = plan["plan"].as_str().map(str::to_owned);
                rows.push((None, head["head"].as_u64().unwrap(), key, plain(head)));
            }
        }
        return rows;
    }
    for head in doc["heads"].as_array().unwrap() {
        for plan in plans.unwrap() {
            let key = plan["plan"].as_str().unwrap();
            let mut fields = plain(head);
            fields.extend(plain(&head["plans"][key]));
            rows.push((
                head["layer"].as_u64(),
                head["head"].as_u64().unwrap(),
                Some(key.to_owned()),
                fields,
            ));
        }
    }
    rows
}

fn as_json(cell: &Cell) -> Value {
    match cell {
        Cell::Missing => Value::Null,
        Cell::Count(count) => serde_json::to_value(u64::try_from(*count).unwrap()).unwrap(),
        Cell::Number(number) => serde_json::to_value(number).unwrap(),
        Cell::Flag(flag) => Value::Bool(*flag),
        Cell::Word(word) => Value::String(word.clone()),
    }
}

#[test]
fn the_table_has_every_field_of_the_document_and_nothing_else() {
    for verb in ["horizon", "audit", "measure"] {
        let table = HeadTable::of(&document(verb)).unwrap();
        let expected = json_rows(verb);
        assert_eq!(table.rows.len(), expected.len(), "{verb}");
        for (row, (layer, head, plan, fields)) in table.rows.iter().zip(expected) {
            assert_eq!((row.layer, row.head, &row.plan), (layer, head, &plan));
            let found: BTreeMap<String, Value> = table
                .columns
                .iter()
                .zip(&row.cells)
                .map(|(name, cell)| ((*name).to_owned(), as_json(cell)))
                .collect();
            assert_eq!(found, fields, "{verb} layer {layer:?} head {head}");
        }
    }
}

#[test]
fn csv_has_the_digits_of_the_document() {
    for verb in ["horizon", "audit", "measure"] {
        let text = csv::render(&document(verb)).unwrap();
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().unwrap().split(',').collect();
        let rows = json_rows(verb);
        assert_eq!(lines.clone().count(), rows.len());
        for (line, (_, _, _, fields)) in lines.zip(rows) {
            for (name, cell) in header.iter().zip(line.split(',')).skip(3) {
                let expected = match &fields[*name] {
                    Value::Null => csv::MISSING.to_owned(),
                    Value::String(word) => word.clone(),
                    other => other.to_string(),
                };
                assert_eq!(cell, expected, "{verb} {name}");
            }
        }
    }
}

/// The arrays of an archive: kind, shape and bytes.
fn arrays(bytes: Vec<u8>) -> BTreeMap<String, (String, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
    let mut out = BTreeMap::new();
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).unwrap();
        let name = file
            .name()
            .unwrap()
            .strip_suffix(".npy")
            .unwrap()
            .to_owned();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
        let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        assert_eq!((10 + length) % 64, 0, "{name}: the data is aligned");
        let header = String::from_utf8(bytes[10..10 + length].to_vec()).unwrap();
        out.insert(name, (header, bytes.split_off(10 + length)));
    }
    out
}

#[test]
fn arrays_have_the_numbers_of_the_document() {
    for verb in ["horizon", "audit", "measure"] {
        let document = document(verb);
        let bytes = npz::render(&document).unwrap().unwrap();
        assert_eq!(
            bytes,
            npz::render(&document).unwrap().unwrap(),
            "the same bytes every time"
        );
        let arrays = arrays(bytes);
        let table = HeadTable::of(&document).unwrap();
        for (index, name) in table.columns.iter().enumerate() {
            let (header, data) = &arrays[*name];
            assert!(
                header.contains(&format!("'shape': ({},)", table.rows.len())),
                "{header}"
            );
            for (row, word) in table.rows.iter().zip(data.chunks_exact(8)) {
                let raw: [u8; 8] = word.try_into().unwrap();
                let expected = row.cells[index].as_f64();
                if header.contains("'<f8'") {
                    let found = f64::from_le_bytes(raw);
                    assert_eq!((!found.is_nan()).then_some(found), expected, "{name}");
                } else if header.contains("'<u8'") {
                    assert_eq!(Some(u64::from_le_bytes(raw) as f64), expected, "{name}");
                } else {
                    assert!(header.contains("'<U"), "{header}");
                }
            }
        }
    }
    let measured = arrays(npz::render(&document("measure")).unwrap().unwrap());
    let (header, data) = &measured["mass_by_distance"];
    assert!(header.contains("'shape': (6,2,)"), "{header}");
    assert_eq!(data[..8], 0.5_f64.to_le_bytes());
}

#[test]
fn the_page_holds_the_document_itself() {
    for verb in VERBS.into_iter().chain(RESULTS).chain(["study"]) {
        let document = document(verb);
        let page = html::render(&document).unwrap().unwrap();
        let expected: Value = serde_json::from_str(&saved(verb)).unwrap();
        assert_eq!(embedded(&page), expected, "{verb}");
        for address in ["http://", "https://", "src=", "@import", "url("] {
            let found = page.match_indices(address).filter(|(at, _)| {
                // the SVG namespace is a name, and a pattern is addressed inside the page
                !page[*at..].starts_with("http://www.w3.org/2000/svg")
                    && !page[*at..].starts_with("url(#hatch)")
            });
            assert_eq!(found.count(), 0, "{verb}: {address} in the page");
        }
    }
}

/// The parts of the SARIF 2.1.0 schema that this log uses: required properties, enumerations, and that rules are what results
/// point at. `tests/browser/sarif.mjs` checks against the official schema where it is installed.
#[test]
fn sarif_has_the_structure_of_its_schema() {
    for verb in VERBS {
        let log: Value =
            serde_json::from_str(&sarif::render(&document(verb)).unwrap().unwrap()).unwrap();
        assert_eq!(log["version"], "2.1.0");
        for run in log["runs"].as_array().unwrap() {
            let driver = &run["tool"]["driver"];
            assert_eq!(driver["name"], "snellen");
            let rules = driver["rules"].as_array().unwrap();
            let codes: Vec<&str> = rules
                .iter()
                .map(|rule| rule["id"].as_str().unwrap())
                .collect();
            let expected: Vec<&str> = audit::checks::CHECKS
                .iter()
                .map(|check| check.doc.code)
                .collect();
            assert_eq!(codes, expected, "stable rule ids");
            let findings = document(verb).outcome().unwrap().findings.len();
            let results = run["results"].as_array().unwrap();
            assert_eq!(results.len(), findings);
            for result in results {
                let index = result["ruleIndex"].as_u64().unwrap() as usize;
                assert_eq!(rules[index]["id"], result["ruleId"]);
                assert!(["note", "warning", "error"].contains(&result["level"].as_str().unwrap()));
                assert!(!result["message"]["text"].as_str().unwrap().is_empty());
                assert!(
                    result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"]
                        .as_str()
                        .is_some()
                );
            }
            assert_eq!(run["invocations"][0]["executionSuccessful"], true);
        }
    }
}

/// The page of 2,000 heads stays below 2 MB; its document is compressed.
#[test]
fn a_large_page_is_small() {
    let Document::Measure(mut report) = document("measure") else {
        panic!("a measurement");
    };
    let head = report.heads[0].clone();
    report.heads = (0..2000_u32)
        .map(|index| {
            let mut head = head.clone();
            head.layer = u64::from(index / 50);
            head.head = u64::from(index % 50);
            // digits that do not compress: thirteen bins and ten quantities of full length
            let noise = |salt: u32| f64::from(index.wrapping_mul(2_654_435_761) ^ salt).sqrt();
            head.entropy_nats = Some(noise(1));
            head.mean_distance = Some(noise(2));
            head.max_score = Some(noise(3));
            head.key0_mass = Some(1.0 / noise(4).max(1.0));
            head.mass_by_distance = (0..13)
                .map(|bin| {
                    let mut one = head.mass_by_distance[0].clone();
                    one.mass = 1.0 / noise(bin + 9).max(1.0);
                    one.from = 1 << bin;
                    one.to = (2 << bin) - 1;
                    one
                })
                .collect();
            head
        })
        .collect();
    let page = html::render(&report.into()).unwrap().unwrap();
    assert!(page.contains("data-encoding=\"gzip\""));
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
}
