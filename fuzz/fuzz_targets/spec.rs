//! Specification files. What is accepted is a valid model.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use snellen_checkpoint::spec;

fuzz_target!(|text: &[u8]| {
    if let Ok(spec) = spec::parse(text, Path::new("model.toml")) {
        assert_eq!(
            spec.facts
                .slope_values()
                .expect("checked while parsing")
                .len(),
            spec.facts.n_heads
        );
    }
});
