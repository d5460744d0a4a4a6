//! Configurations. What is accepted has slopes.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use snellen_checkpoint::config::parse_config;

fuzz_target!(|text: &[u8]| {
    if let Ok(facts) = parse_config(text, Path::new("config.json")) {
        assert_eq!(
            facts.slope_values().expect("checked while parsing").len(),
            facts.n_heads
        );
    }
});
