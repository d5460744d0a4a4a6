//! Real outputs against the files of `docs/schema`: no field is missing, none is of another type, none is undocumented.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::{Value, json};
use std::path::Path;
use support::{snellen, tiny_folder};

/// The schema of a verb. Here, unlike for readers of later versions, a field that it does not name is an error.
struct Validator {
    schema: Value,
}

impl Validator {
    fn of(verb: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../docs/schema/{verb}.schema.json"));
        let text = std::fs::read_to_string(path).unwrap();
        Self {
            schema: serde_json::from_str(&text).unwrap(),
        }
    }

    fn errors(&self, document: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        self.check(&self.schema, document, "", &mut errors);
        errors
    }

    /// The keywords that the generated files use; any other fails, so that none is passed over.
    fn check(&self, schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) {
        let Value::Object(keywords) = schema else {
            assert_eq!(*schema, json!(true), "a schema is an object or true");
            return;
        };
        let mut fail = |text: String| errors.push(format!("{at}: {text}"));
        let mut inner: Vec<(&Value, &Value, String)> = Vec::new();
        for (keyword, rule) in keywords {
            match keyword.as_str() {
                "$schema"
                | "$defs"
                | "title"
                | "description"
                | "format"
                | "default"
                | "additionalProperties" => {}
                "$ref" => {
                    let pointer = rule.as_str().unwrap().trim_start_matches('#');
                    let target = self.schema.pointer(pointer).unwrap();
                    inner.push((target, value, at.to_owned()));
                }
                "type" => {
                    let is = |kind: &Value| match kind.as_str().unwrap() {
                        "null" => value.is_null(),
                        "boolean" => value.is_boolean(),
                        "integer" => value.is_u64() || value.is_i64(),
                        "number" => value.is_number(),
                        "string" => value.is_string(),
                        "array" => value.is_array(),
                        "object" => value.is_object(),
                        other => panic!("type {other}"),
                    };
                    let holds = match rule {
                        Value::Array(kinds) => kinds.iter().any(is),
                        one => is(one),
                    };
                    if !holds {
                        fail(format!("expected {rule}, found {value}"));
                    }
                }
                "minimum" => {
                    if value.as_f64() < rule.as_f64() && value.is_number() {
                        fail(format!("below {rule}"));
                    }
                }
                "const" | "enum" => {
                    let one = [rule.clone()];
                    let allowed = rule.as_array().map_or(one.as_slice(), Vec::as_slice);
                    if !allowed.contains(value) {
                        fail(format!("expected one of {rule}, found {value}"));
                    }
                }
                "anyOf" | "oneOf" => {
                    let choices = rule.as_array().unwrap();
                    let fits = choices.iter().any(|choice| {
                        let mut errors = Vec::new();
                        self.check(choice, value, at, &mut errors);
                        errors.is_empty()
                    });
                    if !fits {
                        fail(format!("fits none of {} choices", choices.len()));
                    }
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        inner.push((rule, item, format!("{at}/{index}")));
                    }
                }
                "required" => {
                    for name in rule.as_array().unwrap() {
                        if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
                            fail(format!("{name} is missing"));
                        }
                    }
                }
                "properties" => {
                    for (name, field) in value.as_object().into_iter().flatten() {
                        match rule.get(name) {
                            Some(known) => inner.push((known, field, format!("{at}/{name}"))),
                            None => fail(format!("{name:?} is not in the schema")),
                        }
                    }
                }
                other => panic!("keyword {other} is not known to this test"),
            }
        }
        if let (Some(rule), None) = (
            keywords.get("additionalProperties"),
            keywords.get("properties"),
        ) {
            for (name, field) in value.as_object().into_iter().flatten() {
                inner.push((rule, field, format!("{at}/{name}")));
            }
        }
        for (schema, value, at) in inner {
            self.check(schema, value, &at, errors);
        }
    }
}

