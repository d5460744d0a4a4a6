//! The embedded model is that of `runs/nano`, small enough to embed; the tests' own model is what its generator makes.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../examples/tiny/generate.rs"]
mod generate;
mod support;

use support::{json, run};

#[test]
fn the_committed_files_are_the_generators() {
    assert!(
        generate::config() == include_str!("tiny/config.json"),
        "run `cargo run -p snellen --example tiny`"
    );
    assert!(
        generate::weights() == include_bytes!("tiny/model.safetensors"),
        "run `cargo run -p snellen --example tiny`"
    );
}

#[test]
fn what_is_embedded_is_nano() {
    let nano = format!("{}/../../runs/nano", env!("CARGO_MANIFEST_DIR"));
    let size: u64 = ["model.toml", "model.safetensors", "tokenizer.json"]
        .iter()
        .map(|name| std::fs::metadata(format!("{nano}/{name}")).unwrap().len())
        .sum();
    assert!(size < 5_000_000, "{size} bytes are too many to embed");
    let text = format!("{}/src/embedded/text.txt", env!("CARGO_MANIFEST_DIR"));
    let own = json("measure --plan ieee");
    let named = json(&format!(
        "measure {nano}/model.toml --text {text} --plan ieee"
    ));
    for field in ["heads", "loss"] {
        assert_eq!(own[field], named[field], "{field}");
    }
    assert_eq!(own["model"]["hash"], named["model"]["hash"]);
    assert_eq!(own["text"]["hash"], named["text"]["hash"]);
    // It was trained: a guess among 2048 tokens costs 7.6 nats.
    assert!(own["loss"]["nats_per_token"].as_f64().unwrap() < 3.8);
    let chart = run("measure").stdout;
    for part in ["nano", "4 layers, 8 heads of 16", "trained at 512"] {
        assert!(chart.contains(part), "{part}: {chart}");
    }
}
