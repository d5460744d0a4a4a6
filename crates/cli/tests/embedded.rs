//! The committed embedded model is what its generator makes.

#[path = "../examples/embedded/generate.rs"]
mod generate;

#[test]
fn the_committed_files_are_the_generators() {
    assert!(
        generate::config() == include_str!("../src/embedded/config.json"),
        "run `cargo run -p snellen --example embedded`"
    );
    let committed = include_bytes!("../src/embedded/model.safetensors");
    assert!(
        generate::weights() == committed,
        "run `cargo run -p snellen --example embedded`"
    );
    assert!(
        committed.len() < 200_000,
        "{} bytes are too many to embed",
        committed.len()
    );
}