#[track_caller]
fn assert_valid(validator: &Validator, document: &Value, what: &str) {
    let errors = validator.errors(document);
    assert!(
        errors.is_empty(),
        "{what}: {:#?}",
        &errors[..errors.len().min(5)]
    );
}

fn output(args: &[&str]) -> Value {
    let run = snellen(args.iter().copied().chain(["--format", "json"]));
    assert!(run.code <= 1, "{run:?}");
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn real_outputs_are_valid() {
    let folder = tiny_folder();
    let path = folder.path().to_str().unwrap();
    for args in [
        vec![
            "horizon",
            "--like",
            "bloom-560m",
            "--plan",
            "f64,ieee,hf-eager:f16",
        ],
        vec![
            "horizon", "--heads", "16", "--remedy", "log", "--length", "131072",
        ],
        vec!["inspect", path],
        vec!["audit", path, "--plan", "f64,ieee,ftz"],
        vec!["measure", "--plan", "ieee,hf-eager:bf16"],
        vec!["measure", "--length", "1"],
        vec!["explain"],
    ] {
        let document = output(&args);
        assert_valid(&Validator::of(args[0]), &document, &args.join(" "));
    }
}

#[test]
fn real_probes_evaluations_and_runs_are_valid() {
    let folder = tiny_folder();
    let model = folder.path().to_str().unwrap();
    let at = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let text = at("text.txt", "One thing.<|endoftext|>And another thing.");
    let task = at(
        "task.jsonl",
        "{\"query\": \"1 is\", \"choices\": [\"even\", \"odd\"], \"gold\": 1}\n",
    );
    let words = at(
        "words.jsonl",
        "{\"context\": \"one\", \"continuation\": \"two\"}\n",
    );
    let grid = [
        "--lengths",
        "300",
        "--depths",
        "1",
        "--samples",
        "1",
        "--what-if",
        "slopes/2",
    ];
    let mut probe = vec!["probe", model, "--bytes"];
    probe.extend(grid);
    let mut prompts = probe.clone();
    prompts.truncate(prompts.len() - 2); // --what-if runs, and nothing is run
    prompts.push("--build-only");
    let document = output(&prompts);
    assert_valid(&Validator::of("prompts"), &document, &prompts.join(" "));
    let nano = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runs/nano");
    let nano = nano.to_str().unwrap();
    let study = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/small");
    let study = study.to_str().unwrap();
    for (verb, args) in [
        ("probe", probe),
        ("eval", vec!["eval", model, "--bytes", "--text", &text]),
        ("eval", vec!["eval", model, "--bytes", "--task", &task]),
        ("eval", vec!["eval", model, "--bytes", "--task", &words]),
        ("train", vec!["report", nano]),
        ("study", vec!["study", "report", study]),
    ] {
        let document = output(&args);
        assert_eq!(document["verb"], verb);
        assert_valid(&Validator::of(verb), &document, &args.join(" "));
        let file = at("saved.json", &document.to_string());
        let pair = output(&["report", &file, &file]);
        assert_valid(&Validator::of("report"), &pair, verb);
    }
}

#[test]
fn comparisons_are_valid_and_a_wrong_field_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (name, remedy) in [("a.json", "clamp=-20"), ("b.json", "clamp=-200")] {
        let file = folder.path().join(name);
        let out = file.to_str().unwrap().to_owned();
        let args = [
            "horizon", "--heads", "8", "--json", "--remedy", remedy, "-o", &out,
        ];
        assert_eq!(snellen(args).code, 0);
        files.push(out);
    }
    let mut document = output(&["report", &files[0], &files[1]]);
    let validator = Validator::of("report");
    assert_valid(&validator, &document, "report");
    document["heads"][0]["head"] = json!("one");
    assert!(!validator.errors(&document).is_empty());
    document["heads"][0]["head"] = json!(1);
    document["heads"][0]["extra"] = json!(1);
    assert!(!validator.errors(&document).is_empty());
}
