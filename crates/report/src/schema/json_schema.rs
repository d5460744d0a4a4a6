//! The files of `docs/schema` are made from the result types, and this test holds them to it.
//!
//! `SNELLEN_WRITE_SCHEMA=1 cargo test --workspace --lib -- json_schema` writes them anew. `crates/cli/tests/schema.rs` checks real
//! outputs against them.

use super::{
    AuditReport, EvalReport, ExplainReport, HorizonReport, InspectReport, MeasureReport,
    PairReport, ProbePromptsReport, ProbeReport, SCHEMA_VERSION, StudyReport, TrainReport,
};
use crate::number::Distance;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;
use std::path::Path;

impl JsonSchema for Distance {
    fn schema_name() -> Cow<'static, str> {
        "Distance".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A distance in tokens: an integer up to 2^53, a float beyond.",
            "type": "number",
            "minimum": 0
        })
    }
}

fn schema_of<T: JsonSchema>(verb: &str) -> String {
    let mut schema = schemars::schema_for!(T);
    schema.insert(
        "title".to_owned(),
        format!("snellen {verb}, schema version {SCHEMA_VERSION}").into(),
    );
    let mut text = serde_json::to_string_pretty(&schema).unwrap();
    text.push('\n');
    text
}

#[test]
fn json_schema_files_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    for (verb, schema) in [
        ("horizon", schema_of::<HorizonReport>("horizon")),
        ("inspect", schema_of::<InspectReport>("inspect")),
        ("audit", schema_of::<AuditReport>("audit")),
        ("measure", schema_of::<MeasureReport>("measure")),
        ("eval", schema_of::<EvalReport>("eval")),
        ("probe", schema_of::<ProbeReport>("probe")),
        (
            "prompts",
            schema_of::<ProbePromptsReport>("probe --build-only"),
        ),
        ("train", schema_of::<TrainReport>("train")),
        ("study", schema_of::<StudyReport>("study")),
        ("report", schema_of::<PairReport>("report")),
        ("explain", schema_of::<ExplainReport>("explain")),
    ] {
        let path = folder.join(format!("{verb}.schema.json"));
        if std::env::var_os("SNELLEN_WRITE_SCHEMA").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &schema).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == schema,
            "{} is not what the types say: SNELLEN_WRITE_SCHEMA=1 writes it anew",
            path.display()
        );
    }
}
