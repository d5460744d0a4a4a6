//! Writes the model that the tests of the program run on: `cargo run -p snellen --example tiny`.
//!
//! The weights are random, not trained, and drawn by a generator written out in `generate.rs`, so the file can be remade bit for
//! bit on any machine; a test compares the committed file with what the generator gives.

mod generate;

fn main() -> std::io::Result<()> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny");
    std::fs::write(folder.join("config.json"), generate::config())?;
    std::fs::write(folder.join("model.safetensors"), generate::weights())
}
